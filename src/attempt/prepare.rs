//! Making the workspace, and the setup commands in it.

use super::Attempt;
use super::outcome::{End, Outcome};
use super::stop::Stop;
use crate::durable;
use crate::git::{self, Guard, Index, Oid, OnBranch, Repo, View, Worktree};
use crate::model::{Class, EventKind, Permission, Phase, WorkspaceKind};
use crate::spool::{AttemptDir, Spool, TaskDir, read_json};
use crate::workspace::apart::{self, Original};
use crate::workspace::duplicate::{Budget, NotCopied};
use crate::workspace::warm::Pool;
use crate::workspace::{self, Manifest, Overlay, Prepared, Removed, Wanted, copy, lacks};
use anyhow::Context as _;
use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// Reads that the workspace of an attempt was ready, if it was.
pub fn read_prepared(dir: &AttemptDir) -> anyhow::Result<Option<Prepared>> {
    Ok(read_json(&dir.file("prepared.json"))?)
}

/// In an attempt's folder: what earlier attempts left is out of the way, so that what now stands at the
/// workspace's path is this attempt's. Without it, half a checkout would be salvaged as the work of the last.
const CLEARED: &str = "cleared";

/// Takes what earlier attempts left in a task's workspace out of the way; says what became of it.
pub fn clear_workspace(spool: &Spool, dir: &TaskDir, repo: &Repo, path: &Path) -> anyhow::Result<Removed> {
    let id = dir.id().to_string();
    for n in (1..=dir.last_attempt()).rev() {
        let attempt = dir.attempt(n);
        if let Some(prepared) = read_prepared(&attempt)? {
            let view = View::open(&attempt.view())?;
            return workspace::clear(spool, repo, path, &id, Some(&view), n, &prepared.copied);
        }
        if attempt.file(CLEARED).exists() {
            return match is_apart(&attempt) {
                true => discard_unused(spool, &attempt, path, &id),
                false => workspace::clear(spool, repo, path, &id, None, n, &[]),
            };
        }
    }
    workspace::clear(spool, repo, path, &id, None, dir.last_attempt(), &[])
}

/// Takes away a clone, copy or overlay that an attempt had just made: nothing has run in it.
fn discard_unused(spool: &Spool, attempt: &AttemptDir, path: &Path, id: &str) -> anyhow::Result<Removed> {
    if std::fs::symlink_metadata(path).is_err() {
        return Ok(Removed::Nothing);
    }
    let overlay = Overlay::of(spool, id, path);
    if crate::spool::names(&attempt.path().join("steps"))?.is_empty() {
        if overlay.exists()? {
            overlay.discard_unused(spool)?;
            return Ok(Removed::Gone(None));
        }
        apart::discard_unused(spool, path)?;
        return Ok(Removed::Gone(None));
    }
    // Who removed the record of its preparation?
    let kept = match overlay.exists()? {
        true => overlay.put_aside(spool, id)?,
        false => workspace::put_aside(spool, path, id)?,
    };
    Ok(Removed::Aside(kept, vec!["nothing tells what was in it at the start".into()]))
}

/// Whether nothing that an attempt had just made is in its workspace alone.
fn is_apart(attempt: &AttemptDir) -> bool {
    let plan: Option<super::Plan> = read_json(&attempt.file("attempt.json")).ok().flatten();
    let made = |kind| matches!(kind, WorkspaceKind::Clone | WorkspaceKind::Copy | WorkspaceKind::Overlay);
    plan.is_some_and(|plan| made(plan.kind))
}

