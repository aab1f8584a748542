//! Finding tickets and moving them: the only code that changes a task's state.
//!
//! A move is made while holding the task's lock, by one rename that never replaces anything. A reader
//! without the lock may look while a ticket is between two folders; only the holder of the lock may
//! conclude that there is none.

use super::{EventLog, Spool, SpoolError, TaskDir, names, notices, parsed};
use crate::durable::{self, Held};
use crate::model::{
    DoneTicket, EventKind, HeldReason, Short, State, Task, TaskId, Ticket, TimedTicket, VERSION,
};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

/// How many tickets a folder of `done/` takes before the next one is begun.
pub const DONE_FOLDER: usize = 1000;

/// How many more tickets this process puts into a folder of `done/` before it counts again.
static ROOM: Mutex<Option<(PathBuf, usize)>> = Mutex::new(None);

/// The folder that a ticket is in: the state of its task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Ready to run.
    Queue,
    /// Waiting.
    Held(HeldReason, Option<DateTime<Utc>>),
    /// Claimed.
    Running,
    /// Ended, in the folder with this number.
    Done(u64, State),
}

impl Place {
    /// The state that the folder stands for.
    pub fn state(self) -> State {
        match self {
            Place::Queue => State::Queued,
            Place::Held(..) => State::Held,
            Place::Running => State::Running,
            Place::Done(_, state) => state,
        }
    }
}

/// A ticket where it was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// The folder.
    pub place: Place,
    /// The ticket.
    pub ticket: Ticket,
}

/// Why a task is held: `tasks/<id>/hold.json`, there while it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Hold {
    /// Version of this format.
    pub version: u32,
    /// For what it waits.
    pub reason: HeldReason,
    /// Until when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<DateTime<Utc>>,
    /// In words.
    pub message: String,
    /// Since when.
    pub since: DateTime<Utc>,
}

/// A task whose lock we hold: the right to move its ticket and to write its files.
#[derive(Debug)]
pub struct LockedTask {
    pub(super) spool: Spool,
    pub(super) dir: TaskDir,
    lock: Held,
}

impl Spool {
    /// Where a ticket lies when it is at `place`.
    pub fn ticket_path(&self, place: Place, ticket: &Ticket) -> PathBuf {
        match place {
            Place::Queue => self.queue().join(ticket.to_string()),
            Place::Running => self.running().join(ticket.to_string()),
            Place::Held(reason, Some(until)) => {
                let until_ms = u64::try_from(until.timestamp_millis()).unwrap_or(0);
                self.held(reason).join(TimedTicket { until_ms, ticket: *ticket }.to_string())
            }
            Place::Held(reason, None) => self.held(reason).join(ticket.to_string()),
            Place::Done(folder, state) => self
                .done()
                .join(format!("{folder:06}"))
                .join(DoneTicket { ticket: *ticket, state }.to_string()),
        }
    }

    /// Takes a task's lock, waiting for it.
    pub fn lock_task(&self, id: TaskId) -> Result<LockedTask, SpoolError> {
        let dir = self.task(id);
        match dir.lock().take() {
            Ok(lock) => Ok(LockedTask { spool: self.clone(), dir, lock }),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Err(SpoolError::NoTask(id.to_string())),
            Err(e) => Err(SpoolError::io("lock", dir.path(), e)),
        }
    }

