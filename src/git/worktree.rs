//! Worktrees of our own: one for each task, on a branch of its own, at a path that never changes.
//!
//! [`add`] and [`dispose`] change the shared git dir and want the repository's lock held; filling the
//! tree, which takes the time, does not. A worktree is used only after [`Worktree::verify`]: a folder
//! that is not registered would resolve to the repository around it, and a commit would land there.

use super::index::Index;
use super::oid::{ObjectFormat, Oid};
use super::repo::Repo;
use super::runner::{FULL, Git, GitError, GitErrorKind};
use super::salvage::Salvaged;
use super::{bytes, scratch};
use crate::durable::{self, GoOn};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A tree, its own git dir and its branch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Worktree {
    /// The tree.
    #[serde(with = "bytes::path")]
    pub path: PathBuf,
    /// Its git dir: `<common>/worktrees/<name>`, or a repository's only one.
    #[serde(with = "bytes::path")]
    pub git_dir: PathBuf,
    /// The full name of its branch.
    pub branch: String,
}

/// What to do about the branch of a new worktree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnBranch {
    /// Make it; it must not be there.
    New,
    /// Take it as it is, with what an earlier attempt committed.
    Existing,
    /// Put it to the base, whatever it was; the caller has kept what it held.
    Reset,
}

/// A worktree as git lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Where it is, or was.
    pub path: PathBuf,
    /// Its branch.
    pub branch: String,
    /// Its commit.
    pub head: Option<Oid>,
    /// Why it is locked, if it is.
    pub locked: Option<String>,
    /// Whether its folder is gone.
    pub gone: bool,
}

/// Registers a worktree at `path`, with nothing in it yet. The caller holds the repository's lock.
///
/// A registration that an earlier attempt left at the same path, with the folder gone, is replaced.
pub fn add(
    repo: &Repo,
    path: &Path,
    id: &str,
    base: &Oid,
    on: OnBranch,
    reason: &str,
) -> Result<Worktree, GitError> {
    let name = format!("workspool/{id}");
    check_name(&name)?;
    let reason = if reason.is_empty() { "workspool" } else { reason };
    let base = base.as_str();
    let (options, start): (&[&str], &str) = match on {
        OnBranch::New => (&["--no-track", "-b", &name], base),
        OnBranch::Reset => (&["--no-track", "-B", &name], base),
        OnBranch::Existing => (&[], &name),
    };
    register(repo, path, options, start, reason, &format!("refs/heads/{name}"))
}

/// Registers a worktree: the one place that does.
pub(super) fn register(
    repo: &Repo,
    path: &Path,
    options: &[&str],
    start: &str,
    reason: &str,
    branch: &str,
) -> Result<Worktree, GitError> {
    let parent = path.parent().unwrap_or(Path::new("/"));
    let io = |what: &str, e: &io::Error| GitError::io("worktree", what, e);
    durable::ensure_dir(parent).map_err(|e| io(&parent.display().to_string(), &e))?;
    let parent = parent.canonicalize().map_err(|e| io(&parent.display().to_string(), &e))?;
    let path = parent.join(path.file_name().unwrap_or_default());
    if bytes::of_path(&path).contains(&b'\n') {
        return Err(GitError::own("worktree", GitErrorKind::Other, "a line break in the path"));
    }
    if fs::symlink_metadata(&path).is_err() && is_registered(&repo.common, &path) {
        unregister(repo, &path)?;
    }
    repo.shared()
        .writes("worktree")
        .args(["add", "--no-checkout", "--lock", "--reason", reason])
        .args(options)
        .arg("--")
        .arg(&path)
        .arg(start)
        .run()?;
    Worktree::at(repo, &path, branch).map_err(|e| io("the new worktree", &e))
}

