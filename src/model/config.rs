//! `config.toml` of a spool, and `.workspool.toml` of a repository.

use super::command::Command;
use super::id::WorkerName;
use super::task::Budget;
use super::words::{Confine, GateKind, NoticeKind, Permission, RouteKey};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The owner's configuration. Every key has a default; the file may be absent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Most attempts at once in this spool.
    pub max_concurrency: u32,
    /// Most attempts at once on one repository.
    pub repo_concurrency: u32,
    /// Most attempts at once of a worker, by its name.
    #[schemars(example = example_worker_concurrency())]
    pub worker_concurrency: BTreeMap<WorkerName, u32>,
    /// Seconds between passes of a loop that nothing woke.
    pub poll: u64,
    /// The worker of tasks that name none; `auto` takes the first that is available.
    #[schemars(example = &"claude")]
    pub default_worker: Option<WorkerName>,
    /// The worker of tasks that name none, by their role; `default` is for tasks without a role, or with one
    /// that has no route.
    #[schemars(schema_with = "routes_schema", example = example_routes())]
    pub routes: BTreeMap<RouteKey, WorkerName>,
    /// The model of tasks that name none, by worker.
    pub models: BTreeMap<WorkerName, String>,
    /// Where workspaces are made. May be on another disk. Default: `worktrees/` in the spool.
    #[schemars(example = &"/mnt/fast/worktrees")]
    pub worktrees: Option<PathBuf>,
    /// How many trees are kept for the next tasks, by the path of the repository: the tree of a task that ended is
    /// cleaned and given on, instead of being left where it is and another one made. For large repositories.
    #[schemars(example = example_warm_trees())]
    pub warm_trees: BTreeMap<PathBuf, u32>,
    /// Further inboxes.
    #[schemars(example = example_inbox())]
    pub inbox: Vec<Inbox>,
    /// Values for tasks that give none.
    pub defaults: Defaults,
    /// What no task may exceed.
    pub ceilings: Ceilings,
    /// Free space that must be left.
    pub disk: Disk,
    /// What keeps commands from writing outside their workspace.
    pub confine: Confining,
    /// Who is told when a task ends or asks something.
    pub notify: Notify,
    /// Logs of the service.
    pub logs: Logs,
    /// What is removed by itself.
    pub retention: Retention,
    /// Allow a repository that lies at or above the spool.
    pub allow_repository_above_spool: bool,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            max_concurrency: 4,
            repo_concurrency: 3,
            worker_concurrency: BTreeMap::new(),
            poll: 5,
            default_worker: None,
            routes: BTreeMap::new(),
            models: BTreeMap::new(),
            worktrees: None,
            warm_trees: BTreeMap::new(),
            inbox: Vec::new(),
            defaults: Defaults::default(),
            ceilings: Ceilings::default(),
            disk: Disk::default(),
            confine: Confining::default(),
            notify: Notify::default(),
            logs: Logs::default(),
            retention: Retention::default(),
            allow_repository_above_spool: false,
        }
    }
}

fn example_worker_concurrency() -> serde_json::Value {
    serde_json::json!({ "claude": 2 })
}

fn example_warm_trees() -> serde_json::Value {
    serde_json::json!({ "/home/me/monorepo": 2 })
}

/// One table with any of the keys: not a table with a key of its own for each.
fn routes_schema(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "propertyNames": { "enum": RouteKey::WORDS },
        "additionalProperties": generator.subschema_for::<WorkerName>()
    })
}

fn example_routes() -> serde_json::Value {
    serde_json::json!({ "reviewer": "codex", "default": "claude" })
}

fn example_inbox() -> serde_json::Value {
    serde_json::json!([{ "path": "/srv/drop", "results": "/srv/drop/results" }])
}

fn example_command() -> serde_json::Value {
    serde_json::json!(["logger", "-t", "workspool", "{event} {task} {title}"])
}

/// A further inbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Inbox {
    /// The folder into which files are dropped.
    pub path: PathBuf,
    /// A folder that gets answers and results: for clients that cannot read the spool.
    #[serde(default)]
    pub results: Option<PathBuf>,
}

/// Values for tasks that give none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Defaults {
    /// Seconds for the worker in one attempt.
    pub timeout: u64,
    /// Seconds that the worker may print nothing.
    pub silence_timeout: u64,
    /// Seconds for making the workspace.
    pub prepare_timeout: u64,
    /// Seconds for all setup commands together.
    pub setup_timeout: u64,
    /// Seconds for all verify commands together.
    pub verify_timeout: u64,
    /// How often an attempt is repeated.
    pub retries: u32,
    /// Seconds before the first repetition; doubled for each further one.
    pub retry_delay: u64,
    /// Bytes of output kept per stream and command.
    pub output_cap: u64,
    /// Bytes of artifacts kept per task.
    pub artifact_cap: u64,
    /// Milliseconds between the polite and the hard end of processes.
    pub grace_ms: u64,
}

impl Default for Defaults {
    fn default() -> Self {
        Defaults {
            timeout: 3600,
            silence_timeout: 900,
            prepare_timeout: 600,
            setup_timeout: 1800,
            verify_timeout: 1800,
            retries: 2,
            retry_delay: 10,
            output_cap: 10 * 1024 * 1024,
            artifact_cap: 50 * 1024 * 1024,
            grace_ms: 3000,
        }
    }
}

