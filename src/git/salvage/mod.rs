//! Salvage: everything in a tree, kept under a ref before the tree may go (I7).
//!
//! A salvage is a commit with up to two folders: `tree/` is what `add -A` records, and `raw/` holds,
//! byte for byte and past all filters, what git does not: ignored files, and repositories inside the
//! tree with their own git dirs (under another name, since git refuses `.git` in a tree). Its parents
//! are the worker's last commit and an earlier salvage of the same attempt, so neither is lost; for a
//! clone, also every other commit that is only there.
//!
//! It is complete or partial, and says which. Only [`Salvaged`] opens the door to
//! [`dispose`](super::worktree::dispose), and only a complete one.

mod collect;
mod restore;

use super::clone::{self, Brought};
use super::index as index_file;
use super::oid::Oid;
use super::repo::Repo;
use super::reuse::Stamps;
use super::runner::{Git, GitError, GitErrorKind};
use super::snapshot::{self, LeftOut};
use super::view::{self, Identity, View};
use super::{SALVAGE, bytes, flush};
use crate::durable;
use collect::{Collected, Taking};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// How much a salvage takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Bytes of one file that is not tracked.
    pub file: u64,
    /// Bytes of all files that git does not record by itself.
    pub total: u64,
    /// Number of those files.
    pub files: usize,
    /// Names of folders that can be made again; only what git ignores in them is passed over.
    pub worthless: Vec<String>,
}

impl Default for Limits {
    fn default() -> Limits {
        let worthless = [
            "node_modules",
            "target",
            "__pycache__",
            ".venv",
            "venv",
            ".tox",
            ".gradle",
            ".mypy_cache",
            ".pytest_cache",
            ".ruff_cache",
            ".next",
            ".turbo",
        ];
        Limits {
            file: 64 << 20,
            total: 512 << 20,
            files: 50_000,
            worthless: worthless.map(str::to_owned).to_vec(),
        }
    }
}

/// The proof that what is in a tree is kept, and how much of it.
///
/// It can only be made here, and is used up by what it permits.
#[derive(Debug)]
pub struct Salvaged {
    tree: PathBuf,
    commit: Oid,
    refname: Option<String>,
    missing: Vec<LeftOut>,
    left_out: Vec<LeftOut>,
}

impl Salvaged {
    /// Proves that a tree holds nothing that `commit` does not, beyond ignored files that were copied
    /// in (`declared`) or can be made again. `None`: it holds more, so take a salvage.
    ///
    /// The commit must be kept by a ref; the caller knows which.
    pub fn committed(
        view: &View,
        commit: &Oid,
        declared: &[PathBuf],
        limits: &Limits,
    ) -> Result<Option<Salvaged>, GitError> {
        let snapshot = view.snapshot(Some(commit))?;
        let kept = view.tree_of(commit)?;
        if snapshot.tree != kept || !snapshot.nested.is_empty() || inside_tree(view) {
            return Ok(None);
        }
        if view.is_clone() {
            let brought = clone::bring(view)?;
            if !brought.tips.is_empty() || !brought.missing.is_empty() {
                return Ok(None);
            }
        }
        let listing = snapshot::list(&view.git())?;
        let collected = collect::walk(view, &listing, declared, limits, Taking::Rest);
        if !collected.missing.is_empty() || !collected.raw.is_empty() {
            return Ok(None);
        }
        Ok(Some(Salvaged {
            tree: view.worktree().path.clone(),
            commit: commit.clone(),
            refname: None,
            missing: Vec::new(),
            left_out: collected.left_out,
        }))
    }

    /// Proves the same of a tree in which nothing was touched since it was recorded as that commit's, and in which
    /// nothing else is. One process. `None`: something was, or is.
    pub fn untouched(view: &View, commit: &Oid, recorded: &Stamps) -> Result<Option<Salvaged>, GitError> {
        if view.is_clone() || inside_tree(view) || view.tree_of(commit)? != *recorded.what() {
            return Ok(None);
        }
        let tree = view.worktree().path.clone();
        if !recorded.hold(&tree).map_err(|e| failed(&tree, &e))? {
            return Ok(None);
        }
        let (missing, left_out) = (Vec::new(), Vec::new());
        Ok(Some(Salvaged { tree, commit: commit.clone(), refname: None, missing, left_out }))
    }

    /// The tree that this is the proof for.
    pub fn tree(&self) -> &Path {
        &self.tree
    }

    /// Whether everything is kept, but for what was copied in or can be made again.
    pub fn is_complete(&self) -> bool {
        self.missing.is_empty()
    }

    /// The commit that holds it.
    pub fn commit(&self) -> &Oid {
        &self.commit
    }

    /// The ref that keeps it, if it is a salvage.
    pub fn refname(&self) -> Option<&str> {
        self.refname.as_deref()
    }

    /// What could not be kept, and why: a tree with such stays.
    pub fn missing(&self) -> &[LeftOut] {
        &self.missing
    }

