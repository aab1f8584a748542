//! Git worktrees as workspaces: register under the repository's lock, fill outside it, and remove only
//! with the proof that everything in it is kept (I7).

use super::overlay::Overlay;
use super::warm::Pool;
use crate::durable::{self, GoOn};
use crate::git::{
    self, Change, ChangeStatus, GitError, Limits, Oid, OnBranch, Repo, Salvage, Salvaged, View, Worktree,
    worktree,
};
use crate::model::TaskId;
use crate::spool::{AttemptDir, Spool};
use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A workspace that is ready: `attempts/<n>/prepared.json`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Prepared {
    /// The tree, where git tells what changes in it.
    pub tree: Option<Worktree>,
    /// The commit of what a copy holds at the start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<Oid>,
    /// What it lacks against the folder that it was made from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lacks: Vec<String>,
    /// The task whose tree this is, with nothing of it left: a warm tree. None for one that was made anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree_from: Option<TaskId>,
    /// Ignored files that were copied in.
    pub copied: Vec<PathBuf>,
    /// What somebody should know.
    pub warnings: Vec<String>,
    /// Milliseconds that the tree alone took.
    #[serde(default)]
    pub tree_ms: u64,
    /// Milliseconds that all of it took.
    pub elapsed_ms: u64,
}

/// The worktree that is wanted.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// Where.
    pub path: &'a Path,
    /// For which task.
    pub id: &'a str,
    /// What its changes are told against.
    pub base: &'a Oid,
    /// What it is filled with: the base, or what an earlier attempt made of it.
    pub start: &'a Oid,
    /// What to do about the task's branch.
    pub on: OnBranch,
}

impl Wanted<'_> {
    /// Registers the worktree, with nothing in it yet.
    pub(super) fn register(&self, spool: &Spool, repo: &Repo) -> anyhow::Result<Worktree> {
        let reason = format!("workspool {} {}", spool.id(), self.id);
        let _alone = spool.repo_lock(&repo.key.hash).take().context("cannot lock the repository")?;
        Ok(worktree::add(repo, self.path, self.id, self.start, self.on, &reason)?)
    }
}

/// Registers a worktree at `path` on the branch of task `id`, fills it with `start` (the base, or what an
/// earlier attempt made of it), and makes our view of it, which compares with `base`.
///
/// Whatever stands at `path` must be ours and empty of work: see [`clear`]. With a `pool`, a warm tree is taken
/// from there, if there is one that can be had.
pub fn prepare(
    spool: &Spool,
    repo: &Repo,
    attempt: &AttemptDir,
    wanted: &Wanted<'_>,
    pool: Option<&Pool>,
    go_on: GoOn<'_>,
) -> anyhow::Result<Made> {
    let Wanted { base, start, .. } = *wanted;
    let tree = wanted.register(spool, repo)?;
    // One checkout at a time gains from several workers; several at once only get in each other's way.
    let alone = crate::spool::names(&spool.running()).map_or(0, |n| n.len()) <= 1;
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
    // Workers wait for the disk as much as they compute: on few cores four are faster than two.
    let workers = if alone { cores.max(4) } else { 1 };
    // Whatever is wrong with a warm tree, the task gets a tree: then one that is made anew.
    let mut made = Made { tree, from: None, warnings: Vec::new() };
    let taken = pool.and_then(|pool| made.note("could not be taken", pool.take(start))).flatten();
    if let Some(taken) = &taken {
        let given = taken.give(&made.tree, start, workers, go_on);
        let given = made.note("could not be given to the task", given) == Some(true);
        made.from = given.then(|| taken.task());
    }
    let tree = &made.tree;
    if made.from.is_none() {
        tree.fill(start, workers, go_on)?;
    }
    let view = View::create(&attempt.view(), repo, tree, base)?;
    if let Some(taken) = taken {
        if made.from.is_some() && view.rules() != taken.rules() {
            // Every file once more, as settings and attributes are now. There is nothing else in the tree.
            made.from = None;
            durable::remove_file(&tree.git_dir.join("index"))?;
            tree.fill(start, workers, go_on)?;
            View::create(&attempt.view(), repo, tree, base)?;
        }
        made.note("left something that could not be removed", taken.clear_up());
    }
    Ok(made)
}

