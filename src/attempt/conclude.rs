//! From an outcome to the next state: another attempt, or the end.

use super::enclose;
use super::outcome::{End, Outcome};
use super::steps::nothing_lives;
use super::tidy::{Tidied, tidy};
use super::{Attempt, Plan};
use crate::durable;
use crate::gate;
use crate::model::result::{AttemptSummary, FileRef, WorkerUsed};
use crate::model::{
    Class, EventKind, HeldReason, Phase, RequestKind, RequestName, State, Task, TaskResult, VERSION,
    WorkspaceKind,
};
use crate::spool::{
    Breaker, Entry, Found, Journal, LockedTask, SpoolError, bare_result, bare_result_of, events, read_json,
    ticket_of,
};
use crate::workspace::apart;
use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};

/// How an attempt ended: `attempts/<n>/ended.json`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct EndedFile {
    pub(super) summary: AttemptSummary,
    /// Whether it counts against the retries.
    costs_retry: bool,
    /// If another attempt follows: not before when, and waiting for what.
    pub(super) next: Option<Next>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Next {
    until: DateTime<Utc>,
    reason: HeldReason,
    message: String,
}

/// Ends the attempt: tidies up, then retries or writes the result. A success goes into `journal`, if there is one.
pub(super) fn conclude(
    locked: &LockedTask,
    found: Found,
    attempt: Option<Attempt>,
    mut outcome: Outcome,
    journal: Option<&Journal>,
) -> anyhow::Result<()> {
    let n = found.ticket.attempt;
    let dir = locked.dir().attempt(n);
    durable::ensure_dir(dir.path())?;
    let (spool, id) = (locked.spool(), locked.id());
    let alone = || nothing_lives(&dir, spool.id(), &id.to_string(), locked.lock().path());
    alone()?;
    // What we know is not read again from where a worker could write.
    let plan: Option<Plan> = match &attempt {
        Some(attempt) => Some(Plan { base: attempt.base().cloned(), ..attempt.plan.clone() }),
        None => read_json(&dir.file("attempt.json")).ok().flatten(),
    };
    let task = match &attempt {
        Some(attempt) => attempt.task.clone(),
        None => match locked.task() {
            Ok(task) => task,
            Err(e) => return end_unreadable(locked, found, plan.as_ref(), &e),
        },
    };
    if let Some(next) = ended_file(locked, n).and_then(|ended| ended.next) {
        // A crash between the decision and the move.
        return retry(locked, found, n, &next);
    }
    let mut tidied = Tidied::default();
    if let Some(attempt) = &attempt {
        tidied = tidy(attempt, &mut outcome);
        alone()?;
    }
    let Tidied { retiring, proof } = tidied;
    let (mut next, costs_retry) = decide(locked, &task, n, &outcome)?;
    let cancel = RequestName { task: id, attempt: n, kind: RequestKind::Cancel };
    if next.is_some() && spool.request_path(cancel).exists() {
        // It came when the attempt had just failed: it is not to be repeated.
        let reason = spool.read_request(cancel).and_then(|r| r.reason);
        outcome = End::cancelled(outcome.phase.unwrap_or(Phase::Finishing), reason).with(outcome);
        next = None;
    }
    let summary = AttemptSummary {
        attempt: n,
        state: outcome.state,
        class: outcome.class,
        worker: task.worker.clone(),
        message: outcome.message.clone(),
        started_at: plan.as_ref().map_or_else(Utc::now, |p| p.started_at),
        ended_at: Utc::now(),
        working_ms: outcome.durations.working_ms,
        usage: outcome.usage.clone(),
    };
    let ended = EndedFile { summary, costs_retry, next };
    let bytes = serde_json::to_vec_pretty(&ended)?;
    match &attempt {
        Some(attempt) => {
            attempt.record("ended.json", &bytes)?;
            // The receipt of a success waits for these, and for all else that it names.
            if outcome.state != State::Succeeded {
                attempt.settle()?;
            }
        }
        None => durable::replace(&dir.file("ended.json"), &bytes)?,
    }
    locked.event_once(
        Some(n),
        EventKind::AttemptEnded {
            state: outcome.state,
            class: outcome.class,
            message: outcome.message.clone(),
        },
    )?;
    if let Some(next) = &ended.next {
        retry(locked, found, n, next)?;
        enclose::retire(locked, attempt.as_ref(), retiring);
        return Ok(());
    }
    let mut kept = None;
    let receipt = match (&plan, outcome.state) {
        (Some(plan), State::Succeeded) => {
            kept = journal.map(|journal| (journal, Entry::new(id, n)));
            let entry = kept.as_mut().map(|(_, entry)| entry);
            Some(receipt(locked, &task, plan, &outcome, entry)?)
        }
        _ => {
            // One of an earlier attempt proves nothing about this one.
            durable::remove_file(&locked.dir().receipt())?;
            None
        }
    };
    // Nobody is told of a workspace that is about to go.
    let handing_on = attempt.as_ref().and_then(|attempt| attempt.hands_on(&outcome));
    let mut result = TaskResult { receipt, ..result(locked, &task, plan.as_ref(), n, outcome)? };
    result.workspace = result.workspace.filter(|_| handing_on.is_none());
    end(locked, found, result, kept)?;
    // After the end, which does not wait for it.
    enclose::retire(locked, attempt.as_ref(), retiring);
    if let (Some(attempt), Some(pool)) = (&attempt, handing_on) {
        attempt.hand_on(&pool, proof);
    }
    Ok(())
}

