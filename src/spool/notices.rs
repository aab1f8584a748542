//! Wishes to tell somebody: one file each in `notices/`, written before a ticket moves and removed by
//! `workspool notify` when it is told. Written only where the configuration names somebody to tell.

use super::{Spool, SpoolError, config, names, read_json};
use crate::durable;
use crate::model::{NoticeKind, State, TaskId, TaskResult, VERSION};
use crate::process::{detach, own_executable};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

/// A wish to tell somebody of a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Notice {
    /// Version of this format.
    pub version: u32,
    /// The task.
    pub task: TaskId,
    /// The attempt.
    pub attempt: u32,
    /// Of what.
    pub kind: NoticeKind,
    /// When it happened.
    pub at: DateTime<Utc>,
    /// Ways by which it was told already.
    #[serde(default)]
    pub told: BTreeSet<String>,
    /// How often it was tried.
    #[serde(default)]
    pub tries: u32,
    /// Not to be tried before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<DateTime<Utc>>,
}

impl Notice {
    /// Its name: the same for one happening, however often it is written.
    pub fn name(&self) -> String {
        format!("{}.{}.{}", self.task, self.attempt, self.kind)
    }

    /// Whether it may be tried now.
    pub fn is_due(&self) -> bool {
        self.not_before.is_none_or(|at| at <= Utc::now())
    }
}

impl Spool {
    /// Wishes to tell somebody.
    pub fn notices(&self) -> PathBuf {
        self.root().join("notices")
    }

    /// All wishes that can be read; one that cannot is removed, since nobody could fulfil it.
    pub fn all_notices(&self) -> Result<Vec<Notice>, SpoolError> {
        let dir = self.notices();
        let mut found = Vec::new();
        for name in names(&dir).map_err(|e| SpoolError::io("read", &dir, e))? {
            // A file that is being written, or that another process has just removed.
            if name.as_encoded_bytes().starts_with(b".") {
                continue;
            }
            let path = dir.join(name);
            match read_json::<Notice>(&path) {
                Ok(notice) => found.extend(notice),
                Err(SpoolError::Broken(..)) => {
                    durable::remove_file(&path).map_err(|e| SpoolError::io("remove", &path, e))?;
                }
                Err(e) => return Err(e),
            }
        }
        found.sort_by_key(|n| n.at);
        Ok(found)
    }

    /// Writes a wish anew, as after a try that failed.
    pub fn put_notice(&self, notice: &Notice) -> std::io::Result<()> {
        durable::replace_unsynced(&self.notices().join(notice.name()), &serde_json::to_vec(notice)?)
    }

    /// Removes a wish.
    pub fn drop_notice(&self, notice: &Notice) -> std::io::Result<()> {
        durable::remove_file(&self.notices().join(notice.name()))
    }
}

/// Wishes that somebody hears of an end, if anybody wants to. Says whether it did.
///
/// What somebody cancelled is not told: somebody knows.
pub(super) fn post_end(spool: &Spool, result: &TaskResult) -> bool {
    match result.state {
        State::Succeeded => post(spool, result.id, result.attempt, NoticeKind::Done),
        State::Cancelled => false,
        _ => post(spool, result.id, result.attempt, NoticeKind::Failed),
    }
}

/// Wishes that somebody hears of a question.
pub(super) fn post_question(spool: &Spool, task: TaskId, attempt: u32) -> bool {
    post(spool, task, attempt, NoticeKind::Question)
}

fn post(spool: &Spool, task: TaskId, attempt: u32, kind: NoticeKind) -> bool {
    let wanted = config::load(spool).is_ok_and(|c| c.notify.is_on() && c.notify.on.contains(&kind));
    if !wanted {
        return false;
    }
    let notice = Notice {
        version: VERSION,
        task,
        attempt,
        kind,
        at: Utc::now(),
        told: BTreeSet::new(),
        tries: 0,
        not_before: None,
    };
    // A task does not fail because nobody can be told.
    let posted = durable::ensure_dir(&spool.notices()).and_then(|()| {
        durable::create_new(&spool.notices().join(notice.name()), &serde_json::to_vec(&notice)?)
    });
    posted.is_ok()
}

/// Whether a wish can be fulfilled now and nobody is about to.
pub fn is_due(spool: &Spool) -> Result<bool, SpoolError> {
    // Most spools have no such folder: one failed system call.
    let due = spool.all_notices()?.iter().any(Notice::is_due);
    Ok(due && !spool.lock("notify").is_held().unwrap_or(false))
}

/// Starts a process that fulfils what is due, and does not wait for it.
pub fn send(spool: &Spool) {
    let Ok(program) = own_executable() else { return };
    let mut command = Command::new(program);
    command.arg("--spool").arg(spool.root()).arg("notify").current_dir("/");
    if let Ok(mut child) = detach(command).spawn() {
        // A runner lives long: what it started must not stay as a zombie.
        let _ = std::thread::Builder::new().name("notify".into()).spawn(move || child.wait());
    }
}
