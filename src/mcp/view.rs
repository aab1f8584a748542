//! A task as a planner sees it: all that is needed to decide, and nothing that must be paid for unread.

use super::clean::tail;
use super::tool::in_tools;
use crate::model::result::ChangedFile;
use crate::model::task::cut;
use crate::model::{Class, HeldReason, Phase, Review, State, Usage, Verification};
use crate::verbs::{Head, Shown};
use chrono::{DateTime, Utc};
use schemars::JsonSchema;
use serde::Serialize;
use std::path::PathBuf;

/// Most files, warnings, artifacts named.
const LIST: usize = 20;
/// Longest text of a single field, in bytes.
const TEXT: usize = 2000;

/// A task: where it stands, what came out, what to do next.
#[derive(Debug, Serialize, JsonSchema)]
pub struct TaskView {
    /// Which task it is.
    #[serde(flatten)]
    pub head: Head,
    /// The attempt that runs, or would run next, or was the last.
    pub attempt: u32,
    /// What to do next.
    pub next: Vec<String>,
    /// What it waits for, while it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits: Option<String>,
    /// Until when it waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<DateTime<Utc>>,
    /// How far it is, while it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running: Option<Running>,
    /// What came out of it, or of its last attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<ResultView>,
    /// SHA-256 of what was asked.
    pub sha256: String,
    /// When it was submitted.
    pub submitted_at: DateTime<Utc>,
    /// Where its files lie: task.json, result.json, diff.patch, artifacts/.
    pub folder: PathBuf,
}

/// How far a running task is.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Running {
    /// What it is doing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// The step, such as work.1 or gate.1.1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// Seconds since the step started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<i64>,
    /// The last line that was printed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_line: Option<String>,
}

/// What came out of a task.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ResultView {
    /// What happened, in a line.
    pub message: String,
    /// Who should act, where something failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<Class>,
    /// The phase in which it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// What the verify commands say. `unverified`: there were none.
    pub verification: Verification,
    /// The worker's own summary: a claim, not a fact.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// How many files changed.
    pub files_changed: usize,
    /// The first of them, each as `modified src/a.rs +3 -1`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
    /// Size of the patch in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diff_bytes: Option<u64>,
    /// The verify commands as they were run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gate: Vec<GateView>,
    /// The branch that holds the change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// The commit that holds the change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// The ref that keeps what was not committed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub salvage: Option<String>,
    /// Files kept with the result: get_artifact reads them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<String>,
    /// Deliverables that were asked for and are not there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing_deliverables: Vec<String>,
    /// Questions that the worker left open.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub open_questions: Vec<String>,
    /// What somebody should know.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// The end of the worker's standard error, where it did not succeed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stderr: Option<String>,
    /// What was used, as reported.
    #[serde(skip_serializing_if = "Usage::is_empty")]
    pub usage: Usage,
    /// Seconds from the attempt's start to its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    /// When it ended.
    pub ended_at: DateTime<Utc>,
}

/// A verify command as it was run.
#[derive(Debug, Serialize, JsonSchema)]
pub struct GateView {
    /// The command.
    pub command: String,
    /// Whether it passed.
    pub passed: bool,
    /// How it ended.
    pub ended: String,
    /// The end of its output, where it did not pass.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
}

impl TaskView {
    /// Makes the view of a task.
    pub fn of(shown: Shown) -> Self {
        let next = next(&shown);
        let running = (shown.state == State::Running).then(|| {
            let progress = shown.progress.as_ref();
            Running {
                phase: shown.phase,
                step: progress.map(|p| p.step.clone()),
                seconds: progress.map(|p| (Utc::now() - p.started_at).num_seconds().max(0)),
                last_line: progress.and_then(|p| p.last_line.as_deref()).map(|l| cut(l, 300)),
            }
        });
        TaskView {
            head: Head::of(&shown.task, shown.state, shown.review),
            attempt: shown.attempt,
            next,
            waits: shown.waits.map(|w| cut(&in_tools(&w), 500)),
            until: shown.until,
            running,
            result: shown.result.map(result),
            sha256: shown.sha256,
            submitted_at: shown.task.submitted_at,
            folder: shown.folder,
        }
    }
}