/// Proves what came out.
fn receipt(
    locked: &LockedTask,
    task: &Task,
    plan: &Plan,
    outcome: &Outcome,
    kept: Option<&mut Entry>,
) -> anyhow::Result<FileRef> {
    gate::receipt::write(
        locked,
        &gate::receipt::Proven {
            attempt: &locked.dir().attempt(plan.attempt),
            revision: (plan.revision, &plan.task_sha256),
            repository: apart::repository(locked.spool(), task),
            base: plan.base.as_ref().map(ToString::to_string),
            commit: outcome.commit.as_ref().map(ToString::to_string),
            tree: outcome.tree.as_ref().map(ToString::to_string),
            gated_tree: outcome.gated_tree.as_ref().map(ToString::to_string),
            diff: outcome.diff.as_ref(),
            worker: (&task.worker, outcome.version.as_deref()),
            verification: outcome.verification,
            gate: &outcome.gate,
        },
        kept,
    )
}

/// Whether it is decided already that another attempt follows this one.
pub(super) fn is_repeated(locked: &LockedTask, n: u32) -> bool {
    ended_file(locked, n).is_some_and(|ended| ended.next.is_some())
}

/// How attempt `n` ended. A file that a worker spoiled says nothing.
pub(super) fn ended_file(locked: &LockedTask, n: u32) -> Option<EndedFile> {
    read_json(&locked.dir().attempt(n).file("ended.json")).ok().flatten()
}

/// Ends a task whose record cannot be read: nobody could ever carry it on.
fn end_unreadable(
    locked: &LockedTask,
    found: Found,
    plan: Option<&Plan>,
    error: &SpoolError,
) -> anyhow::Result<()> {
    let worker = match plan {
        Some(plan) => plan.profile.name.clone(),
        None => "unknown".parse().map_err(anyhow::Error::msg)?,
    };
    let record = std::fs::read(locked.dir().record(locked.dir().last_revision())).unwrap_or_default();
    let message = format!("the task's record cannot be read: {error}");
    let result = TaskResult {
        attempt: found.ticket.attempt,
        phase: Some(Phase::Preparing),
        task_sha256: plan.map_or_else(|| events::hash(&record), |p| p.task_sha256.clone()),
        started_at: plan.map(|p| p.started_at),
        ..bare_result_of(locked.id(), worker, State::Failed, Some(Class::Internal), message)
    };
    end(locked, found, result, None)
}

/// Finishes an end that a crash cut short after the result was written.
pub(super) fn finish_move(locked: &LockedTask, found: Found, result: TaskResult) -> anyhow::Result<()> {
    let n = found.ticket.attempt;
    end(locked, found, result, None)?;
    if let Err(e) = enclose::clear_left(locked, n) {
        enclose::not_retired(locked, n, &e);
    }
    Ok(())
}

