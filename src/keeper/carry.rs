//! Carries one step to its recorded end, whoever began it: a step is never run twice.

use super::{LaunchError, Orphans, StepExit, StepPlan, StepState, SweepError, Swept};
use super::{await_end, complaints, launch, state, sweep};
use crate::durable;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long ending what a dead keeper left is tried before a pause.
const SWEEP_LIMIT: Duration = Duration::from_secs(60);

/// What became of a step.
#[derive(Debug)]
pub enum Carried {
    /// It ended, and this is how.
    Ended(Box<StepExit>),
    /// Its keeper is dead. What it left has been ended, as far as a look at all processes can tell;
    /// whoever is in the census could not be ended for as long as the plan has patience.
    Lost(Swept),
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
/// sweeps if its keeper was killed. `plan` is used only for a step that never ran. `meanwhile` is done as soon as
/// its keeper is started, if it is: there is nothing else to do then but to wait.
pub fn carry(
    step_dir: &Path,
    plan: &StepPlan,
    supervisor_lock: &Path,
    meanwhile: impl FnOnce(),
) -> Result<Carried, CarryError> {
    durable::ensure_dir(step_dir)?;
    let mut now = state(step_dir)?;
    let mut meanwhile = Some(meanwhile);
    loop {
        now = match now {
            StepState::Ended(exit) => return Ok(Carried::Ended(exit)),
            StepState::Lost(_) => return Ok(Carried::Lost(sweep_all(step_dir, plan)?)),
            StepState::Running(_) => await_end(step_dir)?,
            StepState::NotStarted => match launch(step_dir, plan, supervisor_lock) {
                Ok(mut keeper) => {
                    if let Some(meanwhile) = meanwhile.take() {
                        meanwhile();
                    }
                    match keeper.wait(step_dir)? {
                        StepState::NotStarted => return Err(io::Error::other(complaint(step_dir)).into()),
                        other => other,
                    }
                }
                // Another supervisor's keeper: its step, not ours to start.
                Err(LaunchError::Running | LaunchError::AlreadyStarted) => await_end(step_dir)?,
                Err(e) => return Err(e.into()),
            },
        };
    }
}

fn complaint(step_dir: &Path) -> String {
    let said = complaints(step_dir).unwrap_or_default();
    let last = said.lines().last().unwrap_or("it said nothing");
    format!("the keeper ended before it started the command: {last}")
}

/// Sweeps until nothing is left: the attempt keeps its lease as long as something of it may live.
fn sweep_all(step_dir: &Path, plan: &StepPlan) -> Result<Swept, SweepError> {
    let begun = Instant::now();
    let patience = Duration::from_millis(plan.unkillable_ms);
    let mut pause = Duration::from_millis(20);
    let mut ended = Vec::new();
    loop {
        // This process may have other children, so that its orphans are not known to be the step's.
        match sweep(step_dir, &plan.marker, Orphans::Elsewhere, plan.grace(), SWEEP_LIMIT) {
            Ok(mut swept) => {
                ended.append(&mut swept.cleared.ended);
                if swept.cleared.census.is_empty() || begun.elapsed() >= patience {
                    ended.sort();
                    ended.dedup();
                    swept.cleared.ended = ended;
                    return Ok(swept);
                }
            }
            // No keeper can live; a process that was just forked shares the lock for a moment.
            Err(SweepError::Running) if begun.elapsed() < patience => {}
            Err(e) => return Err(e),
        }
        std::thread::sleep(pause.min(patience.saturating_sub(begun.elapsed())));
        pause = (pause * 2).min(Duration::from_secs(30));
    }
}
