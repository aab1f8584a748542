//! Our trusted view of a worker's tree (I14).
//!
//! A worktree shares configuration, attributes and hooks with the repository, and a worker can write
//! them: `filter.clean` alone would run its command in our own `add`. So before the worker starts, a
//! git dir of our own is made, with copies of what decides content (configuration, excludes,
//! attributes, sparse patterns, the fresh index). Afterwards the tree is read only through it, with
//! the repository's object store, and never through the tree's own `.git`, which may be gone.
//!
//! System and global configuration are in the copy, since a worker of the same user can write the
//! latter; git reads neither from here. Remotes are kept only where a partial clone must fetch from one.

use super::bytes;
use super::clone;
use super::config::{self, Entry};
use super::diff::{self, Change};
use super::index;
use super::oid::{ObjectFormat, Oid};
use super::repo::{Repo, tree_of};
use super::runner::{Git, GitError, GitErrorKind};
use super::settings::Settings;
use super::snapshot::{self, LeftOut, Snapshot};
use super::trusted::{self, own_files};
use super::worktree::{self, Worktree};
use crate::durable::{self, GoOn};
use crate::model::hex;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Who a commit is by.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The name.
    pub name: String,
    /// The mail address.
    pub email: String,
}

impl Identity {
    /// Ours, where the repository has none.
    pub fn ours() -> Identity {
        Identity { name: "workspool".into(), email: "workspool@localhost".into() }
    }

    pub(super) fn of(entries: &[Entry]) -> Identity {
        let last = |keys: [&str; 2]| {
            let find =
                |key: &str| entries.iter().rev().find(|e| e.key == key).and_then(|e| e.value.as_deref());
            let value = keys.iter().find_map(|key| find(key)).map(String::from_utf8_lossy)?;
            // What git itself would drop or refuse in an identity.
            let value: String = value.chars().filter(|c| !c.is_control() && !"<>".contains(*c)).collect();
            (!value.trim().is_empty()).then(|| value.trim().to_owned())
        };
        match (last(["author.name", "user.name"]), last(["author.email", "user.email"])) {
            (Some(name), Some(email)) => Identity { name, email },
            _ => Identity::ours(),
        }
    }
}

/// What a view records about itself, in `view.json`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Record {
    pub tree: Worktree,
    #[serde(with = "bytes::path")]
    pub common: PathBuf,
    pub base: Oid,
    pub format: ObjectFormat,
    pub identity: Identity,
    #[serde(default)]
    pub settings: Settings,
    /// Hash of what decides how a commit's files are written: see [`View::rules`].
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub rules: String,
}

/// A git dir of ours through which a worker's tree is read.
#[derive(Debug, Clone)]
pub struct View {
    pub(super) dir: PathBuf,
    pub(super) record: Record,
}

/// Files that, with the index, make a view what it is.
const FIXED: [&str; 8] = [
    "HEAD",
    "config",
    "info/exclude",
    "info/attributes",
    "info/sparse-checkout",
    "excludes",
    "attributes",
    "shallow",
];

/// What the view says of itself.
pub(super) const RECORD: &str = "view.json";

impl View {
    /// The files of the view at `dir` that never change, as far as it has them.
    pub fn fixed_files(dir: &Path) -> Vec<PathBuf> {
        FIXED.into_iter().chain([RECORD]).map(|name| dir.join(name)).filter(|path| path.is_file()).collect()
    }

    /// Makes the view of a tree that was just filled with `base`, before any foreign command runs there.
    ///
    /// `dir` must not be there, or is an unfinished view of the same attempt, which is made anew.
    pub fn create(dir: &Path, repo: &Repo, tree: &Worktree, base: &Oid) -> Result<View, GitError> {
        let failed = |e: io::Error| GitError::io("view", &dir.display().to_string(), &e);
        // A clone has a copy of the settings; they are read where they came from.
        let source = if tree.is_clone() { Git::at(&repo.git_dir) } else { tree.git() };
        let entries = config::list(&source)?;
        durable::remove_dir_all(dir).map_err(failed)?;
        let mut record = Record {
            tree: tree.clone(),
            common: repo.common.clone(),
            base: base.clone(),
            format: repo.format,
            identity: Identity::of(&entries),
            settings: Settings::of(&entries),
            rules: String::new(),
        };
        trusted::write(dir, &mut record, &entries).map_err(failed)?;
        Ok(View { dir: dir.to_owned(), record })
    }

