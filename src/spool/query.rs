//! Finding tasks: by id, by the beginning of one, by a dropped file's name; and listing them newest first.

use super::{Found, Place, Spool, SpoolError, names, parsed};
use crate::model::{DoneTicket, HeldReason, State, TaskId, Ticket, TimedTicket};
use std::collections::VecDeque;
use std::path::Path;

/// Shortest beginning of an id that stands for it.
const MIN_PREFIX: usize = 4;

impl Spool {
    /// Resolves what a user typed: an id, the beginning or end of one, or the name of a dropped file.
    pub fn resolve(&self, text: &str) -> Result<TaskId, SpoolError> {
        let none = || SpoolError::NoTask(text.to_owned());
        if let Ok(id) = text.parse::<TaskId>() {
            return if self.task(id).record(1).is_file() { Ok(id) } else { Err(none()) };
        }
        let lower = text.to_ascii_lowercase();
        let plain =
            lower.len() >= MIN_PREFIX && lower.len() < 26 && lower.bytes().all(|b| b.is_ascii_alphanumeric());
        if plain {
            let dir = self.tasks();
            let all = names(&dir).map_err(|e| SpoolError::io("read", &dir, e))?;
            let mut hits: Vec<TaskId> = all
                .iter()
                .filter_map(|n| n.to_str())
                .filter(|n| n.starts_with(&lower) || n.ends_with(&lower))
                .filter_map(|n| n.parse().ok())
                .collect();
            hits.sort_unstable();
            match hits.len() {
                0 => {}
                1 => return Ok(hits[0]),
                _ => {
                    hits.truncate(8);
                    return Err(SpoolError::Ambiguous(text.to_owned(), hits));
                }
            }
        }
        self.resolve_dropped(text).ok_or_else(none)
    }

    /// Finds the task that a dropped file became.
    fn resolve_dropped(&self, name: &str) -> Option<TaskId> {
        let file = Path::new(name).file_name()?.to_str()?;
        let answer = std::fs::read(self.taken().join(file)).ok()?;
        let answer: serde_json::Value = serde_json::from_slice(&answer).ok()?;
        answer.get("tasks")?.get(0)?.get("id")?.as_str()?.parse().ok()
    }

    /// Tickets that are queued, held or running, newest task first.
    pub fn active(&self) -> Result<Vec<Found>, SpoolError> {
        let mut found = Vec::new();
        let fail = |dir: &Path, e| SpoolError::io("read", dir, e);
        for (place, dir) in [(Place::Queue, self.queue()), (Place::Running, self.running())] {
            found.extend(
                parsed::<Ticket>(&dir)
                    .map_err(|e| fail(&dir, e))?
                    .into_iter()
                    .map(|ticket| Found { place, ticket }),
            );
        }
        for reason in HeldReason::ALL {
            let dir = self.held(*reason);
            for name in names(&dir).map_err(|e| fail(&dir, e))? {
                let Some(name) = name.to_str() else { continue };
                if let Ok(ticket) = name.parse::<Ticket>() {
                    found.push(Found { place: Place::Held(*reason, None), ticket });
                } else if let Ok(timed) = name.parse::<TimedTicket>() {
                    let until = chrono::DateTime::from_timestamp_millis(
                        i64::try_from(timed.until_ms).unwrap_or(i64::MAX),
                    );
                    found.push(Found { place: Place::Held(*reason, until), ticket: timed.ticket });
                }
            }
        }
        found.sort_unstable_by_key(|f| std::cmp::Reverse(f.ticket.task));
        // A ticket that moved while we read may have been seen twice.
        found.dedup_by_key(|f| f.ticket.task);
        Ok(found)
    }

    /// All tickets: active ones newest first, then ended ones, the folder that ended last first. Reads a
    /// folder of ended ones only when it is asked for, so that a short list costs the same with any history.
    pub fn all_tickets(&self) -> Result<Tickets, SpoolError> {
        Ok(Tickets { spool: self.clone(), ready: self.active()?.into(), folders: self.done_folders()? })
    }

    /// All tickets that come after a task in that order, without reading what comes before it.
    pub fn tickets_after(&self, id: TaskId) -> Result<Tickets, SpoolError> {
        let found = self.find_ticket(id)?;
        let Some(Found { place: Place::Done(last, _), .. }) = found else {
            let mut tickets = self.all_tickets()?;
            match tickets.ready.iter().position(|f| f.ticket.task == id) {
                Some(at) => drop(tickets.ready.drain(..=at)),
                None => return Err(SpoolError::NoTask(id.to_string())),
            }
            return Ok(tickets);
        };
        let mut folders = self.done_folders()?;
        folders.retain(|folder| *folder < last);
        let mut ready = self.ended_in(last)?;
        ready.retain(|found| found.ticket.task < id);
        Ok(Tickets { spool: self.clone(), ready, folders })
    }

    fn done_folders(&self) -> Result<Vec<u64>, SpoolError> {
        let dir = self.done();
        parsed::<u64>(&dir).map_err(|e| SpoolError::io("read", &dir, e))
    }

    /// The tickets in a folder of ended ones, newest task first.
    fn ended_in(&self, folder: u64) -> Result<VecDeque<Found>, SpoolError> {
        let dir = self.done().join(format!("{folder:06}"));
        let names = names(&dir).map_err(|e| SpoolError::io("read", &dir, e))?;
        let mut done: Vec<DoneTicket> = names.iter().filter_map(|n| n.to_str()?.parse().ok()).collect();
        done.sort_unstable_by_key(|d| std::cmp::Reverse(d.ticket.task));
        Ok(done
            .into_iter()
            .map(|d| Found { place: Place::Done(folder, d.state), ticket: d.ticket })
            .collect())
    }

    /// Numbers of tickets by state, for those that have not ended.
    pub fn active_counts(&self) -> Result<Vec<(State, usize)>, SpoolError> {
        let active = self.active()?;
        let count = |state| active.iter().filter(|f| f.place.state() == state).count();
        Ok([State::Queued, State::Held, State::Running].map(|s| (s, count(s))).to_vec())
    }
}

/// All tickets of a spool, one after the other.
#[derive(Debug)]
pub struct Tickets {
    spool: Spool,
    ready: VecDeque<Found>,
    folders: Vec<u64>,
}

impl Iterator for Tickets {
    type Item = Result<Found, SpoolError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(found) = self.ready.pop_front() {
                return Some(Ok(found));
            }
            let folder = self.folders.pop()?;
            match self.spool.ended_in(folder) {
                Ok(ready) => self.ready = ready,
                Err(e) => return Some(Err(e)),
            }
        }
    }
}
