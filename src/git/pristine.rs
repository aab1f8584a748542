//! Pristine checkouts: the files of a commit, as a worktree of the repository would have them, in a folder that
//! nobody works in.
//!
//! The index beside it has what the file system said of each file when it was written, the time of its
//! last change of any kind included, which no program can set. An overlay shows the same for a file that was
//! not written to. So a copy of that index serves the trees that are laid over the folder, as the index of
//! a checkout serves that.

use super::bytes;
use super::config;
use super::index;
use super::oid::Oid;
use super::repo::Repo;
use super::runner::{Git, GitError};
use super::trusted;
use super::view::View;
use super::worktree::{self, Worktree};
use crate::durable::{self, GoOn};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Paths that one command names at most; more of them, and it looks at all there are.
const NAMED: usize = 500;

/// What decides, beside the commit, which bytes a checkout has: settings, attributes, sparse patterns.
pub fn settings(repo: &Repo, tree: &Worktree) -> Result<String, GitError> {
    let entries = config::list(&tree.git())?;
    let attributes = trusted::user_file(&entries, &tree.path, "core.attributesfile", "attributes");
    let files = [repo.common.join("info/attributes"), tree.git_dir.join("info/sparse-checkout")];
    let files: Vec<_> = files.into_iter().chain(attributes).collect();
    trusted::rules(&entries, &files).map_err(|e| GitError::io("config", "attributes", &e))
}

/// Fills `folder` with the files of `commit`, by the settings of `tree`, and makes its index.
///
/// No worker may have been at the repository since its settings were read. The index is newer than all
/// files, so that nobody has to read them to see that they are as they were.
pub fn fill(
    tree: &Worktree,
    commit: &Oid,
    (folder, index): (&Path, &Path),
    workers: u32,
    go_on: GoOn<'_>,
) -> Result<(), GitError> {
    let git = Git::at(&tree.git_dir).work_tree(folder).index(index);
    worktree::fill(&git, commit, workers, go_on)?;
    let failed = |e: io::Error| GitError::io("update-index", &index.display().to_string(), &e);
    await_tick(folder).map_err(failed)?;
    let refresh = ["-q", "--really-refresh", "--force-write-index"];
    git.writes("update-index").args(refresh).accepts(&[0, 1]).run().map(drop)
}

/// Waits until the clock of the file system that holds `folder` has moved on.
pub(super) fn await_tick(folder: &Path) -> io::Result<()> {
    let probe = folder.with_file_name(durable::unique_name());
    let mut first = None;
    loop {
        durable::remove_file(&probe)?;
        durable::create_new_unsynced(&probe, b"")?;
        let meta = fs::metadata(&probe)?;
        let now = (meta.mtime(), meta.mtime_nsec());
        if *first.get_or_insert(now) != now {
            return durable::remove_file(&probe);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Gives a tree that shows the files of a pristine checkout the index of that.
pub fn adopt(index: &Path, tree: &Worktree) -> io::Result<()> {
    index::copy(index, &tree.git_dir.join("index"))
}

/// Those of `paths` that are not in the pristine checkout as they were when it was made.
pub fn changed(
    view: &View,
    (folder, index): (&Path, &Path),
    paths: &[&Path],
) -> Result<Vec<PathBuf>, GitError> {
    let git = view.objects().work_tree(folder).index(index);
    let mut call = git
        .reads("ls-files")
        .args(["--modified", "--deleted", "--others", "-z"])
        .env("GIT_LITERAL_PATHSPECS", "1")
        .deadline(Duration::from_secs(600))
        .arg("--");
    if paths.len() <= NAMED {
        call = call.args(paths);
    }
    let out = call.run()?;
    let mut found: Vec<PathBuf> =
        out.split(|b| *b == 0).filter(|p| !p.is_empty()).map(bytes::to_path).collect();
    found.retain(|path| paths.contains(&path.as_path()));
    found.sort();
    found.dedup();
    Ok(found)
}
