//! `workspool logs`.

use super::exit::Exit;
use super::term;
use crate::model::{EventKind, State};
use crate::redact::LogEntry;
use crate::runner::Watch;
use crate::spool::events;
use crate::verbs::{self, House, Step};
use std::collections::HashMap;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Show what a task's commands printed, redacted
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  workspool logs 01jdq3m6
  workspool logs -f 01jdq3m6
  workspool logs 01jdq3m6 --step gate.1.1 --lines 50
  workspool logs 01jdq3m6 --events")]
pub struct Args {
    /// The task's id, the beginning or end of it, or the name of a dropped file
    task: String,
    /// Go on until the task has ended
    #[arg(short, long)]
    follow: bool,
    /// Only the last lines
    #[arg(short = 'n', long, value_name = "N")]
    lines: Option<usize>,
    /// Only this step, such as work.1 or gate.1.1
    #[arg(long, value_name = "STEP")]
    step: Option<String>,
    /// What happened to the task instead of what was printed
    #[arg(long)]
    events: bool,
    /// Print JSON, a line each
    #[arg(long)]
    json: bool,
}

/// Carries the verb out.
pub fn run(house: &House, args: &Args) -> Result<u8, Exit> {
    let id = super::resolve(house, &args.task)?;
    if args.events {
        return show_events(&house.spool.task(id).events(), args.json);
    }
    let mut reader = Reader { offsets: HashMap::new(), last: None, json: args.json };
    let watch = args.follow.then(|| Watch::new(&house.spool, &house.config, false));
    let mut first = true;
    loop {
        let ended = house.spool.find_ticket(id)?.is_none_or(|f| f.place.state().is_terminal());
        let mut lines = Vec::new();
        for step in verbs::log_steps(house, id)? {
            if args.step.as_ref().is_none_or(|s| *s == step.name) {
                reader.read(&step, &mut lines)?;
            }
        }
        let skip = match args.lines.filter(|_| first) {
            Some(n) => lines.len().saturating_sub(n),
            None => 0,
        };
        for line in &lines[skip..] {
            term::line(line)?;
        }
        first = false;
        match &watch {
            Some(watch) if !ended => drop(watch.wait(Duration::from_millis(300))),
            _ => return Ok(0),
        }
    }
}

struct Reader {
    offsets: HashMap<PathBuf, u64>,
    last: Option<(u32, String)>,
    json: bool,
}

impl Reader {
    /// Reads the lines of a step that came since the last look.
    fn read(&mut self, step: &Step, lines: &mut Vec<String>) -> Result<(), Exit> {
        let Ok(mut file) = File::open(&step.log) else { return Ok(()) };
        let offset = self.offsets.entry(step.log.clone()).or_insert(0);
        file.seek(SeekFrom::Start(*offset))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        // A line that is still being written is left for the next look.
        let whole = bytes.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
        *offset += whole as u64;
        for raw in bytes[..whole].split(|b| *b == b'\n').filter(|l| !l.is_empty()) {
            let Some(entry) = LogEntry::read(raw) else { continue };
            if self.json {
                let mut value: serde_json::Value = serde_json::from_slice(raw)?;
                value["attempt"] = step.attempt.into();
                value["step"] = step.name.clone().into();
                lines.push(value.to_string());
                continue;
            }
            let here = (step.attempt, step.name.clone());
            if self.last.as_ref() != Some(&here) {
                lines.push(term::bold(&format!("── attempt {}, {}", step.attempt, step.name)));
                self.last = Some(here);
            }
            if let Some(cut) = entry.cut_bytes {
                lines.push(format!("… {cut} bytes were not logged"));
            }
            if let Some(text) = &entry.text {
                lines.push(term::printable(text).into_owned());
            }
        }
        Ok(())
    }
}

fn show_events(path: &Path, json: bool) -> Result<u8, Exit> {
    for event in events::read(path)? {
        if json {
            term::line(&serde_json::to_string(&event)?)?;
            continue;
        }
        let attempt = event.attempt.map(|a| format!(" #{a}")).unwrap_or_default();
        let time = event.at.format("%Y-%m-%d %H:%M:%S%.3f");
        term::line(&term::printable(&format!("{time}{attempt}  {}", words(&event.what))))?;
    }
    Ok(0)
}

fn words(what: &EventKind) -> String {
    let state = |s: &State| s.to_string();
    match what {
        EventKind::Submitted { sha256 } => format!("submitted, sha256:{sha256}"),
        EventKind::Edited { revision, .. } => format!("edited: revision {revision}"),
        EventKind::Held { message, .. } => format!("held: {message}"),
        EventKind::Released { reason } => format!("released from {reason}"),
        EventKind::Started { worker, adopted: false } => format!("started with {worker}"),
        EventKind::Started { worker, adopted: true } => format!("taken over, with {worker}"),
        EventKind::Phase { phase } => phase.to_string(),
        EventKind::Step { step, ended, elapsed_ms, .. } => {
            format!("{step}: {ended} after {}", term::duration(*elapsed_ms))
        }
        EventKind::Warning { message } => format!("warning: {message}"),
        EventKind::Committed { commit, branch } => format!("committed {commit} to {branch}"),
        EventKind::Salvaged { name, complete } => {
            format!("kept in {name}{}", if *complete { "" } else { " (in part)" })
        }
        EventKind::AttemptEnded { state: s, message, .. } => {
            format!("attempt ended as {}: {message}", state(s))
        }
        EventKind::Retry { attempt, until } => match until {
            Some(until) => format!("attempt {attempt} follows, not before {}", until.format("%H:%M:%S")),
            None => format!("attempt {attempt} follows"),
        },
        EventKind::Ended { state: s, message } => format!("ended as {}: {message}", state(s)),
        EventKind::Reviewed { verdict, message } => match message {
            Some(message) => format!("{verdict}: {message}"),
            None => verdict.to_string(),
        },
    }
}
