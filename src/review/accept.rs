//! Accepting: bringing a succeeded task's change into the user's repository, whole or not at all.
//!
//! Under the locks of task and repository. What is taken is the commit that the result names, which is the
//! tree that was verified. A crash leaves the record of the landing; the next accept goes on from it.

use super::verdicts;
use crate::attempt;
use crate::gate;
use crate::git::{Guard, How, Landing, Oid, Recovered, Refusal, Repo, shadow};
use crate::model::{Landed, Review, Task, TaskId, TaskResult, Verification, WorkspaceKind};
use crate::spool::{LockedTask, Spool, SpoolError, read_json};
use crate::workspace::apart;
use anyhow::Context as _;
use std::io;
use std::path::{Path, PathBuf};

/// How a change is taken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum As {
    /// Into the working tree and the index.
    #[default]
    Apply,
    /// As a commit on the branch that is checked out.
    Commit,
    /// As a branch; nothing else is touched.
    Branch,
}

impl As {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            As::Apply => "apply",
            As::Commit => "commit",
            As::Branch => "branch",
        }
    }
}

impl std::str::FromStr for As {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        match s {
            "apply" => Ok(As::Apply),
            "commit" => Ok(As::Commit),
            "branch" => Ok(As::Branch),
            _ => Err(format!("{s:?}: expected apply, commit or branch")),
        }
    }
}

/// What somebody wants taken, and how.
#[derive(Debug, Clone, Default)]
pub struct Acceptance {
    /// How.
    pub how: As,
    /// The branch's name, with [`As::Branch`]; else the task's own.
    pub branch: Option<String>,
    /// The commit's message, with [`As::Commit`]; else the task's.
    pub message: Option<String>,
    /// Take it although nothing verified it.
    pub unverified: bool,
    /// Take it although its records do not match its receipt.
    pub unaudited: bool,
    /// Take it although hooks or settings that can execute are not what they were before the task.
    pub changed_settings: bool,
    /// Take it only if the task's record has this SHA-256.
    pub sha256: Option<String>,
    /// Another checkout of the same repository to land in.
    pub checkout: Option<PathBuf>,
    /// A remark for the record.
    pub remark: Option<String>,
}

/// Why a change was not taken. Nothing was touched, unless it says so.
#[derive(Debug, thiserror::Error)]
pub enum NotAccepted {
    /// The task is not one that can be accepted.
    #[error(transparent)]
    Spool(#[from] SpoolError),
    /// Nothing verified it.
    #[error(
        "task {0} is not verified: it has no verify commands\n  hint: look at `workspool diff {0}`, then accept it with --unverified"
    )]
    Unverified(TaskId),
    /// A copy's change is files, and no commit of the user's repository.
    #[error(
        "task {0} worked on a copy of a folder: its change can only be applied to that folder\n  hint: leave out --as and --checkout; `workspool diff {0} --full` is a patch for other places"
    )]
    OnlyApply(TaskId),
    /// It is not the task that was meant.
    #[error("the record of task {0} has another hash than was given: it is not what you looked at")]
    OtherTask(TaskId),
    /// Its records are not what they were when it was verified.
    #[error(
        "task {id}: {what} does not match its receipt: {why}\n  hint: `workspool audit {id}` tells more; nothing was touched"
    )]
    Audit {
        /// The task.
        id: TaskId,
        /// What does not match.
        what: String,
        /// Why.
        why: String,
    },
    /// The repository does not take it.
    #[error("{0}{hint}", hint = hint(.0))]
    Refused(#[from] Refusal),
    /// Something went wrong.
    #[error("{0:#}")]
    Fault(#[from] anyhow::Error),
}

fn hint(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::Conflict(_) => {
            "\n  hint: nothing was touched; `accept --as branch` makes a branch that you can merge by hand"
        }
        Refusal::LocalChanges(_) => {
            "\n  hint: nothing was touched; commit or stash these changes, or `accept --as branch`"
        }
        Refusal::InTheWay(_) => {
            "\n  hint: nothing was touched; move these files away, or `accept --as branch`"
        }
        Refusal::Tampered(_) => {
            "\n  hint: nothing was touched; if these changes are your own, accept with --changed-settings"
        }
        Refusal::Unfinished(_) => "\n  hint: accept the same task again to finish it",
        _ => "",
    }
}

