//! A child that goes on with what this process has in memory (Linux).
//!
//! To `exec` this program again costs more than a keeper needs for all that it does: a page fault for each page of
//! the program that is touched, every relocation, every table of the redactor made anew. A fork has them.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, WaitOptions, set_parent_process_death_signal};
use std::ffi::CStr;
use std::io;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Children that nobody waits for any more, and that may not have ended.
static LEFT: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

/// A child of this process. Who drops it has heard of its end otherwise: it is reaped by and by.
#[derive(Debug)]
pub struct Fork {
    pid: Pid,
}

impl Drop for Fork {
    fn drop(&mut self) {
        let mut left = LEFT.lock().unwrap_or_else(PoisonError::into_inner);
        left.push(self.pid);
        reap(&mut left);
    }
}

/// Takes the exit codes of those that have ended. One that somebody else has reaped is as good.
fn reap(left: &mut Vec<Pid>) {
    left.retain(|pid| matches!(rustix::process::waitpid(Some(*pid), WaitOptions::NOHANG), Ok(None)));
}

/// Makes a child that runs `life`, and ends with the code that it returns. What is open stays open in it.
///
/// `None` if this process has other threads: what they hold, the child would wait for in vain.
pub fn fork(life: impl FnOnce() -> u8) -> io::Result<Option<Fork>> {
    if std::fs::read_dir("/proc/self/task")?.take(2).count() != 1 {
        return Ok(None);
    }
    // Else each child would look for it.
    super::cgroup::own_dir();
    reap(&mut LEFT.lock().unwrap_or_else(PoisonError::into_inner));
    // SAFETY: there is no other thread that could hold anything, and the child does not return from here.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            let _ = set_parent_process_death_signal(None);
            let code = catch_unwind(AssertUnwindSafe(life)).unwrap_or(101);
            // SAFETY: ends this process. What our parent has in memory is not ours to flush or to drop.
            unsafe { libc::_exit(code.into()) }
        }
        pid => Ok(Pid::from_raw(pid).map(|pid| Fork { pid })),
    }
}

/// Lets a forked child be what a started one would be: no input, no output, nothing of its parent's but `name`, for
/// whoever lists processes (at most 15 bytes are shown).
pub fn begin_anew(name: &CStr) -> io::Result<()> {
    rustix::thread::set_name(name)?;
    super::lead_session();
    rustix::process::chdir(Path::new("/"))?;
    let nothing = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&nothing)?;
    rustix::stdio::dup2_stdout(&nothing)?;
    rustix::stdio::dup2_stderr(&nothing)?;
    Ok(())
}

/// Waits until there is something to read, or the other end is closed, at most so long; says whether it is.
pub fn stirs_within(line: &OwnedFd, most: Duration) -> io::Result<bool> {
    let until = Instant::now() + most;
    loop {
        let left = Timespec::try_from(until.saturating_duration_since(Instant::now())).unwrap_or_default();
        match poll(&mut [PollFd::new(line, PollFlags::IN)], Some(&left)) {
            Ok(ready) => return Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_with_threads_is_not_copied() {
        // The thread of this test is not the only one.
        assert!(fork(|| 0).unwrap().is_none());
    }
}
