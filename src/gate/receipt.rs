//! Writing the receipt: once an attempt has succeeded, before its result.

use crate::durable;
use crate::git::View;
use crate::keeper::StepPlan;
use crate::model::receipt::{Receipt, ReceiptEvents, ReceiptGate, ReceiptWorker};
use crate::model::result::{FileRef, GateRun};
use crate::model::{VERSION, Verification, WorkerName};
use crate::spool::{AttemptDir, Entry, LockedTask, events, names, read_json};
use crate::workspace::manifest::{hash_file, hash_open};
use anyhow::Context as _;
use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};

/// The records of a step that do not change once it has ended.
pub const STEP_FILES: [&str; 5] = ["plan.json", "start.json", "exit.json", "log.jsonl", "facts.jsonl"];

/// What the attempt knows and the files do not say.
#[derive(Debug)]
pub struct Proven<'a> {
    /// The attempt.
    pub attempt: &'a AttemptDir,
    /// Which revision of the task it ran, and the hash of its record.
    pub revision: (u32, &'a str),
    /// The repository, for work in a git worktree.
    pub repository: Option<PathBuf>,
    /// The commit that the work started from.
    pub base: Option<String>,
    /// The commit that holds the work.
    pub commit: Option<String>,
    /// The tree that was produced.
    pub tree: Option<String>,
    /// The tree that was verified, if that is another: protected paths were put back.
    pub gated_tree: Option<String>,
    /// The patch.
    pub diff: Option<&'a FileRef>,
    /// The worker, and its version if it said one.
    pub worker: (&'a WorkerName, Option<&'a str>),
    /// What the gate says.
    pub verification: Verification,
    /// Its runs.
    pub gate: &'a [GateRun],
}

/// Writes `receipt.json` and returns its own hash, for the result. What of it all fits into `kept` is put there and not
/// waited for.
pub fn write(
    locked: &LockedTask,
    proven: &Proven<'_>,
    mut kept: Option<&mut Entry>,
) -> anyhow::Result<FileRef> {
    let root = locked.dir().path();
    let mut gate = Vec::new();
    for run in proven.gate {
        let log = root.join(&run.log);
        let step = log.parent().context("a log outside of its step")?;
        let plan: Option<StepPlan> = read_json(&step.join("plan.json"))?;
        gate.push(ReceiptGate {
            command: run.command.clone(),
            step: relative(root, step),
            argv: plan.map(|p| p.argv).unwrap_or_default(),
            passed: run.passed,
            exit_code: run.exit_code,
            signal: run.signal,
            log_sha256: if log.exists() { Some(hash_file(&log)?) } else { None },
        });
    }
    let history = std::fs::read(locked.dir().events()).context("cannot read the history")?;
    let view = proven.attempt.view();
    let records = records(locked, proven)?;
    // Who reads the receipt after a power loss must find what it names.
    let mut named = records.clone();
    if view.is_dir() {
        named.extend(View::fixed_files(&view));
    }
    named.insert(locked.dir().events());
    let mut files = Vec::with_capacity(records.len());
    let mut name = |path: &Path, bytes: u64, sha256: String| {
        if records.contains(path) {
            files.push(FileRef { path: relative(root, path), bytes, sha256 });
        }
    };
    // These were waited for when they were written.
    for revision in 1..=proven.revision.0 {
        let path = locked.dir().record(revision);
        let (bytes, sha256) = File::open(&path).and_then(|file| hash_open(&file))?;
        name(&path, bytes, sha256);
        named.remove(&path);
    }
    if let Some(kept) = kept.as_deref_mut() {
        // Its name is in the task's folder, which is not waited for now.
        named.extend(proven.diff.map(|diff| root.join(&diff.path)));
        let mut others = BTreeSet::new();
        for path in named {
            let failed = || format!("cannot read {}", path.display());
            // Of a copy, the mode counts too.
            let is_copy = path.starts_with(locked.dir().artifacts());
            if is_copy || path.metadata().with_context(failed)?.len() > Entry::LONGEST {
                others.insert(path);
                continue;
            }
            let bytes = std::fs::read(&path).with_context(failed)?;
            let sha256 = events::hash(&bytes);
            if kept.keep(root, &path, &bytes, &sha256) {
                name(&path, bytes.len() as u64, sha256);
            } else {
                others.insert(path);
            }
        }
        named = others;
    }
    let look = |path: &Path, open: &File| {
        if records.contains(path) {
            let (bytes, sha256) = hash_open(open)?;
            name(path, bytes, sha256);
        }
        Ok(())
    };
    durable::sync_below(root, &named, look).context("cannot sync what the receipt names")?;
    files.sort_by(|a, b| a.path.cmp(&b.path));
    let receipt = Receipt {
        version: VERSION,
        task: locked.id(),
        attempt: proven.attempt.number(),
        revision: proven.revision.0,
        task_sha256: proven.revision.1.to_owned(),
        made_at: chrono::Utc::now(),
        program: env!("CARGO_PKG_VERSION").to_owned(),
        repository: proven.repository.clone(),
        base: proven.base.clone(),
        commit: proven.commit.clone(),
        tree: proven.tree.clone(),
        gated_tree: proven.gated_tree.clone(),
        diff: proven.diff.cloned(),
        worker: worker(proven)?,
        verification: proven.verification,
        gate,
        view_sha256: if view.is_dir() { Some(View::open(&view)?.fingerprint()?) } else { None },
        files,
        events: ReceiptEvents {
            lines: history.iter().filter(|b| **b == b'\n').count() as u64,
            head: events::walk_chain(&history).head,
        },
    };
    let bytes = serde_json::to_vec_pretty(&receipt)?;
    let path = locked.dir().receipt();
    let sha256 = events::hash(&bytes);
    let failed = || format!("cannot write {}", path.display());
    durable::replace_unsynced(&path, &bytes).with_context(failed)?;
    match kept.map(|kept| kept.keep_receipt(root, &path, &bytes, &sha256)) {
        // The result is put beside it next, and syncs the folder.
        None => durable::sync_file(&path).with_context(failed)?,
        Some(is_kept) => {
            if !is_kept {
                durable::sync_file(&path).with_context(failed)?;
            }
            if !is_kept || !named.is_empty() {
                durable::sync_dir(root).with_context(failed)?;
            }
        }
    }
    Ok(FileRef { path: "receipt.json".into(), bytes: bytes.len() as u64, sha256 })
}

