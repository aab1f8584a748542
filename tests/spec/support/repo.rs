//! Small git repositories for tests, and what must not change in them.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A git repository, or a folder of one.
#[derive(Debug, Clone)]
pub struct Repo {
    path: PathBuf,
    home: PathBuf,
}

/// All that a task must leave as it is (I11): the checkout, the index, refs, configuration, hooks.
#[derive(Debug, PartialEq, Eq)]
pub struct Fingerprint(BTreeMap<String, String>);

impl Fingerprint {
    /// Asserts that nothing is different now.
    #[track_caller]
    pub fn assert_same(&self, now: &Fingerprint) {
        let keys: std::collections::BTreeSet<_> = self.0.keys().chain(now.0.keys()).collect();
        let different: Vec<_> = keys
            .into_iter()
            .filter(|k| self.0.get(*k) != now.0.get(*k))
            .map(|k| format!("{k}: {:?} -> {:?}", self.0.get(k), now.0.get(k)))
            .collect();
        assert!(different.is_empty(), "the user's repository changed (I11):\n{}", different.join("\n"));
    }
}

impl Repo {
    /// Makes a repository without a commit.
    pub fn init(path: PathBuf, home: &Path) -> Repo {
        fs::create_dir_all(&path).unwrap();
        let repo = Repo { path, home: home.to_owned() };
        repo.git(&["init", "-q", "-b", "main", "."]);
        repo.git(&["config", "user.name", "A User"]);
        repo.git(&["config", "user.email", "user@example.com"]);
        repo
    }

    /// Another folder, in which git works as in this one.
    pub fn at(&self, path: impl Into<PathBuf>) -> Repo {
        Repo { path: path.into(), home: self.home.clone() }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a file, without committing it.
    pub fn write(&self, path: &str, content: impl AsRef<[u8]>) -> &Repo {
        let file = self.path.join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, content).unwrap();
        self
    }

    /// Commits everything that git does not ignore; returns the commit.
    pub fn commit(&self, message: &str) -> String {
        self.git(&["add", "-A"]);
        self.git(&["commit", "-q", "--allow-empty", "-m", message]);
        self.head()
    }

    /// Adds an executable hook to the user's repository.
    pub fn hook(&self, name: &str, script: &str) -> &Repo {
        let path = self.path.join(".git/hooks").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        self
    }

    /// The commit of HEAD.
    pub fn head(&self) -> String {
        self.rev("HEAD")
    }

    /// The object that a revision stands for.
    pub fn rev(&self, revision: &str) -> String {
        self.git(&["rev-parse", "--verify", revision])
    }

    /// The content of a file in a commit.
    pub fn show(&self, revision: &str, path: &str) -> String {
        String::from_utf8(self.bytes(&["show", &format!("{revision}:{path}")])).unwrap()
    }

    /// The paths in a commit.
    pub fn files(&self, revision: &str) -> Vec<String> {
        let out = self.git(&["ls-tree", "-r", "--name-only", revision]);
        out.lines().map(str::to_owned).collect()
    }

    /// The branches that begin so.
    pub fn branches(&self, pattern: &str) -> Vec<String> {
        let out = self.git(&["for-each-ref", "--format=%(refname:short)", &format!("refs/heads/{pattern}")]);
        out.lines().map(str::to_owned).collect()
    }

    /// Runs git, which must go well; returns what it printed, trimmed.
    #[track_caller]
    pub fn git(&self, args: &[&str]) -> String {
        String::from_utf8_lossy(&self.bytes(args)).trim().to_owned()
    }

    /// Runs git, which must go well; returns what it printed.
    #[track_caller]
    pub fn bytes(&self, args: &[&str]) -> Vec<u8> {
        let out = git_command(&self.path, &self.home).args(args).output().unwrap();
        assert!(
            out.status.success(),
            "git {args:?} in {}: {}",
            self.path.display(),
            String::from_utf8_lossy(&out.stderr)
        );
        out.stdout
    }

    /// Whether git says that it goes well.
    pub fn try_git(&self, args: &[&str]) -> bool {
        git_command(&self.path, &self.home).args(args).output().unwrap().status.success()
    }

    /// Looks at all that a task must leave as it is.
    pub fn fingerprint(&self) -> Fingerprint {
        let mut seen = BTreeMap::new();
        let common = PathBuf::from(self.git(&["rev-parse", "--path-format=absolute", "--git-common-dir"]));
        for entry in walkdir::WalkDir::new(&self.path).into_iter().filter_map(Result::ok) {
            if entry.path().starts_with(&common) || entry.file_type().is_dir() {
                continue;
            }
            seen.insert(format!("checkout {}", entry.path().display()), describe(entry.path()));
        }
        for name in
            ["HEAD", "config", "index", "packed-refs", "info/exclude", "info/attributes", "config.worktree"]
        {
            seen.insert(format!("git {name}"), describe(&common.join(name)));
        }
        for entry in walkdir::WalkDir::new(common.join("hooks")).into_iter().filter_map(Result::ok) {
            if entry.file_type().is_file() {
                seen.insert(format!("hook {}", entry.path().display()), describe(entry.path()));
            }
        }
        let refs = self.git(&["for-each-ref", "--format=%(refname) %(objectname)"]);
        for line in refs.lines() {
            let (name, object) = line.split_once(' ').unwrap();
            // The only refs that are ours to make.
            if !name.starts_with("refs/heads/workspool/") && !name.starts_with("refs/workspool/") {
                seen.insert(format!("ref {name}"), object.to_owned());
            }
        }
        Fingerprint(seen)
    }
}

fn describe(path: &Path) -> String {
    match fs::symlink_metadata(path) {
        Err(_) => "absent".into(),
        Ok(meta) if meta.is_symlink() => format!("link to {}", fs::read_link(path).unwrap().display()),
        Ok(meta) => {
            let hash = workspool::spool::events::hash(&fs::read(path).unwrap_or_default());
            format!("{:o} {} {hash}", meta.mode(), meta.len())
        }
    }
}

/// Git, shut off from the machine's and the user's configuration.
pub fn git_command(dir: &Path, home: &Path) -> Command {
    let mut command = Command::new("git");
    command.env_clear().current_dir(dir).stdin(Stdio::null());
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("HOME", home);
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1").env("LC_ALL", "C.UTF-8");
    command.args(["-c", "core.quotePath=false", "-c", "gc.auto=0"]);
    command
}
