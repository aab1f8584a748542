//! One pass: everything that can be moved on now is moved on. Nothing is kept in memory that matters.

use super::claim;
use crate::intake::{self, Admitted};
use crate::model::{Config, HeldReason, RequestKind, TaskId, TimedTicket};
use crate::spool::{Place, Spool, SpoolError, names, parsed};
use anyhow::Context as _;
use chrono::Utc;
use std::process::Child;
use std::time::Duration;

/// What a pass did.
#[derive(Debug, Default)]
pub struct Pass {
    /// Supervisors that were started.
    pub started: Vec<Child>,
    /// What came in by the inboxes.
    pub admitted: Admitted,
    /// What went wrong with single files, tasks, or parts of the pass.
    pub faults: Vec<anyhow::Error>,
    /// Why nothing is started though tasks are queued, if so.
    pub blocked: Option<String>,
    /// When the next thing is due that no event will tell of.
    pub due: Option<Duration>,
}

/// Makes one pass over the spool. A fault of one part never stops the others (I10).
pub fn pass(spool: &Spool, config: &Config) -> Pass {
    let mut pass = Pass { admitted: intake::admit_inboxes(spool, config), ..Pass::default() };
    pass.faults.append(&mut pass.admitted.faults);
    part(&mut pass.faults, "expanding submissions", || intake::expand(spool));
    part(&mut pass.faults, "requests", || requests(spool));
    part(&mut pass.faults, "releasing dependents", || releases(spool));
    part(&mut pass.faults, "held tasks", || due_tickets(spool));
    part(&mut pass.faults, "expired tasks", || timers(spool));
    for (what, started) in [("recovery", claim::recover(spool)), ("claiming", claim::claim(spool, config))] {
        match started {
            Ok(claimed) => {
                pass.started.extend(claimed.children);
                pass.faults.extend(claimed.faults);
                pass.blocked = pass.blocked.take().or(claimed.blocked);
            }
            Err(e) => pass.faults.push(e.context(what)),
        }
    }
    part(&mut pass.faults, "notices", || {
        if crate::spool::notices::is_due(spool)? {
            crate::spool::notices::send(spool);
        }
        Ok(())
    });
    pass.due = next_due(spool, pass.admitted.waiting > 0);
    pass
}

fn part(faults: &mut Vec<anyhow::Error>, what: &'static str, run: impl FnOnce() -> anyhow::Result<()>) {
    if let Err(e) = run().context(what) {
        faults.push(e);
    }
}

/// Fulfils wishes about tasks that no supervisor holds, and removes those that came too late.
fn requests(spool: &Spool) -> anyhow::Result<()> {
    for name in spool.all_requests()? {
        let locked = match spool.try_lock_task(name.task) {
            Ok(Some(locked)) => locked,
            // Its supervisor or keeper sees to it.
            Ok(None) => continue,
            Err(SpoolError::NoTask(_)) => {
                spool.drop_request(name)?;
                continue;
            }
            Err(e) => return Err(e.into()),
        };
        let Some(found) = locked.ticket()? else { continue };
        let over = found.ticket.attempt > name.attempt || found.place.state().is_terminal();
        if over {
            spool.drop_request(name)?;
        } else if name.kind == RequestKind::Cancel && found.place != Place::Running {
            let reason = spool.read_request(name).and_then(|r| r.reason);
            locked.cancel_waiting(found, reason.as_deref())?;
            spool.drop_request(name)?;
            spool.release_dependents(name.task)?;
        }
    }
    Ok(())
}

/// Looks after ends whose dependents were perhaps not released.
fn releases(spool: &Spool) -> anyhow::Result<()> {
    for name in names(&spool.releases())? {
        let Some(id) = name.to_str().and_then(|n| n.parse::<TaskId>().ok()) else { continue };
        // Written before the ticket moves: while its owner is at it, it will do this itself.
        match spool.state_of(id) {
            Ok(state) if state.is_terminal() => spool.release_dependents(id)?,
            Ok(_) => {}
            Err(SpoolError::NoTask(_)) => crate::durable::remove_file(&spool.releases().join(name))?,
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

/// Moves tickets whose time has come. Only what is due is touched.
fn due_tickets(spool: &Spool) -> anyhow::Result<()> {
    let now = now_ms();
    for reason in [HeldReason::Time, HeldReason::Quota] {
        for timed in parsed::<TimedTicket>(&spool.held(reason))? {
            if timed.until_ms > now {
                break;
            }
            let Some(locked) = spool.try_lock_task(timed.ticket.task)? else { continue };
            if let Some(found) =
                locked.ticket()?.filter(|f| matches!(f.place, Place::Held(r, Some(_)) if r == reason))
            {
                locked.settle(found)?;
            }
        }
    }
    Ok(())
}

/// Ends queued and held tasks whose time to start is over.
fn timers(spool: &Spool) -> anyhow::Result<()> {
    let now = now_ms();
    for (ms, id) in timer_names(spool)? {
        if ms > now {
            break;
        }
        let name = spool.timers().join(format!("{ms:014}.{id}"));
        match spool.try_lock_task(id) {
            Ok(Some(locked)) => {
                if let Some(found) = locked.ticket()?
                    && matches!(found.place, Place::Queue | Place::Held(..))
                    && claim::expired(&locked.task()?)
                    && found.ticket.attempt == 1
                {
                    let message = "expired before it could start";
                    locked.end_without_work(found, crate::model::State::Expired, None, message)?;
                    drop(locked);
                    spool.release_dependents(id)?;
                }
                crate::durable::remove_file(&name)?;
            }
            // It runs: it was started in time.
            Ok(None) => {}
            Err(SpoolError::NoTask(_)) => crate::durable::remove_file(&name)?,
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

fn timer_names(spool: &Spool) -> anyhow::Result<Vec<(u64, TaskId)>> {
    let mut found: Vec<(u64, TaskId)> = names(&spool.timers())?
        .iter()
        .filter_map(|n| {
            let (ms, id) = n.to_str()?.split_once('.')?;
            Some((ms.parse().ok()?, id.parse().ok()?))
        })
        .collect();
    found.sort_unstable();
    Ok(found)
}

/// How long until something is due that nobody will ring the bell for.
pub fn next_due(spool: &Spool, files_waiting: bool) -> Option<Duration> {
    let now = now_ms();
    let held = [HeldReason::Time, HeldReason::Quota]
        .iter()
        .filter_map(|r| parsed::<TimedTicket>(&spool.held(*r)).ok()?.first().map(|t| t.until_ms));
    let timers = timer_names(spool).ok().and_then(|t| t.first().map(|t| t.0));
    let limits = spool.tripped().unwrap_or_default();
    let limits = limits.values().filter_map(|b| u64::try_from(b.until.timestamp_millis()).ok());
    let due =
        held.chain(timers).chain(limits).min().map(|ms| Duration::from_millis(ms.saturating_sub(now).max(1)));
    let files = files_waiting.then_some(Duration::from_millis(500));
    [due, files].into_iter().flatten().min()
}

fn now_ms() -> u64 {
    u64::try_from(Utc::now().timestamp_millis()).unwrap_or(0)
}
