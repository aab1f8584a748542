//! The end of an attempt that went well: commit, diff, deliverables, artifacts, and what the worker touched
//! outside its workspace.

use super::Attempt;
use super::changes::Work;
use super::outcome::{End, Outcome};
use crate::durable;
use crate::git::{Guard, Oid, View};
use crate::model::result::{Artifact, Deliverable, FileRef};
use crate::model::{Class, EventKind, Permission, Phase, Verification, WorkspaceKind};
use crate::spool::{events, read_json};
use crate::workspace::{manifest, rules};
use anyhow::Context as _;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

impl Attempt {
    /// Commits what was verified and gathers what goes with it.
    pub(super) fn finish(&self, mut outcome: Outcome) -> anyhow::Result<Outcome> {
        self.enter(Phase::Finishing)?;
        let began = Instant::now();
        if let Some(end) = self.check_deliverables(&mut outcome)? {
            return Ok(end.with(outcome));
        }
        let work = self.last_work()?.context("the record of what the worker left is gone")?;
        if self.base().is_some() {
            self.commit(&work, &mut outcome)?;
        }
        self.keep_artifacts(&work, &mut outcome)?;
        outcome.durations.finishing_ms = Some(super::steps::millis(began.elapsed()));
        outcome.message = match outcome.verification {
            Verification::Verified => format!(
                "succeeded and verified ({})",
                count(outcome.changed.len(), "file changed", "files changed")
            ),
            _ => format!(
                "succeeded, unverified: there are no verify commands ({})",
                count(outcome.changed.len(), "file changed", "files changed")
            ),
        };
        Ok(outcome)
    }

    /// What was found after the newest run of the worker.
    pub(super) fn last_work(&self) -> anyhow::Result<Option<Work>> {
        let mut last = None;
        for round in 1.. {
            match read_json::<Work>(&self.dir.file(&format!("work.{round}.json")))? {
                Some(work) => last = Some(work),
                None => break,
            }
        }
        Ok(last)
    }

    fn commit(&self, work: &Work, outcome: &mut Outcome) -> anyhow::Result<()> {
        let (Some(base), Some(tree)) = (self.base(), &work.tree) else { return Ok(()) };
        if self.task.spec.permission() == Permission::ReadOnly {
            return Ok(());
        }
        let view = View::open(&self.dir.view())?;
        if work.changes.is_empty() && work.head.is_none() {
            // Nothing to commit: the branch stays at the base.
            self.put_branch(&view, base, work)?;
            outcome.tree = Some(tree.clone());
            self.write_diff(&view, base, base, outcome)?;
            return Ok(());
        }
        let own = match &work.head {
            Some(head) => view.changed(head, tree)?.is_empty().then(|| head.clone()),
            None => None,
        };
        let commit = match own {
            Some(head) => head,
            None => {
                let parent = work.head.clone().unwrap_or_else(|| base.clone());
                view.commit(tree, &[parent], &self.message(outcome), view.identity(), work.at.timestamp())?
            }
        };
        self.put_branch(&view, &commit, work)?;
        let branch = crate::workspace::branch(self.task.id);
        if outcome.commit.is_none() {
            self.event(EventKind::Committed { commit: commit.to_string(), branch })?;
        }
        self.write_diff(&view, base, &commit, outcome)?;
        if view.worktree().git_dir.is_dir() {
            // The workspace shows itself as clean to whoever looks into it.
            view.publish_index().context("cannot give the workspace its index")?;
        }
        outcome.commit = Some(commit);
        Ok(())
    }

    /// Moves the task's branch, from wherever the worker left it.
    fn put_branch(&self, view: &View, to: &Oid, work: &Work) -> anyhow::Result<()> {
        if work.branch_at.as_ref() == Some(to) {
            return Ok(());
        }
        match &work.branch_at {
            Some(at) => view.update_branch(to, at)?,
            None => view.update_branch(to, &to.null())?,
        }
        Ok(())
    }