/// A worktree that was made.
#[derive(Debug)]
pub struct Made {
    /// The worktree.
    pub tree: Worktree,
    /// The task whose warm tree it is; none if it was made anew.
    pub from: Option<TaskId>,
    /// What somebody should know.
    pub warnings: Vec<String>,
}

impl Made {
    /// Takes what came out, or a note of why nothing did.
    fn note<T, E: std::fmt::Display>(&mut self, what: &str, outcome: Result<T, E>) -> Option<T> {
        outcome.map_err(|e| self.warnings.push(format!("a warm tree {what}: {e}"))).ok()
    }
}

/// What became of a tree that was to be removed.
#[derive(Debug)]
pub enum Removed {
    /// It is gone; what it held is in this ref, or was in a commit.
    Gone(Option<String>),
    /// Not everything in it could be kept, so it was put aside, to here.
    Aside(PathBuf, Vec<String>),
    /// There was nothing.
    Nothing,
}

/// Takes what an earlier attempt left at `path` out of the way, so that a new one can start there.
///
/// `view` is the earlier attempt's. A tree whose content cannot be kept whole in a salvage is not removed
/// but moved to `worktrees/.kept/`.
pub fn clear(
    spool: &Spool,
    repo: &Repo,
    path: &Path,
    id: &str,
    view: Option<&View>,
    attempt: u32,
    copied: &[PathBuf],
) -> anyhow::Result<Removed> {
    if fs::symlink_metadata(path).is_err() {
        let _alone = spool.repo_lock(&repo.key.hash).take()?;
        if let Some(view) = view {
            forget_registration(repo, view.worktree())?;
        }
        return Ok(Removed::Nothing);
    }
    match view {
        Some(view) => remove(spool, repo, view, id, attempt, copied),
        // Nothing of the worker's can be in it: the view is made before the first command runs. But if
        // it cannot be proved to be ours, it is not ours to remove.
        None => {
            let branch = format!("refs/heads/{}", super::branch(id.parse()?));
            let Ok(tree) = Worktree::at(repo, path, &branch) else {
                let kept = put_aside(spool, path, id)?;
                return Ok(Removed::Aside(kept, vec!["it is not a worktree of the task".into()]));
            };
            let scratch = tempfile::tempdir_in(spool.tmp())?;
            let Some(base) = repo.read_ref(&branch)? else { bail!("the branch {branch} is gone") };
            if !tree.git_dir.join("index").exists() {
                // Registered and never filled.
                tree.git().writes("read-tree").arg(base.as_str()).run()?;
            }
            let view = View::create(&scratch.path().join("git"), repo, &tree, &base)?;
            view.forget_index()?;
            remove(spool, repo, &view, id, attempt, copied)
        }
    }
}

/// Removes a task's tree: proves or takes a salvage first, and keeps the tree if that is not complete.
pub fn remove(
    spool: &Spool,
    repo: &Repo,
    view: &View,
    id: &str,
    attempt: u32,
    copied: &[PathBuf],
) -> anyhow::Result<Removed> {
    let path = &view.worktree().path;
    if fs::symlink_metadata(path).is_err() {
        let _alone = spool.repo_lock(&repo.key.hash).take()?;
        forget_registration(repo, view.worktree())?;
        return Ok(Removed::Nothing);
    }
    let overlay = Overlay::of(spool, id, path);
    if overlay.exists()? && !overlay.is_mounted()? {
        let kept = overlay.put_aside(spool, id)?;
        forget(spool, repo, path)?;
        return Ok(Removed::Aside(kept, vec!["only its supervisor could see it whole".into()]));
    }
    let proof = prove(view, id, attempt, copied)?;
    let (removed, litter) = dispose(spool, repo, view, id, proof)?;
    for tree in litter {
        worktree::delete_tree(&tree).with_context(|| format!("cannot delete {}", tree.display()))?;
    }
    Ok(removed)
}

/// Proves that all that is in a task's tree is in a commit, or takes a salvage of it.
pub fn prove(view: &View, id: &str, attempt: u32, copied: &[PathBuf]) -> anyhow::Result<Salvaged> {
    let limits = Limits::default();
    let committed = match view.worker_head()? {
        Some(head) => Salvaged::committed(view, &head, copied, &limits)?,
        None => None,
    };
    match committed {
        Some(proof) => Ok(proof),
        None => Ok(Salvage::take(view, id, attempt, &limits, copied, chrono::Utc::now().timestamp())?),
    }
}

