//! Taking away what is no longer needed: by age, number and size, and only what this spool owns.
//!
//! Three levels, the cheapest first: build output (ignored folders that can be made again), workspaces
//! (only with the proof that all in them is kept, I7), and tasks with their records. Never on the claim
//! path: nothing but `prune` itself calls this. Each step is made under the task's lock, after a fresh
//! look, and only called done after another one.

mod remove;

use super::check::{self, Finding, Outcome, Severity};
use crate::attempt::read_prepared;
use crate::git::View;
use crate::model::{HeldReason, Review, State, Task, TaskId, TaskResult, WorkspaceKind};
use crate::spool::{Found, Place, Spool, SpoolError, config, names, read_json};
use crate::workspace::{overlay, warm};
use chrono::{DateTime, Utc};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Build output is kept for this long after the end, for whoever looks into a workspace.
const BUILD_AGE: Duration = Duration::from_secs(24 * 3600);

/// What may go.
#[derive(Debug, Clone)]
pub struct Policy {
    /// Tasks that ended longer ago than this.
    pub older_than: Duration,
    /// The newest so many ended tasks stay, however old.
    pub keep: usize,
    /// Older ended tasks go, until workspaces and tasks take no more than this.
    pub max_bytes: Option<u64>,
    /// Tasks held by hand or for an answer for longer than `older_than` are cancelled.
    pub include_held: bool,
    /// Also records of succeeded tasks that nobody decided about; their branches stay.
    pub include_unreviewed: bool,
}

/// What is to be taken away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// A held task is cancelled; the next prune removes it.
    Cancel,
    /// Ignored folders that can be made again.
    BuildOutput,
    /// A workspace.
    Workspace,
    /// A task: its records, its key, its notes, and its workspace.
    Task,
    /// A workspace of ours whose task is gone.
    Orphan,
    /// A tree that waits for the next task of its repository, and has done so for long.
    WarmTree,
    /// What a crash left over.
    Leftover,
    /// A checkout that overlays were laid over, and that no task uses.
    Checkout,
}

/// One thing to be taken away.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Item {
    /// What.
    pub what: What,
    /// Of which task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskId>,
    /// Where.
    pub path: PathBuf,
    /// How much it takes, in bytes.
    pub bytes: u64,
    /// Why it may go.
    pub why: String,
    /// What became of it: absent in a dry run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Done>,
    #[serde(skip)]
    ticket: Option<Found>,
}

/// What became of a thing that was to be taken away.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Done {
    /// It is gone; a look afterwards found it so.
    Removed,
    /// It stays, and this is why.
    Kept(String),
}

/// What a prune came to.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub struct Report {
    /// What may go, or went.
    pub items: Vec<Item>,
    /// What stays although it is old, and why.
    pub kept: Vec<String>,
}

/// A task that has ended.
struct Ended {
    found: Found,
    task: Task,
    result: TaskResult,
    review: Option<Review>,
    workspace: PathBuf,
}

/// What is read of a key's file.
#[derive(Deserialize)]
struct Key {
    first: TaskId,
    #[serde(default)]
    count: u64,
}

/// Says what may go, and takes it away if `apply`.
pub fn prune(spool: &Spool, policy: &Policy, apply: bool) -> anyhow::Result<Report> {
    let mut report = Report::default();
    let keys = keys(spool)?;
    plan(spool, policy, &keys, &mut report)?;
    if policy.include_held {
        held(spool, policy, &mut report)?;
    }
    report.items.sort_by_key(|i| (i.what, i.task));
    if apply {
        for item in &mut report.items {
            let done = remove::item(spool, item, &keys);
            item.outcome = Some(done.unwrap_or_else(|e| Done::Kept(format!("{e:#}"))));
        }
    }
    leftovers(spool, apply, &mut report)?;
    checkouts(spool, policy, apply, &mut report)?;
    warm_trees(spool, policy, apply, &mut report)?;
    Ok(report)
}