    /// What was left out on purpose: secrets that were copied in, folders that can be made again.
    pub fn left_out(&self) -> &[LeftOut] {
        &self.left_out
    }
}

/// One salvage of a repository.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SalvageEntry {
    /// Its ref.
    pub refname: String,
    /// The task.
    pub id: String,
    /// The attempt.
    pub attempt: u32,
    /// Its commit.
    pub commit: Oid,
    /// When it was taken, in seconds since 1970.
    pub seconds: i64,
    /// What it says about itself; absent if that cannot be read.
    pub about: Option<About>,
}

/// What a salvage says about itself, in its message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// Whether it is complete.
    pub complete: bool,
    /// What could not be kept.
    pub missing: Vec<LeftOut>,
    /// What was left out on purpose.
    pub left_out: Vec<LeftOut>,
}

/// Taking, listing, restoring and dropping salvages.
#[derive(Debug)]
pub struct Salvage;

impl Salvage {
    /// Keeps everything in a view's tree under `refs/workspool/salvage/<id>/<attempt>`.
    ///
    /// No process may still write in the tree. The view's index is not touched. Files and folders that
    /// their owner may not read are made readable. `secrets` are the paths that were copied in.
    pub fn take(
        view: &View,
        id: &str,
        attempt: u32,
        limits: &Limits,
        secrets: &[PathBuf],
        seconds: i64,
    ) -> Result<Salvaged, GitError> {
        let refname = format!("{SALVAGE}{id}/{attempt}");
        super::worktree::check_name(&refname)?;
        let desk = view.dir.join(durable::unique_name());
        durable::ensure_dir(&desk).map_err(|e| failed(&desk, &e))?;
        let taken = take(view, &refname, &desk, limits, secrets, seconds);
        durable::remove_dir_all(&desk).map_err(|e| failed(&desk, &e))?;
        taken
    }

    /// Lists the salvages of a repository.
    pub fn list(repo: &Repo) -> Result<Vec<SalvageEntry>, GitError> {
        let out = repo
            .shared()
            .reads("for-each-ref")
            .args(["--format=%(refname)%00%(objectname)%00%(committerdate:unix)%00%(contents:body)%00"])
            .arg(SALVAGE)
            .run()?;
        let fields: Vec<&[u8]> = out.split(|b| *b == 0).map(<[u8]>::trim_ascii).collect();
        let entries = fields.as_chunks::<4>().0.iter().filter_map(|[refname, commit, seconds, body]| {
            let refname = String::from_utf8_lossy(refname).into_owned();
            let (id, attempt) = refname.strip_prefix(SALVAGE)?.rsplit_once('/')?;
            Some(SalvageEntry {
                id: id.to_owned(),
                attempt: attempt.parse().ok()?,
                commit: Oid::parse(commit)?,
                seconds: std::str::from_utf8(seconds).ok()?.parse().ok()?,
                about: serde_json::from_slice(body).ok(),
                refname,
            })
        });
        Ok(entries.collect())
    }

    /// Puts a salvage into a new folder, repositories inside it too.
    pub fn restore(repo: &Repo, entry: &SalvageEntry, into: &Path) -> Result<(), GitError> {
        restore::restore(repo, &entry.commit, into)
    }

    /// Lets a salvage go, if it is still the one that was listed.
    pub fn drop(repo: &Repo, entry: &SalvageEntry) -> Result<(), GitError> {
        if !entry.refname.starts_with(SALVAGE) {
            return Err(GitError::own("update-ref", GitErrorKind::Other, "not a salvage"));
        }
        repo.delete_ref(&entry.refname, &entry.commit)
    }
}

fn failed(path: &Path, e: &io::Error) -> GitError {
    GitError::io("salvage", &path.display().to_string(), e)
}

/// Whether the object store itself goes with the tree (a clone).
fn inside_tree(view: &View) -> bool {
    view.record.common.starts_with(&view.record.tree.path)
}

