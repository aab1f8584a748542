//! Starting supervisors, and what one is started for.

use super::Outstanding;
use crate::durable;
use crate::model::TaskId;
use crate::process;
use crate::spool::{Found, LockedTask, Spool, TaskDir};
use crate::worker::env;
use anyhow::{Context as _, bail};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::os::fd::{AsFd as _, AsRawFd as _, RawFd};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::rc::Rc;
use std::time::Duration;

/// The command line that starts a supervisor which takes the task's lock itself.
pub(super) fn argv(spool: &Spool, id: TaskId, attempt: u32, sha256: &str) -> anyhow::Result<Vec<String>> {
    let text = |p: PathBuf| p.to_string_lossy().into_owned();
    Ok(vec![
        text(env::own_executable()?),
        "exec".into(),
        "--spool".into(),
        text(spool.root().to_owned()),
        "--task".into(),
        id.to_string(),
        "--attempt".into(),
        attempt.to_string(),
        "--task-sha256".into(),
        sha256.into(),
    ])
}

/// Starts a supervisor for a claimed attempt and hands it the task's lock: there is no moment at which
/// nobody holds it. It outlives us.
pub fn spawn(locked: LockedTask, attempt: u32) -> anyhow::Result<std::process::Child> {
    let program = env::own_executable().context("cannot find this program")?;
    let mut command = Command::new(program);
    command.arg("exec").arg("--spool").arg(locked.spool().root());
    command.arg("--task").arg(locked.id().to_string()).arg("--attempt").arg(attempt.to_string());
    let handed =
        rustix::io::fcntl_dupfd_cloexec(locked.lock().as_fd(), 3).context("cannot hand over the lock")?;
    command.arg("--lock-fd").arg(handed.as_raw_fd().to_string()).current_dir("/");
    let mut command = process::detach(command);
    // SAFETY: one system call on an open descriptor; nothing is allocated. Only in the child does the
    // descriptor survive `exec`: other processes that are started at the same time do not get it.
    unsafe {
        command.pre_exec(move || {
            rustix::io::fcntl_setfd(&handed, rustix::io::FdFlags::empty())?;
            Ok(())
        });
    }
    crate::durable::fault::point("spawn-supervisor")?;
    command.spawn().context("cannot start a supervisor")
}

/// What a supervisor is started for, from its command line.
#[derive(Debug, Default)]
pub struct Order {
    spool: Option<PathBuf>,
    task: Option<TaskId>,
    attempt: Option<u32>,
    lock_fd: Option<RawFd>,
    sha256: Option<String>,
}

impl Order {
    /// Reads the arguments of `workspool exec`.
    pub fn parse(mut args: impl Iterator<Item = OsString>) -> anyhow::Result<Order> {
        let mut parsed = Order::default();
        while let Some(flag) = args.next() {
            let value = args.next().context("a value is missing")?;
            let text = || value.to_str().context("not UTF-8").map(str::to_owned);
            match flag.to_str() {
                Some("--spool") => parsed.spool = Some(value.into()),
                Some("--task") => parsed.task = Some(text()?.parse()?),
                Some("--attempt") => parsed.attempt = Some(text()?.parse()?),
                Some("--lock-fd") => parsed.lock_fd = Some(text()?.parse()?),
                Some("--task-sha256") => parsed.sha256 = Some(text()?),
                _ => bail!("unknown argument {}", flag.to_string_lossy()),
            }
        }
        Ok(parsed)
    }

    /// Opens the spool that it names.
    pub fn spool(&self) -> anyhow::Result<Spool> {
        let spool = Spool::open(self.spool.as_deref().context("--spool is missing")?)?;
        let config = crate::spool::config::load(&spool);
        Ok(match config.as_ref().ok().and_then(|c| c.worktrees.clone()) {
            Some(path) => spool.with_worktrees(path),
            None => spool,
        })
    }

