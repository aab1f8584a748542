//! What can go wrong with a spool, and what the user can do about it.

use crate::model::TaskId;
use std::io;
use std::path::{Path, PathBuf};

/// A fault of the spool itself.
#[derive(Debug, thiserror::Error)]
pub enum SpoolError {
    /// There is no home folder to put it in.
    #[error("there is no home folder: name a spool by WORKSPOOL_HOME or --spool")]
    NoHome,
    /// A file operation failed.
    #[error("cannot {what} {}: {source}{}", path.display(), hint(source))]
    Io {
        /// What was tried.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// A file of ours cannot be read.
    #[error("{path} is broken: {1}\n  hint: `workspool check` says what can be repaired", path = .0.display())]
    Broken(PathBuf, String),
    /// The spool was written by a newer version.
    #[error("the spool {path} has format version {1}, this program reads version {ours}: use a newer workspool", path = .0.display(), ours = crate::model::VERSION)]
    Newer(PathBuf, u32),
    /// No task has this id.
    #[error("there is no task {0}\n  hint: `workspool list` shows the newest tasks")]
    NoTask(String),
    /// Several tasks have an id that begins so.
    #[error("{0} is ambiguous: {found}", found = list(.1))]
    Ambiguous(String, Vec<TaskId>),
    /// A task has nothing of this name.
    #[error("{0}")]
    NotThere(String),
    /// The task is not in a state in which this can be done.
    #[error("{0}")]
    WrongState(String),
    /// Somebody else holds the task's lock.
    #[error("task {0} is being changed by another process; try again")]
    Busy(TaskId),
}

impl SpoolError {
    /// Wraps a failed file operation.
    pub fn io(what: &'static str, path: &Path, source: io::Error) -> Self {
        SpoolError::Io { what, path: path.to_owned(), source }
    }
}

fn hint(e: &io::Error) -> &'static str {
    match e.kind() {
        io::ErrorKind::PermissionDenied => "\n  hint: the spool must belong to the user who runs workspool",
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "\n  hint: free some space; nothing was lost"
        }
        io::ErrorKind::ReadOnlyFilesystem => "\n  hint: the file system is read-only",
        _ => "",
    }
}

fn list(ids: &[TaskId]) -> String {
    ids.iter().map(TaskId::to_string).collect::<Vec<_>>().join(", ")
}
