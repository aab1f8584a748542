//! The command's output: read as it comes, parsed, and logged through the one redacting writer.

use super::facts::Listener;
use crate::redact::{LogStats, LogWriter, StreamKind};
use chrono::Utc;
use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Bytes that are read from one pipe at a time.
const CHUNK: usize = 64 << 10;
/// Chunks that are read from one pipe before others get their turn.
const TURN: usize = 8;

/// Both pipes of a command, and where their bytes go.
pub(super) struct Output {
    pipes: [Option<OwnedFd>; 2],
    /// Rings when a child has ended or somebody wants us to look.
    bell: UnixStream,
    log: Option<LogWriter>,
    pub(super) listener: Listener,
    pub(super) first_byte: Option<Instant>,
    pub(super) last_byte: Option<Instant>,
    buffer: Vec<u8>,
}

impl Output {
    pub(super) fn new(bell: UnixStream, log: Option<LogWriter>, listener: Listener) -> Self {
        Output {
            pipes: [None, None],
            bell,
            log,
            listener,
            first_byte: None,
            last_byte: None,
            // Not filled beforehand: most commands print little.
            buffer: Vec::with_capacity(CHUNK),
        }
    }

    /// Takes over the pipes of a command that was started.
    pub(super) fn connect(&mut self, stdout: Option<OwnedFd>, stderr: Option<OwnedFd>) -> io::Result<()> {
        for pipe in [&stdout, &stderr].into_iter().flatten() {
            rustix::io::ioctl_fionbio(pipe, true)?;
        }
        self.pipes = [stdout, stderr];
        Ok(())
    }

    /// Reads what is there; if nothing is, waits until something is, a child ends, or the time is over.
    pub(super) fn pump(&mut self, timeout: Duration) -> io::Result<()> {
        let time = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: i64::from(timeout.subsec_nanos()) };
        let mut fds = vec![PollFd::new(&self.bell, PollFlags::IN)];
        fds.extend(self.pipes.iter().flatten().map(|p| PollFd::from_borrowed_fd(p.as_fd(), PollFlags::IN)));
        match poll(&mut fds, Some(&time)) {
            Ok(0) => {
                if let Some(log) = &mut self.log {
                    log.idle_flush();
                }
                return Ok(());
            }
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        if !fds[0].revents().is_empty() {
            self.hush();
        }
        self.read(TURN)
    }

    /// Reads what is in the pipes now, without waiting for their end: others may hold them open.
    pub(super) fn drain(&mut self) -> io::Result<()> {
        // A pipe holds 1 MiB at most unless root made it larger.
        self.read((1 << 20) / CHUNK + 1)
    }

    /// Ends the parser and the log; returns what became of the output, if there is a log.
    pub(super) fn finish(&mut self) -> Option<LogStats> {
        self.pipes = [None, None];
        self.listener.end();
        self.log.take().map(LogWriter::finish)
    }

    pub(super) fn last_line(&self) -> Option<String> {
        self.log.as_ref()?.last_line().map(str::to_owned)
    }

    fn hush(&mut self) {
        let mut rings = [0; 64];
        while let Ok(n) = rustix::io::read(&self.bell, &mut rings) {
            if n < rings.len() {
                break;
            }
        }
    }

    fn read(&mut self, turn: usize) -> io::Result<()> {
        for (which, kind) in [(0, StreamKind::Stdout), (1, StreamKind::Stderr)] {
            for _ in 0..turn {
                let Some(pipe) = &self.pipes[which] else { break };
                self.buffer.clear();
                let n = match rustix::io::read(pipe, spare_capacity(&mut self.buffer)) {
                    Ok(n) => n,
                    Err(Errno::AGAIN) => break,
                    Err(Errno::INTR) => continue,
                    Err(e) => return Err(e.into()),
                };
                if n == 0 {
                    self.pipes[which] = None;
                    break;
                }
                self.last_byte = Some(Instant::now());
                self.first_byte = self.first_byte.or(self.last_byte);
                if let Some(log) = &mut self.log {
                    log.output(kind, &self.buffer, Utc::now());
                }
                if which == 0 {
                    self.listener.hear(&self.buffer);
                }
            }
        }
        Ok(())
    }
}
