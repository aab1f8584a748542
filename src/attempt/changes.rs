//! What the worker changed: base against what is there now, by one definition; and whether it may.

use super::Attempt;
use super::outcome::{End, Outcome};
use crate::git::{self, Change, ChangeStatus, Oid, Salvage, Salvaged, Stamps, View};
use crate::model::result::{ChangedFile, SalvageRef};
use crate::model::{Class, EventKind, Permission, Phase};
use crate::spool::read_json;
use crate::workspace::{self, Manifest, Rules, manifest};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// What was found after a run of the worker: `attempts/<n>/work.<round>.json`. Written once: what is
/// verified, committed and accepted is this tree, whatever happens to the workspace afterwards.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Work {
    /// When it was looked at; also the time of the commit.
    pub at: DateTime<Utc>,
    /// The tree, for a git worktree.
    pub tree: Option<Oid>,
    /// Where the worker's own commits left the task's branch, if they descend from the base.
    pub head: Option<Oid>,
    /// Where the branch really was.
    pub branch_at: Option<Oid>,
    /// What differs from the base.
    pub files: Vec<ChangedFile>,
    /// The same as git tells it.
    pub changes: Vec<Change>,
    /// Rules that the changes break, in words.
    pub violations: Vec<String>,
    /// Paths whose change is undone.
    pub undone: Vec<String>,
    /// What somebody should know.
    pub warnings: Vec<String>,
    /// Where what was undone is kept.
    pub salvage: Option<SalvageRef>,
    /// The workspace itself is not there any more.
    #[serde(default)]
    pub gone: bool,
}

impl Work {
    /// Where there is no workspace to look at.
    fn of_nothing() -> Work {
        Work {
            at: Utc::now(),
            tree: None,
            head: None,
            branch_at: None,
            files: Vec::new(),
            changes: Vec::new(),
            violations: Vec::new(),
            undone: Vec::new(),
            warnings: Vec::new(),
            salvage: None,
            gone: true,
        }
    }
}

impl Attempt {
    /// Looks at what the worker left, once.
    pub(super) fn look(&self, round: u32, outcome: &mut Outcome) -> anyhow::Result<Result<Work, End>> {
        let name = format!("work.{round}.json");
        let work = match read_json::<Work>(&self.dir.file(&name))? {
            Some(work) => work,
            None => {
                let work = match self.base() {
                    _ if !self.plan.workspace.is_dir() => Work::of_nothing(),
                    Some(base) => match self.look_at_tree(base) {
                        Err(e) if e.is::<Spoiled>() => {
                            let mut end = End::failed(Class::Workspace, Phase::Working, e.to_string());
                            end.transient = true;
                            return Ok(Err(end));
                        }
                        other => other?,
                    },
                    None => self.look_at_folder()?,
                };
                self.record(&name, &serde_json::to_vec(&work)?)?;
                work
            }
        };
        let read_only = self.task.spec.permission() == Permission::ReadOnly;
        if (!work.undone.is_empty() || read_only && work.head.is_some()) && round == self.rounds_done() {
            self.undo(&work)?;
        }
        outcome.changed = if work.undone.is_empty() { work.files.clone() } else { Vec::new() };
        outcome.undone = work.undone.clone();
        outcome.tree = if work.undone.is_empty() { work.tree.clone() } else { None };
        outcome.warnings.extend(work.warnings.iter().cloned());
        if work.salvage.is_some() {
            outcome.salvage = work.salvage.clone();
        }
        if work.gone {
            let message = "the worker deleted its workspace";
            return Ok(Err(End::failed(Class::WorkerFailed, Phase::Working, message)));
        }
        if work.violations.is_empty() {
            return Ok(Ok(work));
        }
        let more = if work.violations.len() > 3 {
            format!(" and {} more", work.violations.len() - 3)
        } else {
            String::new()
        };
        let list = work.violations.iter().take(3).cloned().collect::<Vec<_>>().join("; ");
        Ok(Err(End::failed(
            Class::Permission,
            Phase::Working,
            format!("changed what it may not change: {list}{more}"),
        )))
    }

    /// The newest round that has left a trace.
    fn rounds_done(&self) -> u32 {
        (1..).take_while(|r| self.dir.step(&format!("work.{r}")).exists()).last().unwrap_or(1)
    }

