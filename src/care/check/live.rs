//! Who lives: keepers, told by the locks of their steps; supervisors, by the lock of the task.

use super::finding::{Finding, Kind};
use super::scan::{OneTask, listed};
use crate::durable::Lock;
use crate::spool::{Place, Spool, SpoolError, TaskDir};
use std::path::PathBuf;

pub(super) fn look(spool: &Spool, one: &OneTask, found: &mut Vec<Finding>) -> Result<(), SpoolError> {
    let dir = spool.task(one.id);
    let live = live_steps(&dir)?;
    let Some(ticket) = one.ticket() else { return Ok(()) };
    let mut attempts: Vec<u32> = live.iter().map(|(n, _)| *n).collect();
    attempts.dedup();
    if attempts.len() > 1 {
        let message = format!("commands of attempts {attempts:?} run at once");
        found.push(Finding::new(Kind::SeveralLive, dir.path(), message).of(one.id));
    }
    for (n, path) in &live {
        if ticket.place != Place::Running || ticket.ticket.attempt != *n {
            let message = format!(
                "a command of attempt {n} runs, but the ticket is {} for attempt {}",
                ticket.place.state(),
                ticket.ticket.attempt
            );
            found.push(Finding::new(Kind::LiveOutsideRunning, path, message).of(one.id));
        }
    }
    if ticket.place == Place::Running && live.is_empty() {
        // Under the task's lock, nobody else holds it; without, this is looked at again.
        let path = spool.ticket_path(ticket.place, &ticket.ticket);
        let message = "it is running and nobody works on it: the next pass of a runner takes it over";
        found.push(Finding::new(Kind::Unattended, &path, message).of(one.id));
    }
    Ok(())
}

/// Steps whose keeper lives and has not recorded an end.
fn live_steps(dir: &TaskDir) -> Result<Vec<(u32, PathBuf)>, SpoolError> {
    let mut live = Vec::new();
    let mut attempts: Vec<u32> =
        listed(&dir.attempts())?.iter().filter_map(|n| n.to_str()?.parse().ok()).collect();
    attempts.sort_unstable();
    for n in attempts {
        let steps = dir.attempt(n).path().join("steps");
        for name in listed(&steps)? {
            let step = steps.join(name);
            let path = step.join("lock");
            let held = Lock::at(&path).is_held().map_err(|e| SpoolError::io("look at", &path, e))?;
            // A keeper that has recorded the end is in its last act.
            if held && !step.join("exit.json").exists() {
                live.push((n, step));
            }
        }
    }
    Ok(live)
}
