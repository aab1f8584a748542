//! Recomputing a receipt from the spool and the repository alone: does everything still match?
//!
//! Nothing that a worker could have written is executed here: what was hashed is hashed again first, and
//! git is asked through the view only if that is the one that the receipt names.

use super::replay;
use crate::git::{Oid, Repo, View};
use crate::keeper::{Ended, StepExit};
use crate::model::receipt::Receipt;
use crate::model::{RepoConfig, State, TaskId, TaskResult};
use crate::spool::{Spool, SpoolError, TaskDir, events, read_json};
use crate::workspace::manifest::hash_file;
use crate::workspace::rules;
use anyhow::Context as _;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// One thing that was recomputed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Checked {
    /// What.
    pub what: String,
    /// Why it does not match; absent if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub differs: Option<String>,
}

/// What an audit came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Audit {
    /// The task.
    pub task: TaskId,
    /// The attempt that the receipt is for.
    pub attempt: u32,
    /// SHA-256 of the receipt.
    pub receipt_sha256: String,
    /// Everything that was looked at, in order.
    pub checked: Vec<Checked>,
    /// What cannot be said, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

impl Audit {
    /// The first thing that does not match.
    pub fn first(&self) -> Option<&Checked> {
        self.checked.iter().find(|c| c.differs.is_some())
    }

    fn check(&mut self, what: impl Into<String>, differs: Option<String>) -> bool {
        let fine = differs.is_none();
        self.checked.push(Checked { what: what.into(), differs });
        fine
    }

    fn equal<T: PartialEq + std::fmt::Debug>(&mut self, what: &str, recorded: &T, now: &T) -> bool {
        let differs = (recorded != now).then(|| format!("the receipt says {recorded:?}, it is {now:?}"));
        self.check(what, differs)
    }
}

/// Audits the result of a task; with `again`, runs its verify commands once more on a clean copy of the tree.
/// `news` hears of each command that is begun.
pub fn audit(spool: &Spool, id: TaskId, again: bool, news: &mut dyn FnMut(&str)) -> anyhow::Result<Audit> {
    let dir = spool.task(id);
    let result = spool.read_result(id);
    let bytes = match std::fs::read(dir.receipt()) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            let state = spool.state_of(id)?;
            if result.as_ref().is_ok_and(|r| r.as_ref().is_some_and(|r| r.receipt.is_some())) {
                let what = Checked { what: "receipt.json".into(), differs: Some("it is gone".into()) };
                let audit = Audit {
                    task: id,
                    attempt: 0,
                    receipt_sha256: String::new(),
                    checked: vec![what],
                    notes: Vec::new(),
                };
                return Ok(audit);
            }
            let message = format!("task {id} has no receipt: only what succeeded has one, and it is {state}");
            return Err(SpoolError::WrongState(message).into());
        }
        Err(e) => return Err(SpoolError::io("read", &dir.receipt(), e).into()),
    };
    let sha256 = events::hash(&bytes);
    let mut audit =
        Audit { task: id, attempt: 0, receipt_sha256: sha256, checked: Vec::new(), notes: Vec::new() };
    let receipt: Receipt = match serde_json::from_slice(&bytes) {
        Ok(receipt) => receipt,
        Err(e) => {
            audit.check("receipt.json", Some(format!("it cannot be read: {e}")));
            return Ok(audit);
        }
    };
    audit.attempt = receipt.attempt;
    against_result(&mut audit, &receipt, result.as_ref().map_err(ToString::to_string));
    records(&mut audit, &receipt, &dir);
    history(&mut audit, &receipt, &dir)?;
    gate(&mut audit, &receipt, &dir);
    let view = trusted_view(&mut audit, &receipt, &dir);
    repository(&mut audit, &receipt, &dir, view.as_ref());
    if again {
        // Only what is proved to be what ran before is run again.
        if audit.first().is_none() {
            let told = |what: String, differs| {
                audit.check(what, differs);
            };
            let notes = replay::replay(spool, &receipt, view.as_ref(), told, news)?;
            audit.notes.extend(notes);
        } else {
            audit.notes.push("the gate was not run again, since something does not match".into());
        }
    }
    Ok(audit)
}

