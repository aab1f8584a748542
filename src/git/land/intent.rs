//! The record of a landing under way.

use super::super::oid::Oid;
use super::{How, Landed, Step, bytes};
use crate::durable;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// How far a landing is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum State {
    /// Nothing that the user can see was touched.
    Staging,
    /// Everything is staged; from here on it goes forward.
    Applying,
    /// It is done, and what was staged can be thrown away.
    Done,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Intent {
    pub version: u32,
    pub state: State,
    pub id: String,
    #[serde(with = "bytes::path")]
    pub top: PathBuf,
    #[serde(with = "bytes::path")]
    pub git_dir: PathBuf,
    /// Where the files are staged, on the checkout's file system.
    #[serde(with = "bytes::path")]
    pub desk: PathBuf,
    pub how: How,
    pub head: Oid,
    /// The ref to move: the current branch, or HEAD where it is detached.
    pub target: String,
    pub tree: Oid,
    pub gated: bool,
    pub commit: Option<Oid>,
    /// Hash of the user's index that the staged one was made from.
    pub index: Option<String>,
    pub steps: Vec<Step>,
}

impl Intent {
    pub(super) fn read(path: &Path) -> io::Result<Option<Intent>> {
        match fs::read(path) {
            Ok(text) => Ok(Some(serde_json::from_slice(&text)?)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    pub(super) fn write(&self, path: &Path) -> io::Result<()> {
        super::pass("land-intent")?;
        durable::replace(path, &serde_json::to_vec(self)?)
    }

    /// Where the index is staged: always in the git dir, since it is renamed into place there.
    pub(super) fn index_desk(&self) -> PathBuf {
        self.git_dir.join(format!("workspool-land-{}", self.id))
    }

    pub(super) fn lock_path(&self) -> PathBuf {
        self.git_dir.join("index.lock")
    }

    /// What our `index.lock` says, so that it is known for ours after a crash.
    pub(super) fn lock_mark(&self) -> String {
        format!("workspool landing {}\n", self.id)
    }

    pub(super) fn landed(&self) -> Landed {
        let branch = self.target.starts_with("refs/").then(|| self.target.clone());
        Landed {
            tree: self.tree.clone(),
            gated: self.gated,
            branch: self.commit.as_ref().and(branch),
            commit: self.commit.clone(),
            paths: self.steps.len(),
        }
    }
}
