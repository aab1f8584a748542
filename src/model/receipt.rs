//! What proves a result: `tasks/<id>/receipt.json`.

use super::id::{TaskId, WorkerName};
use super::result::FileRef;
use super::words::Verification;
use chrono::{DateTime, Utc};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Hashes that tie a task, its base, what came out and what verified it together.
///
/// Written once an attempt has succeeded, and named by the result. Everything in it can be recomputed
/// from the spool and the repository: `workspool audit`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(title = "workspool receipt")]
pub struct Receipt {
    /// Version of this format.
    pub version: u32,
    /// The task.
    pub task: TaskId,
    /// The attempt that succeeded.
    pub attempt: u32,
    /// Which revision of the task it ran.
    pub revision: u32,
    /// SHA-256 of that revision's record.
    pub task_sha256: String,
    /// When this was written.
    pub made_at: DateTime<Utc>,
    /// The version of the program that wrote it.
    pub program: String,
    /// The repository, for work in a git worktree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repository: Option<PathBuf>,
    /// The commit that the work started from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
    /// The commit that holds the work; absent if nothing changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// The tree that accept takes. It is what was verified, unless `gated_tree` is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<String>,
    /// The tree that was verified, where it is another: a clean gate has protected paths as in the base,
    /// also those that the task was allowed to change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gated_tree: Option<String>,
    /// The patch from base to commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diff: Option<FileRef>,
    /// Who did the work, and how it was called.
    pub worker: ReceiptWorker,
    /// What the gate says.
    pub verification: Verification,
    /// Each verify command: what it was, how it ended, and what it printed.
    #[serde(default)]
    pub gate: Vec<ReceiptGate>,
    /// SHA-256 over the git directory through which the tree was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub view_sha256: Option<String>,
    /// Every record of the attempt, by path relative to the task's folder.
    pub files: Vec<FileRef>,
    /// The history as it was then.
    pub events: ReceiptEvents,
}

/// The worker of a receipt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReceiptWorker {
    /// Its name.
    pub name: WorkerName,
    /// Its version, as it said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The program and its arguments, of the last run.
    pub argv: Vec<String>,
    /// Names of the environment variables that it could get; never their values.
    pub env: Vec<String>,
}

/// One verify command of a receipt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReceiptGate {
    /// The command as given.
    pub command: String,
    /// The step's folder, relative to the task's.
    pub step: String,
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// Whether it ended with exit code 0 in time.
    pub passed: bool,
    /// Its exit code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The signal that ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// SHA-256 of its log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_sha256: Option<String>,
}

/// The history of a task at one time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReceiptEvents {
    /// Number of its lines.
    pub lines: u64,
    /// The hash of the last one.
    pub head: String,
}
