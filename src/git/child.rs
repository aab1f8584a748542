//! Runs one short command to its end: bytes in, bytes out, a deadline, nothing left behind.
//!
//! One `poll` loop instead of a thread per pipe. A grandchild that keeps a pipe open (a daemon that a
//! filter started) does not hold us up: once the command itself has ended, what is in the pipes is
//! taken and they are closed. The command leads a process group of its own, so that the deadline takes
//! its filters and transports along.

use crate::durable::GoOn;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How a command ended.
pub(super) struct Ended {
    /// `None`: the deadline passed and it was killed.
    pub status: Option<ExitStatus>,
    pub stdout: Vec<u8>,
    /// The first bytes of it.
    pub stderr: Vec<u8>,
}

/// More of stderr than this is read and dropped.
const STDERR_KEPT: usize = 64 * 1024;
/// How often a command that has closed its pipes, or whose pipes somebody else holds, is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// Runs `command` with `stdin`, until `deadline` from now, or until `go_on` fails: then this does, too.
/// Without `stdin`, it reads what it was given already.
pub(super) fn run(
    mut command: Command,
    stdin: Option<&[u8]>,
    deadline: Duration,
    go_on: GoOn<'_>,
) -> io::Result<Ended> {
    let until = Instant::now() + deadline;
    if stdin.is_some() {
        command.stdin(Stdio::piped());
    }
    command.stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn()?;
    let outcome = talk(&mut child, stdin.unwrap_or_default(), until, go_on);
    if !matches!(outcome, Ok(Ended { status: Some(_), .. })) {
        // Not reaped yet, so its number is still its own, and so is its group's.
        if let Some(pid) = rustix::process::Pid::from_raw(child.id().cast_signed()) {
            let _ = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
        }
        child.wait()?;
    }
    outcome
}

fn talk(child: &mut Child, mut input: &[u8], until: Instant, go_on: GoOn<'_>) -> io::Result<Ended> {
    let (mut stdin, mut stdout, mut stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    if let Some(pipe) = &stdin {
        nonblocking(pipe)?;
    }
    if let Some(pipe) = &stdout {
        nonblocking(pipe)?;
    }
    if let Some(pipe) = &stderr {
        nonblocking(pipe)?;
    }
    let (mut out, mut err) = (Vec::new(), Vec::new());
    loop {
        if input.is_empty() {
            stdin = None;
        }
        let open = stdout.is_some() || stderr.is_some() || stdin.is_some();
        // Looked at before the pipes are read: what it wrote before it ended is then in them.
        let ended = if open { child.try_wait()? } else { wait_until(child, until, go_on)? };
        if stdin.is_some() && !feed(&mut stdin, &mut input)? {
            stdin = None;
        }
        if !take(&mut stdout, &mut out, usize::MAX)? {
            stdout = None;
        }
        if !take(&mut stderr, &mut err, STDERR_KEPT)? {
            stderr = None;
        }
        if let Some(status) = ended {
            return Ok(Ended { status: Some(status), stdout: out, stderr: err });
        }
        go_on()?;
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(Ended { status: None, stdout: out, stderr: err });
        }
        let mut fds = Vec::with_capacity(3);
        fds.extend(stdin.as_ref().map(|p| PollFd::from_borrowed_fd(p.as_fd(), PollFlags::OUT)));
        fds.extend(stdout.as_ref().map(|p| PollFd::from_borrowed_fd(p.as_fd(), PollFlags::IN)));
        fds.extend(stderr.as_ref().map(|p| PollFd::from_borrowed_fd(p.as_fd(), PollFlags::IN)));
        if !fds.is_empty() {
            let wait = left.min(LOOK);
            let wait = Timespec { tv_sec: 0, tv_nsec: i64::from(wait.subsec_nanos()) };
            match poll(&mut fds, Some(&wait)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }
}

/// Waits for a command that has closed its pipes; it is nearly always gone at once.
fn wait_until(child: &mut Child, until: Instant, go_on: GoOn<'_>) -> io::Result<Option<ExitStatus>> {
    let mut pause = Duration::from_micros(100);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= until {
            return Ok(None);
        }
        go_on()?;
        std::thread::sleep(pause);
        pause = (pause * 2).min(LOOK);
    }
}

fn nonblocking(pipe: &impl AsFd) -> io::Result<()> {
    Ok(fcntl_setfl(pipe, fcntl_getfl(pipe)? | OFlags::NONBLOCK)?)
}

/// Writes what fits. `false`: the reader is gone, which is its own business.
fn feed(pipe: &mut Option<impl Write>, input: &mut &[u8]) -> io::Result<bool> {
    let Some(pipe) = pipe else { return Ok(false) };
    while !input.is_empty() {
        match pipe.write(input) {
            Ok(n) => *input = &input[n..],
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(true),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => return Ok(false),
            Err(e) => return Err(e),
        }
    }
    Ok(true)
}

/// Reads what is there. `false`: the end.
fn take(pipe: &mut Option<impl Read>, into: &mut Vec<u8>, keep: usize) -> io::Result<bool> {
    let Some(pipe) = pipe else { return Ok(false) };
    let mut buffer = [0; 64 * 1024];
    loop {
        match pipe.read(&mut buffer) {
            Ok(0) => return Ok(false),
            Ok(n) => {
                let room = keep.saturating_sub(into.len());
                into.extend_from_slice(&buffer[..n.min(room)]);
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(true),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

#[cfg(test)]
mod unit {
    use super::*;

    #[test]
    fn a_command_that_takes_too_long_is_killed_with_its_group() {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "sleep 600 & echo $!; wait"]).stdout(Stdio::piped());
        let ended = run(command, None, Duration::from_millis(300), &mut || Ok(())).unwrap();
        assert!(ended.status.is_none());
        let pid: i32 = String::from_utf8(ended.stdout).unwrap().trim().parse().unwrap();
        let pid = rustix::process::Pid::from_raw(pid).unwrap();
        // Killed; whoever adopts it may take a moment to reap it.
        let end = Instant::now() + Duration::from_secs(5);
        while rustix::process::test_kill_process(pid).is_ok() && !is_zombie(pid.as_raw_nonzero().get()) {
            assert!(Instant::now() < end, "the grandchild lives");
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_command_that_is_not_to_go_on_is_killed() {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "exec sleep 600"]).stdout(Stdio::piped());
        let mut looks = 3;
        let ended = run(command, None, Duration::from_secs(600), &mut || {
            looks -= 1;
            if looks == 0 { Err(io::Error::other("stopped")) } else { Ok(()) }
        });
        assert_eq!(ended.map(|_| ()).unwrap_err().to_string(), "stopped");
    }

    fn is_zombie(pid: i32) -> bool {
        std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|s| s.contains(") Z "))
    }

    #[test]
    fn a_grandchild_that_keeps_the_pipe_does_not_hold_us_up() {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "sleep 5 & echo done"]).stdout(Stdio::piped());
        let begun = Instant::now();
        let ended = run(command, None, Duration::from_secs(60), &mut || Ok(())).unwrap();
        assert_eq!(ended.stdout, b"done\n");
        assert!(begun.elapsed() < Duration::from_secs(4));
    }

    #[test]
    fn much_input_and_output_at_once_do_not_lock_up_and_stderr_is_bounded() {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "tee /dev/stderr"]).stdout(Stdio::piped());
        let input = vec![b'x'; 3_000_000];
        let ended = run(command, Some(&input), Duration::from_secs(60), &mut || Ok(())).unwrap();
        assert_eq!(ended.stdout.len(), input.len());
        assert_eq!(ended.stderr.len(), STDERR_KEPT);
    }
}