fn end(
    locked: &LockedTask,
    found: Found,
    result: TaskResult,
    kept: Option<(&Journal, Entry)>,
) -> anyhow::Result<()> {
    let n = found.ticket.attempt;
    let spool = locked.spool().clone();
    // Before the ticket moves: nobody comes by again after that.
    remove_tmp(locked, n);
    locked.end_kept(found, result, kept)?;
    for name in spool.all_requests()?.into_iter().filter(|r| r.task == locked.id() && r.attempt <= n) {
        spool.drop_request(name)?;
    }
    spool.release_dependents(locked.id())
}

fn retry(locked: &LockedTask, found: Found, n: u32, next: &Next) -> anyhow::Result<()> {
    locked.settle_record()?;
    let task = fallback(locked, n)?;
    remove_tmp(locked, n);
    locked.event(Some(n), EventKind::Retry { attempt: n + 1, until: Some(next.until) })?;
    let place = locked.write_hold(next.reason, Some(next.until), &next.message)?;
    locked.move_ticket(found, place, ticket_of(&task, n + 1))?;
    durable::remove_file(&locked.dir().progress())?;
    locked.spool().ring();
    Ok(())
}

/// The task for the attempt after `n`: with the worker or model that it falls back to, if it names one.
fn fallback(locked: &LockedTask, n: u32) -> anyhow::Result<Task> {
    let task = locked.task()?;
    let Some(next) = task.spec.fallback.get(n as usize - 1) else { return Ok(task) };
    let mut spec = task.spec.clone();
    if let Some(worker) = &next.worker {
        spec.worker = Some(worker.clone());
        // A model of one worker means nothing to another.
        spec.model = None;
    }
    spec.model = next.model.clone().or(spec.model);
    if spec == task.spec {
        return Ok(task);
    }
    let config = crate::spool::config::load(locked.spool())?;
    match crate::intake::revise(locked.spool(), &config, &task, spec) {
        Ok(new) => {
            locked.write_revision(&new)?;
            Ok(new)
        }
        Err(e) => {
            let message = format!("cannot fall back as the task says, so it stays with {}: {e}", task.worker);
            locked.event(Some(n), EventKind::Warning { message })?;
            Ok(task)
        }
    }
}

fn remove_tmp(locked: &LockedTask, n: u32) {
    // Files that a worker left in its temporary folder are not worth failing for.
    let _ = crate::git::worktree::delete_tree(&locked.spool().tmp().join(format!("{}.{n}", locked.id())));
}

/// Decides whether another attempt follows, and whether this one counts against the retries.
fn decide(
    locked: &LockedTask,
    task: &Task,
    n: u32,
    outcome: &Outcome,
) -> anyhow::Result<(Option<Next>, bool)> {
    if outcome.state == State::Succeeded {
        return Ok((None, true));
    }
    let config = crate::spool::config::load(locked.spool())?;
    let limit = matches!(outcome.class, Some(Class::RateLimited | Class::Quota)) && outcome.until.is_some();
    if limit && let Some(until) = outcome.until {
        // A time that is over already, by some other clock, must not start worker after worker.
        let until = until.max(Utc::now() + backoff(config.defaults.retry_delay, 0, task.id.timestamp_ms()));
        let next = Next { until, reason: HeldReason::Quota, message: outcome.message.clone() };
        locked.spool().trip(Breaker {
            version: VERSION,
            worker: task.worker.clone(),
            model: outcome.model.clone().filter(|m| task.spec.model.as_ref() == Some(m)),
            until,
            message: outcome.message.clone(),
        })?;
        let other = task.spec.fallback.get(n as usize - 1).is_some_and(|f| f.worker.is_some());
        let next = match other {
            // Another worker need not wait for this one's provider.
            true => Next { until: Utc::now(), reason: HeldReason::Time, ..next },
            false => next,
        };
        return Ok((Some(next), false));
    }
    // The default is for faults that pass by themselves; a number in the task is for all failures of a worker.
    let asked = task.spec.retries;
    let again = outcome.transient || (asked.is_some() && outcome.class == Some(Class::WorkerFailed));
    let most = asked.unwrap_or(config.defaults.retries).min(config.ceilings.retries.unwrap_or(u32::MAX));
    if !again || outcome.keep {
        return Ok((None, true));
    }
    let mut spent = 0;
    for k in 1..n {
        spent += u32::from(ended_file(locked, k).is_none_or(|e| e.costs_retry));
    }
    if spent >= most {
        return Ok((None, true));
    }
    let delay = backoff(config.defaults.retry_delay, spent, task.id.timestamp_ms());
    let until = Utc::now() + delay;
    let message = format!(
        "attempt {n} ended as {}: {}; next one in {} s",
        outcome.state,
        outcome.message,
        delay.num_seconds()
    );
    Ok((Some(Next { until, reason: HeldReason::Time, message }), true))
}