impl Attempt {
    /// Makes the workspace, unless it is there.
    pub(super) fn prepare(&self, outcome: &mut Outcome) -> anyhow::Result<Option<End>> {
        let prepared = match read_prepared(&self.dir)? {
            Some(prepared) => prepared,
            None => {
                if self.cancelled() {
                    return Ok(Some(self.cancelled_end(Phase::Preparing)));
                }
                if self.plan.kind != WorkspaceKind::Temporary {
                    // It may take long.
                    self.record_before();
                }
                self.enter(Phase::Preparing)?;
                let stop = Stop::new(self);
                match self.make_workspace(&stop) {
                    Ok(prepared) => prepared,
                    Err(_) if stop.is() => return Ok(stop.end(Phase::Preparing)),
                    Err(e) if e.is::<NoRoom>() => {
                        return Ok(Some(End::failed(Class::Disk, Phase::Preparing, e.to_string())));
                    }
                    Err(e) if e.is::<NotCopied>() => {
                        return Ok(Some(End::failed(Class::Workspace, Phase::Preparing, e.to_string())));
                    }
                    Err(e) => {
                        let ours = Outcome::fault(e);
                        let class = ours.class.unwrap_or(Class::Workspace);
                        return Ok(Some(End::failed(class, Phase::Preparing, ours.message)));
                    }
                }
            }
        };
        outcome.durations.preparing_ms = Some(prepared.elapsed_ms);
        outcome.warnings.extend(prepared.warnings.iter().cloned());
        outcome.lacks = prepared.lacks;
        outcome.tree_from = prepared.tree_from;
        if let Some(base) = prepared.base {
            let _ = self.copied.set(base);
        }
        if let Some(overlay) = self.overlay() {
            overlay.mount()?;
            overlay.hide()?;
        }
        if let Some(end) = self.check_folder().map_or_else(|| self.setup(outcome), |end| Ok(Some(end)))? {
            return Ok(Some(end));
        }
        if let Some(repo) = &self.repo
            && !self.dir.file("guard.json").exists()
        {
            let branch = format!("refs/heads/{}", workspace::branch(self.task.id));
            let guard = Guard::take(repo, &branch)?;
            durable::replace_unsynced(&self.dir.file("guard.json"), &serde_json::to_vec(&guard)?)?;
        }
        Ok(None)
    }

    fn make_workspace(&self, stop: &Stop<'_>) -> anyhow::Result<Prepared> {
        let began = Instant::now();
        let mut prepared = Prepared::default();
        let path = &self.plan.workspace;
        match self.plan.kind {
            WorkspaceKind::Worktree | WorkspaceKind::Clone | WorkspaceKind::Overlay => {
                self.make_tree(&mut prepared, stop)?;
            }
            WorkspaceKind::Copy => self.make_copy(&mut prepared, stop)?,
            WorkspaceKind::Temporary => {
                if self.number() > 1 && path.exists() {
                    // What an earlier attempt made is not this one's work, and may be all there is of it.
                    let kept = workspace::put_aside(self.locked.spool(), path, &self.task.id.to_string())?;
                    prepared.warnings.push(format!("what an earlier attempt made is in {}", kept.display()));
                }
                // Empty, for which no manifest stands.
                durable::ensure_dir(path)?;
            }
            WorkspaceKind::Directory => {
                anyhow::ensure!(path.is_dir(), "{} is not there any more", path.display());
                self.keep_manifest(path)?;
            }
        }
        self.ready(prepared, began)
    }

