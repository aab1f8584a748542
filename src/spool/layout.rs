//! Where everything lies: the folders of a spool, and the files of a task.

use super::SpoolError;
use crate::durable;
use crate::model::{HeldReason, TaskId, WorkerName};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// A spool: the directory that is the state.
#[derive(Debug, Clone)]
pub struct Spool {
    root: PathBuf,
    id: String,
    worktrees: PathBuf,
}

/// Whether this process keeps its bell silent for now, and whether it would have rung.
static HELD_BACK: AtomicBool = AtomicBool::new(false);
static OWED: AtomicBool = AtomicBool::new(false);

/// The environment variable that names the spool.
pub const HOME_VARIABLE: &str = "WORKSPOOL_HOME";

/// What a spool says of itself: `spool.json`.
#[derive(serde::Serialize, serde::Deserialize)]
struct Identity {
    version: u32,
    id: String,
}

impl Spool {
    /// Returns where the spool is: `explicit`, else `$WORKSPOOL_HOME`, else `~/.workspool`.
    pub fn locate(explicit: Option<PathBuf>) -> Result<PathBuf, SpoolError> {
        let named =
            explicit.or_else(|| std::env::var_os(HOME_VARIABLE).filter(|v| !v.is_empty()).map(PathBuf::from));
        let path = match named {
            Some(path) => path,
            None => std::env::home_dir()
                .filter(|h| !h.as_os_str().is_empty())
                .ok_or(SpoolError::NoHome)?
                .join(".workspool"),
        };
        std::path::absolute(&path).map_err(|e| SpoolError::io("resolve", &path, e))
    }

    /// Opens the spool at `root`, making what is missing. Folders are private (0700).
    pub fn open(root: &Path) -> Result<Self, SpoolError> {
        let make = |path: &Path| durable::ensure_dir(path).map_err(|e| SpoolError::io("make", path, e));
        let identity_file = root.join("spool.json");
        if !identity_file.is_file() {
            make(root)?;
        }
        let root = root.canonicalize().map_err(|e| SpoolError::io("resolve", root, e))?;
        let mut spool = Spool { worktrees: root.join("worktrees"), root, id: String::new() };
        if !identity_file.is_file() {
            for folder in FOLDERS {
                make(&spool.root.join(folder))?;
            }
            let identity = Identity { version: crate::model::VERSION, id: TaskId::generate().to_string() };
            let bytes = serde_json::to_vec_pretty(&identity)
                .map_err(|e| SpoolError::Broken(identity_file.clone(), e.to_string()))?;
            durable::create_new(&identity_file, &bytes)
                .map_err(|e| SpoolError::io("write", &identity_file, e))?;
            // Their own entries must survive before anything in them is acknowledged. The folder that the
            // spool lies in may be one that we cannot open.
            let held = spool.root.join("held");
            durable::sync_dir(&held).map_err(|e| SpoolError::io("sync", &held, e))?;
            let _ = spool.root.parent().map(durable::sync_dir);
        }
        let bytes = std::fs::read(&identity_file).map_err(|e| SpoolError::io("read", &identity_file, e))?;
        let identity: Identity = serde_json::from_slice(&bytes)
            .map_err(|e| SpoolError::Broken(identity_file.clone(), e.to_string()))?;
        if identity.version > crate::model::VERSION {
            return Err(SpoolError::Newer(spool.root, identity.version));
        }
        spool.id = identity.id;
        // Before anybody looks. Where it cannot be done, the next pass says so.
        let _ = spool.restore_after_restart();
        Ok(spool)
    }

    /// Puts workspaces elsewhere, perhaps on another disk.
    pub fn with_worktrees(mut self, path: PathBuf) -> Self {
        self.worktrees = path;
        self
    }

    /// The spool's own id: what is owned by one spool is never touched by another.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The spool's directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Where files are dropped.
    pub fn inbox(&self) -> PathBuf {
        self.root.join("inbox")
    }

    /// Answers to dropped files that were taken.
    pub fn taken(&self) -> PathBuf {
        self.root.join("taken")
    }

    /// Dropped files that were refused, with reasons.
    pub fn rejected(&self) -> PathBuf {
        self.root.join("rejected")
    }

    /// Submissions that are not expanded yet.
    pub fn intake(&self) -> PathBuf {
        self.root.join("intake")
    }

