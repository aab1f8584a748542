//! Ending a task: result first, ticket second, dependents third.
//!
//! A crash between any two of these is made good by the next pass: a running ticket with a result is
//! finished by whoever adopts it, and a note in `releases/` stands until the dependents were looked at.

use super::{Entry, Found, Journal, LockedTask, Place, Spool, SpoolError, counters, events, names, notices};
use crate::durable;
use crate::model::result::{Durations, WorkerUsed};
use crate::model::{
    Class, EventKind, HeldReason, State, Task, TaskId, TaskResult, Usage, VERSION, Verification, WorkerName,
};
use anyhow::Context as _;
use chrono::Utc;
use std::path::Path;

impl LockedTask {
    /// Ends the task: writes `result`, then moves the ticket to `done/`. The result's `ticket` is filled in.
    pub fn end(&self, from: Found, result: TaskResult) -> anyhow::Result<()> {
        self.end_kept(from, result, None)
    }

    /// Ends the task like [`Self::end`]; what is kept of its end goes, with the result, into a journal, and is
    /// waited for there.
    pub fn end_kept(
        &self,
        from: Found,
        mut result: TaskResult,
        kept: Option<(&Journal, Entry)>,
    ) -> anyhow::Result<()> {
        self.settle_record()?;
        let state = result.state;
        let place = self.done_place(state)?;
        let path = self.spool.ticket_path(place, &from.ticket);
        result.ticket = path.strip_prefix(self.spool.root()).unwrap_or(&path).to_string_lossy().into_owned();
        let message = result.message.clone();
        let bytes = serde_json::to_vec_pretty(&result)?;
        let note = self.spool.releases().join(self.id().to_string());
        // Of one that registers between this look and the move below there must be a note as well. Whoever expands
        // it leaves one if it sees that this task runs; else it is left here, unless the power fails just then:
        // `check` finds that too.
        match (names(&self.dir.dependents())?.is_empty(), from.place) {
            (false, _) => durable::replace(&note, b"")?,
            (true, Place::Running) => {}
            (true, _) => durable::replace_unsynced(&note, b"")?,
        }
        let attempt = (result.attempt > 0).then_some(result.attempt);
        let file = self.dir.result();
        let put = match self.keep_end(kept, &file, &bytes)? {
            true => durable::replace_unsynced,
            false => durable::replace,
        };
        put(&file, &bytes).with_context(|| format!("cannot write {}", file.display()))?;
        // After the result: a history that tells of an end which could not be written would be a lie. A
        // result without this line is not believed, and is written again, also after a power loss.
        self.event_once(attempt, EventKind::Ended { state, message })?;
        // Before the ticket moves: what is told of a task that has ended is told though we die here.
        let told = notices::post_end(&self.spool, &result);
        self.move_ticket(from, place, from.ticket)?;
        counters::count(&self.spool, &result);
        durable::remove_file(&self.dir.hold())?;
        durable::remove_file(&self.dir.progress())?;
        // A worker may have spoiled the record: it is told nowhere then.
        let task = self.task().ok().filter(|t| events::hash(&t.to_bytes()) == result.task_sha256);
        if let Some(results) = task.and_then(|t| t.submitted_by.results) {
            // A client's folder may be gone or full; that is no reason not to end.
            let _ = durable::replace(&results.join(format!("{}.result.json", self.id())), &bytes);
        }
        self.spool.ring();
        if told {
            notices::send(&self.spool);
        }
        Ok(())
    }

    /// Writes an end with its result into a journal, if there is one. Says whether that was done.
    fn keep_end(&self, kept: Option<(&Journal, Entry)>, file: &Path, bytes: &[u8]) -> anyhow::Result<bool> {
        let Some((journal, mut entry)) = kept else { return Ok(false) };
        let is_kept = entry.keep(self.dir.path(), file, bytes, &events::hash(bytes));
        journal.add(&entry)?;
        Ok(is_kept)
    }

    /// Ends a task that never got to an attempt, or whose attempts are over, without work of its own.
    pub fn end_without_work(
        &self,
        from: Found,
        state: State,
        class: Option<Class>,
        message: impl Into<String>,
    ) -> anyhow::Result<()> {
        let task = self.task()?;
        self.end(from, bare_result(&task, state, class, message.into()))
    }
}

