//! A repository in a temporary folder, and what tests do to it.

use super::super::*;
use sha2::{Digest, Sha256};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A temporary folder with a repository `repo` of one commit.
pub struct Fixture {
    pub dir: tempfile::TempDir,
}

/// A task's tree, ready for a worker.
pub struct Task {
    pub repo: Repo,
    pub tree: Worktree,
    pub view: View,
    pub base: Oid,
}

impl Fixture {
    pub fn new() -> Fixture {
        let fixture = Fixture::empty();
        fixture.write("a.txt", "one\ntwo\nthree\n");
        fixture.write("src/lib.rs", "fn main() {}\n");
        fixture.write(".gitignore", "node_modules/\n*.log\n.env\n");
        fixture.commit("first");
        fixture
    }

    pub fn empty() -> Fixture {
        Fixture::empty_in(quick_dir())
    }

    pub fn empty_in(dir: tempfile::TempDir) -> Fixture {
        let fixture = Fixture { dir };
        fs::create_dir(fixture.path("repo")).unwrap();
        fixture.git(["init", "-q", "-b", "main"]);
        fixture.git(["config", "user.name", "Ada"]);
        fixture.git(["config", "user.email", "ada@example.org"]);
        fixture
    }

    /// Copies the repository, which is faster than making it again.
    pub fn copied(&self) -> Fixture {
        let copy = Fixture { dir: quick_dir() };
        for entry in walkdir::WalkDir::new(self.top()) {
            let entry = entry.unwrap();
            let to = copy.dir.path().join("repo").join(entry.path().strip_prefix(self.top()).unwrap());
            match entry.file_type() {
                kind if kind.is_dir() => fs::create_dir(to).unwrap(),
                kind if kind.is_symlink() => symlink(fs::read_link(entry.path()).unwrap(), to).unwrap(),
                _ => drop(fs::copy(entry.path(), to).unwrap()),
            }
        }
        copy
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join(name)
    }

    pub fn top(&self) -> PathBuf {
        self.path("repo")
    }

    pub fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        write(&self.top(), name, text);
    }

    pub fn commit(&self, message: &str) -> Oid {
        self.git(["add", "-A"]);
        self.git(["commit", "-q", "--allow-empty", "-m", message]);
        Oid::parse(self.git(["rev-parse", "HEAD"]).as_bytes()).unwrap()
    }

    pub fn git<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> String {
        git(&self.top(), args)
    }

    pub fn repo(&self) -> Repo {
        Repo::open(&self.top()).unwrap()
    }

    /// Prepares a task's tree the way an attempt does.
    pub fn task(&self, id: &str) -> Task {
        self.task_of(self.repo(), id)
    }

    pub fn task_of(&self, repo: Repo, id: &str) -> Task {
        let base = repo.resolve_base(None).unwrap();
        let path = self.path("trees").join(id);
        let tree = worktree::add(&repo, &path, id, &base, OnBranch::New, "workspool: test").unwrap();
        tree.fill(&base, 1, &mut || Ok(())).unwrap();
        let view = View::create(&self.path("views").join(id), &repo, &tree, &base).unwrap();
        Task { repo, tree, view, base }
    }
}

/// Makes a temporary folder in memory, where there is such a thing: syncs cost nothing there.
fn quick_dir() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

impl Task {
    pub fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        write(&self.tree.path, name, text);
    }

    /// Commits what is in the tree, as an attempt does at its end.
    pub fn finish(&self) -> Oid {
        let snapshot = self.view.snapshot(None).unwrap();
        let by = self.view.identity().clone();
        let commit = self
            .view
            .commit(&snapshot.tree, std::slice::from_ref(&self.base), "work", &by, 1_700_000_000)
            .unwrap();
        self.view.update_branch(&commit, &self.base).unwrap();
        commit
    }

    /// The paths that differ from the base.
    pub fn changed(&self) -> Vec<String> {
        let snapshot = self.view.snapshot(None).unwrap();
        let changes = self.view.changed(&self.base, &snapshot.tree).unwrap();
        changes.iter().map(|c| c.path.to_string_lossy().into_owned()).collect()
    }
}

pub fn write(dir: &Path, name: &str, text: impl AsRef<[u8]>) {
    let path = dir.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// Runs the user's or the worker's git: configuration and hooks of the repository count.
pub fn git<A: AsRef<OsStr>>(dir: &Path, args: impl IntoIterator<Item = A>) -> String {
    let (ok, text) = try_git(dir, args);
    assert!(ok, "{text}");
    text
}

pub fn try_git<A: AsRef<OsStr>>(dir: &Path, args: impl IntoIterator<Item = A>) -> (bool, String) {
    let args: Vec<_> = args.into_iter().map(|a| a.as_ref().to_owned()).collect();
    let out = Command::new("git")
        .args(&args)
        .current_dir(dir)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_ALLOW_PROTOCOL", "file")
        .env("GIT_TEST_FSYNC", "false")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let text = if out.status.success() {
        text
    } else {
        format!("git {args:?}: {text}{}", String::from_utf8_lossy(&out.stderr))
    };
    (out.status.success(), text)
}

/// Makes a program that leaves a mark when it is run, and passes its input on.
pub fn canary(dir: &Path) -> (PathBuf, PathBuf) {
    let (program, mark) = (dir.join("canary.sh"), dir.join("canary-was-run"));
    fs::write(&program, format!("#!/bin/sh\ntouch '{}'\ncat\n", mark.display())).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    (program, mark)
}

/// Hashes all below a folder but the parts of it that are ours to change.
pub fn fingerprint(dir: &Path) -> String {
    let mut hash = Sha256::new();
    for entry in walkdir::WalkDir::new(dir).sort_by_file_name() {
        let entry = entry.unwrap();
        let path = entry.path().strip_prefix(dir).unwrap();
        let text = path.to_string_lossy().into_owned();
        let ours = [".git/worktrees", ".git/objects", ".git/refs/heads/workspool", ".git/refs/workspool"];
        let logs = text.starts_with(".git/logs/refs/heads/workspool");
        if logs || ours.iter().any(|o| text.starts_with(o)) {
            continue;
        }
        hash.update(path.as_os_str().as_bytes());
        if entry.file_type().is_file() {
            hash.update(fs::read(entry.path()).unwrap());
        }
    }
    hash.finalize().iter().map(|b| format!("{b:02x}")).collect()
}

pub fn link(dir: &Path, name: &str, to: &str) {
    symlink(to, dir.join(name)).unwrap();
}
