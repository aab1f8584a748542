//! What a landing would do, and every reason not to do it.

use super::super::diff::{Change, ChangeStatus, changed_paths};
use super::super::merge::Merged;
use super::super::oid::Oid;
use super::super::repo::Repo;
use super::super::runner::{Git, GitError, GitErrorKind};
use super::super::view::Identity;
use super::super::worktree::check_name;
use super::place::Root;
use super::{How, Refusal, Step, bytes};
use crate::model::hex;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::io;
use std::ops::Bound;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A landing that nothing speaks against, for the checkout as it was.
#[derive(Debug)]
pub struct Plan {
    pub(super) repo: Repo,
    pub(super) how: How,
    pub(super) head: Oid,
    pub(super) target: String,
    pub(super) commit: Oid,
    pub(super) tree: Oid,
    pub(super) gated: bool,
    pub(super) identity: Identity,
    pub(super) index: Option<String>,
    pub(super) steps: Vec<Step>,
}

impl Plan {
    /// The tree that HEAD's tree and the change make together.
    pub fn tree(&self) -> &Oid {
        &self.tree
    }

    /// Whether that is the tree of the commit that was verified. If not, HEAD has moved on since, and
    /// what lands was never verified as a whole.
    pub fn is_gated(&self) -> bool {
        self.gated
    }

    /// The paths that would change in the checkout.
    pub fn changes(&self) -> impl Iterator<Item = &Change> {
        self.steps.iter().map(|step| &step.change)
    }

    /// Whether HEAD has all of it already.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }
}

pub(super) fn make(repo: &Repo, base: &Oid, commit: &Oid, how: How) -> Result<Plan, Refusal> {
    if let How::Branch { name } = &how {
        return branch(repo, commit, name, &how);
    }
    let (Some(git), Some(top)) = (repo.checkout(), repo.top.as_deref()) else {
        return Err(Refusal::NoCheckout);
    };
    refuse_in_progress(&repo.git_dir)?;
    let at = Heads::read(&repo.git_dir, base, commit)?;
    let tree = if at.head == *base || at.head_tree == at.base_tree {
        at.commit_tree.clone()
    } else {
        match repo.merge_trees(&at.base_tree, &at.head_tree, &at.commit_tree)? {
            Merged::Tree(tree) => tree,
            Merged::Conflict(paths) => return Err(Refusal::Conflict(paths)),
        }
    };
    let changes = changed_paths(&repo.shared(), &at.head_tree, &tree)?;
    let submodules: Vec<PathBuf> =
        changes.iter().filter(|c| c.is_submodule()).map(|c| c.path.clone()).collect();
    refuse(submodules, Refusal::Submodule)?;

    // Looked at before git is asked whether they are clean: an edit in between is seen later.
    let index = index_hash(&repo.git_dir).map_err(|e| Refusal::io("the index", e))?;
    let root = Root::open(top).map_err(|e| Refusal::io(top, e))?;
    let mut steps = Vec::with_capacity(changes.len());
    for change in changes {
        let old = root.print(&change.path).map_err(|e| Refusal::io(top.join(&change.path), e))?;
        steps.push(Step { change, old, new: None, sparse: false });
    }
    let state = Checkout::read(&git)?;
    refuse(state.unmerged.clone(), Refusal::Unmerged)?;
    state.refuse_local_changes(&mut steps)?;
    refuse_what_is_there(repo, top, &mut steps, &state)?;
    let identity = match how {
        How::Commit { .. } => Identity::of(&super::super::config::list(&git)?),
        _ => Identity::ours(),
    };
    let gated = tree == at.commit_tree;
    let (head, target, commit) = (at.head, at.target, commit.clone());
    Ok(Plan { repo: repo.clone(), how, head, target, commit, tree, gated, identity, index, steps })
}

fn branch(repo: &Repo, commit: &Oid, name: &str, how: &How) -> Result<Plan, Refusal> {
    check_name(name)?;
    let target = format!("refs/heads/{name}");
    if repo.read_ref(&target)?.is_some() {
        return Err(Refusal::BranchExists(name.to_owned()));
    }
    let tree = repo.tree_of(commit)?;
    Ok(Plan {
        repo: repo.clone(),
        how: how.clone(),
        head: repo.head.clone(),
        target,
        commit: commit.clone(),
        tree,
        gated: true,
        identity: Identity::ours(),
        index: None,
        steps: Vec::new(),
    })
}

