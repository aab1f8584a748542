//! The one function that starts git.
//!
//! A [`Git`] names the git dir, and where a command needs them the work tree, the index and the
//! object store (I8). Nothing that the caller's environment or a user's configuration says can
//! redirect a command, make it run a hook, ask a question, or change the shape of its answer.

use super::child;
use super::error::classify;
pub use super::error::{GitError, GitErrorKind};
use super::oid::Oid;
use crate::durable::{self, GoOn, fault};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The oldest git that has all we use (`merge-tree --write-tree`).
pub const OLDEST: (u32, u32) = (2, 38);
/// How long a git command may take unless it says otherwise.
const DEADLINE: Duration = Duration::from_secs(120);
/// What the system says of a full disk.
pub(super) const FULL: &str = "No space left on device";
/// Less than this is as good as nothing.
const NO_ROOM: u64 = 256 * 1024;

/// How long somebody else's lock file is waited for.
const LOCK_PATIENCE: Duration = Duration::from_secs(10);

static CALLS: AtomicU64 = AtomicU64::new(0);

/// Returns how many git processes this process has started.
pub fn calls() -> u64 {
    CALLS.load(Ordering::Relaxed)
}

#[cfg(test)]
thread_local! {
    static CALLS_HERE: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Counts apart from the tests that run beside this one.
#[cfg(test)]
pub(super) fn calls_of_this_thread() -> u64 {
    CALLS_HERE.get()
}

/// Returns git's version, asked once a process.
pub fn version() -> Result<(u32, u32), GitError> {
    static VERSION: OnceLock<Result<(u32, u32), GitError>> = OnceLock::new();
    VERSION
        .get_or_init(|| {
            let said = Call::new(Place::Nowhere, "version").run()?;
            let said = String::from_utf8_lossy(&said).trim().to_owned();
            let number = said.split_whitespace().nth(2).unwrap_or_default();
            let mut parts = number.split('.').map_while(|p| p.parse().ok());
            match (parts.next(), parts.next()) {
                (Some(major), Some(minor)) if (major, minor) >= OLDEST => Ok((major, minor)),
                _ => Err(GitError::own("version", GitErrorKind::TooOld, said)),
            }
        })
        .clone()
}

/// Where a command works: each part that it may touch, by name.
#[derive(Debug, Clone)]
pub struct Git {
    dir: PathBuf,
    work_tree: Option<PathBuf>,
    index: Option<PathBuf>,
    objects: Option<PathBuf>,
}

impl Git {
    /// Names a git dir. No work tree and no index can be reached.
    pub fn at(dir: impl Into<PathBuf>) -> Git {
        Git { dir: dir.into(), work_tree: None, index: None, objects: None }
    }

    /// Names the work tree too.
    pub fn work_tree(mut self, path: impl Into<PathBuf>) -> Git {
        self.work_tree = Some(path.into());
        self
    }

    /// Names the index too.
    pub fn index(mut self, path: impl Into<PathBuf>) -> Git {
        self.index = Some(path.into());
        self
    }

    /// Names an object store other than the git dir's.
    pub fn objects(mut self, path: impl Into<PathBuf>) -> Git {
        self.objects = Some(path.into());
        self
    }

    /// The work tree, if one is named.
    pub(super) fn tree(&self) -> Option<&Path> {
        self.work_tree.as_deref()
    }

    /// The git dir.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Begins a command that only reads: it takes no lock, not even to refresh an index.
    pub fn reads(&self, verb: &str) -> Call {
        let mut call = Call::new(Place::Named(self.clone()), verb).env("GIT_OPTIONAL_LOCKS", "0");
        call.reads = true;
        call
    }

    /// Begins a command that may write objects, refs, the named index and the named work tree.
    pub fn writes(&self, verb: &str) -> Call {
        Call::new(Place::Named(self.clone()), verb)
    }
}

enum Place {
    Named(Git),
    Discovered(PathBuf),
    Nowhere,
}

/// A git command being put together.
pub struct Call {
    place: Place,
    argv: Vec<OsString>,
    env: Vec<(&'static str, OsString)>,
    config: Vec<(String, String)>,
    stdin: Option<Vec<u8>>,
    from: Option<File>,
    deadline: Duration,
    accepts: &'static [i32],
    reads: bool,
}

impl Call {
    fn new(place: Place, verb: &str) -> Call {
        Call {
            place,
            argv: vec![verb.into()],
            env: Vec::new(),
            config: Vec::new(),
            stdin: None,
            from: None,
            deadline: DEADLINE,
            accepts: &[0],
            reads: false,
        }
    }

    /// Begins the one command that may look for a repository: the one that finds it.
    pub(super) fn discover(from: &Path, verb: &str) -> Call {
        Call::new(Place::Discovered(from.to_owned()), verb).env("GIT_OPTIONAL_LOCKS", "0")
    }

    /// Adds an argument.
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Call {
        self.argv.push(arg.as_ref().to_owned());
        self
    }

    /// Adds arguments.
    pub fn args<A: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = A>) -> Call {
        self.argv.extend(args.into_iter().map(|a| a.as_ref().to_owned()));
        self
    }

    /// Sets a variable.
    pub fn env(mut self, name: &'static str, value: impl Into<OsString>) -> Call {
        self.env.push((name, value.into()));
        self
    }

    /// Overrides a configuration key.
    pub fn config(mut self, key: impl Into<String>, value: impl Into<String>) -> Call {
        self.config.push((key.into(), value.into()));
        self
    }

    /// Gives it input; without, it reads nothing.
    pub fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Call {
        self.stdin = Some(bytes.into());
        self
    }

    /// Lets it read a file, from where that stands; it is read once, so it is not run again if it fails.
    pub fn stdin_from(mut self, file: File) -> Call {
        self.from = Some(file);
        self
    }

    /// Sets how long it may take.
    pub fn deadline(mut self, deadline: Duration) -> Call {
        self.deadline = deadline;
        self
    }

    /// Says which exit statuses are answers and not failures.
    pub fn accepts(mut self, statuses: &'static [i32]) -> Call {
        self.accepts = statuses;
        self
    }

    /// Runs it and returns its output.
    pub fn run(self) -> Result<Vec<u8>, GitError> {
        self.status().map(|(_, out)| out)
    }

    /// Runs it for as long as it may go on, and returns its output.
    pub fn run_while(self, go_on: GoOn<'_>) -> Result<Vec<u8>, GitError> {
        self.finish(None, go_on).map(|(_, out)| out)
    }

    /// Runs it and returns the object name that is its output.
    pub fn oid(self) -> Result<Oid, GitError> {
        let verb = self.argv.first().map(|v| v.to_string_lossy().into_owned()).unwrap_or_default();
        let out = self.run()?;
        Oid::parse(&out).ok_or_else(|| {
            let text = format!("no object name: {}", String::from_utf8_lossy(&out));
            GitError::own(&verb, GitErrorKind::Other, text)
        })
    }

    /// Runs it and returns its exit status and its output.
    pub fn status(self) -> Result<(i32, Vec<u8>), GitError> {
        self.finish(None, &mut || Ok(()))
    }

    /// Runs it with its output going to a file as it comes.
    pub fn run_to(self, file: &File) -> Result<(), GitError> {
        self.finish(Some(file), &mut || Ok(())).map(drop)
    }

    fn finish(self, file: Option<&File>, go_on: GoOn<'_>) -> Result<(i32, Vec<u8>), GitError> {
        let patience = Instant::now() + LOCK_PATIENCE;
        let mut pause = Duration::from_millis(10);
        loop {
            match self.once(file, go_on) {
                Err(e)
                    if e.kind == GitErrorKind::LockExists
                        && self.from.is_none()
                        && Instant::now() + pause < patience =>
                {
                    // Somebody's lock: wait for them. A different pause for each process keeps a crowd apart.
                    std::thread::sleep(pause + Duration::from_millis(u64::from(std::process::id()) % 7));
                    pause = (pause * 2).min(Duration::from_millis(500));
                }
                other => return other,
            }
        }
    }

    fn once(&self, file: Option<&File>, go_on: GoOn<'_>) -> Result<(i32, Vec<u8>), GitError> {
        let fail = |status, stderr: String, kind| GitError {
            argv: self.argv.iter().map(|a| a.to_string_lossy().into_owned()).collect(),
            status,
            stderr,
            kind,
        };
        let system = |e: io::Error| fail(None, e.to_string(), GitErrorKind::Other);
        let Some(program) = program() else {
            return Err(fail(None, String::new(), GitErrorKind::Missing));
        };
        fault::point("git").map_err(system)?;
        let mut command = self.command(program);
        match file {
            Some(file) => command.stdout(file.try_clone().map_err(system)?),
            None => command.stdout(Stdio::piped()),
        };
        match &self.from {
            Some(from) => command.stdin(from.try_clone().map_err(system)?),
            None => command.stdin(Stdio::null()),
        };
        CALLS.fetch_add(1, Ordering::Relaxed);
        #[cfg(test)]
        CALLS_HERE.set(CALLS_HERE.get() + 1);
        let ended = child::run(command, self.stdin.as_deref(), self.deadline, go_on).map_err(|e| {
            let at = self.cwd().map(|p| format!(" in {}", p.display())).unwrap_or_default();
            fail(None, format!("could not be run{at}: {e}"), GitErrorKind::Other)
        })?;
        let stderr = String::from_utf8_lossy(&ended.stderr).into_owned();
        let Some(status) = ended.status else {
            return Err(fail(None, stderr, GitErrorKind::Timeout));
        };
        match status.code() {
            Some(code) if self.accepts.contains(&code) => Ok((code, ended.stdout)),
            code => {
                let kind = classify(&stderr);
                let mut stderr = if code.is_none() { format!("{status}\n{stderr}") } else { stderr };
                if !stderr.contains(FULL)
                    && let Some(disk) = self.full_disk()
                {
                    stderr = format!("{}\n{}: {FULL}", stderr.trim_end(), disk.display());
                }
                Err(fail(code, stderr, kind))
            }
        }
    }

    /// A disk on which it writes and that has no room. Git says why it cannot write in some places only.
    fn full_disk(&self) -> Option<&Path> {
        let Place::Named(git) = &self.place else { return None };
        let places = [Some(&git.dir), git.work_tree.as_ref(), git.objects.as_ref()];
        let full = |path: &Path| durable::free_space(path).is_ok_and(|space| space.free < NO_ROOM);
        places.into_iter().flatten().map(PathBuf::as_path).find(|path| !self.reads && full(path))
    }

    fn cwd(&self) -> Option<&Path> {
        match &self.place {
            // Where no work tree is named, git takes the current folder for one: the git dir is a safe one.
            Place::Named(git) => Some(git.work_tree.as_deref().unwrap_or(&git.dir)),
            Place::Discovered(from) => Some(from),
            Place::Nowhere => None,
        }
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.args(&self.argv);
        for (name, _) in std::env::vars_os() {
            if scrubbed(&name) {
                command.env_remove(&name);
            }
        }
        command.envs(FIXED_ENV.iter().copied());
        #[cfg(test)]
        command
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_TEST_FSYNC", std::env::var_os("WORKSPOOL_TEST_FSYNC").unwrap_or("false".into()));
        if let Some(cwd) = self.cwd() {
            command.current_dir(cwd);
        }
        if let Place::Named(git) = &self.place {
            command.env("GIT_DIR", &git.dir);
            // Without a named index, one that only reads finds none; one that writes fails.
            let none = if self.reads { "/dev/workspool-no-index" } else { "/dev/null/no-index" };
            command.env("GIT_INDEX_FILE", git.index.as_deref().unwrap_or(Path::new(none)));
            if let Some(work_tree) = &git.work_tree {
                command.env("GIT_WORK_TREE", work_tree);
            }
            if let Some(objects) = &git.objects {
                command.env("GIT_OBJECT_DIRECTORY", objects);
            }
        }
        let own = self.config.iter().map(|(k, v)| (k.as_str(), v.as_str()));
        let mut count = 0;
        for (key, value) in FIXED_CONFIG.iter().copied().chain(own) {
            command.env(format!("GIT_CONFIG_KEY_{count}"), key);
            command.env(format!("GIT_CONFIG_VALUE_{count}"), value);
            count += 1;
        }
        command.env("GIT_CONFIG_COUNT", count.to_string());
        command.envs(self.env.iter().map(|(k, v)| (k, v)));
        command
    }
}

/// Variables that every command gets.
const FIXED_ENV: &[(&str, &str)] = &[
    ("LC_ALL", "C.UTF-8"),
    ("GIT_TERMINAL_PROMPT", "0"),
    // Set and empty: no program is asked for a password, whatever the configuration says.
    ("GIT_ASKPASS", ""),
    ("GIT_SSH_COMMAND", "ssh -oBatchMode=yes"),
    ("GIT_PAGER", "cat"),
    ("GIT_EDITOR", "false"),
    // Objects are what their names say, whatever somebody put into refs/replace or info/grafts.
    ("GIT_NO_REPLACE_OBJECTS", "1"),
    ("GIT_GRAFT_FILE", "/dev/null"),
];

/// Configuration that every command gets: nothing runs, nothing is kept, answers have one shape.
const FIXED_CONFIG: &[(&str, &str)] = &[
    ("core.hooksPath", "/dev/null"),
    ("core.fsmonitor", "false"),
    ("core.untrackedCache", "false"),
    ("core.splitIndex", "false"),
    ("index.sparse", "false"),
    // A worker could forge what these say.
    ("core.commitGraph", "false"),
    ("core.trustctime", "true"),
    ("core.checkStat", "default"),
    ("core.quotePath", "false"),
    ("core.safecrlf", "false"),
    ("core.bigFileThreshold", "512m"),
    // What is acknowledged survives power loss; git's default leaves loose objects to chance. One
    // flush a command, where git knows how.
    ("core.fsync", "committed"),
    ("core.fsyncMethod", "batch"),
    ("core.warnAmbiguousRefs", "false"),
    ("commit.gpgSign", "false"),
    ("tag.gpgSign", "false"),
    ("advice.graftFileDeprecated", "false"),
    ("gc.auto", "0"),
    ("gc.autoDetach", "false"),
    ("maintenance.auto", "false"),
    ("color.ui", "false"),
    ("submodule.recurse", "false"),
    ("fetch.recurseSubmodules", "false"),
    ("diff.submodule", "short"),
    ("diff.noprefix", "false"),
    ("diff.mnemonicPrefix", "false"),
    ("diff.renames", "false"),
    ("diff.algorithm", "myers"),
    ("diff.suppressBlankEmpty", "false"),
    ("diff.indentHeuristic", "true"),
    ("status.renames", "false"),
    ("add.ignoreErrors", "false"),
    ("worktree.useRelativePaths", "false"),
    ("worktree.guessRemote", "false"),
    ("i18n.commitEncoding", "UTF-8"),
    ("i18n.logOutputEncoding", "UTF-8"),
];

/// Whether a variable of ours must not reach git.
///
/// Those that say where the user keeps the configuration do: it is theirs.
fn scrubbed(name: &OsStr) -> bool {
    let name = name.as_encoded_bytes();
    let kept: [&[u8]; 3] = [b"GIT_CONFIG_GLOBAL", b"GIT_CONFIG_SYSTEM", b"GIT_CONFIG_NOSYSTEM"];
    (name.starts_with(b"GIT_") && !kept.contains(&name)) || name == b"LANGUAGE" || name == b"SSH_ASKPASS"
}

/// Finds git once; a relative folder on the PATH could be the worker's, so it is passed over.
fn program() -> Option<&'static Path> {
    static PROGRAM: OnceLock<Option<PathBuf>> = OnceLock::new();
    PROGRAM
        .get_or_init(|| {
            let path = std::env::var_os("PATH")?;
            std::env::split_paths(&path)
                .filter(|p| p.is_absolute())
                .map(|p| p.join("git"))
                .find(|p| p.is_file() && rustix::fs::access(p, rustix::fs::Access::EXEC_OK).is_ok())
        })
        .as_deref()
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn every_git_variable_is_scrubbed_but_where_the_users_configuration_is() {
        for name in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_TRACE", "GIT_CONFIG_PARAMETERS"] {
            assert!(scrubbed(OsStr::new(name)), "{name}");
        }
        assert!(!scrubbed(OsStr::new("GIT_CONFIG_GLOBAL")));
        assert!(!scrubbed(OsStr::new("HOME")));
    }
}