    /// Makes a git worktree or a clone, with the files that the project needs beside what is committed.
    fn make_tree(&self, prepared: &mut Prepared, stop: &Stop<'_>) -> anyhow::Result<()> {
        let (spool, path) = (self.locked.spool(), &self.plan.workspace);
        let (Some(repo), Some(base)) = (&self.repo, &self.plan.base) else {
            anyhow::bail!("a {} without a repository", self.plan.kind);
        };
        if let Some(tree) = self.go_on(repo, base)? {
            self.inherit(prepared)?;
            prepared.tree = Some(tree);
            return Ok(());
        }
        // The task's number is new, and so is its branch: git says so if not.
        let is_first = self.number() == 1 && !self.dir.file(CLEARED).exists();
        self.clear(repo, prepared)?;
        let id = self.task.id.to_string();
        let branch = format!("refs/heads/{}", workspace::branch(self.task.id));
        let at = if is_first { None } else { repo.read_ref(&branch)? };
        // The tree of the attempt that this one goes on with is gone: its commit is not.
        let (on, start) = match (&at, self.plan.continues) {
            (Some(at), Some(_)) => (OnBranch::Existing, at),
            (Some(_), None) => (OnBranch::Reset, base),
            (None, _) => (OnBranch::New, base),
        };
        if let (Some(at), OnBranch::Reset) = (&at, on)
            && at != base
        {
            self.keep_commits(repo, self.number() - 1, at)?;
        }
        let wanted = Wanted { path, id: &id, base, start, on };
        let pool = Pool::of(spool, &self.config, repo).filter(|_| self.plan.kind == WorkspaceKind::Worktree);
        let mut make = || match self.plan.kind {
            WorkspaceKind::Clone => {
                self.room(git::clone::size(repo)?)?;
                apart::make_clone(repo, &self.dir, &wanted, &mut || stop.check())
            }
            WorkspaceKind::Overlay => {
                workspace::overlay::prepare(spool, repo, &self.dir, &wanted, &mut || stop.check())
            }
            _ => {
                let made =
                    workspace::prepare(spool, repo, &self.dir, &wanted, pool.as_ref(), &mut || stop.check())?;
                prepared.warnings.extend(made.warnings);
                prepared.tree_from = made.from;
                Ok(made.tree)
            }
        };
        let timed = || {
            let begun = Instant::now();
            (make(), begun.elapsed())
        };
        let ((tree, took), checkout) = lacks::beside(repo, timed);
        let tree = tree?;
        prepared.tree_ms = super::steps::millis(took);
        self.note_stamps(pool.as_ref(), &tree, start)?;
        let view = View::open(&self.dir.view())?;
        let index = tree.index(repo.format);
        self.copy_in(repo, &view, &index, prepared, stop)?;
        prepared.lacks = lacks::of_tree(repo, &view, &index, &prepared.copied, &checkout);
        prepared.tree = Some(tree);
        Ok(())
    }

    /// Makes a copy of the user's folder, or goes on with the one that is there.
    fn make_copy(&self, prepared: &mut Prepared, stop: &Stop<'_>) -> anyhow::Result<()> {
        let (spool, path) = (self.locked.spool(), &self.plan.workspace);
        let (Some(shadow), Some(folder)) = (&self.repo, &self.task.repo) else {
            anyhow::bail!("a copy of nothing");
        };
        let id = self.task.id.to_string();
        if let (Some(before), Some(base)) = (self.plan.continues, &self.plan.base) {
            let earlier = self.locked.dir().attempt(before);
            let view = View::open(&earlier.view())?;
            self.inherit(prepared)?;
            if before + 1 == self.number() && path.is_dir() {
                view.renew(&self.dir.view(), base)?;
                prepared.tree = Some(view.worktree().clone());
            } else {
                self.clear(shadow, prepared)?;
                prepared.tree =
                    Some(apart::copy_again(shadow, &view, &self.dir, path, base, &mut || stop.check())?);
            }
            prepared.base = Some(base.clone());
            return Ok(());
        }
        self.clear(shadow, prepared)?;
        let branch = format!("refs/heads/{}", workspace::branch(self.task.id));
        if let Some(at) = shadow.read_ref(&branch)? {
            self.keep_commits(shadow, self.number() - 1, &at)?;
        }
        let original = Original {
            folder: &folder.path,
            but: &[spool.root(), spool.worktrees()],
            budget: Budget { bytes: self.config.disk.copy_bytes, files: self.config.disk.copy_files },
        };
        let room = |bytes| self.room(bytes);
        let made = apart::make_copy(shadow, &self.dir, (path, &id), original, room, &mut || stop.check())?;
        prepared.copied = made.secrets;
        prepared.lacks = made.left_out.lines();
        prepared.base = Some(made.base);
        prepared.tree = Some(made.tree);
        Ok(())
    }

