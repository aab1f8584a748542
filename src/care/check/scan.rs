//! Names: all tickets, all tasks, all submissions that wait. No file is opened but those submissions.

use crate::model::{DoneTicket, HeldReason, Intake, TaskId, Ticket, TimedTicket};
use crate::spool::{Found, Place, Spool, SpoolError, names, read_json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// All names of a spool that stand for tasks.
#[derive(Debug, Default)]
pub(super) struct Scan {
    pub tickets: BTreeMap<TaskId, Vec<Found>>,
    /// Names in folders of tickets that are none.
    pub odd: Vec<PathBuf>,
    /// Folders of tasks.
    pub tasks: BTreeSet<TaskId>,
    /// Tasks of submissions that are not expanded yet, and the submission.
    pub pending: BTreeMap<TaskId, PathBuf>,
}

/// One task of a scan.
#[derive(Debug)]
pub(super) struct OneTask {
    pub id: TaskId,
    pub tickets: Vec<Found>,
    /// Whether it has a folder.
    pub folder: bool,
    /// Whether a submission that holds it waits to be expanded.
    pub pending: bool,
}

impl Scan {
    pub fn of(spool: &Spool) -> Result<Self, SpoolError> {
        let mut scan = Scan::default();
        // Expansion goes from intake to tasks and tickets: looked at in this order, nothing is missed.
        scan.read_intake(spool)?;
        scan.read_tickets(spool, None)?;
        for name in listed(&spool.tasks())? {
            if let Some(id) = name.to_str().and_then(|n| n.parse().ok()) {
                scan.tasks.insert(id);
            }
        }
        Ok(scan)
    }

    pub fn each(&self) -> impl Iterator<Item = OneTask> {
        let ids: BTreeSet<TaskId> = self.tasks.iter().chain(self.tickets.keys()).copied().collect();
        ids.into_iter().map(|id| OneTask {
            id,
            tickets: self.tickets.get(&id).cloned().unwrap_or_default(),
            folder: self.tasks.contains(&id),
            pending: self.pending.contains_key(&id),
        })
    }

    /// Whether there is, or will be, such a task.
    pub fn knows(&self, id: TaskId) -> bool {
        self.tasks.contains(&id) || self.pending.contains_key(&id)
    }

    fn read_intake(&mut self, spool: &Spool) -> Result<(), SpoolError> {
        for name in listed(&spool.intake())? {
            let path = spool.intake().join(&name);
            if name.as_encoded_bytes().first() == Some(&b'.') {
                continue;
            }
            if let Ok(Some(intake)) = read_json::<Intake>(&path) {
                self.pending.extend(intake.tasks.iter().map(|t| (t.id, path.clone())));
            }
        }
        Ok(())
    }

    fn read_tickets(&mut self, spool: &Spool, only: Option<TaskId>) -> Result<(), SpoolError> {
        let held = HeldReason::ALL.iter().map(|r| (Place::Held(*r, None), spool.held(*r)));
        let folders = [(Place::Queue, spool.queue()), (Place::Running, spool.running())].into_iter();
        for (place, dir) in folders.chain(held) {
            for name in listed(&dir)? {
                let found = name.to_str().and_then(|name| match place {
                    Place::Held(reason, _) => held_ticket(reason, name),
                    place => name.parse::<Ticket>().ok().map(|ticket| Found { place, ticket }),
                });
                self.add(found, dir.join(name), only);
            }
        }
        for folder in listed(&spool.done())? {
            let dir = spool.done().join(&folder);
            let Some(number) = folder.to_str().and_then(|n| n.parse::<u64>().ok()) else {
                self.add(None, dir, only);
                continue;
            };
            for name in listed(&dir)? {
                let found = name.to_str().and_then(|n| n.parse::<DoneTicket>().ok());
                let found = found.map(|d| Found { place: Place::Done(number, d.state), ticket: d.ticket });
                self.add(found, dir.join(name), only);
            }
        }
        Ok(())
    }

    fn add(&mut self, found: Option<Found>, path: PathBuf, only: Option<TaskId>) {
        match found {
            Some(found) if only.is_none_or(|id| id == found.ticket.task) => {
                self.tickets.entry(found.ticket.task).or_default().push(found);
            }
            Some(_) => {}
            // Files that are being written are looked at elsewhere.
            None if path.file_name().is_some_and(|n| n.as_encoded_bytes().starts_with(b".")) => {}
            None => self.odd.push(path),
        }
    }
}

impl OneTask {
    /// Looks at the names again, for one task.
    pub fn of(spool: &Spool, id: TaskId) -> Result<Self, SpoolError> {
        let mut scan = Scan::default();
        scan.read_intake(spool)?;
        scan.read_tickets(spool, Some(id))?;
        Ok(OneTask {
            id,
            tickets: scan.tickets.remove(&id).unwrap_or_default(),
            folder: spool.task(id).path().is_dir(),
            pending: scan.pending.contains_key(&id),
        })
    }

    /// The ticket, if it has just one.
    pub fn ticket(&self) -> Option<Found> {
        match self.tickets.as_slice() {
            [found] => Some(*found),
            _ => None,
        }
    }
}

fn held_ticket(reason: HeldReason, name: &str) -> Option<Found> {
    if let Ok(ticket) = name.parse::<Ticket>() {
        return Some(Found { place: Place::Held(reason, None), ticket });
    }
    let timed: TimedTicket = name.parse().ok()?;
    let until = chrono::DateTime::from_timestamp_millis(i64::try_from(timed.until_ms).ok()?)?;
    Some(Found { place: Place::Held(reason, Some(until)), ticket: timed.ticket })
}

/// Names in a folder, or why it cannot be read.
pub(super) fn listed(dir: &Path) -> Result<Vec<std::ffi::OsString>, SpoolError> {
    names(dir).map_err(|e| SpoolError::io("read", dir, e))
}
