//! What a keeper is told: the command, its surroundings, and its limits.

use crate::model::Usage;
use crate::process::Marker;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// All that a keeper needs to know to run one command. All paths are absolute.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StepPlan {
    /// The version of this format.
    pub version: u32,
    /// The task's id.
    pub task: String,
    /// The attempt's number.
    pub attempt: u32,
    /// The step's name.
    pub step: String,
    /// Marks every process of this step in its environment.
    pub marker: Marker,
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// The folder to run in.
    pub cwd: PathBuf,
    /// A file for standard input; else it is empty. Never an open pipe: programs wait for its end.
    #[serde(default)]
    pub stdin: Option<PathBuf>,
    /// Variables with values that may be known to anyone who reads the spool.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Variables taken from the keeper's own environment; their values never reach the disk. `NEW=OLD` hands
    /// on OLD under the name NEW.
    #[serde(default)]
    pub pass_env: Vec<String>,
    /// Variables whose values are masked wherever they are printed.
    #[serde(default)]
    pub mask_env: Vec<String>,
    /// Files of variables (`.env`) whose secrets are masked wherever they are printed.
    #[serde(default)]
    pub mask_files: Vec<PathBuf>,
    /// Time limits.
    #[serde(default)]
    pub deadlines: Deadlines,
    /// Milliseconds between asking to end (TERM) and ending (KILL).
    #[serde(default = "default_grace")]
    pub grace_ms: u64,
    /// Milliseconds for which ending is tried again on what cannot be killed.
    #[serde(default = "default_unkillable")]
    pub unkillable_ms: u64,
    /// Bytes of each output stream that are kept in the log, from its beginning.
    #[serde(default = "default_output_cap")]
    pub output_cap_bytes: u64,
    /// The name of the parser of standard output.
    #[serde(default = "default_parser")]
    pub parser: String,
    /// Limits on what the command may use.
    #[serde(default)]
    pub budget: Budget,
    /// What the session that is continued had used before; empty for a new one, absent if not known.
    #[serde(default)]
    pub usage_before: Option<Usage>,
    /// A file that, once it is there, asks for cancellation.
    pub cancel: PathBuf,
    /// Where to keep the progress for readers, if anywhere.
    #[serde(default)]
    pub progress: Option<PathBuf>,
    /// A command that stops what is not our process: a container. Run at every end, for 30 s at most.
    #[serde(default)]
    pub stop: Option<Vec<String>>,
    /// The command that starts another supervisor, should ours be gone at the end.
    #[serde(default)]
    pub resume: Vec<String>,
    /// Where alone the command may write; absent: wherever the user may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confine: Option<Confine>,
    /// Whether a control group may be made for the command, where the system grants one.
    #[serde(default = "default_true")]
    pub use_cgroup: bool,
}

/// How a command is confined, where the system can do it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Confine {
    /// Folders and files that it may write to, with all that is below.
    pub writable: Vec<PathBuf>,
    /// Why it would not hold, if so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unless: Option<String>,
}

/// Time limits of a step, by a clock that stands still while the machine sleeps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Deadlines {
    /// Milliseconds from start to end.
    #[serde(default)]
    pub total_ms: Option<u64>,
    /// Milliseconds without a byte of output.
    #[serde(default)]
    pub silence_ms: Option<u64>,
    /// Milliseconds to the first byte of output.
    #[serde(default)]
    pub start_ms: Option<u64>,
    /// Milliseconds from the command's last word (as its parser understands it) to its exit.
    #[serde(default = "default_final")]
    pub final_ms: u64,
}

impl Default for Deadlines {
    fn default() -> Self {
        Deadlines { total_ms: None, silence_ms: None, start_ms: None, final_ms: default_final() }
    }
}

/// Limits on what a step may use. A figure that the command does not report cannot be enforced.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Budget {
    /// Seconds of running time.
    #[serde(default)]
    pub seconds: Option<u64>,
    /// Tokens read (cached ones not counted) and written.
    #[serde(default)]
    pub tokens: Option<u64>,
    /// Calls of tools.
    #[serde(default)]
    pub tool_calls: Option<u64>,
    /// Turns of the model.
    #[serde(default)]
    pub turns: Option<u64>,
    /// US dollars.
    #[serde(default)]
    pub cost_usd: Option<f64>,
}

impl StepPlan {
    /// Makes a plan without limits, input, or environment; set the fields that matter.
    pub fn new(
        spool: &str,
        (task, attempt, step): (&str, u32, &str),
        argv: Vec<String>,
        cwd: &Path,
        cancel: &Path,
    ) -> StepPlan {
        StepPlan {
            version: super::VERSION,
            task: task.to_owned(),
            attempt,
            step: step.to_owned(),
            marker: Marker::new(spool, task, attempt, step),
            argv,
            cwd: cwd.to_owned(),
            stdin: None,
            env: BTreeMap::new(),
            pass_env: Vec::new(),
            mask_env: Vec::new(),
            mask_files: Vec::new(),
            deadlines: Deadlines::default(),
            grace_ms: default_grace(),
            unkillable_ms: default_unkillable(),
            output_cap_bytes: default_output_cap(),
            parser: default_parser(),
            budget: Budget::default(),
            usage_before: Some(Usage::default()),
            cancel: cancel.to_owned(),
            progress: None,
            stop: None,
            resume: Vec::new(),
            confine: None,
            use_cgroup: true,
        }
    }

    /// The time between TERM and KILL.
    pub fn grace(&self) -> Duration {
        Duration::from_millis(self.grace_ms)
    }
}

fn default_grace() -> u64 {
    5_000
}

fn default_unkillable() -> u64 {
    24 * 60 * 60 * 1_000
}

fn default_output_cap() -> u64 {
    10_000_000
}

fn default_final() -> u64 {
    30_000
}

fn default_parser() -> String {
    "text".to_owned()
}

fn default_true() -> bool {
    true
}
