//! The ticket: one for each task, where the task's records say, with the result that its folder asks for.

use super::finding::{Finding, Fix, Kind};
use super::scan::OneTask;
use crate::model::result::AttemptSummary;
use crate::model::{HeldReason, State, Task, TaskResult};
use crate::spool::{
    Found, Needs, Place, Spool, SpoolError, bare_result, done_place, names, read_json, ticket_of,
};
use serde::Deserialize;

/// What is read of `attempts/<n>/ended.json`.
#[derive(Deserialize)]
struct Ended {
    summary: AttemptSummary,
}

pub(super) fn look(
    spool: &Spool,
    one: &OneTask,
    task: &Task,
    found: &mut Vec<Finding>,
) -> Result<(), SpoolError> {
    let result = spool.read_result(one.id).ok().flatten();
    match one.tickets.as_slice() {
        // Its submission is not expanded to the end; the next pass does it.
        [] if one.pending => {}
        [] => found.push(no_ticket(spool, one, task, result.as_ref())),
        [ticket] => one_ticket(spool, one, task, *ticket, result.as_ref(), found)?,
        several => found.push(several_tickets(spool, one, several, result.as_ref())),
    }
    Ok(())
}

fn no_ticket(spool: &Spool, one: &OneTask, task: &Task, result: Option<&TaskResult>) -> Finding {
    let dir = spool.task(one.id);
    let last = dir.last_attempt();
    let finding = Finding::new(Kind::NoTicket, dir.path(), "the task has no ticket in any folder").of(one.id);
    let ended = result.filter(|r| r.attempt >= last).and_then(|r| done_place(&r.ticket));
    match ended {
        Some(place) => finding.fix(
            "puts a ticket where the result says that it lies",
            Fix::PutTicket(place.place, place.ticket),
        ),
        None => finding.fix(
            "holds the task: `workspool release` lets another attempt start",
            Fix::PutHeld(ticket_of(task, last + 1)),
        ),
    }
}

fn several_tickets(spool: &Spool, one: &OneTask, all: &[Found], result: Option<&TaskResult>) -> Finding {
    let named = result.and_then(|r| done_place(&r.ticket));
    let rank = |found: &Found| {
        let place = match found.place {
            Place::Running => 3,
            Place::Done(..) => 2,
            Place::Held(..) => 1,
            Place::Queue => 0,
        };
        // The newest attempt counts; of several for one, what the result names; then what runs.
        (found.ticket.attempt, named.as_ref() == Some(found), place)
    };
    let mut tickets = all.to_vec();
    tickets.sort_by_key(|t| std::cmp::Reverse(rank(t)));
    let paths: Vec<String> = tickets
        .iter()
        .map(|t| spool.ticket_path(t.place, &t.ticket))
        .map(|p| p.strip_prefix(spool.root()).unwrap_or(&p).display().to_string())
        .collect();
    let path = spool.ticket_path(tickets[0].place, &tickets[0].ticket);
    let words = format!("keeps {} and removes the others", paths[0]);
    Finding::new(Kind::SeveralTickets, &path, format!("the task has several tickets: {}", paths.join(", ")))
        .of(one.id)
        .fix(words, Fix::RemoveTickets(tickets[1..].to_vec()))
}

fn one_ticket(
    spool: &Spool,
    one: &OneTask,
    task: &Task,
    ticket: Found,
    result: Option<&TaskResult>,
    found: &mut Vec<Finding>,
) -> Result<(), SpoolError> {
    let path = spool.ticket_path(ticket.place, &ticket.ticket);
    let n = ticket.ticket.attempt;
    let last = spool.task(one.id).last_attempt();
    if n < last || n == 0 {
        let message = format!("the ticket is for attempt {n}, but attempt {last} was begun");
        let mut finding = Finding::new(Kind::AttemptNumber, &path, message).of(one.id);
        if matches!(ticket.place, Place::Queue | Place::Held(..)) {
            let to = ticket.ticket.with_attempt(last + 1);
            finding = finding.fix(
                format!("renames it for attempt {}", last + 1),
                Fix::MoveTicket(ticket, ticket.place, to),
            );
        }
        found.push(finding);
    }
    if let Place::Done(_, state) = ticket.place {
        found.extend(ended(spool, one, task, ticket, state, result)?);
        return Ok(());
    }
    // A ticket that ended belongs to the revision that ran; one that waits to the newest.
    let expected = ticket_of(task, n);
    if expected != ticket.ticket && ticket.place != Place::Running {
        let message = format!("its name does not follow from the record, which gives {expected}");
        let finding = Finding::new(Kind::TicketName, &path, message)
            .of(one.id)
            .fix("renames it", Fix::MoveTicket(ticket, ticket.place, expected));
        found.push(finding);
    }
    if ticket.place != Place::Running
        && let Some(result) = spool.result_waits_for(&ticket)?
    {
        let message = format!("a result says {}, but the ticket has not moved", result.state);
        let finding = Finding::new(Kind::ResultWithoutEnd, &path, message)
            .of(one.id)
            .fix("moves the ticket to where the result says", Fix::EndAsResult(ticket));
        found.push(finding);
    }
    if let Place::Held(HeldReason::Needs, _) = ticket.place {
        waits_for_needs(spool, one, task, ticket, found)?;
    }
    Ok(())
}

