//! When the making of a workspace is to stop before its end.

use super::Attempt;
use std::cell::Cell;
use std::time::{Duration, Instant};

/// Why a preparation was stopped.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    /// Somebody cancelled the task.
    Cancelled,
    /// It took longer than it may.
    TooLong,
}

/// Stops the making of a workspace when somebody cancels the task, or when it takes too long.
pub(super) struct Stop<'a> {
    attempt: &'a Attempt<'a>,
    until: Instant,
    looked: Cell<Instant>,
    why: Cell<Option<Why>>,
}

impl<'a> Stop<'a> {
    /// Counts the time from now.
    pub(super) fn new(attempt: &'a Attempt<'a>) -> Self {
        let now = Instant::now();
        let until = now + Duration::from_secs(attempt.plan.defaults.prepare_timeout);
        Stop { attempt, until, looked: Cell::new(now), why: Cell::new(None) }
    }

    /// Whether it was stopped for this.
    pub(super) fn is(&self, why: Why) -> bool {
        self.why.get() == Some(why)
    }

    /// Fails once it is to stop. Asked for every file: the disk is looked at now and then.
    pub(super) fn check(&self) -> std::io::Result<()> {
        const LOOK: Duration = Duration::from_millis(100);
        let now = Instant::now();
        if now - self.looked.get() < LOOK {
            return Ok(());
        }
        self.looked.set(now);
        if self.attempt.cancelled() {
            self.why.set(Some(Why::Cancelled));
        } else if now >= self.until {
            self.why.set(Some(Why::TooLong));
        }
        match self.why.get() {
            Some(_) => Err(std::io::Error::other("stopped")),
            None => Ok(()),
        }
    }
}
