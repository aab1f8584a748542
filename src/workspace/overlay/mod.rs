//! Overlays as workspaces: a git worktree whose files are those of a checkout that many share, until it is
//! written to.
//!
//! ```text
//! worktrees/.overlay/
//! ├── base/<repository>/<what>.<n>/   a checkout: tree/, index; spoiled, if somebody wrote to it
//! └── tasks/<id>/                     upper/ (what the task wrote), work/ (the kernel's), base (its name)
//! ```
//!
//! The mount at the task's path is seen by the supervisor, its keepers and what they run, and by nobody else; it
//! is gone when the last of them is. What was written stays in `upper/`. While commands run, all of this folder is
//! hidden from them. A checkout is used until the machine is started again: it is never waited for to be on the
//! disk.

mod base;
mod probe;

pub use base::{Checkout, prune, unused};
pub use probe::{probe, probe_here};

use super::worktree::{Wanted, put_aside, trash};
use crate::durable::{self, GoOn};
use crate::git::{Change, Repo, View, Worktree, pristine, worktree};
use crate::process::mounts;
use crate::spool::{AttemptDir, Spool};
use anyhow::{Context as _, bail};
use base::{SPOILED, bases};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The parts of one task's overlay.
#[derive(Debug, Clone)]
pub struct Overlay {
    /// What all overlays of the spool have in common.
    root: PathBuf,
    /// What is this task's own.
    folder: PathBuf,
    /// Where it is seen.
    path: PathBuf,
}

impl Overlay {
    /// Names the parts of a task's overlay, whether it is there or not.
    pub fn of(spool: &Spool, id: &str, path: &Path) -> Overlay {
        let root = root(spool);
        Overlay { folder: root.join("tasks").join(id), root, path: path.to_owned() }
    }

    /// Whether there is one.
    pub fn exists(&self) -> io::Result<bool> {
        // Where all of them are hidden, one was there.
        Ok(self.is_mounted()? || mounts::is_mounted(&self.root)? || self.folder.join("base").exists())
    }

    /// Whether it can be seen by this process.
    pub fn is_mounted(&self) -> io::Result<bool> {
        mounts::is_mounted(&self.path)
    }

    /// Processes elsewhere that see it: of an attempt that ended otherwise than by our doing.
    pub fn seen_by(&self) -> io::Result<Vec<u32>> {
        mounts::elsewhere(&self.path)
    }

    /// Where what the task wrote is.
    pub fn upper(&self) -> PathBuf {
        self.folder.join("upper")
    }

    /// Mounts it, unless it is. This process must be in a namespace of its own.
    pub fn mount(&self) -> anyhow::Result<()> {
        if self.is_mounted()? {
            return Ok(());
        }
        self.show()?;
        let (lower, upper, work) = (self.base()?.join("tree"), self.upper(), self.folder.join("work"));
        for folder in [&upper, &work, &self.path] {
            durable::ensure_dir(folder)?;
        }
        let parts = mounts::Overlay { lower: &lower, upper: &upper, work: &work };
        mounts::overlay(&parts, &self.path)
            .with_context(|| format!("cannot mount the overlay at {}", self.path.display()))
    }

    /// Hides all overlays and what they are made of from the commands of this one.
    pub fn hide(&self) -> anyhow::Result<()> {
        if mounts::is_mounted(&self.root)? {
            return Ok(());
        }
        mounts::hide(&self.root).with_context(|| format!("cannot hide {}", self.root.display()))
    }

    fn show(&self) -> anyhow::Result<()> {
        if mounts::is_mounted(&self.root)? {
            mounts::unmount(&self.root).with_context(|| format!("cannot show {}", self.root.display()))?;
        }
        Ok(())
    }

    /// Takes the mount away; what was written stays in [`Overlay::upper`].
    pub(super) fn unmount(&self) -> anyhow::Result<()> {
        self.show()?;
        if self.is_mounted()? {
            mounts::unmount(&self.path).with_context(|| format!("cannot unmount {}", self.path.display()))?;
        }
        Ok(())
    }

