//! How tasks come in: submissions by every door, and dropped files; and how they become tickets.

mod admit;
mod expand;
mod inbox;
mod quiet;
mod submit;

pub use admit::revise;
pub use expand::{expand, expand_first, is_pending};
pub use inbox::{Admitted, admit_inboxes};
pub use submit::{Accepted, forget_key, submit, submit_with_key};

use crate::durable;
use crate::model::config::Disk;
use crate::model::{Problem, WorkspaceKind};
use std::path::Path;

/// Why a submission was not taken.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// Something is wrong with it.
    #[error("{}", list(.0))]
    Problems(Vec<Problem>),
    /// The disk is too full.
    #[error("{0}")]
    Disk(String),
    /// Something is wrong with us or the machine.
    #[error(transparent)]
    Fault(#[from] anyhow::Error),
}

fn list(problems: &[Problem]) -> String {
    problems.iter().map(Problem::to_string).collect::<Vec<_>>().join("\n")
}

/// Says what is missing if less is free than must be left: the larger of `bytes` and `percent`.
pub fn check_reserve(path: &Path, bytes: u64, percent: u8) -> Result<(), String> {
    check_room(path, 0, bytes, percent)
}

/// Like [`check_reserve`], for something that will take `needed` bytes.
pub fn check_room(path: &Path, needed: u64, bytes: u64, percent: u8) -> Result<(), String> {
    let Ok(space) = durable::free_space(path) else { return Ok(()) };
    let reserve = bytes.max(space.total / 100 * u64::from(percent));
    if space.free.saturating_sub(needed) >= reserve {
        return Ok(());
    }
    let mib = |b: u64| b / (1024 * 1024);
    let needed = if needed > 0 { format!(" {} MiB are needed,", mib(needed)) } else { String::new() };
    Err(format!(
        "the disk of {} has {} MiB free,{needed} and {} MiB must be left\n  hint: free some space (`workspool prune`), or lower [disk] in config.toml",
        path.display(),
        mib(space.free),
        mib(reserve)
    ))
}

/// Bytes that must be left beside a workspace of this kind.
pub fn reserve_for(disk: &Disk, kind: WorkspaceKind) -> u64 {
    match kind {
        WorkspaceKind::Clone | WorkspaceKind::Copy => disk.reserve_bytes.max(disk.copy_reserve_bytes),
        WorkspaceKind::Worktree
        | WorkspaceKind::Overlay
        | WorkspaceKind::Directory
        | WorkspaceKind::Temporary => disk.reserve_bytes,
    }
}
