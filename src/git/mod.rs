//! Git, shelled, through one function: worktrees, trusted views, commits, diffs, salvage and landing.
//!
//! [`runner`] is the only place that starts git. Everything above it names the git dir, the work
//! tree and the index that a command may use; nothing is discovered except in [`Repo::open`].
//! Nothing here takes the repository's lock: the caller holds it where a function says so.
//!
//! An attempt goes through it in this order: [`Repo::open`], [`worktree::add`], [`Worktree::fill`],
//! [`View::create`] and [`Guard::take`] before anything foreign runs; then, when nothing of it runs any
//! more, [`Guard::revert_executable`], [`View::snapshot`], [`View::changed`], [`View::diff`],
//! [`View::commit`], [`View::update_branch`]; a [`Scratch`] tree to verify in; [`Landing`] to accept; and
//! [`Salvage`] before [`worktree::dispose`]. A later attempt in the same tree begins with
//! [`View::renew`].
//!
//! The number of git processes of each operation is fixed, however many files changed:
//!
//! | operation | processes |
//! | --- | --- |
//! | [`Repo::open`] | 1 (and 1 for git's version, once a process); [`Repo::open_again`] 1 |
//! | [`worktree::add`] + [`Worktree::fill`] | 2 (1 more for a stale registration) |
//! | [`View::create`] | 1 |
//! | [`View::snapshot`] | 3; 1 more with untracked links, 1 more with a worker's own commits |
//! | [`View::changed`], [`View::diff`], [`View::commit`], [`View::update_branch`] | 1 each |
//! | [`Guard::take`], [`Guard::check`] | 0; 1 where the refs are not in files |
//! | [`Salvage::take`] | at most 10 |
//! | [`worktree::dispose`], [`worktree::hand_over`] | 1 |
//! | [`reuse::make_ready`] | 1, if a file differs |
//! | [`reuse::take_over`] beside [`worktree::add`] | 0; 3 if the commit is another |
//! | [`Landing::plan`] | 4; 4 more if HEAD is not the base, 1 more for a commit, the guard's |
//! | [`Landing::apply`] | 5; 1 more in a sparse checkout, 2 more for a commit |

pub mod bytes;
mod child;
pub mod clone;
mod config;
mod diff;
mod error;
mod flush;
mod guard;
mod index;
mod land;
mod merge;
mod oid;
mod paths;
pub mod pristine;
mod refs;
mod repo;
pub mod reuse;
pub mod runner;
mod salvage;
mod scratch;
mod settings;
pub mod shadow;
mod snapshot;
mod view;
mod trusted;
mod walk;
pub mod worktree;

#[cfg(test)]
mod tests;

pub use diff::{Change, ChangeStatus};
pub use guard::{Guard, Tampering};
pub use index::Index;
pub use land::{How, Landed, Landing, Plan, Recovered, Refusal};
pub use merge::Merged;
pub use oid::{ObjectFormat, Oid};
pub use paths::checkout_paths;
pub use repo::{Head, Repo, RepoError, RepoKey};
pub use reuse::Stamps;
pub use runner::{Git, GitError, GitErrorKind, calls, version};
pub use salvage::{Limits, Salvage, SalvageEntry, Salvaged};
pub use scratch::Scratch;
pub use settings::Settings;
pub use snapshot::{LeftOut, Snapshot};
pub use view::{Identity, View};
pub use worktree::{Listed, OnBranch, Worktree};

/// Where the branches of tasks live.
pub const BRANCHES: &str = "refs/heads/workspool/";
/// Where refs of ours other than branches live.
pub const REFS: &str = "refs/workspool/";
/// Where commits are kept that a branch of ours no longer holds: `<task>/<attempt>`.
pub const KEPT: &str = "refs/workspool/kept/";
/// Where salvage refs live.
pub const SALVAGE: &str = "refs/workspool/salvage/";
