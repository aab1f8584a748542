//! Does a landing, undoes one that failed, finishes one that was cut off.

use super::super::runner::Git;
use super::intent::{Intent, State};
use super::place::Root;
use super::plan::{Heads, Plan, device, index_hash};
use super::{GitErrorKind, How, Landed, Recovered, Refusal, Step};
use crate::durable;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Hears of a landing that is done, before its record goes.
pub(super) type Told<'a> = &'a mut dyn FnMut(&Landed) -> io::Result<()>;

pub(super) fn apply(
    plan: &Plan,
    id: &str,
    record: &Path,
    seconds: i64,
    told: Told<'_>,
) -> Result<Landed, Refusal> {
    let tell = |landed: Landed, told: Told<'_>| {
        told(&landed).map_err(|e| Refusal::io("the record of the acceptance", e))?;
        Ok(landed)
    };
    if matches!(plan.how, How::Branch { .. }) {
        return tell(make_branch(plan)?, told);
    }
    if plan.is_empty() {
        let (tree, gated) = (plan.tree.clone(), plan.gated);
        return tell(Landed { tree, gated, commit: None, branch: None, paths: 0 }, told);
    }
    let top = plan.repo.top.clone().ok_or(Refusal::NoCheckout)?;
    let intent = Intent {
        version: 1,
        state: State::Staging,
        id: id.to_owned(),
        desk: desk(&top, &plan.repo.git_dir, id)?,
        top,
        git_dir: plan.repo.git_dir.clone(),
        how: plan.how.clone(),
        head: plan.head.clone(),
        target: plan.target.clone(),
        tree: plan.tree.clone(),
        gated: plan.gated,
        commit: None,
        index: plan.index.clone(),
        steps: plan.steps.clone(),
    };
    if fs::symlink_metadata(record).is_ok() {
        return Err(Refusal::Unfinished(record.to_owned()));
    }
    intent.write(record).map_err(|e| Refusal::io(record, e))?;
    let mut work = Work { intent, record };
    if let Err(refusal) = work.stage(plan, seconds) {
        work.forget().map_err(|_| Refusal::Unfinished(record.to_owned()))?;
        return Err(refusal);
    }
    match work.forward() {
        Ok(()) => work.finish(told),
        Err(refusal) => work.undo(refusal),
    }
}

fn make_branch(plan: &Plan) -> Result<Landed, Refusal> {
    match plan.repo.set_ref(&plan.target, &plan.commit, None, "workspool: accept") {
        // There already, as after a crash: as good as made.
        Err(e)
            if e.kind == GitErrorKind::RefMoved
                && plan.repo.read_ref(&plan.target)?.as_ref() == Some(&plan.commit) => {}
        Err(e) if e.kind == GitErrorKind::RefMoved => return Err(Refusal::BranchExists(plan.target.clone())),
        Err(e) => return Err(e.into()),
        Ok(()) => {}
    }
    Ok(Landed {
        tree: plan.tree.clone(),
        gated: plan.gated,
        commit: Some(plan.commit.clone()),
        branch: Some(plan.target.clone()),
        paths: 0,
    })
}

/// Where files are staged: in the git dir, or, where that is on another file system than the
/// checkout, in the checkout, since they must be renamed into place.
fn desk(top: &Path, git_dir: &Path, id: &str) -> Result<PathBuf, Refusal> {
    if id.is_empty() || !id.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
        return Err(Refusal::io(id, io::ErrorKind::InvalidInput.into()));
    }
    let device = |path: &Path| device(path).map_err(|e| Refusal::io(path, e));
    if device(top)? == device(git_dir)? {
        Ok(git_dir.join(format!("workspool-land-{id}")))
    } else {
        Ok(top.join(format!(".workspool-land-{id}")))
    }
}

pub(super) fn recover(record: &Path, told: Told<'_>) -> Result<Recovered, Refusal> {
    let intent = Intent::read(record).map_err(|e| Refusal::io(record, e))?;
    let Some(intent) = intent else { return Ok(Recovered::Nothing) };
    let mut work = Work { intent, record };
    match work.intent.state {
        State::Staging => {
            work.forget().map_err(|e| Refusal::io(record, e))?;
            Ok(Recovered::Undone)
        }
        State::Applying => {
            work.lock()?;
            match work.forward() {
                Ok(()) => work.finish(told).map(Recovered::Landed),
                Err(refusal) => work.undo(refusal),
            }
        }
        State::Done => work.finish(told).map(Recovered::Landed),
    }
}

/// A landing under way.
pub(super) struct Work<'a> {
    pub intent: Intent,
    pub record: &'a Path,
}

