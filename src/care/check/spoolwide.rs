//! What belongs to no single task: submissions, keys, notes, wishes, files being written, workspaces.

use super::finding::{Finding, Fix, Kind};
use super::scan::{Scan, listed};
use super::work::Repositories;
use crate::model::{HeldReason, Intake, RequestName, TaskId};
use crate::spool::{Spool, SpoolError, config, read_json};
use crate::workspace::{apart, warm};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a file that is being written is left alone: somebody may still be at it.
const YOUNG: Duration = Duration::from_secs(600);
/// How long a key without a submission is left alone: its owner may be about to make it.
const KEY_YOUNG: Duration = Duration::from_secs(3600);

/// What is read of a key's file.
#[derive(Deserialize)]
struct Key {
    first: TaskId,
}

pub(super) fn look(spool: &Spool, scan: &Scan, repos: &mut Repositories) -> Result<Vec<Finding>, SpoolError> {
    let mut found = Vec::new();
    for path in &scan.odd {
        let message = "this name is no ticket, so no runner looks at it";
        found.push(Finding::new(Kind::NotATicket, path, message));
    }
    intake(spool, scan, &mut found)?;
    keys(spool, scan, &mut found)?;
    notes(spool, scan, &mut found)?;
    half_made(spool, scan, &mut found)?;
    temporary(spool, scan, &mut found)?;
    workspaces(spool, scan, repos, &mut found)?;
    warm_trees(spool, &mut found)?;
    Ok(found)
}

fn intake(spool: &Spool, scan: &Scan, found: &mut Vec<Finding>) -> Result<(), SpoolError> {
    for name in listed(&spool.intake())?.iter().filter(|n| !hidden(n)) {
        let path = spool.intake().join(name);
        match read_json::<Intake>(&path) {
            Ok(Some(_)) => {
                let message = "a submission that is not expanded yet: the next pass does it";
                let finding = Finding::new(Kind::NotExpanded, &path, message);
                found.push(finding.fix("expands it", Fix::Expand));
            }
            Ok(None) => {}
            Err(e) => {
                let message = format!("a submission that cannot be read: {e}");
                found.push(Finding::new(Kind::Unreadable, &path, message));
            }
        }
    }
    for name in listed(&spool.inbox())? {
        if name.as_encoded_bytes().starts_with(b".taking-") {
            let message = "a dropped file that is not answered yet: the next pass does it";
            found.push(Finding::new(Kind::NotAnswered, &spool.inbox().join(name), message));
        }
    }
    let _ = scan;
    Ok(())
}

fn keys(spool: &Spool, scan: &Scan, found: &mut Vec<Finding>) -> Result<(), SpoolError> {
    for name in listed(&spool.keys())?.iter().filter(|n| !hidden(n)) {
        let path = spool.keys().join(name);
        match read_json::<Key>(&path) {
            Ok(Some(key)) if !scan.knows(key.first) && older(&path, KEY_YOUNG) => {
                // Between our look at the tasks and at the key it may have been expanded.
                if !spool.task(key.first).path().is_dir() {
                    let message = format!("a key for task {}, which does not exist", key.first);
                    let finding = Finding::new(Kind::DanglingKey, &path, message);
                    found.push(finding.fix("removes the key", Fix::RemoveFile(path.clone())));
                }
            }
            Ok(_) => {}
            Err(e) => found.push(Finding::new(Kind::Unreadable, &path, e.to_string())),
        }
    }
    Ok(())
}

