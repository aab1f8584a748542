//! Giving the tree of a task that ended to the next one: a warm tree.
//!
//! It is done after the end, and whatever goes wrong with it, the end stands. A tree is only given on if nothing
//! of the attempt can still live, and by the supervisor that made it: nobody else knows what its files were like
//! at the start.

use super::{Attempt, Outcome};
use crate::durable::fault;
use crate::git::{Oid, Salvaged, Stamps, View, Worktree};
use crate::keeper::{self, StepState};
use crate::model::{EventKind, State, WorkspaceKind};
use crate::process::CensusMethod;
use crate::workspace::{self, warm::Pool};
use std::time::Instant;

impl Attempt {
    /// Keeps in mind what the files of a tree are like, which was just filled with `start`, if it may be wanted
    /// later.
    pub(super) fn note_stamps(
        &self,
        pool: Option<&Pool>,
        tree: &Worktree,
        start: &Oid,
    ) -> anyhow::Result<()> {
        if pool.is_some() && !tree.git_dir.join("info/sparse-checkout").exists() {
            let _ = self.stamps.set(Stamps::of(tree, start)?);
        }
        Ok(())
    }

    /// Whether the tree is to be given on, and to where.
    pub(super) fn hands_on(&self, outcome: &Outcome) -> Option<HandingOn> {
        self.stamps.get()?;
        let repo = self.repo.as_ref().filter(|_| self.plan.kind == WorkspaceKind::Worktree)?;
        let pool = Pool::of(self.locked.spool(), &self.config, repo)?;
        let may = !outcome.keep
            && outcome.state != State::Interrupted
            && !self.dir.was_cut()
            && self.plan.workspace.is_dir()
            && self.all_are_gone();
        let commit = outcome.commit.as_ref().or(self.base()).filter(|_| outcome.state == State::Succeeded);
        (may && pool.has_room()).then(|| HandingOn { pool, commit: commit.cloned() })
    }

    /// Whether the census of every step is empty and complete. A scan finds only who does not hide.
    fn all_are_gone(&self) -> bool {
        let steps = self.dir.path().join("steps");
        let Ok(names) = crate::spool::names(&steps) else { return false };
        names.iter().all(|name| match keeper::state(&steps.join(name)) {
            Ok(StepState::NotStarted) => true,
            Ok(StepState::Ended(exit)) => exit.census.is_empty() && exit.census.method != CensusMethod::Scan,
            _ => false,
        })
    }

    /// Gives the tree on, with the proof that all that was in it is kept.
    pub(super) fn hand_on(&self, to: &HandingOn, proof: Option<Salvaged>) {
        let began = Instant::now();
        let n = Some(self.number());
        let event = match self.try_to_hand_on(to, proof) {
            Ok(true) => EventKind::TreeKept { elapsed_ms: super::steps::millis(began.elapsed()) },
            // Others were faster.
            Ok(false) => return,
            Err(e) => {
                EventKind::Warning { message: format!("the tree was not kept for the next task: {e:#}") }
            }
        };
        // It is a note about what is over.
        let _ = self.locked.event(n, event);
    }

    fn try_to_hand_on(&self, to: &HandingOn, proof: Option<Salvaged>) -> anyhow::Result<bool> {
        let (Some(repo), Some(stamps)) = (&self.repo, self.stamps.get()) else { return Ok(false) };
        fault::point("hand-on")?;
        let view = View::open(&self.dir.view())?;
        let (proof, now) = match proof {
            Some(proof) => (proof, None),
            None => self.prove(&view, to.commit.as_ref())?,
        };
        if !proof.is_complete() {
            let missing: Vec<String> =
                proof.missing().iter().map(|m| format!("{}: {}", m.path.display(), m.why)).collect();
            let place = self.plan.workspace.display();
            anyhow::bail!(
                "not everything in it could be kept otherwise ({}), so it is still {place}",
                missing.join("; ")
            );
        }
        to.pool.keep(
            (self.locked.spool(), repo, self.task.id),
            &view,
            proof,
            (stamps, now.as_ref()),
            &mut || Ok(()),
        )
    }

    /// Proves that all in the tree is kept. Also returns what is in it, if that is what was recorded as the work.
    fn prove(&self, view: &View, commit: Option<&Oid>) -> anyhow::Result<(Salvaged, Option<Stamps>)> {
        if let (Some(commit), Some(recorded)) = (commit, self.recorded.take())
            && let Some(proof) = Salvaged::untouched(view, commit, &recorded)?
        {
            return Ok((proof, Some(recorded)));
        }
        let copied = super::read_prepared(&self.dir)?.map(|p| p.copied).unwrap_or_default();
        let proof = workspace::prove(view, &self.task.id.to_string(), self.number(), &copied)?;
        if let Some(name) = proof.refname() {
            let event = EventKind::Salvaged { name: name.to_owned(), complete: proof.is_complete() };
            self.locked.event(Some(self.number()), event)?;
        }
        Ok((proof, None))
    }
}

/// That a tree is to be given on.
pub(super) struct HandingOn {
    /// To where.
    pool: Pool,
    /// The commit that the task's branch is at, if the work is in there.
    commit: Option<Oid>,
}
