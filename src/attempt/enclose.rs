//! A supervisor of its own for a workspace that only it and what it starts can see.
//!
//! It enters a mount namespace, and everything that it starts is in there too: keepers, commands, git. One that
//! takes over where a keeper still lived is started by that keeper, so it is in there already. Where none lived,
//! the mount is gone, and is made again over what was written. Two mounts of that are never used at once:
//! all that is known of the attempt is ended first, and a process that is not known of is
//! found by what it can see.

use super::steps::{Lost, StillAlive, nothing_lives};
use super::{Attempt, Plan, outcome::Outcome};
use crate::git::worktree::delete_tree;
use crate::git::{Repo, Salvaged, View};
use crate::model::{EventKind, WorkspaceKind};
use crate::process::mounts;
use crate::spool::{LockedTask, read_json};
use crate::workspace::{self, Overlay, apart};
use anyhow::Context as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a process that is on its way out is waited for.
const PATIENCE: Duration = Duration::from_secs(10);

static ENCLOSED: AtomicBool = AtomicBool::new(false);

/// Whether this process sees what others do not: it carries one attempt, and then ends.
pub fn is_enclosed() -> bool {
    ENCLOSED.load(Ordering::Relaxed)
}

/// Whether a claimed task wants a supervisor that carries nothing else.
pub fn wants_own(locked: &LockedTask, attempt: u32) -> bool {
    overlay(locked, attempt).is_some()
}

fn overlay(locked: &LockedTask, n: u32) -> Option<Overlay> {
    let plan: Option<Plan> = read_json(&locked.dir().attempt(n).file("attempt.json")).ok().flatten();
    let (kind, path) = match plan {
        Some(plan) => (plan.kind, plan.workspace),
        // One that cannot be read ends elsewhere.
        None => {
            let task = locked.task().ok()?;
            (task.spec.workspace(), workspace::path(locked.spool(), &task))
        }
    };
    (kind == WorkspaceKind::Overlay).then(|| Overlay::of(locked.spool(), &locked.id().to_string(), &path))
}

/// Enters a namespace of its own, if the attempt needs one, and mounts there what is there to be mounted. Returns
/// what was ended of steps that had lost their keepers: from inside nobody could find it.
pub(super) fn enter(locked: &LockedTask, n: u32) -> anyhow::Result<Lost> {
    let Some(overlay) = overlay(locked, n) else { return Ok(Lost::default()) };
    if overlay.is_mounted()? {
        ENCLOSED.store(true, Ordering::Relaxed);
        return Ok(Lost::default());
    }
    // One from outside would not see the mount.
    #[cfg(target_os = "linux")]
    crate::keeper::dismiss();
    let (dir, spool) = (locked.dir().attempt(n), locked.spool());
    let lost = nothing_lives(&dir, spool.id(), &locked.id().to_string(), locked.lock().path())?;
    let known = overlay.exists()?;
    if known {
        await_nobody(&overlay)?;
    }
    mounts::enter().context("cannot enter a namespace of its own")?;
    ENCLOSED.store(true, Ordering::Relaxed);
    if known {
        overlay.mount()?;
    }
    Ok(lost)
}

/// Takes away what an attempt left whose supervisor died when its end was recorded.
pub(super) fn clear_left(locked: &LockedTask, n: u32) -> anyhow::Result<()> {
    let Some(overlay) = overlay(locked, n) else { return Ok(()) };
    if !overlay.exists()? {
        return Ok(());
    }
    enter(locked, n)?;
    let task = locked.task()?;
    let repo = apart::repository(locked.spool(), &task).context("an overlay without a repository")?;
    let path = workspace::path(locked.spool(), &task);
    super::clear_workspace(locked.spool(), locked.dir(), &Repo::open(&repo)?, &path).map(drop)
}