impl Worktree {
    /// Finds the worktree of `repo` that is registered at `path`, and verifies it.
    pub fn at(repo: &Repo, path: &Path, branch: &str) -> io::Result<Worktree> {
        let link = fs::symlink_metadata(path.join(".git"))?;
        if !link.is_file() {
            return Err(io::Error::other("its .git is not a file"));
        }
        let link = fs::read(path.join(".git"))?;
        let git_dir = link.strip_prefix(b"gitdir: ").map(|p| bytes::to_path(p.trim_ascii_end()));
        let git_dir = git_dir.ok_or_else(|| io::Error::other("its .git names no git dir"))?;
        let tree = Worktree { path: path.to_owned(), git_dir, branch: branch.to_owned() };
        tree.verify(repo)?;
        Ok(tree)
    }

    /// Whether its git dir is its own and lies in it: a clone.
    pub fn is_clone(&self) -> bool {
        self.git_dir == self.path.join(".git")
    }

    /// Whether `repo` knows nothing of it: a clone, or a copy whose git dir is a repository of ours.
    pub fn is_apart(&self, repo: &Repo) -> bool {
        self.is_clone() || (repo.bare && self.git_dir == repo.common)
    }

    /// Whether its git dir lies in `repo`, which knows of it: a git worktree.
    pub fn is_registered_in(&self, repo: &Repo) -> bool {
        self.git_dir.parent() == Some(&repo.common.join("worktrees"))
    }

    /// Verifies that the folder is there, is a folder, and is registered with `repo` as itself.
    ///
    /// Reads four small files and starts no process. A worker may have deleted the tree's `.git`:
    /// reading the tree through its view needs none of this.
    pub fn verify(&self, repo: &Repo) -> io::Result<()> {
        let wrong = |what: &str| io::Error::other(format!("{}: {what}", self.path.display()));
        if !fs::symlink_metadata(&self.path)?.is_dir() {
            return Err(wrong("not a folder"));
        }
        let worktrees = repo.common.join("worktrees");
        if self.git_dir.parent().and_then(|p| p.canonicalize().ok()) != worktrees.canonicalize().ok() {
            return Err(wrong("its git dir is not a worktree's of the repository"));
        }
        let line = |path: PathBuf| fs::read(path).map(|text| bytes::to_path(text.trim_ascii_end()));
        let back = line(self.git_dir.join("gitdir"))?;
        let there = back.parent().and_then(|p| p.canonicalize().ok());
        if there.is_none() || there != self.path.canonicalize().ok() {
            return Err(wrong("registered for another path"));
        }
        let common = self.git_dir.join(line(self.git_dir.join("commondir"))?);
        if common.canonicalize()? != repo.common {
            return Err(wrong("its git dir belongs to another repository"));
        }
        let link = fs::read(self.path.join(".git"))?;
        let link = link.strip_prefix(b"gitdir: ").map(|p| bytes::to_path(p.trim_ascii_end()));
        if link.as_deref() != Some(&self.git_dir) {
            return Err(wrong("its .git names another git dir"));
        }
        Ok(())
    }

    /// Names the tree's own git dir, tree and index.
    pub fn git(&self) -> Git {
        Git::at(&self.git_dir).work_tree(&self.path).index(self.git_dir.join("index"))
    }

    /// Reads what the tree was filled with, while no worker has been at it.
    pub fn index(&self, format: ObjectFormat) -> io::Result<Index> {
        Index::read(&self.git_dir.join("index"), format)
    }

    /// Fills the tree with the files of `base`. No lock is needed; sparse patterns are kept to.
    ///
    /// The user's configuration counts, so this is only for a tree in a repository that no worker has
    /// been at since; afterwards it is [`View::fill`](super::View::fill). `workers` files are written
    /// at a time (0: as many as there are cores).
    pub fn fill(&self, base: &Oid, workers: u32, go_on: GoOn<'_>) -> Result<(), GitError> {
        fill(&self.git(), base, workers, go_on)
    }
}

/// Whoever fills a tree stops it sooner.
pub(super) const FILL_DEADLINE: Duration = Duration::from_secs(24 * 3600);
/// Files up to which a checkout by one process is faster: to start its helpers takes about as long as to write so many.
const FEW: u32 = 500;

