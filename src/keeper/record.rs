//! What a keeper records, and what the records of a step mean.

use super::facts::{FactCounts, Said};
use super::{EXIT, LOCK, START};
use crate::durable::Lock;
use crate::model::Usage;
use crate::model::result::Confinement;
use crate::process::{Census, Ending, Identity, Marker, Survivor};
use crate::redact::LogStats;
use chrono::{DateTime, Utc};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};

/// `start.json`: written before the command is started, and once more when its identity is known.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StepStart {
    /// The version of this format.
    pub version: u32,
    /// The keeper.
    pub keeper: Identity,
    /// The command, once it was started.
    #[serde(default)]
    pub worker: Option<Identity>,
    /// When.
    pub at: DateTime<Utc>,
    /// The boot: after another one nothing of this step can be alive.
    pub boot: String,
    /// The marker in the environment of the command and its descendants.
    pub marker: Marker,
    /// Where the command works.
    pub workspace: PathBuf,
    /// The control group of the command, if it has one.
    #[serde(default)]
    pub cgroup: Option<PathBuf>,
    /// Processes that could not be killed so far; the keeper goes on trying.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unkillable: Vec<Survivor>,
}

/// How the command itself ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "how", rename_all = "snake_case")]
pub enum Ended {
    /// It exited by itself.
    Exited {
        /// Its exit code.
        code: i32,
    },
    /// A signal ended it.
    Signaled {
        /// The signal's number.
        signal: i32,
    },
    /// It was never started.
    NotStarted {
        /// Why.
        error: String,
        /// Whether the program was not found.
        not_found: bool,
        /// Whether the program may not be run.
        #[serde(default)]
        not_allowed: bool,
    },
    /// It could not be ended: the census names it.
    StillRunning,
}

impl From<Option<Ending>> for Ended {
    fn from(ending: Option<Ending>) -> Self {
        match ending {
            Some(Ending::Exited { code }) => Ended::Exited { code },
            Some(Ending::Signaled { signal }) => Ended::Signaled { signal },
            None => Ended::StillRunning,
        }
    }
}

/// Why the command ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "why", rename_all = "snake_case")]
pub enum Cause {
    /// By itself.
    Exit,
    /// Somebody asked for it.
    Cancelled,
    /// A time limit passed.
    Deadline {
        /// Which.
        which: DeadlineKind,
    },
    /// A limit on use was reached.
    Budget {
        /// Which.
        which: BudgetKind,
        /// What was used.
        used: f64,
        /// What was allowed.
        limit: f64,
    },
    /// It had said its last word and did not exit.
    Lingered,
    /// The keeper itself failed.
    KeeperFault {
        /// How.
        error: String,
    },
}

/// Time limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DeadlineKind {
    /// From start to end.
    Total,
    /// Without output.
    Silence,
    /// To the first output.
    Start,
}

/// Limits on use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BudgetKind {
    /// Running time.
    Seconds,
    /// Tokens read and written.
    Tokens,
    /// Calls of tools.
    ToolCalls,
    /// Turns of the model.
    Turns,
    /// US dollars.
    CostUsd,
}

/// `exit.json`: how the command ended, written once nothing of it is alive.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StepExit {
    /// The version of this format.
    pub version: u32,
    /// How the command itself ended.
    pub ended: Ended,
    /// Why.
    pub cause: Cause,
    /// When it was started.
    pub started_at: DateTime<Utc>,
    /// When it had ended.
    pub ended_at: DateTime<Utc>,
    /// The time between, by a monotonic clock.
    pub elapsed_ms: u64,
    /// The last look at the kill domain: empty unless something could not be killed.
    pub census: Census,
    /// Processes that outlived the command and were ended (the first 256).
    pub left_over: Vec<Survivor>,
    /// What became of the output; absent if no log could be opened. Its two ends are given below.
    #[serde(default)]
    #[schemars(with = "Option<serde_json::Value>")]
    pub output: Option<LogStats>,
    /// The last lines of standard error, redacted.
    pub stderr_tail: String,
    /// The last lines of standard output, redacted.
    pub stdout_tail: String,
    /// What was used, as far as the command reported it.
    pub usage: Usage,
    /// How many facts of each kind were read.
    pub facts: FactCounts,
    /// What the command said that decides what happens next.
    pub said: Said,
    /// Whether the system kept the command from writing elsewhere, if that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confinement: Option<Confinement>,
    /// What could not be written, if anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_error: Option<String>,
    /// Why the stop command failed, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_error: Option<String>,
}

/// What the records of a step, and its lock, say.
#[derive(Debug, Clone, PartialEq)]
pub enum StepState {
    /// No command was ever started.
    NotStarted,
    /// A keeper lives.
    Running(Option<Box<StepStart>>),
    /// It ended, and this is how.
    Ended(Box<StepExit>),
    /// The keeper was killed before it could record the end. Its start, if that is readable (after a
    /// power loss it may not be). What it left must be swept.
    Lost(Option<Box<StepStart>>),
}

/// Reads the state of a step from its folder.
///
/// May say `Running` for a moment longer: a process that another thread of some holder of the lock has just
/// forked shares the lock until it executes its program. [`await_end`](super::await_end) has no such doubt.
pub fn state(step_dir: &Path) -> io::Result<StepState> {
    if let Some(Ok(exit)) = read(&step_dir.join(EXIT))? {
        return Ok(StepState::Ended(Box::new(exit)));
    }
    let held = Lock::at(step_dir.join(LOCK)).is_held()?;
    if held {
        let start = read(&step_dir.join(START))?.and_then(Result::ok);
        return Ok(StepState::Running(start.map(Box::new)));
    }
    settled(step_dir)
}

/// Reads the state of a step that no keeper runs.
pub(super) fn settled(step_dir: &Path) -> io::Result<StepState> {
    // Not before the lock was seen free: the keeper may have ended since.
    if let Some(Ok(exit)) = read(&step_dir.join(EXIT))? {
        return Ok(StepState::Ended(Box::new(exit)));
    }
    Ok(match read(&step_dir.join(START))? {
        None => StepState::NotStarted,
        Some(start) => StepState::Lost(start.ok().map(Box::new)),
    })
}

/// Reads a record: `None` if it is not there, an inner error if it is not readable.
pub(super) fn read<T: DeserializeOwned>(path: &Path) -> io::Result<Option<serde_json::Result<T>>> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes))),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}
