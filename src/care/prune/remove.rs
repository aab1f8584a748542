//! Taking one thing away, under its task's lock, after a fresh look.

use super::{Done, Item, What};
use crate::attempt::{clear_workspace, read_prepared};
use crate::durable;
use crate::git::{BRANCHES, Oid, Repo, View, worktree};
use crate::model::{Review, ReviewFile, State, Task, TaskId, TaskResult, WorkspaceKind};
use crate::spool::{LockedTask, Place, Spool, SpoolError, names, read_json};
use crate::workspace::{self, Removed, apart, manifest};
use anyhow::Context as _;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Takes one thing of a task away.
pub(super) fn item(
    spool: &Spool,
    item: &Item,
    keys: &BTreeMap<TaskId, (PathBuf, u64)>,
) -> anyhow::Result<Done> {
    let id = item.task.context("of no task")?;
    let locked = match spool.try_lock_task(id) {
        Ok(Some(locked)) => locked,
        Ok(None) => return Ok(Done::Kept("somebody is at it".into())),
        Err(SpoolError::NoTask(_)) => return Ok(Done::Removed),
        Err(e) => return Err(e.into()),
    };
    // Between plan and lock it may have been retried or released.
    if locked.ticket()? != item.ticket {
        return Ok(Done::Kept("it has moved on meanwhile".into()));
    }
    match item.what {
        What::Cancel => {
            let found = item.ticket.context("without a ticket")?;
            let message = format!("cancelled by prune: {}", item.why);
            locked.end_without_work(found, State::Cancelled, None, message)?;
            drop(locked);
            spool.release_dependents(id)?;
            Ok(Done::Removed)
        }
        What::BuildOutput => {
            let trash = workspace::trash(spool);
            durable::ensure_dir(&trash)?;
            let aside = trash.join(durable::unique_name());
            durable::rename_noreplace(&item.path, &aside)?;
            worktree::delete_tree(&aside)?;
            Ok(gone(&item.path))
        }
        What::Workspace => workspace_of(&locked),
        What::Task => task(&locked, item, keys),
        What::Orphan | What::WarmTree | What::Leftover | What::Checkout => anyhow::bail!("not of a task"),
    }
}

/// "Removed" is said after looking.
pub(super) fn gone(path: &Path) -> Done {
    match fs::symlink_metadata(path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Done::Removed,
        Err(e) => Done::Kept(format!("nobody knows: {e}")),
        Ok(_) => Done::Kept("it is still there".into()),
    }
}

/// Takes a task's workspace away, with the proof that all in it is kept.
fn workspace_of(locked: &LockedTask) -> anyhow::Result<Done> {
    let spool = locked.spool();
    let task = locked.task()?;
    let path = workspace::path(spool, &task);
    match task.spec.workspace() {
        // The user's own folder.
        WorkspaceKind::Directory => return Ok(Done::Removed),
        WorkspaceKind::Temporary => return temporary(locked, &path),
        WorkspaceKind::Worktree | WorkspaceKind::Overlay | WorkspaceKind::Clone | WorkspaceKind::Copy => {}
    }
    if fs::symlink_metadata(&path).is_err() {
        return Ok(Done::Removed);
    }
    let repo = apart::repository(spool, &task).context("a workspace without a repository")?;
    let repo = Repo::open(&repo)?;
    let dir = locked.dir();
    let id = locked.id().to_string();
    for n in (1..=dir.last_attempt()).rev() {
        let attempt = dir.attempt(n);
        let Some(prepared) = read_prepared(&attempt)? else { continue };
        let view = View::open(&attempt.view())?;
        anyhow::ensure!(view.worktree().path == path, "the newest attempt worked elsewhere");
        return Ok(told(workspace::remove(spool, &repo, &view, &id, n, &prepared.copied)?, &path));
    }
    Ok(told(clear_workspace(spool, dir, &repo, &path)?, &path))
}

fn told(removed: Removed, path: &Path) -> Done {
    match removed {
        Removed::Gone(_) | Removed::Nothing => gone(path),
        Removed::Aside(kept, missing) => Done::Kept(format!(
            "not everything in it could be kept otherwise ({}), so it is now {}",
            missing.join("; "),
            kept.display()
        )),
    }
}

/// A temporary folder goes only if every file in it was kept with the result.
fn temporary(locked: &LockedTask, path: &Path) -> anyhow::Result<Done> {
    if fs::symlink_metadata(path).is_err() {
        return Ok(Done::Removed);
    }
    let result = locked.spool().read_result(locked.id())?;
    let kept: BTreeSet<String> = result
        .iter()
        .flat_map(|r| &r.artifacts)
        .filter(|a| a.kept && locked.dir().artifacts().join(&a.path).is_file())
        .map(|a| a.sha256.clone())
        .collect();
    for entry in walkdir::WalkDir::new(path).min_depth(1) {
        let entry = entry?;
        if entry.file_type().is_dir() {
            continue;
        }
        let known = entry.file_type().is_file() && kept.contains(&manifest::hash_file(entry.path())?);
        if !known {
            let name = entry.path().strip_prefix(path).unwrap_or(entry.path()).display().to_string();
            return Ok(Done::Kept(format!("{name} in its temporary folder is kept nowhere else")));
        }
    }
    worktree::delete_tree(path)?;
    Ok(gone(path))
}

