//! Does a landing, undoes one that failed, finishes one that was cut off.

use super::super::diff::Change;
use super::super::index;
use super::super::runner::Git;
use super::super::view::commit as make_commit;
use super::intent::{Intent, State};
use super::place::Root;
use super::plan::{Heads, Plan, device, index_hash};
use super::{GitErrorKind, How, Landed, Recovered, Refusal, Step, bytes};
use crate::durable;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long a git process of the user's is waited for.
const LOCK_PATIENCE: Duration = Duration::from_millis(if cfg!(test) { 100 } else { 5000 });
const STAGE_DEADLINE: Duration = Duration::from_secs(1800);

pub(super) fn apply(plan: &Plan, id: &str, record: &Path, seconds: i64) -> Result<Landed, Refusal> {
    if matches!(plan.how, How::Branch { .. }) {
        return make_branch(plan);
    }
    if plan.is_empty() {
        let (tree, gated) = (plan.tree.clone(), plan.gated);
        return Ok(Landed { tree, gated, commit: None, branch: None, paths: 0 });
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
        Ok(()) => work.finish(),
        Err(refusal) => work.undo(refusal),
    }
}

fn make_branch(plan: &Plan) -> Result<Landed, Refusal> {
    match plan.repo.set_ref(&plan.target, &plan.commit, None, "workspool: accept") {
        Err(e) if e.kind == GitErrorKind::RefMoved => Err(Refusal::BranchExists(plan.target.clone())),
        Err(e) => Err(e.into()),
        Ok(()) => Ok(Landed {
            tree: plan.tree.clone(),
            gated: plan.gated,
            commit: Some(plan.commit.clone()),
            branch: Some(plan.target.clone()),
            paths: 0,
        }),
    }
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

pub(super) fn recover(record: &Path) -> Result<Recovered, Refusal> {
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
                Ok(()) => work.finish().map(Recovered::Landed),
                Err(refusal) => work.undo(refusal),
            }
        }
        State::Done => work.finish().map(Recovered::Landed),
    }
}

struct Work<'a> {
    intent: Intent,
    record: &'a Path,
}

