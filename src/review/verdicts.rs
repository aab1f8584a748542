//! Verdicts, and those that change nothing in the repository.

use crate::durable;
use crate::model::{EventKind, HeldReason, Landed, Review, ReviewFile, State, TaskId, VERSION, Verdict};
use crate::spool::{Found, LockedTask, Place, Spool, SpoolError, read_json, ticket_of};
use anyhow::Context as _;
use chrono::Utc;
use std::time::{Duration, Instant};

/// How long a verdict waits for whoever has the task just now.
const PATIENCE: Duration = Duration::from_secs(10);

/// The last verdict about a task.
pub fn verdict(spool: &Spool, id: TaskId) -> Result<Option<Verdict>, SpoolError> {
    let file: Option<ReviewFile> = read_json(&spool.task(id).review())?;
    Ok(file.and_then(|f| f.verdicts.into_iter().last()))
}

/// Adds a verdict to those that there are, durably.
pub(super) fn add(
    locked: &LockedTask,
    attempt: u32,
    verdict: Review,
    message: Option<String>,
    landed: Option<Landed>,
) -> anyhow::Result<()> {
    let path = locked.dir().review();
    let mut file: ReviewFile =
        read_json(&path)?.unwrap_or(ReviewFile { version: VERSION, verdicts: Vec::new() });
    file.verdicts.push(Verdict { verdict, at: Utc::now(), attempt, message: message.clone(), landed });
    let bytes = serde_json::to_vec_pretty(&file)?;
    durable::replace(&path, &bytes).with_context(|| format!("cannot write {}", path.display()))?;
    locked.event(Some(attempt), EventKind::Reviewed { verdict, message })
}

/// Takes the lock of a task that has succeeded and was not accepted.
pub(super) fn reviewable(spool: &Spool, id: TaskId, what: &str) -> anyhow::Result<(LockedTask, Found)> {
    let wrong = |message: String| Err(SpoolError::WrongState(message).into());
    let deadline = Instant::now() + PATIENCE;
    let locked = loop {
        if let Some(locked) = spool.try_lock_task(id)? {
            break locked;
        }
        if spool.find_ticket(id)?.is_some_and(|found| found.place == Place::Running) {
            return wrong(format!("task {id} is running: it cannot be {what} before it has ended"));
        }
        // Its supervisor has just ended it, and is not gone yet; or somebody else reviews it.
        if Instant::now() >= deadline {
            return Err(SpoolError::Busy(id).into());
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    let found =
        locked.ticket()?.with_context(|| format!("task {id} has no ticket: see `workspool check`"))?;
    let Place::Done(_, state) = found.place else {
        return wrong(format!(
            "task {id} is {}: it cannot be {what} before it has ended",
            found.place.state()
        ));
    };
    if state != State::Succeeded {
        return wrong(format!("task {id} ended as {state}: only what succeeded can be {what}"));
    }
    if verdict(spool, id)?.is_some_and(|v| v.verdict == Review::Accepted) {
        return wrong(format!("task {id} was accepted already"));
    }
    Ok((locked, found))
}

/// Refuses a succeeded task's change. Nothing is removed: `prune` does that.
pub fn reject(spool: &Spool, id: TaskId, reason: Option<String>) -> anyhow::Result<()> {
    let (locked, found) = reviewable(spool, id, "rejected")?;
    add(&locked, found.ticket.attempt, Review::Rejected, reason, None)
}

/// Sends a succeeded task back with feedback: a new attempt goes on from what the last one left.
pub fn revise(spool: &Spool, id: TaskId, feedback: String) -> anyhow::Result<()> {
    anyhow::ensure!(!feedback.trim().is_empty(), "say what is to be changed");
    let (locked, found) = reviewable(spool, id, "revised")?;
    add(&locked, found.ticket.attempt, Review::ChangesRequested, Some(feedback), None)?;
    let task = locked.task()?;
    let attempt = locked.dir().last_attempt() + 1;
    locked.event(Some(attempt), EventKind::Retry { attempt, until: None })?;
    let place = locked.write_hold(HeldReason::Hand, None, "changes were requested")?;
    let found = locked.move_ticket(found, place, ticket_of(&task, attempt))?;
    locked.settle(found)?;
    Ok(())
}