fn await_nobody(overlay: &Overlay) -> anyhow::Result<()> {
    let until = Instant::now() + PATIENCE;
    loop {
        let seen_by = overlay.seen_by()?;
        if seen_by.is_empty() {
            return Ok(());
        }
        if Instant::now() >= until {
            let pids = seen_by.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            return Err(StillAlive::of(format!("what still sees its workspace: pid {pids}")).into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

impl Attempt {
    /// The workspace, if it is an overlay.
    pub(super) fn overlay(&self) -> Option<Overlay> {
        let id = self.task.id.to_string();
        let is = self.plan.kind == WorkspaceKind::Overlay;
        is.then(|| Overlay::of(self.locked.spool(), &id, &self.plan.workspace))
    }

    /// Finds out how the overlay may go: nobody could look into it afterwards. It stays until the end is
    /// recorded, so that another supervisor finds it if this one dies before.
    ///
    /// `proof` is of what is in it now, if it was taken already.
    pub(super) fn may_retire(
        &self,
        proof: Option<Salvaged>,
        outcome: &mut Outcome,
    ) -> anyhow::Result<Option<Retiring>> {
        let Some(overlay) = self.overlay() else { return Ok(None) };
        if !overlay.exists()? {
            return Ok(None);
        }
        let (spool, id) = (self.locked.spool(), self.task.id.to_string());
        let Some(prepared) = super::read_prepared(&self.dir)? else { return Ok(Some(Retiring::Unused)) };
        let why = match outcome.keep {
            true => None,
            false => {
                overlay.mount()?;
                let view = View::open(&self.dir.view())?;
                let proof = match proof {
                    Some(proof) => proof,
                    None => {
                        let proof = workspace::prove(&view, &id, self.number(), &prepared.copied)?;
                        if let Some(name) = proof.refname().map(str::to_owned) {
                            self.event(EventKind::Salvaged { name, complete: proof.is_complete() })?;
                        }
                        proof
                    }
                };
                if proof.is_complete() {
                    return Ok(Some(Retiring::Proven(Box::new((view, proof)))));
                }
                let missing = proof.missing().iter().map(|m| format!("{}: {}", m.path.display(), m.why));
                Some(missing.collect::<Vec<_>>().join("; "))
            }
        };
        let why = why.map_or_else(String::new, |missing| {
            format!(", since not all of it could be kept otherwise ({missing})")
        });
        let kept = workspace::aside(spool, &id);
        outcome.warnings.push(format!("what was written in the workspace is in {}{why}", kept.display()));
        Ok(Some(Retiring::Aside))
    }

    /// Takes the overlay away, when the end of the attempt is recorded.
    fn retire(&self, how: Retiring) -> anyhow::Result<()> {
        let (Some(overlay), Some(repo)) = (self.overlay(), &self.repo) else { return Ok(()) };
        let (spool, id) = (self.locked.spool(), self.task.id.to_string());
        match how {
            Retiring::Proven(kept) => {
                let (view, proof) = *kept;
                let (_, litter) = workspace::dispose(spool, repo, &view, &id, proof)?;
                LITTER.lock().unwrap_or_else(PoisonError::into_inner).extend(litter);
            }
            Retiring::Aside => {
                overlay.put_aside(spool, &id)?;
            }
            Retiring::Unused => overlay.discard_unused(spool)?,
        }
        workspace::forget(spool, repo, &self.plan.workspace)
    }
}

/// Takes away a workspace that cannot stay. The attempt has ended, whatever comes of it.
pub(super) fn retire(locked: &LockedTask, attempt: Option<&Attempt>, how: Option<Retiring>) {
    let (Some(attempt), Some(how)) = (attempt, how) else { return };
    if let Err(e) = attempt.retire(how) {
        not_retired(locked, attempt.number(), &e);
    }
}

pub(super) fn not_retired(locked: &LockedTask, n: u32, error: &anyhow::Error) {
    let message = format!("the workspace could not be taken away: {error:#}");
    let _ = locked.event(Some(n), EventKind::Warning { message });
}

/// How an overlay may go.
pub(super) enum Retiring {
    /// All in it is kept elsewhere.
    Proven(Box<(View, Salvaged)>),
    /// What was written stays as plain files.
    Aside,
    /// Nothing ran in it.
    Unused,
}

/// What is out of use and to be deleted, when nobody waits for the task any more.
static LITTER: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Deletes what ended attempts left in the trash. What cannot be deleted, `doctor` finds there.
pub fn clear_litter() {
    let litter = std::mem::take(&mut *LITTER.lock().unwrap_or_else(PoisonError::into_inner));
    for tree in litter {
        let _ = delete_tree(&tree);
    }
}
