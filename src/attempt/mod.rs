//! The supervisor: carries one attempt from claim to result.
//!
//! It may die at any instant. What it has done is on the disk, each step under a keeper that outlives it;
//! another supervisor reads where the attempt stands and goes on from there. Each part below says what it
//! leaves on the disk, and does nothing if that is there already.

mod budget;
mod changes;
mod command;
mod conclude;
mod confine;
mod enclose;
mod finish;
mod hand_on;
mod outcome;
mod outstanding;
mod plan;
mod prepare;
mod spawn;
mod steps;
mod stop;
mod tidy;
mod verify;
mod work;

pub use enclose::{clear_litter, is_enclosed, wants_own};
use outcome::End;
pub use outcome::Outcome;
pub use outstanding::Outstanding;
pub use plan::{Plan, REPO_FILE};
pub use prepare::{clear_workspace, read_prepared};
pub use spawn::{GaveUp, Order, carry, spawn};

use crate::git::{Oid, Repo, Stamps};
use crate::model::{
    Class, Config, EventKind, Phase, RequestKind, RequestName, Review, ReviewFile, Task, WorkspaceKind,
};
use crate::spool::{AttemptDir, EventLog, Found, LockedTask, Place, config, read_json};
use crate::workspace::apart;
use anyhow::Context as _;
use std::cell::{OnceCell, RefCell};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Instant;

/// One attempt in the hands of its supervisor.
struct Attempt {
    locked: Rc<LockedTask>,
    task: Task,
    dir: AttemptDir,
    config: Config,
    plan: Plan,
    /// The git repository of the work: the user's, or for a copy one of ours.
    repo: Option<Repo>,
    /// The commit of what a copy held at the start, once it is made.
    copied: OnceCell<Oid>,
    events: RefCell<EventLog>,
    phase: RefCell<(Phase, Instant)>,
    /// Records of the attempt that were written and not synced yet.
    unsynced: RefCell<Vec<PathBuf>>,
    /// What was ended of steps before this process could not see it any more.
    lost: RefCell<steps::Lost>,
    /// What the files of the tree were like when it was filled: in the memory of whoever filled it alone.
    stamps: OnceCell<Stamps>,
    /// What they were like when the work was recorded, in the same way.
    recorded: RefCell<Option<Stamps>>,
    /// SHA-256 of the task's record as the keeper of the last step handed it over, if one did.
    expected: Option<String>,
    /// The attempt that this supervisor carried before, whose end it records while it would only wait.
    before: Rc<Outstanding>,
}

/// Carries the attempt that `found` stands for up to its end, whoever began it; the end itself is for the caller to
/// record. That of the attempt `before` is recorded on the way.
pub fn supervise(
    locked: Rc<LockedTask>,
    found: Found,
    expected: Option<String>,
    before: Rc<Outstanding>,
) -> anyhow::Result<Outstanding> {
    let n = found.ticket.attempt;
    // A result that names this very attempt: only the last rename is missing. One that cannot be read is not
    // ours.
    if let Ok(Some(result)) = locked.spool().read_result(locked.id())
        && result.attempt == n
        && result.ticket.contains(&found.ticket.to_string())
    {
        conclude::finish_move(&locked, found, result)?;
        GaveUp::unless(locked.dir(), Ok(()));
        return Ok(Outstanding::default());
    }
    let lost = match enclose::enter(&locked, n) {
        Ok(lost) => lost,
        Err(e) if e.is::<steps::StillAlive>() => return Err(e),
        Err(e) => {
            let outcome = Outcome::failed(Class::Workspace, Phase::Preparing, format!("{e:#}"));
            return Ok(Outstanding::new(locked, found, None, outcome));
        }
    };
    let outcome = match begin(&locked, n, expected, lost, before) {
        Ok(attempt) => {
            let outcome = match attempt.carry() {
                Ok(outcome) => outcome,
                // Something of the attempt may still live: the ticket stays where it is, and the next pass
                // looks again.
                Err(e) if e.is::<steps::StillAlive>() => return Err(e),
                Err(e) => Outcome::fault(e),
            };
            return Ok(Outstanding::new(locked, found, Some(attempt), outcome));
        }
        Err(outcome) => *outcome,
    };
    Ok(Outstanding::new(locked, found, None, outcome))
}