/// A ticket in `done/` must have a result that tells the same.
fn ended(
    spool: &Spool,
    one: &OneTask,
    task: &Task,
    ticket: Found,
    state: State,
    result: Option<&TaskResult>,
) -> Result<Option<Finding>, SpoolError> {
    let file = spool.task(one.id).result();
    let path = spool.ticket_path(ticket.place, &ticket.ticket);
    let relative = path.strip_prefix(spool.root()).unwrap_or(&path).to_string_lossy().into_owned();
    let Some(result) = result else {
        if file.exists() {
            // That it cannot be read is a finding of its own.
            return Ok(None);
        }
        let (made, from) = rebuilt(spool, one, task, ticket, state, relative)?;
        let finding = Finding::new(Kind::NoResult, &file, format!("the task is {state} and has no result"));
        return Ok(Some(
            finding
                .of(one.id)
                .fix(format!("writes one that says only what {from} says"), Fix::WriteResult(Box::new(made))),
        ));
    };
    let mut differs = Vec::new();
    if result.id != one.id {
        differs.push(format!("it is of task {}", result.id));
    }
    if result.state != state {
        differs.push(format!("it says {}, the ticket says {state}", result.state));
    }
    if result.attempt != 0 && result.attempt != ticket.ticket.attempt {
        differs.push(format!(
            "it is of attempt {}, the ticket of attempt {}",
            result.attempt, ticket.ticket.attempt
        ));
    }
    let mut finding = None;
    if differs.is_empty() && result.ticket != relative {
        let message = format!("it names the ticket {}, which lies at {relative}", result.ticket);
        let right = TaskResult { ticket: relative, ..result.clone() };
        finding = Some(
            Finding::new(Kind::ResultDiffers, &file, message)
                .of(one.id)
                .fix("writes the ticket's place into it", Fix::WriteResult(Box::new(right))),
        );
    } else if !differs.is_empty() {
        finding = Some(Finding::new(Kind::ResultDiffers, &file, differs.join("; ")).of(one.id));
    }
    Ok(finding)
}

/// A result with nothing in it but what can still be known.
fn rebuilt(
    spool: &Spool,
    one: &OneTask,
    task: &Task,
    ticket: Found,
    state: State,
    relative: String,
) -> Result<(TaskResult, &'static str), SpoolError> {
    let n = ticket.ticket.attempt;
    let ended: Option<Ended> = read_json(&spool.task(one.id).attempt(n).file("ended.json"))?;
    let mut made = match ended.filter(|e| e.summary.state == state) {
        Some(Ended { summary }) => {
            let message =
                format!("{} (the result was lost and was made again from ended.json)", summary.message);
            let bare = bare_result(task, state, summary.class, message);
            TaskResult {
                attempt: n,
                started_at: Some(summary.started_at),
                ended_at: summary.ended_at,
                attempts: vec![summary],
                ..bare
            }
        }
        None => {
            let message = format!("{state} (the result was lost; this is what the ticket's name says)");
            bare_result(task, state, None, message)
        }
    };
    made.ticket = relative;
    let from = if made.attempt == 0 { "the ticket's name" } else { "the attempt's ended.json" };
    Ok((made, from))
}

fn waits_for_needs(
    spool: &Spool,
    one: &OneTask,
    task: &Task,
    ticket: Found,
    found: &mut Vec<Finding>,
) -> Result<(), SpoolError> {
    match spool.needs(task)? {
        Needs::Waiting(needs) => {
            for need in needs {
                let note = spool.task(need).dependents().join(one.id.to_string());
                if spool.task(need).path().is_dir() && !note.exists() {
                    let message = format!("task {need} does not know that this one waits for it");
                    let finding = Finding::new(Kind::NotRegistered, &note, message)
                        .of(one.id)
                        .fix("registers it", Fix::Register(need));
                    found.push(finding);
                }
            }
        }
        Needs::Met | Needs::Failed(..) => {
            // A note in releases/ says that a pass will look at the dependents.
            let dir = spool.releases();
            let pending = names(&dir).map_err(|e| SpoolError::io("read", &dir, e))?;
            let noted = |id: &crate::model::TaskId| {
                pending.iter().any(|n| n.to_str().is_some_and(|n| n == id.to_string()))
            };
            if !task.needs.iter().any(noted) {
                let path = spool.ticket_path(ticket.place, &ticket.ticket);
                let finding = Finding::new(Kind::NeedsOver, &path, "it waits for tasks that have all ended")
                    .of(one.id)
                    .fix("lets it go on, or skips it", Fix::Settle(ticket));
                found.push(finding);
            }
        }
    }
    Ok(())
}
