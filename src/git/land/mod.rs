//! Landing: bringing a produced commit into the user's checkout, whole or not at all.
//!
//! A [`Plan`] is made without touching anything: it merges in the object store, and refuses, naming
//! every path, whatever would overwrite what the user has. [`Landing::apply`] then stages every file
//! in full beside the git dir (a full disk happens there), and only then moves old files away and new
//! ones into place, without following links; then the index, under git's own `index.lock`; then the
//! branch, with its old value. An intent, written first, lets [`Landing::recover`] go on after a
//! crash at any point. The caller holds the task's and the repository's lock throughout.
//!
//! - `Apply`: the files, and index entries for the changed paths (staged); HEAD stays.
//! - `Commit`: the same, and a commit of the merged tree on the current branch. What the user had
//!   staged elsewhere stays staged and is not in the commit.
//! - `Branch`: a new branch at the produced commit; nothing else.
//!
//! The user's filters (git-lfs) run, since they decide what a file looks like; hooks do not.

mod apply;
mod back;
mod intent;
mod place;
mod plan;
mod stage;

use super::guard::{Guard, Tampering};
use super::oid::Oid;
use super::repo::Repo;
use super::runner::{GitError, GitErrorKind};
use super::{bytes, diff::Change};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};

pub use plan::Plan;

/// How a commit lands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum How {
    /// Into the working tree and the index.
    Apply,
    /// As a commit on the current branch too.
    Commit {
        /// Its message.
        message: String,
    },
    /// As a new branch.
    Branch {
        /// Its name, without `refs/heads/`.
        name: String,
    },
}

/// What was done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Landed {
    /// The tree that HEAD's tree and the change make together.
    pub tree: Oid,
    /// Whether that is the tree that was verified.
    pub gated: bool,
    /// The commit that was made, or that the new branch is at.
    pub commit: Option<Oid>,
    /// The branch that was moved or made.
    pub branch: Option<String>,
    /// How many paths were changed in the checkout.
    pub paths: usize,
}

/// What a recovery found and did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recovered {
    /// There was no landing under way.
    Nothing,
    /// It had touched nothing yet, and was forgotten.
    Undone,
    /// It is finished now.
    Landed(Landed),
}