/// Reads or makes the plan.
fn begin(
    locked: &Rc<LockedTask>,
    n: u32,
    expected: Option<String>,
    lost: steps::Lost,
    before: Rc<Outstanding>,
) -> Result<Attempt, Box<Outcome>> {
    let fault = |e: anyhow::Error| Box::new(Outcome::fault(e));
    let spool = locked.spool().clone();
    let config = config::load(&spool).map_err(|e| fault(e.into()))?;
    let dir = locked.dir().attempt(n);
    let file = dir.file("attempt.json");
    let cut = dir.was_cut();
    let known: Option<Plan> = match read_json(&file) {
        Err(_) if cut => None,
        other => other.map_err(|e| fault(e.into()))?,
    };
    if cut && known.is_none() {
        let message = "the machine was restarted as the attempt began, and what ran of it is not known";
        return Err(Box::new(End::interrupted(Phase::Preparing, message).with(Outcome::default())));
    }
    let task = match &known {
        // A newer revision is none that this attempt began with.
        Some(plan) => locked.revision(plan.revision),
        None => locked.task(),
    };
    let task = task.map_err(|e| fault(e.into()))?;
    let repo = match (&task.repo, task.spec.workspace()) {
        (Some(repo), WorkspaceKind::Worktree | WorkspaceKind::Clone | WorkspaceKind::Overlay) => {
            let opened = Repo::open_again(&repo.path).map_err(|e| {
                Box::new(Outcome::failed(
                    Class::Workspace,
                    Phase::Preparing,
                    format!("{}: {e}", repo.path.display()),
                ))
            })?;
            Some(opened)
        }
        _ => None,
    };
    let adopted = known.is_some();
    let plan = match known {
        Some(plan) => plan,
        None => {
            let before = continued(locked, n).map_err(fault)?;
            let plan = Plan::make(&spool, &config, &task, n, repo.as_ref(), before).map_err(|no| {
                Box::new(Outcome::failed(no.class, Phase::Preparing, format!("{:#}", no.error)))
            })?;
            let write = || -> anyhow::Result<()> {
                crate::durable::ensure_dir(&dir.path().join("steps"))?;
                let bytes = serde_json::to_vec_pretty(&plan)?;
                // The claim is what survives a power loss: see `spool::boot`.
                crate::durable::replace_unsynced(&file, &bytes)
                    .with_context(|| format!("cannot write {}", file.display()))
            };
            write().map_err(fault)?;
            plan
        }
    };
    let repo = match plan.kind {
        // Not before the plan names what is about to be made.
        WorkspaceKind::Copy => Some(apart::shadow_of(&spool, &task).map_err(fault)?),
        _ => repo,
    };
    let mut events = EventLog::open(&locked.dir().events()).map_err(fault)?;
    let worker = plan.profile.name.clone();
    let model = plan.model.clone();
    events.add(Some(n), EventKind::Started { worker, model, adopted }).map_err(fault)?;
    let mut unsynced = vec![file.clone()];
    if adopted {
        // What a dead supervisor wrote, nobody may have synced.
        unsynced.push(dir.file("prepared.json"));
    }
    Ok(Attempt {
        locked: Rc::clone(locked),
        task,
        dir,
        unsynced: RefCell::new(unsynced),
        config,
        plan,
        repo,
        copied: OnceCell::new(),
        events: RefCell::new(events),
        phase: RefCell::new((Phase::Preparing, Instant::now())),
        lost: RefCell::new(lost),
        stamps: OnceCell::new(),
        recorded: RefCell::default(),
        expected,
        before,
    })
}

/// The plan of the attempt that attempt `n` goes on with: the one to which changes were requested.
fn continued(locked: &LockedTask, n: u32) -> anyhow::Result<Option<Plan>> {
    let file: Option<ReviewFile> = read_json(&locked.dir().review())?;
    let Some(last) = file.and_then(|f| f.verdicts.into_iter().last()) else { return Ok(None) };
    if last.verdict != Review::ChangesRequested || last.attempt >= n {
        return Ok(None);
    }
    let dir = locked.dir().attempt(last.attempt);
    let plan: Option<Plan> = read_json(&dir.file("attempt.json"))?;
    let Some(mut plan) = plan else { return Ok(None) };
    if plan.base.is_none() {
        plan.base = read_prepared(&dir)?.and_then(|p| p.base);
    }
    Ok(Some(plan))
}