/// Notes about tasks: timers, releases, dependents, wishes.
fn notes(spool: &Spool, scan: &Scan, found: &mut Vec<Finding>) -> Result<(), SpoolError> {
    let gone = |id: TaskId| !scan.knows(id) && !spool.task(id).path().is_dir();
    let mut note = |path: PathBuf, id: Option<TaskId>| match id {
        Some(id) if gone(id) => {
            let finding = Finding::new(Kind::DanglingNote, &path, format!("about task {id}, which is gone"));
            found.push(finding.fix("removes it", Fix::RemoveFile(path.clone())));
        }
        Some(_) => {}
        None => {
            let message = "a name that means nothing in this folder";
            found.push(Finding::new(Kind::Unknown, &path, message));
        }
    };
    for name in listed(&spool.timers())?.iter().filter(|n| !hidden(n)) {
        let id = name.to_str().and_then(|n| n.split_once('.')?.1.parse().ok());
        note(spool.timers().join(name), id);
    }
    for name in listed(&spool.releases())?.iter().filter(|n| !hidden(n)) {
        note(spool.releases().join(name), name.to_str().and_then(|n| n.parse().ok()));
    }
    for id in &scan.tasks {
        let dir = spool.task(*id).dependents();
        for name in listed(&dir)?.iter().filter(|n| !hidden(n)) {
            note(dir.join(name), name.to_str().and_then(|n| n.parse().ok()));
        }
    }
    for name in listed(&spool.requests())?.iter().filter(|n| !hidden(n)) {
        let path = spool.requests().join(name);
        let Some(request) = name.to_str().and_then(|n| n.parse::<RequestName>().ok()) else {
            found.push(Finding::new(Kind::Unknown, &path, "a name that is no wish"));
            continue;
        };
        let over = match scan.tickets.get(&request.task).map(Vec::as_slice) {
            Some([t]) => t.ticket.attempt > request.attempt || t.place.state().is_terminal(),
            Some(_) => false,
            None => gone(request.task),
        };
        if over {
            let message = "a wish about a past attempt: the next pass removes it";
            let finding = Finding::new(Kind::PastRequest, &path, message).of(request.task);
            found.push(finding.fix("removes it", Fix::RemoveFile(path.clone())));
        }
    }
    Ok(())
}

/// Files that are written beside the place they belong at, and were never moved there.
fn half_made(spool: &Spool, scan: &Scan, found: &mut Vec<Finding>) -> Result<(), SpoolError> {
    let mut folders = vec![spool.root().to_owned()];
    for folder in ["inbox", "taken", "rejected", "intake", "keys", "queue", "running", "requests"] {
        folders.push(spool.root().join(folder));
    }
    for folder in ["releases", "timers", "workers", "locks", "tmp", "tasks"] {
        folders.push(spool.root().join(folder));
    }
    folders.extend(HeldReason::ALL.iter().map(|r| spool.held(*r)));
    folders.extend(listed(&spool.done())?.iter().map(|n| spool.done().join(n)));
    for id in &scan.tasks {
        let dir = spool.task(*id);
        folders.extend([dir.path().to_owned(), dir.dependents(), dir.attempts()]);
        for n in listed(&dir.attempts())? {
            let attempt = dir.attempts().join(n);
            let steps = attempt.join("steps");
            folders.extend(listed(&steps)?.iter().map(|n| steps.join(n)));
            folders.extend([attempt.join("git"), attempt]);
        }
    }
    for folder in folders.iter().filter(|f| f.is_dir()) {
        for name in listed(folder)? {
            let path = folder.join(&name);
            if is_half_made(&name) && older(&path, YOUNG) {
                let fix =
                    if path.is_dir() { Fix::RemoveTree(path.clone()) } else { Fix::RemoveFile(path.clone()) };
                let finding = Finding::new(Kind::HalfMade, &path, "it was being written, and never finished");
                found.push(finding.fix("removes it", fix));
            }
        }
    }
    Ok(())
}

/// Temporary folders of attempts: `tmp/<task>.<n>`.
fn temporary(spool: &Spool, scan: &Scan, found: &mut Vec<Finding>) -> Result<(), SpoolError> {
    for name in listed(&spool.tmp())? {
        let parts = name.to_str().and_then(|n| n.split_once('.'));
        let Some((id, n)) = parts.and_then(|(id, n)| Some((id.parse().ok()?, n.parse::<u32>().ok()?))) else {
            continue;
        };
        let runs = scan.tickets.get(&id).is_some_and(|all| {
            all.iter().any(|t| t.place == crate::spool::Place::Running && t.ticket.attempt == n)
        });
        let path = spool.tmp().join(&name);
        if !runs && older(&path, YOUNG) {
            let finding = Finding::new(Kind::TemporaryFolder, &path, "its attempt has ended").of(id);
            found.push(finding.fix("removes it", Fix::RemoveTree(path.clone())));
        }
    }
    Ok(())
}

