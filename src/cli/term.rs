//! What a terminal gets and a pipe does not: colour, and widths. Nothing of a task reaches a terminal with
//! control characters in it.

use crate::model::State;
use chrono::{SecondsFormat, Utc};
use std::borrow::Cow;
use std::io::{IsTerminal as _, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether standard output may have colour.
pub fn colour() -> bool {
    std::io::stdout().is_terminal()
        && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty())
        && std::env::var_os("TERM").is_some_and(|t| t != "dumb")
}

/// Writes a line to standard output. A reader that has gone away is no error.
pub fn line(text: &str) -> Result<(), super::Exit> {
    write(format!("{text}\n").as_bytes())
}

/// Writes bytes to standard output as they are.
pub fn write(bytes: &[u8]) -> Result<(), super::Exit> {
    match std::io::stdout().lock().write_all(bytes) {
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => std::process::exit(0),
        other => Ok(other?),
    }
}

/// Writes a value as JSON.
pub fn json<T: serde::Serialize>(value: &T) -> Result<(), super::Exit> {
    line(&serde_json::to_string_pretty(value)?)
}

/// Whether what is said on standard error begins with the time.
static STAMPED: AtomicBool = AtomicBool::new(false);

/// Begins what is said on standard error with the time from now on: it goes into a log.
pub fn stamp() {
    STAMPED.store(true, Ordering::Relaxed);
}

/// Writes an error to standard error.
pub fn error(text: &str) {
    note(&format!("error: {text}"));
}

/// Writes something that is no result to standard error.
pub fn note(text: &str) {
    let text = printable(text);
    if STAMPED.load(Ordering::Relaxed) {
        eprintln!("{} {text}", Utc::now().to_rfc3339_opts(SecondsFormat::Secs, true));
    } else {
        eprintln!("{text}");
    }
}

/// Text without control characters: what a task or a worker wrote cannot drive the terminal.
pub fn printable(text: &str) -> Cow<'_, str> {
    if text.chars().any(|c| c.is_control() && c != '\n' && c != '\t') {
        Cow::Owned(text.chars().filter(|c| !c.is_control() || *c == '\n' || *c == '\t').collect())
    } else {
        Cow::Borrowed(text)
    }
}

/// Like [`printable`], for text that we coloured ourselves and whose foreign parts are clean already.
pub fn printable_keeping_colour(text: &str) -> Cow<'_, str> {
    if colour() { Cow::Borrowed(text) } else { printable(text) }
}

/// A state, in its colour on a terminal, filled up to `width`.
pub fn state(state: State, width: usize) -> String {
    let text = format!("{state:width$}");
    if !colour() {
        return text;
    }
    let code = match state {
        State::Succeeded => "32",
        State::Failed | State::TimedOut | State::BudgetExceeded => "31",
        State::Interrupted | State::Cancelled | State::Expired | State::Skipped => "33",
        State::Running => "36",
        State::Queued | State::Held => "2",
    };
    format!("\x1b[{code}m{text}\x1b[0m")
}

/// Bold on a terminal.
pub fn bold(text: &str) -> String {
    if colour() { format!("\x1b[1m{text}\x1b[0m") } else { text.to_owned() }
}

/// A duration for people.
pub fn duration(ms: u64) -> String {
    match ms {
        0..1000 => format!("{ms} ms"),
        1000..60_000 => format!("{:.1} s", ms as f64 / 1000.0),
        60_000..3_600_000 => format!("{} min {} s", ms / 60_000, ms % 60_000 / 1000),
        _ => format!("{} h {} min", ms / 3_600_000, ms % 3_600_000 / 60_000),
    }
}

/// How long ago something was, for people.
pub fn ago(at: chrono::DateTime<chrono::Utc>) -> String {
    let seconds = (chrono::Utc::now() - at).num_seconds().max(0);
    match seconds {
        0..60 => format!("{seconds} s ago"),
        60..3600 => format!("{} min ago", seconds / 60),
        3600..86_400 => format!("{} h ago", seconds / 3600),
        _ => format!("{} d ago", seconds / 86_400),
    }
}