    /// Takes what earlier attempts left out of the way.
    fn clear(&self, repo: &Repo, prepared: &mut Prepared) -> anyhow::Result<()> {
        self.unlock_branch(repo)?;
        match clear_workspace(self.locked.spool(), self.locked.dir(), repo, &self.plan.workspace)? {
            Removed::Aside(kept, missing) => prepared.warnings.push(format!(
                "what an earlier attempt left could not be kept whole ({}) and was put aside: {}",
                missing.join("; "),
                kept.display()
            )),
            Removed::Gone(Some(name)) => self.event(EventKind::Salvaged { name, complete: true })?,
            Removed::Gone(None) | Removed::Nothing => {}
        }
        durable::create_new_unsynced(&self.dir.file(CLEARED), b"")?;
        Ok(())
    }

    /// Fails unless there is room for a workspace that takes this much, and for what must be left beside it.
    fn room(&self, bytes: u64) -> anyhow::Result<()> {
        let disk = &self.config.disk;
        let reserve = crate::intake::reserve_for(disk, self.plan.kind);
        let trees = self.locked.spool().worktrees();
        crate::intake::check_room(trees, bytes, reserve, disk.reserve_percent)
            .map_err(|message| NoRoom(message).into())
    }

    fn ready(&self, mut prepared: Prepared, began: Instant) -> anyhow::Result<Prepared> {
        prepared.elapsed_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.record("prepared.json", &serde_json::to_vec_pretty(&prepared)?)?;
        if let Some(from) = prepared.tree_from {
            self.event(EventKind::TreeTaken { from })?;
        }
        Ok(prepared)
    }

    /// Takes over the tree of the attempt that this one goes on with, if it is still there and sound.
    fn go_on(&self, repo: &Repo, base: &Oid) -> anyhow::Result<Option<Worktree>> {
        // A failed attempt in between has left its own traces in the tree.
        let Some(before) = self.plan.continues.filter(|n| n + 1 == self.number()) else { return Ok(None) };
        let view = View::open(&self.locked.dir().attempt(before).view())?;
        let tree = view.worktree().clone();
        if tree.verify(repo).is_err() {
            return Ok(None);
        }
        view.renew(&self.dir.view(), base)?;
        Ok(Some(tree))
    }

    /// Takes over what was found out about the tree of the attempt that this one goes on with.
    fn inherit(&self, prepared: &mut Prepared) -> anyhow::Result<()> {
        let Some(before) = self.plan.continues else { return Ok(()) };
        if let Some(before) = read_prepared(&self.locked.dir().attempt(before))? {
            (prepared.copied, prepared.lacks) = (before.copied, before.lacks);
        }
        Ok(())
    }

    /// Removes the lock that a power loss left on the task's branch. Only who holds the task's lock moves that
    /// branch, and whoever did so then is dead.
    pub(super) fn unlock_branch(&self, repo: &Repo) -> anyhow::Result<()> {
        let lock = repo.common.join(format!("refs/heads/{}.lock", workspace::branch(self.task.id)));
        let Ok(made) = fs::symlink_metadata(&lock).and_then(|m| m.modified()) else { return Ok(()) };
        let cut = (1..=self.number()).filter_map(|n| self.locked.dir().attempt(n).cut_at()).max();
        if cut.is_some_and(|cut| made < cut) {
            durable::remove_file(&lock).with_context(|| format!("cannot remove {}", lock.display()))?;
        }
        Ok(())
    }

    /// Keeps what the task's branch holds after attempt `n` before it is put back to the base: a result that
    /// nobody accepted, or commits of a worker whose attempt did not come to its end.
    pub(super) fn keep_commits(&self, repo: &Repo, n: u32, at: &Oid) -> anyhow::Result<()> {
        let name = format!("{}{}/{n}", crate::git::KEPT, self.task.id);
        if repo.keep(&name, at)? {
            self.event(EventKind::Salvaged { name, complete: true })?;
        }
        Ok(())
    }

