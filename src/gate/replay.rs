//! Running the gate of a receipt once more, on a clean copy of the tree that it names.
//!
//! The copy has what the verified tree has, the ignored files that were copied in from the user's checkout (as
//! they are there now), and what the setup commands make.

use crate::git::{Oid, Repo, View};
use crate::keeper::{self, Carried, Ended, StepPlan};
use crate::model::WorkspaceKind;
use crate::model::receipt::Receipt;
use crate::spool::{Spool, names, read_json};
use crate::workspace::{Prepared, copy};
use anyhow::Context as _;
use std::path::Path;

/// Runs setup and gate again; `told` hears how each verify command ended, and `news` of each that begins.
/// Returns what is not as it was.
pub(super) fn replay(
    spool: &Spool,
    receipt: &Receipt,
    view: Option<&View>,
    mut told: impl FnMut(String, Option<String>),
    news: &mut dyn FnMut(&str),
) -> anyhow::Result<Vec<String>> {
    let dir = spool.task(receipt.task);
    let desk = tempfile::Builder::new().prefix("replay-").tempdir_in(spool.tmp())?;
    let tree = desk.path().join("tree");
    std::fs::create_dir(&tree)?;
    let view = view.context("only work in a git worktree can be verified again")?;
    let rev = receipt.gated_tree.as_ref().or(receipt.commit.as_ref()).or(receipt.base.as_ref());
    let rev = rev.context("the receipt names no commit")?;
    let gated = Oid::parse(rev.as_bytes()).context("the receipt names no commit")?;
    view.export(&gated, &tree, &desk.path().join("index"), &mut || Ok(()))?;
    let notes = copy_in(spool, receipt, &tree)?;
    let steps = dir.attempt(receipt.attempt).path().join("steps");
    let mut setups: Vec<(u32, std::path::PathBuf)> = names(&steps)?
        .iter()
        .filter_map(|n| Some((n.to_str()?.strip_prefix("setup.")?.parse().ok()?, steps.join(n))))
        .collect();
    setups.sort_unstable();
    let count = setups.len();
    for (at, (k, step)) in setups.into_iter().enumerate() {
        news(&format!("replay: setup command {} of {count}", at + 1));
        let ended = run(spool, &step, &tree, desk.path(), &format!("setup.{k}"), view)?;
        if ended != (Ended::Exited { code: 0 }) {
            told(format!("replay of setup command {k}"), Some(shown(&ended)));
            return Ok(notes);
        }
    }
    for (k, gate) in receipt.gate.iter().enumerate() {
        news(&format!("replay: verify command {} of {}: {}", k + 1, receipt.gate.len(), gate.command));
        let name = format!("gate.{}", k + 1);
        let ended = run(spool, &dir.path().join(&gate.step), &tree, desk.path(), &name, view)?;
        let now = match ended {
            Ended::Exited { code } => Some(code),
            _ => None,
        };
        let differs = (now != gate.exit_code || now.is_none())
            .then(|| format!("{}; the receipt says exit code {:?}", shown(&ended), gate.exit_code));
        told(format!("replay: {}", gate.command), differs);
    }
    Ok(notes)
}

/// Copies in the files that the workspace was given from the user's checkout.
fn copy_in(spool: &Spool, receipt: &Receipt, tree: &Path) -> anyhow::Result<Vec<String>> {
    let prepared = spool.task(receipt.task).attempt(receipt.attempt).file("prepared.json");
    let prepared: Option<Prepared> = read_json(&prepared)?;
    let files = prepared.map(|p| p.copied).unwrap_or_default();
    let task = spool.read_task(receipt.task)?;
    let is_copy = task.spec.workspace() == WorkspaceKind::Copy;
    let Some(place) = task.repo.filter(|_| !files.is_empty()) else { return Ok(Vec::new()) };
    let from = match is_copy {
        true => place.path,
        // It may be named by a folder below its top.
        false => Repo::open(&place.path)?.top.context("the repository has no checkout any more")?,
    };
    Ok(copy::copy_listed(&from, tree, &files)?.warnings)
}

/// Runs the command of a recorded step elsewhere, under a keeper of its own.
fn run(
    spool: &Spool,
    step: &Path,
    tree: &Path,
    desk: &Path,
    name: &str,
    view: &View,
) -> anyhow::Result<Ended> {
    let old: StepPlan = read_json(&step.join("plan.json"))?.context("the plan of the step is gone")?;
    let inside = old.cwd.strip_prefix(&view.worktree().path).unwrap_or(Path::new(""));
    let label = format!("replay-{}", crate::model::TaskId::generate());
    let never = desk.join("never");
    let mut plan =
        StepPlan::new(spool.id(), (&label, old.attempt, name), old.argv.clone(), &tree.join(inside), &never);
    plan.env = old.env.clone();
    plan.env.insert("WORKSPOOL_WORKSPACE".into(), tree.to_string_lossy().into_owned());
    let tmp = desk.join("tmp");
    std::fs::create_dir_all(&tmp)?;
    plan.env.insert("TMPDIR".into(), tmp.to_string_lossy().into_owned());
    (plan.pass_env, plan.mask_env) = (old.pass_env.clone(), old.mask_env.clone());
    (plan.deadlines, plan.grace_ms) = (old.deadlines.clone(), old.grace_ms);
    plan.unkillable_ms = 60_000;
    match keeper::carry(&desk.join("steps").join(name), &plan, &desk.join("lock"), || {})? {
        Carried::Ended(exit) => Ok(exit.ended),
        Carried::Lost(_) => anyhow::bail!("the keeper of {name} was killed"),
    }
}

fn shown(ended: &Ended) -> String {
    match ended {
        Ended::Exited { code } => format!("exit code {code}"),
        Ended::Signaled { signal } => format!("signal {signal}"),
        Ended::NotStarted { error, .. } => error.clone(),
        Ended::StillRunning => "it could not be ended".to_owned(),
    }
}
