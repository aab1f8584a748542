//! A used tree made equal to a commit again, so that another task may work in it.
//!
//! Nothing is believed that a worker could have written: not the tree's own index, where a file can be marked
//! as unchanged, not what is in its git dir, and no time of a file that a program can set. What a file holds is
//! known by its [`Stamps`], from before the worker began; what is beside the files of the commit goes, ignored
//! or not, and so does whatever stands where a folder of the commit should be.

use super::bytes;
use super::index::{self, Index};
use super::oid::Oid;
use super::pristine;
use super::runner::{Git, GitError};
use super::view::View;
use super::walk::{Folder, Manner, Walk};
use super::worktree::{self, FILL_DEADLINE, Worktree};
use crate::durable::{self, GoOn};
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::time::SystemTime;

/// What git noted of each file of a tree: an index as it was when nothing foreign ran.
///
/// A file of which size, inode and the times of its last write and of its last change are still the same
/// holds what it held. A program may set the first of the two times and not the second, which is the kernel's. So
/// whoever keeps this keeps it in memory, where no worker can write.
#[derive(Debug, Clone)]
pub struct Stamps {
    what: Oid,
    index: Vec<u8>,
    written: SystemTime,
}

impl Stamps {
    /// Takes them of a tree that was just filled with `commit`.
    pub fn of(tree: &Worktree, commit: &Oid) -> io::Result<Stamps> {
        Stamps::read(&tree.git_dir.join("index"), commit)
    }

    /// Takes them of a view's tree that was just recorded as `snapshot`.
    pub fn of_snapshot(view: &View, snapshot: &Oid) -> io::Result<Stamps> {
        Stamps::read(&view.dir.join("index"), snapshot)
    }

    fn read(index: &Path, what: &Oid) -> io::Result<Stamps> {
        let written = fs::metadata(index)?.modified()?;
        Ok(Stamps { what: what.clone(), index: fs::read(index)?, written })
    }

    /// The commit that the tree was filled with, or the tree that it was recorded as.
    pub fn what(&self) -> &Oid {
        &self.what
    }

    /// Whether nothing in a tree was touched since, and nothing is in there beside, but for the link to its git dir.
    pub(super) fn hold(&self, tree: &Path) -> io::Result<bool> {
        self.are_all(tree, Manner::Looks)
    }

    fn are_all(&self, tree: &Path, manner: Manner) -> io::Result<bool> {
        let index = self.entries()?;
        let beside = tree.parent().unwrap_or(tree);
        let walk = Walk::new(&index, self.written(), Folder::made_in(beside)?, manner);
        let found = walk.through(tree)?;
        Ok(found.foreign == 0 && found.differing.is_empty())
    }

    fn entries(&self) -> io::Result<Index> {
        Index::of(self.index.clone(), self.what.format())
    }

    fn written(&self) -> (i64, i64) {
        let since = self.written.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        (since.as_secs().cast_signed(), i64::from(since.subsec_nanos()))
    }
}

/// Makes a tree that nobody works in any more equal to the commit that it was filled with.
///
/// `tree` names where it stands now and a folder of ours for its index; its own git dir is out of use. `now` is
/// what is in it, where a [`Salvaged::untouched`](super::Salvaged::untouched) was just proved by it: nobody has to look
/// again. Fails if there is something in it that cannot be removed or put right: then it is of no use. Costs 1
/// process, if any file differs.
pub fn make_ready(
    view: &View,
    tree: &Worktree,
    stamps: &Stamps,
    now: Option<&Stamps>,
    go_on: GoOn<'_>,
) -> Result<(), GitError> {
    let path = tree.git_dir.join("index");
    let failed = |e: io::Error| GitError::io("reuse", &tree.path.display().to_string(), &e);
    index::put(&path, &stamps.index, stamps.written).map_err(failed)?;
    durable::fault::point("strip").map_err(failed)?;
    let index = stamps.entries().map_err(failed)?;
    let differing = match now {
        Some(now) => remove_extra(&tree.path, &index, stamps.written(), now),
        None => strip(tree, &index, stamps.written()),
    };
    let differing = differing.map_err(failed)?;
    if differing.is_empty() {
        return Ok(());
    }
    // Git compares whole seconds, and would leave what changed within the one in which it was written.
    for name in &differing {
        durable::remove_file(&tree.path.join(bytes::as_path(name))).map_err(failed)?;
    }
    let is_attributes = |name: &&[u8]| name.rsplit(|b| *b == b'/').next() == Some(b".gitattributes");
    if differing.iter().any(is_attributes) {
        // They decide how others are written, which a checkout of all takes from the commit.
        view.fill(tree, &stamps.what, 1, go_on)?;
    } else {
        let names = [differing.join(&0), vec![0]].concat();
        let git = view.objects().work_tree(&tree.path).index(&path);
        git.writes("checkout-index")
            .args(["--force", "--index", "--quiet", "-z", "--stdin"])
            .stdin(names)
            .deadline(FILL_DEADLINE)
            .run_while(go_on)?;
    }
    // So that the index is newer than each file, and tells of every change to come.
    pristine::await_tick(&path)
        .and_then(|()| File::options().write(true).open(&path)?.set_modified(SystemTime::now()))
        .map_err(failed)
}