    /// Copies ignored files that the project needs, and sees to it that they are never committed.
    fn copy_in(
        &self,
        repo: &Repo,
        view: &View,
        index: &io::Result<Index>,
        prepared: &mut Prepared,
        stop: &Stop<'_>,
    ) -> anyhow::Result<()> {
        let Some(checkout) = &repo.top else { return Ok(()) };
        let mut patterns = self.plan.repo_config.copy.clone();
        patterns.extend(self.task.spec.copy.iter().cloned());
        // The tree was just filled with the base: what its index does not have, the base has not.
        let include = Path::new(".worktreeinclude");
        let perhaps = self.plan.start != self.plan.base
            || index
                .as_ref()
                .map_or(true, |index| index.find(include.as_os_str().as_encoded_bytes()).is_some());
        if let Some(base) = &self.plan.base
            && perhaps
            && let Some(text) = repo.read_file(base, include)?
        {
            let (more, warnings) = copy::worktree_include(&String::from_utf8_lossy(&text));
            patterns.extend(more);
            prepared.warnings.extend(warnings);
        }
        let copied = copy::copy(checkout, &self.plan.workspace, &patterns, &mut || stop.check())?;
        prepared.warnings.extend(copied.warnings);
        if !copied.files.is_empty() {
            view.exclude(&copied.files)?;
        }
        prepared.copied = copied.files;
        Ok(())
    }

    fn keep_manifest(&self, path: &Path) -> anyhow::Result<()> {
        let manifest = Manifest::of(path)?;
        durable::replace_unsynced(&self.dir.file("manifest.json"), &serde_json::to_vec(&manifest)?)?;
        Ok(())
    }

    /// Runs the setup commands: those of the repository, then those of the task.
    fn setup(&self, outcome: &mut Outcome) -> anyhow::Result<Option<End>> {
        let commands: Vec<_> = self.plan.repo_config.setup.iter().chain(&self.task.spec.setup).collect();
        if commands.is_empty() {
            return Ok(None);
        }
        if !self.dir.step("setup.1").exists() {
            self.enter(Phase::Setup)?;
        }
        let total = Duration::from_secs(self.plan.defaults.setup_timeout);
        let mut spent = Duration::ZERO;
        for (k, command) in commands.iter().enumerate() {
            let name = format!("setup.{}", k + 1);
            let plan = self.command_plan(&name, command, total.saturating_sub(spent))?;
            let exit = match self.carry_step(&name, &plan, Phase::Setup)? {
                Ok(exit) => exit,
                Err(end) => return Ok(Some(end)),
            };
            spent += Duration::from_millis(exit.elapsed_ms);
            outcome.durations.setup_ms = Some(u64::try_from(spent.as_millis()).unwrap_or(u64::MAX));
            if let Some(ended) = super::steps::failed(&exit) {
                outcome.stderr_tail = super::steps::tail(&exit);
                let message = format!("setup command failed ({ended}): {command}");
                return Ok(Some(End::failed(Class::Workspace, Phase::Setup, message)));
            }
        }
        Ok(None)
    }

    pub(super) fn cancelled_end(&self, phase: Phase) -> End {
        let reason = self.locked.spool().read_request(self.cancel_request()).and_then(|r| r.reason);
        End::cancelled(phase, reason)
    }

    /// Says what was restricted, and who enforced it.
    pub(super) fn restrictions(&self, enforced: &[String]) -> Vec<crate::model::result::Restriction> {
        let worker = self.plan.profile.name.to_string();
        let made =
            |what: String, by: &str| crate::model::result::Restriction { what, enforced_by: by.to_owned() };
        let mut found = Vec::new();
        match self.task.spec.permission() {
            Permission::Full => {}
            other => {
                let what = other.to_string();
                if enforced.contains(&what) {
                    found.push(made(what.clone(), &worker));
                }
                found.push(made(what, "workspool"));
            }
        }
        for (wanted, what) in
            [(self.task.spec.no_network, "no_network"), (self.task.spec.no_shell, "no_shell")]
        {
            if wanted {
                let by = if enforced.iter().any(|e| e == what) { worker.as_str() } else { "nobody" };
                found.push(made(what.to_owned(), by));
            }
        }
        found
    }
}

/// There is no room for the workspace.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct NoRoom(String);
