//! Changing where a task stands. Every verb checks the state that it needs and says no otherwise.

use super::House;
use crate::intake::{self, Refused};
use crate::model::{
    EventKind, HeldReason, RequestKind, Review, ReviewFile, State, TaskId, TaskSpec, WorkerName,
};
use crate::runner;
use crate::spool::{Found, LockedTask, Place, SpoolError, read_json, ticket_of};
use anyhow::Context as _;
use std::time::{Duration, Instant};

/// How long a verb waits for a task that somebody is just moving.
const PATIENCE: Duration = Duration::from_secs(2);

/// What became of a wish to cancel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cancelled {
    /// The task is cancelled.
    Now,
    /// It runs; the wish is recorded and will end it within moments.
    Requested,
}

/// Cancels a task, wherever it stands.
pub fn cancel(house: &House, id: TaskId, reason: Option<&str>) -> anyhow::Result<Cancelled> {
    let spool = &house.spool;
    loop {
        let found = match settled(house, id)? {
            Standing::Locked(locked, found) => match found.place {
                Place::Queue | Place::Held(..) => {
                    locked.cancel_waiting(found, reason)?;
                    drop(locked);
                    spool.release_dependents(id)?;
                    return Ok(Cancelled::Now);
                }
                // Its supervisor is gone; whoever takes over, or its keeper, sees the wish.
                Place::Running => found,
                Place::Done(_, state) => {
                    let message = format!("task {id} has ended already ({state})");
                    return Err(SpoolError::WrongState(message).into());
                }
            },
            Standing::Running(found) => found,
        };
        let attempt = found.ticket.attempt;
        spool.request(id, attempt, RequestKind::Cancel, reason.map(str::to_owned), None)?;
        // Between our look and our wish the attempt may have ended, to be repeated by itself.
        let repeated = spool
            .find_ticket(id)?
            .is_some_and(|now| now.ticket.attempt > attempt && !now.place.state().is_terminal());
        if !repeated {
            return Ok(Cancelled::Requested);
        }
    }
}

/// Keeps a queued or waiting task from starting until it is released.
pub fn hold(house: &House, id: TaskId) -> anyhow::Result<()> {
    let (locked, found) = waiting(house, id, "held")?;
    if matches!(found.place, Place::Held(HeldReason::Hand, _)) {
        return Ok(());
    }
    let message = "held by hand: `workspool release` lets it go";
    locked.event(None, EventKind::Held { reason: HeldReason::Hand, until: None, message: message.into() })?;
    locked.hold(found, HeldReason::Hand, None, found.ticket.attempt, message)?;
    Ok(())
}

/// Lets a held task go. Says where it stands then.
pub fn release(house: &House, id: TaskId) -> anyhow::Result<State> {
    let (locked, found) = waiting(house, id, "released")?;
    match found.place {
        Place::Held(HeldReason::Hand, _) => {
            let found = locked.settle(found)?;
            drop(locked);
            if found.place.state() == State::Skipped {
                house.spool.release_dependents(id)?;
            }
            Ok(found.place.state())
        }
        Place::Held(reason @ (HeldReason::Time | HeldReason::Quota), _) => {
            locked.queue(found)?;
            locked.event(None, EventKind::Released { reason })?;
            house.spool.ring();
            Ok(State::Queued)
        }
        Place::Held(reason, _) => {
            let hold = house.spool.read_hold(id).map(|h| h.message).unwrap_or_default();
            Err(SpoolError::WrongState(format!(
                "task {id} is held for {reason} ({hold}): it cannot be released by hand"
            ))
            .into())
        }
        _ => {
            Err(SpoolError::WrongState(format!("task {id} is not held, it is {}", found.place.state()))
                .into())
        }
    }
}