fn plan(
    spool: &Spool,
    policy: &Policy,
    keys: &BTreeMap<TaskId, (PathBuf, u64)>,
    report: &mut Report,
) -> anyhow::Result<()> {
    let mut ended = ended(spool)?;
    ended.sort_by_key(|e| std::cmp::Reverse((e.result.ended_at, e.task.id)));
    let needed = needed(spool)?;
    let mut old: BTreeSet<TaskId> = BTreeSet::new();
    let mut why: BTreeMap<TaskId, String> = BTreeMap::new();
    let mut total: u64 = 0;
    let sizes: Vec<(u64, u64)> = match policy.max_bytes {
        None => Vec::new(),
        Some(_) => ended.iter().map(|e| (size(&e.workspace), size(spool.task(e.task.id).path()))).collect(),
    };
    total += sizes.iter().map(|(a, b)| a + b).sum::<u64>();
    for (k, one) in ended.iter().enumerate().skip(policy.keep).rev() {
        let id = one.task.id;
        if age(one.result.ended_at) >= policy.older_than {
            old.insert(id);
            why.insert(id, format!("it ended {} days ago", age(one.result.ended_at).as_secs() / 86_400));
        } else if let Some(most) = policy.max_bytes.filter(|most| total > *most) {
            old.insert(id);
            why.insert(id, format!("ended tasks take more than {most} bytes"));
        }
        if old.contains(&id)
            && let Some((a, b)) = sizes.get(k)
        {
            total = total.saturating_sub(a + b);
        }
    }
    for (k, one) in ended.iter().enumerate() {
        let id = one.task.id;
        let dir = spool.task(id);
        let item = |what, path: &Path, why: &str| Item {
            what,
            task: Some(id),
            path: path.to_owned(),
            bytes: size(path),
            why: why.to_owned(),
            outcome: None,
            ticket: Some(one.found),
        };
        let stays = if needed.contains(&id) {
            Some("another task waits for it".to_owned())
        } else if dir.landing().exists() {
            Some("an accept of it is under way".to_owned())
        } else {
            batch_of_key(spool, one, keys, &old)
        };
        let has_tree = one.workspace.is_dir() && one.task.spec.workspace() != WorkspaceKind::Directory;
        if let Some(why) = why.get(&id).filter(|_| old.contains(&id)) {
            let undecided = one.result.state == State::Succeeded
                && matches!(one.review, None | Some(Review::Unreviewed | Review::ChangesRequested));
            if let Some(stays) = stays {
                report.kept.push(format!("task {id}: {stays}"));
            } else if undecided && !policy.include_unreviewed {
                if has_tree {
                    report.items.push(item(What::Workspace, &one.workspace, why));
                }
                report.kept.push(format!("task {id}: it succeeded and nobody decided about it yet"));
            } else {
                report.items.push(Item {
                    bytes: size(dir.path()) + if has_tree { size(&one.workspace) } else { 0 },
                    ..item(What::Task, dir.path(), why)
                });
            }
        } else if k >= policy.keep && has_tree && age(one.result.ended_at) >= BUILD_AGE.min(policy.older_than)
        {
            for folder in build_output(spool, one) {
                report.items.push(item(What::BuildOutput, &folder, "it is ignored and can be made again"));
            }
        }
    }
    Ok(())
}

/// Keys name a whole batch: it goes as a whole, so that its key never stands for a part of it.
fn batch_of_key(
    spool: &Spool,
    one: &Ended,
    keys: &BTreeMap<TaskId, (PathBuf, u64)>,
    old: &BTreeSet<TaskId>,
) -> Option<String> {
    let batch = one.task.batch.as_ref()?;
    let (_, count) = keys.get(&batch.first)?;
    let all = (0..usize::try_from(*count).unwrap_or(0)).map(|k| batch.first.plus(k));
    let young = all.filter(|id| spool.task(*id).path().is_dir()).find(|id| !old.contains(id))?;
    Some(format!("it is of one keyed batch with task {young}, which stays"))
}

fn ended(spool: &Spool) -> anyhow::Result<Vec<Ended>> {
    let mut all = Vec::new();
    for found in spool.all_tickets()? {
        let found = found?;
        if !matches!(found.place, Place::Done(..)) {
            continue;
        }
        let id = found.ticket.task;
        // What cannot be read is for `check`, and stays.
        let (Ok(task), Ok(Some(result))) = (spool.read_task(id), spool.read_result(id)) else { continue };
        let review: Option<crate::model::ReviewFile> = read_json(&spool.task(id).review()).ok().flatten();
        let review = review.and_then(|r| r.verdicts.last().map(|v| v.verdict));
        let workspace = crate::workspace::path(spool, &task);
        all.push(Ended { found, task, result, review, workspace });
    }
    Ok(all)
}

/// Tasks that some task needs which has not ended.
fn needed(spool: &Spool) -> Result<BTreeSet<TaskId>, SpoolError> {
    let mut needed = BTreeSet::new();
    for found in spool.active()? {
        if let Ok(task) = spool.read_task(found.ticket.task) {
            needed.extend(task.needs);
        }
    }
    Ok(needed)
}

/// Keys by the first task of their submission.
fn keys(spool: &Spool) -> anyhow::Result<BTreeMap<TaskId, (PathBuf, u64)>> {
    let mut keys = BTreeMap::new();
    for name in names(&spool.keys())? {
        let path = spool.keys().join(name);
        if let Ok(Some(key)) = read_json::<Key>(&path) {
            keys.insert(key.first, (path, key.count));
        }
    }
    Ok(keys)
}

