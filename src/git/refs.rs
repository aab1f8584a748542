//! The refs of a repository, read without a process where they are files.
//!
//! Anything can stand wherever a worker can write, so only regular files are read, and no more than a sane repository
//! has. What is not plain is left to git: another storage (`reftable`), links, or more than is read here.

use super::clone::{MOST_TIPS, read};
use super::repo::Repo;
use super::runner::GitError;
use super::{Oid, bytes};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use walkdir::WalkDir;

/// How many refs may lead to each other (SYMREF_MAXDEPTH of git).
const DEPTH: usize = 5;

/// All refs, a line each: object, name, and for a symbolic one what it stands for, as `for-each-ref` prints them.
pub(super) fn listing(repo: &Repo) -> Result<Vec<u8>, GitError> {
    match plain(&repo.common) {
        Ok(Some(listing)) => Ok(listing),
        Ok(None) | Err(_) => {
            repo.shared().reads("for-each-ref").args(["--format=%(objectname) %(refname) %(symref)"]).run()
        }
    }
}

/// What the files say; `None` if the refs are not in files.
fn plain(common: &Path) -> io::Result<Option<Vec<u8>>> {
    let is_link = |path: &Path| path.symlink_metadata().is_ok_and(|meta| meta.is_symlink());
    let [refs, packed] = ["refs", "packed-refs"].map(|name| common.join(name));
    if common.join("reftable").exists() || !refs.is_dir() || is_link(&refs) || is_link(&packed) {
        return Ok(None);
    }
    // Loose ones first: one that is packed meanwhile is then found in the other place.
    let mut loose = BTreeMap::new();
    for entry in WalkDir::new(&refs).min_depth(1) {
        let entry = entry.map_err(io::Error::from)?;
        if entry.file_type().is_symlink() || loose.len() > MOST_TIPS {
            return Ok(None);
        }
        if !entry.file_type().is_file() {
            continue;
        }
        let path = entry.into_path();
        let name = bytes::of_path(path.strip_prefix(common).unwrap_or(&path)).to_vec();
        let content = if name.ends_with(b".lock") { Vec::new() } else { read(&path)? };
        // An empty one was packed or removed just now.
        if !content.is_empty() {
            loose.insert(name, content);
        }
    }
    let mut refs: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    for line in read(&packed)?.split(|b| *b == b'\n') {
        // Not the header, and not what a tag leads to.
        if let Some(at) = line.iter().position(|b| *b == b' ').filter(|_| !line.starts_with(b"#")) {
            refs.insert(line[at + 1..].to_vec(), line[..at].to_vec());
        }
    }
    refs.append(&mut loose);
    let mut listing = Vec::new();
    for (name, content) in &refs {
        let Some(oid) = lead(&refs, content) else { continue };
        let target = target(content).unwrap_or_default();
        for part in [oid.as_str().as_bytes(), b" ", name, b" ", target, b"\n"] {
            listing.extend_from_slice(part);
        }
    }
    Ok(Some(listing))
}

/// The object that a ref with this content leads to. Git passes over one that leads nowhere, too.
fn lead(refs: &BTreeMap<Vec<u8>, Vec<u8>>, content: &[u8]) -> Option<Oid> {
    let mut content = content;
    for _ in 0..DEPTH {
        match target(content) {
            None => return Oid::parse(content.trim_ascii()).filter(|oid| !oid.is_null()),
            Some(next) => content = refs.get(next)?,
        }
    }
    None
}

/// The name of the ref that a symbolic one stands for.
fn target(content: &[u8]) -> Option<&[u8]> {
    content.strip_prefix(b"ref:").map(<[u8]>::trim_ascii)
}
