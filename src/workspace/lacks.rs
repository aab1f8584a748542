//! What a workspace lacks against the user's checkout: looked up when it is made, and told with the result,
//! so that nobody wonders why a task did not see what is on the screen.

use super::rules::leaves;
use crate::git::{Oid, Repo};
use crate::worker::env;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// Names that a line gives.
const NAMED: usize = 5;

/// Says what a tree filled with `start` lacks. `copied` came along beside it. A look that fails is told, too:
/// it is no reason not to work.
pub fn of_tree(repo: &Repo, tree: &Path, start: &Oid, copied: &[PathBuf], is_clone: bool) -> Vec<String> {
    let mut found = Vec::new();
    if let Err(e) = checkout(repo, copied, &mut found) {
        found.push(format!("the checkout could not be compared: {e}"));
    }
    if let Err(e) = committed(repo, tree, start, &mut found) {
        found.push(format!("the commit could not be looked through: {e}"));
    }
    let hooks = hooks(repo);
    if !hooks.is_empty() {
        let more = if is_clone { ", and none is in the clone" } else { "" };
        found.push(format!("hooks did not run on the commit of the result{more}: {}", named(&hooks)));
    }
    if repo.shallow {
        found.push("the repository is a shallow clone: its history is cut off".into());
    }
    if repo.git_dir.join("info/sparse-checkout").is_file() && is_sparse(repo) {
        found.push("the checkout is sparse: what it leaves out is not in the workspace either".into());
    }
    found
}

/// What is in the checkout and in no commit.
fn checkout(repo: &Repo, copied: &[PathBuf], found: &mut Vec<String>) -> Result<(), crate::git::GitError> {
    let (Some(git), Some(top)) = (repo.checkout(), &repo.top) else { return Ok(()) };
    let out = git
        .reads("status")
        .args(["--porcelain=v1", "-z", "--no-renames", "--untracked-files=normal"])
        .args(["--ignored=traditional", "--ignore-submodules=all"])
        .run()?;
    let (mut changed, mut untracked, mut ignored, mut nested) = (vec![], vec![], vec![], vec![]);
    for record in out.split(|b| *b == 0).filter(|r| r.len() > 3) {
        let path = Path::new(std::ffi::OsStr::from_bytes(&record[3..]));
        let came_along = copied.iter().any(|c| c == path);
        let is_repository = record.ends_with(b"/") && top.join(path).join(".git").exists();
        match &record[..2] {
            _ if came_along => {}
            b"??" | b"!!" if is_repository => nested.push(path.to_owned()),
            b"??" => untracked.push(path.to_owned()),
            b"!!" => ignored.push(path.to_owned()),
            _ => changed.push(path.to_owned()),
        }
    }
    for (paths, what) in [
        (changed, "changes that are not committed"),
        (untracked, "files that git does not track"),
        (ignored, "files that git ignores, unless a setup command makes them or `copy` names them"),
        (nested, "repositories inside the checkout"),
    ] {
        if !paths.is_empty() {
            found.push(format!("{what}: {}", named(&paths)));
        }
    }
    Ok(())
}

/// What is in the commit and is not in the workspace as a person may expect it.
fn committed(
    repo: &Repo,
    tree: &Path,
    start: &Oid,
    found: &mut Vec<String>,
) -> Result<(), crate::git::GitError> {
    let out = repo.shared().reads("ls-tree").args(["-r", "-z", "--full-tree", start.as_str()]).run()?;
    let (mut modules, mut links, mut lfs) = (Vec::new(), Vec::new(), false);
    for record in out.split(|b| *b == 0) {
        let Some(tab) = record.iter().position(|b| *b == b'\t') else { continue };
        let path = Path::new(std::ffi::OsStr::from_bytes(&record[tab + 1..]));
        if record.starts_with(b"160000 ") {
            modules.push(path.to_owned());
        } else if record.starts_with(b"120000 ")
            && fs::read_link(tree.join(path)).is_ok_and(|target| leaves(path, &target))
        {
            links.push(path.to_owned());
        } else if path.file_name().is_some_and(|n| n == ".gitattributes") {
            lfs |= fs::read(tree.join(path)).is_ok_and(|t| memchr::memmem::find(&t, b"filter=lfs").is_some());
        }
    }
    if !modules.is_empty() {
        found.push(format!("submodules are empty unless a setup command fills them: {}", named(&modules)));
    }
    if !links.is_empty() {
        found.push(format!("links that lead out of the tree point elsewhere than in the checkout, or to what is not the workspace's: {}", named(&links)));
    }
    if lfs && env::find_executable("git-lfs").is_none() {
        found.push(
            "the repository uses git-lfs, which is not installed: large files are pointers in the workspace"
                .into(),
        );
    }
    Ok(())
}

/// Hooks that git would run for the user.
fn hooks(repo: &Repo) -> Vec<PathBuf> {
    let entries = fs::read_dir(repo.common.join("hooks")).into_iter().flatten().flatten();
    let runs = |path: &Path| {
        let known = ["pre-commit", "prepare-commit-msg", "commit-msg", "post-commit", "post-checkout"];
        path.file_name().is_some_and(|n| known.iter().any(|k| n == *k))
            && path.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
    };
    let mut found: Vec<PathBuf> =
        entries.filter(|e| runs(&e.path())).map(|e| PathBuf::from(e.file_name())).collect();
    found.sort_unstable();
    found
}

fn is_sparse(repo: &Repo) -> bool {
    let Some(git) = repo.checkout() else { return false };
    let asked =
        git.reads("config").args(["--type=bool", "--get", "core.sparseCheckout"]).accepts(&[0, 1]).run();
    asked.is_ok_and(|answer| answer.trim_ascii() == b"true")
}

fn named(paths: &[PathBuf]) -> String {
    let names: Vec<String> =
        paths.iter().take(NAMED).map(|p| super::manifest::shown(p.as_os_str().as_bytes())).collect();
    let more = paths.len().saturating_sub(NAMED);
    names.join(", ") + &if more > 0 { format!(" and {more} more") } else { String::new() }
}
