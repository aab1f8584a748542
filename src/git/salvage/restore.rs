//! Puts a salvage into a new folder.

use super::super::bytes;
use super::super::oid::Oid;
use super::super::repo::Repo;
use super::super::runner::{Git, GitError, GitErrorKind};
use super::collect::{DEADLINE, DOT_GIT};
use super::failed;
use crate::durable;
use std::fs;
use std::io;
use std::path::Path;

/// Restores the commit of a salvage into `into`, which must not be there.
pub(super) fn restore(repo: &Repo, commit: &Oid, into: &Path) -> Result<(), GitError> {
    let parent = into.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let parent = parent.canonicalize().map_err(|e| failed(parent, &e))?;
    let into = parent.join(into.file_name().unwrap_or_default());
    if fs::symlink_metadata(&into).is_ok() {
        let text = format!("{} is there already", into.display());
        return Err(GitError::own("restore", GitErrorKind::Other, text));
    }
    // Beside the goal, and renamed to it at the end: it is whole or not there.
    let desk = parent.join(durable::unique_name());
    let made = fill(repo, commit, &desk)
        .and_then(|()| durable::rename_noreplace(&desk.join("files"), &into).map_err(|e| failed(&into, &e)));
    durable::remove_dir_all(&desk).map_err(|e| failed(&desk, &e))?;
    made
}

fn fill(repo: &Repo, commit: &Oid, desk: &Path) -> Result<(), GitError> {
    let (files, empty) = (desk.join("files"), desk.join("empty"));
    for folder in [&files, &empty] {
        durable::ensure_dir(folder).map_err(|e| failed(folder, &e))?;
    }
    let tree = format!("{commit}:tree");
    let git = repo.shared().work_tree(&empty);
    write_files(&git, desk, "index", &tree, &files, &tree)?;
    let raw = format!("{commit}:raw");
    let args = ["--verify", "--quiet", "--end-of-options", &raw];
    let there = repo.shared().reads("rev-parse").args(args).accepts(&[0, 1, 128]).run()?;
    if let Some(raw) = Oid::parse(&there) {
        write_files(&git, desk, "raw-index", raw.as_str(), &files, repo.format.empty_tree())?;
        revive(&files).map_err(|e| failed(&files, &e))?;
    }
    Ok(())
}

/// Writes the files of a tree below `files`, converted as the attributes of `attributes` say.
fn write_files(
    git: &Git,
    desk: &Path,
    index: &str,
    tree: &str,
    files: &Path,
    attributes: &str,
) -> Result<(), GitError> {
    let git = git.clone().index(desk.join(index));
    git.writes("read-tree").arg(tree).run()?;
    let mut prefix = b"--prefix=".to_vec();
    prefix.extend_from_slice(bytes::of_path(files));
    prefix.push(b'/');
    let call = git
        .writes("checkout-index")
        .args(["--all", "--force", "--quiet"])
        .arg(bytes::to_path(&prefix))
        .env("GIT_ATTR_SOURCE", attributes)
        .deadline(DEADLINE);
    let raw = index == "raw-index";
    let call = if raw { call.config("core.autocrlf", "false") } else { call };
    call.run().map(drop)
}

/// Gives git dirs their name back, and the empty folders without which git does not know them.
fn revive(files: &Path) -> io::Result<()> {
    let mut folders = vec![files.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            let mut path = entry.path();
            if entry.file_name() == DOT_GIT {
                let named = folder.join(".git");
                durable::rename_noreplace(&path, &named)?;
                path = named;
                if path.join("HEAD").is_file() {
                    durable::ensure_dir(&path.join("refs"))?;
                    durable::ensure_dir(&path.join("objects"))?;
                }
            }
            if fs::symlink_metadata(&path)?.is_dir() {
                folders.push(path);
            }
        }
    }
    Ok(())
}