    /// Which submission won an idempotency key.
    pub fn keys(&self) -> PathBuf {
        self.root.join("keys")
    }

    /// Tickets that are ready to run.
    pub fn queue(&self) -> PathBuf {
        self.root.join("queue")
    }

    /// Tickets that wait for a reason.
    pub fn held(&self, reason: HeldReason) -> PathBuf {
        self.root.join("held").join(reason.as_str())
    }

    /// Tickets that are claimed.
    pub fn running(&self) -> PathBuf {
        self.root.join("running")
    }

    /// Tickets that ended, in folders of at most about a thousand.
    pub fn done(&self) -> PathBuf {
        self.root.join("done")
    }

    /// Durable wishes.
    pub fn requests(&self) -> PathBuf {
        self.root.join("requests")
    }

    /// Ends that were written and whose dependents are perhaps not released yet.
    pub fn releases(&self) -> PathBuf {
        self.root.join("releases")
    }

    /// When queued and held tasks expire: `<milliseconds>.<task>`.
    pub fn timers(&self) -> PathBuf {
        self.root.join("timers")
    }

    /// All tasks.
    pub fn tasks(&self) -> PathBuf {
        self.root.join("tasks")
    }

    /// One task.
    pub fn task(&self, id: TaskId) -> TaskDir {
        TaskDir { path: self.tasks().join(id.to_string()), id }
    }

    /// Repositories of ours that stand for folders that tasks work on copies of.
    pub fn copies(&self) -> PathBuf {
        self.root.join("copies")
    }

    /// Workspaces.
    pub fn worktrees(&self) -> &Path {
        &self.worktrees
    }

    /// Linked workers.
    pub fn workers(&self) -> PathBuf {
        self.root.join("workers")
    }

    /// The profile of a linked worker.
    pub fn worker(&self, name: &WorkerName) -> PathBuf {
        self.workers().join(format!("{name}.json"))
    }

    /// Locks that are not of a task.
    pub fn lock(&self, name: &str) -> durable::Lock {
        durable::Lock::at(self.lock_path(name))
    }

    /// A file beside the locks.
    pub fn lock_path(&self, name: &str) -> PathBuf {
        self.root.join("locks").join(name)
    }

    /// The lock of a repository, by its key.
    pub fn repo_lock(&self, key: &str) -> durable::Lock {
        self.lock(&format!("repo-{key}"))
    }

    /// Files being written.
    pub fn tmp(&self) -> PathBuf {
        self.root.join("tmp")
    }

    /// The owner's configuration.
    pub fn config_file(&self) -> PathBuf {
        std::env::var_os("WORKSPOOL_CONFIG").map_or_else(|| self.root.join("config.toml"), PathBuf::from)
    }

    /// The file that writers touch, so that whoever waits looks again.
    pub fn bell(&self) -> PathBuf {
        self.root.join("bell")
    }

    /// Wakes whoever waits. Only hastens: nothing depends on it.
    pub fn ring(&self) {
        if HELD_BACK.load(Ordering::Relaxed) {
            OWED.store(true, Ordering::Relaxed);
        } else {
            self.ring_now();
        }
    }

    /// Keeps the bell of this process silent until [`Spool::ring_owed`].
    pub fn hold_bell_back() {
        HELD_BACK.store(true, Ordering::Relaxed);
    }

    /// Rings once for all that was held back.
    pub fn ring_owed(&self) {
        if OWED.swap(false, Ordering::Relaxed) {
            self.ring_now();
        }
    }

    fn ring_now(&self) {
        use std::io::Write as _;
        let rung = std::fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(self.bell())
            .and_then(|mut bell| bell.write_all(b"."));
        // A bell that cannot be rung is made up for by the slow poll.
        drop(rung);
    }
}

/// The folders of a spool.
pub const FOLDERS: &[&str] = &[
    "inbox",
    "taken",
    "rejected",
    "intake",
    "keys",
    "queue",
    "held/time",
    "held/needs",
    "held/answer",
    "held/quota",
    "held/hand",
    "running",
    "done",
    "requests",
    "releases",
    "timers",
    "tasks",
    "worktrees",
    "workers",
    "locks",
    "tmp",
];