    fn message(&self, outcome: &Outcome) -> String {
        let own = outcome.report.commit_message.as_deref().map(str::trim).filter(|m| !m.is_empty());
        let text = own.map_or_else(|| self.task.spec.display_title(), str::to_owned);
        format!(
            "{}\n\nWorkspool-Task: {}\nWorkspool-Worker: {}\n",
            text.trim_end(),
            self.task.id,
            self.plan.profile.name
        )
    }

    /// Writes the patch, byte for byte, where it is found.
    pub(super) fn write_diff(
        &self,
        view: &View,
        base: &Oid,
        to: &Oid,
        outcome: &mut Outcome,
    ) -> anyhow::Result<()> {
        let path = self.locked.dir().diff();
        let tmp = self.locked.dir().path().join(durable::unique_name());
        let file = private(&tmp)?;
        let written =
            view.diff(base, to, &file).map_err(anyhow::Error::from).and_then(|()| Ok(file.sync_data()?));
        if let Err(e) = written {
            let _ = fs::remove_file(&tmp);
            return Err(e.context("cannot write the diff"));
        }
        outcome.diff = Some(FileRef {
            path: "diff.patch".into(),
            bytes: tmp.metadata()?.len(),
            sha256: manifest::hash_file(&tmp)?,
        });
        durable::fault::point("rename")?;
        fs::rename(&tmp, &path)?;
        Ok(())
    }

    fn check_deliverables(&self, outcome: &mut Outcome) -> anyhow::Result<Option<End>> {
        if self.task.spec.deliverables.is_empty() {
            return Ok(None);
        }
        let root = self.plan.workspace.canonicalize()?;
        outcome.deliverables = self
            .task
            .spec
            .deliverables
            .iter()
            .map(|path| {
                let meta = inside(&root, Path::new(path)).and_then(|p| p.metadata().ok());
                Deliverable {
                    path: path.clone(),
                    found: meta.is_some(),
                    bytes: meta.filter(|m| m.is_file()).map(|m| m.len()),
                }
            })
            .collect();
        let missing: Vec<&str> =
            outcome.deliverables.iter().filter(|d| !d.found).map(|d| d.path.as_str()).collect();
        if missing.is_empty() {
            return Ok(None);
        }
        let message = format!("missing deliverables: {}", missing.join(", "));
        if self.task.spec.deliverables_required {
            return Ok(Some(End::failed(Class::DeliverablesMissing, Phase::Finishing, message)));
        }
        outcome.warnings.push(message);
        Ok(None)
    }

    /// Keeps copies of what was asked for: deliverables, artifact patterns, and in a temporary folder
    /// everything that was made.
    fn keep_artifacts(&self, work: &Work, outcome: &mut Outcome) -> anyhow::Result<()> {
        let made = if self.plan.kind == WorkspaceKind::Temporary { &work.files[..] } else { &[] };
        let spec = &self.task.spec;
        if made.is_empty() && spec.artifacts.is_empty() && spec.deliverables.is_empty() {
            return Ok(());
        }
        let root = self.plan.workspace.canonicalize()?;
        let mut paths: Vec<PathBuf> = Vec::new();
        // Deliverables are paths, also those with `[` in them.
        let deliverables = spec.deliverables.iter().map(|path| globset::escape(path));
        let patterns: Vec<String> = spec.artifacts.iter().cloned().chain(deliverables).collect();
        if !patterns.is_empty() {
            let set = rules::set(&patterns)?;
            let walk = walkdir::WalkDir::new(&root).min_depth(1).sort_by_file_name();
            for entry in walk.into_iter().filter_entry(|e| e.file_name() != ".git").filter_map(Result::ok) {
                let relative = entry.path().strip_prefix(&root).unwrap_or(entry.path());
                if entry.file_type().is_file() && set.is_match(relative) {
                    paths.push(relative.to_owned());
                }
            }
        }
        paths.extend(made.iter().filter(|f| f.change != "deleted").map(|f| PathBuf::from(&f.path)));
        paths.sort_unstable();
        paths.dedup();
        let mut left = self.plan.defaults.artifact_cap;
        for path in paths {
            let Some(from) = inside(&root, &path).filter(|p| p.is_file()) else { continue };
            let bytes = from.metadata()?.len();
            let kept = bytes <= left;
            if kept {
                left -= bytes;
                keep_copy(&from, &self.locked.dir().artifacts().join(&path))?;
            }
            outcome.artifacts.push(Artifact {
                path: path.to_string_lossy().into_owned(),
                mime: mime(&path).to_owned(),
                bytes,
                sha256: manifest::hash_file(&from)?,
                kept,
            });
        }
        Ok(())
    }

