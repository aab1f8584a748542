//! The gate of an attempt: verify commands in the workspace, or in a clean tree, after the worker and all
//! its processes are gone.

use super::Attempt;
use super::changes::Work;
use super::outcome::{End, Outcome};
use super::steps::{describe, failed, still_alive};
use super::stop::Stop;
use crate::gate::{self, Gate};
use crate::git::{Identity, Oid, Repo, Scratch, View, worktree};
use crate::keeper::Carried;
use crate::model::{Class, Command, EventKind, GateKind, Phase, Verification, WorkspaceKind};
use crate::workspace::{self, copy, rules};
use anyhow::Context as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

impl Attempt {
    /// The verify commands: the task's, else the repository's.
    pub(super) fn verify_commands(&self) -> &[Command] {
        match self.task.spec.verify.as_slice() {
            [] => &self.plan.repo_config.verify,
            own => own,
        }
    }

    /// Runs the gate on what the worker left.
    pub(super) fn verify(
        &self,
        round: u32,
        work: &Work,
        outcome: &mut Outcome,
    ) -> anyhow::Result<Result<Gate, End>> {
        let commands = self.verify_commands();
        if !commands.is_empty() && !self.dir.step(&format!("gate.{round}.1")).exists() {
            if self.cancelled() {
                return Ok(Err(self.cancelled_end(Phase::Verifying)));
            }
            self.enter(Phase::Verifying)?;
        }
        let kind = self.task.spec.gate.or(self.plan.repo_config.gate).unwrap_or(GateKind::InPlace);
        let gate = match (kind, &self.repo, &work.tree) {
            // What a read-only task wrote is undone: it is not what is verified.
            (GateKind::Clean, Some(repo), Some(tree)) if !commands.is_empty() && work.undone.is_empty() => {
                let (gated, gate) = self.clean_gate(round, repo, tree, work)?;
                outcome.gated_tree = (gated != *tree).then_some(gated);
                match gate {
                    Ok(gate) => gate,
                    Err(end) => return Ok(Err(end)),
                }
            }
            _ => self.gate_in(&self.plan.workspace, "gate", round)?,
        };
        outcome.gate = gate.runs.clone();
        outcome.left_over.extend(gate.left_over.iter().cloned());
        outcome.verification = gate.verification;
        outcome.durations.verifying_ms = Some(gate.runs.iter().map(|r| r.elapsed_ms).sum());
        if gate.cancelled {
            outcome.verification = Verification::NotRun;
            return Ok(Err(self.cancelled_end(Phase::Verifying)));
        }
        if gate.lost {
            outcome.verification = Verification::NotRun;
            return Ok(Err(End::interrupted(Phase::Verifying, "the keeper of a verify command was killed")));
        }
        if let Some(error) = &gate.fault {
            outcome.verification = Verification::NotRun;
            let message = format!("a verify command could not be run: {error}");
            return Ok(Err(End::fault(Phase::Verifying, error, message)));
        }
        Ok(Ok(gate))
    }

    /// Runs the verify commands in a tree.
    fn gate_in(&self, root: &Path, name: &str, round: u32) -> anyhow::Result<Gate> {
        let total = self.task.spec.verify_timeout.unwrap_or(self.plan.defaults.verify_timeout);
        let total = Duration::from_secs(total);
        gate::run(self.verify_commands(), self.task.spec.verify_all, total, |k, command, left| {
            let step = format!("{name}.{round}.{}", k + 1);
            let mut plan =
                self.command_plan_in(root, self.task.spec.subdir.as_deref(), &step, command, left)?;
            plan.confine = self.confine_gate(root);
            let dir = self.dir.step(&step);
            let new = !dir.join("exit.json").exists();
            let carried = self.carry_again(&dir, &plan)?;
            match &carried {
                Carried::Ended(exit) => still_alive(&exit.census)?,
                Carried::Lost(swept) => still_alive(&swept.cleared.census)?,
            }
            if let (Carried::Ended(exit), true) = (&carried, new) {
                self.event(EventKind::Step {
                    step: step.clone(),
                    ended: describe(exit),
                    elapsed_ms: exit.elapsed_ms,
                    usage: exit.usage.clone(),
                    model: None,
                })?;
            }
            let log = format!("attempts/{}/steps/{step}/log.jsonl", self.number());
            anyhow::Ok((carried, log))
        })
    }

