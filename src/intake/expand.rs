//! From an intake file to task folders and tickets. Repeatable at any point; the intake file stands until
//! everything is on the disk.

use crate::durable;
use crate::model::{EventKind, HeldReason, Intake, State, Task, VERSION};
use crate::spool::{
    EventLog, Found, LockedTask, Place, Spool, SpoolError, events, names, ticket_of, waiting_message,
};
use anyhow::Context as _;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Submissions whose folders are synced together.
const TOGETHER: usize = 64;

/// Expands every submission that waits for it. One that cannot be expanded does not stop the others.
pub fn expand(spool: &Spool) -> anyhow::Result<()> {
    if pending(spool)?.is_empty() {
        return Ok(());
    }
    let lock = spool.lock("intake");
    let _one_at_a_time = lock.take().context("cannot lock the intake")?;
    let mut failed = None;
    for some in pending(spool)?.chunks(TOGETHER) {
        // Folders that many write into are waited for once.
        if expand_these(spool, some).is_ok() {
            continue;
        }
        for path in some {
            if let Err(e) = expand_these(spool, std::slice::from_ref(path)) {
                failed = Some(e.context(format!("cannot expand {}", path.display())));
            }
        }
    }
    failed.map_or(Ok(()), Err)
}

fn expand_these(spool: &Spool, paths: &[PathBuf]) -> anyhow::Result<()> {
    let mut touched = BTreeSet::from([spool.tasks()]);
    for path in paths {
        expand_one(spool, path, &mut touched)?;
    }
    for dir in &touched {
        durable::sync_dir(dir)?;
    }
    for path in paths {
        durable::remove_file(path)?;
    }
    Ok(())
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

/// Makes what a submission asks for; its file may go once `touched` is synced.
fn expand_one(spool: &Spool, path: &Path, touched: &mut BTreeSet<PathBuf>) -> anyhow::Result<()> {
    let Some(intake) = crate::spool::read_json::<Intake>(path)? else { return Ok(()) };
    anyhow::ensure!(intake.version <= VERSION, "written by a newer version");
    for task in &intake.tasks {
        expand_task(spool, task, touched)?;
    }
    Ok(())
}

fn expand_task(spool: &Spool, task: &Task, touched: &mut BTreeSet<PathBuf>) -> anyhow::Result<()> {
    let dir = spool.task(task.id);
    durable::ensure_dir(dir.path())?;
    // What an expansion that died left is synced by this one.
    touched.insert(dir.path().to_owned());
    let record = dir.record(1);
    // One that was expanded before may run already, and its lock be held for hours: the next submission
    // must not wait for that.
    let Some(locked) = spool.lock_task_unless(task.id, |_| true)? else { return Ok(()) };
    // A record without a ticket is what a crash leaves; one with a ticket was expanded before.
    if record.is_file()
        && let Some(found) = locked.ticket()?
    {
        touched.extend(spool.ticket_path(found.place, &found.ticket).parent().map(Path::to_owned));
        return look_again(spool, task, locked, found);
    }
    let bytes = task.to_bytes();
    durable::replace_unsynced(&record, &bytes)?;
    durable::sync_file(&record)?;
    if !dir.events().exists() {
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
    let place = first_place(spool, task, &locked)?;
    let ticket = ticket_of(task, 1);
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