    fn look_at_tree(&self, base: &Oid) -> anyhow::Result<Work> {
        let view = View::open(&self.dir.view())?;
        let overlay = self.overlay();
        if let Some(overlay) = &overlay {
            // Who may mount for the whole system may have taken it off.
            overlay.mount()?;
        }
        // In a clone the worker moves a branch of its own; ours stays where it was put.
        let branch_at = view.worker_head()?;
        let (worker_at, lost) = view.bring(branch_at.as_ref())?;
        let mut warnings: Vec<String> =
            lost.iter().map(|l| format!("{}: {}", l.path.display(), l.why)).collect();
        let head = match &worker_at {
            Some(head) if head == base => None,
            Some(head) if view.is_ancestor(base, head)? => Some(head.clone()),
            Some(_) => {
                warnings.push(
                    "the worker's commits do not descend from the base: their content is kept as one commit"
                        .into(),
                );
                None
            }
            None => {
                warnings.push("the worker deleted its branch: it is made again".into());
                None
            }
        };
        let snapshot = view.snapshot(head.as_ref())?;
        if self.stamps.get().is_some() {
            *self.recorded.borrow_mut() = Some(Stamps::of_snapshot(&view, &snapshot.tree)?);
        }
        for nested in &snapshot.nested {
            warnings
                .push(format!("{} is a repository of its own: it is not in the commit", nested.display()));
        }
        for left in &snapshot.left_out {
            warnings.push(format!("{} is not in the commit: {}", left.path.display(), left.why));
        }
        let changes = view.changed(base, &snapshot.tree)?;
        if let Some(overlay) = &overlay {
            let spoiled = overlay.spoiled(&view, &changes)?;
            anyhow::ensure!(spoiled.is_empty(), Spoiled::of(&spoiled));
        }
        let rules = Rules::new(&self.task.spec, &self.plan.repo_config.protected)?;
        let root = &view.worktree().path;
        let broken = changes.iter().filter_map(|change| {
            let link =
                if change.new_mode == 0o120_000 { fs::read_link(root.join(&change.path)).ok() } else { None };
            rules.violation(&change.path, link.as_deref())
        });
        let mut work = Work {
            at: Utc::now(),
            tree: Some(snapshot.tree),
            head,
            branch_at,
            violations: broken.map(|v| format!("{}: {}", v.path.display(), v.rule)).collect(),
            files: changes.iter().map(changed_file).collect(),
            changes,
            undone: Vec::new(),
            warnings,
            salvage: None,
            gone: false,
        };
        if self.task.spec.permission() == Permission::ReadOnly {
            work.violations.clear();
            work.undone = work.files.iter().map(|f| f.path.clone()).collect();
            if !work.undone.is_empty() || work.head.is_some() {
                work.salvage = self.salvage(&view)?.map(|(kept, _)| kept);
            }
        }
        Ok(work)
    }

    fn look_at_folder(&self) -> anyhow::Result<Work> {
        let before: Manifest = read_json(&self.dir.file("manifest.json"))?.unwrap_or_default();
        let now = Manifest::of(&self.plan.workspace)?;
        let files = now.since(&before);
        let rules = Rules::new(&self.task.spec, &self.plan.repo_config.protected)?;
        let broken = files.iter().filter_map(|file| {
            let link = fs::read_link(self.plan.workspace.join(&file.path)).ok();
            rules.violation(Path::new(&file.path), link.as_deref())
        });
        let mut violations: Vec<String> =
            broken.map(|v| format!("{}: {}", v.path.display(), v.rule)).collect();
        if self.task.spec.permission() == Permission::ReadOnly {
            // Nothing holds what was there before: it cannot be undone.
            violations = files.iter().map(|f| format!("{}: the task may only read", f.path)).collect();
        }
        let mut warnings = Vec::new();
        if now.cut || before.cut {
            warnings.push("the folder holds too many files to list them all".into());
        }
        Ok(Work {
            at: Utc::now(),
            tree: None,
            head: None,
            branch_at: None,
            violations,
            files,
            changes: Vec::new(),
            undone: Vec::new(),
            warnings,
            salvage: None,
            gone: false,
        })
    }

    /// Puts a read-only task's tree back to its base. What was there is in the salvage.
    fn undo(&self, work: &Work) -> anyhow::Result<()> {
        let view = View::open(&self.dir.view())?;
        anyhow::ensure!(work.salvage.is_some(), "what was written is not kept anywhere: it is not undone");
        workspace::restore(&view, &work.changes)?;
        if let Some(at) = view.worker_head()?
            && at != *view.base()
        {
            view.update_branch(view.base(), &at)?;
        }
        Ok(())
    }

    /// Keeps all that is in the workspace in a ref; also returns the proof.
    pub(super) fn salvage(&self, view: &View) -> anyhow::Result<Option<(SalvageRef, Salvaged)>> {
        if !view.worktree().path.is_dir() {
            return Ok(None);
        }
        let copied = super::read_prepared(&self.dir)?.map(|p| p.copied).unwrap_or_default();
        let id = self.task.id.to_string();
        let now = Utc::now().timestamp();
        let taken = Salvage::take(view, &id, self.number(), &git::Limits::default(), &copied, now)?;
        let name = taken.refname().unwrap_or_default().to_owned();
        self.event(EventKind::Salvaged { name: name.clone(), complete: taken.is_complete() })?;
        let kept = SalvageRef {
            name,
            commit: taken.commit().to_string(),
            complete: taken.is_complete(),
            missing: taken.missing().iter().map(|m| format!("{}: {}", m.path.display(), m.why)).collect(),
        };
        Ok(Some((kept, taken)))
    }
}

/// The checkout that overlays share was written to, so that what is there is not this task's alone.
#[derive(Debug, thiserror::Error)]
#[error("the checkout that it shares with other tasks was changed by something else: {0}")]
struct Spoiled(String);

impl Spoiled {
    fn of(paths: &[std::path::PathBuf]) -> Self {
        let shown: Vec<String> =
            paths.iter().take(3).map(|p| manifest::shown(p.as_os_str().as_bytes())).collect();
        let more = if paths.len() > 3 { format!(" and {} more", paths.len() - 3) } else { String::new() };
        Spoiled(format!("{}{more}", shown.join(", ")))
    }
}

fn changed_file(change: &Change) -> ChangedFile {
    let word = match change.status {
        ChangeStatus::Added => "added",
        ChangeStatus::Modified => "modified",
        ChangeStatus::Deleted => "deleted",
        ChangeStatus::TypeChanged => "type_changed",
    };
    ChangedFile {
        path: manifest::shown(change.path.as_os_str().as_bytes()),
        change: word.to_owned(),
        added: change.added,
        removed: change.deleted,
    }
}
