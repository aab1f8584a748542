//! Where a worker works: made before it starts, looked at after it has ended, taken away when it is kept
//! elsewhere.

pub mod apart;
pub mod copy;
pub mod duplicate;
pub mod lacks;
pub mod manifest;
pub mod overlay;
pub mod rules;
pub mod warm;
mod worktree;

pub use manifest::Manifest;
pub use overlay::Overlay;
pub use rules::{Rules, Violation};
pub use worktree::{
    Made, Prepared, Removed, Wanted, aside, clear, dispose, forget, prepare, prove, put_aside, remove,
    restore, trash,
};

use crate::model::{Task, TaskId, WorkspaceKind};
use crate::spool::Spool;
use std::path::PathBuf;

/// The one stable path of a task's workspace, for its whole life.
pub fn path(spool: &Spool, task: &Task) -> PathBuf {
    let folder = match (task.spec.workspace(), &task.repo) {
        (WorkspaceKind::Directory, Some(repo)) => return repo.path.clone(),
        (WorkspaceKind::Temporary, _) | (_, None) => "temporary".to_owned(),
        (_, Some(repo)) => repo.name.clone(),
    };
    spool.worktrees().join(folder).join(task.id.to_string())
}

/// The branch of a task.
pub fn branch(id: TaskId) -> String {
    format!("workspool/{id}")
}
