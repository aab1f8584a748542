//! From an intake file to task folders and tickets. Repeatable at any point; the intake file stands until
//! everything is on the disk.

use crate::durable;
use crate::model::{EventKind, HeldReason, Intake, State, Task, TaskId, VERSION};
use crate::spool::{
    EventLog, Found, LockedTask, Place, Spool, SpoolError, events, names, ticket_of, waiting_message,
};
use anyhow::Context as _;
use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};

/// Submissions whose folders are synced together.
const TOGETHER: usize = 64;

/// Expands every submission that waits for it. One that cannot be expanded does not stop the others.
pub fn expand(spool: &Spool) -> anyhow::Result<()> {
    expand_first(spool, || ())
}

/// Like [`expand`], but calls `go_on` before it waits for the disk, with the last of them in place: until then their
/// intake files stand, and who starts one, or ends it, waits for what is its own. `go_on` is called whatever fails.
pub fn expand_first(spool: &Spool, go_on: impl FnOnce()) -> anyhow::Result<()> {
    let mut go_on = Some(go_on);
    let done = expand_all(spool, || {
        if let Some(go_on) = go_on.take() {
            go_on();
        }
    });
    if let Some(go_on) = go_on {
        go_on();
    }
    done
}

fn expand_all(spool: &Spool, go_on: impl FnOnce()) -> anyhow::Result<()> {
    if pending(spool)?.is_empty() {
        return Ok(());
    }
    let lock = spool.lock("intake");
    let _one_at_a_time = lock.take().context("cannot lock the intake")?;
    let pending = pending(spool)?;
    let left = left_by_restart(spool)?;
    let (first, last) = pending.split_at(pending.len().saturating_sub(1) / TOGETHER * TOGETHER);
    let mut failed = Ok(());
    for some in first.chunks(TOGETHER) {
        failed = failed.and(put(spool, some, &left).finish(spool, &left));
    }
    let unsynced = put(spool, last, &left);
    go_on();
    failed.and(unsynced.finish(spool, &left))
}

/// Submissions that are expanded, and not waited for.
#[derive(Default)]
struct Unsynced {
    submissions: Vec<PathBuf>,
    records: Vec<PathBuf>,
    /// Folders that many write into are waited for once.
    folders: BTreeSet<PathBuf>,
    /// What could not be expanded.
    failed: Option<anyhow::Error>,
}

/// Expands some submissions. One that cannot be does not stop the others.
fn put(spool: &Spool, submissions: &[PathBuf], left: &Left) -> Unsynced {
    let mut all = Unsynced::default();
    for path in submissions {
        let mut one = Unsynced::default();
        match expand_one(spool, path, left, &mut one) {
            Ok(()) => {
                all.submissions.push(path.clone());
                all.records.append(&mut one.records);
                all.folders.append(&mut one.folders);
            }
            Err(e) => all.failed = Some(e.context(format!("cannot expand {}", path.display()))),
        }
    }
    if !all.submissions.is_empty() {
        all.folders.insert(spool.tasks());
    }
    all
}

impl Unsynced {
    /// Waits for the disk; then the intake files may go. Where that fails, it is tried for each by itself.
    fn finish(self, spool: &Spool, left: &Left) -> anyhow::Result<()> {
        let mut failed = self.failed.map_or(Ok(()), Err);
        match Unsynced::sync(&self.records, &self.folders) {
            Ok(()) => {
                for path in &self.submissions {
                    durable::remove_file(path)?;
                }
            }
            Err(e) if self.submissions.len() < 2 => failed = Err(e),
            Err(_) => {
                for path in &self.submissions {
                    failed = failed.and(put(spool, std::slice::from_ref(path), left).finish(spool, left));
                }
            }
        }
        failed
    }

    fn sync(records: &[PathBuf], folders: &BTreeSet<PathBuf>) -> anyhow::Result<()> {
        // What was pruned meanwhile need not be there.
        let unless_gone = |synced: io::Result<()>, path: &Path| match synced {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                Err(e).with_context(|| format!("cannot sync {}", path.display()))
            }
            _ => Ok(()),
        };
        for record in records {
            unless_gone(durable::sync_file(record), record)?;
        }
        for folder in folders {
            unless_gone(durable::sync_dir(folder), folder)?;
        }
        Ok(())
    }
}

/// Tickets that may be there though the record of their task is not.
type Left = HashMap<TaskId, Found>;

/// What an expansion may have left that a restart of the machine cut short: all tickets, if nobody has claimed
/// anything in this boot.
fn left_by_restart(spool: &Spool) -> anyhow::Result<Left> {
    if spool.knows_boot()? {
        return Ok(Left::new());
    }
    Ok(spool.not_ended()?.into_iter().map(|found| (found.ticket.task, found)).collect())
}

