//! What workers say: parsers that turn the output of each program into facts, and the verdict on a run.
//!
//! A [`Parser`] reads the lines of a program's standard output and adds [`Fact`]s. A [`Summary`]
//! keeps what matters of them. [`judge`] compares that with the exit as it was observed; no program's
//! exit code is believed alone. A [`Report`] is what the worker's model itself wrote at the end.
//!
//! No parser fails: lines that cannot be read are counted and skipped, events that are not known
//! are ignored.

pub mod agent;
pub mod command;
pub mod env;
pub mod fill;
pub mod health;
pub mod invoke;
pub mod mock;
pub mod models;
pub mod private;
pub mod prompt;
mod registry;
mod route;
pub mod stops;
pub mod vscode;

mod aider;
mod claude;
mod classify;
mod codex;
mod copilot;
mod gemini;
mod json;
mod judge;
mod opencode;
mod own;
mod report;
mod summary;
mod text;

pub use judge::{Observed, Verdict, judge};
pub use registry::{
    AUTO, Known, Origin, ProfileError, all, check, executable, limited, link, origin, profile, unlink,
};
pub use report::Report;
pub use route::{accepts, route};
pub use summary::Summary;

use crate::model::Fact;

/// Turns a program's output, line by line, into facts.
pub trait Parser: Send {
    /// Reads one whole line, without its end.
    fn line(&mut self, line: &[u8], facts: &mut Vec<Fact>);
    /// Reads the end of the output.
    fn end(&mut self, facts: &mut Vec<Fact>);
}

/// The formats that can be read.
pub const PARSERS: &[&str] =
    &["text", "claude", "codex", "opencode", "gemini", "qwen", "copilot", "aider", "workspool"];

/// Returns a fresh parser of a format, if there is one of that name.
pub fn parser(name: &str) -> Option<Box<dyn Parser>> {
    Some(match name {
        "text" => Box::<text::Text>::default(),
        "claude" => Box::new(claude::Claude::new(claude::Dialect::Claude)),
        "codex" => Box::<codex::Codex>::default(),
        "opencode" => Box::<opencode::Opencode>::default(),
        "gemini" => Box::<gemini::Gemini>::default(),
        "qwen" => Box::new(claude::Claude::new(claude::Dialect::Qwen)),
        "copilot" => Box::<copilot::Copilot>::default(),
        "aider" => Box::<aider::Aider>::default(),
        "workspool" => Box::<own::Own>::default(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
