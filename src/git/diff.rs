//! What changed between two trees: one definition, in bytes.

use super::bytes;
use super::oid::{ObjectFormat, Oid};
use super::runner::{Call, Git, GitError, GitErrorKind};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fs::File;
use std::path::PathBuf;
use std::time::Duration;

/// What happened to a path. A rename is a deletion and an addition: a rule about paths sees both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeStatus {
    /// It was not there.
    Added,
    /// Its content or mode is another.
    Modified,
    /// It is no longer there.
    Deleted,
    /// It is another kind of thing: file, link, submodule.
    TypeChanged,
}

/// One changed path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// The path in the tree.
    #[serde(with = "bytes::path")]
    pub path: PathBuf,
    /// What happened.
    pub status: ChangeStatus,
    /// Git's mode before; 0 if it was not there.
    pub old_mode: u32,
    /// Git's mode after; 0 if it is not there.
    pub new_mode: u32,
    /// The content before.
    pub old: Option<Oid>,
    /// The content after.
    pub new: Option<Oid>,
    /// Lines added; absent for binary content.
    pub added: Option<u64>,
    /// Lines deleted; absent for binary content.
    pub deleted: Option<u64>,
}

impl Change {
    /// Whether a submodule is changed, added or removed.
    pub fn is_submodule(&self) -> bool {
        self.old_mode == 0o160_000 || self.new_mode == 0o160_000
    }
}

const DIFF_DEADLINE: Duration = Duration::from_secs(600);

/// Begins a comparison whose answer depends on the two trees and nothing else.
///
/// There is no work tree, and attributes come from the empty tree (git 2.41 and later): a
/// `.gitattributes` that a worker wrote does not hide its lines.
fn compare(git: &Git, format: ObjectFormat) -> Call {
    git.reads("diff-tree")
        .args(["-r", "--no-renames", "--no-ext-diff", "--no-textconv", "--no-color", "--no-relative"])
        .env("GIT_ATTR_SOURCE", format.empty_tree())
        .env("GIT_ATTR_NOSYSTEM", "1")
        .config("core.bare", "true")
        .config("core.attributesFile", "/dev/null")
        .deadline(DIFF_DEADLINE)
}

/// Lists the changed paths of two trees or commits, in git's order.
pub(super) fn changed(
    git: &Git,
    format: ObjectFormat,
    old: &Oid,
    new: &Oid,
) -> Result<Vec<Change>, GitError> {
    let out = compare(git, format)
        .args(["-z", "--raw", "--no-abbrev", "--numstat", old.as_str(), new.as_str()])
        .run()?;
    parse(&out)
        .ok_or_else(|| GitError::own("diff-tree", GitErrorKind::Other, "an answer that could not be read"))
}

/// Lists the changed paths without counting lines, which reads no content.
pub(super) fn changed_paths(git: &Git, old: &Oid, new: &Oid) -> Result<Vec<Change>, GitError> {
    let out = git
        .reads("diff-tree")
        .args(["-r", "--no-renames", "-z", "--raw", "--no-abbrev", old.as_str(), new.as_str()])
        .run()?;
    parse(&out)
        .ok_or_else(|| GitError::own("diff-tree", GitErrorKind::Other, "an answer that could not be read"))
}

/// Writes the patch between two trees or commits.
pub(super) fn patch(
    git: &Git,
    format: ObjectFormat,
    old: &Oid,
    new: &Oid,
    file: &File,
) -> Result<(), GitError> {
    compare(git, format)
        .args(["-p", "--binary", "--full-index", "--unified=3", "--inter-hunk-context=0"])
        .args(["--diff-algorithm=myers", "--indent-heuristic", "--submodule=short"])
        .args(["--src-prefix=a/", "--dst-prefix=b/", old.as_str(), new.as_str()])
        .run_to(file)
}

/// Reads the raw records, then the counts.
fn parse(out: &[u8]) -> Option<Vec<Change>> {
    let mut words = out.split(|b| *b == 0).filter(|w| !w.is_empty()).peekable();
    let mut changes = Vec::new();
    while let Some(record) = words.next_if(|w| w.starts_with(b":")) {
        let path = bytes::to_path(words.next()?);
        let record = std::str::from_utf8(&record[1..]).ok()?;
        let mut fields = record.split(' ');
        let mut mode = || u32::from_str_radix(fields.next()?, 8).ok();
        let (old_mode, new_mode) = (mode()?, mode()?);
        let mut oid = || Oid::parse(fields.next()?.as_bytes());
        let (old, new) = (oid()?, oid()?);
        let status = match fields.next()?.as_bytes().first()? {
            b'A' => ChangeStatus::Added,
            b'M' => ChangeStatus::Modified,
            b'D' => ChangeStatus::Deleted,
            b'T' => ChangeStatus::TypeChanged,
            _ => return None,
        };
        let (old, new) = (Some(old).filter(|o| !o.is_null()), Some(new).filter(|o| !o.is_null()));
        changes.push(Change { path, status, old_mode, new_mode, old, new, added: None, deleted: None });
    }
    let places: HashMap<PathBuf, usize> =
        changes.iter().enumerate().map(|(at, change)| (change.path.clone(), at)).collect();
    for word in words {
        let mut fields = word.splitn(3, |b| *b == b'\t');
        let mut count = || fields.next().map(|f| std::str::from_utf8(f).ok().and_then(|f| f.parse().ok()));
        let (added, deleted) = (count()?, count()?);
        let change = places.get(&bytes::to_path(fields.next()?)).map(|at| &mut changes[*at])?;
        (change.added, change.deleted) = (added, deleted);
    }
    // A change of mode alone has no count: nothing was added.
    for change in &mut changes {
        if change.old == change.new {
            (change.added, change.deleted) = (Some(0), Some(0));
        }
    }
    Some(changes)
}