fn result(result: crate::model::TaskResult) -> ResultView {
    let ended_well = result.state == State::Succeeded;
    let text = |t: String| cut(&t, TEXT);
    let few = |list: Vec<String>| -> Vec<String> {
        let more = list.len().saturating_sub(LIST);
        let mut few: Vec<String> = list.into_iter().take(LIST).map(|t| cut(&t, 300)).collect();
        if more > 0 {
            few.push(format!("… and {more} more"));
        }
        few
    };
    let mut warnings = result.warnings;
    warnings.extend(result.tampering.into_iter().map(|t| format!("changed outside its workspace: {t}")));
    warnings.extend(result.lacks.into_iter().map(|what| format!("the workspace lacked: {what}")));
    warnings.extend(result.survivors.into_iter().map(|s| format!("could not be ended: {s}")));
    warnings.extend(result.undone.into_iter().map(|p| format!("its change was undone: {p}")));
    let ms = result.started_at.map(|from| (result.ended_at - from).num_milliseconds());
    ResultView {
        message: cut(&result.message, 500),
        class: result.class,
        phase: result.phase,
        verification: result.verification,
        summary: result.summary.map(text),
        files_changed: result.changed.len(),
        files: few(result.changed.iter().map(changed).collect()),
        diff_bytes: result.diff.map(|d| d.bytes),
        gate: result
            .gate
            .iter()
            .map(|run| GateView {
                command: cut(&run.command, 300),
                passed: run.passed,
                ended: crate::gate::ended(run),
                output: (!run.passed).then(|| tail(&run.output_tail, TEXT)).filter(|o| !o.is_empty()),
            })
            .collect(),
        branch: result.branch,
        commit: result.commit,
        salvage: result.salvage.map(|s| s.name),
        artifacts: few(result
            .artifacts
            .into_iter()
            .map(|a| format!("{} ({} bytes)", a.path, a.bytes))
            .collect()),
        missing_deliverables: few(result
            .deliverables
            .into_iter()
            .filter(|d| !d.found)
            .map(|d| d.path)
            .collect()),
        open_questions: few(result.open_questions),
        warnings: few(warnings),
        stderr: result.stderr_tail.filter(|_| !ended_well).map(|t| tail(&t, TEXT)).filter(|t| !t.is_empty()),
        usage: result.usage,
        seconds: ms.map(|ms| ms as f64 / 1000.0),
        ended_at: result.ended_at,
    }
}

/// A changed file in a line: `modified src/a.rs +3 -1`.
pub fn changed(file: &ChangedFile) -> String {
    match (file.added, file.removed) {
        (Some(added), Some(removed)) => format!("{} {} +{added} -{removed}", file.change, file.path),
        _ => format!("{} {} (binary)", file.change, file.path),
    }
}

/// Says what to do next, in the words of tools.
fn next(shown: &Shown) -> Vec<String> {
    let id = shown.id;
    let mut next = Vec::new();
    match shown.state {
        State::Queued => next.push(format!("wait_tasks {id}; `why` says what keeps it from starting")),
        State::Running => {
            next.push(format!("wait_tasks {id}; get_log shows what it prints; cancel_task ends it"));
        }
        State::Held => {
            let place = shown.hold_reason;
            next.push(match place {
                Some(HeldReason::Hand) => format!("release_task {id} lets it start"),
                Some(HeldReason::Needs) => {
                    "it starts when the tasks that it needs have succeeded: `why` names them".into()
                }
                Some(HeldReason::Answer) => "somebody must answer its question first".into(),
                Some(HeldReason::Time | HeldReason::Quota) | None => {
                    format!("it starts by itself when its time has come; release_task {id} lets it start now")
                }
            });
        }
        State::Succeeded => match shown.review {
            Some(Review::Accepted) => next.push("nothing: its change was accepted".into()),
            Some(Review::Rejected) => next.push("nothing: its change was rejected".into()),
            _ => succeeded(shown, &mut next),
        },
        State::Cancelled | State::Skipped | State::Expired => {
            next.push(format!("nothing, or retry_task {id}"));
        }
        State::Failed | State::TimedOut | State::BudgetExceeded | State::Interrupted => {
            let class = shown.result.as_ref().and_then(|r| r.class);
            next.push(failed(&id.to_string(), class));
            if let Some(salvage) = shown.result.as_ref().and_then(|r| r.salvage.as_ref()) {
                next.push(format!("what it had done is kept: git diff {}^ {0}", salvage.name));
            }
        }
    }
    next
}

fn succeeded(shown: &Shown, next: &mut Vec<String>) {
    let id = shown.id;
    let Some(result) = &shown.result else { return };
    if result.verification == Verification::Unverified {
        next.push("it is unverified: there were no verify commands, so judge the change yourself".into());
    }
    if result.changed.is_empty() {
        next.push("it changed no file: read its summary".into());
        return;
    }
    next.push(format!("get_diff {id}, then {}", super::tools::decide(id)));
}

fn failed(id: &str, class: Option<Class>) -> String {
    match class {
        Some(Class::Auth) => {
            format!("the worker is not signed in: its user must do that on this machine, then retry_task {id}; or retry_task with another worker")
        }
        Some(Class::NotFound) => format!("a program is missing: list_workers says which workers are there; retry_task {id} with another one"),
        Some(Class::RateLimited | Class::Quota) => {
            format!("its provider refuses more for now: retry_task {id} later, or with another worker")
        }
        Some(Class::GateFailed | Class::GateEnv) => format!(
            "read the gate's output above; retry_task {id} tries again, or submit_task with what was learned"
        ),
        Some(Class::Permission) => "it changed what it was not allowed to: submit_task with another permission, or clearer constraints".into(),
        Some(Class::ContextFull) => "the work does not fit the model: split it with submit_batch".into(),
        Some(Class::Timeout | Class::StartTimeout | Class::SilenceTimeout) => format!(
            "get_log {id} shows how far it came; submit_task with a longer timeout, or split it; retry_task tries again as it is"
        ),
        Some(Class::Disk) => format!("the disk is full: free some space, then retry_task {id}"),
        _ => format!("get_log {id} shows what happened; retry_task {id} tries again"),
    }
}
