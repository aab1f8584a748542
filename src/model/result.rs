//! What came out of a task: `tasks/<id>/result.json`.

use super::fact::Usage;
use super::id::{TaskId, WorkerName};
use super::words::{Class, Confine, Phase, State, Verification};
use chrono::{DateTime, Utc};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// What came out of a task. Written before the task's ticket reaches `done/`.
///
/// A figure that was not observed is absent; nothing here is made up.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(title = "workspool result")]
pub struct TaskResult {
    /// Version of this format.
    pub version: u32,
    /// The task.
    pub id: TaskId,
    /// The attempt that says so; 0 if the task ended without one.
    pub attempt: u32,
    /// How it ended.
    pub state: State,
    /// Who should act, where something failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<Class>,
    /// The phase in which it ended, where it did not succeed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// One line that says what happened.
    pub message: String,
    /// When a limit lifts, if that was said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<DateTime<Utc>>,
    /// What the gate says.
    pub verification: Verification,
    /// The worker's own summary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,

    /// Commit that the work started from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
    /// Commit that holds the work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// Tree of that commit, which accept takes: what was verified, unless `gated_tree` is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<String>,
    /// The tree that was verified, where it is another: a clean gate has protected paths as in the base.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gated_tree: Option<String>,
    /// Branch that points at the commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// Ref that keeps what was not committed to the branch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub salvage: Option<SalvageRef>,
    /// Files that changed between base and result.
    #[serde(default)]
    pub changed: Vec<ChangedFile>,
    /// The patch from base to result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diff: Option<FileRef>,

    /// What proves this result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<FileRef>,

    /// The verify commands as we ran them.
    #[serde(default)]
    pub gate: Vec<GateRun>,
    /// Tests that the worker says it ran.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tests_claimed: Vec<String>,
    /// Questions that the worker left open.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub open_questions: Vec<String>,
    /// What somebody should know.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// The deliverables that were asked for, and whether they are there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deliverables: Vec<Deliverable>,
    /// Files kept with the result, under `artifacts/`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<Artifact>,

    /// Who did it.
    pub worker: WorkerUsed,
    /// What was used, as reported.
    #[serde(default, skip_serializing_if = "Usage::is_empty")]
    pub usage: Usage,
    /// Where the time went.
    pub durations: Durations,
    /// Every attempt so far, this one last.
    #[serde(default)]
    pub attempts: Vec<AttemptSummary>,
    /// Whether the system kept the worker from writing elsewhere, if that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confinement: Option<Confinement>,
    /// What the workspace lacked against the user's checkout or folder.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lacks: Vec<String>,
    /// The task whose tree this one was given, with nothing of it left (`warm_trees`); absent if the tree was made
    /// anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree_from: Option<TaskId>,
    /// What was restricted, and who enforced it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub restrictions: Vec<Restriction>,
    /// Paths whose change was undone (permission `read_only`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub undone: Vec<String>,
    /// What the worker changed in the repository outside its workspace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tampering: Vec<String>,
    /// How it was found out that no process is left: `kernel`, `subreaper` or `scan`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub census: Option<String>,
    /// Processes that could not be ended.
    #[serde(default)]
    pub survivors: Vec<String>,
    /// Processes that outlived their command and were ended by us.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_over: Vec<String>,
    /// Exit code of the worker, as observed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Signal that ended the worker, as observed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// The end of the worker's standard error, redacted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr_tail: Option<String>,

    /// Where the workspace is, if it stays there after the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<PathBuf>,
    /// SHA-256 of the task record that ran.
    pub task_sha256: String,
    /// When the attempt started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<DateTime<Utc>>,
    /// When the task ended.
    pub ended_at: DateTime<Utc>,
    /// Where its ticket lies, relative to the spool.
    pub ticket: String,
}

/// A file that changed between base and result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ChangedFile {
    /// Path inside the repository. Bytes that are not UTF-8 are shown as `\xNN`.
    pub path: String,
    /// `added`, `modified`, `deleted` or `type_changed`.
    pub change: String,
    /// Lines added; absent for binary files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub added: Option<u64>,
    /// Lines removed; absent for binary files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removed: Option<u64>,
}

/// A file with its size and hash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FileRef {
    /// Path relative to the task's folder.
    pub path: String,
    /// Size in bytes.
    pub bytes: u64,
    /// SHA-256 in hexadecimal.
    pub sha256: String,
}

/// One verify command as we ran it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GateRun {
    /// The command as given.
    pub command: String,
    /// Whether it ended with exit code 0 in time.
    pub passed: bool,
    /// Its exit code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The signal that ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Whether we ended it since its time was over.
    #[serde(default)]
    pub timed_out: bool,
    /// How long it ran, in milliseconds.
    pub elapsed_ms: u64,
    /// The end of its output, redacted.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub output_tail: String,
    /// Its log, relative to the task's folder.
    pub log: String,
}

/// A deliverable that was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Deliverable {
    /// Path relative to the workspace.
    pub path: String,
    /// Whether it is there.
    pub found: bool,
    /// Its size in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

/// A file kept with the result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Artifact {
    /// Path relative to the workspace, and to `artifacts/`.
    pub path: String,
    /// Media type, by the file's name.
    pub mime: String,
    /// Size in bytes.
    pub bytes: u64,
    /// SHA-256 in hexadecimal.
    pub sha256: String,
    /// Whether a copy is kept; large ones are only named.
    pub kept: bool,
}

/// Who did the work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WorkerUsed {
    /// The worker's name.
    pub name: WorkerName,
    /// Its version, as it or its health check said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// The model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The session, to continue it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
}

/// Where the time of an attempt went, in milliseconds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Durations {
    /// From submission to claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queued_ms: Option<u64>,
    /// Making the workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preparing_ms: Option<u64>,
    /// Setup commands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub setup_ms: Option<u64>,
    /// The worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub working_ms: Option<u64>,
    /// The gate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verifying_ms: Option<u64>,
    /// Commit, diff, artifacts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finishing_ms: Option<u64>,
}

/// One attempt in short.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AttemptSummary {
    /// Its number.
    pub attempt: u32,
    /// How it ended.
    pub state: State,
    /// Who should act.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<Class>,
    /// The worker.
    pub worker: WorkerName,
    /// What happened, in a line.
    pub message: String,
    /// When it started.
    pub started_at: DateTime<Utc>,
    /// When it ended.
    pub ended_at: DateTime<Utc>,
    /// How long its worker ran, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub working_ms: Option<u64>,
    /// What its worker used, as far as it was reported.
    #[serde(default, skip_serializing_if = "Usage::is_empty")]
    pub usage: Usage,
}

/// Whether the system kept a command from writing elsewhere.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Confinement {
    /// What was asked for.
    pub asked: Confine,
    /// Whether it held for all writes, from the command's first instruction on.
    pub held: bool,
    /// The version of the kernel's Landlock, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub abi: Option<u32>,
    /// Why it did not hold, or not in full.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why_not: Option<String>,
}

/// A restriction, and who enforced it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Restriction {
    /// What was restricted.
    pub what: String,
    /// `workspool`, the worker's name, `kernel`, or `nobody` (it was only asked for).
    pub enforced_by: String,
}

/// A ref that keeps what was not committed to the task's branch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SalvageRef {
    /// The ref's full name.
    pub name: String,
    /// The commit it points at.
    pub commit: String,
    /// Whether it holds everything that was in the workspace.
    pub complete: bool,
    /// What it does not hold, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
}
