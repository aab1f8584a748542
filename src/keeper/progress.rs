//! The small file that tells readers how a step is getting on.

use crate::durable;
use crate::model::Usage;
use chrono::{DateTime, Utc};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How often the file is replaced at most.
const EVERY: Duration = Duration::from_secs(1);
/// What ends sooner is not reported on.
const FIRST: Duration = Duration::from_millis(200);

/// What a keeper is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// The command runs.
    Running,
    /// What the command started is being ended.
    Ending,
    /// Something cannot be killed; the keeper goes on trying.
    Unkillable,
}

/// How a step is getting on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Progress {
    /// The version of this format.
    pub version: u32,
    /// The attempt's number.
    pub attempt: u32,
    /// The step.
    pub step: String,
    /// What the keeper is doing.
    pub phase: Phase,
    /// When the step started.
    pub started_at: DateTime<Utc>,
    /// Milliseconds since, when this was written.
    pub elapsed_ms: u64,
    /// The last line of output, redacted.
    #[serde(default)]
    pub last_line: Option<String>,
    /// What was used so far.
    pub usage: Usage,
}

/// Writes the file when there is something new to say, and not too often.
#[derive(Debug)]
pub(super) struct Reporter {
    path: Option<PathBuf>,
    begun: Instant,
    last: Option<(Instant, Progress)>,
}

impl Reporter {
    pub(super) fn new(path: Option<PathBuf>) -> Self {
        Reporter { path, begun: Instant::now(), last: None }
    }

    /// Whether a report would be written now, if there is news.
    pub(super) fn is_due(&self) -> bool {
        self.path.is_some() && self.last.as_ref().map_or(self.is_late(), |(at, _)| at.elapsed() >= EVERY)
    }

    fn is_late(&self) -> bool {
        self.begun.elapsed() >= FIRST
    }

    /// Writes `now` if it says something new. A failure is not worth a word: the next one follows.
    pub(super) fn report(&mut self, now: Progress) {
        let Some(path) = &self.path else { return };
        if self.last.is_none() && !self.is_late() {
            return;
        }
        if let Some((_, last)) = &self.last
            && (&last.phase, &last.last_line, &last.usage) == (&now.phase, &now.last_line, &now.usage)
        {
            return;
        }
        if let Ok(bytes) = serde_json::to_vec(&now) {
            let _ = durable::replace_unsynced(path, &bytes);
        }
        self.last = Some((Instant::now(), now));
    }
}
