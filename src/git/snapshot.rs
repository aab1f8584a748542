//! A worker's tree as a git tree, through the view.
//!
//! `add -A` would turn a repository inside the tree into a link to a commit that nobody has, stop at
//! one without a commit, and commit a link named `node_modules` although `node_modules/` is ignored.
//! All three are found first, kept out, and named.

use super::bytes;
use super::oid::Oid;
use super::runner::{Git, GitError};
use super::view::View;
use crate::durable::{self, GoOn};
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A tree as it was, and what of it is not in there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The tree.
    pub tree: Oid,
    /// Repositories inside the tree, and submodules with content: only a salvage keeps them.
    pub nested: Vec<PathBuf>,
    /// Other paths that are not in it though no rule ignores them as they stand.
    pub left_out: Vec<LeftOut>,
}

/// A path that was kept out of a commit or a salvage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// The path.
    #[serde(with = "bytes::path")]
    pub path: PathBuf,
    /// Why.
    pub why: String,
}

/// Reading a large tree takes its time; filters more so.
const ADD_DEADLINE: Duration = Duration::from_secs(1800);

/// What git says is in a tree.
pub(super) struct Listing {
    /// Paths in the index that are files or links.
    pub tracked: Vec<PathBuf>,
    /// Submodules in the index.
    pub gitlinks: Vec<PathBuf>,
    /// Files that are neither tracked nor ignored.
    pub untracked: Vec<PathBuf>,
    /// Repositories that are neither.
    pub repositories: Vec<PathBuf>,
}

pub(super) fn take(view: &View, git: &Git, also: Option<&Oid>) -> Result<Snapshot, GitError> {
    if let Some(also) = also {
        // What matches keeps its stat data, so that nothing is read twice. Without -i git refuses where the
        // worker committed a change of a file that was there before.
        git.writes("read-tree").args(["-i", "-m", also.as_str()]).run()?;
    }
    take_in(&view.record.tree.path, &view.dir, git, &mut || Ok(()))
}

/// Records a folder in the index that `git` names. `desk` is a folder of ours for what is needed meanwhile.
pub(super) fn take_in(folder: &Path, desk: &Path, git: &Git, go_on: GoOn<'_>) -> Result<Snapshot, GitError> {
    let listing = list(git)?;
    let mut nested: Vec<PathBuf> = listing.repositories.clone();
    nested.extend(populated(folder, &listing.gitlinks));
    nested.sort();
    let links = links_at_ignored_folders(folder, desk, git, &listing.untracked)?;
    add(git, nested.iter().chain(&links).map(PathBuf::as_path), go_on)?;
    let tree = git.writes("write-tree").oid()?;
    let why = "a link where the ignore rules exclude a folder";
    let left_out = links.into_iter().map(|path| LeftOut { path, why: why.into() }).collect();
    Ok(Snapshot { tree, nested, left_out })
}

/// Lists what the index has and what is beside it, in one process.
pub(super) fn list(git: &Git) -> Result<Listing, GitError> {
    let out = git
        .reads("ls-files")
        .args(["-t", "--stage", "--others", "--exclude-standard", "-z"])
        .deadline(ADD_DEADLINE)
        .run()?;
    let mut listing = Listing {
        tracked: Vec::new(),
        gitlinks: Vec::new(),
        untracked: Vec::new(),
        repositories: Vec::new(),
    };
    for record in out.split(|b| *b == 0) {
        if let Some(other) = record.strip_prefix(b"? ") {
            match other.strip_suffix(b"/") {
                Some(repository) => listing.repositories.push(bytes::to_path(repository)),
                None => listing.untracked.push(bytes::to_path(other)),
            }
        } else if let Some(tab) = record.iter().position(|b| *b == b'\t') {
            let path = bytes::to_path(&record[tab + 1..]);
            if record[2..].starts_with(b"160000 ") {
                listing.gitlinks.push(path);
            } else {
                listing.tracked.push(path);
            }
        }
    }
    Ok(listing)
}

/// Adds everything but some paths to the index.
pub(super) fn add<'a>(
    git: &Git,
    except: impl Iterator<Item = &'a Path>,
    go_on: GoOn<'_>,
) -> Result<(), GitError> {
    let mut specs = Vec::new();
    for path in except {
        specs.extend_from_slice(b":(top,exclude,literal)");
        specs.extend_from_slice(bytes::of_path(path));
        specs.push(0);
    }
    // Outside the sparse cone too: content must not vanish.
    let mut call = git.writes("add").args(["--all", "--sparse"]).deadline(ADD_DEADLINE);
    if !specs.is_empty() {
        call = call.args(["--pathspec-from-file=-", "--pathspec-file-nul"]).stdin(specs);
    }
    call.run_while(go_on).map(drop)
}

/// Submodules with something in them. Git would run git inside, with a configuration that the worker
/// can write; and their content is not in our tree anyway.
pub(super) fn populated<'a>(tree: &'a Path, gitlinks: &'a [PathBuf]) -> impl Iterator<Item = PathBuf> + 'a {
    let has_content = |path: &&PathBuf| {
        let path = tree.join(path);
        fs::symlink_metadata(&path).is_ok_and(|m| m.is_dir())
            && fs::read_dir(&path).is_ok_and(|mut entries| entries.next().is_some())
    };
    gitlinks.iter().filter(has_content).cloned()
}

/// Finds the untracked links that would be ignored if they were folders.
///
/// Git is asked, in a scratch tree where they are: no second reading of the ignore rules.
fn links_at_ignored_folders(
    tree: &Path,
    desk: &Path,
    git: &Git,
    untracked: &[PathBuf],
) -> Result<Vec<PathBuf>, GitError> {
    let is_link = |path: &&PathBuf| fs::symlink_metadata(tree.join(path)).is_ok_and(|m| m.is_symlink());
    let links: Vec<&PathBuf> = untracked.iter().filter(is_link).collect();
    if links.is_empty() {
        return Ok(Vec::new());
    }
    let scratch = desk.join(durable::unique_name());
    let asked = build_scratch(tree, &scratch, &links)
        .map_err(|e| GitError::io("check-ignore", &scratch.display().to_string(), &e))
        .and_then(|()| {
            let mut names = Vec::new();
            for link in &links {
                names.extend_from_slice(bytes::of_path(link));
                names.push(0);
            }
            let git = git.clone().work_tree(&scratch);
            git.reads("check-ignore")
                .args(["--stdin", "-z", "--no-index"])
                .stdin(names)
                .accepts(&[0, 1])
                .run()
        });
    durable::remove_dir_all(&scratch).map_err(|e| GitError::io("check-ignore", "scratch", &e))?;
    Ok(asked?.split(|b| *b == 0).filter(|w| !w.is_empty()).map(bytes::to_path).collect())
}

fn build_scratch(tree: &Path, scratch: &Path, links: &[&PathBuf]) -> io::Result<()> {
    durable::ensure_dir(scratch)?;
    for link in links {
        durable::ensure_dir(&scratch.join(link))?;
        for above in link.ancestors().skip(1) {
            let rules = above.join(OsStr::new(".gitignore"));
            let (from, to) = (tree.join(&rules), scratch.join(&rules));
            if fs::symlink_metadata(&from).is_ok_and(|m| m.is_file()) && fs::symlink_metadata(&to).is_err() {
                fs::copy(from, to)?;
            }
        }
    }
    Ok(())
}