/// Changes the request of a task that has not started. The old one is kept.
pub fn edit(house: &House, id: TaskId, change: impl FnOnce(&mut TaskSpec)) -> Result<u32, Refused> {
    let (locked, found) = waiting(house, id, "edited")?;
    let old = locked.task()?;
    let mut spec = old.spec.clone();
    change(&mut spec);
    if spec == old.spec {
        return Ok(old.revision);
    }
    let new = intake::revise(&house.spool, &house.config, &old, spec)?;
    locked.write_revision(&new)?;
    house.spool.set_timer(&new)?;
    let ticket = ticket_of(&new, found.ticket.attempt);
    let found = locked.move_ticket(found, found.place, ticket)?;
    if !matches!(found.place, Place::Held(HeldReason::Hand, _)) {
        // Another time or other needs may hold it, or let it go.
        locked.settle(found)?;
    }
    house.spool.ring();
    Ok(new.revision)
}

/// Makes another attempt at a task that has ended, perhaps by another worker.
pub fn retry(house: &House, id: TaskId, worker: Option<WorkerName>) -> Result<State, Refused> {
    let Standing::Locked(locked, found) = settled(house, id)? else {
        return Err(wrong(format!("task {id} is running: it cannot be retried before it has ended")));
    };
    let Place::Done(_, state) = found.place else {
        return Err(wrong(format!("task {id} has not ended, it is {}", found.place.state())));
    };
    let review: Option<ReviewFile> = read_json(&locked.dir().review())?;
    if review.and_then(|r| r.verdicts.last().map(|v| v.verdict)) == Some(Review::Accepted) {
        return Err(wrong(format!("task {id} was accepted: submit a new task for further work")));
    }
    let mut task = locked.task()?;
    if task.expires_at.is_some_and(|at| at <= chrono::Utc::now()) {
        return Err(wrong(format!("task {id} has expired: submit it anew with a later time")));
    }
    if let Some(worker) = worker.filter(|w| *w != task.worker) {
        let spec = TaskSpec { worker: Some(worker), ..task.spec.clone() };
        task = intake::revise(&house.spool, &house.config, &task, spec)?;
        locked.write_revision(&task)?;
    }
    let attempt = locked.dir().last_attempt() + 1;
    locked.event(Some(attempt), EventKind::Retry { attempt, until: None })?;
    // It tells the old result from one for the ticket's new name: it must not be lost without the move.
    crate::durable::sync_file(&locked.dir().events()).context("cannot sync the history")?;
    let message = format!("to be tried again (it was {state})");
    let place = locked.write_hold(HeldReason::Hand, None, &message)?;
    let found = locked.move_ticket(found, place, ticket_of(&task, attempt))?;
    let found = locked.settle(found)?;
    Ok(found.place.state())
}

fn wrong(message: String) -> Refused {
    Refused::Fault(SpoolError::WrongState(message).into())
}

/// A task whose ticket we hold, or that runs.
enum Standing {
    Locked(LockedTask, Found),
    Running(Found),
}

/// Takes a task's lock, unless it runs. Waits a moment for somebody who is just moving it.
fn settled(house: &House, id: TaskId) -> anyhow::Result<Standing> {
    let spool = &house.spool;
    let deadline = Instant::now() + PATIENCE;
    let watch = std::cell::OnceCell::new();
    loop {
        if let Some(locked) = spool.try_lock_task(id)? {
            let found = locked
                .ticket()?
                .with_context(|| format!("task {id} has no ticket: see `workspool check`"))?;
            return Ok(Standing::Locked(locked, found));
        }
        if let Some(found) = spool.find_ticket(id)?.filter(|f| f.place == Place::Running) {
            return Ok(Standing::Running(found));
        }
        if Instant::now() >= deadline {
            return Err(SpoolError::Busy(id).into());
        }
        let watch = watch.get_or_init(|| runner::Watch::new(spool, &house.config, false));
        watch.wait(Duration::from_millis(20));
    }
}

fn waiting(house: &House, id: TaskId, what: &str) -> anyhow::Result<(LockedTask, Found)> {
    match settled(house, id)? {
        Standing::Locked(locked, found) if matches!(found.place, Place::Queue | Place::Held(..)) => {
            Ok((locked, found))
        }
        Standing::Locked(_, found) | Standing::Running(found) => {
            let state = found.place.state();
            Err(SpoolError::WrongState(format!("task {id} is {state}: only a waiting task can be {what}"))
                .into())
        }
    }
}