    /// Takes a task's lock, waiting for it unless the ticket is found where it need not be taken: `None` then.
    ///
    /// A running task's lock is held for as long as the attempt takes; whoever only wants waiting tasks must
    /// not wait for that.
    pub fn lock_task_unless(
        &self,
        id: TaskId,
        pass_over: impl Fn(Place) -> bool,
    ) -> Result<Option<LockedTask>, SpoolError> {
        loop {
            if let Some(locked) = self.try_lock_task(id)? {
                return Ok(Some(locked));
            }
            match self.find_ticket(id) {
                Ok(Some(found)) if pass_over(found.place) => return Ok(None),
                // Being made, or being moved, right now.
                Ok(_) | Err(SpoolError::NoTask(_)) => {}
                Err(e) => return Err(e),
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Takes a task's lock if nobody holds it.
    pub fn try_lock_task(&self, id: TaskId) -> Result<Option<LockedTask>, SpoolError> {
        let dir = self.task(id);
        match dir.lock().try_take() {
            Ok(lock) => Ok(lock.map(|lock| LockedTask { spool: self.clone(), dir, lock })),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Err(SpoolError::NoTask(id.to_string())),
            Err(e) => Err(SpoolError::io("lock", dir.path(), e)),
        }
    }

    /// Makes a locked task of a descriptor that the parent process left open for us.
    ///
    /// # Safety
    /// `fd` must be an open descriptor that nothing else in this process owns.
    pub unsafe fn inherit_task(&self, id: TaskId, fd: std::os::fd::RawFd) -> Result<LockedTask, SpoolError> {
        let dir = self.task(id);
        // SAFETY: the caller vouches for it.
        let lock = unsafe { Held::from_inherited(fd, dir.path().join("lock")) }
            .map_err(|e| SpoolError::io("take over the lock of", dir.path(), e))?;
        Ok(LockedTask { spool: self.clone(), dir, lock })
    }

    /// Reads the record of a task: its newest revision.
    pub fn read_task(&self, id: TaskId) -> Result<Task, SpoolError> {
        let dir = self.task(id);
        read_record(&dir, dir.last_revision())
    }

    /// Reads why a task is held, if it is.
    pub fn read_hold(&self, id: TaskId) -> Option<Hold> {
        serde_json::from_slice(&std::fs::read(self.task(id).hold()).ok()?).ok()
    }

    /// Reads a task's result, if it has one.
    pub fn read_result(&self, id: TaskId) -> Result<Option<crate::model::TaskResult>, SpoolError> {
        read_json(&self.task(id).result())
    }

    /// Returns the state of a task that must exist.
    pub fn state_of(&self, id: TaskId) -> Result<State, SpoolError> {
        match self.find_ticket(id)? {
            Some(found) => Ok(found.place.state()),
            None => Err(SpoolError::Broken(
                self.task(id).path().to_owned(),
                "the task has no ticket in any folder".into(),
            )),
        }
    }

    /// The folder of `done/` to put the next ticket into.
    fn done_folder(&self) -> Result<u64, SpoolError> {
        let dir = self.done();
        let last = parsed::<u64>(&dir).map_err(|e| SpoolError::io("read", &dir, e))?.pop().unwrap_or(1);
        let folder = dir.join(format!("{last:06}"));
        // Whoever ends one task after the other counts now and then: others end tasks too, so that the room that
        // was seen is used to an eighth only.
        let mut seen = ROOM.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some((known, room)) = &mut *seen
            && *known == folder
            && *room > 0
        {
            *room -= 1;
            return Ok(last);
        }
        let there = names(&folder).map_err(|e| SpoolError::io("read", &folder, e))?.len();
        let room = DONE_FOLDER.saturating_sub(there);
        *seen = Some((folder, room / 8));
        Ok(if room == 0 { last + 1 } else { last })
    }
}

/// The ticket of a task for an attempt.
pub fn ticket_of(task: &Task, attempt: u32) -> Ticket {
    Ticket {
        key: Ticket::key(
            u64::try_from(task.submitted_at.timestamp_millis()).unwrap_or(0),
            task.spec.priority(),
        ),
        task: task.id,
        repo: task
            .repo
            .as_ref()
            .map_or(Short::NONE, |r| r.key.parse().unwrap_or_else(|()| Short::of(&r.key))),
        worker: Short::of(task.worker.as_str()),
        attempt,
    }
}

/// Reads `done/<folder>/<ticket>` as a result names it.
pub fn done_place(relative: &str) -> Option<Found> {
    let mut parts = relative.split('/');
    let ("done", folder, name, None) = (parts.next()?, parts.next()?, parts.next()?, parts.next()) else {
        return None;
    };
    let done: DoneTicket = name.parse().ok()?;
    Some(Found { place: Place::Done(folder.parse().ok()?, done.state), ticket: done.ticket })
}

/// Reads a JSON file of ours; one that is not there is `None`. So is one with nothing in it: that is what a
/// power loss leaves of a file that nobody had waited for.
pub fn read_json<T: serde::de::DeserializeOwned>(path: &std::path::Path) -> Result<Option<T>, SpoolError> {
    match std::fs::read(path) {
        Ok(bytes) if bytes.iter().all(|b| *b == 0) => Ok(None),
        Ok(bytes) => serde_json::from_slice(&bytes)
            .map(Some)
            .map_err(|e| SpoolError::Broken(path.to_owned(), e.to_string())),
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
        Err(e) => Err(SpoolError::io("read", path, e)),
    }
}

fn read_record(dir: &TaskDir, revision: u32) -> Result<Task, SpoolError> {
    read_json(&dir.record(revision))?.ok_or_else(|| SpoolError::NoTask(dir.id().to_string()))
}

impl LockedTask {
    /// The task.
    pub fn id(&self) -> TaskId {
        self.dir.id()
    }

    /// Its folder.
    pub fn dir(&self) -> &TaskDir {
        &self.dir
    }

    /// Its spool.
    pub fn spool(&self) -> &Spool {
        &self.spool
    }

    /// The lock, to hand it to a child process.
    pub fn lock(&self) -> &Held {
        &self.lock
    }

    /// The task's record: its newest revision.
    pub fn task(&self) -> Result<Task, SpoolError> {
        self.spool.read_task(self.id())
    }

    /// A revision of the task's record.
    pub fn revision(&self, revision: u32) -> Result<Task, SpoolError> {
        read_record(&self.dir, revision)
    }

    /// The ticket. Since we hold the lock, `None` means that there is none.
    pub fn ticket(&self) -> Result<Option<Found>, SpoolError> {
        self.spool.find_ticket(self.id())
    }

    /// Waits for the disk to have the task, if whoever expanded it may not have done that yet: nothing is started, and no
    /// ticket moved on, of which a power loss would take the folder and leave the submission.
    pub fn settle_record(&self) -> Result<(), SpoolError> {
        let (intake, record) = (self.spool.intake(), self.dir.record(1));
        if super::is_empty(&intake).map_err(|e| SpoolError::io("read", &intake, e))? {
            return Ok(());
        }
        match durable::sync_file(&record) {
            // A worker removed it.
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            other => other.map_err(|e| SpoolError::io("sync", &record, e))?,
        }
        for folder in [self.dir.path(), &self.spool.tasks()] {
            durable::sync_dir(folder).map_err(|e| SpoolError::io("sync", folder, e))?;
        }
        Ok(())
    }

    /// Adds to the task's history.
    pub fn event(&self, attempt: Option<u32>, what: EventKind) -> anyhow::Result<()> {
        EventLog::open(&self.dir.events())?.add(attempt, what)
    }

    /// Adds to the task's history, unless it tells the same already since the last retry: what a crash made
    /// somebody do again did not happen twice.
    pub fn event_once(&self, attempt: Option<u32>, what: EventKind) -> anyhow::Result<()> {
        let all = super::events::read(&self.dir.events())?;
        let since = all.iter().rev().take_while(|e| !matches!(e.what, EventKind::Retry { .. }));
        if since.into_iter().any(|e| e.attempt == attempt && e.what == what) {
            return Ok(());
        }
        self.event(attempt, what)
    }

    /// Puts a first ticket into the spool.
    pub fn put_ticket(&self, place: Place, ticket: &Ticket) -> Result<(), SpoolError> {
        let path = self.spool.ticket_path(place, ticket);
        durable::create_new_unsynced(&path, b"").map_err(|e| SpoolError::io("make", &path, e))?;
        if place == Place::Queue {
            self.spool.queue_grew();
        }
        Ok(())
    }

    /// Moves the ticket from where it was found: one rename, synced. Fails if it is no longer there.
    pub fn move_ticket(&self, from: Found, to: Place, ticket: Ticket) -> Result<Found, SpoolError> {
        let moved = self.rename_ticket(from, to, ticket)?;
        if (moved.place, moved.ticket) != (from.place, from.ticket) {
            self.sync_move(from, moved)?;
        }
        Ok(moved)
    }

    /// Waits until a move survives power loss.
    pub fn sync_move(&self, from: Found, to: Found) -> Result<(), SpoolError> {
        for found in [to, from] {
            if let Some(folder) = self.spool.ticket_path(found.place, &found.ticket).parent() {
                durable::sync_dir(folder).map_err(|e| SpoolError::io("sync", folder, e))?;
            }
        }
        Ok(())
    }

    /// Moves the ticket like [`Self::move_ticket`], without waiting for the disk.
    pub fn rename_ticket(&self, from: Found, to: Place, ticket: Ticket) -> Result<Found, SpoolError> {
        let old = self.spool.ticket_path(from.place, &from.ticket);
        let new = self.spool.ticket_path(to, &ticket);
        if old == new {
            return Ok(from);
        }
        loop {
            if let Place::Done(..) = to
                && let Some(folder) = new.parent().filter(|folder| !folder.is_dir())
            {
                durable::ensure_dir(folder).map_err(|e| SpoolError::io("make", folder, e))?;
                // Its own entry must survive before a ticket is moved into it.
                let done = self.spool.done();
                durable::sync_dir(&done).map_err(|e| SpoolError::io("sync", &done, e))?;
            }
            match durable::rename_noreplace(&old, &new) {
                Ok(()) => break,
                // A prune has just removed the folder, which was empty.
                Err(e)
                    if e.kind() == io::ErrorKind::NotFound
                        && old.exists()
                        && new.parent().is_some_and(|folder| !folder.exists()) => {}
                Err(e) => return Err(SpoolError::io("move the ticket", &old, e)),
            }
        }
        if to == Place::Queue {
            self.spool.queue_grew();
        }
        Ok(Found { place: to, ticket })
    }

    /// Lets the task wait: says why, then moves its ticket.
    pub fn hold(
        &self,
        from: Found,
        reason: HeldReason,
        until: Option<DateTime<Utc>>,
        attempt: u32,
        message: &str,
    ) -> Result<Found, SpoolError> {
        let place = self.write_hold(reason, until, message)?;
        let told = reason == HeldReason::Answer && notices::post_question(&self.spool, self.id(), attempt);
        let found = self.move_ticket(from, place, from.ticket.with_attempt(attempt))?;
        if told {
            notices::send(&self.spool);
        }
        Ok(found)
    }

    /// Says why the task waits, before its ticket is put or moved there.
    pub fn write_hold(
        &self,
        reason: HeldReason,
        until: Option<DateTime<Utc>>,
        message: &str,
    ) -> Result<Place, SpoolError> {
        // The time is part of the ticket's name, in milliseconds: what is read back must be the same.
        let until = until.and_then(|u| DateTime::from_timestamp_millis(u.timestamp_millis()));
        let hold = Hold { version: VERSION, reason, until, message: message.to_owned(), since: Utc::now() };
        let path = self.dir.hold();
        let bytes =
            serde_json::to_vec_pretty(&hold).map_err(|e| SpoolError::Broken(path.clone(), e.to_string()))?;
        durable::replace_unsynced(&path, &bytes).map_err(|e| SpoolError::io("write", &path, e))?;
        Ok(Place::Held(reason, until))
    }

    /// Moves a waiting ticket to the queue.
    pub fn queue(&self, from: Found) -> Result<Found, SpoolError> {
        let found = self.move_ticket(from, Place::Queue, from.ticket)?;
        durable::remove_file(&self.dir.hold()).map_err(|e| SpoolError::io("remove", &self.dir.hold(), e))?;
        Ok(found)
    }

    /// Where a ticket would go that ends now.
    pub fn done_place(&self, state: State) -> Result<Place, SpoolError> {
        Ok(Place::Done(self.spool.done_folder()?, state))
    }
}