/// What no task may exceed, whoever submits it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Ceilings {
    /// The widest permission, in the order `read_only`, `custom`, `workspace_write`, `full`.
    #[schemars(example = &"workspace_write")]
    pub permission: Option<Permission>,
    /// Longest `timeout`, in seconds.
    #[schemars(example = 14400)]
    pub timeout: Option<u64>,
    /// Longest time in the queue, in seconds; then a task ends as `expired`.
    #[schemars(example = 86400)]
    pub queue_age: Option<u64>,
    /// Most attempts' retries.
    #[schemars(example = 3)]
    pub retries: Option<u32>,
    /// Largest budget; a task without one gets this.
    pub budget: Budget,
    /// Most tasks that one task's worker may submit.
    #[schemars(example = 20)]
    pub children: Option<u32>,
    /// How deep tasks may be submitted by tasks.
    #[schemars(example = 2)]
    pub depth: Option<u32>,
}

/// Free space that must be left, the larger of the two; and what a copy of a folder may take.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Disk {
    /// Bytes.
    pub reserve_bytes: u64,
    /// Percent of the file system.
    pub reserve_percent: u8,
    /// Bytes that must be left beside a workspace of kind `copy` or `clone`, if that is more.
    pub copy_reserve_bytes: u64,
    /// Most bytes that a copy of a folder takes.
    pub copy_bytes: u64,
    /// Most files and links that a copy of a folder takes.
    pub copy_files: u64,
}

impl Default for Disk {
    fn default() -> Self {
        const GIB: u64 = 1024 * 1024 * 1024;
        Disk {
            reserve_bytes: 2 * GIB,
            reserve_percent: 5,
            copy_reserve_bytes: 10 * GIB,
            copy_bytes: 2 * GIB,
            copy_files: 50_000,
        }
    }
}

/// What keeps commands from writing outside their workspace, where the system can (Linux with Landlock).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Confining {
    /// For all workers, whatever their profiles say: `off` or `strict`. Default: as each profile says.
    #[schemars(example = &"strict")]
    pub workers: Option<Confine>,
    /// For verify commands too.
    pub gate: bool,
    /// Files and folders that may be written to all the same. `~/` stands for the home.
    pub writable: Vec<PathBuf>,
}

/// Who is told when a task ends or asks something. Nobody, unless a way is chosen here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Notify {
    /// Of what is told.
    pub on: Vec<NoticeKind>,
    /// Show it on the desktop (`notify-send` on Linux, `osascript` on macOS).
    pub desktop: bool,
    /// Run this program. `{event}`, `{task}`, `{title}`, `{state}`, `{message}` and `{spool}` stand for
    /// values, each inside its own argument; all details come as JSON on standard input.
    #[schemars(example = example_command())]
    pub command: Vec<String>,
    /// Send the details to this address by POST. `https`, or `http` on this machine.
    #[schemars(example = &"https://hooks.example.org/workspool")]
    pub webhook: Option<String>,
    /// A file with the secret that signs what is sent (HMAC-SHA256 in `X-Workspool-Signature`).
    #[schemars(example = &"/home/me/.config/workspool/webhook-secret")]
    pub webhook_secret_file: Option<PathBuf>,
    /// How often a webhook or command that failed is tried, with growing pauses.
    pub attempts: u32,
}

impl Default for Notify {
    fn default() -> Self {
        Notify {
            on: NoticeKind::ALL.to_vec(),
            desktop: false,
            command: Vec::new(),
            webhook: None,
            webhook_secret_file: None,
            attempts: 8,
        }
    }
}

impl Notify {
    /// Whether anybody is told of anything.
    pub fn is_on(&self) -> bool {
        (self.desktop || !self.command.is_empty() || self.webhook.is_some()) && !self.on.is_empty()
    }
}

/// Logs of the service. They rotate: a log that is over its size becomes `.1`, and what was `.1` goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Logs {
    /// Bytes of a log before it rotates.
    pub service_bytes: u64,
}

impl Default for Logs {
    fn default() -> Self {
        Logs { service_bytes: 10 * 1024 * 1024 }
    }
}

/// What is removed by itself, as `workspool prune --apply` would. Nothing, unless `days` is given.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Retention {
    /// Remove workspaces and records of tasks that ended more days ago than this. Not set: nothing is removed
    /// by itself.
    #[schemars(example = &30)]
    pub days: Option<u32>,
    /// Keep this many of the newest ended tasks, however old.
    pub keep: usize,
    /// With `days`: also younger ones, the oldest first, until ended tasks take no more bytes than this.
    #[schemars(example = &20_000_000_000u64)]
    pub max_bytes: Option<u64>,
}

/// `.workspool.toml` in a repository, read from the commit that a task starts from.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RepoConfig {
    /// Commands that prepare a workspace.
    pub setup: Vec<Command>,
    /// Commands that run after the gate, whatever came out.
    pub teardown: Vec<Command>,
    /// Patterns of ignored files to copy from the user's checkout into a workspace.
    pub copy: Vec<String>,
    /// Verify commands for tasks that give none.
    pub verify: Vec<Command>,
    /// Where verify commands run for tasks that do not say.
    pub gate: Option<GateKind>,
    /// Patterns of paths that a task may not change unless it allows them by name.
    pub protected: Vec<String>,
}
