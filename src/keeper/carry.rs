//! Carries one step to its recorded end, whoever began it: a step is never run twice.

use super::{LaunchError, StepExit, StepPlan, StepState, SweepError, await_end, launch, state, sweep, wait};
use crate::durable;
use crate::process::Cleared;
use std::io;
use std::path::Path;
use std::time::Duration;

/// How long ending what a dead keeper left is tried before somebody else must look.
const SWEEP_LIMIT: Duration = Duration::from_secs(60);

/// What became of a step.
#[derive(Debug)]
pub enum Carried {
    /// It ended, and this is how.
    Ended(Box<StepExit>),
    /// Its keeper was killed. What it left has been ended, as far as a look at all processes can tell.
    Lost(Cleared),
}

/// Why a step has no end yet.
#[derive(Debug, thiserror::Error)]
pub enum CarryError {
    /// It could not be started. Nothing ran.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// What a dead keeper left could not be looked at.
    #[error(transparent)]
    Sweep(#[from] SweepError),
    /// A file operation failed.
    #[error("cannot look after the step: {0}")]
    Io(#[from] io::Error),
}

/// Starts the step if it never was, waits for its keeper if one lives, reads its end if it has one, and
/// sweeps if its keeper was killed. `plan` is used only for a step that never ran.
pub fn carry(step_dir: &Path, plan: &StepPlan, supervisor_lock: &Path) -> Result<Carried, CarryError> {
    durable::ensure_dir(step_dir)?;
    let mut now = state(step_dir)?;
    if now == StepState::NotStarted {
        now = match launch(step_dir, plan, supervisor_lock) {
            Ok(mut child) => wait(&mut child, step_dir)?,
            // A keeper that another supervisor started meanwhile: its step, not ours to start.
            Err(LaunchError::Running | LaunchError::AlreadyStarted) => await_end(step_dir)?,
            Err(e) => return Err(e.into()),
        };
    }
    if let StepState::Running(_) = now {
        now = await_end(step_dir)?;
    }
    match now {
        StepState::Ended(exit) => Ok(Carried::Ended(exit)),
        StepState::Lost(_) => Ok(Carried::Lost(sweep(step_dir, &plan.marker, plan.grace(), SWEEP_LIMIT)?)),
        StepState::NotStarted | StepState::Running(_) => {
            let said = super::complaints(step_dir)?;
            let last = said.lines().last().unwrap_or("it said nothing").to_owned();
            Err(io::Error::other(format!("the keeper ended before it started the command: {last}")).into())
        }
    }
}
