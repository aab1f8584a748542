//! The keeper: runs one foreign command to its recorded end.
//!
//! A small process of its own for each step (setup, worker, gate, teardown); on Linux it may stay for the next one. It owns the command's
//! pipes, parses and logs what comes out of them, enforces deadlines, budgets and cancel, ends the
//! command's whole kill domain, and records how it ended. It outlives a dead supervisor.
//!
//! In the step's folder: `plan.json` (what to run), `lock` (held while the keeper lives), `start.json`
//! (written before the command is started), `log.jsonl`, `facts.jsonl`, and `exit.json` (written last).
//! A free lock without `start.json` means that nothing ever ran; with it and without `exit.json`, that
//! the keeper was killed, and that [`sweep`] must be called before anything else is decided.

mod carry;
mod entry;
mod facts;
#[cfg(target_os = "linux")]
mod forked;
mod launch;
mod limits;
mod lines;
mod output;
mod plan;
mod progress;
mod record;
mod run;
mod spawn;
mod sweep;

pub use carry::{Carried, CarryError, carry};
pub use entry::main;
pub use facts::{FactCounts, Said, summary};
#[cfg(target_os = "linux")]
pub use forked::{Kept, dismiss};
pub use launch::{LaunchError, Launched, await_end, complaints, hasten, launch, launch_with, wait};
pub use plan::{Budget, Confine, Deadlines, StepPlan};
pub use progress::{Phase, Progress};
pub use record::{BudgetKind, Cause, DeadlineKind, Ended, StepExit, StepStart, StepState, state};
pub use sweep::{Loss, Orphans, SweepError, Swept, sweep};

/// The version of the records in a step's folder.
pub const VERSION: u32 = 1;

const PLAN: &str = "plan.json";
const LOCK: &str = "lock";
const START: &str = "start.json";
const EXIT: &str = "exit.json";
const LOG: &str = "log.jsonl";
const FACTS: &str = "facts.jsonl";
const ERRORS: &str = "keeper.err";
