//! Stops the making of a workspace, when somebody cancels the task or when it takes too long.

use super::Attempt;
use super::outcome::End;
use crate::model::{Class, Phase};
use std::cell::Cell;
use std::io;
use std::time::{Duration, Instant};

/// Why it was stopped.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Why {
    Cancelled,
    TooLong,
}

/// Is asked again and again while a workspace is made.
pub(super) struct Stop<'a> {
    attempt: &'a Attempt,
    until: Instant,
    looked: Cell<Instant>,
    why: Cell<Option<Why>>,
}

impl<'a> Stop<'a> {
    pub fn new(attempt: &'a Attempt) -> Self {
        let now = Instant::now();
        let until = now + Duration::from_secs(attempt.plan.defaults.prepare_timeout);
        Stop { attempt, until, looked: Cell::new(now), why: Cell::new(None) }
    }

    /// Whether it was stopped.
    pub fn is(&self) -> bool {
        self.why.get().is_some()
    }

    /// How the attempt ends, if it was stopped.
    pub fn end(&self, phase: Phase) -> Option<End> {
        self.why.get().map(|why| match why {
            Why::Cancelled => self.attempt.cancelled_end(phase),
            Why::TooLong => End::failed(Class::Workspace, phase, "the time for making the workspace is over"),
        })
    }

    /// Fails once it is to stop. Asked for every file: the disk is looked at now and then.
    pub fn check(&self) -> io::Result<()> {
        const LOOK: Duration = Duration::from_millis(100);
        let now = Instant::now();
        if self.why.get().is_none() && now - self.looked.get() >= LOOK {
            self.looked.set(now);
            if self.attempt.cancelled() {
                self.why.set(Some(Why::Cancelled));
            } else if now >= self.until {
                self.why.set(Some(Why::TooLong));
            }
        }
        match self.why.get() {
            Some(_) => Err(io::Error::other("stopped")),
            None => Ok(()),
        }
    }
}