/// Removes all that does not belong into a tree; returns the files that are not there, or not as they were.
fn strip<'a>(tree: &Worktree, index: &'a Index, written: (i64, i64)) -> io::Result<Vec<&'a [u8]>> {
    // What a folder is like that git makes here.
    let folder = Folder::made_in(&tree.git_dir)?;
    Ok(Walk::new(index, written, folder, Manner::Strips).through(&tree.path)?.differing)
}

/// The same where it is known what is in the tree, and that its folders are as they should be.
fn remove_extra<'a>(
    tree: &Path,
    index: &'a Index,
    written: (i64, i64),
    now: &Stamps,
) -> io::Result<Vec<&'a [u8]>> {
    let there = now.entries()?;
    let (mut extra, mut differing) = (Vec::new(), Vec::new());
    // Both are in the order of their names.
    let mut there = there.entries().peekable();
    for entry in index.entries() {
        while let Some(other) = there.next_if(|other| other.name < entry.name) {
            extra.push(other);
        }
        let same = there.next_if(|same| same.name == entry.name);
        if !same.is_some_and(|same| entry.is_noted_as(&same, written)) {
            differing.push(entry.name);
        }
    }
    extra.extend(there);
    durable::remove_file(&tree.join(".git"))?;
    for extra in extra {
        let path = tree.join(extra.path());
        if extra.is_module() {
            fs::remove_dir(&path)?;
        } else {
            durable::remove_file(&path)?;
        }
        let above = path.ancestors().skip(1).take_while(|folder| *folder != tree);
        for folder in above {
            match fs::remove_dir(folder) {
                Ok(()) => {}
                Err(e) if e.kind() == io::ErrorKind::DirectoryNotEmpty => break,
                Err(e) => return Err(e),
            }
        }
    }
    Ok(differing)
}

/// Gives a tree that was made ready, now at `from` with its index beside it, to the worktree `to`, which was
/// just registered and never filled, and moves it from `commit` to `start`. Says whether it did.
///
/// The tree is looked at before it takes its place. If it is not exactly `start` then, it does not get it,
/// and `to` is as it was. Costs no process if the commits are the same, 3 if they differ.
pub fn take_over(
    from: &Worktree,
    commit: &Oid,
    to: &Worktree,
    start: &Oid,
    workers: u32,
    go_on: GoOn<'_>,
) -> Result<bool, GitError> {
    let failed = |e: io::Error| GitError::io("reuse", &from.path.display().to_string(), &e);
    let index = to.git_dir.join("index");
    index::copy(&from.git_dir.join("index"), &index).map_err(failed)?;
    // With the settings of the new tree, whose git dir no worker has seen.
    let git = Git::at(&to.git_dir).work_tree(&from.path).index(&index);
    let taken = (|| {
        if commit == start {
            let noted = Stamps::read(&index, start).map_err(failed)?;
            if !noted.are_all(&from.path, Manner::LooksAtBare).map_err(failed)? {
                return Ok(false);
            }
        } else {
            if !same_attributes(&git, commit, start)? {
                return Ok(false);
            }
            worktree::fill(&git, start, workers, go_on)?;
            if !is_exact(&git, go_on)? {
                return Ok(false);
            }
        }
        let link = fs::read(to.path.join(".git")).map_err(failed)?;
        if !durable::create_new_unsynced(&from.path.join(".git"), &link).map_err(failed)? {
            return Ok(false);
        }
        durable::exchange(&from.path, &to.path).map_err(failed)?;
        Ok(true)
    })();
    if !matches!(taken, Ok(true)) {
        durable::remove_file(&index).map_err(failed)?;
    }
    taken
}

/// Whether a tree is what its index says, and has nothing beside: no file, ignored or not, and no folder.
fn is_exact(git: &Git, go_on: GoOn<'_>) -> Result<bool, GitError> {
    let list = ["--modified", "--others", "--directory", "-z"];
    Ok(git.reads("ls-files").args(list).run_while(go_on)?.is_empty())
}

/// Whether two commits have the same attributes: others may write files differently that did not change.
fn same_attributes(git: &Git, one: &Oid, other: &Oid) -> Result<bool, GitError> {
    let args = ["-r", "--quiet", one.as_str(), other.as_str(), "--", ":(top,glob)**/.gitattributes"];
    let (status, _) = git.reads("diff-tree").args(args).accepts(&[0, 1]).status()?;
    Ok(status == 0)
}
