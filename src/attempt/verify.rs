//! The gate of an attempt: verify commands in the workspace, after the worker and all its processes are gone.

use super::Attempt;
use super::changes::Work;
use super::outcome::{End, Outcome};
use crate::gate::{self, Gate};
use crate::keeper::Carried;
use crate::model::{Command, EventKind, Phase, Verification};
use std::time::Duration;

impl Attempt<'_> {
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
        _work: &Work,
        outcome: &mut Outcome,
    ) -> anyhow::Result<Result<Gate, End>> {
        let commands = self.verify_commands();
        if !commands.is_empty() && !self.dir.step(&format!("gate.{round}.1")).exists() {
            if self.cancelled() {
                return Ok(Err(self.cancelled_end(Phase::Verifying)));
            }
            self.enter(Phase::Verifying)?;
        }
        let total = self.task.spec.verify_timeout.unwrap_or(self.plan.defaults.verify_timeout);
        let total = Duration::from_secs(total);
        let gate = gate::run(commands, self.task.spec.verify_all, total, |k, command, left| {
            let step = format!("gate.{round}.{}", k + 1);
            let plan = self.command_plan(&step, command, left)?;
            let dir = self.dir.step(&step);
            let new = !dir.join("exit.json").exists();
            let carried = super::steps::carry_again(&dir, &plan, self.locked.lock().path())?;
            match &carried {
                Carried::Ended(exit) => super::steps::still_alive(&exit.census)?,
                Carried::Lost(cleared) => super::steps::still_alive(&cleared.census)?,
            }
            if let (Carried::Ended(exit), true) = (&carried, new) {
                self.event(EventKind::Step {
                    step: step.clone(),
                    ended: super::steps::describe(exit),
                    elapsed_ms: exit.elapsed_ms,
                    usage: exit.usage.clone(),
                })?;
            }
            let log = format!("attempts/{}/steps/{step}/log.jsonl", self.number());
            anyhow::Ok((carried, log))
        })?;
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
        Ok(Ok(gate))
    }
}
