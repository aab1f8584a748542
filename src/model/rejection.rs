//! Why a submission was refused: where, what was expected, what to do. Also `rejected/NAME.reason.json`.

use chrono::{DateTime, Utc};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The answer to a dropped file that was refused.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(title = "workspool rejection")]
pub struct Rejection {
    /// Version of this format.
    pub version: u32,
    /// The dropped file's name.
    pub file: String,
    /// When it was refused.
    pub at: DateTime<Utc>,
    /// What is wrong with it.
    pub problems: Vec<Problem>,
}

/// One thing that is wrong with a submission.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Problem {
    /// What kind of problem: decides the exit code.
    pub kind: ProblemKind,
    /// What is wrong.
    pub message: String,
    /// The field, such as `tasks[1].priority`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// Line in the file, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    /// Column in the line, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<usize>,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// Kinds of problems with a submission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProblemKind {
    /// The text is not JSON, or not of the form of a task.
    Malformed,
    /// A value is out of its range, or two do not fit together.
    Invalid,
    /// The schema has it, this version cannot do it yet.
    NotYet,
    /// The repository is not there, or not one that can be used.
    Repository,
    /// The worker is not there.
    Worker,
    /// A task that it names is not there.
    Task,
    /// An owner's limit would be exceeded.
    Ceiling,
    /// The idempotency key was used for something else.
    Conflict,
}

impl Problem {
    /// Makes a problem with a message.
    pub fn new(kind: ProblemKind, message: impl Into<String>) -> Self {
        Problem { kind, message: message.into(), field: None, line: None, column: None, hint: None }
    }

    /// Names the field.
    pub fn at(mut self, field: impl Into<String>) -> Self {
        self.field = Some(field.into());
        self
    }

    /// Says what to do.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Puts the field under a parent: `priority` becomes `tasks[1].priority`.
    pub fn under(mut self, parent: &str) -> Self {
        self.field = Some(match self.field {
            Some(field) if field.starts_with('[') => format!("{parent}{field}"),
            Some(field) => format!("{parent}.{field}"),
            None => parent.to_owned(),
        });
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, "line {line}")?;
            if let Some(column) = self.column {
                write!(f, ", column {column}")?;
            }
            f.write_str(": ")?;
        }
        if let Some(field) = &self.field {
            write!(f, "{field}: ")?;
        }
        f.write_str(&self.message)?;
        if let Some(hint) = &self.hint {
            write!(f, "\n  hint: {hint}")?;
        }
        Ok(())
    }
}