impl Work<'_> {
    pub(super) fn git(&self) -> Git {
        Git::at(&self.intent.git_dir).work_tree(&self.intent.top)
    }

    pub(super) fn desk(&self, name: &str) -> PathBuf {
        self.intent.desk.join(name)
    }

    pub(super) fn index_desk(&self, name: &str) -> PathBuf {
        self.intent.index_desk().join(name)
    }

    pub(super) fn roots(&self) -> io::Result<(Root, Root, Root)> {
        Ok((Root::open(&self.intent.top)?, Root::open(&self.desk("new"))?, Root::open(&self.desk("old"))?))
    }

    pub(super) fn adding(&self) -> impl Iterator<Item = PathBuf> + '_ {
        self.intent.steps.iter().filter(|s| s.adds()).map(|s| s.path().to_owned())
    }

    /// Goes from wherever it stands to the end: files, index, branch.
    fn forward(&self) -> Result<(), Refusal> {
        let (top, new, old) = self.roots().map_err(|e| Refusal::io(&self.intent.desk, e))?;
        let steps = || self.intent.steps.iter().enumerate();
        // What only goes, goes first and from below: a folder may become a file.
        for (at, step) in steps().rev().filter(|(_, s)| s.removes() && !s.adds()) {
            away(&top, &old, at, step)?;
        }
        for (at, step) in steps().filter(|(_, s)| s.adds()) {
            if step.removes() {
                away(&top, &old, at, step)?;
            }
            into_place(&top, &new, step)?;
        }
        for (_, step) in steps().filter(|(_, s)| !s.adds()) {
            top.prune_above(step.path()).map_err(|e| Refusal::io(step.path(), e))?;
        }
        top.sync(self.intent.steps.iter().map(|s| s.path().to_owned()))
            .map_err(|e| Refusal::io(top.path(), e))?;
        self.put_index()?;
        self.move_branch()
    }

    fn put_index(&self) -> Result<(), Refusal> {
        let (staged, theirs) = (self.index_desk("index"), self.intent.git_dir.join("index"));
        if fs::symlink_metadata(&staged).is_err() || self.index_is_ours() {
            return durable::remove_file(&staged).map_err(|e| Refusal::io(&staged, e));
        }
        if index_hash(&self.intent.git_dir).map_err(|e| Refusal::io(&theirs, e))? != self.intent.index {
            // Somebody removed our lock after a crash and went on: theirs, with our entries.
            self.stage_index()?;
        }
        // So that the next `git status` need not read the files again; nothing depends on it.
        let git = self.git().index(&staged);
        let _ = git.writes("update-index").args(["-q", "--refresh"]).accepts(&[0, 1]).run();
        let put = super::pass("land-index")
            .and_then(|()| durable::sync_file(&staged))
            // Going back must know whether the index is still ours.
            .and_then(|()| fs::copy(&staged, self.index_desk("index.put")).map(drop))
            .and_then(|()| fs::rename(&staged, &theirs))
            .and_then(|()| durable::sync_dir(&self.intent.git_dir));
        put.map_err(|e| Refusal::io(&theirs, e))
    }

    /// Whether the checkout's index is the one that we put there.
    pub(super) fn index_is_ours(&self) -> bool {
        let put = fs::read(self.index_desk("index.put")).ok();
        put.is_some() && fs::read(self.intent.git_dir.join("index")).ok() == put
    }

    fn move_branch(&self) -> Result<(), Refusal> {
        let Some(commit) = &self.intent.commit else { return Ok(()) };
        super::pass("land-ref").map_err(|e| Refusal::io(&self.intent.target, e))?;
        let order = format!("update {}\0{commit}\0{}\0", self.intent.target, self.intent.head);
        let git = Git::at(&self.intent.git_dir);
        let call = git.writes("update-ref").args(["-m", "workspool: accept", "--stdin", "-z"]);
        match call.stdin(order).run() {
            Ok(_) => Ok(()),
            Err(e) if e.kind == GitErrorKind::RefMoved => {
                let now = Heads::read(&self.intent.git_dir, &self.intent.head, &self.intent.head)?;
                if now.head == *commit && now.target == self.intent.target {
                    return Ok(());
                }
                Err(Refusal::Changed("HEAD has moved".into()))
            }
            Err(e) => Err(e.into()),
        }
    }

    /// Says that it is done, then lets go of everything.
    fn finish(&mut self, told: Told<'_>) -> Result<Landed, Refusal> {
        self.intent.state = State::Done;
        let done = self
            .intent
            .write(self.record)
            .and_then(|()| told(&self.intent.landed()))
            .and_then(|()| self.forget());
        let intent = self.record.to_owned();
        done.map_err(|e| Refusal::HalfDone { intent, why: format!("all but its end is done: {e}") })?;
        Ok(self.intent.landed())
    }

    /// Removes our lock, what was staged or moved away, and, last, the record.
    pub(super) fn forget(&self) -> io::Result<()> {
        super::pass("land-forget")?;
        if self.holds_lock() {
            durable::remove_file(&self.intent.lock_path())?;
        }
        durable::remove_dir_all(&self.intent.desk)?;
        durable::remove_dir_all(&self.intent.index_desk())?;
        super::pass("land-forget-record")?;
        durable::remove_file(self.record)
    }
}

/// Moves the old file out, unless that is done; notices one that is not the one that was planned for.
fn away(top: &Root, old: &Root, at: usize, step: &Step) -> Result<(), Refusal> {
    let io = |e| Refusal::io(step.path(), e);
    let name = PathBuf::from(at.to_string());
    if old.print(&name).map_err(io)?.is_some() {
        return Ok(());
    }
    let edited = || Refusal::Changed(format!("{} was edited", step.path().display()));
    match top.print(step.path()).map_err(io)? {
        None => return Ok(()), // The user removed it meanwhile.
        there if there != step.old => return Err(edited()),
        Some(_) => {}
    }
    top.move_to(step.path(), old, &name).map_err(io)?;
    // Between the look and the move there was a moment; now nobody finds it by its path any more.
    if old.print(&name).map_err(io)? != step.old {
        old.move_to(&name, top, step.path()).map_err(io)?;
        return Err(edited());
    }
    Ok(())
}

/// Moves the new file in, unless that is done.
fn into_place(top: &Root, new: &Root, step: &Step) -> Result<(), Refusal> {
    let io = |e: io::Error| match e.kind() {
        io::ErrorKind::AlreadyExists => {
            Refusal::Changed(format!("{} was made meanwhile", step.path().display()))
        }
        _ => Refusal::io(step.path(), e),
    };
    if new.print(step.path()).map_err(io)?.is_none() {
        return Ok(());
    }
    if fs::symlink_metadata(top.path().join(step.path())).is_ok_and(|m| m.is_dir()) {
        top.remove_hollow(step.path()).map_err(io)?;
    }
    new.move_to(step.path(), top, step.path()).map_err(io)
}
