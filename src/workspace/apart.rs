//! Workspaces that share nothing with what they were made from: clones and copies.
//!
//! Each is built beside its place, under a name with a dot in front, and renamed when it is whole: what has
//! that name after a crash was never worked in.

use super::duplicate::{self, Budget, LeftOut};
use super::worktree::{Wanted, trash};
use crate::durable::{self, GoOn};
use crate::git::{Oid, Repo, View, Worktree, clone, shadow, worktree};
use crate::model::{Task, WorkspaceKind};
use crate::spool::{AttemptDir, Spool};
use anyhow::Context as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Where the git repository is that holds a task's commits and salvages: the user's, or for a copy one of
/// ours. `None` where there is none.
pub fn repository(spool: &Spool, task: &Task) -> Option<PathBuf> {
    match task.spec.workspace() {
        WorkspaceKind::Worktree | WorkspaceKind::Clone | WorkspaceKind::Overlay => {
            task.repo.as_ref().map(|r| r.path.clone())
        }
        WorkspaceKind::Copy => Some(spool.copies().join(task.id.to_string())),
        WorkspaceKind::Directory | WorkspaceKind::Temporary => None,
    }
}

/// Opens the repository of ours that stands for the folder that a task works on a copy of.
pub fn shadow_of(spool: &Spool, task: &Task) -> anyhow::Result<Repo> {
    let path = spool.copies().join(task.id.to_string());
    Ok(shadow::ensure(&path, &duplicate::caches())?)
}

/// Takes away a repository of ours that holds no work any more: no salvage, and no branch.
pub fn remove_shadow_if_empty(shadow: &Repo) -> anyhow::Result<bool> {
    let out = shadow.shared().reads("for-each-ref").args(["--count=1", "--format=%(refname)"]).run()?;
    if !shadow.bare || !out.trim_ascii().is_empty() {
        return Ok(false);
    }
    worktree::delete_tree(&shadow.common)
        .with_context(|| format!("cannot delete {}", shadow.common.display()))?;
    Ok(true)
}

/// Makes a clone on the branch of the task, which is made in the user's repository, too: it holds what the
/// work starts from, and later the result.
pub fn make_clone(
    repo: &Repo,
    attempt: &AttemptDir,
    wanted: &Wanted<'_>,
    go_on: GoOn<'_>,
) -> anyhow::Result<Worktree> {
    let Wanted { path, id, base, start, .. } = *wanted;
    let building = building(path)?;
    let made = clone::make(repo, &building, id, start, 0, go_on)?;
    repo.place_branch(&made.branch, start)?;
    durable::rename_noreplace(&building, path)
        .with_context(|| format!("{} is in the way", path.display()))?;
    let tree = Worktree { path: path.to_owned(), git_dir: path.join(".git"), branch: made.branch };
    View::create(&attempt.view(), repo, &tree, base)?;
    Ok(tree)
}

/// A copy that was made.
#[derive(Debug)]
pub struct Copy {
    /// Where it is.
    pub tree: Worktree,
    /// The commit of what it holds.
    pub base: Oid,
    /// Files with secrets, as their names say, that no commit holds.
    pub secrets: Vec<PathBuf>,
    /// What it lacks.
    pub left_out: LeftOut,
}

/// What a copy is made of.
#[derive(Debug, Clone, Copy)]
pub struct Original<'a> {
    /// The user's folder.
    pub folder: &'a Path,
    /// What of it is passed over: a spool that lies in it.
    pub but: &'a [&'a Path],
    /// What the copy may take.
    pub budget: Budget,
}

/// Makes a copy of a folder, with its base in `shadow`. `room` hears how many bytes it will take, and may
/// refuse.
pub fn make_copy(
    shadow: &Repo,
    attempt: &AttemptDir,
    (path, id): (&Path, &str),
    original: Original<'_>,
    room: impl FnOnce(u64) -> anyhow::Result<()>,
    go_on: GoOn<'_>,
) -> anyhow::Result<Copy> {
    let building = building(path)?;
    let mut found = duplicate::look(original.folder, original.but, original.budget, go_on)?;
    room(found.bytes)?;
    duplicate::write(&mut found, original.folder, &building, go_on)
        .with_context(|| format!("cannot copy {}", original.folder.display()))?;
    let branch = format!("refs/heads/{}", super::branch(id.parse()?));
    let base = shadow::record(shadow, &building, &format!("workspool: copied for {id}"), 0, go_on)?;
    let secret = |path: &PathBuf| path.file_name().is_some_and(|n| n.to_string_lossy().contains(".env"));
    let secrets = shadow::ignored(shadow, &building)?.into_iter().filter(secret).collect();
    shadow.place_branch(&branch, &base)?;
    durable::rename_noreplace(&building, path)
        .with_context(|| format!("{} is in the way", path.display()))?;
    let tree = shadow::tree(shadow, path, &branch);
    View::create(&attempt.view(), shadow, &tree, &base)?;
    Ok(Copy { tree, base, secrets, left_out: found.left_out })
}

/// Makes the copy of an earlier attempt again, from what that committed.
pub fn copy_again(
    shadow: &Repo,
    before: &View,
    attempt: &AttemptDir,
    path: &Path,
    base: &Oid,
    go_on: GoOn<'_>,
) -> anyhow::Result<Worktree> {
    let branch = before.worktree().branch.clone();
    let commit = shadow.read_ref(&branch)?.with_context(|| format!("{branch} is gone"))?;
    let building = building(path)?;
    durable::ensure_dir(&building)?;
    before.export(&commit, &building, &shadow.common.join("index"), go_on)?;
    durable::rename_noreplace(&building, path)
        .with_context(|| format!("{} is in the way", path.display()))?;
    before.renew(&attempt.view(), base)?;
    Ok(shadow::tree(shadow, path, &branch))
}

/// Takes away what a preparation that did not come to its end has left.
pub fn clear_half_made(path: &Path) -> io::Result<()> {
    let half = half_made(path);
    if fs::symlink_metadata(&half).is_ok() {
        worktree::delete_tree(&half)?;
    }
    Ok(())
}

/// Takes away a clone or copy in which no command has run: all of it is where it was made from.
pub fn discard_unused(spool: &Spool, path: &Path) -> anyhow::Result<()> {
    durable::ensure_dir(&trash(spool))?;
    let aside = trash(spool).join(durable::unique_name());
    durable::rename_noreplace(path, &aside)?;
    worktree::delete_tree(&aside).with_context(|| format!("cannot delete {}", aside.display()))
}

/// The name under which a workspace is built, which is free then.
fn building(path: &Path) -> io::Result<PathBuf> {
    if let Some(parent) = path.parent() {
        durable::ensure_dir(parent)?;
    }
    clear_half_made(path)?;
    Ok(half_made(path))
}

fn half_made(path: &Path) -> PathBuf {
    path.with_file_name(format!(".{}.new", path.file_name().unwrap_or_default().to_string_lossy()))
}
