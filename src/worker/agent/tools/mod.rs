//! The tools: what the model can do in the workspace.
//!
//! A tool never ends the run: what goes wrong is its answer, and the model sees what to do about it.

mod list;
mod read;
mod search;
mod shell;
mod write;

use super::api::Definition;
use super::conversation::Call;
use super::paths::{PathError, Root};
use super::settings::Settings;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::time::Duration;

/// The longest answer of a tool.
const MAX_ANSWER: usize = 64 << 10;

/// The tools of a run.
pub(super) struct Tools {
    root: Root,
    may_write: bool,
    may_run: bool,
    shell: shell::Shell,
}

/// What a tool answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answer {
    /// For the model.
    pub text: String,
    /// Whether it did what it was asked.
    pub ok: bool,
    /// Why the run did not let the model have it, if that is what happened.
    pub denied: Option<String>,
}

/// Why a tool did not do what it was asked.
#[derive(Debug, thiserror::Error)]
enum ToolError {
    /// We do not let it.
    #[error("refused: {0}")]
    Denied(String),
    /// It did not work.
    #[error("error: {0}")]
    Failed(String),
}

type ToolResult = Result<String, ToolError>;

impl From<PathError> for ToolError {
    fn from(error: PathError) -> ToolError {
        match error {
            PathError::Refused(why) => ToolError::Denied(why),
            PathError::Unusable(why) => ToolError::Failed(why),
        }
    }
}

impl Tools {
    /// Makes the tools that the settings allow.
    pub fn new(root: Root, settings: &Settings) -> Tools {
        let hidden = settings.key.iter().map(|key| key.variable.clone()).collect();
        Tools {
            may_write: settings.may_write,
            may_run: settings.may_run,
            shell: shell::Shell::new(settings.shell_timeout, hidden),
            root,
        }
    }

    /// The workspace.
    pub fn root(&self) -> &Root {
        &self.root
    }

    /// What the model is told of them.
    pub fn definitions(&self) -> Vec<Definition> {
        let mut all = vec![read::definition(), list::definition(), search::definition()];
        if self.may_write {
            all.extend(write::definitions());
        }
        if self.may_run {
            all.push(self.shell.definition());
        }
        all
    }

    /// Does what the model calls for.
    pub fn call(&mut self, call: &Call) -> Answer {
        let done = match call.name.as_str() {
            "read_file" => arguments(call).and_then(|a| read::read_file(&self.root, &a)),
            "list_directory" => arguments(call).and_then(|a| list::list_directory(&self.root, &a)),
            "search" => arguments(call).and_then(|a| search::search(&self.root, &a)),
            "write_file" if self.may_write => arguments(call).and_then(|a| write::write_file(&self.root, &a)),
            "edit_file" if self.may_write => arguments(call).and_then(|a| write::edit_file(&self.root, &a)),
            "run_shell" if self.may_run => arguments(call).and_then(|a| self.shell.run(&self.root, &a)),
            "write_file" | "edit_file" | "run_shell" => {
                Err(ToolError::Denied(format!("{} is not allowed in this task", call.name)))
            }
            unknown => {
                let known: Vec<&str> = self.definitions().iter().map(|d| d.name).collect();
                Err(ToolError::Failed(format!(
                    "there is no tool {unknown:?}; there are {}",
                    known.join(", ")
                )))
            }
        };
        match done {
            Ok(text) => Answer { text: capped(text), ok: true, denied: None },
            Err(error) => {
                let denied = match &error {
                    ToolError::Denied(why) => Some(why.clone()),
                    ToolError::Failed(_) => None,
                };
                Answer { text: capped(error.to_string()), ok: false, denied }
            }
        }
    }
}

/// Reads the arguments of a call.
fn arguments<T: DeserializeOwned>(call: &Call) -> Result<T, ToolError> {
    let value: Value = serde_json::from_str(&call.arguments).map_err(|e| {
        ToolError::Failed(format!(
            "the arguments are no JSON ({e}); if they were cut off, do it in smaller steps"
        ))
    })?;
    serde_json::from_value(value).map_err(|e| ToolError::Failed(format!("wrong arguments: {e}")))
}

/// Cuts an answer that a tool did not cut itself.
fn capped(text: String) -> String {
    let kept = super::super::json::clip(&text, MAX_ANSWER);
    if kept.len() == text.len() {
        return text;
    }
    format!("{kept}\n[cut: {} more bytes]", text.len() - kept.len())
}

/// Says what went wrong with a file.
fn failed(path: &str, error: &std::io::Error) -> ToolError {
    ToolError::Failed(format!("{path}: {error}"))
}

/// Returns the time in words.
fn seconds(time: Duration) -> String {
    format!("{} s", time.as_secs())
}