impl Work<'_> {
    fn git(&self) -> Git {
        Git::at(&self.intent.git_dir).work_tree(&self.intent.top)
    }

    fn desk(&self, name: &str) -> PathBuf {
        self.intent.desk.join(name)
    }

    /// Puts everything that will be needed on disk, with nothing touched that the user has.
    fn stage(&mut self, plan: &Plan, seconds: i64) -> Result<(), Refusal> {
        self.lock()?;
        let intent = &self.intent;
        let now = Heads::read(&intent.git_dir, &intent.head, &intent.head)?;
        if now.head != intent.head || now.target != intent.target {
            return Err(Refusal::Changed("HEAD has moved".into()));
        }
        if index_hash(&intent.git_dir).map_err(|e| Refusal::io("the index", e))? != intent.index {
            return Err(Refusal::Changed("the index was written".into()));
        }
        // What is left of an attempt that died before it recorded more is of no use.
        let io = |e| Refusal::io(&intent.desk, e);
        durable::remove_dir_all(&intent.desk).map_err(io)?;
        for name in ["new", "old"] {
            durable::ensure_dir(&self.desk(name)).map_err(io)?;
        }
        self.stage_files()?;
        self.stage_index()?;
        if let How::Commit { message } = &self.intent.how {
            let (git, parents) = (self.git(), std::slice::from_ref(&plan.head));
            self.intent.commit =
                Some(make_commit(&git, &plan.tree, parents, message, &plan.identity, seconds)?);
        }
        let new = Root::open(&self.desk("new")).map_err(|e| Refusal::io(&self.intent.desk, e))?;
        for step in self.intent.steps.iter_mut().filter(|s| s.adds()) {
            let print = new.print(step.path()).map_err(|e| Refusal::io(step.path(), e))?;
            let missing = || Refusal::io(step.path(), io::ErrorKind::NotFound.into());
            step.new = Some(print.ok_or_else(missing)?);
        }
        new.sync(self.adding()).map_err(|e| Refusal::io(&self.intent.desk, e))?;
        self.intent.state = State::Applying;
        let written = self.intent.write(self.record);
        if written.is_err() {
            // It may or may not have reached the disk; nothing was touched, so it is taken back.
            self.intent.state = State::Staging;
        }
        written.map_err(|e| Refusal::io(self.record, e))
    }

    /// Writes the new files as a checkout would, with the user's filters, in two processes.
    fn stage_files(&self) -> Result<(), Refusal> {
        let intent = &self.intent;
        let git = self.git().index(self.desk("tree-index"));
        git.writes("read-tree").arg(intent.tree.as_str()).config("core.sparseCheckout", "false").run()?;
        let mut prefix = b"--prefix=".to_vec();
        prefix.extend_from_slice(bytes::of_path(&self.desk("new")));
        prefix.push(b'/');
        let mut names = Vec::new();
        for path in self.adding() {
            names.extend_from_slice(bytes::of_path(&path));
            names.push(0);
        }
        git.writes("checkout-index")
            .args(["--quiet", "-z", "--stdin"])
            .arg(bytes::to_path(&prefix))
            .env("GIT_ATTR_SOURCE", intent.tree.as_str())
            .config("core.sparseCheckout", "false")
            .stdin(names)
            .deadline(STAGE_DEADLINE)
            .run()?;
        Ok(())
    }

    /// Makes the index that will be the user's: theirs, with other entries for the changed paths.
    fn stage_index(&self) -> Result<(), Refusal> {
        let (theirs, staged) = (self.intent.git_dir.join("index"), self.desk("index"));
        let copied =
            index::copy(&theirs, &staged).and_then(|()| index::copy(&theirs, &self.desk("index.old")));
        match copied {
            Err(e) if e.kind() == io::ErrorKind::NotFound && self.intent.index.is_none() => {}
            other => other.map_err(|e| Refusal::io(&staged, e))?,
        }
        let git = self.git().index(&staged);
        let mut lines = Vec::new();
        let steps = &self.intent.steps;
        let (gone, kept): (Vec<&Change>, Vec<&Change>) =
            steps.iter().map(|s| &s.change).partition(|c| c.new_mode == 0);
        for change in gone.into_iter().chain(kept) {
            let line = match &change.new {
                Some(oid) => format!("{:o} {oid}\t", change.new_mode),
                None => format!("0 {}\t", self.intent.tree.null()),
            };
            lines.extend_from_slice(line.as_bytes());
            lines.extend_from_slice(bytes::of_path(&change.path));
            lines.push(0);
        }
        git.writes("update-index").args(["-z", "--index-info"]).stdin(lines).run()?;
        let mut sparse = Vec::new();
        for step in steps.iter().filter(|s| s.sparse && s.change.new_mode != 0) {
            sparse.extend_from_slice(bytes::of_path(step.path()));
            sparse.push(0);
        }
        if !sparse.is_empty() {
            git.writes("update-index").args(["--skip-worktree", "-z", "--stdin"]).stdin(sparse).run()?;
        }
        durable::sync_file(&staged).map_err(|e| Refusal::io(&staged, e))
    }

    /// Takes git's own lock on the index, so that no git of the user's comes between.
    fn lock(&self) -> Result<(), Refusal> {
        let path = self.intent.lock_path();
        let failed = |e| Refusal::io(&path, e);
        let until = Instant::now() + LOCK_PATIENCE;
        let mark = self.intent.lock_mark();
        loop {
            super::pass("land-lock").map_err(failed)?;
            if durable::create_new(&path, mark.as_bytes()).map_err(failed)? || self.holds_lock() {
                return Ok(());
            }
            if Instant::now() >= until {
                return Err(Refusal::Locked(path));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn holds_lock(&self) -> bool {
        fs::read(self.intent.lock_path()).is_ok_and(|text| text == self.intent.lock_mark().as_bytes())
    }

    fn roots(&self) -> io::Result<(Root, Root, Root)> {
        Ok((Root::open(&self.intent.top)?, Root::open(&self.desk("new"))?, Root::open(&self.desk("old"))?))
    }

    fn adding(&self) -> impl Iterator<Item = PathBuf> + '_ {
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
        let (staged, theirs) = (self.desk("index"), self.intent.git_dir.join("index"));
        if fs::symlink_metadata(&staged).is_err() {
            return Ok(()); // Already theirs.
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
            .and_then(|()| fs::copy(&staged, self.desk("index.put")).map(drop))
            .and_then(|()| fs::rename(&staged, &theirs))
            .and_then(|()| durable::sync_dir(&self.intent.git_dir));
        put.map_err(|e| Refusal::io(&theirs, e))
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
    fn finish(&mut self) -> Result<Landed, Refusal> {
        self.intent.state = State::Done;
        let done = self.intent.write(self.record).and_then(|()| self.forget());
        let intent = self.record.to_owned();
        done.map_err(|e| Refusal::HalfDone { intent, why: format!("all but its end is done: {e}") })?;
        Ok(self.intent.landed())
    }

    /// Removes our lock, what was staged or moved away, and, last, the record.
    fn forget(&self) -> io::Result<()> {
        super::pass("land-forget")?;
        if self.holds_lock() {
            durable::remove_file(&self.intent.lock_path())?;
        }
        durable::remove_dir_all(&self.intent.desk)?;
        super::pass("land-forget-record")?;
        durable::remove_file(self.record)
    }

    /// Puts everything back, and returns the reason; if that fails too, the record stays.
    fn undo<T>(&mut self, refusal: Refusal) -> Result<T, Refusal> {
        match self.back() {
            Ok(()) => Err(refusal),
            Err(e) => Err(Refusal::HalfDone {
                intent: self.record.to_owned(),
                why: format!("{refusal}; and going back: {e}"),
            }),
        }
    }

    fn back(&mut self) -> Result<(), Refusal> {
        let io = |e| Refusal::io(&self.intent.desk, e);
        let (top, new, old) = self.roots().map_err(io)?;
        let placed = |step: &Step| -> Result<bool, Refusal> {
            Ok(step.adds() && new.print(step.path()).map_err(io)?.is_none())
        };
        let theirs = self.intent.git_dir.join("index");
        let index_is_put = fs::symlink_metadata(self.desk("index")).is_err();
        // Nothing is moved before it is known that all of it can be.
        if index_is_put && fs::read(&theirs).map_err(io)? != fs::read(self.desk("index.put")).map_err(io)? {
            return Err(Refusal::Changed("the index was written".into()));
        }
        for step in &self.intent.steps {
            if placed(step)? && top.print(step.path()).map_err(io)? != step.new {
                return Err(Refusal::Changed(format!("{} was edited", step.path().display())));
            }
        }
        for step in &self.intent.steps {
            if placed(step)? {
                top.move_to(step.path(), &new, step.path()).map_err(io)?;
                top.prune_above(step.path()).map_err(io)?;
            }
        }
        for (at, step) in self.intent.steps.iter().enumerate() {
            let name = PathBuf::from(at.to_string());
            if old.print(&name).map_err(io)?.is_some() {
                old.move_to(&name, &top, step.path()).map_err(io)?;
            }
        }
        if index_is_put {
            let back = match self.intent.index {
                Some(_) => fs::rename(self.desk("index.old"), &theirs),
                None => durable::remove_file(&theirs),
            };
            back.map_err(io)?;
        }
        // From here on there is nothing to go forward from.
        self.intent.state = State::Staging;
        self.intent.write(self.record).and_then(|()| self.forget()).map_err(io)
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