    /// Opens a view that was made before.
    pub fn open(dir: &Path) -> io::Result<View> {
        let record = serde_json::from_slice(&fs::read(dir.join(RECORD))?)?;
        Ok(View { dir: dir.to_owned(), record })
    }

    /// Makes the view of a later attempt in the same tree, from this one.
    ///
    /// A worker has been at the repository since, so nothing is read from there again. `base` is what
    /// the later attempt starts from; the first snapshot reads every file.
    pub fn renew(&self, dir: &Path, base: &Oid) -> Result<View, GitError> {
        let failed = |e: io::Error| GitError::io("view", &dir.display().to_string(), &e);
        durable::remove_dir_all(dir).map_err(failed)?;
        let record = Record { base: base.clone(), ..self.record.clone() };
        let made = || {
            durable::ensure_dir(&dir.join("info"))?;
            durable::ensure_dir(&dir.join("refs"))?;
            for name in FIXED {
                match fs::read(self.dir.join(name)) {
                    Ok(bytes) => durable::replace_unsynced(&dir.join(name), &bytes)?,
                    Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                    Err(e) => return Err(e),
                }
            }
            // Later settings win over earlier ones.
            let mut text = fs::read(self.dir.join("config"))?;
            text.extend(config::write(&own_files(dir)));
            durable::replace_unsynced(&dir.join("config"), &text)?;
            durable::replace_unsynced(&dir.join("HEAD"), format!("{base}\n").as_bytes())?;
            durable::replace_unsynced(&dir.join(RECORD), &serde_json::to_vec_pretty(&record)?)
        };
        made().map_err(failed)?;
        let view = View { dir: dir.to_owned(), record: record.clone() };
        view.forget_index()?;
        Ok(view)
    }

    /// Returns a tree like `tree`, but with these changes (of `base` against `tree`) undone.
    ///
    /// This is how protected paths are put back before verification. Costs 3 processes.
    pub fn without(&self, tree: &Oid, undone: &[Change]) -> Result<Oid, GitError> {
        if undone.is_empty() {
            return Ok(tree.clone());
        }
        let index = self.dir.join(durable::unique_name());
        let git = self.objects().index(&index);
        let mut lines = Vec::new();
        let (gone, back): (Vec<&Change>, Vec<&Change>) = undone.iter().partition(|c| c.old.is_none());
        for change in gone.into_iter().chain(back) {
            let line = match &change.old {
                Some(oid) => format!("{:o} {oid}\t", change.old_mode),
                None => format!("0 {}\t", tree.null()),
            };
            lines.extend_from_slice(line.as_bytes());
            lines.extend_from_slice(bytes::of_path(&change.path));
            lines.push(0);
        }
        let made = git
            .writes("read-tree")
            .arg(tree.as_str())
            .config("core.sparseCheckout", "false")
            .run()
            .and_then(|_| git.writes("update-index").args(["-z", "--index-info"]).stdin(lines).run())
            .and_then(|_| git.writes("write-tree").oid());
        durable::remove_file(&index).map_err(|e| GitError::io("view", "index", &e))?;
        made
    }

    /// Fills another tree of the repository with a commit, with the settings that the view trusts.
    pub fn fill(&self, tree: &Worktree, commit: &Oid, workers: u32, go_on: GoOn<'_>) -> Result<(), GitError> {
        let git = self.objects().work_tree(&tree.path).index(tree.git_dir.join("index"));
        worktree::fill(&git, commit, workers, go_on)
    }

    /// Returns the tree of a commit.
    pub fn tree_of(&self, commit: &Oid) -> Result<Oid, GitError> {
        tree_of(&self.objects(), commit)
    }