/// Takes a succeeded task's change.
pub fn accept(spool: &Spool, id: TaskId, wish: &Acceptance) -> Result<Landed, NotAccepted> {
    if let Some(landed) = recover(spool, id)? {
        return Ok(landed);
    }
    let (locked, found) = verdicts::reviewable(spool, id, "accepted").map_err(spool_error)?;
    let attempt = found.ticket.attempt;
    let task = locked.task()?;
    let result = spool.read_result(id)?.context("the result is gone")?;
    if wish.sha256.as_ref().is_some_and(|sha256| *sha256 != result.task_sha256) {
        return Err(NotAccepted::OtherTask(id));
    }
    if result.verification != Verification::Verified && !wish.unverified {
        return Err(NotAccepted::Unverified(id));
    }
    let unverified = result.verification != Verification::Verified;
    if result.receipt.is_some() && !wish.unaudited {
        // What is accepted is the audited tree: the result alone could have been written by anybody.
        let audit = gate::audit::audit(spool, id, false, &mut |_| {})?;
        if let Some(differs) = audit.first() {
            let why = differs.differs.clone().unwrap_or_default();
            return Err(NotAccepted::Audit { id, what: differs.what.clone(), why });
        }
    }
    let kind = task.spec.workspace();
    let (Some(commit), Some(base), true) =
        (&result.commit, &result.base, apart::repository(spool, &task).is_some())
    else {
        // Nothing to bring anywhere: a report, a folder that was worked on directly, or no change at all.
        let landed = nothing(&result, wish.how, unverified);
        verdicts::add(&locked, attempt, Review::Accepted, wish.remark.clone(), Some(landed.clone()))?;
        return Ok(landed);
    };
    if kind == WorkspaceKind::Copy && (wish.how != As::Apply || wish.checkout.is_some()) {
        return Err(NotAccepted::OnlyApply(id));
    }
    let path = match (&wish.checkout, &task.repo) {
        (Some(path), _) => path.clone(),
        (None, Some(repo)) => repo.path.clone(),
        (None, None) => return Err(anyhow::anyhow!("the task names no repository").into()),
    };
    let seconds = chrono::Utc::now().timestamp();
    let repo = match kind {
        WorkspaceKind::Copy => folder_as_checkout(spool, &task, &path, seconds)?,
        _ => Repo::open(&path).map_err(anyhow::Error::from)?,
    };
    if let Some(known) = &task.repo
        && wish.checkout.is_some()
        && Repo::open(&known.path).is_ok_and(|own| own.key != repo.key)
    {
        return Err(anyhow::anyhow!("{} is not a checkout of the task's repository", path.display()).into());
    }
    let _alone = spool.repo_lock(&repo.key.hash).take().context("cannot lock the repository")?;
    let oid = |text: &str| Oid::parse(text.as_bytes()).with_context(|| format!("{text} is no object name"));
    let (commit, base) = (oid(commit)?, oid(base)?);
    let guard: Option<Guard> = match wish.changed_settings {
        true => None,
        false => read_json(&locked.dir().attempt(attempt).file("guard.json"))?,
    };
    let how = match wish.how {
        As::Apply => How::Apply,
        As::Commit => How::Commit { message: message(wish, &result, &repo, &commit)? },
        As::Branch => How::Branch { name: wish.branch.clone().unwrap_or_else(|| format!("accepted/{id}")) },
    };
    let plan = Landing::plan(&repo, &base, &commit, how, guard.as_ref())?;
    let files = plan.changes().count();
    let head = (kind != WorkspaceKind::Copy).then(|| repo.head.to_string());
    let made = |landed: &crate::git::Landed| Landed {
        how: wish.how.as_str().to_owned(),
        produced: commit.to_string(),
        commit: landed.commit.as_ref().map(ToString::to_string),
        branch: landed.branch.clone(),
        head: head.clone(),
        gated: landed.gated,
        unverified,
        files,
    };
    let landed =
        Landing::apply_and_tell(&plan, &id.to_string(), &locked.dir().landing(), seconds, |landed| {
            record(&locked, attempt, wish.remark.clone(), made(landed))
        })?;
    drop(_alone);
    tidy(&locked);
    Ok(made(&landed))
}