/// Why a landing was refused. Unless it says so, nothing was touched.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The repository has no checkout here.
    #[error("there is no checkout to land in; accept as a branch")]
    NoCheckout,
    /// The user is in the middle of something.
    #[error("a {0} is in progress in the checkout; finish or abort it first")]
    InProgress(&'static str),
    /// The change does not merge with what HEAD has.
    #[error("the change conflicts with HEAD in {}", names(.0))]
    Conflict(Vec<PathBuf>),
    /// The user changed the same paths, staged or not, or hid them from git.
    #[error("there are local changes in {}", names(.0))]
    LocalChanges(Vec<PathBuf>),
    /// The index has unmerged paths.
    #[error("the index has unmerged paths: {}", names(.0))]
    Unmerged(Vec<PathBuf>),
    /// Files that git does not track, ignored ones too, are where new ones would go.
    #[error("untracked files are in the way: {}", names(.0))]
    InTheWay(Vec<PathBuf>),
    /// A folder on the way is a link.
    #[error("a link would lead out of the checkout: {}", names(.0))]
    SymlinkParent(Vec<PathBuf>),
    /// Two paths are one to this file system.
    #[error("these paths differ only in case, and the file system ignores it: {}", names(.0))]
    CaseFold(Vec<PathBuf>),
    /// The change adds, moves or removes a submodule.
    #[error("submodules cannot be landed; accept as a branch: {}", names(.0))]
    Submodule(Vec<PathBuf>),
    /// A folder in the checkout is another file system, so a file cannot be renamed into it.
    #[error("these paths are on another file system: {}", names(.0))]
    OtherFileSystem(Vec<PathBuf>),
    /// Configuration or hooks that can execute are not what they were before the task.
    #[error("shared git state was changed during the task: {}", .0.iter().map(|t| &*t.what).collect::<Vec<_>>().join("; "))]
    Tampered(Vec<Tampering>),
    /// The branch to make is there already.
    #[error("the branch {0} exists already")]
    BranchExists(String),
    /// The checkout changed since the plan was made.
    #[error("the checkout changed meanwhile: {0}; try again")]
    Changed(String),
    /// Somebody holds git's lock on the index.
    #[error("another git process holds {}", .0.display())]
    Locked(PathBuf),
    /// An earlier landing must be recovered first.
    #[error("an earlier landing is unfinished: {}", .0.display())]
    Unfinished(PathBuf),
    /// It stopped half way, and could not be undone either: each path is old or new. The intent is
    /// kept, and a recovery goes on from it.
    #[error("the landing stopped half way ({why}); what is left to do is in {}", intent.display())]
    HalfDone {
        /// The intent.
        intent: PathBuf,
        /// What went wrong.
        why: String,
    },
    /// Git failed.
    #[error(transparent)]
    Git(#[from] GitError),
    /// A file could not be read or written.
    #[error("{what}: {source}")]
    Io {
        /// Which, or what for.
        what: String,
        /// Why.
        source: io::Error,
    },
}

impl Refusal {
    fn io(what: impl AsRef<Path>, source: io::Error) -> Refusal {
        Refusal::Io { what: what.as_ref().display().to_string(), source }
    }

    /// The paths that it names.
    pub fn paths(&self) -> &[PathBuf] {
        match self {
            Refusal::Conflict(paths)
            | Refusal::LocalChanges(paths)
            | Refusal::Unmerged(paths)
            | Refusal::InTheWay(paths)
            | Refusal::SymlinkParent(paths)
            | Refusal::CaseFold(paths)
            | Refusal::Submodule(paths)
            | Refusal::OtherFileSystem(paths) => paths,
            _ => &[],
        }
    }
}

fn names(paths: &[PathBuf]) -> String {
    let shown: Vec<_> = paths.iter().take(20).map(|p| p.display().to_string()).collect();
    let more = paths.len().saturating_sub(shown.len());
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    shown.join(", ") + &more
}

/// Planning, doing and finishing landings.
#[derive(Debug)]
pub struct Landing;

impl Landing {
    /// Works out what landing `commit`, made from `base`, would do; touches nothing but the object store.
    ///
    /// With a guard, it refuses while something that can execute differs from what it remembers.
    pub fn plan(
        repo: &Repo,
        base: &Oid,
        commit: &Oid,
        how: How,
        guard: Option<&Guard>,
    ) -> Result<Plan, Refusal> {
        if let Some(guard) = guard {
            let tampered: Vec<_> = guard.check(repo)?.into_iter().filter(|t| t.executable).collect();
            if !tampered.is_empty() {
                return Err(Refusal::Tampered(tampered));
            }
        }
        plan::make(repo, base, commit, how)
    }

    /// Does what a plan says. `id` is the task's; `intent` is where the record of it goes, and is gone
    /// again when this returns, unless it says `HalfDone` or `Unfinished`.
    pub fn apply(plan: &Plan, id: &str, intent: &Path, seconds: i64) -> Result<Landed, Refusal> {
        apply::apply(plan, id, intent, seconds, &mut |_| Ok(()))
    }

    /// Like [`Landing::apply`]; `told` writes down that it is done before the record of it goes, so that a
    /// crash cannot leave a landing that nobody knows of. It may be called again by a recovery.
    pub fn apply_and_tell(
        plan: &Plan,
        id: &str,
        intent: &Path,
        seconds: i64,
        mut told: impl FnMut(&Landed) -> io::Result<()>,
    ) -> Result<Landed, Refusal> {
        apply::apply(plan, id, intent, seconds, &mut told)
    }

    /// Like [`Landing::recover`], with `told` as in [`Landing::apply_and_tell`].
    pub fn recover_and_tell(
        intent: &Path,
        mut told: impl FnMut(&Landed) -> io::Result<()>,
    ) -> Result<Recovered, Refusal> {
        apply::recover(intent, &mut told)
    }

    /// Finishes a landing that was cut off, or forgets one that had touched nothing.
    pub fn recover(intent: &Path) -> Result<Recovered, Refusal> {
        apply::recover(intent, &mut |_| Ok(()))
    }
}

/// One path to change in the checkout.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Step {
    change: Change,
    /// The file that is there now.
    old: Option<place::Print>,
    /// The file that will be, once it is staged.
    new: Option<place::Print>,
    /// Only the index has it: the checkout is sparse.
    sparse: bool,
}

impl Step {
    fn path(&self) -> &Path {
        &self.change.path
    }

    fn adds(&self) -> bool {
        self.change.new_mode != 0 && !self.sparse
    }

    fn removes(&self) -> bool {
        self.change.old_mode != 0 && !self.sparse
    }
}

/// Passes a point at which a test may make the process die.
fn pass(name: &'static str) -> io::Result<()> {
    #[cfg(test)]
    tests_only::reached(name);
    crate::durable::fault::point(name)
}

#[cfg(test)]
pub(super) mod tests_only {
    //! What a test does at the points that a landing passes, such as dying: as a panic, so that
    //! nothing that would clean up runs.
    use std::cell::RefCell;

    type AtPoint = Box<dyn FnMut(&str)>;

    thread_local! {
        static AT_POINT: RefCell<Option<AtPoint>> = const { RefCell::new(None) };
    }

    pub(in super::super) fn at_points(what: Option<AtPoint>) {
        AT_POINT.with(|at| *at.borrow_mut() = what);
    }

    pub(super) fn reached(name: &str) {
        let taken = AT_POINT.with(|at| at.borrow_mut().take());
        if let Some(mut what) = taken {
            what(name);
            AT_POINT.with(|at| *at.borrow_mut() = Some(what));
        }
    }
}