/// Workspaces on the disk against workspaces that git knows.
fn workspaces(
    spool: &Spool,
    scan: &Scan,
    repos: &mut Repositories,
    found: &mut Vec<Finding>,
) -> Result<(), SpoolError> {
    let mut paths = BTreeSet::new();
    for id in &scan.tasks {
        if let Ok(task) = spool.read_task(*id)
            && let Some(repo) = apart::repository(spool, &task)
            // Not made yet, or done with.
            && (repo.exists() || task.spec.workspace() != crate::model::WorkspaceKind::Copy)
        {
            paths.insert(repo);
        }
    }
    let mut registered = BTreeSet::new();
    for path in &paths {
        match repos.at(path) {
            Ok(ours) => {
                let root = spool.worktrees();
                for tree in ours.worktrees.iter().filter(|t| t.path.starts_with(root)) {
                    if tree.gone {
                        let message = format!("git knows a worktree {} that is gone", tree.path.display());
                        let finding = Finding::new(Kind::StaleRegistration, &ours.repo.common, message);
                        let fix = Fix::Unregister(path.clone(), tree.path.clone());
                        found.push(finding.fix("removes the registration", fix));
                    }
                    registered.insert(tree.path.clone());
                }
            }
            Err(why) => {
                let message = format!("the work of its tasks cannot be looked for: {why}");
                found.push(Finding::new(Kind::RepositoryGone, path, message));
            }
        }
    }
    for folder in listed(spool.worktrees())? {
        let dir = spool.worktrees().join(&folder);
        if folder == ".trash" {
            for name in listed(&dir)? {
                let path = dir.join(name);
                if older(&path, YOUNG) {
                    let finding = Finding::new(Kind::Trash, &path, "a tree on its way to be deleted");
                    found.push(finding.fix("deletes it", Fix::RemoveTree(path.clone())));
                }
            }
        }
        if hidden(&folder) || !dir.is_dir() {
            continue;
        }
        for name in listed(&dir)?.iter().filter(|n| !hidden(n)) {
            let path = dir.join(name);
            let Some(id) = name.to_str().and_then(|n| n.parse::<TaskId>().ok()) else { continue };
            if !scan.knows(id) && !spool.task(id).path().is_dir() {
                let message = "a workspace whose task is gone: `workspool prune` takes it away";
                found.push(Finding::new(Kind::OrphanWorkspace, &path, message).of(id));
            } else if path.join(".git").is_file()
                && repos.all().all(|(_, ours)| ours.is_ok())
                && !registered.contains(&path)
            {
                let message = "git does not know this worktree: the task's next attempt puts it aside";
                found.push(Finding::new(Kind::NotRegisteredWorktree, &path, message).of(id));
            }
        }
    }
    Ok(())
}

/// Trees for the next tasks that none will be given.
fn warm_trees(spool: &Spool, found: &mut Vec<Finding>) -> Result<(), SpoolError> {
    // What a configuration asks for that cannot be read, nobody knows.
    let Ok(config) = config::load(spool) else { return Ok(()) };
    let all = warm::list(spool, &config).map_err(|e| SpoolError::io("read", spool.worktrees(), e))?;
    for tree in all {
        if let Some(why) = tree.useless {
            let finding = Finding::new(Kind::WarmTree, &tree.path, format!("a warm tree: {why}"));
            found.push(finding.fix("deletes it", Fix::Discard(tree.path)));
        }
    }
    Ok(())
}

fn hidden(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b".")
}

/// A name as [`crate::durable::unique_name`] makes them.
fn is_half_made(name: &OsStr) -> bool {
    let parts = name.to_str().and_then(|n| n.strip_prefix('.')?.strip_suffix(".tmp"));
    parts.is_some_and(|n| n.split('-').count() == 3 && n.bytes().all(|b| b == b'-' || b.is_ascii_hexdigit()))
}

fn older(path: &Path, than: Duration) -> bool {
    let changed = fs::symlink_metadata(path).and_then(|m| m.modified());
    changed.is_ok_and(|at| at.elapsed().is_ok_and(|age| age >= than))
}
