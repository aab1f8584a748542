//! Staging: everything that a landing needs is put on disk before anything of the user's is touched.

use super::super::diff::Change;
use super::super::index;
use super::super::view::commit as make_commit;
use super::apply::Work;
use super::intent::State;
use super::place::Root;
use super::plan::{Heads, Plan, index_hash};
use super::{How, Refusal, bytes};
use crate::durable;
use std::fs;
use std::io;
use std::time::{Duration, Instant};

/// How long a git process of the user's is waited for.
const LOCK_PATIENCE: Duration = Duration::from_millis(if cfg!(test) { 100 } else { 5000 });
const STAGE_DEADLINE: Duration = Duration::from_secs(1800);

impl Work<'_> {
    /// Puts everything that will be needed on disk, with nothing touched that the user has.
    pub(super) fn stage(&mut self, plan: &Plan, seconds: i64) -> Result<(), Refusal> {
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
        for desk in [&intent.desk, &intent.index_desk()] {
            durable::remove_dir_all(desk).map_err(io)?;
        }
        for desk in [self.desk("new"), self.desk("old"), intent.index_desk()] {
            durable::ensure_dir(&desk).map_err(io)?;
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
        let git = self.git().index(self.index_desk("tree-index"));
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
    pub(super) fn stage_index(&self) -> Result<(), Refusal> {
        let (theirs, staged) = (self.intent.git_dir.join("index"), self.index_desk("index"));
        let copied =
            index::copy(&theirs, &staged).and_then(|()| index::copy(&theirs, &self.index_desk("index.old")));
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
    pub(super) fn lock(&self) -> Result<(), Refusal> {
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

    pub(super) fn holds_lock(&self) -> bool {
        fs::read(self.intent.lock_path()).is_ok_and(|text| text == self.intent.lock_mark().as_bytes())
    }
}