/// Fills a named tree and index.
pub(super) fn fill(git: &Git, commit: &Oid, workers: u32, go_on: GoOn<'_>) -> Result<(), GitError> {
    git.writes("read-tree")
        .args(["--reset", "-u", "--no-recurse-submodules", commit.as_str()])
        .config("checkout.workers", workers.to_string())
        .config("checkout.thresholdForParallelism", FEW.to_string())
        .deadline(FILL_DEADLINE)
        .run_while(go_on)
        .map(drop)
        .map_err(|e| told_of_room(git, commit, e))
}

/// Git says that it could not write a file, and not why; by then it may have made room again.
fn told_of_room(git: &Git, commit: &Oid, mut error: GitError) -> GitError {
    let listing = ["-r", "-l", "-z", commit.as_str()];
    if let Some(tree) = git.tree()
        && error.stderr.contains("unable to")
        && let Ok(space) = durable::free_space(tree)
        && let Ok(files) = git.reads("ls-tree").args(listing).run()
    {
        let sizes = files.split(|b| *b == 0).filter_map(|line| {
            // Mode, type, name and size, then a tab and the path.
            let meta = line.split(|b| *b == b'\t').next()?;
            std::str::from_utf8(meta).ok()?.rsplit(' ').next()?.parse::<u64>().ok()
        });
        let wanted: u64 = sizes.sum();
        if wanted > space.free {
            let text =
                format!("{}: {FULL}: {} bytes are free, the files take {wanted}", tree.display(), space.free);
            error.stderr = format!("{}\n{text}", error.stderr.trim_end());
        }
    }
    error
}

/// Lists the worktrees on branches of ours, and scratch trees.
pub fn list_ours(repo: &Repo) -> Result<Vec<Listed>, GitError> {
    let out = repo.shared().reads("worktree").args(["list", "--porcelain", "-z"]).run()?;
    let mut all: Vec<Listed> = Vec::new();
    for line in out.split(|b| *b == 0) {
        let (word, rest) = match line.iter().position(|b| *b == b' ') {
            Some(at) => (&line[..at], &line[at + 1..]),
            None => (line, &line[line.len()..]),
        };
        let text = || String::from_utf8_lossy(rest).into_owned();
        match (word, all.last_mut()) {
            (b"worktree", _) => all.push(Listed {
                path: bytes::to_path(rest),
                branch: String::new(),
                head: None,
                locked: None,
                gone: false,
            }),
            (b"HEAD", Some(last)) => last.head = Oid::parse(rest).filter(|oid| !oid.is_null()),
            (b"branch", Some(last)) => last.branch = text(),
            (b"locked", Some(last)) => last.locked = Some(text()),
            _ => {}
        }
    }
    let by_us = |tree: &Listed| tree.locked.as_deref().is_some_and(|why| why.starts_with(scratch::REASON));
    all.retain(|tree| tree.branch.starts_with(super::BRANCHES) || by_us(tree));
    // Git does not call a locked worktree prunable, so its folder is looked for here.
    all.iter_mut().for_each(|tree| tree.gone = fs::symlink_metadata(&tree.path).is_err());
    Ok(all)
}

/// Takes a worktree out of use: the tree is renamed into `trash`, which lies on the same file system,
/// and the registration is removed. Returns where the tree is now, for [`delete_tree`].
///
/// The proof that all of it is kept elsewhere is used up (I7). The caller holds the repository's lock.
/// A tree that is gone already is as good; links are not followed.
pub fn dispose(
    repo: &Repo,
    tree: &Worktree,
    proof: Salvaged,
    trash: &Path,
) -> Result<Option<PathBuf>, GitError> {
    check_proof(tree, proof)?;
    take_out(repo, tree, trash)
}

/// Like [`dispose`], with a place for the tree, at which nothing is and whose folder is there: it is to be
/// used again. Says whether there was a tree.
pub fn hand_over(repo: &Repo, tree: &Worktree, proof: Salvaged, to: &Path) -> Result<bool, GitError> {
    check_proof(tree, proof)?;
    move_out(repo, tree, to)
}

