//! Finding tasks: by id, by the beginning of one, by a dropped file's name; and listing them newest first.

use super::{Found, Place, Spool, SpoolError, events, names, parsed};
use crate::model::{DoneTicket, HeldReason, State, TaskId, Ticket, TimedTicket};
use std::collections::{HashSet, VecDeque};
use std::path::Path;

/// Longest name of a dropped file that is kept: there must be room for what is put before and after it.
const MAX_NAME: usize = 200;

/// The name by which a dropped file is known: its own, or if that is long its beginning and a hash of all of it.
pub fn dropped_name(name: &str) -> String {
    if name.len() <= MAX_NAME {
        return name.to_owned();
    }
    let ending = if name.ends_with(".jsonl") { ".jsonl" } else { ".json" };
    let hash = &events::hash(name.as_bytes())[..16];
    let most = MAX_NAME - ending.len() - hash.len() - 1;
    let cut = (0..=most).rev().find(|at| name.is_char_boundary(*at)).unwrap_or(0);
    format!("{}-{hash}{ending}", &name[..cut])
}

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
        let file = dropped_name(Path::new(name).file_name()?.to_str()?);
        let taken = |file: &str| std::fs::read(self.taken().join(file)).ok();
        let answer = taken(&file).or_else(|| taken(&format!("{file}.json")))?;
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
        Ok(newest_first(found))
    }

    /// All tickets: active ones newest first, then ended ones, the folder that ended last first. Reads a
    /// folder of ended ones, but for that one, only when it is asked for, so that a short list costs the same
    /// with any history. Each task comes once, however its ticket moves meanwhile.
    pub fn all_tickets(&self) -> Result<Tickets, SpoolError> {
        self.tickets_beside(self.active()?)
    }

    /// The tickets that were found active, less those that have ended since, and the ended ones.
    fn tickets_beside(&self, active: Vec<Found>) -> Result<Tickets, SpoolError> {
        let folders = self.done_folders()?;
        let mut tickets = Tickets { spool: self.clone(), ready: active.into(), read: None, folders };
        if let Some(last) = tickets.folders.pop() {
            let ended = self.ended_in(last)?;
            let ids: HashSet<TaskId> = ended.iter().map(|found| found.ticket.task).collect();
            tickets.ready.retain(|found| !ids.contains(&found.ticket.task));
            tickets.read = Some(ended);
        }
        Ok(tickets)
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
        Ok(Tickets { spool: self.clone(), ready, read: None, folders })
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

/// Sorts tickets that were found in this order, and keeps of each task what was found last: a ticket that moved
/// while the folders were read is seen twice.
fn newest_first(mut found: Vec<Found>) -> Vec<Found> {
    found.sort_by_key(|found| std::cmp::Reverse(found.ticket.task));
    found.dedup_by(|later, kept| {
        let same = later.ticket.task == kept.ticket.task;
        if same {
            std::mem::swap(later, kept);
        }
        same
    });
    found
}

/// All tickets of a spool, one after the other.
#[derive(Debug)]
pub struct Tickets {
    spool: Spool,
    ready: VecDeque<Found>,
    /// What comes next and was read already.
    read: Option<VecDeque<Found>>,
    folders: Vec<u64>,
}

impl Iterator for Tickets {
    type Item = Result<Found, SpoolError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(found) = self.ready.pop_front() {
                return Some(Ok(found));
            }
            if let Some(read) = self.read.take() {
                self.ready = read;
                continue;
            }
            let folder = self.folders.pop()?;
            match self.spool.ended_in(folder) {
                Ok(ready) => self.ready = ready,
                Err(e) => return Some(Err(e)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Short;

    fn found(place: Place, task: TaskId) -> Found {
        let ticket = Ticket { key: 1, task, repo: Short::of("r"), worker: Short::of("w"), attempt: 1 };
        Found { place, ticket }
    }

    #[test]
    fn a_task_that_moves_while_folders_are_read_comes_once_as_it_was_seen_last() {
        let a = TaskId::generate();
        let b = a.plus(1);
        let seen = vec![found(Place::Queue, a), found(Place::Queue, b), found(Place::Running, a)];
        assert_eq!(newest_first(seen), [found(Place::Queue, b), found(Place::Running, a)]);
        let hand = Place::Held(HeldReason::Hand, None);
        assert_eq!(newest_first(vec![found(Place::Queue, a), found(hand, a)]), [found(hand, a)]);
    }

    #[test]
    fn a_task_that_ends_while_they_are_read_has_ended() {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::open(dir.path()).unwrap();
        let a = TaskId::generate();
        let b = a.plus(1);
        let active = vec![found(Place::Running, b), found(Place::Running, a)];
        let done = DoneTicket { ticket: active[1].ticket, state: State::Succeeded };
        std::fs::create_dir_all(spool.done().join("000001")).unwrap();
        std::fs::write(spool.done().join("000001").join(done.to_string()), "").unwrap();
        let all: Result<Vec<Found>, SpoolError> = spool.tickets_beside(active).unwrap().collect();
        assert_eq!(all.unwrap(), [found(Place::Running, b), found(Place::Done(1, State::Succeeded), a)]);
    }

    #[test]
    fn a_long_name_is_cut_and_stays_its_own() {
        assert_eq!(dropped_name("task.json"), "task.json");
        let long = |end: &str| format!("{}{end}", "ü".repeat(120));
        for end in ["1.json", "2.json", "1.jsonl"] {
            let name = dropped_name(&long(end));
            assert!(name.len() <= MAX_NAME && name.starts_with("üüü"), "{name}");
            assert_eq!(Path::new(&name).extension(), Path::new(end).extension());
            assert_eq!(dropped_name(&name), name);
        }
        assert_ne!(dropped_name(&long("1.json")), dropped_name(&long("2.json")));
    }
}