/// Takes a task away. A crash on the way leaves what `check` names and repairs.
fn task(locked: &LockedTask, item: &Item, keys: &BTreeMap<TaskId, (PathBuf, u64)>) -> anyhow::Result<Done> {
    let (spool, id) = (locked.spool(), locked.id());
    let task = locked.task()?;
    let has_tree = task.spec.workspace() != WorkspaceKind::Directory;
    if has_tree && let kept @ Done::Kept(_) = workspace_of(locked)? {
        return Ok(kept);
    }
    branch(locked, &task)?;
    // Before the task: a key whose task is gone would keep a new submission out.
    let first = task.batch.as_ref().map_or(id, |b| b.first);
    if let Some((path, _)) = keys.get(&first) {
        durable::remove_file(path)?;
    }
    for name in names(&spool.timers())? {
        if name.to_str().and_then(|n| n.split_once('.')).is_some_and(|(_, t)| t == id.to_string()) {
            durable::remove_file(&spool.timers().join(name))?;
        }
    }
    for need in &task.needs {
        durable::remove_file(&spool.task(*need).dependents().join(id.to_string()))?;
    }
    for request in spool.all_requests()?.into_iter().filter(|r| r.task == id) {
        spool.drop_request(request)?;
    }
    durable::remove_file(&spool.releases().join(id.to_string()))?;
    // Readers see the whole task, or none.
    let aside = spool.tmp().join(durable::unique_name());
    durable::rename_noreplace(locked.dir().path(), &aside)?;
    durable::sync_dir(&spool.tasks())?;
    if let Some(found) = item.ticket {
        let ticket = spool.ticket_path(found.place, &found.ticket);
        durable::remove_file(&ticket)?;
        if let Place::Done(..) = found.place
            && let Some(folder) = ticket.parent()
        {
            // Whoever is about to put a ticket into it makes it again.
            let _ = fs::remove_dir(folder);
        }
    }
    worktree::delete_tree(&aside)?;
    Ok(match gone(&aside) {
        Done::Removed => gone(locked.dir().path()),
        kept => kept,
    })
}

/// Takes away the task's branch, if all that it holds was accepted or is nothing.
fn branch(locked: &LockedTask, task: &Task) -> anyhow::Result<()> {
    let Some(path) = apart::repository(locked.spool(), task) else { return Ok(()) };
    let is_copy = task.spec.workspace() == WorkspaceKind::Copy;
    if is_copy && !path.exists() {
        return Ok(());
    }
    let Some(result) = locked.spool().read_result(locked.id())? else { return Ok(()) };
    let repo = Repo::open(&path)?;
    let name = format!("{BRANCHES}{}", locked.id());
    let Some(at) = repo.read_ref(&name)? else { return Ok(()) };
    let is =
        |text: &Option<String>| text.as_ref().is_some_and(|t| Oid::parse(t.as_bytes()).as_ref() == Some(&at));
    let review: Option<ReviewFile> = read_json(&locked.dir().review())?;
    let accepted = review.and_then(|r| r.verdicts.last().map(|v| v.verdict)) == Some(Review::Accepted);
    let TaskResult { base, commit, .. } = &result;
    // Work in a copy that got nowhere has no commit and no base in its result.
    if is(base) || (accepted && is(commit)) || (is_copy && result.state != State::Succeeded) {
        repo.delete_ref(&name, &at)?;
        if is_copy {
            apart::remove_shadow_if_empty(&repo)?;
        }
    }
    Ok(())
}

/// Takes away a workspace whose task is gone, if git's registration says that it is of this spool.
pub(super) fn orphan(spool: &Spool, path: &Path) -> anyhow::Result<Done> {
    let Ok(repo) = Repo::open(path) else {
        return Ok(Done::Kept("it is no worktree of a repository, so nobody can tell what it holds".into()));
    };
    let id = path.file_name().and_then(|n| n.to_str()).context("a name that is no id")?;
    let reason = format!("workspool {} {id}", spool.id());
    let listed = worktree::list_ours(&repo)?;
    if !listed.iter().any(|t| t.path == path && t.locked.as_ref() == Some(&reason)) {
        return Ok(Done::Kept("it is not registered as a workspace of this spool".into()));
    }
    Ok(told(workspace::clear(spool, &repo, path, id, None, 1, &[])?, path))
}