fn worker(proven: &Proven<'_>) -> anyhow::Result<ReceiptWorker> {
    let mut plan: Option<StepPlan> = None;
    for round in 1.. {
        match read_json(&proven.attempt.step(&format!("work.{round}")).join("plan.json"))? {
            Some(newer) => plan = Some(newer),
            None => break,
        }
    }
    let plan = plan.context("the plan of the worker's step is gone")?;
    let env: BTreeSet<String> = plan.env.into_keys().chain(plan.pass_env).collect();
    Ok(ReceiptWorker {
        name: proven.worker.0.clone(),
        version: proven.worker.1.map(str::to_owned),
        argv: plan.argv,
        env: env.into_iter().collect(),
    })
}

/// Every record that does not change any more.
fn records(locked: &LockedTask, proven: &Proven<'_>) -> anyhow::Result<BTreeSet<PathBuf>> {
    let mut paths: BTreeSet<PathBuf> = (1..=proven.revision.0).map(|n| locked.dir().record(n)).collect();
    let attempt = proven.attempt.path();
    for name in names(attempt)? {
        let path = attempt.join(&name);
        // A name with a dot in front is still being written, by somebody who died.
        if path.is_file() && !name.as_encoded_bytes().starts_with(b".") {
            paths.insert(path);
        }
    }
    let steps = attempt.join("steps");
    for step in names(&steps)? {
        paths.extend(STEP_FILES.iter().map(|f| steps.join(&step).join(f)).filter(|p| p.is_file()));
    }
    let kept = walkdir::WalkDir::new(locked.dir().artifacts()).sort_by_file_name();
    paths.extend(kept.into_iter().flatten().filter(|e| e.file_type().is_file()).map(|e| e.into_path()));
    Ok(paths)
}

fn relative(root: &Path, path: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).to_string_lossy().into_owned()
}
