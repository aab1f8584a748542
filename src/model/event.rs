//! What happened to a task: the lines of `tasks/<id>/events.jsonl`.

use super::fact::Usage;
use super::id::{TaskId, WorkerName};
use super::words::{Class, HeldReason, Phase, Review, State};
use chrono::{DateTime, Utc};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One line of a task's history. Each line names the hash of the line before it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(title = "workspool event")]
pub struct Event {
    /// Place in the file, from 1.
    pub seq: u64,
    /// When.
    pub at: DateTime<Utc>,
    /// The attempt that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// What happened.
    pub what: EventKind,
    /// SHA-256 of the line before, without its line end; 64 zeros for the first line.
    pub prev: String,
}

/// What can happen to a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum EventKind {
    /// It was submitted.
    Submitted {
        /// SHA-256 of the task record.
        sha256: String,
    },
    /// Its request was changed.
    Edited {
        /// The new revision.
        revision: u32,
        /// SHA-256 of the new record.
        sha256: String,
    },
    /// It waits.
    Held {
        /// For what.
        reason: HeldReason,
        /// Until when.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<DateTime<Utc>>,
        /// In words.
        message: String,
    },
    /// It no longer waits.
    Released {
        /// What it waited for.
        reason: HeldReason,
    },
    /// A supervisor took the attempt on.
    Started {
        /// The worker.
        worker: WorkerName,
        /// The model that was chosen; absent where that is left to the worker's program.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<String>,
        /// Whether it goes on with what another supervisor left.
        #[serde(default)]
        adopted: bool,
    },
    /// A phase began.
    Phase {
        /// Which.
        phase: Phase,
    },
    /// A command ended.
    Step {
        /// The step's folder.
        step: String,
        /// How it ended, in words.
        ended: String,
        /// How long it ran, in milliseconds.
        elapsed_ms: u64,
        /// What it used, as reported.
        #[serde(default, skip_serializing_if = "Usage::is_empty")]
        usage: Usage,
        /// The model that a worker's program says it used.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<String>,
    },
    /// Something that somebody should know.
    Warning {
        /// In words.
        message: String,
    },
    /// The work was committed.
    Committed {
        /// The commit.
        commit: String,
        /// The branch.
        branch: String,
    },
    /// What was in the workspace was kept in a ref.
    Salvaged {
        /// The ref.
        name: String,
        /// Whether it holds everything.
        complete: bool,
    },
    /// It was given the tree of a task that had ended, with nothing of that left.
    TreeTaken {
        /// That task.
        from: TaskId,
    },
    /// Its tree was cleaned and kept for the next task of the repository.
    TreeKept {
        /// How long that took, in milliseconds.
        elapsed_ms: u64,
    },
    /// The attempt ended.
    AttemptEnded {
        /// How.
        state: State,
        /// Who should act.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        class: Option<Class>,
        /// In words.
        message: String,
    },
    /// Another attempt will be made.
    Retry {
        /// Its number.
        attempt: u32,
        /// Not before.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<DateTime<Utc>>,
    },
    /// The task ended.
    Ended {
        /// How.
        state: State,
        /// In words.
        message: String,
    },
    /// Somebody decided about the result.
    Reviewed {
        /// What.
        verdict: Review,
        /// Why, in words.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        message: Option<String>,
    },
}