fn against_result(audit: &mut Audit, receipt: &Receipt, result: Result<&Option<TaskResult>, String>) {
    let result = match result {
        Ok(Some(result)) => result,
        Ok(None) => {
            audit.check("result.json", Some("it is gone".into()));
            return;
        }
        Err(e) => {
            audit.check("result.json", Some(e));
            return;
        }
    };
    let named = result.receipt.as_ref().map(|r| r.sha256.clone()).unwrap_or_default();
    let own = audit.receipt_sha256.clone();
    if named != own {
        let message = format!("the result names a receipt with hash {named:?}, this one has {own}");
        audit.check("receipt.json", Some(message));
    }
    audit.equal("result.json: task", &receipt.task, &result.id);
    audit.equal("result.json: attempt", &receipt.attempt, &result.attempt);
    audit.equal("result.json: state", &State::Succeeded, &result.state);
    audit.equal("result.json: task_sha256", &receipt.task_sha256, &result.task_sha256);
    audit.equal("result.json: base", &receipt.base, &result.base);
    audit.equal("result.json: commit", &receipt.commit, &result.commit);
    audit.equal("result.json: tree", &receipt.tree, &result.tree);
    audit.equal("result.json: gated_tree", &receipt.gated_tree, &result.gated_tree);
    audit.equal("result.json: diff", &receipt.diff, &result.diff);
    audit.equal("result.json: verification", &receipt.verification, &result.verification);
    let ends = |all: Vec<(&str, bool, Option<i32>)>| {
        all.into_iter().map(|(c, p, e)| (c.to_owned(), p, e)).collect::<Vec<_>>()
    };
    audit.equal(
        "result.json: gate",
        &ends(receipt.gate.iter().map(|g| (g.command.as_str(), g.passed, g.exit_code)).collect()),
        &ends(result.gate.iter().map(|g| (g.command.as_str(), g.passed, g.exit_code)).collect()),
    );
}

/// Every file that the receipt names, byte for byte.
fn records(audit: &mut Audit, receipt: &Receipt, dir: &TaskDir) {
    for file in receipt.files.iter().chain(&receipt.diff) {
        let differs = match hash_file(&dir.path().join(&file.path)) {
            Ok(now) if now == file.sha256 => None,
            Ok(now) => Some(format!("its SHA-256 is {now}, the receipt says {}", file.sha256)),
            Err(e) => Some(format!("it cannot be read: {e}")),
        };
        audit.check(&file.path, differs);
    }
    let record = dir.record(receipt.revision);
    let now = hash_file(&record).unwrap_or_default();
    audit.equal("the task's record", &receipt.task_sha256, &now);
}

fn history(audit: &mut Audit, receipt: &Receipt, dir: &TaskDir) -> anyhow::Result<()> {
    let path = dir.events();
    let bytes = std::fs::read(&path).map_err(|e| SpoolError::io("read", &path, e))?;
    let chain = events::walk_chain(&bytes);
    let mut differs = chain.broken.map(|b| b.to_string());
    if differs.is_none() {
        let lines = usize::try_from(receipt.events.lines).unwrap_or(usize::MAX);
        let then: Vec<&[u8]> = bytes.split_inclusive(|b| *b == b'\n').take(lines).collect();
        let now = events::walk_chain(&then.concat());
        if then.len() < lines {
            differs = Some(format!("it has {} lines, the receipt knows {lines}", then.len()));
        } else if now.head != receipt.events.head {
            differs = Some(format!("line {lines} is not the one that the receipt names"));
        }
    }
    // What a crash cut short is named by the line after it. The last line is named by no other; it must at
    // least be one, or be what a power loss leaves of one: a beginning, or nothing where bytes should be.
    let lines: Vec<&[u8]> = bytes.split_inclusive(|b| *b == b'\n').collect();
    let cut = lines.last().is_some_and(|last| !last.ends_with(b"\n") || last.contains(&0));
    for line in &chain.torn {
        if *line == lines.len() && !cut && differs.is_none() {
            differs = Some(format!("line {line} is not an event"));
        } else {
            audit.notes.push(format!("events.jsonl: line {line} was cut short by a crash"));
        }
    }
    audit.check("events.jsonl", differs);
    Ok(())
}

