//! Workspaces and tasks that have lost each other.

use super::{Context, Finding, command, shell};
use crate::git::{Repo, worktree};
use crate::model::TaskId;
use crate::spool::names;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub(super) fn look(context: &Context<'_>) -> anyhow::Result<Vec<Finding>> {
    let mut found = Vec::new();
    let trees = trees(context)?;
    for (path, id) in trees.iter().filter(|(_, id)| !context.spool.task(*id).path().is_dir()) {
        found.push(
            Finding::warning(format!("the workspace {} belongs to no task ({id} is gone)", path.display()))
                .why("it takes up space, and nothing will remove it: perhaps there is work in it")
                .fix(format!("git -C {} status", shell(&path.to_string_lossy()))),
        );
    }
    for (repo, gone) in gone(context)? {
        found.push(
            Finding::warning(format!(
                "{} still lists {} workspaces that are gone",
                repo.display(),
                gone.len()
            ))
            .why("their branches cannot be checked out or deleted")
            .fix(command(context, "doctor --fix"))
            .fixable(),
        );
    }
    let kept = names(&context.spool.worktrees().join(".kept"))?.len();
    if kept > 0 {
        let place = context.spool.worktrees().join(".kept");
        found.push(
            Finding::note(format!(
                "{kept} workspaces were put aside in {}, since not all in them could be kept elsewhere",
                place.display()
            ))
            .why("only you can tell whether they may go")
            .fix(format!("ls -la {}", shell(&place.to_string_lossy()))),
        );
    }
    if found.is_empty() {
        found.push(Finding::ok(format!("{} workspaces, each with its task", trees.len())));
    }
    Ok(found)
}

/// Removes registrations whose folders are gone. No file of a workspace is touched.
pub(super) fn mend(context: &Context<'_>) -> anyhow::Result<String> {
    let mut removed = 0;
    for (path, gone) in gone(context)? {
        let repo = Repo::open(&path)?;
        let lock = context.spool.repo_lock(&repo.key.hash);
        let _alone = lock.take()?;
        for tree in gone {
            // Looked at again under the lock: a task may be making this very tree.
            if !tree.exists() {
                worktree::unregister(&repo, &tree)?;
                removed += 1;
            }
        }
    }
    Ok(format!("removed {removed} registrations of workspaces that are gone"))
}

/// All workspaces that are named after a task.
fn trees(context: &Context<'_>) -> anyhow::Result<Vec<(PathBuf, TaskId)>> {
    let mut found = Vec::new();
    let root = context.spool.worktrees();
    for folder in names(root)?.into_iter().filter(|n| !n.as_encoded_bytes().starts_with(b".")) {
        let folder = root.join(folder);
        if !folder.is_dir() {
            continue;
        }
        for name in names(&folder)? {
            if let Some(id) = name.to_str().and_then(|n| n.parse::<TaskId>().ok()) {
                found.push((folder.join(name), id));
            }
        }
    }
    Ok(found)
}

/// Registered worktrees below our folder that are not there and that no task is about to make, by repository.
///
/// The repositories are those of the newest tasks: looking at all would cost with the history.
fn gone(context: &Context<'_>) -> anyhow::Result<BTreeMap<PathBuf, Vec<PathBuf>>> {
    const NEWEST: usize = 200;
    let spool = context.spool;
    let mut repos: BTreeMap<String, PathBuf> = BTreeMap::new();
    for found in spool.all_tickets()?.take(NEWEST) {
        if let Some(repo) = spool.read_task(found?.ticket.task).ok().and_then(|t| t.repo) {
            repos.entry(repo.key).or_insert(repo.path);
        }
    }
    let mut all = BTreeMap::new();
    for path in repos.into_values() {
        let Ok(repo) = Repo::open(&path) else { continue };
        let gone: Vec<PathBuf> = worktree::list_ours(&repo)?
            .into_iter()
            .filter(|t| t.gone && is_idle(context, &t.path))
            .map(|t| t.path)
            .collect();
        if !gone.is_empty() {
            all.insert(path, gone);
        }
    }
    Ok(all)
}

/// Whether a worktree is one of ours, and its task does not run.
fn is_idle(context: &Context<'_>, path: &Path) -> bool {
    let id = path.file_name().and_then(|n| n.to_str()).and_then(|n| n.parse::<TaskId>().ok());
    path.starts_with(context.spool.worktrees())
        && id.is_some_and(|id| !context.spool.task(id).lock().is_held().unwrap_or(true))
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::super::support::{Fixture, worst};
    use super::*;

    #[test]
    fn a_workspace_without_a_task_is_told_and_left_alone() {
        let fixture = Fixture::new();
        assert_eq!(worst(&look(&fixture.context()).unwrap()).level, Level::Ok);
        let id = TaskId::generate();
        let orphan = fixture.spool.worktrees().join("repo-1").join(id.to_string());
        std::fs::create_dir_all(&orphan).unwrap();
        std::fs::create_dir_all(fixture.spool.worktrees().join(".kept/x")).unwrap();
        let found = look(&fixture.context()).unwrap();
        assert!(found.iter().any(|f| f.level == Level::Warning && f.what.contains(&id.to_string())));
        assert!(found.iter().any(|f| f.level == Level::Note && f.what.contains(".kept")));
        mend(&fixture.context()).unwrap();
        assert!(orphan.is_dir(), "nobody but its owner removes it");
    }
}