/// All about one task.
#[derive(Debug, Clone)]
pub struct TaskDir {
    path: PathBuf,
    id: TaskId,
}

impl TaskDir {
    /// The task.
    pub fn id(&self) -> TaskId {
        self.id
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The kernel lock.
    pub fn lock(&self) -> durable::Lock {
        durable::Lock::at(self.path.join("lock"))
    }

    /// A revision of the request.
    pub fn record(&self, revision: u32) -> PathBuf {
        self.path.join(if revision <= 1 { "task.json".to_owned() } else { format!("task.{revision}.json") })
    }

    /// What came out.
    pub fn result(&self) -> PathBuf {
        self.path.join("result.json")
    }

    /// What proves the result.
    pub fn receipt(&self) -> PathBuf {
        self.path.join("receipt.json")
    }

    /// Verdicts.
    pub fn review(&self) -> PathBuf {
        self.path.join("review.json")
    }

    /// What happened.
    pub fn events(&self) -> PathBuf {
        self.path.join("events.jsonl")
    }

    /// How far a running attempt is.
    pub fn progress(&self) -> PathBuf {
        self.path.join("progress.json")
    }

    /// Why it is held, while it is.
    pub fn hold(&self) -> PathBuf {
        self.path.join("hold.json")
    }

    /// The patch.
    pub fn diff(&self) -> PathBuf {
        self.path.join("diff.patch")
    }

    /// Kept files.
    pub fn artifacts(&self) -> PathBuf {
        self.path.join("artifacts")
    }

    /// Who waits for this task.
    pub fn dependents(&self) -> PathBuf {
        self.path.join("dependents")
    }

    /// Tasks that this task's worker submitted.
    pub fn children(&self) -> PathBuf {
        self.path.join("children")
    }

    /// The intent of an accept that is under way.
    pub fn landing(&self) -> PathBuf {
        self.path.join("landing.json")
    }

    /// All attempts.
    pub fn attempts(&self) -> PathBuf {
        self.path.join("attempts")
    }

    /// One attempt.
    pub fn attempt(&self, n: u32) -> AttemptDir {
        AttemptDir { path: self.attempts().join(n.to_string()), number: n }
    }

    /// The number of the newest attempt that has left a trace; 0 if none.
    pub fn last_attempt(&self) -> u32 {
        let Ok(entries) = std::fs::read_dir(self.attempts()) else { return 0 };
        entries.filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok()).max().unwrap_or(0)
    }

    /// The number of the newest revision; 0 if there is no record.
    pub fn last_revision(&self) -> u32 {
        if !self.record(1).is_file() {
            return 0;
        }
        (2..).take_while(|n| self.record(*n).is_file()).last().unwrap_or(1)
    }
}

/// All about one attempt.
#[derive(Debug, Clone)]
pub struct AttemptDir {
    path: PathBuf,
    number: u32,
}

impl AttemptDir {
    /// Its number.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A file in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// A step's folder.
    pub fn step(&self, name: &str) -> PathBuf {
        self.path.join("steps").join(name)
    }

    /// Our trusted view of the workspace's git directory.
    pub fn view(&self) -> PathBuf {
        self.path.join("git")
    }
}

/// Names in a folder; a folder that is not there has none.
pub fn names(dir: &Path) -> std::io::Result<Vec<OsString>> {
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(e),
    };
    entries.map(|e| e.map(|e| e.file_name())).collect()
}

/// Whether a folder has no entry, or is not there. Costs no more for a large one.
pub fn is_empty(dir: &Path) -> std::io::Result<bool> {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = match rustix::fs::open(dir, flags, Mode::empty()) {
        Err(rustix::io::Errno::NOENT) => return Ok(true),
        other => other?,
    };
    // It asks for a few entries at a time; the standard library asks for hundreds, of which one is looked at.
    for entry in rustix::fs::Dir::new(folder)? {
        if !matches!(entry?.file_name().to_bytes(), b"." | b"..") {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Names in a folder that read as `T`, sorted; others are passed over.
pub fn parsed<T: std::str::FromStr + Ord>(dir: &Path) -> std::io::Result<Vec<T>> {
    let mut found: Vec<T> = names(dir)?.iter().filter_map(|n| n.to_str()?.parse().ok()).collect();
    found.sort_unstable();
    Ok(found)
}