fn take(
    view: &View,
    refname: &str,
    desk: &Path,
    limits: &Limits,
    secrets: &[PathBuf],
    seconds: i64,
) -> Result<Salvaged, GitError> {
    let index = desk.join("index");
    index_file::copy(&view.dir.join("index"), &index).map_err(|e| failed(&index, &e))?;
    let git = view.git().index(&index);
    // Before git looks: it stops at what it cannot read.
    collect::make_readable(&view.record.tree.path);
    let listing = snapshot::list(&git)?;
    let mut collected = collect::walk(view, &listing, secrets, limits, Taking::Rest);
    let added = snapshot::add(&git, collected.except.iter().map(PathBuf::as_path), &mut || Ok(()));
    let tree = match added {
        Ok(()) => git.writes("write-tree").oid()?,
        // A filter that is missing or fails, a file that git cannot take: everything goes past it.
        Err(_) => {
            collected = collect::walk(view, &listing, secrets, limits, Taking::Everything);
            view.tree_of(view.base())?
        }
    };
    if inside_tree(view) {
        let why = "the repository that the salvage is in lies in the tree itself";
        collected.missing.push(LeftOut { path: PathBuf::from(".git"), why: why.into() });
    }
    let brought = if view.is_clone() { clone::bring(view)? } else { Brought::default() };
    collected.missing.extend(brought.missing);
    let raw = write_raw(view, desk, &mut collected)?;
    let mut folders = format!("040000 tree {tree}\ttree\0");
    if let Some(raw) = raw {
        folders = format!("040000 tree {raw}\traw\0{folders}");
    }
    let both = view.objects().writes("mktree").arg("-z").stdin(folders).oid()?;
    let Collected { missing, left_out, .. } = collected;
    let about = About { complete: missing.is_empty(), missing, left_out };
    let message = serde_json::to_string(&about).map_err(|e| failed(desk, &e.into()))?;
    let message = format!("workspool salvage\n\n{message}");
    let (mut parents, earlier) = parents(view, refname)?;
    let known: BTreeSet<Oid> = parents.iter().cloned().collect();
    parents.extend(brought.tips.into_iter().filter(|tip| !known.contains(tip)));
    let commit = view::commit(&view.objects(), &both, &parents, &message, &Identity::ours(), seconds)?;
    if earlier.as_ref() != Some(&commit) {
        let null = commit.null();
        view.set_ref(refname, &commit, Some(earlier.as_ref().unwrap_or(&null)), "workspool: salvage")?;
    }
    Ok(Salvaged {
        tree: view.worktree().path.clone(),
        commit,
        refname: Some(refname.to_owned()),
        missing: about.missing,
        left_out: about.left_out,
    })
}

/// Finds the worker's last commit (or the base) and an earlier salvage of the same attempt.
fn parents(view: &View, refname: &str) -> Result<(Vec<Oid>, Option<Oid>), GitError> {
    let branch = &view.worktree().branch;
    let format = "--format=%(objectname) %(refname)";
    let out = view.shared().reads("for-each-ref").args([format, branch, refname]).run()?;
    let of = |name: &str| {
        let lines = out.split(|b| *b == b'\n');
        lines.filter_map(|l| l.strip_suffix(name.as_bytes())?.strip_suffix(b" ")).find_map(Oid::parse)
    };
    let (head, earlier) = (of(branch), of(refname));
    let mut parents = vec![head.unwrap_or_else(|| view.base().clone())];
    parents.extend(earlier.clone());
    Ok((parents, earlier))
}

/// Writes what git does not record as blobs, past all filters, and returns their tree.
fn write_raw(view: &View, desk: &Path, collected: &mut Collected) -> Result<Option<Oid>, GitError> {
    if collected.raw.is_empty() {
        return Ok(None);
    }
    let mut names = Vec::new();
    for (at, item) in collected.raw.iter().enumerate() {
        let mut from = item.from.clone();
        if let Some(target) = &item.link {
            from = desk.join(format!("link-{at}"));
            fs::write(&from, bytes::of_path(target)).map_err(|e| failed(&from, &e))?;
        }
        quote_line(bytes::of_path(&from), &mut names);
    }
    let git = view.objects();
    let mut call = git.writes("hash-object").args(["-w", "--no-filters", "--stdin-paths"]).stdin(names);
    if cfg!(target_os = "linux") {
        // It would wait for the disk after each of fifty thousand files; we wait once, for all.
        call = call.config("core.fsync", "reference");
    }
    let oids = call.deadline(collect::DEADLINE).run()?;
    let objects = view.record.common.join("objects");
    if cfg!(target_os = "linux") {
        flush::below(&objects, std::iter::empty()).map_err(|e| failed(&objects, &e))?;
    }
    let oids: Vec<Oid> = oids.split(|b| *b == b'\n').filter_map(Oid::parse).collect();
    if oids.len() != collected.raw.len() {
        return Err(GitError::own("hash-object", GitErrorKind::Other, "fewer answers than files"));
    }
    let mut lines = Vec::new();
    for (item, oid) in collected.raw.iter().zip(oids) {
        let mode = if item.link.is_some() { "120000" } else { item.mode };
        lines.extend_from_slice(format!("{mode} {oid}\t").as_bytes());
        lines.extend_from_slice(bytes::of_path(&item.to));
        lines.push(0);
    }
    let git = Git::at(&view.dir).objects(&objects).index(desk.join("raw-index"));
    git.writes("update-index").args(["--add", "-z", "--index-info"]).stdin(lines).run()?;
    git.writes("write-tree").oid().map(Some)
}

/// Writes a path as a line that `hash-object` reads.
fn quote_line(path: &[u8], into: &mut Vec<u8>) {
    if path.contains(&b'\n') {
        into.push(b'"');
        for byte in path {
            match byte {
                b'\n' => into.extend_from_slice(b"\\n"),
                b'"' | b'\\' => into.extend_from_slice(&[b'\\', *byte]),
                other => into.push(*other),
            }
        }
        into.push(b'"');
    } else {
        into.extend_from_slice(path);
    }
    into.push(b'\n');
}