    /// Runs the gate in a second worktree that holds the produced tree and nothing that the worker left
    /// beside it. Protected paths that the task was allowed to change are as in the base there. Returns that
    /// tree, too.
    fn clean_gate(
        &self,
        round: u32,
        repo: &Repo,
        tree: &Oid,
        work: &Work,
    ) -> anyhow::Result<(Oid, Result<Gate, End>)> {
        let view = View::open(&self.dir.view())?;
        let protected = rules::set(&self.plan.repo_config.protected)?;
        let back: Vec<_> = work.changes.iter().filter(|c| protected.is_match(&c.path)).cloned().collect();
        let gated = view.without(tree, &back)?;
        let message = format!("workspool: gate of {}", self.task.id);
        let commit =
            view.commit(&gated, &[view.base().clone()], &message, &Identity::ours(), work.at.timestamp())?;
        let path = self.plan.workspace.with_file_name(format!("{}.gate", self.task.id));
        let ready = self.dir.file(&format!("gate.{round}.ready"));
        if !ready.exists() {
            let stop = Stop::new(self);
            if let Err(e) = self.make_scratch(repo, &view, &commit, &path, &stop) {
                let Some(end) = stop.end(Phase::Verifying) else { return Err(e) };
                self.discard_scratch(repo, &path)?;
                return Ok((gated, Err(end)));
            }
            crate::durable::replace_unsynced(&ready, commit.as_str().as_bytes())?;
        }
        let made = self.setup_scratch(&path, round)?;
        let gate = match made {
            Some(end) => Err(end),
            None => {
                let mut gate = self.gate_in(&path, "gate", round)?;
                if gate.verification == Verification::Failed
                    && !gate.cancelled
                    && !gate.lost
                    && gate.fault.is_none()
                {
                    // Is it the work, or what surrounds it?
                    let in_place = self.gate_in(&self.plan.workspace, "in-place", round)?;
                    gate.only_in_place = in_place.verification == Verification::Verified;
                    gate.cancelled |= in_place.cancelled;
                    gate.lost |= in_place.lost;
                    gate.fault = in_place.fault;
                    gate.left_over.extend(in_place.left_over);
                }
                Ok(gate)
            }
        };
        self.discard_scratch(repo, &path)?;
        Ok((gated, gate))
    }

    fn make_scratch(
        &self,
        repo: &Repo,
        view: &View,
        commit: &Oid,
        path: &Path,
        stop: &Stop<'_>,
    ) -> anyhow::Result<()> {
        self.discard_scratch(repo, path)?;
        let scratch = {
            let _alone =
                self.locked.spool().repo_lock(&repo.key.hash).take().context("cannot lock the repository")?;
            Scratch::add(repo, path, commit)?
        };
        scratch.fill(view, commit, 0, &mut || stop.check())?;
        let original = match self.plan.kind {
            WorkspaceKind::Copy => self.task.repo.as_ref().map(|folder| &folder.path),
            _ => repo.top.as_ref(),
        };
        if let Some(checkout) = original {
            let patterns: Vec<String> =
                self.plan.repo_config.copy.iter().chain(&self.task.spec.copy).cloned().collect();
            copy::copy(checkout, path, &patterns, &mut || stop.check())?;
        }
        Ok(())
    }

    /// Runs the setup commands there: what the worker installed in its workspace is not in a clean tree.
    fn setup_scratch(&self, path: &Path, round: u32) -> anyhow::Result<Option<End>> {
        let total = Duration::from_secs(self.plan.defaults.setup_timeout);
        for (k, command) in self.plan.repo_config.setup.iter().chain(&self.task.spec.setup).enumerate() {
            let step = format!("gate-setup.{round}.{}", k + 1);
            let plan = self.command_plan_in(path, self.task.spec.subdir.as_deref(), &step, command, total)?;
            match self.carry_step(&step, &plan, Phase::Verifying)? {
                Err(end) => return Ok(Some(end)),
                Ok(exit) => {
                    if let Some(how) = failed(&exit) {
                        let message = format!("setup command failed in a clean tree ({how}): {command}");
                        return Ok(Some(End::failed(Class::GateEnv, Phase::Verifying, message)));
                    }
                }
            }
        }
        Ok(None)
    }

    fn discard_scratch(&self, repo: &Repo, path: &Path) -> anyhow::Result<()> {
        if std::fs::symlink_metadata(path).is_err() {
            return Ok(());
        }
        let scratch = Scratch::at(repo, path).with_context(|| format!("{} is in the way", path.display()))?;
        let trash: PathBuf = workspace::trash(self.locked.spool());
        let moved = {
            let _alone = self.locked.spool().repo_lock(&repo.key.hash).take()?;
            scratch.discard(repo, &trash)?
        };
        if let Some(moved) = moved {
            worktree::delete_tree(&moved)?;
        }
        Ok(())
    }
}