/// Takes a task's tree out of use, or puts it aside if the proof is not of all that is in it. Returns what is to be
/// deleted.
pub fn dispose(
    spool: &Spool,
    repo: &Repo,
    view: &View,
    id: &str,
    proof: Salvaged,
) -> anyhow::Result<(Removed, Vec<PathBuf>)> {
    let path = &view.worktree().path;
    let overlay = Overlay::of(spool, id, path);
    let is_overlay = overlay.exists()?;
    if !proof.is_complete() {
        let missing = proof.missing().iter().map(|m| format!("{}: {}", m.path.display(), m.why)).collect();
        let kept = match is_overlay {
            true => overlay.put_aside(spool, id)?,
            false => put_aside(spool, path, id)?,
        };
        let _alone = spool.repo_lock(&repo.key.hash).take()?;
        forget_registration(repo, view.worktree())?;
        return Ok((Removed::Aside(kept, missing), Vec::new()));
    }
    let refname = proof.refname().map(str::to_owned);
    let trash = trash(spool);
    if is_overlay {
        overlay.unmount()?;
    }
    let moved = {
        let _alone = spool.repo_lock(&repo.key.hash).take()?;
        worktree::dispose(repo, view.worktree(), proof, &trash)?
    };
    let mut litter: Vec<PathBuf> = moved.into_iter().collect();
    if is_overlay {
        litter.extend(overlay.take_out(spool)?);
    }
    Ok((Removed::Gone(refname), litter))
}

/// Where removed trees go before they are deleted: on the disk of the workspaces.
pub fn trash(spool: &Spool) -> PathBuf {
    spool.worktrees().join(".trash")
}

/// Moves a tree to `worktrees/.kept/`, where only prune looks.
pub fn put_aside(spool: &Spool, path: &Path, id: &str) -> io::Result<PathBuf> {
    let kept = spool.worktrees().join(".kept");
    durable::ensure_dir(&kept)?;
    loop {
        let to = aside(spool, id);
        match durable::rename_noreplace(path, &to) {
            Ok(()) => return Ok(to),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(e),
        }
    }
}

/// Where the next tree of a task that is put aside goes.
pub fn aside(spool: &Spool, id: &str) -> PathBuf {
    let kept = spool.worktrees().join(".kept");
    let free = |path: &PathBuf| fs::symlink_metadata(path).is_err();
    let mut numbered = (1u32..).map(|n| kept.join(format!("{id}.{n}")));
    numbered.find(free).unwrap_or(kept)
}

/// Removes git's record of a worktree at `path`, whose folder is gone, if there is one.
pub fn forget(spool: &Spool, repo: &Repo, path: &Path) -> anyhow::Result<()> {
    let _alone = spool.repo_lock(&repo.key.hash).take()?;
    if fs::symlink_metadata(path).is_err() && worktree::is_registered(&repo.common, path) {
        worktree::unregister(repo, path)?;
    }
    Ok(())
}

/// Removes git's record of a worktree whose folder is gone.
fn forget_registration(repo: &Repo, tree: &Worktree) -> Result<(), GitError> {
    if tree.git_dir.is_dir() && tree.git_dir.parent() == Some(&repo.common.join("worktrees")) {
        worktree::unregister(repo, &tree.path)?;
    }
    Ok(())
}

/// Puts changed paths of a tree back to the base; the caller has kept what they held.
pub fn restore(view: &View, changes: &[Change]) -> anyhow::Result<()> {
    let root = &view.worktree().path;
    for change in changes {
        let path = root.join(&change.path);
        match fs::symlink_metadata(&path) {
            Ok(meta) if meta.is_dir() => {}
            Ok(_) => fs::remove_file(&path).with_context(|| format!("cannot undo {}", path.display()))?,
            Err(_) => {}
        }
        if change.status == ChangeStatus::Added {
            remove_empty_parents(root, &path);
        }
    }
    let back: Vec<&Path> =
        changes.iter().filter(|c| c.status != ChangeStatus::Added).map(|c| c.path.as_path()).collect();
    git::checkout_paths(view, view.base(), &back)?;
    Ok(())
}

fn remove_empty_parents(root: &Path, path: &Path) {
    let mut folder = path.parent();
    while let Some(dir) = folder.filter(|d| *d != root && d.starts_with(root)) {
        // Only empty ones go: a folder with other files refuses.
        if fs::remove_dir(dir).is_err() {
            break;
        }
        folder = dir.parent();
    }
}
