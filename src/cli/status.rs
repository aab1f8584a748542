//! `workspool status`.

use super::exit::Exit;
use super::term;
use crate::verbs::{self, House};

/// Say who works the spool, how much waits, and what is due next
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  workspool status --json")]
pub struct Args {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Carries the verb out.
pub fn run(house: &House, args: &Args) -> Result<u8, Exit> {
    let status = verbs::status(house)?;
    if args.json {
        term::json(&status)?;
        return Ok(0);
    }
    term::line(&format!("spool    {}", term::printable(&status.spool.to_string_lossy())))?;
    let runner = match (&status.runner.process, status.runner.works) {
        (Some(beat), true) => {
            let late = if status.runner.late { ", which is too long: it may hang" } else { "" };
            let (pid, since) = (beat.identity.pid, term::ago(beat.since));
            format!("a loop, process {pid}, started {since}, last pass {}{late}", term::ago(beat.last_pass))
        }
        (None, true) => "a loop".to_owned(),
        (Some(beat), false) => format!("none; the loop of process {} died", beat.identity.pid),
        (None, false) => "no loop".to_owned(),
    };
    term::line(&format!("runner   {runner}"))?;
    if let Some(tick) = status.last_tick {
        term::line(&format!("tick     {}", term::ago(tick)))?;
    }
    if let Some(service) = &status.service {
        term::line(&format!(
            "service  {} {}, installed {}",
            service.kind,
            service.mode,
            term::ago(service.installed_at)
        ))?;
    }
    let counts = &status.counts;
    let mut tasks = format!("{} queued, {} running", counts.queued, counts.running);
    for (reason, count) in counts.held.iter().filter(|(_, n)| **n > 0) {
        tasks.push_str(&format!(", {count} held ({reason})"));
    }
    term::line(&format!("tasks    {tasks}"))?;
    if let Some(ms) = status.oldest_queued_ms.filter(|_| counts.queued > 0) {
        term::line(&format!("oldest   waits for {}", term::duration(ms)))?;
    }
    if let Some(due) = status.next_due {
        term::line(&format!("due      {}", due.to_rfc3339()))?;
    }
    if let Some(trouble) = &status.trouble {
        let text = format!("trouble  in the background, {}: {}", term::ago(trouble.at), trouble.message);
        term::line(&term::printable(&text))?;
    }
    Ok(0)
}