    /// Returns the hash of all that the view trusts, for whoever keeps it where no worker can write.
    ///
    /// The index is not part of it: it changes with each snapshot, and only costs time if it is wrong,
    /// except that a forged one could hide a change; see [`View::forget_index`].
    pub fn fingerprint(&self) -> io::Result<String> {
        let mut hash = Sha256::new();
        for name in FIXED.into_iter().chain([RECORD]) {
            let content = match fs::read(self.dir.join(name)) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => None,
                other => Some(other?),
            };
            let size = content.as_ref().map_or(-1, |c| i64::try_from(c.len()).unwrap_or(i64::MAX));
            hash.update(format!("{name}\0{size}\0"));
            hash.update(content.unwrap_or_default());
        }
        Ok(hex(&hash.finalize()))
    }

    /// Hash of the settings and attributes that decide what a commit's files look like in a tree: two trees
    /// that were filled with one commit by the same rules are the same.
    pub fn rules(&self) -> &str {
        &self.record.rules
    }

    /// Fills the view's index from the base alone, so that the next snapshot reads every file.
    pub fn forget_index(&self) -> Result<(), GitError> {
        durable::remove_file(&self.dir.join("index")).map_err(|e| GitError::io("view", "index", &e))?;
        self.git().writes("read-tree").arg(self.record.base.as_str()).run().map(drop)
    }

    /// The commit that the tree was filled with.
    pub fn base(&self) -> &Oid {
        &self.record.base
    }

    /// The tree, its git dir and its branch.
    pub fn worktree(&self) -> &Worktree {
        &self.record.tree
    }

    /// Who commits are by: as the repository said before the worker started.
    pub fn identity(&self) -> &Identity {
        &self.record.identity
    }

    /// What the settings said before the worker started.
    pub fn settings(&self) -> &Settings {
        &self.record.settings
    }

    /// The attributes that are not in the tree: the repository's own, and the user's.
    pub fn attributes(&self) -> Vec<Vec<u8>> {
        ["info/attributes", "attributes"]
            .iter()
            .filter_map(|name| fs::read(self.dir.join(name)).ok())
            .collect()
    }

    /// Records the tree as it is now: everything but ignored files. See [`Snapshot`].
    ///
    /// `also` is the worker's own last commit, if it made any: what is tracked there stays tracked,
    /// though it be ignored.
    pub fn snapshot(&self, also: Option<&Oid>) -> Result<Snapshot, GitError> {
        snapshot::take(self, &self.git(), also)
    }

    /// Lists what differs between two trees (or commits): the one definition of "changed".
    pub fn changed(&self, old: &Oid, new: &Oid) -> Result<Vec<Change>, GitError> {
        diff::changed(&self.objects(), self.record.format, old, new)
    }

    /// Writes the patch between two trees (or commits) to `file`, byte-exact, as `git apply` takes it.
    pub fn diff(&self, old: &Oid, new: &Oid, file: &File) -> Result<(), GitError> {
        diff::patch(&self.objects(), self.record.format, old, new, file)
    }

    /// Folders of the tree that the ignore rules exclude as a whole, relative to it.
    pub fn ignored_folders(&self) -> Result<Vec<PathBuf>, GitError> {
        let out = self
            .git()
            .reads("ls-files")
            .args(["--others", "--ignored", "--exclude-standard", "--directory", "-z"])
            .run()?;
        Ok(out.split(|b| *b == 0).filter_map(|p| p.strip_suffix(b"/")).map(bytes::to_path).collect())
    }

    /// Writes the files of a commit into an empty folder, with an index of its own at `index`.
    pub fn export(&self, commit: &Oid, into: &Path, index: &Path, go_on: GoOn<'_>) -> Result<(), GitError> {
        let git = self.objects().work_tree(into).index(index);
        git.writes("read-tree")
            .args(["--reset", "-u", "--no-recurse-submodules", commit.as_str()])
            .deadline(Duration::from_secs(1800))
            .run_while(go_on)
            .map(drop)
    }

    /// Makes a commit object. The same inputs make the same commit, so it may be repeated after a crash.
    pub fn commit(
        &self,
        tree: &Oid,
        parents: &[Oid],
        message: &str,
        by: &Identity,
        seconds: i64,
    ) -> Result<Oid, GitError> {
        commit(&self.objects(), tree, parents, message, by, seconds)
    }

    /// Takes over what a worker committed in a clone; elsewhere there is nothing to take over. Returns where
    /// it left the task's branch, which is `here` in our repository, and what was lost.
    pub fn bring(&self, here: Option<&Oid>) -> Result<(Option<Oid>, Vec<LeftOut>), GitError> {
        if !self.is_clone() {
            return Ok((here.cloned(), Vec::new()));
        }
        let brought = clone::bring(self)?;
        Ok((brought.head, brought.missing))
    }

    /// Whether the tree is a clone of the repository.
    pub(super) fn is_clone(&self) -> bool {
        self.record.tree.is_clone() && !self.record.common.starts_with(&self.record.tree.path)
    }

    /// Reads the commit that the task's branch is at: the base, or the worker's own last commit.
    ///
    /// Costs no process where a file of its own says that the branch is at the base, as it is of a worker that
    /// does not commit.
    pub fn worker_head(&self) -> Result<Option<Oid>, GitError> {
        let own = clone::read(&self.record.common.join(&self.record.tree.branch));
        if own.is_ok_and(|text| Oid::parse(&text).as_ref() == Some(&self.record.base)) {
            return Ok(Some(self.record.base.clone()));
        }
        let name = format!("{}^{{commit}}", self.record.tree.branch);
        let args = ["--verify", "--quiet", "--end-of-options", &name];
        let answer = self.shared().reads("rev-parse").args(args).accepts(&[0, 1, 128]).run()?;
        Ok(Oid::parse(&answer))
    }

    /// Says whether `ancestor` is `descendant` or one of its ancestors.
    pub fn is_ancestor(&self, ancestor: &Oid, descendant: &Oid) -> Result<bool, GitError> {
        let args = ["--is-ancestor", ancestor.as_str(), descendant.as_str()];
        let (status, _) = self.objects().reads("merge-base").args(args).accepts(&[0, 1]).status()?;
        Ok(status == 0)
    }

    /// Moves the task's branch from `old` to `new`; fails with `RefMoved` if it is elsewhere.
    ///
    /// A branch that is at `new` already is as good.
    pub fn update_branch(&self, new: &Oid, old: &Oid) -> Result<(), GitError> {
        let branch = &self.record.tree.branch;
        if !branch.starts_with(super::BRANCHES) {
            let text = format!("{branch} is not a branch of ours");
            return Err(GitError::own("update-ref", GitErrorKind::Other, text));
        }
        self.set_ref(branch, new, Some(old), "workspool: result")
    }

    /// Sets a ref of ours in the repository.
    pub(super) fn set_ref(
        &self,
        name: &str,
        new: &Oid,
        old: Option<&Oid>,
        why: &str,
    ) -> Result<(), GitError> {
        let order = match old {
            Some(old) => format!("update {name}\0{new}\0{old}\0"),
            None => format!("update {name}\0{new}\0\0"),
        };
        let set = self.shared().writes("update-ref").args(["-m", why, "--stdin", "-z"]).stdin(order).run();
        match set {
            Err(e) if e.kind == GitErrorKind::RefMoved => {
                let args = ["--verify", "--quiet", "--end-of-options", name];
                let now = self.shared().reads("rev-parse").args(args).accepts(&[0, 1]).run()?;
                if Oid::parse(&now).as_ref() == Some(new) { Ok(()) } else { Err(e) }
            }
            other => other.map(drop),
        }
    }

    /// Gives the tree the view's index, so that a worker that goes on there sees our commit as clean.
    ///
    /// A tree with a git dir of its own stays as the worker left it.
    pub fn publish_index(&self) -> io::Result<()> {
        if self.record.tree.git_dir.parent() != Some(&self.record.common.join("worktrees")) {
            return Ok(());
        }
        index::copy(&self.dir.join("index"), &self.record.tree.git_dir.join("index"))
    }

    /// The view with tree and index.
    pub(super) fn git(&self) -> Git {
        self.objects().work_tree(&self.record.tree.path).index(self.dir.join("index"))
    }

    /// The view without a tree: for objects.
    pub(super) fn objects(&self) -> Git {
        Git::at(&self.dir).objects(self.record.common.join("objects"))
    }

    /// The repository, for its refs.
    pub(super) fn shared(&self) -> Git {
        Git::at(&self.record.common)
    }
}

/// Makes a commit object.
pub(super) fn commit(
    git: &Git,
    tree: &Oid,
    parents: &[Oid],
    message: &str,
    by: &Identity,
    seconds: i64,
) -> Result<Oid, GitError> {
    let date = format!("@{seconds} +0000");
    let mut call = git.writes("commit-tree").arg(tree.as_str());
    for parent in parents {
        call = call.args(["-p", parent.as_str()]);
    }
    call.env("GIT_AUTHOR_NAME", &by.name)
        .env("GIT_AUTHOR_EMAIL", &by.email)
        .env("GIT_AUTHOR_DATE", &date)
        .env("GIT_COMMITTER_NAME", &by.name)
        .env("GIT_COMMITTER_EMAIL", &by.email)
        .env("GIT_COMMITTER_DATE", &date)
        .stdin(format!("{}\n", message.replace('\0', " ").trim_end()))
        .oid()
}