    /// Carries the attempt that it names up to its end. `None`: there was nothing to do.
    pub fn carry_out(self, spool: &Spool) -> anyhow::Result<Option<Outstanding>> {
        let id = self.task.context("--task is missing")?;
        let attempt = self.attempt.context("--attempt is missing")?;
        let locked = match self.lock_fd {
            // SAFETY: the runner left this descriptor open for us, and nothing has taken it yet.
            Some(fd) => unsafe { spool.inherit_task(id, fd)? },
            None => match spool.try_lock_task(id)? {
                Some(locked) => locked,
                // Another supervisor was faster.
                None => return Ok(None),
            },
        };
        let found = locked.ticket()?.filter(|f| super::is_running(f) && f.ticket.attempt == attempt);
        // Else the ticket went on without us: whatever we would do belongs to a past attempt.
        let Some(found) = found else { return Ok(None) };
        carry(locked, found, self.sha256, Rc::default()).map(Some)
    }
}

/// Carries a claimed attempt up to its end, or says on the disk why that cannot be. The end of the attempt
/// `before` is recorded meanwhile.
pub fn carry(
    locked: LockedTask,
    found: Found,
    sha256: Option<String>,
    before: Rc<Outstanding>,
) -> anyhow::Result<Outstanding> {
    let locked = Rc::new(locked);
    let carried = super::supervise(Rc::clone(&locked), found, sha256, Rc::clone(&before));
    before.record();
    if let Err(e) = &carried {
        GaveUp::note(locked.dir(), format!("{e:#}"));
    }
    carried
}

/// What a supervisor that could not go on left: `supervisor.err`. Another one will try, but not at once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GaveUp {
    /// How many supervisors in a row could not go on.
    pub times: u32,
    /// When the last one could not.
    pub at: DateTime<Utc>,
    /// Why, in words.
    pub why: String,
}

impl GaveUp {
    /// The first pause before another supervisor is started. It doubles each time.
    const FIRST: Duration = Duration::from_millis(100);
    /// The longest pause.
    const LONGEST: Duration = Duration::from_secs(60);

    fn path(dir: &TaskDir) -> PathBuf {
        dir.path().join("supervisor.err")
    }

    /// Reads what the last supervisor of a task left, if it could not go on.
    pub fn read(dir: &TaskDir) -> Option<GaveUp> {
        // A hint: one that cannot be read holds nobody up.
        serde_json::from_slice(&std::fs::read(GaveUp::path(dir)).ok()?).ok()
    }

    /// Notes why a supervisor could not go on; where it could, what others left is out of date.
    pub(super) fn unless(dir: &TaskDir, done: anyhow::Result<()>) {
        match done {
            // Nobody hears us; whoever asks why the task stays reads it here.
            Err(e) => GaveUp::note(dir, format!("{e:#}")),
            Ok(()) => drop(durable::remove_file(&GaveUp::path(dir))),
        }
    }

    fn note(dir: &TaskDir, why: String) {
        let times = GaveUp::read(dir).map_or(0, |last| last.times).saturating_add(1);
        if let Ok(bytes) = serde_json::to_vec(&GaveUp { times, at: Utc::now(), why }) {
            let _ = durable::replace_unsynced(&GaveUp::path(dir), &bytes);
        }
    }

    /// How long still to wait before another supervisor is started: each one adds to the history of a task
    /// that perhaps none can carry on.
    pub fn pause(&self) -> Duration {
        let pause =
            GaveUp::FIRST.saturating_mul(1 << self.times.saturating_sub(1).min(10)).min(GaveUp::LONGEST);
        match (Utc::now() - self.at).to_std() {
            Ok(age) => pause.saturating_sub(age),
            // The clock was put back.
            Err(_) => Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_and_end() {
        let now = Utc::now();
        let pause = |times, at| GaveUp { times, at, why: String::new() }.pause();
        let soon = now + chrono::TimeDelta::milliseconds(-1);
        assert!(pause(1, soon) <= Duration::from_millis(100));
        assert!(pause(4, soon) > Duration::from_millis(400) && pause(4, soon) <= Duration::from_millis(800));
        assert!(pause(u32::MAX, soon) <= Duration::from_secs(60));
        assert!(pause(u32::MAX, now - chrono::TimeDelta::seconds(61)).is_zero());
        assert!(pause(9, now + chrono::TimeDelta::hours(1)).is_zero(), "the clock was put back");
    }
}