impl Attempt {
    /// All phases in order. What a phase finds done it does not do again.
    fn carry(&self) -> anyhow::Result<Outcome> {
        if let Some(end) = self.inputs_changed()? {
            return Ok(end.with(Outcome::default()).keep_all());
        }
        if let Err(message) = crate::intake::check_reserve(
            self.locked.spool().worktrees(),
            crate::intake::reserve_for(&self.config.disk, self.plan.kind),
            self.config.disk.reserve_percent,
        ) {
            return Ok(Outcome::failed(Class::Disk, Phase::Preparing, message));
        }
        let mut outcome = Outcome::default();
        if let Some(end) = self.prepare(&mut outcome)? {
            return Ok(end.with(outcome));
        }
        let end = self.work_and_verify(&mut outcome)?;
        // What ran could write there, too.
        if let Some(changed) = self.inputs_changed()? {
            return Ok(changed.with(outcome).keep_all());
        }
        if let Some(end) = end {
            return Ok(end.with(outcome));
        }
        self.finish(outcome)
    }

    /// Records the end of the attempt before this one, and lets the loop hear of it: by itself it would only hear when
    /// this one is over, too.
    fn record_before(&self) {
        self.before.record();
        self.locked.spool().ring_owed();
    }

    /// Waits until what was written of the attempt so far survives power loss.
    fn settle(&self) -> anyhow::Result<()> {
        let files = self.unsynced.borrow().clone();
        if files.is_empty() {
            return Ok(());
        }
        for file in &files {
            match crate::durable::sync_file(file) {
                // Not written yet: whoever writes it names it again.
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
                other => other.with_context(|| format!("cannot sync {}", file.display()))?,
            }
        }
        let mut folders = vec![self.dir.path().to_owned()];
        if files.iter().any(|file| file.ends_with("attempt.json")) {
            folders.push(self.locked.dir().attempts());
        }
        for folder in folders {
            crate::durable::sync_dir(&folder).with_context(|| format!("cannot sync {}", folder.display()))?;
        }
        self.unsynced.borrow_mut().clear();
        Ok(())
    }

    /// Writes a record of the attempt; [`Attempt::settle`] syncs it.
    fn record(&self, name: &str, bytes: &[u8]) -> anyhow::Result<()> {
        let file = self.dir.file(name);
        crate::durable::replace_unsynced(&file, bytes)
            .with_context(|| format!("cannot write {}", file.display()))?;
        self.unsynced.borrow_mut().push(file);
        Ok(())
    }

    fn number(&self) -> u32 {
        self.plan.attempt
    }

    /// The commit that changes are told against, once it is known.
    fn base(&self) -> Option<&Oid> {
        self.plan.base.as_ref().or(self.copied.get())
    }

    fn event(&self, what: EventKind) -> anyhow::Result<()> {
        self.events.borrow_mut().add(Some(self.number()), what)
    }

    /// Begins a phase: for the history and for whoever watches.
    fn enter(&self, phase: Phase) -> anyhow::Result<()> {
        *self.phase.borrow_mut() = (phase, Instant::now());
        self.event(EventKind::Phase { phase })
    }

    fn warn(&self, message: &str) -> anyhow::Result<()> {
        self.event(EventKind::Warning { message: message.to_owned() })
    }

    /// Whether somebody asked for this attempt to be cancelled.
    fn cancelled(&self) -> bool {
        self.locked.spool().request_path(self.cancel_request()).exists()
    }

    fn cancel_request(&self) -> RequestName {
        RequestName { task: self.task.id, attempt: self.number(), kind: RequestKind::Cancel }
    }

    /// The task's record must be what it was when the attempt began, and what the keeper remembers. One that
    /// was changed is put back, if we still have it.
    fn inputs_changed(&self) -> anyhow::Result<Option<End>> {
        use crate::spool::events::hash;
        let record = self.locked.dir().record(self.plan.revision);
        let now = hash(&std::fs::read(&record).unwrap_or_default());
        let remembered = self.expected.as_ref().unwrap_or(&self.plan.task_sha256);
        // Only who holds the task's lock adds revisions: here, or after the decision to repeat it.
        let added = match conclude::is_repeated(&self.locked, self.number()) {
            true => 0..0,
            false => self.plan.revision + 1..self.locked.dir().last_revision() + 1,
        };
        if now == *remembered && now == self.plan.task_sha256 && added.is_empty() {
            return Ok(None);
        }
        for revision in added {
            crate::durable::remove_file(&self.locked.dir().record(revision))?;
        }
        let own = self.task.to_bytes();
        if hash(&own) == *remembered {
            crate::durable::replace(&record, &own)
                .with_context(|| format!("cannot put {} back", record.display()))?;
        }
        let message = "the task's record was changed while it ran: nothing of this attempt can be trusted";
        Ok(Some(End::failed(Class::Internal, Phase::Finishing, message)))
    }
}

/// The place of a claimed ticket.
pub(crate) fn is_running(found: &Found) -> bool {
    found.place == Place::Running
}
