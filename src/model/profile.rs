//! A worker as data: how to run one program on a task. Built-in and linked workers have the same form.

use super::command::Command;
use super::fact::ErrorClass;
use super::id::WorkerName;
use super::words::{Confine, Effort, Permission};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A worker: `workers/<name>.json`, or built in.
///
/// In `command`, the other argument lists, `env`, `files` and `probe` these stand for values of the attempt, each
/// filled into its own argument and never passed through a shell: `{prompt}`, `{prompt_file}`,
/// `{workspace}`, `{attempt_dir}`, `{files_dir}`, `{private_dir}`, `{task}`, `{attempt}`, `{model}`,
/// `{effort}`, `{session}`, `{turns}`, `{cost_usd}`, `{probe}`, and `{workspool}` (this program). `{model:json}`
/// is the value as a JSON string, quotes included; so are the others.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(
    title = "workspool worker profile",
    extend("anyOf" = [{ "required": ["command"] }, { "required": ["extends"] }])
)]
pub struct Profile {
    /// Version of this format. Absent: the current one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u32>,
    /// The worker's name.
    pub name: WorkerName,
    /// What it is, in a line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The worker whose profile this one starts from: what is given here takes the place of what is given
    /// there, and `null` takes it away. Variables in `env` are replaced one by one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extends: Option<WorkerName>,
    /// Program and arguments. May be left out with `extends`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1))]
    pub command: Vec<String>,
    /// How the prompt travels, unless `command` holds `{prompt}` or `{prompt_file}`.
    #[serde(default)]
    pub prompt: PromptBy,
    /// What the prompt is made of.
    #[serde(default)]
    pub template: Template,
    /// Format of what it prints: the name of a parser.
    #[serde(default = "text", skip_serializing_if = "is_text")]
    pub output: String,
    /// Arguments that are added to continue a session. Absent: it cannot.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resume: Vec<String>,
    /// Arguments that are added to name a new session. Absent: the program chooses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub session: Vec<String>,
    /// Arguments that are added when a model is chosen. Absent: it cannot be.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub model: Vec<String>,
    /// Arguments that come after all others: for what must stand last, such as a prompt.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tail: Vec<String>,
    /// Models to offer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<String>,
    /// The model used when none is chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_model: Option<String>,
    /// Arguments that are added for an effort. Absent: it cannot be chosen.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub effort: Vec<String>,
    /// The program's own words for efforts, where they differ from ours.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub efforts: BTreeMap<Effort, String>,
    /// The provider of the models.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// Arguments and environment per permission; the program enforces what is named here.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub permissions: BTreeMap<Permission, PermissionArgs>,
    /// What forbids the network. Absent: it cannot be forbidden.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_network: Option<Switch>,
    /// What forbids shell commands. Absent: they cannot be forbidden.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_shell: Option<Switch>,
    /// Arguments that limit turns, with `{turns}`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub max_turns: Vec<String>,
    /// Arguments that limit money, with `{cost_usd}`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub max_cost: Vec<String>,

    /// Environment variables to set. Values may use the same `{…}` as arguments. For a variable that is also
    /// in `pass_env` it is the value where the runner's environment has none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Names of variables to hand on from the runner's environment. `NEW=OLD` hands on OLD under the name
    /// NEW. The values are masked in logs, except those of `…_URL`, `…_HOME`, `…_DIR` and the like.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pass_env: Vec<String>,
    /// Variables of the runner without which the program is not started.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub require_env: Vec<String>,
    /// Files and folders by which a repository would steer the program itself (run commands at its start,
    /// send its requests elsewhere), looked for in the folder that it works in and above, as far as the
    /// workspace goes. Where one is there, the program is not started.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refuse_files: Vec<String>,
    /// Environment variables to set to private folders of the task, which its later attempts find again.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub private_dirs: BTreeMap<String, PrivateDir>,
    /// Files to write into `{files_dir}` before the start: name to template.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub files: BTreeMap<String, String>,
    /// A local command whose output, without space around it, fills `{probe}` in `files`, `env` and arguments.
    /// It runs in the workspace before the worker, with the worker's environment; a list of arguments may use
    /// the same `{…}` as others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe: Option<Command>,
    /// Who pays. Workers that name the same account wait together when its provider refuses requests for a
    /// while, and count together against `concurrency`. Absent: the worker has one of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,

    /// Whether the system is to keep it from writing outside its workspace, where it can. Absent: `off`. The
    /// owner's `[confine]` goes first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confine: Option<Confine>,
    /// Files and folders that it may write to although it is confined, such as its own settings and sessions.
    /// `~/` stands for the home, `{attempt_dir}` for the attempt's folder.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub writable: Vec<String>,
    /// Arguments put before the command, such as a container's `run`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub wrap: Vec<String>,
    /// A command that ends what `wrap` started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<Vec<String>>,
    /// How to see that it is there and signed in, without spending anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<Health>,
    /// What exit codes mean: code to class.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub exit_codes: BTreeMap<String, ErrorClass>,
    /// What output means, where its format does not say.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stop_patterns: Vec<StopPattern>,
    /// Most attempts of this worker at once. Absent: no limit of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub concurrency: Option<u32>,
    /// Seconds until its first output; a task's own value goes first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_timeout: Option<u64>,
    /// Seconds that it may print nothing; a task's own value goes first. For programs that print only at
    /// their end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silence_timeout: Option<u64>,
    /// How to install it and sign in, in a line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub install: Option<String>,
}

/// How the prompt travels to the program.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PromptBy {
    /// On standard input.
    #[default]
    Stdin,
    /// In an argument or a file that `command` names; standard input is empty.
    Argument,
}

/// What the prompt is made of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Template {
    /// Objective, context, constraints, criteria, verification, permissions, how to finish.
    #[default]
    Full,
    /// The objective alone, byte for byte: for scripts.
    Objective,
}

/// What a program is told for one permission.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PermissionArgs {
    /// Arguments to add.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// Environment variables to set.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Whether the program then enforces it; otherwise it is advice.
    #[serde(default)]
    pub enforced: bool,
    /// What the program cannot forbid any more under this permission.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lifts: Vec<Forbidden>,
}

/// What forbids something.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Switch {
    /// Arguments to add.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// Environment variables to set.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
}

/// What a task may ask a worker to do without.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Forbidden {
    /// The network.
    NoNetwork,
    /// Shell commands.
    NoShell,
}

impl Forbidden {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Forbidden::NoNetwork => "no_network",
            Forbidden::NoShell => "no_shell",
        }
    }
}

/// A private folder for a program's own files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PrivateDir {
    /// The user's own folder, from which files are linked, such as `~/.codex`. Where the variable is set in
    /// the runner's environment, its folder is taken instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Files to link from there, such as a sign-in. They are never read or copied.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub link: Vec<String>,
}

/// How to see that a worker is there and signed in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Health {
    /// Prints the version.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub version: Vec<String>,
    /// Ends with exit code 0 when signed in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signed_in: Vec<String>,
    /// Files of which one is there when signed in: absolute, or beginning with `~/` or `$NAME/`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signed_in_files: Vec<String>,
    /// Variables of which one is set when signed in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub signed_in_env: Vec<String>,
}

/// What a line of output means.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StopPattern {
    /// A regular expression, matched against each line of standard error and of text output.
    pub pattern: String,
    /// What it means.
    pub class: ErrorClass,
}

fn text() -> String {
    "text".to_owned()
}

fn is_text(s: &str) -> bool {
    s == "text"
}
