//! Where a ticket is: where it ought to be first, then everywhere.

use super::{Found, Place, Spool, SpoolError, done_place, parsed, ticket_of};
use crate::model::{HeldReason, Task, TaskId, Ticket, TimedTicket};
use chrono::DateTime;
use std::path::Path;

impl Spool {
    /// Finds a task's ticket without its lock. `None` may mean that it was between two folders each time.
    pub fn find_ticket(&self, id: TaskId) -> Result<Option<Found>, SpoolError> {
        match self.read_task(id) {
            Ok(task) if task.id == id => {
                for _ in 0..3 {
                    if let Some(found) = self.look(&task)? {
                        return Ok(Some(found));
                    }
                }
            }
            // A worker spoiled the record: the names of tickets still tell, so that the task can be ended.
            Ok(_) | Err(SpoolError::Broken(..)) => {
                if let Some(found) = self.ended(id).ok().flatten() {
                    return Ok(Some(found));
                }
            }
            Err(e) => return Err(e),
        }
        self.search(id)
    }

    /// Looks where a ticket ought to be: a few `stat`s.
    fn look(&self, task: &Task) -> Result<Option<Found>, SpoolError> {
        let dir = self.task(task.id);
        let first = ticket_of(task, 1);
        let last = dir.last_attempt();
        let holds: Vec<Place> = HeldReason::ALL
            .iter()
            .filter(|r| !matches!(r, HeldReason::Time | HeldReason::Quota))
            .map(|r| Place::Held(*r, None))
            .chain(self.read_hold(task.id).and_then(|h| h.until.map(|u| Place::Held(h.reason, Some(u)))))
            .collect();
        for attempt in last.max(1)..=last + 1 {
            let ticket = first.with_attempt(attempt);
            for place in [Place::Queue, Place::Running].into_iter().chain(holds.iter().copied()) {
                if self.ticket_path(place, &ticket).exists() {
                    return Ok(Some(Found { place, ticket }));
                }
            }
        }
        self.ended(task.id)
    }

    /// Looks where a task's result says that its ticket is.
    fn ended(&self, id: TaskId) -> Result<Option<Found>, SpoolError> {
        let named = self.read_result(id)?.and_then(|r| done_place(&r.ticket));
        Ok(named
            .filter(|found| found.ticket.task == id && self.ticket_path(found.place, &found.ticket).exists()))
    }

    /// Looks everywhere: for a ticket whose name does not follow from the record, as after an edit that a
    /// crash cut short.
    fn search(&self, id: TaskId) -> Result<Option<Found>, SpoolError> {
        Ok(self.not_ended()?.into_iter().find(|found| found.ticket.task == id))
    }

    /// All tickets but those that have ended.
    pub fn not_ended(&self) -> Result<Vec<Found>, SpoolError> {
        let failed = |dir: &Path| {
            let dir = dir.to_owned();
            move |e| SpoolError::io("read", &dir, e)
        };
        let mut all = Vec::new();
        let plain = [HeldReason::Needs, HeldReason::Answer, HeldReason::Hand].map(|r| Place::Held(r, None));
        for place in [Place::Queue, Place::Running].into_iter().chain(plain) {
            let dir = match place {
                Place::Queue => self.queue(),
                Place::Held(reason, _) => self.held(reason),
                _ => self.running(),
            };
            let tickets = parsed::<Ticket>(&dir).map_err(failed(&dir))?;
            all.extend(tickets.into_iter().map(|ticket| Found { place, ticket }));
        }
        for reason in [HeldReason::Time, HeldReason::Quota] {
            let dir = self.held(reason);
            for timed in parsed::<TimedTicket>(&dir).map_err(failed(&dir))? {
                let until = i64::try_from(timed.until_ms).unwrap_or(i64::MAX);
                let until = DateTime::from_timestamp_millis(until);
                all.push(Found { place: Place::Held(reason, until), ticket: timed.ticket });
            }
        }
        Ok(all)
    }
}
