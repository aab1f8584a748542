//! Runs a small program with a time limit, and takes what it prints: to ask for a version, to call a manager of
//! services. Not for what a task runs: that has a keeper. What may not stay dies with the process that asks, by the
//! kernel's word where it gives one (Linux); what it started itself is ended with its group by whoever asks.

use super::{Signal, die_with_parent, new_session};
use rustix::io::Errno;
use rustix::process::{Pid, WaitId, WaitIdOptions, kill_process_group, waitid};
use std::io::{self, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How a program is asked.
#[derive(Debug)]
pub struct Asking {
    /// What it gets on standard input.
    pub input: Option<Vec<u8>>,
    /// How long it may take; then it is killed, with all of its group.
    pub limit: Duration,
    /// Most bytes that are taken of each stream.
    pub most: u64,
    /// Whether what it started in its group may live on.
    pub may_leave: bool,
}

impl Asking {
    /// A question without input, of whose answer the beginning matters, and which leaves nobody behind.
    pub fn within(limit: Duration) -> Self {
        Asking { input: None, limit, most: 64 * 1024, may_leave: false }
    }
}

/// How a program ended, and what it printed.
#[derive(Debug)]
pub struct Said {
    /// How it ended.
    pub status: ExitStatus,
    /// What it printed.
    pub out: Vec<u8>,
    /// What it said of itself and of errors.
    pub err: Vec<u8>,
}

impl Said {
    /// All that it printed, as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&[self.out.as_slice(), self.err.as_slice()].concat()).into_owned()
    }
}

/// Runs `command`; `None` if it did not end in time.
pub fn ask(mut command: Command, asking: Asking) -> io::Result<Option<Said>> {
    command.stdin(if asking.input.is_some() { Stdio::piped() } else { Stdio::null() });
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    new_session(&mut command);
    if !asking.may_leave {
        let parent = rustix::process::getpid();
        // SAFETY: `die_with_parent` makes two system calls and allocates nothing.
        unsafe {
            command.pre_exec(move || die_with_parent(parent));
        }
    }
    let mut child = command.spawn()?;
    let pid = Pid::from_child(&child);
    // Each in a thread of its own: a descendant that keeps a pipe open must not hold us up.
    let out = child.stdout.take().map(|stream| taken(stream, asking.most));
    let err = child.stderr.take().map(|stream| taken(stream, asking.most));
    if let (Some(input), Some(mut pipe)) = (asking.input, child.stdin.take()) {
        // One that does not read its input must not hold us up, either.
        std::thread::spawn(move || drop(pipe.write_all(&input)));
    }
    let until = Instant::now() + asking.limit;
    let in_time = loop {
        if has_ended(pid)? {
            break true;
        }
        if Instant::now() >= until {
            break false;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    if !in_time || !asking.may_leave {
        // It leads its own group and is not reaped yet: nobody else can have its number.
        let _ = kill_process_group(pid, Signal::KILL);
    }
    let status = child.wait()?;
    let heard = |stream: Option<std::sync::mpsc::Receiver<Vec<u8>>>| {
        stream.and_then(|s| s.recv_timeout(Duration::from_millis(500)).ok()).unwrap_or_default()
    };
    Ok(in_time.then(|| Said { status, out: heard(out), err: heard(err) }))
}

/// Whether a child has ended; it stays there to be reaped.
fn has_ended(pid: Pid) -> io::Result<bool> {
    match waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG) {
        Ok(status) => Ok(status.is_some()),
        Err(Errno::INTR) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

/// The beginning of a stream, once it has ended.
fn taken(mut stream: impl io::Read + Send + 'static, most: u64) -> std::sync::mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = stream.by_ref().take(most).read_to_end(&mut bytes);
        let _ = sender.send(bytes);
        // Whoever still writes must not be stopped by a full pipe.
        let _ = io::copy(&mut stream, &mut io::sink());
    });
    receiver
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    fn sh(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    fn asked(script: &str, limit: Duration) -> Option<Said> {
        ask(sh(script), Asking::within(limit)).unwrap()
    }

    #[test]
    fn what_is_printed_and_the_exit_code_come_back() {
        let said = asked("echo v1.2; echo w >&2; exit 3", LIMIT).unwrap();
        assert_eq!(said.status.code(), Some(3));
        assert_eq!((said.out.as_slice(), said.err.as_slice()), (&b"v1.2\n"[..], &b"w\n"[..]));
    }

    #[test]
    fn it_gets_its_input_and_need_not_read_it() {
        let with = |script: &str| {
            let asking = Asking { input: Some(vec![b'x'; 300_000]), ..Asking::within(LIMIT) };
            ask(sh(script), asking).unwrap().unwrap()
        };
        assert_eq!(with("wc -c").text().trim(), "300000");
        assert!(with("true").status.success());
    }

    #[test]
    fn what_does_not_end_is_killed() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("pid");
        // However busy the machine is, its child is there by the deadline: it has no other end.
        let script = format!("sleep 600 & echo $! > {}; wait", file.display());
        let mut limit = Duration::from_millis(100);
        while !file.exists() {
            assert!(asked(&script, limit).is_none());
            limit *= 2;
        }
        let pid: u32 = std::fs::read_to_string(&file).unwrap().trim().parse().unwrap();
        let gone =
            super::super::unix::poll_until(
                LIMIT,
                || Ok(super::super::sys::look(pid)?.is_none_or(|p| p.dead)),
            );
        assert!(gone.unwrap(), "what it started in its group lives on");
    }

    #[test]
    fn more_than_is_taken_does_not_stop_it() {
        let said = ask(sh("head -c 500000 /dev/zero"), Asking { most: 10, ..Asking::within(LIMIT) });
        assert_eq!(said.unwrap().unwrap().out.len(), 10);
    }

    #[test]
    fn what_it_started_ends_with_it_unless_it_may_stay() {
        for may_leave in [false, true] {
            let asking = Asking { may_leave, ..Asking::within(LIMIT) };
            let said = ask(sh("sleep 600 >/dev/null 2>&1 & echo $!"), asking).unwrap().unwrap();
            let pid: u32 = said.text().trim().parse().unwrap();
            // Killed, it may take a moment until it is gone; and nobody has to reap it but init.
            let ends = super::super::unix::poll_until(if may_leave { Duration::ZERO } else { LIMIT }, || {
                Ok(super::super::sys::look(pid)?.is_none_or(|p| p.dead))
            });
            assert_eq!(ends.unwrap(), !may_leave);
            if may_leave {
                let _ =
                    rustix::process::kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), Signal::KILL);
            }
        }
    }
}
