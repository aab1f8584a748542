//! What is in the checkout and in no commit, or otherwise than git writes it anew.

use super::named;
use crate::git::{GitError, Index, Repo};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long git may look through the checkout. Nobody's work waits longer for a line of a report.
const PATIENCE: Duration = Duration::from_secs(20);

/// The checkout as it was when a workspace was made.
#[derive(Debug, Default)]
pub struct Checkout {
    changed: Vec<PathBuf>,
    untracked: Vec<PathBuf>,
    ignored: Vec<PathBuf>,
    nested: Vec<PathBuf>,
    index: Option<Index>,
    unknown: Option<String>,
}

impl Checkout {
    /// Looks: one git process, and the index.
    pub(super) fn look(repo: &Repo) -> Checkout {
        let mut found = Checkout::default();
        if let Err(e) = found.status(repo) {
            found = Checkout::unknown(&e.to_string());
        }
        // One that cannot be read is git's to put together: then the forms of files are not compared.
        found.index = repo.index().and_then(Result::ok);
        found
    }

    /// A checkout of which nothing is known.
    pub(super) fn unknown(why: &str) -> Checkout {
        Checkout { unknown: Some(why.to_owned()), ..Checkout::default() }
    }

    fn status(&mut self, repo: &Repo) -> Result<(), GitError> {
        let (Some(git), Some(top)) = (repo.checkout(), &repo.top) else { return Ok(()) };
        let out = git
            .reads("status")
            .args(["--porcelain=v1", "-z", "--no-renames", "--untracked-files=normal"])
            .args(["--ignored=traditional", "--ignore-submodules=all"])
            .deadline(PATIENCE)
            .run()?;
        for record in out.split(|b| *b == 0).filter(|r| r.len() > 3) {
            let path = Path::new(OsStr::from_bytes(&record[3..]));
            let is_repository = record.ends_with(b"/") && top.join(path).join(".git").exists();
            let list = match &record[..2] {
                b"??" | b"!!" if is_repository => &mut self.nested,
                b"??" => &mut self.untracked,
                b"!!" => &mut self.ignored,
                _ => &mut self.changed,
            };
            list.push(path.to_owned());
        }
        Ok(())
    }

    /// What is in the checkout and in no commit, but for what came along.
    pub(super) fn lines(&self, copied: &[PathBuf]) -> Vec<String> {
        let mut lines = Vec::new();
        if let Some(why) = &self.unknown {
            lines.push(format!("the checkout could not be compared: {why}"));
        }
        for (paths, what) in [
            (&self.changed, "changes that are not committed"),
            (&self.untracked, "files that git does not track"),
            (&self.ignored, "files that git ignores, unless a setup command makes them or `copy` names them"),
            (&self.nested, "repositories inside the checkout"),
        ] {
            let paths: Vec<&PathBuf> = paths.iter().filter(|path| !copied.contains(path)).collect();
            if !paths.is_empty() {
                lines.push(format!("{what}: {}", named(&paths)));
            }
        }
        lines
    }

    /// Files that are the same to git, and not on the disk: those whose sizes both indexes know to differ.
    pub(super) fn other_form(&self, tree: &Index) -> Option<String> {
        let mut theirs = self.index.as_ref()?.entries().peekable();
        let mut found = Vec::new();
        for ours in tree.entries() {
            while theirs.next_if(|t| t.name < ours.name).is_some() {}
            let Some(theirs) = theirs.next_if(|t| t.name == ours.name) else { continue };
            let is_file = ours.mode & 0o170_000 == 0o100_000 && ours.mode == theirs.mode;
            let known = ours.size != 0 && theirs.size != 0 && !ours.left_out && !theirs.left_out;
            if is_file && known && ours.oid == theirs.oid && ours.size != theirs.size {
                found.push(ours.path());
            }
        }
        let what = "files that the checkout has in another form (line endings, encoding, a filter)";
        (!found.is_empty()).then(|| format!("{what}: {}", named(&found)))
    }
}
