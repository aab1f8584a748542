//! A task's own files: its records, its history, what it waits for, its result.

use super::finding::{Finding, Fix, Kind};
use super::scan::{OneTask, listed};
use crate::model::{Task, TaskResult};
use crate::spool::{Hold, Spool, SpoolError, TaskDir, events, read_json};
use serde::de::DeserializeOwned;
use std::path::Path;

/// Looks at the files; returns the newest readable record, if there is one.
pub(super) fn look(
    spool: &Spool,
    one: &OneTask,
    found: &mut Vec<Finding>,
) -> Result<Option<Task>, SpoolError> {
    let dir = spool.task(one.id);
    let last = dir.last_revision();
    if last == 0 {
        no_record(spool, one, &dir, found)?;
        return Ok(None);
    }
    let mut newest = None;
    for revision in 1..=last {
        let path = dir.record(revision);
        match read_json::<Task>(&path) {
            Ok(Some(task)) if task.id == one.id && task.revision == revision => newest = Some(task),
            Ok(Some(task)) => {
                let message = format!("says that it is revision {} of task {}", task.revision, task.id);
                found.push(Finding::new(Kind::RecordDiffers, &path, message).of(one.id));
            }
            Ok(None) => {}
            Err(e) => found.push(unreadable(one, &path, &e)),
        }
    }
    if newest.as_ref().is_some_and(|t| t.revision != last) {
        newest = None;
    }
    readable::<TaskResult>(one, &dir.result(), found);
    readable::<Hold>(one, &dir.hold(), found);
    readable::<crate::model::ReviewFile>(one, &dir.review(), found);
    history(one, &dir, found)?;
    Ok(newest)
}

fn no_record(
    spool: &Spool,
    one: &OneTask,
    dir: &TaskDir,
    found: &mut Vec<Finding>,
) -> Result<(), SpoolError> {
    if one.pending {
        return Ok(());
    }
    for ticket in &one.tickets {
        let path = spool.ticket_path(ticket.place, &ticket.ticket);
        let finding = Finding::new(Kind::TicketWithoutTask, &path, "its task has no record")
            .of(one.id)
            .fix("removes the ticket", Fix::RemoveFile(path.clone()));
        found.push(finding);
    }
    if one.folder && one.tickets.is_empty() {
        let mut finding =
            Finding::new(Kind::NoRecord, dir.path(), "a task's folder without task.json").of(one.id);
        // Anything beyond its lock might be worth something to somebody.
        let bare = listed(dir.path())?.iter().all(|n| n == "lock" || n.as_encoded_bytes().starts_with(b"."));
        if bare {
            finding = finding.fix("removes the folder", Fix::RemoveTree(dir.path().to_owned()));
        }
        found.push(finding);
    }
    Ok(())
}

fn readable<T: DeserializeOwned>(one: &OneTask, path: &Path, found: &mut Vec<Finding>) {
    if let Err(e) = read_json::<T>(path) {
        found.push(unreadable(one, path, &e));
    }
}

fn unreadable(one: &OneTask, path: &Path, error: &SpoolError) -> Finding {
    let message = match error {
        SpoolError::Broken(_, why) => format!("cannot be read: {why}"),
        other => other.to_string(),
    };
    Finding::new(Kind::Unreadable, path, message).of(one.id)
}

fn history(one: &OneTask, dir: &TaskDir, found: &mut Vec<Finding>) -> Result<(), SpoolError> {
    let path = dir.events();
    let bytes = match std::fs::read(&path) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        Err(e) => return Err(SpoolError::io("read", &path, e)),
    };
    let chain = events::walk_chain(&bytes);
    for line in chain.torn {
        let message = format!("line {line} was cut short by a crash; what it said is lost");
        found.push(Finding::new(Kind::TornEvent, &path, message).of(one.id));
    }
    if let Some(broken) = chain.broken {
        let message = format!("{broken}: the history was changed, or lines of it were lost");
        found.push(Finding::new(Kind::EventChain, &path, message).of(one.id));
    }
    Ok(())
}
