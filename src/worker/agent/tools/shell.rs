//! `run_shell`.

use super::super::stop;
use super::{Definition, Root, ToolError, ToolResult, seconds};
use crate::process::{Domain, Ending};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Deserialize;
use serde_json::json;
use std::collections::VecDeque;
use std::io::{self, PipeReader, Read as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The time of a command that asks for none.
const USUAL: Duration = Duration::from_secs(120);
/// How much is kept of the beginning of the output, and of its end.
const HEAD: usize = 8 << 10;
const TAIL: usize = 24 << 10;
/// How long processes may take to end when asked to, and to die when made to.
const GRACE: Duration = Duration::from_millis(500);
const LIMIT: Duration = Duration::from_secs(10);
/// How often we look whether a command has ended whose output stays open.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 25_000_000 };

#[derive(Debug, Deserialize)]
pub(super) struct Args {
    command: String,
    #[serde(default)]
    timeout_seconds: Option<u64>,
}

/// Runs commands, one at a time, and leaves nothing of them running.
pub(super) struct Shell {
    most: Duration,
    /// Variables that commands do not get.
    hidden: Vec<String>,
}

impl Shell {
    /// Makes a shell whose commands end after `most`, and do not see the variables named in `hidden`.
    pub fn new(most: Duration, hidden: Vec<String>) -> Shell {
        Shell { most, hidden }
    }

    pub fn definition(&self) -> Definition {
        let usual = USUAL.min(self.most).as_secs();
        Definition {
            name: "run_shell",
            description: format!(
                "Runs a command with sh -c in the workspace, without input, and answers with its exit code and its output (both streams, the middle cut if it is long). It is ended after timeout_seconds ({usual} if absent, at most {}). Whatever it leaves in the background is ended with it.",
                self.most.as_secs()
            ),
            schema: json!({
                "type": "object",
                "properties": {
                    "command": {"type": "string"},
                    "timeout_seconds": {"type": "integer", "minimum": 1},
                },
                "required": ["command"],
            }),
        }
    }

    /// Runs a command to its end.
    pub fn run(&self, root: &Root, args: &Args) -> ToolResult {
        let asked = args.timeout_seconds.map_or(USUAL, |s| Duration::from_secs(s.max(1)));
        let time = asked.min(self.most);
        let mut domain = stop::descendants();
        let fault = |e: io::Error| ToolError::Failed(format!("the command could not be run: {e}"));
        let (pid, mut pipe) = self.start(root, args, &mut domain).map_err(fault)?;
        let mut output = Ends::default();
        let followed = follow(pid, &mut pipe, &mut domain, &mut output, time);
        stop::check();
        // Whatever became of it, nothing of it may live on.
        let cleared = domain.end(GRACE, LIMIT).map_err(fault)?;
        let ending = followed.map_err(fault)?;
        drain(&mut pipe, &mut output).map_err(fault)?;
        let mut text = match ending {
            Some(Ending::Exited { code }) => format!("exit code {code}"),
            Some(Ending::Signaled { signal }) => format!("ended by signal {signal}"),
            None => format!("ended by us: its time ({}) was over", seconds(time)),
        };
        let others = cleared.ended.iter().filter(|s| s.pid != pid).count();
        if ending.is_some() && others > 0 {
            text.push_str(&format!("; ended {others} processes that it left running"));
        }
        if !cleared.census.is_empty() {
            text.push_str("; some of its processes could not be ended");
        }
        text.push('\n');
        text.push_str(&output.text());
        match ending {
            Some(Ending::Exited { code: 0 }) => Ok(text),
            _ => Err(ToolError::Failed(text)),
        }
    }

    fn start(&self, root: &Root, args: &Args, domain: &mut Domain) -> io::Result<(u32, PipeReader)> {
        let (reader, writer) = io::pipe()?;
        rustix::io::ioctl_fionbio(&reader, true)?;
        let mut command = Command::new("sh");
        command.arg("-c").arg(&args.command).current_dir(root.path());
        command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
        command.process_group(0);
        for name in &self.hidden {
            command.env_remove(name);
        }
        let guard = stop::starting();
        let child = command.spawn()?;
        domain.watch(child.id());
        drop(guard);
        // The domain reaps it; the command (and our ends of the pipe in it) must go, or the pipe never ends.
        drop(command);
        Ok((child.id(), reader))
    }
}

/// Reads the output until the command has ended, or its time is over (`None`).
fn follow(
    pid: u32,
    pipe: &mut PipeReader,
    domain: &mut Domain,
    output: &mut Ends,
    time: Duration,
) -> io::Result<Option<Ending>> {
    let until = Instant::now() + time;
    let mut open = true;
    loop {
        if let Some(ending) = domain.ending(pid)? {
            return Ok(Some(ending));
        }
        if Instant::now() >= until {
            return Ok(None);
        }
        if open {
            let mut fds = [PollFd::new(pipe, PollFlags::IN)];
            match poll(&mut fds, Some(&LOOK)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
            open = drain(pipe, output)?;
        } else {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Reads what is there, but not for ever; says whether there may be more.
fn drain(pipe: &mut PipeReader, output: &mut Ends) -> io::Result<bool> {
    let mut buffer = [0; 64 << 10];
    for _ in 0..64 {
        match pipe.read(&mut buffer) {
            Ok(0) => return Ok(false),
            Ok(n) => output.push(&buffer[..n]),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(true),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(true)
}

/// The beginning and the end of an output of any length.
#[derive(Debug, Default)]
struct Ends {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    dropped: u64,
}

impl Ends {
    fn push(&mut self, mut bytes: &[u8]) {
        let room = HEAD - self.head.len();
        let (head, rest) = bytes.split_at(room.min(bytes.len()));
        self.head.extend_from_slice(head);
        bytes = rest;
        if bytes.len() > TAIL {
            self.dropped += (bytes.len() - TAIL) as u64;
            bytes = &bytes[bytes.len() - TAIL..];
        }
        self.tail.extend(bytes);
        let over = self.tail.len().saturating_sub(TAIL);
        self.tail.drain(..over);
        self.dropped += over as u64;
    }

    fn text(&self) -> String {
        let tail: Vec<u8> = self.tail.iter().copied().collect();
        if self.dropped == 0 {
            // Whole: a character may lie across the seam.
            return String::from_utf8_lossy(&[self.head.as_slice(), &tail].concat()).into_owned();
        }
        let (head, tail) = (String::from_utf8_lossy(&self.head), String::from_utf8_lossy(&tail));
        format!("{head}\n[{} bytes left out]\n{tail}", self.dropped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_of_a_long_output_are_kept() {
        let mut ends = Ends::default();
        let text: Vec<u8> = (0..100_000u32).flat_map(|n| format!("{n}\n").into_bytes()).collect();
        text.chunks(777).for_each(|chunk| ends.push(chunk));
        let shown = ends.text();
        assert!(shown.starts_with("0\n1\n") && shown.ends_with("99998\n99999\n"));
        assert!(shown.contains(&format!("[{} bytes left out]", text.len() - HEAD - TAIL)));
        let mut short = Ends::default();
        let text = "ä".repeat(HEAD);
        short.push(text.as_bytes());
        assert_eq!(short.text(), text);
    }
}