fn refuse<T>(paths: Vec<PathBuf>, why: impl FnOnce(Vec<PathBuf>) -> T) -> Result<(), T> {
    if paths.is_empty() { Ok(()) } else { Err(why(paths)) }
}

fn refuse_in_progress(git_dir: &Path) -> Result<(), Refusal> {
    let signs = [
        ("MERGE_HEAD", "merge"),
        ("rebase-merge", "rebase"),
        ("rebase-apply", "rebase"),
        ("CHERRY_PICK_HEAD", "cherry-pick"),
        ("REVERT_HEAD", "revert"),
        ("sequencer", "sequence of picks"),
        ("BISECT_LOG", "bisect"),
        ("BISECT_START", "bisect"),
    ];
    match signs.iter().find(|(file, _)| fs::symlink_metadata(git_dir.join(file)).is_ok()) {
        Some((_, what)) => Err(Refusal::InProgress(what)),
        None => Ok(()),
    }
}

/// Where HEAD is, and the trees that a merge needs.
pub(super) struct Heads {
    pub head: Oid,
    pub target: String,
    head_tree: Oid,
    base_tree: Oid,
    commit_tree: Oid,
}

impl Heads {
    pub(super) fn read(git_dir: &Path, base: &Oid, commit: &Oid) -> Result<Heads, GitError> {
        let out = Git::at(git_dir)
            .reads("rev-parse")
            .args(["HEAD^{commit}", "HEAD^{tree}"])
            .args([format!("{base}^{{tree}}"), format!("{commit}^{{tree}}")])
            .args(["--symbolic-full-name", "HEAD"])
            .run()?;
        let lines: Vec<&[u8]> = out.split(|b| *b == b'\n').collect();
        let odd = || GitError::own("rev-parse", GitErrorKind::Other, "an answer that could not be read");
        let oid = |at: usize| lines.get(at).and_then(|line| Oid::parse(line)).ok_or_else(odd);
        let target = String::from_utf8_lossy(lines.get(4).ok_or_else(odd)?).into_owned();
        Ok(Heads {
            head: oid(0)?,
            target: if target.starts_with("refs/") { target } else { "HEAD".into() },
            head_tree: oid(1)?,
            base_tree: oid(2)?,
            commit_tree: oid(3)?,
        })
    }
}

