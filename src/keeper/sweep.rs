//! Finds and ends what a dead keeper left behind.

use super::record::{StepStart, read};
use super::{LOCK, START};
use crate::durable::Lock;
use crate::process::{Cgroup, Cleared, Domain, Liveness, Marker, boot_id, is_subreaper};
use std::io;
use std::path::Path;
use std::time::Duration;

/// Why nothing was swept.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    /// A keeper lives and does this itself.
    #[error("a keeper runs this step")]
    Running,
    /// Something failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Where the orphans of a dead keeper went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Orphans {
    /// To some ancestor that is not us.
    Elsewhere,
    /// To us: we became a child subreaper before we launched the keeper, and have no other child now.
    Ours,
}

/// How a step lost its keeper, as far as its records tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// It was killed.
    Killed,
    /// The machine was started again.
    Restarted,
    /// It ran in another pid namespace, such as a container's, whose processes we may not see.
    Elsewhere,
}

/// What was left of a step whose keeper is dead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Swept {
    /// How the keeper was lost.
    pub loss: Loss,
    /// What was found and ended.
    pub cleared: Cleared,
}

/// Ends all that is left of a step whose keeper is dead, and says what was found.
///
/// Looks for `marker`, which the caller makes from what it knows itself. If the step's records are of this
/// boot and this pid namespace, also for the recorded command, its descendants and its session, and its
/// control group: elsewhere their numbers mean other processes.
pub fn sweep(
    step_dir: &Path,
    marker: &Marker,
    orphans: Orphans,
    grace: Duration,
    limit: Duration,
) -> Result<Swept, SweepError> {
    // Held throughout: no keeper can start meanwhile.
    let _held = Lock::at(step_dir.join(LOCK)).try_take()?.ok_or(SweepError::Running)?;
    let start: Option<StepStart> = read(&step_dir.join(START))?.and_then(Result::ok);
    let mut domain = match orphans {
        // Whoever becomes a subreaper only now did not get them.
        Orphans::Ours if is_subreaper() => Domain::of_descendants(marker.clone()),
        _ => Domain::recorded(marker.clone()),
    };
    let loss = match &start {
        Some(start) if start.boot != boot_id()? => Loss::Restarted,
        Some(start) if start.keeper.liveness()? == Liveness::Unknown => Loss::Elsewhere,
        _ => Loss::Killed,
    };
    if let Some(start) = start.filter(|_| loss == Loss::Killed) {
        if let Some(worker) = &start.worker {
            domain.know_session(worker, &start.workspace)?;
        }
        domain.set_cgroup(start.cgroup.as_deref().and_then(Cgroup::find));
    }
    Ok(Swept { loss, cleared: domain.end(grace, limit)? })
}
