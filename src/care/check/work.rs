//! Is every byte of work kept: in the tree, in a commit that a ref holds, or in a salvage (I7)?

use super::finding::{Finding, Kind};
use super::scan::OneTask;
use crate::attempt::{Plan, read_prepared};
use crate::git::{BRANCHES, KEPT, Oid, Repo, SALVAGE, bytes, worktree};
use crate::model::{EventKind, Permission, Review, ReviewFile, State, Task, TaskResult};
use crate::spool::{Place, Spool, SpoolError, events, read_json};
use crate::workspace::apart;
use serde::Deserialize;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

/// What is read of `attempts/<n>/work.<round>.json`.
#[derive(Deserialize)]
struct Work {
    head: Option<String>,
    #[serde(default)]
    changes: Vec<serde_json::Value>,
}

/// The refs and worktrees of ours in the repositories of tasks, read once for each.
#[derive(Default)]
pub(super) struct Repositories {
    known: HashMap<PathBuf, Result<Ours, String>>,
}

/// What is ours in one repository.
pub(super) struct Ours {
    pub repo: Repo,
    refs: BTreeMap<String, String>,
    pub worktrees: Vec<worktree::Listed>,
}

impl Repositories {
    /// What is ours in the repository at `path`, or why it cannot be looked at.
    pub fn at(&mut self, path: &Path) -> &Result<Ours, String> {
        self.known.entry(path.to_owned()).or_insert_with(|| read(path).map_err(|e| format!("{e:#}")))
    }

    /// Reads everything anew when it is asked for next.
    pub fn forget(&mut self) {
        self.known.clear();
    }

    pub fn all(&self) -> impl Iterator<Item = (&PathBuf, &Result<Ours, String>)> {
        self.known.iter()
    }
}

fn read(path: &Path) -> anyhow::Result<Ours> {
    let repo = Repo::open(path)?;
    let out = repo
        .shared()
        .reads("for-each-ref")
        .args(["--format=%(objectname) %(refname)"])
        .args([BRANCHES, crate::git::REFS])
        .run()?;
    let refs = String::from_utf8_lossy(&out)
        .lines()
        .filter_map(|l| l.split_once(' '))
        .map(|(oid, name)| (name.to_owned(), oid.to_owned()))
        .collect();
    let worktrees = worktree::list_ours(&repo)?;
    Ok(Ours { repo, refs, worktrees })
}

pub(super) fn look(
    spool: &Spool,
    one: &OneTask,
    task: &Task,
    repos: &mut Repositories,
    found: &mut Vec<Finding>,
) -> Result<(), SpoolError> {
    let Some(repo) = apart::repository(spool, task) else { return Ok(()) };
    let dir = spool.task(one.id);
    let last = dir.last_attempt();
    let running = one.ticket().filter(|t| t.place == Place::Running).map(|t| t.ticket.attempt);
    let worked: Vec<u32> =
        (1..=last).filter(|n| dir.attempt(*n).step("work.1").join("start.json").exists()).collect();
    if worked.is_empty() {
        return Ok(());
    }
    let Ok(ours) = repos.at(&repo) else { return Ok(()) };
    let result = spool.read_result(one.id).ok().flatten();
    let review: Option<ReviewFile> = read_json(&dir.review()).ok().flatten();
    let verdict = review.and_then(|r| r.verdicts.last().map(|v| v.verdict));
    for n in worked.into_iter().filter(|n| Some(*n) != running) {
        let attempt = dir.attempt(n);
        let succeeded = result
            .as_ref()
            .filter(|r| r.attempt == n && r.state == State::Succeeded && verdict != Some(Review::Accepted));
        if let Some(result) = succeeded {
            commit_is_kept(one, task, result, ours, found);
            continue;
        }
        if verdict == Some(Review::Accepted) && result.as_ref().is_some_and(|r| r.attempt == n) {
            continue;
        }
        let plan: Option<Plan> = read_json(&attempt.file("attempt.json")).ok().flatten();
        let newer = (n + 1..=last).any(|k| read_prepared(&dir.attempt(k)).ok().flatten().is_some());
        // A power loss may have taken the plan.
        let tree = plan.map_or_else(|| crate::workspace::path(spool, task), |p| p.workspace);
        let in_tree = !newer && tree.is_dir();
        let salvaged = ours.refs.contains_key(&format!("{SALVAGE}{}/{n}", one.id));
        let aside = spool.worktrees().join(".kept").join(format!("{}.1", one.id)).exists();
        // The tree of an attempt that nobody looked at went only with the proof that a commit holds all.
        let nothing = match last_work(attempt.path()) {
            Some(work) => work.changes.is_empty() && work.head.is_none(),
            // So may one that was never on the disk.
            None => newer || attempt.was_cut(),
        };
        let kept = || commit_of(spool, one, n).is_some_and(|commit| ours.holds(one, n, &commit));
        if !(in_tree || salvaged || aside || nothing || kept()) {
            let message =
                format!("what the worker of attempt {n} left is in no tree, no commit and no salvage");
            found.push(Finding::new(Kind::WorkNotKept, attempt.path(), message).of(one.id));
        }
    }
    Ok(())
}

/// The commit that an attempt made, as the history tells.
fn commit_of(spool: &Spool, one: &OneTask, attempt: u32) -> Option<Oid> {
    let history = events::read(&spool.task(one.id).events()).ok()?;
    let commits = history.into_iter().filter(|e| e.attempt == Some(attempt));
    commits.rev().find_map(|e| match e.what {
        EventKind::Committed { commit, .. } => Oid::parse(commit.as_bytes()),
        _ => None,
    })
}

impl Ours {
    /// Whether the task's branch, or a ref made for the purpose, holds a commit of an attempt.
    fn holds(&self, one: &OneTask, attempt: u32, commit: &Oid) -> bool {
        let branch = format!("{BRANCHES}{}", one.id);
        let kept = format!("{KEPT}{}/{attempt}", one.id);
        [branch, kept].iter().filter_map(|name| self.refs.get(name)).any(|at| {
            *at == commit.to_string()
                || Oid::parse(at.as_bytes())
                    .is_some_and(|at| self.repo.is_ancestor(commit, &at).unwrap_or(false))
        })
    }
}

fn commit_is_kept(one: &OneTask, task: &Task, result: &TaskResult, ours: &Ours, found: &mut Vec<Finding>) {
    let (Some(commit), Some(branch)) = (&result.commit, &result.branch) else { return };
    if task.spec.permission() == Permission::ReadOnly {
        return;
    }
    let at = ours.refs.get(&format!("refs/heads/{branch}"));
    let salvaged = ours.refs.contains_key(&format!("{SALVAGE}{}/{}", one.id, result.attempt));
    if at != Some(commit) && !salvaged {
        let path = bytes::of_path(&ours.repo.common).to_vec();
        let path = bytes::to_path(&path).join("refs/heads").join(branch);
        let message = match at {
            Some(at) => format!("the branch is at {at}, not at the result's commit {commit}"),
            None => format!("the branch is gone, and with it the result's commit {commit}"),
        };
        found.push(Finding::new(Kind::CommitNotKept, &path, message).of(one.id));
    }
}

/// What was seen after the newest run of the worker.
fn last_work(attempt: &Path) -> Option<Work> {
    let mut last = None;
    for round in 1.. {
        match read_json::<Work>(&attempt.join(format!("work.{round}.json"))) {
            Ok(Some(work)) => last = Some(work),
            _ => break,
        }
    }
    last
}
