//! Runs a small program with a time limit, and takes the beginning of what it prints.

use crate::process::{Identity, Signal, new_session};
use std::io::{self, Read as _, Write as _};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Most bytes that are taken.
const MOST: u64 = 64 * 1024;

/// How a program ended, and what it printed first.
#[derive(Debug)]
pub struct Said {
    /// How it ended.
    pub status: ExitStatus,
    /// What it printed.
    pub text: String,
}

/// Runs `command`; `None` if it did not end in time (it is killed then, with its session).
pub fn ask(mut command: Command, input: Option<Vec<u8>>, limit: Duration) -> io::Result<Option<Said>> {
    command.stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() });
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    new_session(&mut command);
    let mut child = command.spawn()?;
    let identity = Identity::of_child(child.id())?;
    let streams: Vec<Box<dyn io::Read + Send>> = [
        child.stdout.take().map(|s| Box::new(s) as Box<dyn io::Read + Send>),
        child.stderr.take().map(|s| Box::new(s) as Box<dyn io::Read + Send>),
    ]
    .into_iter()
    .flatten()
    .collect();
    // Each in a thread of its own: a descendant that keeps a pipe open must not hold us up.
    let (sender, receiver) = std::sync::mpsc::channel();
    for stream in streams {
        let sender = sender.clone();
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = stream.take(MOST).read_to_end(&mut bytes);
            let _ = sender.send(bytes);
        });
    }
    drop(sender);
    if let (Some(input), Some(mut pipe)) = (input, child.stdin.take()) {
        // One that does not read its input must not hold us up.
        std::thread::spawn(move || drop(pipe.write_all(&input)));
    }
    let until = Instant::now() + limit;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if Instant::now() >= until {
            if let Some(group) = rustix::process::Pid::from_raw(identity.pid.cast_signed()) {
                // It leads its own group, and is not reaped yet: the number still means it.
                let _ = rustix::process::kill_process_group(group, Signal::KILL);
            }
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let mut text = Vec::new();
    while let Ok(bytes) = receiver.recv_timeout(Duration::from_millis(500)) {
        text.extend(bytes);
    }
    Ok(Some(Said { status, text: String::from_utf8_lossy(&text).into_owned() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn what_is_printed_and_the_exit_code_come_back() {
        let said = ask(sh("echo v1.2; echo w >&2; exit 3"), None, Duration::from_secs(60)).unwrap().unwrap();
        assert_eq!(said.status.code(), Some(3));
        assert!(said.text.contains("v1.2") && said.text.contains('w'));
    }

    #[test]
    fn it_gets_its_input_and_need_not_read_it() {
        let said = ask(sh("wc -c"), Some(vec![b'x'; 300_000]), Duration::from_secs(60)).unwrap().unwrap();
        assert_eq!(said.text.trim(), "300000");
        assert!(
            ask(sh("true"), Some(vec![b'x'; 300_000]), Duration::from_secs(60))
                .unwrap()
                .unwrap()
                .status
                .success()
        );
    }

    #[test]
    fn what_does_not_end_is_killed() {
        assert!(ask(sh("sleep 600 & sleep 600"), None, Duration::from_millis(100)).unwrap().is_none());
    }

    #[test]
    fn a_descendant_with_our_pipe_does_not_hold_us_up() {
        let began = Instant::now();
        let said = ask(sh("sleep 120 & echo \"$!\""), None, Duration::from_secs(60)).unwrap().unwrap();
        assert!(began.elapsed() < Duration::from_secs(60));
        assert!(said.status.success());
    }
}