/// Doubles with each retry, up to an hour, and spreads tasks that failed together by a fifth.
fn backoff(base: u64, spent: u32, seed: u64) -> TimeDelta {
    let ms = base.saturating_mul(1000).saturating_mul(1 << spent.min(10)).min(3_600_000);
    let spread = ms / 5;
    let jitter = if spread == 0 { 0 } else { seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) % spread };
    TimeDelta::milliseconds(i64::try_from(ms + jitter).unwrap_or(3_600_000))
}

fn result(
    locked: &LockedTask,
    task: &Task,
    plan: Option<&Plan>,
    n: u32,
    outcome: Outcome,
) -> anyhow::Result<TaskResult> {
    let attempts = (1..=n).filter_map(|k| ended_file(locked, k)).map(|e| e.summary).collect();
    let bare = bare_result(task, outcome.state, outcome.class, outcome.message);
    let mut durations = outcome.durations;
    if let Some(plan) = plan {
        let queued = plan.started_at - task.submitted_at;
        durations.queued_ms = u64::try_from(queued.num_milliseconds()).ok();
    }
    let mut warnings = outcome.report.warnings;
    warnings.extend(outcome.warnings);
    warnings.dedup();
    Ok(TaskResult {
        attempt: n,
        phase: outcome.phase,
        until: outcome.until,
        verification: outcome.verification,
        summary: outcome.report.summary,
        base: plan.and_then(|p| p.base.as_ref()).map(ToString::to_string),
        branch: plan.and_then(|p| p.branch.clone()),
        commit: outcome.commit.map(|c| c.to_string()),
        tree: outcome.tree.map(|t| t.to_string()),
        gated_tree: outcome.gated_tree.map(|t| t.to_string()),
        salvage: outcome.salvage,
        changed: outcome.changed,
        diff: outcome.diff,
        gate: outcome.gate,
        tests_claimed: outcome.report.tests_run,
        open_questions: outcome.report.open_questions,
        warnings,
        deliverables: outcome.deliverables,
        artifacts: outcome.artifacts,
        worker: WorkerUsed {
            name: task.worker.clone(),
            version: outcome.version,
            provider: plan.and_then(|p| p.profile.provider.clone()),
            model: outcome.model.or_else(|| plan.and_then(|p| p.model.clone())),
            session: outcome.session,
        },
        usage: outcome.usage,
        durations,
        attempts,
        confinement: outcome.confinement,
        lacks: outcome.lacks,
        tree_from: outcome.tree_from,
        restrictions: outcome.restrictions,
        undone: outcome.undone,
        tampering: outcome.tampering.into_iter().map(|t| t.what).collect(),
        census: outcome.census,
        survivors: outcome.survivors,
        left_over: outcome.left_over,
        exit_code: outcome.exit_code,
        signal: outcome.signal,
        stderr_tail: outcome.stderr_tail,
        // An overlay goes now.
        workspace: plan
            .filter(|p| p.kind != WorkspaceKind::Overlay)
            .map(|p| p.workspace.clone())
            .filter(|p| p.is_dir()),
        task_sha256: plan.map_or_else(|| bare.task_sha256.clone(), |p| p.task_sha256.clone()),
        started_at: plan.map(|p| p.started_at),
        ended_at: Utc::now(),
        ..bare
    })
}
