//! The end of an attempt that is still to be recorded.
//!
//! A supervisor that goes on records it while the command of its next task runs: it would only wait then. Until it
//! is recorded, the attempt is like one whose supervisor died there: whoever gets its lock records the end.

use super::conclude::conclude;
use super::outcome::Outcome;
use super::spawn::GaveUp;
use super::{Attempt, enclose};
use crate::model::{State, Ticket};
use crate::spool::{Found, Journal, LockedTask};
use std::cell::{OnceCell, RefCell};
use std::rc::Rc;

/// An attempt whose work is over, if there is one. Its end is recorded once.
#[derive(Default)]
pub struct Outstanding {
    left: RefCell<Option<Left>>,
    journal: OnceCell<Rc<Journal>>,
}

struct Left {
    locked: Rc<LockedTask>,
    found: Found,
    attempt: Option<Attempt>,
    outcome: Outcome,
}

impl Outstanding {
    pub(super) fn new(
        locked: Rc<LockedTask>,
        found: Found,
        attempt: Option<Attempt>,
        outcome: Outcome,
    ) -> Self {
        let can_wait = may_wait(&locked, attempt.as_ref(), &outcome);
        let left = RefCell::new(Some(Left { locked, found, attempt, outcome }));
        let outstanding = Outstanding { left, journal: OnceCell::new() };
        if !can_wait {
            outstanding.record();
        }
        outstanding
    }

    /// The ticket of the attempt, as long as its end is not recorded.
    pub fn ticket(&self) -> Option<Ticket> {
        self.left.borrow().as_ref().map(|left| left.found.ticket)
    }

    /// Lets the end be recorded in a journal: its supervisor goes on.
    pub fn goes_into(&self, journal: &Rc<Journal>) {
        self.journal.get_or_init(|| Rc::clone(journal));
    }

    /// Records the end, if that is still to be done. What keeps it from being recorded is noted where whoever asks for
    /// the task finds it.
    pub fn record(&self) {
        // Not borrowed while it is done: steps of its own belong to it.
        let Some(Left { locked, found, attempt, outcome }) = self.left.take() else { return };
        let journal = self.journal.get().map(Rc::as_ref);
        GaveUp::unless(locked.dir(), conclude(&locked, found, attempt, outcome, journal));
    }
}

/// Whether the end says nothing about what should run next: a failure may tell of a limit of its provider, and a task
/// that waits for this one may go before others. An overlay nobody else could look into, and teardown commands are
/// commands of this attempt.
fn may_wait(locked: &LockedTask, attempt: Option<&Attempt>, outcome: &Outcome) -> bool {
    let is_alone = || crate::spool::names(&locked.dir().dependents()).is_ok_and(|names| names.is_empty());
    outcome.state == State::Succeeded
        && !enclose::is_enclosed()
        && attempt.is_none_or(|attempt| attempt.plan.repo_config.teardown.is_empty())
        && is_alone()
}

/// One that is dropped on the way out of a failure is recorded too.
impl Drop for Outstanding {
    fn drop(&mut self) {
        self.record();
    }
}
