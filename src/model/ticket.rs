//! A ticket: an empty file whose folder is a task's state and whose name holds all that claiming needs.
//!
//! `<key>-<task>-<repo>-<worker>.<n>`: 14 digits that sort in claim order, the task's id, eight
//! hexadecimal digits each for repository and worker, and the number of the attempt that runs or would
//! run next. In `done/` the state follows: `….<n>.succeeded`. In `held/time` and `held/quota` the time
//! comes first: `<milliseconds>.<ticket>`, so that what is due is at the front.

use super::id::TaskId;
use super::words::State;
use std::fmt;
use std::str::FromStr;

/// How many milliseconds of waiting are worth one point of priority: at the extremes, a task of
/// priority 100 goes before one of priority 0 that came up to 100 minutes earlier, and not before
/// older ones. So nothing starves.
pub const PRIORITY_STEP_MS: u64 = 60_000;

/// Eight hexadecimal digits that stand for something in a ticket's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Short(pub u32);

impl Short {
    /// What stands for "no repository".
    pub const NONE: Short = Short(0);

    /// Derives the digits from a name.
    pub fn of(name: &str) -> Self {
        use sha2::{Digest as _, Sha256};
        let hash = Sha256::digest(name.as_bytes());
        Short(u32::from_be_bytes([hash[0], hash[1], hash[2], hash[3]]).max(1))
    }

    /// The digits for a folder that is worked on directly: their highest bit is set. Two workers in one
    /// folder would hit each other, so claiming must see from the name that this is one.
    pub fn of_directory(self) -> Self {
        Short(self.0 | 1 << 31)
    }

    /// The digits for a repository, whose workers each have a workspace of their own.
    pub fn of_repository(self) -> Self {
        Short((self.0 & !(1 << 31)).max(1))
    }

    /// Whether this stands for a folder that takes one worker at a time.
    pub fn is_directory(self) -> bool {
        self.0 >> 31 == 1
    }
}

impl fmt::Display for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

impl FromStr for Short {
    type Err = ();

    fn from_str(s: &str) -> Result<Self, ()> {
        let plain = s.len() == 8 && s.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        if plain { u32::from_str_radix(s, 16).map(Short).map_err(|_| ()) } else { Err(()) }
    }
}

/// The name of a ticket. Sorts in claim order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket {
    /// Submission time in milliseconds, moved by priority.
    pub key: u64,
    /// The task.
    pub task: TaskId,
    /// Its repository.
    pub repo: Short,
    /// Its worker.
    pub worker: Short,
    /// The attempt that runs or would run next, from 1. Also the fencing token.
    pub attempt: u32,
}

impl Ticket {
    /// Returns the key of a task submitted at `ms` with `priority`.
    pub fn key(ms: u64, priority: u8) -> u64 {
        ms + u64::from(100 - priority.min(100)) * PRIORITY_STEP_MS
    }

    /// The same ticket for another attempt.
    pub fn with_attempt(self, attempt: u32) -> Self {
        Ticket { attempt, ..self }
    }
}

impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:014}-{}-{}-{}.{}", self.key, self.task, self.repo, self.worker, self.attempt)
    }
}

impl FromStr for Ticket {
    type Err = ();

    fn from_str(s: &str) -> Result<Self, ()> {
        let (name, attempt) = s.split_once('.').ok_or(())?;
        let mut parts = name.split('-');
        let mut part = || parts.next().ok_or(());
        let (key, task, repo, worker) = (part()?, part()?, part()?, part()?);
        if parts.next().is_some() || key.len() != 14 || !digits(key) || !digits(attempt) {
            return Err(());
        }
        let ticket = Ticket {
            key: key.parse().map_err(|_| ())?,
            task: task.parse().map_err(|_| ())?,
            repo: repo.parse()?,
            worker: worker.parse()?,
            attempt: attempt.parse().map_err(|_| ())?,
        };
        // One ticket, one spelling: "01" is not an attempt.
        if ticket.to_string() == s { Ok(ticket) } else { Err(()) }
    }
}

/// A ticket in `done/`: its name says how the task ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DoneTicket {
    /// The ticket.
    pub ticket: Ticket,
    /// How the task ended.
    pub state: State,
}

impl fmt::Display for DoneTicket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.ticket, self.state)
    }
}

impl FromStr for DoneTicket {
    type Err = ();

    fn from_str(s: &str) -> Result<Self, ()> {
        let (ticket, state) = s.rsplit_once('.').ok_or(())?;
        let state: State = state.parse().map_err(|_| ())?;
        if !state.is_terminal() {
            return Err(());
        }
        Ok(DoneTicket { ticket: ticket.parse()?, state })
    }
}

/// A ticket that waits until a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TimedTicket {
    /// Milliseconds since 1970.
    pub until_ms: u64,
    /// The ticket.
    pub ticket: Ticket,
}

impl fmt::Display for TimedTicket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:014}.{}", self.until_ms, self.ticket)
    }
}

impl FromStr for TimedTicket {
    type Err = ();

    fn from_str(s: &str) -> Result<Self, ()> {
        let (until, ticket) = s.split_once('.').ok_or(())?;
        if until.len() != 14 || !digits(until) {
            return Err(());
        }
        Ok(TimedTicket { until_ms: until.parse().map_err(|_| ())?, ticket: ticket.parse()? })
    }
}

fn digits(s: &str) -> bool {
    !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ticket(key: u64, attempt: u32) -> Ticket {
        Ticket { key, task: TaskId::generate(), repo: Short::of("repo"), worker: Short::of("shell"), attempt }
    }

    #[test]
    fn names_read_back() {
        let t = ticket(Ticket::key(1_700_000_000_000, 50), 3);
        assert_eq!(t.to_string().parse::<Ticket>().unwrap(), t);
        let done = DoneTicket { ticket: t, state: State::TimedOut };
        assert_eq!(done.to_string().parse::<DoneTicket>().unwrap(), done);
        let timed = TimedTicket { until_ms: 1_800_000_000_000, ticket: t };
        assert_eq!(timed.to_string().parse::<TimedTicket>().unwrap(), timed);
    }

    #[test]
    fn names_sort_by_priority_raised_by_age() {
        let now = 1_700_000_000_000;
        assert!(Ticket::key(now, 60) < Ticket::key(now, 50));
        assert!(Ticket::key(now - 11 * PRIORITY_STEP_MS, 50) < Ticket::key(now, 60), "age wins in the end");
        let (a, b) = (ticket(5, 1), ticket(40, 1));
        assert_eq!(a < b, a.to_string() < b.to_string());
    }

    proptest! {
        #[test]
        fn what_is_not_a_ticket_is_refused(s in ".{0,80}") {
            if let Ok(t) = s.parse::<Ticket>() {
                prop_assert_eq!(t.to_string(), s);
            }
        }

        #[test]
        fn every_ticket_reads_back(key in 0u64..99_999_999_999_999, repo: u32, worker: u32, attempt in 1u32..) {
            let t = Ticket { key, task: TaskId::generate(), repo: Short(repo), worker: Short(worker), attempt };
            prop_assert_eq!(t.to_string().parse::<Ticket>().unwrap(), t);
        }
    }
}