    /// Runs the repository's teardown commands, whatever came out.
    pub(super) fn teardown(&self, outcome: &mut Outcome) -> anyhow::Result<()> {
        let total = Duration::from_secs(self.plan.defaults.setup_timeout);
        for (k, command) in self.plan.repo_config.teardown.iter().enumerate() {
            let name = format!("teardown.{}", k + 1);
            let mut plan = self.command_plan(&name, command, total)?;
            // The wish to cancel was about the work.
            plan.cancel = self.dir.file("never");
            let failed = match self.carry_step(&name, &plan, Phase::Finishing)? {
                Ok(exit) => super::steps::failed(&exit),
                Err(end) => Some(end.message),
            };
            if let Some(how) = failed {
                outcome.warnings.push(format!("teardown command failed ({how}): {command}"));
            }
        }
        Ok(())
    }

    /// Finds and puts back what the worker changed in the repository outside its workspace.
    pub(super) fn check_guard(&self, outcome: &mut Outcome) -> anyhow::Result<()> {
        let (Some(repo), Some(guard)) = (&self.repo, read_json::<Guard>(&self.dir.file("guard.json"))?)
        else {
            return Ok(());
        };
        let found = guard.check(repo)?;
        if found.iter().any(|t| t.executable) {
            let reverted = guard.revert_executable(repo, &self.dir.file("replaced"))?;
            for tampering in reverted {
                self.warn(&format!("put back: {}", tampering.what))?;
                outcome.warnings.push(format!("put back: {}", tampering.what));
            }
        }
        outcome.tampering = found;
        Ok(())
    }

    /// Says so if the history was changed: then nobody can check the result against it.
    pub(super) fn check_history(&self, outcome: &mut Outcome) {
        let bytes = fs::read(self.locked.dir().events()).unwrap_or_default();
        if let Some(broken) = events::walk_chain(&bytes).broken {
            outcome.warnings.push(format!(
                "the task's history was changed ({broken}): no audit can pass, and accept refuses it"
            ));
        }
    }
}

/// A path in the workspace that does not lead out of it.
fn inside(root: &Path, path: &Path) -> Option<PathBuf> {
    let real = root.join(path).canonicalize().ok()?;
    real.starts_with(root).then_some(real)
}

fn private(path: &Path) -> anyhow::Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    durable::fault::point("create")?;
    let file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    file.with_context(|| format!("cannot make {}", path.display()))
}

fn keep_copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    if let Some(parent) = to.parent() {
        durable::ensure_dir(parent)?;
    }
    durable::fault::point("copy")?;
    let tmp = to.with_file_name(durable::unique_name());
    let copied = fs::copy(from, &tmp).and_then(|_| fs::rename(&tmp, to));
    if copied.is_err() {
        let _ = fs::remove_file(&tmp);
    }
    copied.with_context(|| format!("cannot keep a copy of {}", from.display()))
}

pub(super) fn count(n: usize, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}

/// Media types of what tasks usually deliver, by file name (IANA names).
fn mime(path: &Path) -> &'static str {
    match path.extension().and_then(|e| e.to_str()).unwrap_or_default().to_ascii_lowercase().as_str() {
        "md" | "markdown" => "text/markdown",
        "txt" | "log" | "rs" | "py" | "sh" | "toml" | "yaml" | "yml" | "c" | "h" | "go" | "java" => {
            "text/plain"
        }
        "json" => "application/json",
        "jsonl" => "application/jsonl",
        "html" | "htm" => "text/html",
        "css" => "text/css",
        "js" | "mjs" => "text/javascript",
        "csv" => "text/csv",
        "xml" => "application/xml",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "pdf" => "application/pdf",
        "zip" => "application/zip",
        "gz" | "tgz" => "application/gzip",
        "patch" | "diff" => "text/x-diff",
        _ => "application/octet-stream",
    }
}