    /// Moves what the task wrote away, to be deleted: the caller has kept it, or nothing ran. It must be unmounted.
    pub(super) fn take_out(&self, spool: &Spool) -> anyhow::Result<Option<PathBuf>> {
        durable::ensure_dir(&trash(spool))?;
        let aside = trash(spool).join(durable::unique_name());
        match durable::rename_noreplace(&self.folder, &aside) {
            Ok(()) => Ok(Some(aside)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e).with_context(|| format!("cannot move {} away", self.folder.display())),
        }
    }

    fn discard(&self, spool: &Spool) -> anyhow::Result<()> {
        match self.take_out(spool)? {
            Some(aside) => {
                worktree::delete_tree(&aside).with_context(|| format!("cannot delete {}", aside.display()))
            }
            None => Ok(()),
        }
    }

    /// Moves what the task wrote to `worktrees/.kept/`, where everybody can see it, and takes the rest away. What
    /// it did not write is in the commit that it was based on.
    pub fn put_aside(&self, spool: &Spool, id: &str) -> anyhow::Result<PathBuf> {
        self.unmount()?;
        // Nothing was written where there is none.
        durable::ensure_dir(&self.upper())?;
        let kept = put_aside(spool, &self.upper(), id)?;
        self.discard(spool)?;
        self.forget_path(spool)?;
        Ok(kept)
    }

    /// Takes away an overlay in which nothing ran.
    pub fn discard_unused(&self, spool: &Spool) -> anyhow::Result<()> {
        self.unmount()?;
        self.discard(spool)?;
        self.forget_path(spool)
    }

    /// Takes away the folder that the mount was on.
    fn forget_path(&self, spool: &Spool) -> anyhow::Result<()> {
        durable::ensure_dir(&trash(spool))?;
        let aside = trash(spool).join(durable::unique_name());
        match durable::rename_noreplace(&self.path, &aside) {
            Ok(()) => Ok(worktree::delete_tree(&aside)?),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(e) => Err(e).with_context(|| format!("cannot move {} away", self.path.display())),
        }
    }

    /// The checkout that it is laid over.
    fn base(&self) -> anyhow::Result<PathBuf> {
        let record = self.folder.join("base");
        let name =
            fs::read_to_string(&record).with_context(|| format!("cannot read {}", record.display()))?;
        let right =
            |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '.');
        match name.split_once('/') {
            Some((repository, what)) if right(repository) && right(what) && !name.contains("..") => {
                Ok(bases(&self.root).join(repository).join(what))
            }
            _ => bail!("{} names no checkout: {name:?}", record.display()),
        }
    }

    /// Which of the changed paths were changed in the shared checkout itself: not by this task. Nobody uses that
    /// checkout again if there are any.
    pub fn spoiled(&self, view: &View, changes: &[Change]) -> anyhow::Result<Vec<PathBuf>> {
        if changes.is_empty() {
            return Ok(Vec::new());
        }
        self.show()?;
        let base = self.base()?;
        let paths: Vec<&Path> = changes.iter().map(|c| c.path.as_path()).collect();
        let spoiled = pristine::changed(view, (&base.join("tree"), &base.join("index")), &paths)?;
        if !spoiled.is_empty() {
            durable::create_new_unsynced(&base.join(SPOILED), b"")?;
        }
        self.hide()?;
        Ok(spoiled)
    }
}

fn root(spool: &Spool) -> PathBuf {
    spool.worktrees().join(".overlay")
}

/// Registers a worktree at the task's path, lays it over the shared checkout of its base, and makes our view of
/// it. This process must be in a namespace of its own.
pub fn prepare(
    spool: &Spool,
    repo: &Repo,
    attempt: &AttemptDir,
    wanted: &Wanted<'_>,
    go_on: GoOn<'_>,
) -> anyhow::Result<Worktree> {
    let Wanted { path, id, base, start, .. } = *wanted;
    let tree = wanted.register(spool, repo)?;
    let overlay = Overlay::of(spool, id, path);
    let checkout = overlay.take_base(spool, repo, &tree, base, go_on)?;
    let upper = overlay.upper();
    durable::ensure_dir(&upper)?;
    fs::set_permissions(&upper, fs::metadata(path)?.permissions())?;
    fs::copy(path.join(".git"), upper.join(".git"))?;
    overlay.mount()?;
    pristine::adopt(&checkout.join("index"), &tree)?;
    if start != base {
        tree.fill(start, 1, go_on)?;
    }
    View::create(&attempt.view(), repo, &tree, base)?;
    Ok(tree)
}
