//! Finds and ends what a dead keeper left behind.

use super::record::{StepStart, read};
use super::{LOCK, START};
use crate::durable::Lock;
use crate::process::{
    Census, CensusMethod, Cgroup, Cleared, Domain, Liveness, Marker, boot_id, is_subreaper,
};
use std::io;
use std::path::Path;
use std::time::Duration;

/// Why nothing was swept.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    /// A keeper lives and does this itself.
    #[error("a keeper runs this step")]
    Running,
    /// The step ran where we cannot see its processes.
    #[error("the step ran in another pid namespace")]
    OtherNamespace,
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

/// Ends all that is left of a step whose keeper is dead, and says what was found.
///
/// Looks for the recorded command, its descendants and its session, its control group, and for
/// `marker`, which the caller makes from what it knows itself. After another boot nothing is touched.
pub fn sweep(
    step_dir: &Path,
    marker: &Marker,
    orphans: Orphans,
    grace: Duration,
    limit: Duration,
) -> Result<Cleared, SweepError> {
    // Held throughout: no keeper can start meanwhile.
    let _held = Lock::at(step_dir.join(LOCK)).try_take()?.ok_or(SweepError::Running)?;
    let start: Option<StepStart> = read(&step_dir.join(START))?.and_then(Result::ok);
    let mut domain = match orphans {
        // Whoever becomes a subreaper only now did not get them.
        Orphans::Ours if is_subreaper() => Domain::of_descendants(marker.clone()),
        _ => Domain::recorded(marker.clone()),
    };
    if let Some(start) = &start {
        if start.boot != boot_id()? {
            let census = Census { method: CensusMethod::Scan, survivors: Vec::new() };
            return Ok(Cleared { census, ended: Vec::new() });
        }
        if start.keeper.liveness()? == Liveness::Unknown {
            return Err(SweepError::OtherNamespace);
        }
        if let Some(worker) = &start.worker {
            domain.know_session(worker, &start.workspace)?;
        }
        domain.set_cgroup(start.cgroup.as_deref().and_then(Cgroup::find));
    }
    Ok(domain.end(grace, limit)?)
}
