//! Putting a workspace in order when nothing of the worker's runs in it any more.

use super::Attempt;
use super::enclose::Retiring;
use super::outcome::Outcome;
use crate::git::{Salvaged, View};
use crate::model::State;
use crate::workspace::apart;
use anyhow::Context as _;

/// Keeps what is in the workspace, puts the task's branch right, runs the teardown, looks at the guard. Says how the
/// workspace may go, if it cannot stay.
pub(super) fn tidy(attempt: &Attempt, outcome: &mut Outcome) -> Tidied {
    let note = |what: &str, e: anyhow::Error, outcome: &mut Outcome| {
        outcome.warnings.push(format!("{what}: {e:#}"));
    };
    let mut proof = None;
    let prepared = super::read_prepared(&attempt.dir).ok().flatten();
    if prepared.is_none()
        && let Err(e) = apart::clear_half_made(&attempt.plan.workspace)
    {
        note("what was begun of the workspace could not be removed", e.into(), outcome);
    }
    if prepared.is_some() {
        if let Err(e) = attempt.teardown(outcome) {
            note("teardown", e, outcome);
        }
        if let Err(e) = attempt.check_guard(outcome) {
            note("the repository could not be compared with how it was", e, outcome);
        }
        attempt.check_history(outcome);
        if outcome.state != State::Succeeded && attempt.base().is_some() && !outcome.keep {
            match keep_failed_work(attempt, outcome) {
                Ok(kept) => proof = kept,
                Err(e) => {
                    note(
                        "what the worker left could not be kept in a ref, so the workspace stays",
                        e,
                        outcome,
                    );
                    return Tidied::default();
                }
            }
        }
    }
    if attempt.overlay().is_none() {
        return Tidied { retiring: None, proof };
    }
    let retiring = attempt.may_retire(proof, outcome).unwrap_or_else(|e| {
        note("what is in the workspace could not be kept, so it stays", e, outcome);
        None
    });
    Tidied { retiring, proof: None }
}

/// What is known of the workspace when nothing runs in it any more.
#[derive(Default)]
pub(super) struct Tidied {
    /// How an overlay may go.
    pub(super) retiring: Option<Retiring>,
    /// That all in a tree is kept, if it was asked.
    pub(super) proof: Option<Salvaged>,
}

/// Failed work is never committed to the task's branch: it is kept beside it. Returns the proof that it is.
fn keep_failed_work(attempt: &Attempt, outcome: &mut Outcome) -> anyhow::Result<Option<Salvaged>> {
    let view = View::open(&attempt.dir.view())?;
    let base = view.base().clone();
    let worked = attempt.dir.step("work.1").exists();
    let mut proof = None;
    if worked {
        (outcome.salvage, proof) = attempt.salvage(&view)?.unzip();
        if let Some(tree) = outcome.tree.clone() {
            attempt.write_diff(&view, &base, &tree, outcome)?;
        }
    }
    let start = attempt.plan.start.as_ref().unwrap_or(&base);
    if let Some(at) = view.worker_head()?
        && at != *start
    {
        if let Some(repo) = &attempt.repo {
            attempt.unlock_branch(repo)?;
        }
        // A salvage holds them; of a workspace that is gone there is none.
        if let (None, Some(repo)) = (&outcome.salvage, &attempt.repo) {
            attempt.keep_commits(repo, attempt.number(), &at)?;
        }
        view.update_branch(start, &at).context("cannot put the task's branch back")?;
    }
    Ok(proof)
}
