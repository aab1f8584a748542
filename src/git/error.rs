//! How git commands fail.

use super::runner::OLDEST;
use std::fmt;
use std::io;

/// What went wrong, for callers that act on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GitErrorKind {
    /// There is no git on the PATH.
    Missing,
    /// Git is older than we can use.
    TooOld,
    /// The folder is not in a repository.
    NotARepository,
    /// Git does not trust the folder's owner.
    NotTrusted,
    /// Somebody else's lock file stayed in the way. It is never deleted.
    LockExists,
    /// The revision names nothing, or not what is needed.
    BadRevision,
    /// A merge has conflicts.
    Conflict,
    /// A ref had another value than it should.
    RefMoved,
    /// The repository is a partial clone, and what it lacks could not be fetched.
    NotFetched,
    /// The deadline passed; the command was killed.
    Timeout,
    /// Anything else; see the text.
    Other,
}

/// A git command that failed.
#[derive(Debug, Clone, thiserror::Error)]
pub struct GitError {
    /// The arguments after `git`.
    pub argv: Vec<String>,
    /// The exit status, if it ended by itself.
    pub status: Option<i32>,
    /// What it said, cut short if it was long.
    pub stderr: String,
    /// The sort of failure.
    pub kind: GitErrorKind,
}

impl fmt::Display for GitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            GitErrorKind::Missing => return f.write_str("git was not found on the PATH"),
            GitErrorKind::TooOld => {
                return write!(f, "git is too old: {}; {}.{} is needed", self.stderr, OLDEST.0, OLDEST.1);
            }
            _ => {}
        }
        let verb = self.argv.first().map_or("", String::as_str);
        let words = self.stderr.trim_end();
        let words = words.char_indices().nth(2000).map_or(words, |(at, _)| &words[..at]);
        match (self.kind, self.status) {
            (GitErrorKind::Timeout, _) => write!(f, "git {verb} took too long and was killed")?,
            (_, Some(status)) => write!(f, "git {verb} failed (exit {status})")?,
            (_, None) => write!(f, "git {verb} failed")?,
        }
        if !words.is_empty() {
            write!(f, ": {words}")?;
        }
        match self.kind {
            GitErrorKind::NotFetched => f.write_str(
                "\n  hint: the repository is a partial clone, and its remote did not give what is missing; \
                 check out the base there once while the remote can be reached",
            ),
            _ => Ok(()),
        }
    }
}

impl GitError {
    /// Whether the machine failed, rather than what was asked being wrong: the same may work later.
    pub fn is_of_the_machine(&self) -> bool {
        match self.kind {
            GitErrorKind::Missing
            | GitErrorKind::LockExists
            | GitErrorKind::NotFetched
            | GitErrorKind::Timeout => true,
            GitErrorKind::Other => self.status.is_none(),
            _ => false,
        }
    }

    /// An error that no process reported.
    pub(super) fn own(verb: &str, kind: GitErrorKind, text: impl Into<String>) -> GitError {
        GitError { argv: vec![verb.into()], status: None, stderr: text.into(), kind }
    }

    /// An error of the system while git, or a file it needs, was handled.
    pub(super) fn io(verb: &str, what: &str, error: &io::Error) -> GitError {
        GitError::own(verb, GitErrorKind::Other, format!("{what}: {error}"))
    }
}

/// Reads the sort of failure from git's words, which are English and never change with a locale.
pub(super) fn classify(stderr: &str) -> GitErrorKind {
    let has = |text: &str| stderr.contains(text);
    if has(".lock': File exists") || has("could not lock config file") && has("File exists") {
        GitErrorKind::LockExists
    } else if has("not a git repository") {
        GitErrorKind::NotARepository
    } else if has("dubious ownership") {
        GitErrorKind::NotTrusted
    } else if has("but expected") || has("reference already exists") || has("cannot lock ref") {
        GitErrorKind::RefMoved
    } else if has("unknown revision")
        || has("Needed a single revision")
        || has("bad revision")
        || has("invalid reference")
        || has("Not a valid object name")
    {
        GitErrorKind::BadRevision
    } else if has("from promisor remote") {
        GitErrorKind::NotFetched
    } else {
        GitErrorKind::Other
    }
}
