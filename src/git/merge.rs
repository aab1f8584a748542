//! Three-way merges of trees in the object store: no checkout, no index, no merge driver.

use super::bytes;
use super::oid::{ObjectFormat, Oid};
use super::repo::Repo;
use super::runner::{Git, GitError, GitErrorKind};
use super::view::{Identity, commit};
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// What a merge of trees came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Merged {
    /// They go together.
    Tree(Oid),
    /// They do not, in these paths.
    Conflict(Vec<PathBuf>),
}

impl Repo {
    /// Merges two trees whose common ancestor is `base`.
    ///
    /// It is done in a git dir of our own, so that no driver and no setting of anybody's takes part.
    /// The commits that git wants for it are made up: the base is then the one that is named, whatever
    /// the histories say, and git before 2.40 will do.
    pub fn merge_trees(&self, base: &Oid, left: &Oid, right: &Oid) -> Result<Merged, GitError> {
        let dir = tempfile::tempdir().map_err(|e| GitError::io("merge-tree", "a temporary folder", &e))?;
        isolated(dir.path(), self.format)
            .map_err(|e| GitError::io("merge-tree", &dir.path().display().to_string(), &e))?;
        let git = Git::at(dir.path()).objects(self.common.join("objects"));
        let ours = Identity::ours();
        let made = |tree: &Oid, parents: &[Oid]| commit(&git, tree, parents, "workspool merge", &ours, 0);
        let base = made(base, &[])?;
        let left = made(left, std::slice::from_ref(&base))?;
        let right = made(right, std::slice::from_ref(&base))?;
        let (status, out) = git
            .writes("merge-tree")
            .args(["--write-tree", "-z", "--name-only", "--no-messages", left.as_str(), right.as_str()])
            .env("GIT_INDEX_FILE", dir.path().join("no-index"))
            .env("GIT_ATTR_SOURCE", self.format.empty_tree())
            .env("GIT_ATTR_NOSYSTEM", "1")
            .config("core.bare", "true")
            .config("core.attributesFile", "/dev/null")
            .config("merge.directoryRenames", "false")
            .config("merge.conflictStyle", "merge")
            .config("merge.renormalize", "false")
            .config("merge.renames", "true")
            .config("merge.renameLimit", "7000")
            .accepts(&[0, 1])
            .status()?;
        let mut words = out.split(|b| *b == 0);
        let tree = words.next().and_then(Oid::parse);
        if status == 1 {
            let paths: BTreeSet<PathBuf> = words.filter(|w| !w.is_empty()).map(bytes::to_path).collect();
            return Ok(Merged::Conflict(paths.into_iter().collect()));
        }
        let odd = || GitError::own("merge-tree", GitErrorKind::Other, "no tree in its answer");
        tree.map(Merged::Tree).ok_or_else(odd)
    }
}

/// Makes a git dir with nothing in it.
fn isolated(dir: &Path, format: ObjectFormat) -> io::Result<()> {
    fs::create_dir(dir.join("refs"))?;
    fs::write(dir.join("HEAD"), "ref: refs/heads/none\n")?;
    let config = match format {
        ObjectFormat::Sha1 => "[core]\n\trepositoryformatversion = 0\n",
        ObjectFormat::Sha256 => {
            "[core]\n\trepositoryformatversion = 1\n[extensions]\n\tobjectformat = sha256\n"
        }
    };
    fs::write(dir.join("config"), config)
}