/// What the keepers recorded must be what the receipt says of the gate.
fn gate(audit: &mut Audit, receipt: &Receipt, dir: &TaskDir) {
    for run in &receipt.gate {
        let step = dir.path().join(&run.step);
        let what = format!("{}: {}", run.step, run.command);
        let differs = match read_json::<StepExit>(&step.join("exit.json")) {
            Ok(Some(exit)) => {
                let (code, signal) = match exit.ended {
                    Ended::Exited { code } => (Some(code), None),
                    Ended::Signaled { signal } => (None, Some(signal)),
                    Ended::NotStarted { .. } | Ended::StillRunning => (None, None),
                };
                let same = (code, signal) == (run.exit_code, run.signal);
                (!same).then(|| format!("its keeper recorded exit code {code:?}, signal {signal:?}"))
            }
            Ok(None) => Some("its end is not recorded".into()),
            Err(e) => Some(e.to_string()),
        };
        audit.check(what, differs);
    }
}

/// The view through which git may be asked, if it is the one that the receipt names.
fn trusted_view(audit: &mut Audit, receipt: &Receipt, dir: &TaskDir) -> Option<View> {
    let recorded = receipt.view_sha256.as_ref()?;
    let opened = View::open(&dir.attempt(receipt.attempt).view());
    let opened = opened.and_then(|view| Ok((view.fingerprint()?, view)));
    match opened {
        Ok((now, view)) => audit.equal("the view of the tree", recorded, &now).then_some(view),
        Err(e) => {
            audit.check("the view of the tree", Some(format!("it cannot be read: {e}")));
            None
        }
    }
}

fn repository(audit: &mut Audit, receipt: &Receipt, dir: &TaskDir, view: Option<&View>) {
    let (Some(path), Some(tree)) = (&receipt.repository, &receipt.tree) else { return };
    let Some(commit) = receipt.commit.as_ref().or(receipt.base.as_ref()) else { return };
    let repo = match Repo::open(path) {
        Ok(repo) => repo,
        Err(e) => {
            audit.check("the repository", Some(e.to_string()));
            return;
        }
    };
    let ask = |rev: String| {
        repo.shared().reads("rev-parse").args(["--verify", "--quiet", "--end-of-options", &rev]).oid()
    };
    match ask(format!("{commit}^{{tree}}")) {
        Ok(now) => audit.equal("the commit's tree", tree, &now.to_string()),
        Err(e) => audit.check("the commit", Some(format!("it is not in the repository: {e}"))),
    };
    let (Some(base), Some(commit)) = (oid(&receipt.base), oid(&receipt.commit)) else { return };
    if let (Some(view), Some(gated)) = (view, &receipt.gated_tree) {
        match gated_again(view, receipt, dir, &base, tree) {
            Ok(now) => audit.equal("the verified tree, made again", gated, &now.to_string()),
            Err(e) => audit.check("the verified tree, made again", Some(format!("{e:#}"))),
        };
    }
    match repo.is_ancestor(&base, &commit) {
        Ok(true) => audit.check("the commit's history", None),
        Ok(false) => audit.check("the commit's history", Some("it does not descend from the base".into())),
        Err(e) => audit.check("the commit's history", Some(e.to_string())),
    };
    if let (Some(view), Some(diff)) = (view, &receipt.diff) {
        match diff_again(view, &base, &commit, dir.path()) {
            Ok(now) => audit.equal("the diff, made again", &diff.sha256, &now),
            Err(e) => audit.check("the diff, made again", Some(format!("{e:#}"))),
        };
    }
}

fn oid(text: &Option<String>) -> Option<Oid> {
    Oid::parse(text.as_ref()?.as_bytes())
}

/// What of the attempt's plan decides which tree a clean gate verifies.
#[derive(Deserialize)]
struct PlanPart {
    repo_config: RepoConfig,
}

/// The produced tree with protected paths as in the base.
fn gated_again(view: &View, receipt: &Receipt, dir: &TaskDir, base: &Oid, tree: &str) -> anyhow::Result<Oid> {
    let plan: Option<PlanPart> = read_json(&dir.attempt(receipt.attempt).file("attempt.json"))?;
    let protected = rules::set(&plan.context("the attempt's plan is gone")?.repo_config.protected)?;
    let tree = Oid::parse(tree.as_bytes()).context("the receipt names no tree")?;
    let changes = view.changed(base, &tree)?;
    let back: Vec<_> = changes.into_iter().filter(|c| protected.is_match(&c.path)).collect();
    Ok(view.without(&tree, &back)?)
}

fn diff_again(view: &View, base: &Oid, commit: &Oid, at: &Path) -> anyhow::Result<String> {
    let file = tempfile::NamedTempFile::new_in(at)?;
    view.diff(base, commit, file.as_file())?;
    Ok(hash_file(file.path())?)
}