impl Spool {
    /// The result that was written for this very ticket, where a crash kept the ticket from moving.
    ///
    /// A task that ended and is to be tried again may have a ticket of the same name: then something has
    /// happened since its end.
    pub fn result_waits_for(&self, found: &Found) -> Result<Option<TaskResult>, SpoolError> {
        let Some(result) = self.read_result(found.ticket.task)? else { return Ok(None) };
        if super::done_place(&result.ticket).is_none_or(|done| done.ticket != found.ticket) {
            return Ok(None);
        }
        let path = self.task(found.ticket.task).events();
        let all = events::read(&path).map_err(|e| SpoolError::io("read", &path, e))?;
        let last = all.last().map(|e| &e.what);
        Ok(matches!(last, Some(EventKind::Ended { .. })).then_some(result))
    }
}

impl LockedTask {
    /// Adds a revision of the task's record; the old ones stay.
    pub fn write_revision(&self, task: &Task) -> anyhow::Result<()> {
        let path = self.dir.record(task.revision);
        let bytes = task.to_bytes();
        durable::replace(&path, &bytes).with_context(|| format!("cannot write {}", path.display()))?;
        self.event(None, EventKind::Edited { revision: task.revision, sha256: events::hash(&bytes) })
    }

    /// Whether this attempt is the repetition of one that failed, and nobody asked for it.
    pub fn repeats(&self, attempt: u32) -> bool {
        let all = events::read(&self.dir.events()).unwrap_or_default();
        let last = all.iter().rev().find_map(|e| match e.what {
            EventKind::Retry { attempt, until } => Some((attempt, until.is_some())),
            _ => None,
        });
        last == Some((attempt, true))
    }

    /// Ends a task that waits, since somebody wants it cancelled.
    pub fn cancel_waiting(&self, found: Found, reason: Option<&str>) -> anyhow::Result<()> {
        let message = match reason {
            Some(reason) => format!("cancelled before it started: {reason}"),
            None => "cancelled before it started".to_owned(),
        };
        self.end_without_work(found, State::Cancelled, None, message)
    }
}

impl Spool {
    /// Notes when a task expires, if it does, so that a pass finds it without looking at every task.
    pub fn set_timer(&self, task: &Task) -> Result<(), SpoolError> {
        let Some(expires) = task.expires_at else { return Ok(()) };
        let path = self.timers().join(format!("{:014}.{}", expires.timestamp_millis().max(0), task.id));
        match durable::create_new_unsynced(&path, b"") {
            Ok(_) => Ok(()),
            Err(e) => Err(SpoolError::io("write", &path, e)),
        }
    }
}

/// A result that holds no work.
pub fn bare_result(task: &Task, state: State, class: Option<Class>, message: String) -> TaskResult {
    TaskResult {
        task_sha256: events::hash(&task.to_bytes()),
        ..bare_result_of(task.id, task.worker.clone(), state, class, message)
    }
}

/// A result that holds no work, of a task whose record cannot be read: `task_sha256` is left empty.
pub fn bare_result_of(
    id: TaskId,
    worker: WorkerName,
    state: State,
    class: Option<Class>,
    message: String,
) -> TaskResult {
    TaskResult {
        version: VERSION,
        id,
        attempt: 0,
        state,
        class,
        phase: None,
        message,
        until: None,
        verification: Verification::NotRun,
        summary: None,
        base: None,
        commit: None,
        tree: None,
        branch: None,
        salvage: None,
        changed: Vec::new(),
        diff: None,
        receipt: None,
        gate: Vec::new(),
        tests_claimed: Vec::new(),
        open_questions: Vec::new(),
        warnings: Vec::new(),
        deliverables: Vec::new(),
        artifacts: Vec::new(),
        worker: WorkerUsed { name: worker, version: None, provider: None, model: None, session: None },
        usage: Usage::default(),
        durations: Durations::default(),
        attempts: Vec::new(),
        gated_tree: None,
        confinement: None,
        lacks: Vec::new(),
        tree_from: None,
        restrictions: Vec::new(),
        undone: Vec::new(),
        tampering: Vec::new(),
        census: None,
        survivors: Vec::new(),
        left_over: Vec::new(),
        exit_code: None,
        signal: None,
        stderr_tail: None,
        workspace: None,
        task_sha256: String::new(),
        started_at: None,
        ended_at: Utc::now(),
        ticket: String::new(),
    }
}

/// What the needs of a task come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Needs {
    /// All have succeeded.
    Met,
    /// These have not ended yet.
    Waiting(Vec<TaskId>),
    /// This one ended otherwise.
    Failed(TaskId, State),
}

