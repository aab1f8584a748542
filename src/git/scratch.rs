//! Scratch trees: a commit checked out where no worker ever works, to verify it in.
//!
//! What a verification leaves there can be made again, so a scratch tree may be thrown away without
//! a proof. It is marked as one in the reason for its lock, which tells it from a task's tree after a
//! crash.

use super::oid::Oid;
use super::repo::Repo;
use super::runner::GitError;
use super::view::View;
use super::worktree::{Worktree, register, take_out};
use crate::durable::GoOn;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// How the reason for the lock of a scratch tree begins.
pub(super) const REASON: &str = "workspool scratch";

/// A tree that may be thrown away.
#[derive(Debug)]
pub struct Scratch {
    tree: Worktree,
}

impl Scratch {
    /// Registers a scratch tree for a commit, on no branch. The caller holds the repository's lock.
    pub fn add(repo: &Repo, path: &Path, commit: &Oid) -> Result<Scratch, GitError> {
        let tree = register(repo, path, &["--detach"], commit.as_str(), REASON, "")?;
        Ok(Scratch { tree })
    }

    /// Finds a scratch tree that an earlier process made; fails for any other tree.
    pub fn at(repo: &Repo, path: &Path) -> io::Result<Scratch> {
        let tree = Worktree::at(repo, path, "")?;
        let reason = fs::read(tree.git_dir.join("locked"))?;
        if reason.starts_with(REASON.as_bytes()) {
            Ok(Scratch { tree })
        } else {
            Err(io::Error::other(format!("{} is not a scratch tree", path.display())))
        }
    }

    /// Fills it, through the task's view: a worker may have planted a filter. No lock is needed.
    pub fn fill(&self, view: &View, commit: &Oid, workers: u32, go_on: GoOn<'_>) -> Result<(), GitError> {
        view.fill(&self.tree, commit, workers, go_on)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.tree.path
    }

    /// Throws it away: into `trash`, on the same file system. The caller holds the repository's lock.
    pub fn discard(self, repo: &Repo, trash: &Path) -> Result<Option<PathBuf>, GitError> {
        take_out(repo, &self.tree, trash)
    }
}
