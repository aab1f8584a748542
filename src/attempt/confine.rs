//! Where a confined command may write: its workspace, its temporary folder, and what it needs beside them.

use super::Attempt;
use crate::durable;
use crate::git::{View, Worktree};
use crate::keeper::Confine as StepConfine;
use crate::model::{Confine, WorkspaceKind};
use std::path::{Path, PathBuf};

/// Folders and files in the home in which programs keep what they can fetch again. Nothing in them is run
/// because it lies there.
const CACHES: &[&str] = &[
    ".cache",
    ".cargo/registry",
    ".cargo/git",
    ".cargo/.package-cache",
    ".cargo/.package-cache-mutate",
    ".cargo/.global-cache",
    ".npm/_cacache",
    ".npm/_logs",
    ".gradle/caches",
    ".m2/repository",
    ".nuget/packages",
    "go/pkg",
    ".local/share/pnpm/store",
];

impl Attempt {
    /// How the worker is to be confined; `None`: not at all.
    pub(super) fn confine_worker(&self) -> Option<StepConfine> {
        let profile = &self.plan.profile;
        let asked = self.config.confine.workers.or(profile.confine).unwrap_or(Confine::Off);
        if asked == Confine::Off {
            return None;
        }
        if !profile.wrap.is_empty() {
            let why = "the worker is wrapped in a command that brings its own";
            return Some(StepConfine { writable: Vec::new(), unless: Some(why.into()) });
        }
        Some(self.confine_to(&self.plan.workspace))
    }

    /// How a verify command in `root` is to be confined.
    pub(super) fn confine_gate(&self, root: &Path) -> Option<StepConfine> {
        self.config.confine.gate.then(|| self.confine_to(root))
    }

    fn confine_to(&self, root: &Path) -> StepConfine {
        let spool = self.locked.spool();
        let mut writable = vec![
            root.to_owned(),
            spool.tmp().join(format!("{}.{}", self.task.id, self.number())),
            self.locked.dir().path().join("private"),
        ];
        writable.extend(self.git_parts(root));
        let home = std::env::home_dir().filter(|h| h.is_absolute());
        writable.extend(home.iter().flat_map(|home| CACHES.iter().map(|name| home.join(name))));
        let named = self.config.confine.writable.iter().map(|p| p.to_string_lossy().into_owned());
        let attempt_dir = self.dir.path().to_string_lossy().into_owned();
        for text in named.chain(self.plan.profile.writable.iter().cloned()) {
            let path = match (text.strip_prefix("~/"), &home) {
                (Some(rest), Some(home)) => home.join(rest),
                (Some(_), None) => continue,
                (None, _) => PathBuf::from(text.replace("{attempt_dir}", &attempt_dir)),
            };
            if path.parent() == Some(self.dir.path()) {
                // A file among the records, which can only be named once it is there.
                let _ = durable::create_new_unsynced(&path, b"");
            }
            writable.push(path);
        }
        let holds_spool = |path: &PathBuf| {
            path != root && path.canonicalize().is_ok_and(|real| spool.root().starts_with(&real))
        };
        let unless = writable
            .iter()
            .find(|p| holds_spool(p))
            .map(|path| format!("the spool lies in {}, which is writable", path.display()));
        StepConfine { writable, unless }
    }

    /// What `git commit` in a git worktree writes outside it: objects, its own git dir, branches of ours. A
    /// clone has all of that in itself, and in a copy there is no git.
    fn git_parts(&self, root: &Path) -> Vec<PathBuf> {
        let (Some(repo), WorkspaceKind::Worktree | WorkspaceKind::Overlay) = (&self.repo, self.plan.kind)
        else {
            return Vec::new();
        };
        let own = match root == self.plan.workspace {
            true => View::open(&self.dir.view()).ok().map(|view| view.worktree().git_dir.clone()),
            // The tree of a clean gate.
            false => Worktree::at(repo, root, "").ok().map(|tree| tree.git_dir),
        };
        let mut parts: Vec<PathBuf> = own.into_iter().collect();
        for name in ["objects", "refs/heads/workspool", "logs/refs/heads/workspool", "reftable", "lfs"] {
            parts.push(repo.common.join(name));
        }
        parts
    }
}