impl Spool {
    /// Looks at the needs of a task.
    pub fn needs(&self, task: &Task) -> Result<Needs, SpoolError> {
        let mut waiting = Vec::new();
        for need in &task.needs {
            match self.find_ticket(*need).map(|found| found.map(|f| f.place.state())) {
                Ok(Some(State::Succeeded)) => {}
                Ok(Some(state)) if state.is_terminal() => return Ok(Needs::Failed(*need, state)),
                Ok(_) => waiting.push(*need),
                // A need that was pruned meanwhile: nothing says that it succeeded.
                Err(SpoolError::NoTask(_)) => return Ok(Needs::Failed(*need, State::Expired)),
                Err(e) => return Err(e),
            }
        }
        Ok(if waiting.is_empty() { Needs::Met } else { Needs::Waiting(waiting) })
    }

    /// Releases or skips what waits for tasks that have ended. Costs only the dependents of those.
    ///
    /// One dependent that cannot be released does not stop the others; the first fault is told at the end.
    pub fn release_dependents(&self, ended: TaskId) -> anyhow::Result<()> {
        let mut work = vec![ended];
        let mut fault = None;
        while let Some(id) = work.pop() {
            let mut later = false;
            for name in names(&self.task(id).dependents())? {
                let Some(dependent) = name.to_str().and_then(|n| n.parse::<TaskId>().ok()) else { continue };
                match self.release(dependent) {
                    Ok(State::Skipped) => work.push(dependent),
                    Ok(_) => {}
                    Err(e) => {
                        // A broken record is not mended by looking again: `check` tells of it.
                        later |= !matches!(e.downcast_ref(), Some(SpoolError::Broken(..)));
                        fault.get_or_insert(e.context(format!("task {dependent}, which needs task {id}")));
                    }
                }
            }
            if !later {
                durable::remove_file(&self.releases().join(id.to_string()))?;
            }
        }
        fault.map_or(Ok(()), Err)
    }

    /// Releases or skips one task, if it waits for others. Says where it stands.
    fn release(&self, dependent: TaskId) -> anyhow::Result<State> {
        let waits = |place| matches!(place, Place::Held(HeldReason::Needs, _));
        let locked = match self.lock_task_unless(dependent, |place| !waits(place)) {
            Ok(Some(locked)) => locked,
            // It went on already, and may run for hours.
            Ok(None) => return Ok(State::Queued),
            Err(SpoolError::NoTask(_)) => return Ok(State::Queued),
            Err(e) => return Err(e.into()),
        };
        match locked.ticket()?.filter(|found| waits(found.place)) {
            Some(found) => Ok(locked.settle(found)?.place.state()),
            None => Ok(State::Queued),
        }
    }
}

impl LockedTask {
    /// Puts a ticket that waits where it now belongs: further waiting, the queue, or the end.
    pub fn settle(&self, found: Found) -> anyhow::Result<Found> {
        if let Some(result) = self.spool.result_waits_for(&found)? {
            // Whoever ended it died before the ticket moved.
            self.end(found, result)?;
            return self.ticket()?.context("the ticket of an ended task is gone");
        }
        let task = self.task()?;
        let now = Utc::now();
        match self.spool.needs(&task)? {
            Needs::Failed(need, state) => {
                let message = format!("skipped: it needs task {need}, which ended as {state}");
                self.end_without_work(found, State::Skipped, None, message)?;
                return self.ticket()?.context("the ticket of an ended task is gone");
            }
            Needs::Waiting(needs) => {
                let message = waiting_message(&needs);
                return Ok(self.hold(found, HeldReason::Needs, None, found.ticket.attempt, &message)?);
            }
            Needs::Met => {}
        }
        if let Some(until) = task.spec.not_before.filter(|t| *t > now) {
            let message = format!("not before {}", until.to_rfc3339());
            return Ok(self.hold(found, HeldReason::Time, Some(until), found.ticket.attempt, &message)?);
        }
        let reason = match found.place {
            Place::Held(reason, _) => Some(reason),
            _ => None,
        };
        let found = self.queue(found)?;
        if let Some(reason) = reason {
            self.event(None, EventKind::Released { reason })?;
        }
        self.spool.ring();
        Ok(found)
    }
}

/// Says which tasks are waited for.
pub fn waiting_message(needs: &[TaskId]) -> String {
    let list = needs.iter().take(5).map(TaskId::to_string).collect::<Vec<_>>().join(", ");
    let more = if needs.len() > 5 { format!(" and {} more", needs.len() - 5) } else { String::new() };
    format!("waits for {list}{more}")
}
