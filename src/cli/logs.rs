//! `workspool logs`.

use super::exit::Exit;
use super::term;
use crate::model::{EventKind, State};
use crate::redact::LogEntry;
use crate::runner::Watch;
use crate::spool::events;
use crate::verbs::{House, LogReader, Step};
use std::collections::VecDeque;
use std::path::Path;
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
    let mut reader = LogReader::new(args.step.clone());
    let mut printer = Printer { last: None, json: args.json };
    let watch = args.follow.then(|| Watch::new(&house.spool, &house.config, false));
    let mut keep = args.lines;
    loop {
        let ended = house.spool.find_ticket(id)?.is_none_or(|f| f.place.state().is_terminal());
        let (mut lines, mut said) = (VecDeque::new(), Ok(()));
        reader.more(house, id, |step, entry| {
            printer.print(step, &entry, &mut lines);
            match keep {
                Some(most) => drop(lines.drain(..lines.len().saturating_sub(most))),
                None if said.is_ok() => said = lines.drain(..).try_for_each(|line| term::line(&line)),
                None => {}
            }
        })?;
        said?;
        for line in &lines {
            term::line(line)?;
        }
        // What comes after the first look is shown whole.
        keep = None;
        match &watch {
            Some(watch) if !ended => drop(watch.wait(Duration::from_millis(300))),
            _ => return Ok(0),
        }
    }
}

struct Printer {
    last: Option<(u32, String)>,
    json: bool,
}

impl Printer {
    /// Makes lines of an entry, with a heading where a step begins.
    fn print(&mut self, step: &Step, entry: &LogEntry, lines: &mut VecDeque<String>) {
        if self.json {
            let line = JsonLine { attempt: step.attempt, step: &step.name, entry };
            lines.extend(serde_json::to_string(&line));
            return;
        }
        let here = (step.attempt, step.name.clone());
        if self.last.as_ref() != Some(&here) {
            lines.push_back(term::bold(&format!("── attempt {}, {}", step.attempt, step.name)));
            self.last = Some(here);
        }
        if let Some(cut) = entry.cut_bytes {
            lines.push_back(format!("… {cut} bytes were not logged"));
        }
        if let Some(text) = &entry.text {
            lines.push_back(term::printable(text).into_owned());
        }
    }
}

#[derive(serde::Serialize)]
struct JsonLine<'a> {
    attempt: u32,
    step: &'a str,
    #[serde(flatten)]
    entry: &'a LogEntry,
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
        EventKind::Started { worker, model, adopted } => {
            let how = if *adopted { "taken over, with" } else { "started with" };
            let model = model.as_ref().map(|m| format!(" and the model {m}")).unwrap_or_default();
            format!("{how} {worker}{model}")
        }
        EventKind::Phase { phase } => phase.to_string(),
        EventKind::Step { step, ended, elapsed_ms, .. } => {
            format!("{step}: {ended} after {}", term::duration(*elapsed_ms))
        }
        EventKind::Warning { message } => format!("warning: {message}"),
        EventKind::Committed { commit, branch } => format!("committed {commit} to {branch}"),
        EventKind::Salvaged { name, complete } => {
            format!("kept in {name}{}", if *complete { "" } else { " (in part)" })
        }
        EventKind::TreeTaken { from } => format!("given the tree of task {from}, cleaned"),
        EventKind::TreeKept { elapsed_ms } => {
            format!("its tree was cleaned for the next task in {}", term::duration(*elapsed_ms))
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
