//! Wishes about a task that whoever may fulfil them fulfils: `requests/<task>.<attempt>.<kind>`.

use super::id::TaskId;
use chrono::{DateTime, Utc};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A durable wish about one attempt of a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(title = "workspool request")]
pub struct Request {
    /// Version of this format.
    pub version: u32,
    /// The task.
    pub task: TaskId,
    /// The attempt; a wish about one attempt never hits the next.
    pub attempt: u32,
    /// What is wished.
    pub kind: RequestKind,
    /// When.
    pub at: DateTime<Utc>,
    /// Why, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The answer's text, for an answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

/// What can be wished.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RequestKind {
    /// End the attempt.
    Cancel,
    /// Go on with this answer.
    Answer,
}

impl RequestKind {
    /// The word in the file's name.
    pub fn as_str(self) -> &'static str {
        match self {
            RequestKind::Cancel => "cancel",
            RequestKind::Answer => "answer",
        }
    }
}

/// The name of a request's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestName {
    /// The task.
    pub task: TaskId,
    /// The attempt.
    pub attempt: u32,
    /// What is wished.
    pub kind: RequestKind,
}

impl fmt::Display for RequestName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.task, self.attempt, self.kind.as_str())
    }
}

impl FromStr for RequestName {
    type Err = ();

    fn from_str(s: &str) -> Result<Self, ()> {
        let mut parts = s.split('.');
        let mut part = || parts.next().ok_or(());
        let task = part()?.parse().map_err(|_| ())?;
        let attempt = part()?.parse().map_err(|_| ())?;
        let kind = match part()? {
            "cancel" => RequestKind::Cancel,
            "answer" => RequestKind::Answer,
            _ => return Err(()),
        };
        if parts.next().is_some() { Err(()) } else { Ok(RequestName { task, attempt, kind }) }
    }
}