/// Whether a submission waits that can be expanded. One that cannot be read will not be, however long one
/// waits: `check` tells of it.
pub fn is_pending(spool: &Spool) -> anyhow::Result<bool> {
    for path in pending(spool)? {
        match crate::spool::read_json::<Intake>(&path) {
            Ok(intake) if intake.as_ref().is_some_and(|intake| intake.version > VERSION) => {}
            Ok(_) => return Ok(true),
            Err(SpoolError::Broken(..)) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(false)
}

fn pending(spool: &Spool) -> anyhow::Result<Vec<PathBuf>> {
    let dir = spool.intake();
    let mut found: Vec<PathBuf> = names(&dir)
        .with_context(|| format!("cannot read {}", dir.display()))?
        .into_iter()
        .filter(|n| n.to_str().is_some_and(|n| n.ends_with(".json") && !n.starts_with('.')))
        .map(|n| dir.join(n))
        .collect();
    found.sort_unstable();
    Ok(found)
}

/// Makes what a submission asks for.
fn expand_one(spool: &Spool, path: &Path, left: &Left, unsynced: &mut Unsynced) -> anyhow::Result<()> {
    let Some(intake) = crate::spool::read_json::<Intake>(path)? else { return Ok(()) };
    anyhow::ensure!(intake.version <= VERSION, "written by a newer version");
    for task in &intake.tasks {
        expand_task(spool, task, left, unsynced)?;
    }
    Ok(())
}

fn expand_task(spool: &Spool, task: &Task, left: &Left, unsynced: &mut Unsynced) -> anyhow::Result<()> {
    let touched = &mut unsynced.folders;
    let dir = spool.task(task.id);
    durable::ensure_dir(dir.path())?;
    // What an expansion that died left is synced by this one.
    touched.insert(dir.path().to_owned());
    let record = dir.record(1);
    unsynced.records.push(record.clone());
    // One that was expanded before may run already, and its lock be held for hours: the next submission
    // must not wait for that.
    let Some(locked) = spool.lock_task_unless(task.id, |_| true)? else { return Ok(()) };
    let is_whole = crate::spool::read_json::<Task>(&record).is_ok_and(|known| known.is_some());
    // A record without a ticket is what a crash leaves; one with a ticket was expanded before.
    if is_whole && let Some(found) = locked.ticket()? {
        touched.extend(spool.ticket_path(found.place, &found.ticket).parent().map(Path::to_owned));
        return look_again(spool, task, locked, found);
    }
    let bytes = task.to_bytes();
    durable::replace_unsynced(&record, &bytes)?;
    if dir.events().metadata().map_or(true, |meta| meta.len() == 0) {
        EventLog::open(&dir.events())?.add(None, EventKind::Submitted { sha256: events::hash(&bytes) })?;
    }
    for need in &task.needs {
        let dependents = spool.task(*need).dependents();
        if spool.task(*need).path().is_dir() {
            durable::ensure_dir(&dependents)?;
            durable::create_new_unsynced(&dependents.join(task.id.to_string()), b"")?;
            touched.extend([dependents, spool.task(*need).path().to_owned()]);
        }
    }
    if let Some(parent) = task.spec.parent.map(|id| spool.task(id)).filter(|dir| dir.path().is_dir()) {
        durable::ensure_dir(&parent.children())?;
        durable::create_new_unsynced(&parent.children().join(task.id.to_string()), b"")?;
    }
    spool.set_timer(task)?;
    if task.expires_at.is_some() {
        touched.insert(spool.timers());
    }
    let ticket = ticket_of(task, 1);
    if let Some(found) = left.get(&task.id) {
        // A power loss took the record, and left the ticket where it was.
        return look_again(spool, task, locked, *found);
    }
    let place = first_place(spool, task, &locked)?;
    locked.put_ticket(place, &ticket)?;
    if let Some(folder) = spool.ticket_path(place, &ticket).parent() {
        touched.insert(folder.to_owned());
    }
    look_again(spool, task, locked, Found { place, ticket })
}

/// Looks at the needs of a new task once more, now that its ticket is there: one that ended while we registered
/// perhaps did not see us. For one that still runs, and has perhaps looked already, a note is made: without it, its
/// supervisor could die between its end and its second look.
fn look_again(spool: &Spool, task: &Task, locked: LockedTask, found: Found) -> anyhow::Result<()> {
    let Place::Held(HeldReason::Needs, _) = found.place else { return Ok(()) };
    for need in &task.needs {
        if spool.find_ticket(*need).is_ok_and(|t| t.is_some_and(|t| t.place == Place::Running)) {
            durable::create_new_unsynced(&spool.releases().join(need.to_string()), b"")?;
        }
    }
    let settled = locked.settle(found)?;
    if settled.place.state() == State::Skipped {
        drop(locked);
        spool.release_dependents(task.id)?;
    }
    Ok(())
}

/// Where a new task's ticket belongs.
fn first_place(spool: &Spool, task: &Task, locked: &LockedTask) -> Result<Place, SpoolError> {
    if task.spec.hold {
        return locked.write_hold(HeldReason::Hand, None, "submitted with hold");
    }
    if !task.needs.is_empty() && spool.needs(task)? != crate::spool::Needs::Met {
        return locked.write_hold(HeldReason::Needs, None, &waiting_message(&task.needs));
    }
    match task.spec.not_before.filter(|t| *t > chrono::Utc::now()) {
        Some(until) => {
            locked.write_hold(HeldReason::Time, Some(until), &format!("not before {}", until.to_rfc3339()))
        }
        None => Ok(Place::Queue),
    }
}
