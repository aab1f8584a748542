//! Repositories of our own that stand for a folder, so that work in a copy of it has a base, a diff and a
//! commit, and lands like any other.
//!
//! Nothing of it lies in the folder or in the copy. Content is taken byte for byte: no filter, no change of
//! line ends, whatever the folder's attributes say; its `.gitignore` files count. [`record`] makes a commit
//! of a folder as it is: of the copy before work begins, and of the user's folder before a change lands,
//! which is then merged as if that were a checkout.

use super::bytes;
use super::oid::Oid;
use super::repo::{Head, Repo, RepoError};
use super::runner::{Git, GitError};
use super::snapshot;
use super::view::{Identity, commit};
use super::worktree::Worktree;
use crate::durable::{self, GoOn};
use std::fs;
use std::io;
use std::path::Path;

/// Byte for byte, whatever attributes in the folder say: these come before them.
const ATTRIBUTES: &[u8] = b"* -text -filter -ident -working-tree-encoding\n";

/// Opens the repository at `dir`, or makes it. Folders with a name in `never` are no part of what it records.
pub fn ensure(dir: &Path, never: &[String]) -> Result<Repo, RepoError> {
    let io = |e: io::Error| RepoError::Git(GitError::io("shadow", &dir.display().to_string(), &e));
    if !fs::read(dir.join("HEAD")).is_ok_and(|head| Oid::parse(&head).is_some()) {
        durable::ensure_dir(dir).map_err(io)?;
        Git::at(dir).writes("init").args(["--quiet", "--bare", "--template="]).run()?;
        durable::ensure_dir(&dir.join("info")).map_err(io)?;
        durable::replace(&dir.join("info/attributes"), ATTRIBUTES).map_err(io)?;
        let mut exclude = Vec::new();
        never.iter().for_each(|name| exclude.extend([name.as_bytes(), b"/\n"].concat()));
        durable::replace(&dir.join("info/exclude"), &exclude).map_err(io)?;
        // HEAD last: with it, the repository is whole.
        let git = Git::at(dir);
        let empty = git.writes("mktree").stdin("").oid()?;
        let first = commit(&git, &empty, &[], "workspool: nothing yet", &Identity::ours(), 0)?;
        durable::replace(&dir.join("HEAD"), format!("{first}\n").as_bytes()).map_err(io)?;
    }
    Repo::open(dir)
}

/// Names a folder as a tree of the repository.
pub fn tree(repo: &Repo, folder: &Path, branch: &str) -> Worktree {
    Worktree { path: folder.to_owned(), git_dir: repo.common.clone(), branch: branch.to_owned() }
}

/// Makes a commit of what a folder holds, and puts HEAD and the index there.
///
/// Repositories inside it are left out, as they are of a copy.
pub fn record(
    repo: &Repo,
    folder: &Path,
    message: &str,
    seconds: i64,
    go_on: GoOn<'_>,
) -> Result<Oid, GitError> {
    let index = repo.common.join("index");
    let failed = |e: io::Error| GitError::io("shadow", &index.display().to_string(), &e);
    let git = Git::at(&repo.common).work_tree(folder).index(&index);
    durable::remove_file(&index).map_err(failed)?;
    git.writes("read-tree").arg("--empty").run()?;
    let tree = snapshot::take_in(folder, &repo.common, &git, go_on)?.tree;
    let made = commit(&git, &tree, &[], message, &Identity::ours(), seconds)?;
    durable::replace(&repo.common.join("HEAD"), format!("{made}\n").as_bytes()).map_err(failed)?;
    Ok(made)
}

/// The folder as the checkout of the repository, at the commit that [`record`] made of it.
pub fn checkout(repo: &Repo, folder: &Path, head: &Oid) -> Repo {
    Repo {
        top: Some(folder.to_owned()),
        bare: false,
        head: head.clone(),
        head_ref: Head::Detached,
        ..repo.clone()
    }
}

/// Files in a recorded folder that are ignored: they are there, and in no commit.
pub fn ignored(repo: &Repo, folder: &Path) -> Result<Vec<std::path::PathBuf>, GitError> {
    let out = Git::at(&repo.common)
        .work_tree(folder)
        .index(repo.common.join("index"))
        .reads("ls-files")
        .args(["--others", "--ignored", "--exclude-standard", "-z"])
        .run()?;
    Ok(out.split(|b| *b == 0).filter(|p| !p.is_empty()).map(bytes::to_path).collect())
}