fn check_proof(tree: &Worktree, proof: Salvaged) -> Result<(), GitError> {
    if proof.tree() != tree.path || !proof.is_complete() {
        return Err(GitError::own("worktree", GitErrorKind::Other, "the proof is not for this tree"));
    }
    Ok(())
}

/// Moves a tree into the trash and removes its registration, if it has one.
pub(super) fn take_out(repo: &Repo, tree: &Worktree, trash: &Path) -> Result<Option<PathBuf>, GitError> {
    durable::ensure_dir(trash).map_err(|e| GitError::io("worktree", &trash.display().to_string(), &e))?;
    let aside = trash.join(durable::unique_name());
    Ok(move_out(repo, tree, &aside)?.then_some(aside))
}

fn move_out(repo: &Repo, tree: &Worktree, aside: &Path) -> Result<bool, GitError> {
    let registered = tree.is_registered_in(repo);
    if !registered && !tree.is_apart(repo) {
        let text = "not a worktree of this repository";
        return Err(GitError::own("worktree", GitErrorKind::Other, text));
    }
    let io = |what: &Path, e: &io::Error| GitError::io("worktree", &what.display().to_string(), e);
    let moved = match durable::rename_noreplace(&tree.path, aside) {
        Ok(()) => true,
        Err(e) if e.kind() == io::ErrorKind::NotFound => false,
        Err(e) => return Err(io(&tree.path, &e)),
    };
    if registered && tree.git_dir.is_dir() {
        // Git finds the entry by the path in it, which a worker may have changed.
        let (entry, path) = (tree.git_dir.join("gitdir"), tree.path.join(".git"));
        let right = [bytes::of_path(&path), b"\n"].concat();
        if fs::read(&entry).ok().as_ref() != Some(&right) {
            durable::replace(&entry, &right).map_err(|e| io(&entry, &e))?;
        }
        unregister(repo, &tree.path)?;
    }
    Ok(moved)
}

/// Deletes a tree that [`dispose`] moved away, folders without write permission too. Links are not followed.
pub fn delete_tree(path: &Path) -> io::Result<()> {
    match durable::remove_dir_all(path) {
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
            // Package caches make their folders read-only.
            let mut folders = vec![path.to_owned()];
            while let Some(folder) = folders.pop() {
                fs::set_permissions(&folder, fs::Permissions::from_mode(0o700))?;
                for entry in fs::read_dir(&folder)? {
                    let entry = entry?;
                    if entry.file_type()?.is_dir() {
                        folders.push(entry.path());
                    }
                }
            }
            durable::remove_dir_all(path)
        }
        other => other,
    }
}

/// Removes the registration of a worktree whose folder is not at `path` any more.
pub fn unregister(repo: &Repo, path: &Path) -> Result<(), GitError> {
    repo.shared()
        .writes("worktree")
        // Twice: though it is locked, and though it has submodules.
        .args(["remove", "--force", "--force", "--"])
        .arg(path)
        .run()
        .map(drop)
}

/// Says whether a repository knows of a worktree at `path`.
pub fn is_registered(common: &Path, path: &Path) -> bool {
    let Ok(entries) = fs::read_dir(common.join("worktrees")) else { return false };
    let wanted = path.join(".git");
    entries.filter_map(Result::ok).any(|entry| {
        fs::read(entry.path().join("gitdir"))
            .is_ok_and(|line| bytes::to_path(line.trim_ascii_end()) == wanted)
    })
}

/// Refuses a branch name that git would refuse, or take for something else, without asking it.
pub(super) fn check_name(name: &str) -> Result<(), GitError> {
    let part = |part: &str| {
        !part.is_empty() && !part.starts_with(['.', '-']) && !part.ends_with('.') && !part.ends_with(".lock")
    };
    let odd = |c: char| c.is_control() || " ~^:?*[\\\u{7f}".contains(c);
    let good =
        name.split('/').all(part) && !name.contains(odd) && !name.contains("..") && !name.contains("@{");
    if good && name != "@" && name != "HEAD" {
        return Ok(());
    }
    let text = format!("{name:?} cannot be a branch name");
    Err(GitError::own("check-ref-format", GitErrorKind::BadRevision, text))
}
