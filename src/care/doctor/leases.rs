//! Running tickets that nobody carries: their supervisor and keeper are gone, and no runner has looked.

use super::{Context, Finding, command};
use crate::durable::Lock;
use crate::model::Ticket;
use crate::spool::{names, parsed};
use anyhow::Context as _;
use std::process::{Command, Stdio};

pub(super) fn look(context: &Context<'_>) -> anyhow::Result<Vec<Finding>> {
    let running = parsed::<Ticket>(&context.spool.running())?;
    let (mut dead, mut lost) = (Vec::new(), Vec::new());
    for ticket in &running {
        if !context.spool.task(ticket.task).path().is_dir() {
            lost.push(ticket.task.to_string());
        } else if !is_carried(context, ticket)? {
            dead.push(ticket.task.to_string());
        }
    }
    let mut found = Vec::new();
    if !dead.is_empty() {
        found.push(
            Finding::warning(format!(
                "nobody carries {}, though it is running: {}",
                count(dead.len()),
                dead.join(", ")
            ))
            .why("each takes up a place, and goes on only when a runner looks after it")
            .fix(command(context, "tick"))
            .fixable(),
        );
    }
    if !lost.is_empty() {
        found.push(
            Finding::error(format!("running tickets without a task: {}", lost.join(", ")))
                .why("each takes up a place for ever")
                .fix(command(context, "check")),
        );
    }
    if found.is_empty() {
        found.push(Finding::ok(format!("{} running, each carried", count(running.len()))));
    }
    Ok(found)
}

fn count(n: usize) -> String {
    if n == 1 { "1 task".into() } else { format!("{n} tasks") }
}

/// Whether a supervisor or a keeper lives.
fn is_carried(context: &Context<'_>, ticket: &Ticket) -> anyhow::Result<bool> {
    let task = context.spool.task(ticket.task);
    if task.lock().is_held()? {
        return Ok(true);
    }
    let steps = task.attempt(ticket.attempt).path().join("steps");
    for step in names(&steps)? {
        if Lock::at(steps.join(step).join("lock")).is_held()? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Lets a runner look: it takes over what nobody carries.
pub(super) fn mend(context: &Context<'_>) -> anyhow::Result<String> {
    let program = crate::worker::env::own_executable()?;
    let ended = Command::new(program)
        .arg("--spool")
        .arg(context.spool.root())
        .args(["tick", "--quiet"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .context("cannot start a tick")?;
    anyhow::ensure!(ended.success(), "the tick ended with {ended}");
    Ok("a tick has looked after them".into())
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::super::support::{Fixture, worst};
    use super::*;
    use crate::model::{Short, TaskId};

    #[test]
    fn a_running_ticket_with_free_locks_is_dead_and_with_a_held_one_alive() {
        let fixture = Fixture::new();
        let task = TaskId::generate();
        let ticket = Ticket { key: 1, task, repo: Short::NONE, worker: Short(1), attempt: 1 };
        let place = fixture.spool.running().join(ticket.to_string());
        std::fs::write(&place, "").unwrap();
        assert_eq!(worst(&look(&fixture.context()).unwrap()).level, Level::Error, "a ticket without a task");
        let step = fixture.spool.task(task).attempt(1).step("work.1");
        std::fs::create_dir_all(&step).unwrap();
        let found = look(&fixture.context()).unwrap();
        assert_eq!(worst(&found).level, Level::Warning);
        assert!(worst(&found).fixable && worst(&found).what.contains(&task.to_string()));
        let keeper = Lock::at(step.join("lock")).take().unwrap();
        assert_eq!(worst(&look(&fixture.context()).unwrap()).level, Level::Ok, "its keeper lives");
        drop(keeper);
        let _supervisor = fixture.spool.task(task).lock().take().unwrap();
        assert_eq!(worst(&look(&fixture.context()).unwrap()).level, Level::Ok);
    }
}
