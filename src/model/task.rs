//! A task: what a planner asks for, and the record that it becomes.

use super::command::Command;
use super::id::{TaskId, WorkerName};
use super::words::{Door, Effort, GateKind, Mode, Permission, Role, WorkspaceKind};
use chrono::{DateTime, Utc};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The version of the files that this program writes.
pub const VERSION: u32 = 1;

/// What a planner asks for. Only `objective` is required.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "workspool task", example = example())]
pub struct TaskSpec {
    /// Version of this format. Absent: the current one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u32>,
    /// What is to be done, in words; for the `shell` worker, the script itself.
    #[schemars(length(min = 1))]
    pub objective: String,
    /// A short name for lists. Absent: the first line of the objective.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// A name by which other tasks of the same batch can need this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What the worker should know besides the objective.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// What kind of work it is. Default: `code`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// The part that the worker plays: `[routes]` in the configuration may have a worker for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,

    /// Who does it. Absent: the configuration's route for the role, else its default worker, else the
    /// environment's, else the first that is available.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<WorkerName>,
    /// The provider of the model, where the worker can choose one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// The model, where the worker can choose one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// How hard the model should think, where the worker can choose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effort: Option<Effort>,

    /// Absolute path of the git repository (or folder) that it is about. A folder below the top of a repository
    /// stands for the repository; the worker starts there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repository: Option<PathBuf>,
    /// The commit to start from: any revision. Absent: HEAD when the attempt starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
    /// Folder inside the repository to work in, from its top. Absent: the worker starts in the folder that
    /// `repository` names, and commands at the top.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subdir: Option<PathBuf>,
    /// Where the worker works. Absent: `worktree` with a repository, `temporary` without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<WorkspaceKind>,
    /// Commands that prepare the workspace, after those of `.workspool.toml`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub setup: Vec<Command>,
    /// Patterns of ignored files to copy from the user's checkout into the workspace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub copy: Vec<String>,

    /// What the worker may change. Default: `workspace_write`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permission: Option<Permission>,
    /// With `custom`: patterns of paths that may change.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<String>,
    /// Patterns of paths that must not change.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub forbid: Vec<String>,
    /// Ask the worker to use no network. Enforced only by workers that can.
    #[serde(default, skip_serializing_if = "is_false")]
    pub no_network: bool,
    /// Ask the worker to run no shell commands. Enforced only by workers that can.
    #[serde(default, skip_serializing_if = "is_false")]
    pub no_shell: bool,

    /// What the worker must respect.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub constraints: Vec<String>,
    /// When the task counts as done, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub acceptance: Vec<String>,
    /// Commands that decide whether the work is good; run by us after the worker has ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub verify: Vec<Command>,
    /// Run every verify command even if one fails. Default: stop at the first failure.
    #[serde(default, skip_serializing_if = "is_false")]
    pub verify_all: bool,
    /// Where the verify commands run. Default: `in_place`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate: Option<GateKind>,
    /// How often a failed gate goes back to the worker with the evidence. Default: 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 20))]
    pub repair: Option<u32>,
    /// Files that the work should leave, relative to the workspace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deliverables: Vec<String>,
    /// A missing deliverable fails the task instead of being a warning.
    #[serde(default, skip_serializing_if = "is_false")]
    pub deliverables_required: bool,
    /// Files to keep with the result even if git ignores them: patterns relative to the workspace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<String>,

    /// Seconds for the worker in one attempt. Default: 3600.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 31_622_400))]
    pub timeout: Option<u64>,
    /// Seconds that the worker may print nothing. Default: 900.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 31_622_400))]
    pub silence_timeout: Option<u64>,
    /// Seconds until the worker's first output. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 31_622_400))]
    pub start_timeout: Option<u64>,
    /// Seconds for all attempts together, from the first claim. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 31_622_400))]
    pub total_timeout: Option<u64>,
    /// Seconds for all verify commands together. Default: 1800.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 31_622_400))]
    pub verify_timeout: Option<u64>,
    /// How often an attempt that failed for no fault of the task is repeated. Default: 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 100))]
    pub retries: Option<u32>,
    /// Workers or models to use instead on later attempts, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fallback: Vec<Fallback>,
    /// What the task may use up.
    #[serde(default, skip_serializing_if = "Budget::is_empty")]
    pub budget: Budget,

    /// 0 to 100; higher goes first. Waiting raises it, so that nothing starves. Default: 50.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 100))]
    pub priority: Option<u8>,
    /// Words to find it by.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Tasks that must have succeeded first: ids, or names of tasks of the same batch.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub needs: Vec<String>,
    /// Not to be started before this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<DateTime<Utc>>,
    /// Not to be started after this time; it then ends as `expired`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<DateTime<Utc>>,
    /// A cron expression: submit a copy of this task each time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cron: Option<String>,
    /// Submissions with one key and the same content are one task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 512))]
    pub idempotency_key: Option<String>,
    /// Do not start until somebody releases it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub hold: bool,

    /// Names of environment variables to hand to the worker from the runner's environment.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(inner(regex(pattern = "^[A-Za-z_][A-Za-z0-9_]*$")))]
    pub env: Vec<String>,
    /// Helpers that the worker may use, in words for the prompt.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub subagents: Vec<String>,
    /// The task whose worker submitted this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<TaskId>,
    /// Which program submits it, in its own words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// Anything else; kept and handed back, never looked at.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, serde_json::Value>,
}