/// The hash of a checkout's index; `None` if it has none.
pub(super) fn index_hash(git_dir: &Path) -> io::Result<Option<String>> {
    match fs::read(git_dir.join("index")) {
        Ok(content) => Ok(Some(hex(&Sha256::digest(content)))),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

/// What git says about the user's checkout.
struct Checkout {
    /// Paths with changes, staged or not.
    dirty: BTreeSet<PathBuf>,
    unmerged: Vec<PathBuf>,
    /// Each path in the index, with git's tag for it.
    index: BTreeMap<PathBuf, u8>,
}

impl Checkout {
    fn read(git: &Git) -> Result<Checkout, GitError> {
        let status = git
            .reads("status")
            .args(["--porcelain=v2", "-z", "--untracked-files=no", "--ignore-submodules=all"])
            .arg("--no-renames")
            .run()?;
        let (mut dirty, mut unmerged) = (BTreeSet::new(), Vec::new());
        for line in status.split(|b| *b == 0) {
            let fields = match line.first() {
                Some(b'1') => 9,
                Some(b'u') => 11,
                _ => continue,
            };
            if let Some(path) = line.splitn(fields, |b| *b == b' ').nth(fields - 1) {
                dirty.insert(bytes::to_path(path));
                if fields == 11 {
                    unmerged.push(bytes::to_path(path));
                }
            }
        }
        let listing = git.reads("ls-files").args(["-v", "--stage", "-z"]).run()?;
        let entries = listing.split(|b| *b == 0).filter_map(|record| {
            let tab = record.iter().position(|b| *b == b'\t')?;
            Some((bytes::to_path(&record[tab + 1..]), *record.first()?))
        });
        Ok(Checkout { dirty, unmerged, index: entries.collect() })
    }

    /// Refuses where the user has changes, also those hidden from git by a flag in the index.
    fn refuse_local_changes(&self, steps: &mut [Step]) -> Result<(), Refusal> {
        let mut local = BTreeSet::new();
        let goes: BTreeSet<PathBuf> =
            steps.iter().filter(|s| s.removes()).map(|s| s.path().to_owned()).collect();
        for step in steps {
            let path = step.path().to_owned();
            if self.dirty.contains(&path) {
                local.insert(path.clone());
            }
            match self.index.get(&path) {
                Some(b'S') if step.old.is_none() => step.sparse = true,
                // Whoever set the flag may have edited the file; git would not say so.
                Some(tag) if *tag == b'S' || tag.is_ascii_lowercase() => {
                    local.insert(path.clone());
                }
                _ => {}
            }
            if step.change.new_mode != 0 {
                // Staged paths that cannot be beside the new one.
                let below = (Bound::Excluded(path.clone()), Bound::Unbounded);
                let below = self.index.range(below).map(|(p, _)| p).take_while(|p| p.starts_with(&path));
                let above = path.ancestors().skip(1).filter(|p| self.index.contains_key(*p));
                let clash = below.cloned().chain(above.map(Path::to_owned));
                local.extend(clash.filter(|p| !goes.contains(p)));
            }
        }
        refuse(local.into_iter().collect(), Refusal::LocalChanges)
    }
}

/// Refuses whatever is on disk where the change goes.
fn refuse_what_is_there(
    repo: &Repo,
    top: &Path,
    steps: &mut [Step],
    state: &Checkout,
) -> Result<(), Refusal> {
    let goes: BTreeSet<&Path> = steps.iter().filter(|s| s.removes()).map(Step::path).collect();
    let desk_device = device(top).map_err(|e| Refusal::io(top, e))?;
    let folded = ignores_case(&repo.git_dir);
    let mut found = Found::default();
    let mut folders: HashMap<PathBuf, bool> = HashMap::new();
    for step in steps.iter().filter(|s| !s.sparse) {
        let path = step.path();
        let mut above: Vec<&Path> = path.ancestors().skip(1).filter(|p| !p.as_os_str().is_empty()).collect();
        above.reverse();
        for folder in above {
            let there = match folders.get(folder) {
                Some(there) => *there,
                None => {
                    let there = found.folder(top, folder, desk_device, &goes);
                    folders.insert(folder.to_owned(), there);
                    there
                }
            };
            if !there {
                break;
            }
        }
        if step.change.status == ChangeStatus::Added && step.old.is_some() {
            let at = top.join(path);
            let same_file = || goes.iter().any(|gone| same(&at, &top.join(gone)));
            match fs::symlink_metadata(&at) {
                Ok(meta) if meta.is_dir() => found.content(top, path, &goes),
                Ok(_) if folded && same_file() => {}
                Ok(_) => found.in_the_way.push(path.to_owned()),
                Err(_) => {}
            }
        }
    }
    if folded {
        found.fold(steps, state, &goes);
    }
    refuse(found.links, Refusal::SymlinkParent)?;
    refuse(found.other_device, Refusal::OtherFileSystem)?;
    refuse(found.in_the_way, Refusal::InTheWay)?;
    refuse(found.folded, Refusal::CaseFold)
}

#[derive(Default)]
struct Found {
    links: Vec<PathBuf>,
    other_device: Vec<PathBuf>,
    in_the_way: Vec<PathBuf>,
    folded: Vec<PathBuf>,
}

impl Found {
    /// Looks at a folder above a changed path. `false`: nothing below it needs a look.
    fn folder(&mut self, top: &Path, folder: &Path, desk_device: u64, goes: &BTreeSet<&Path>) -> bool {
        let at = top.join(folder);
        let Ok(meta) = fs::symlink_metadata(&at) else { return false };
        if !meta.is_dir() {
            if !goes.contains(folder) {
                let list = if meta.is_symlink() { &mut self.links } else { &mut self.in_the_way };
                list.push(folder.to_owned());
            }
            return false;
        }
        if meta.dev() != desk_device {
            self.other_device.push(folder.to_owned());
        }
        if fs::symlink_metadata(at.join(".git")).is_ok() {
            self.in_the_way.push(folder.to_owned());
        }
        true
    }

    /// A folder gives way to a file only if all that is in it goes too.
    fn content(&mut self, top: &Path, folder: &Path, goes: &BTreeSet<&Path>) {
        for entry in walkdir::WalkDir::new(top.join(folder)).follow_links(false) {
            let Ok(entry) = entry else {
                self.in_the_way.push(folder.to_owned());
                continue;
            };
            let path = entry.path().strip_prefix(top).unwrap_or(entry.path());
            if !entry.file_type().is_dir() && !goes.contains(path) {
                self.in_the_way.push(path.to_owned());
            }
        }
    }

    /// Finds new paths that this file system takes for others.
    fn fold(&mut self, steps: &[Step], state: &Checkout, goes: &BTreeSet<&Path>) {
        let fold = |path: &Path| path.to_string_lossy().to_lowercase();
        let parts = |path: &Path| -> Vec<PathBuf> {
            path.ancestors().filter(|p| !p.as_os_str().is_empty()).map(Path::to_owned).collect()
        };
        let mut spelled: HashMap<String, PathBuf> = HashMap::new();
        for path in state.index.keys().filter(|p| !goes.contains(p.as_path())) {
            for part in parts(path) {
                spelled.entry(fold(&part)).or_insert(part);
            }
        }
        for step in steps.iter().filter(|s| s.change.new_mode != 0) {
            let clash = parts(step.path())
                .into_iter()
                .any(|part| *spelled.entry(fold(&part)).or_insert_with(|| part.clone()) != part);
            if clash {
                self.folded.push(step.path().to_owned());
            }
        }
    }
}

pub(super) fn device(path: &Path) -> io::Result<u64> {
    Ok(fs::symlink_metadata(path)?.dev())
}

fn same(a: &Path, b: &Path) -> bool {
    match (fs::symlink_metadata(a), fs::symlink_metadata(b)) {
        (Ok(a), Ok(b)) => (a.dev(), a.ino()) == (b.dev(), b.ino()),
        _ => false,
    }
}

/// Whether the file system takes `HEAD` and `head` for one.
fn ignores_case(git_dir: &Path) -> bool {
    same(&git_dir.join("HEAD"), &git_dir.join("head"))
}

#[cfg(test)]
mod unit {
    use super::*;

    fn step(path: &str, old_mode: u32, new_mode: u32) -> Step {
        let status = if old_mode == 0 { ChangeStatus::Added } else { ChangeStatus::Deleted };
        let (path, old, new) = (PathBuf::from(path), None, None);
        let (added, deleted) = (None, None);
        let change = Change { path, status, old_mode, new_mode, old, new, added, deleted };
        Step { change, old: None, new: None, sparse: false }
    }

    fn clashes(index: &[&str], steps: &[Step]) -> Vec<PathBuf> {
        let index = index.iter().map(|p| (PathBuf::from(p), b'H')).collect();
        let state = Checkout { dirty: BTreeSet::new(), unmerged: Vec::new(), index };
        let goes = steps.iter().filter(|s| s.removes()).map(Step::path).collect();
        let mut found = Found::default();
        found.fold(steps, &state, &goes);
        found.folded
    }

    #[test]
    fn paths_that_differ_only_in_case_are_found_among_old_and_new() {
        let added = |path| step(path, 0, 0o100_644);
        assert_eq!(clashes(&["readme"], &[added("README")]), [PathBuf::from("README")]);
        assert_eq!(clashes(&["src/a"], &[added("Src/b")]), [PathBuf::from("Src/b")]);
        assert_eq!(clashes(&[], &[added("x"), added("X")]), [PathBuf::from("X")]);
        assert!(clashes(&["src/a"], &[added("src/b")]).is_empty());
        // A change of case alone takes the old one away.
        assert!(clashes(&["readme"], &[step("readme", 0o100_644, 0), added("README")]).is_empty());
    }
}