/// Folders in a workspace that git ignores as a whole and whose names say that they can be made again.
fn build_output(spool: &Spool, one: &Ended) -> Vec<PathBuf> {
    let dir = spool.task(one.task.id);
    let attempts = (1..=dir.last_attempt()).rev().map(|n| dir.attempt(n));
    for attempt in attempts {
        if let Ok(Some(_)) = read_prepared(&attempt) {
            let found = View::open(&attempt.view())
                .ok()
                .filter(|view| view.worktree().path == one.workspace)
                .and_then(|view| view.ignored_folders().ok());
            let worthless = crate::git::Limits::default().worthless;
            let named =
                |path: &PathBuf| path.file_name().is_some_and(|n| worthless.iter().any(|w| n == w.as_str()));
            return found
                .unwrap_or_default()
                .into_iter()
                .filter(named)
                .map(|path| one.workspace.join(path))
                .filter(|path| path.symlink_metadata().is_ok_and(|m| m.is_dir()))
                .collect();
        }
    }
    Vec::new()
}

/// Tasks that a person would have to move on, and that nobody has moved on for long.
fn held(spool: &Spool, policy: &Policy, report: &mut Report) -> Result<(), SpoolError> {
    for found in spool.active()? {
        let Place::Held(HeldReason::Hand | HeldReason::Answer, _) = found.place else { continue };
        let id = found.ticket.task;
        let Some(hold) = spool.read_hold(id) else { continue };
        if age(hold.since) >= policy.older_than {
            report.items.push(Item {
                what: What::Cancel,
                task: Some(id),
                path: spool.ticket_path(found.place, &found.ticket),
                bytes: 0,
                why: format!(
                    "it has been held for {} days: {}",
                    age(hold.since).as_secs() / 86_400,
                    hold.message
                ),
                outcome: None,
                ticket: Some(found),
            });
        }
    }
    Ok(())
}

/// What crashes left over, and workspaces without a task.
fn leftovers(spool: &Spool, apply: bool, report: &mut Report) -> anyhow::Result<()> {
    for finding in check::leftovers(spool, apply)? {
        if finding.kind == check::Kind::OrphanWorkspace {
            let mut item = leftover(What::Orphan, &finding);
            if apply {
                let done = remove::orphan(spool, &finding.path);
                item.outcome = Some(done.unwrap_or_else(|e| Done::Kept(format!("{e:#}"))));
            }
            report.items.push(item);
        } else if finding.severity == Severity::Leftover && finding.repair.is_some() {
            report.items.push(leftover(What::Leftover, &finding));
        }
    }
    Ok(())
}

/// Shared checkouts can be made again: one that nobody took for a day goes.
fn checkouts(spool: &Spool, policy: &Policy, apply: bool, report: &mut Report) -> anyhow::Result<()> {
    let idle = BUILD_AGE.min(policy.older_than);
    for checkout in overlay::unused(spool, idle)? {
        let bytes = size(&checkout.path);
        let outcome = apply.then(|| match overlay::prune(spool, &checkout, idle) {
            Ok(true) => Done::Removed,
            Ok(false) => Done::Kept("somebody uses it again".into()),
            Err(e) => Done::Kept(format!("{e:#}")),
        });
        report.items.push(Item {
            what: What::Checkout,
            task: None,
            path: checkout.path,
            bytes,
            why: checkout.why.to_owned(),
            outcome,
            ticket: None,
        });
    }
    Ok(())
}

/// Warm trees that no task has come for.
fn warm_trees(spool: &Spool, policy: &Policy, apply: bool, report: &mut Report) -> anyhow::Result<()> {
    let trees = warm::list(spool, &config::load(spool)?)?;
    for tree in trees.into_iter().filter(|t| t.useless.is_none() && t.is_ready && t.age >= policy.older_than)
    {
        let done = || match warm::discard(&tree.path) {
            Ok(()) => remove::gone(&tree.path),
            Err(e) => Done::Kept(e.to_string()),
        };
        report.items.push(Item {
            what: What::WarmTree,
            task: None,
            bytes: size(&tree.path),
            why: format!("no task has come for it for {} days", tree.age.as_secs() / 86_400),
            outcome: apply.then(done),
            ticket: None,
            path: tree.path,
        });
    }
    Ok(())
}

fn leftover(what: What, finding: &Finding) -> Item {
    Item {
        what,
        task: finding.task,
        path: finding.path.clone(),
        bytes: if what == What::Orphan { size(&finding.path) } else { 0 },
        why: finding.message.clone(),
        outcome: finding.outcome.as_ref().map(|o| match o {
            Outcome::Repaired => Done::Removed,
            Outcome::Failed(why) => Done::Kept(why.clone()),
        }),
        ticket: None,
    }
}

/// Bytes that files below a folder hold. Links are not followed.
fn size(path: &Path) -> u64 {
    let walk = walkdir::WalkDir::new(path).into_iter().flatten();
    walk.filter(|e| !e.file_type().is_dir()).filter_map(|e| Some(e.metadata().ok()?.len())).sum()
}

fn age(since: DateTime<Utc>) -> Duration {
    (Utc::now() - since).to_std().unwrap_or_default()
}
