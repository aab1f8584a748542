//! Starting supervisors, and being one: `workspool exec`.

use crate::durable;
use crate::model::TaskId;
use crate::process;
use crate::spool::{LockedTask, Spool, TaskDir};
use crate::worker::env;
use anyhow::{Context as _, bail};
use std::ffi::OsString;
use std::os::fd::{AsFd as _, AsRawFd as _, RawFd};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

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

#[derive(Default)]
struct Args {
    spool: Option<PathBuf>,
    task: Option<TaskId>,
    attempt: Option<u32>,
    lock_fd: Option<RawFd>,
    sha256: Option<String>,
}

fn parse(mut args: impl Iterator<Item = OsString>) -> anyhow::Result<Args> {
    let mut parsed = Args::default();
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

/// `workspool exec`: carries one attempt. Internal; started by a runner or by a keeper.
pub fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    match run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("workspool exec: {e:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: impl Iterator<Item = OsString>) -> anyhow::Result<()> {
    let args = parse(args)?;
    let spool = Spool::open(&args.spool.context("--spool is missing")?)?;
    let config = crate::spool::config::load(&spool);
    let spool = match config.as_ref().ok().and_then(|c| c.worktrees.clone()) {
        Some(path) => spool.with_worktrees(path),
        None => spool,
    };
    let id = args.task.context("--task is missing")?;
    let attempt = args.attempt.context("--attempt is missing")?;
    let locked = match args.lock_fd {
        // SAFETY: the runner left this descriptor open for us, and nothing has taken it yet.
        Some(fd) => unsafe { spool.inherit_task(id, fd)? },
        None => match spool.try_lock_task(id)? {
            Some(locked) => locked,
            // Another supervisor was faster.
            None => return Ok(()),
        },
    };
    let Some(found) = locked.ticket()?.filter(|f| super::is_running(f) && f.ticket.attempt == attempt) else {
        // The ticket went on without us: whatever we would do belongs to a past attempt.
        return Ok(());
    };
    let done = super::supervise(&locked, found, args.sha256);
    let gave_up = gave_up(locked.dir());
    match &done {
        // Nobody hears us; whoever asks why the task stays reads it here.
        Err(e) => drop(durable::replace_unsynced(&gave_up, format!("{e:#}").as_bytes())),
        Ok(()) => drop(durable::remove_file(&gave_up)),
    }
    done
}

/// Where a supervisor that cannot go on says why. Another one will try.
pub fn gave_up(dir: &TaskDir) -> PathBuf {
    dir.path().join("supervisor.err")
}
