//! `workspool show`.

use super::exit::Exit;
use super::term;
use crate::model::{Review, State, TaskResult, Verification};
use crate::verbs::{self, House, Shown};

/// Show one task: what was asked, where it stands, what came out
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  workspool show 01jdq3m6")]
pub struct Args {
    /// The task's id, the beginning or end of it, or the name of a dropped file
    task: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Carries the verb out.
pub fn run(house: &House, args: &Args) -> Result<u8, Exit> {
    let shown = verbs::show(house, super::resolve(house, &args.task)?)?;
    if args.json {
        term::json(&shown)?;
    } else {
        term::write(term::printable_keeping_colour(&text(&shown)).as_bytes())?;
    }
    Ok(0)
}

fn text(shown: &Shown) -> String {
    let mut out = String::new();
    let mut row = |name: &str, value: String| {
        if !value.is_empty() {
            out.push_str(&format!("{name:12} {value}\n"));
        }
    };
    let safe = |text: &str| term::printable(text).into_owned();
    let spec = &shown.task.spec;
    row("task", shown.id.to_string());
    row("title", term::bold(&safe(&spec.display_title())));
    let review =
        shown.review.filter(|r| *r != Review::Unreviewed).map(|r| format!(", {r}")).unwrap_or_default();
    row("state", format!("{}{review}", term::state(shown.state, 0)));
    row("waits", shown.waits.as_deref().map(safe).unwrap_or_default());
    if let Some(phase) = shown.phase {
        row("phase", format!("{phase} (attempt {})", shown.attempt));
    }
    if let Some(progress) = &shown.progress {
        let elapsed = (chrono::Utc::now() - progress.started_at).num_milliseconds();
        row(
            "running",
            format!("{} for {}", progress.step, term::duration(u64::try_from(elapsed).unwrap_or(0))),
        );
        row("last line", progress.last_line.as_deref().map(safe).unwrap_or_default());
    }
    row("worker", format!("{} (by {})", shown.task.worker, word(&shown.task.routed_by)));
    row("repository", shown.task.repo.as_ref().map(|r| r.path.display().to_string()).unwrap_or_default());
    row(
        "submitted",
        format!(
            "{} by {}",
            shown.task.submitted_at.format("%Y-%m-%d %H:%M:%S UTC"),
            shown.task.submitted_by.door
        ),
    );
    row("tags", spec.tags.join(", "));
    row("folder", shown.folder.display().to_string());
    if let Some(result) = &shown.result {
        let again = if shown.state.is_terminal() { "" } else { " (of the last end)" };
        out.push_str(&format!("\nresult{again}\n"));
        out.push_str(&result_text(result));
    }
    out
}

fn word<T: serde::Serialize>(value: &T) -> String {
    serde_json::to_value(value).ok().and_then(|v| v.as_str().map(str::to_owned)).unwrap_or_default()
}

fn result_text(result: &TaskResult) -> String {
    let mut out = String::new();
    let safe = |text: &str| term::printable(text).into_owned();
    let mut row = |name: &str, value: String| {
        if !value.is_empty() {
            out.push_str(&format!("  {name:10} {value}\n"));
        }
    };
    row("message", safe(&result.message));
    let class = result.class.map(|c| c.to_string()).unwrap_or_default();
    let phase = result.phase.map(|p| format!(" while {p}")).unwrap_or_default();
    row("class", if class.is_empty() { class } else { format!("{class}{phase}") });
    row("summary", result.summary.as_deref().map(safe).unwrap_or_default());
    row(
        "verified",
        match result.verification {
            Verification::Verified => "yes".into(),
            Verification::Unverified => "no: there are no verify commands".into(),
            Verification::Failed => "no: a verify command failed".into(),
            Verification::NotRun => String::new(),
        },
    );
    row("branch", result.branch.clone().unwrap_or_default());
    row("commit", result.commit.clone().unwrap_or_default());
    row("salvage", result.salvage.as_ref().map(|s| s.name.clone()).unwrap_or_default());
    row("tree", result.tree_from.map(|from| format!("a warm one, of task {from}")).unwrap_or_default());
    for run in &result.gate {
        let mark = if run.passed { "passed" } else { "FAILED" };
        row(
            "gate",
            format!(
                "{mark}  {}  ({}, {})",
                safe(&run.command),
                crate::gate::ended(run),
                term::duration(run.elapsed_ms)
            ),
        );
    }
    for file in result.changed.iter().take(20) {
        let lines = match (file.added, file.removed) {
            (Some(a), Some(r)) => format!("  +{a} -{r}"),
            _ => String::new(),
        };
        row(&file.change, format!("{}{lines}", safe(&file.path)));
    }
    if result.changed.len() > 20 {
        row("", format!("… and {} more files", result.changed.len() - 20));
    }
    for path in &result.undone {
        row("undone", safe(path));
    }
    for artifact in &result.artifacts {
        row("artifact", format!("{} ({} bytes)", safe(&artifact.path), artifact.bytes));
    }
    for question in &result.open_questions {
        row("question", safe(question));
    }
    for warning in &result.warnings {
        row("warning", safe(warning));
    }
    if let Some(confined) = &result.confinement {
        let abi = confined.abi.map(|abi| format!(" (Landlock {abi})")).unwrap_or_default();
        let why = confined.why_not.as_ref().map(|why| format!(": {}", safe(why))).unwrap_or_default();
        row("confined", format!("{}{abi}{why}", if confined.held { "yes" } else { "no" }));
    }
    for what in &result.lacks {
        row("lacked", safe(what));
    }
    for what in &result.tampering {
        row("tampering", safe(what));
    }
    if let Some(tail) = result.stderr_tail.as_deref().filter(|_| result.state != State::Succeeded) {
        for line in tail.trim_end().lines().rev().take(5).collect::<Vec<_>>().into_iter().rev() {
            row("stderr", safe(line));
        }
    }
    if result.state == State::Succeeded {
        row("next", format!("workspool diff {0}   workspool accept {0}", result.id));
    } else {
        row("next", format!("workspool logs {0}   workspool retry {0}", result.id));
    }
    out
}