/// A worker or model to use instead on a later attempt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Fallback {
    /// The worker; absent: the same one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<WorkerName>,
    /// The model; absent: the worker's own choice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}

/// What a task may use up, over all attempts that follow one another by themselves. Absent: no limit. What a
/// worker does not report cannot be limited.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    /// Seconds that its worker runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<u64>,
    /// Tokens in and out together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Calls of tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_calls: Option<u64>,
    /// Turns of the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turns: Option<u64>,
    /// US dollars.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub cost_usd: Option<f64>,
}

impl Budget {
    /// Whether it limits nothing.
    pub fn is_empty(&self) -> bool {
        *self == Budget::default()
    }
}

impl TaskSpec {
    /// Makes the smallest task there is.
    pub fn new(objective: impl Into<String>) -> Self {
        // One place knows the defaults: the deserializer.
        let value = serde_json::json!({ "objective": objective.into() });
        serde_json::from_value(value).unwrap_or_else(|e| unreachable!("an objective is a whole task: {e}"))
    }

    /// The name for lists: the title, else the first line of the objective, cut.
    pub fn display_title(&self) -> String {
        let line = self.title.as_deref().unwrap_or_else(|| {
            self.objective
                .lines()
                .map(str::trim)
                .find(|l| !l.is_empty() && !l.starts_with("#!"))
                .unwrap_or("")
        });
        cut(line, 80)
    }

    /// The priority, or its default.
    pub fn priority(&self) -> u8 {
        self.priority.unwrap_or(50)
    }

    /// The workspace kind, or its default.
    pub fn workspace(&self) -> WorkspaceKind {
        self.workspace.unwrap_or(match self.repository {
            Some(_) => WorkspaceKind::Worktree,
            None => WorkspaceKind::Temporary,
        })
    }

    /// The permission, or its default.
    pub fn permission(&self) -> Permission {
        self.permission.unwrap_or(Permission::WorkspaceWrite)
    }
}

/// Cuts a line to at most `max` characters, with an ellipsis where something is missing.
pub fn cut(line: &str, max: usize) -> String {
    if line.chars().count() <= max {
        return line.to_owned();
    }
    line.chars().take(max.saturating_sub(1)).chain(['…']).collect()
}

/// The record of a task: `tasks/<id>/task.json`. Never rewritten; an edit makes `task.2.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Task {
    /// Version of this format.
    pub version: u32,
    /// Its id.
    pub id: TaskId,
    /// Which revision of the request this is; 1 is the one that was submitted.
    pub revision: u32,
    /// When it was submitted.
    pub submitted_at: DateTime<Utc>,
    /// By whom.
    pub submitted_by: SubmittedBy,
    /// Who will do it: resolved at submission.
    pub worker: WorkerName,
    /// Which rule chose the worker.
    pub routed_by: RoutedBy,
    /// The repository as it was found at submission.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repo: Option<RepoRef>,
    /// Not to be started after this time: the task's own `expires`, or the owner's longest time in the queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<DateTime<Utc>>,
    /// Ids that `needs` stands for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub needs: Vec<TaskId>,
    /// The batch it came in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<BatchRef>,
    /// What was asked, as given.
    pub spec: TaskSpec,
}

impl Task {
    /// The bytes that the record is written as, and that its hash is of.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes =
            serde_json::to_vec_pretty(self).unwrap_or_else(|e| unreachable!("a task is plain data: {e}"));
        bytes.push(b'\n');
        bytes
    }
}

/// Who submitted a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SubmittedBy {
    /// The door it came in by.
    pub door: Door,
    /// The program, in its own words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// The name of the dropped file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// A folder that gets a copy of the result: the inbox's results folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub results: Option<PathBuf>,
}

/// The rule that chose a task's worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RoutedBy {
    /// The task names it.
    Task,
    /// The configuration's route for the role.
    Role,
    /// The configuration's route for tasks without one of their own.
    DefaultRoute,
    /// The configuration's default worker.
    Default,
    /// `WORKSPOOL_WORKER`.
    Environment,
    /// The first that is available.
    Auto,
}

/// A repository as it was found at submission.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RepoRef {
    /// The folder that was named, resolved.
    pub path: PathBuf,
    /// Eight hexadecimal digits that stand for the repository, whichever checkout is named.
    pub key: String,
    /// Its name for people and for folders.
    pub name: String,
}

/// The place of a task in its batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BatchRef {
    /// Id of the batch's first task.
    pub first: TaskId,
    /// Place in it, from 0.
    pub index: u32,
    /// Number of tasks in it.
    pub size: u32,
}

/// Several tasks that are taken together, all or none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "workspool batch")]
pub struct Batch {
    /// Version of this format. Absent: the current one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u32>,
    /// The tasks.
    #[schemars(length(min = 1))]
    pub tasks: Vec<TaskSpec>,
    /// Submissions with one key and the same content are one batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
}

/// The one durable file that *is* a submission: `intake/<id of the first task>.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(title = "workspool intake file")]
pub struct Intake {
    /// Version of this format.
    pub version: u32,
    /// The tasks, with consecutive ids.
    pub tasks: Vec<Task>,
}

fn is_false(b: &bool) -> bool {
    !*b
}

fn example() -> serde_json::Value {
    serde_json::json!({
        "objective": "Rename `colour` to `color` everywhere",
        "repository": "/home/me/project",
        "worker": "codex",
        "verify": ["cargo test"]
    })
}
