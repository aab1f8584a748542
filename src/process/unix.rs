//! What Linux and macOS share: sessions, descriptors, reaping, detaching.

use rustix::io::Errno;
use rustix::process::{WaitOptions, WaitStatus};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::{BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// How a process ended, as the kernel told its parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// It exited by itself.
    Exited {
        /// Its exit code.
        code: i32,
    },
    /// A signal ended it.
    Signaled {
        /// The signal's number.
        signal: i32,
    },
}

/// Reaps all children of this process and keeps how the ones that matter ended.
#[derive(Debug, Default)]
pub(super) struct Reaper {
    watched: BTreeMap<u32, Option<Ending>>,
}

impl Reaper {
    /// Keeps the ending of this child for [`Reaper::ending`].
    pub(super) fn watch(&mut self, pid: u32) {
        self.watched.entry(pid).or_insert(None);
    }

    /// How a watched child ended, if it has.
    pub(super) fn ending(&self, pid: u32) -> Option<Ending> {
        self.watched.get(&pid).copied().flatten()
    }

    /// Reaps every child that has ended; says whether any child is left.
    ///
    /// For a subreaper "no child" means "no descendant": every orphan below it becomes its child.
    pub(super) fn reap(&mut self) -> io::Result<bool> {
        loop {
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => {
                    let pid = pid.as_raw_nonzero().get() as u32;
                    if let (Some(slot), Some(ending)) = (self.watched.get_mut(&pid), ending(status)) {
                        *slot = Some(ending);
                    }
                }
                Ok(None) => return Ok(true),
                Err(Errno::CHILD) => return Ok(false),
                Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }
}

/// Whether this process has no child at all.
pub fn has_no_child() -> bool {
    matches!(rustix::process::wait(WaitOptions::NOHANG), Err(Errno::CHILD))
}

fn ending(status: WaitStatus) -> Option<Ending> {
    let exited = status.exit_status().map(|code| Ending::Exited { code });
    exited.or(status.terminating_signal().map(|signal| Ending::Signaled { signal }))
}

/// Looks until `done` says so, at most for `timeout`; says whether it was done.
pub(super) fn poll_until(timeout: Duration, mut done: impl FnMut() -> io::Result<bool>) -> io::Result<bool> {
    let until = Instant::now() + timeout;
    let mut pause = Duration::from_millis(1);
    loop {
        if done()? {
            return Ok(true);
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(false);
        }
        std::thread::sleep(pause.min(left));
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

/// Makes the command the leader of a new session: no terminal, no signals meant for our group.
pub fn new_session(command: &mut Command) {
    // SAFETY: setsid is async-signal-safe and the closure allocates nothing.
    unsafe {
        command.pre_exec(|| {
            rustix::process::setsid()?;
            Ok(())
        });
    }
}

/// Makes this process the leader of a new session, unless it leads one.
pub fn lead_session() {
    // It fails for one that leads already.
    let _ = rustix::process::setsid();
}

/// Takes what our parent handed over as standard input, which is nothing from then on.
pub fn take_stdin() -> io::Result<OwnedFd> {
    let handed = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
    rustix::stdio::dup2_stdin(std::fs::File::open("/dev/null")?)?;
    Ok(handed)
}

/// Closes every descriptor above stderr but those in `keep`: what a careless ancestor left open.
///
/// # Safety
/// Nothing in this process may own such a descriptor: call it first thing in `main`.
pub unsafe fn close_all_but(keep: &[RawFd]) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    // SAFETY: the caller vouches for it.
    if unsafe { super::sys::close_ranges(keep) } {
        return Ok(());
    }
    let dir = if cfg!(target_os = "linux") { "/proc/self/fd" } else { "/dev/fd" };
    let open: Vec<RawFd> = std::fs::read_dir(dir)?
        .filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok())
        .filter(|fd| *fd > 2 && !keep.contains(fd))
        .collect();
    for fd in open {
        // SAFETY: only asks whether the number is open; the folder's own descriptor is closed by now.
        if rustix::io::fcntl_getfd(unsafe { BorrowedFd::borrow_raw(fd) }).is_ok() {
            // SAFETY: it is open, and the caller vouches that nobody owns it.
            drop(unsafe { OwnedFd::from_raw_fd(fd) });
        }
    }
    Ok(())
}

/// Returns `command` changed so that it outlives us: own session, no terminal, no input or output.
///
/// Inside a systemd service it also leaves the service's control group (by `systemd-run --scope`),
/// which would else be killed as a whole. Program, arguments, folder and single variables that were set on
/// `command` are kept; set anything else (`env_clear`, `pre_exec`) on what is returned.
pub fn detach(command: Command) -> Command {
    let mut command = match scope_runner() {
        Some(runner) => in_scope(runner, &command),
        None => command,
    };
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    new_session(&mut command);
    command
}

/// How to call `systemd-run` here: its path and whether it is the user's manager that we talk to.
type ScopeRunner = (PathBuf, bool);

/// Finds a working `systemd-run`, if we are inside a systemd service. Asked once per process.
fn scope_runner() -> Option<&'static ScopeRunner> {
    static RUNNER: OnceLock<Option<ScopeRunner>> = OnceLock::new();
    RUNNER
        .get_or_init(|| {
            if cfg!(not(target_os = "linux")) || std::env::var_os("INVOCATION_ID").is_none() {
                return None;
            }
            let path = find_program("systemd-run")?;
            let runner = (path, !rustix::process::getuid().is_root());
            // A service without a bus has the program and cannot use it: then `KillMode=process` must do.
            let mut probe = Command::new("true");
            probe = in_scope(&runner, &probe);
            probe.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            probe.status().is_ok_and(|s| s.success()).then_some(runner)
        })
        .as_ref()
}

fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_else(|| OsString::from("/usr/bin:/bin"));
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|p| p.is_file())
}

/// `systemd-run --scope` becomes the program it is given, so the child's number stays the same.
fn in_scope((runner, user): &ScopeRunner, command: &Command) -> Command {
    let mut scoped = Command::new(runner);
    scoped.arg(if *user { "--user" } else { "--system" });
    scoped.args(["--scope", "--quiet", "--collect", "--no-ask-password", "--"]);
    scoped.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => scoped.env(name, value),
            None => scoped.env_remove(name),
        };
    }
    if let Some(dir) = command.get_current_dir().filter(|d| *d != Path::new("")) {
        scoped.current_dir(dir);
    }
    scoped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_keeps_program_arguments_environment_and_folder() {
        let mut command = Command::new("/bin/prog");
        command.args(["a b", "-c"]).env("X", "1").env_remove("Y").current_dir("/tmp");
        let scoped = in_scope(&(PathBuf::from("/usr/bin/systemd-run"), true), &command);
        let args: Vec<_> = scoped.get_args().map(|a| a.to_str().unwrap().to_owned()).collect();
        assert_eq!(scoped.get_program(), "/usr/bin/systemd-run");
        assert_eq!(args[0], "--user");
        assert_eq!(args[args.len() - 4..], ["--", "/bin/prog", "a b", "-c"]);
        assert_eq!(scoped.get_current_dir(), Some(Path::new("/tmp")));
        let envs: Vec<_> = scoped.get_envs().collect();
        assert_eq!(envs, command.get_envs().collect::<Vec<_>>());
    }

    #[test]
    fn a_detached_command_leads_its_own_session() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("sid");
        let mut command = Command::new("sh");
        command
            .arg("-c")
            .arg("cut -d' ' -f1,6 /proc/$$/stat > \"$OUT\" 2>/dev/null || ps -o pid=,sess= -p $$ > \"$OUT\"");
        command.env("OUT", &out);
        let mut child = detach(command).spawn().unwrap();
        let pid = child.id().to_string();
        assert!(child.wait().unwrap().success());
        if cfg!(target_os = "linux") {
            assert_eq!(std::fs::read_to_string(out).unwrap().trim(), format!("{pid} {pid}"));
        }
    }

    #[test]
    fn waiting_ends_with_the_event_or_the_time() {
        let mut left = 3;
        let counted = poll_until(Duration::from_secs(60), || {
            left -= 1;
            Ok(left == 0)
        });
        assert!(counted.unwrap());
        assert!(!poll_until(Duration::from_millis(5), || Ok(false)).unwrap());
    }
}