/// The user's folder as it is now, as a checkout of the repository of ours in which the copy's change is.
fn folder_as_checkout(spool: &Spool, task: &Task, folder: &Path, seconds: i64) -> anyhow::Result<Repo> {
    let shadow = apart::shadow_of(spool, task)?;
    anyhow::ensure!(folder.is_dir(), "{} is not there any more", folder.display());
    let now = shadow::record(&shadow, folder, "workspool: before a change lands", seconds, &mut || Ok(()))
        .with_context(|| format!("cannot look at what {} holds now", folder.display()))?;
    Ok(shadow::checkout(&shadow, folder, &now))
}

/// Goes on with an accept that a crash cut off, if there is one.
fn recover(spool: &Spool, id: TaskId) -> Result<Option<Landed>, NotAccepted> {
    let intent = spool.task(id).landing();
    if !intent.exists() {
        return Ok(None);
    }
    let locked = spool.lock_task(id)?;
    let found = locked.ticket()?.context("the task has no ticket")?;
    let task = locked.task()?;
    let result = spool.read_result(id)?.context("the result is gone")?;
    let path = apart::repository(spool, &task).context("the task names no repository")?;
    let repo = Repo::open(&path).map_err(anyhow::Error::from)?;
    let _alone = spool.repo_lock(&repo.key.hash).take().context("cannot lock the repository")?;
    let made = |landed: &crate::git::Landed| Landed {
        how: if landed.commit.is_some() { "commit" } else { "apply" }.to_owned(),
        produced: result.commit.clone().unwrap_or_default(),
        commit: landed.commit.as_ref().map(ToString::to_string),
        branch: landed.branch.clone(),
        head: None,
        gated: landed.gated,
        unverified: result.verification != Verification::Verified,
        files: landed.paths,
    };
    let recovered = Landing::recover_and_tell(&intent, |landed| {
        record(&locked, found.ticket.attempt, Some("finished after an interruption".into()), made(landed))
    })?;
    match recovered {
        Recovered::Nothing | Recovered::Undone => Ok(None),
        Recovered::Landed(landed) => {
            drop(_alone);
            tidy(&locked);
            Ok(Some(made(&landed)))
        }
    }
}

/// Writes the verdict, once: a recovery may come here again.
fn record(locked: &LockedTask, attempt: u32, remark: Option<String>, landed: Landed) -> io::Result<()> {
    let known = verdicts::verdict(locked.spool(), locked.id()).map_err(io::Error::other)?;
    if known.is_some_and(|v| v.verdict == Review::Accepted) {
        return Ok(());
    }
    verdicts::add(locked, attempt, Review::Accepted, remark, Some(landed)).map_err(io::Error::other)
}

/// Takes the workspace away: its change is where it belongs. What cannot be removed now, prune removes.
fn tidy(locked: &LockedTask) {
    if let Ok(task) = locked.task()
        && let Some(place) = apart::repository(locked.spool(), &task)
        && let Ok(repo) = Repo::open(&place)
    {
        let path = crate::workspace::path(locked.spool(), &task);
        let _ = attempt::clear_workspace(locked.spool(), locked.dir(), &repo, &path);
    }
}

fn nothing(result: &TaskResult, how: As, unverified: bool) -> Landed {
    Landed {
        how: how.as_str().to_owned(),
        produced: result.commit.clone().or_else(|| result.base.clone()).unwrap_or_default(),
        commit: None,
        branch: None,
        head: None,
        gated: true,
        unverified,
        files: 0,
    }
}

/// The message of the commit: what was given, else that of the produced commit.
fn message(wish: &Acceptance, result: &TaskResult, repo: &Repo, commit: &Oid) -> anyhow::Result<String> {
    if let Some(message) = wish.message.as_ref().filter(|m| !m.trim().is_empty()) {
        return Ok(format!("{}\n\nWorkspool-Task: {}\n", message.trim_end(), result.id));
    }
    let bytes = repo.message_of(commit)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Keeps the kind of an error that somebody acts on.
fn spool_error(e: anyhow::Error) -> NotAccepted {
    match e.downcast::<SpoolError>() {
        Ok(e) => NotAccepted::Spool(e),
        Err(e) => NotAccepted::Fault(e),
    }
}
