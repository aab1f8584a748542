//! The one writer: a step's output as JSON lines, clean, masked and capped.
//!
//! One line is one object: `{"t":"2026-01-02T03:04:05.678Z","s":"out","text":"…"}`. With `"part":true`
//! the line goes on in the stream's next entry. `{"t":…,"s":"out","cut_bytes":N}` says that N bytes were
//! left out there; the entries after it, marked `"tail":true`, are the end of the stream. A reader skips
//! lines that it cannot read: a full disk may leave a torn one.

use super::Redactor;
use super::clean::Clean;
use super::stream::{CONTEXT, Stream};
use crate::durable::fault;
use chrono::{DateTime, SecondsFormat, Utc};
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Text of one entry, in bytes, at most.
const TEXT_MAX: usize = 64 * 1024;
/// What is kept of each stream's end for the result.
const SHOWN_MAX: usize = 4 * 1024;
/// How long the last line is for progress.
const LAST_MAX: usize = 200;
/// Bytes gathered before they are written, at most.
const GATHER: usize = 256 * 1024;

/// Which of its two streams a command wrote to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum StreamKind {
    /// Standard output.
    #[serde(rename = "out")]
    Stdout,
    /// Standard error.
    #[serde(rename = "err")]
    Stderr,
}

/// How much of a stream is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caps {
    /// Bytes of each stream, from its beginning.
    pub stream: u64,
    /// Bytes of each stream's end that are kept once it is over its cap.
    pub tail: usize,
}

impl Default for Caps {
    fn default() -> Caps {
        Caps { stream: 10_000_000, tail: 64 * 1024 }
    }
}

/// What became of a step's output.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogStats {
    /// Bytes that came on standard output.
    pub bytes_out: u64,
    /// Bytes that came on standard error.
    pub bytes_err: u64,
    /// Bytes of standard output that are in no entry.
    pub cut_out: u64,
    /// Bytes of standard error that are in no entry.
    pub cut_err: u64,
    /// Entries with text.
    pub lines: u64,
    /// The first error of a write, if any: the log has a gap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_error: Option<String>,
    /// The last line that is not blank, shortened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_line: Option<String>,
    /// The end of standard output, masked.
    pub tail_out: String,
    /// The end of standard error, masked.
    pub tail_err: String,
}

/// Writes the log of one step.
pub struct LogWriter {
    file: File,
    sides: [Side; 2],
    sink: Sink,
    /// Part of a line may have been written.
    torn: bool,
    write_error: Option<String>,
}

/// Entries on their way to the file.
struct Sink {
    time: String,
    pending: Vec<u8>,
    lines: u64,
    last_line: String,
}

/// One of the two streams.
struct Side {
    name: &'static str,
    redactor: Redactor,
    caps: Caps,
    clean: Clean,
    stream: Stream,
    /// Masked text of a line that has not ended.
    line: Vec<u8>,
    seen: u64,
    /// Raw bytes past the cap: how many, and the last of them.
    over: u64,
    ring: Vec<u8>,
    /// The end of what was shown.
    shown: String,
}

impl LogWriter {
    /// Opens the log, private and for appending, so that a reader may follow it.
    pub fn create(path: &Path, redactor: Redactor, caps: Caps) -> io::Result<LogWriter> {
        fault::point("log-create")?;
        let no_follow = rustix::fs::OFlags::NOFOLLOW.bits() as i32;
        let mut file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .mode(0o600)
            .custom_flags(no_follow)
            .open(path)?;
        // A writer before us may have been killed within a line.
        let mut last = [b'\n'];
        let torn = file.seek(io::SeekFrom::End(-1)).is_ok() && file.read(&mut last)? == 1 && last[0] != b'\n';
        Ok(LogWriter::to(file, redactor, caps, torn))
    }

    fn to(file: File, redactor: Redactor, caps: Caps, torn: bool) -> LogWriter {
        let side = |name| Side {
            name,
            redactor: redactor.clone(),
            caps,
            clean: Clean::default(),
            stream: redactor.stream(),
            line: Vec::new(),
            seen: 0,
            over: 0,
            ring: Vec::new(),
            shown: String::new(),
        };
        let sink = Sink { time: stamp(Utc::now()), pending: Vec::new(), lines: 0, last_line: String::new() };
        LogWriter { file, sides: [side("out"), side("err")], sink, torn, write_error: None }
    }

    /// Takes what the command printed. Complete lines are in the file on return.
    pub fn output(&mut self, kind: StreamKind, bytes: &[u8], at: DateTime<Utc>) {
        let side = &mut self.sides[kind as usize];
        let room = usize::try_from(side.caps.stream.saturating_sub(side.seen)).unwrap_or(usize::MAX);
        side.seen += bytes.len() as u64;
        let (within, over) = bytes.split_at(room.min(bytes.len()));
        if !within.is_empty() {
            self.sink.time = stamp(at);
        }
        for chunk in within.chunks(GATHER) {
            let mut text = Vec::with_capacity(chunk.len());
            self.sides[kind as usize].clean.push(chunk, &mut text);
            let text = self.sides[kind as usize].stream.push(&text);
            self.sides[kind as usize].show(&text, false, &mut self.sink);
            self.flush();
        }
        self.sides[kind as usize].keep(over);
    }

    /// Writes what is safe of unfinished lines; to be called when nothing has come for a while.
    pub fn idle_flush(&mut self) {
        for side in &mut self.sides {
            if side.over == 0 {
                let text = side.stream.idle();
                side.show(&text, false, &mut self.sink);
                side.part(&mut self.sink);
            }
        }
        self.flush();
    }

    /// Writes the rest and says what became of it all.
    pub fn finish(mut self) -> LogStats {
        let mut cut = [0; 2];
        for (side, cut) in self.sides.iter_mut().zip(&mut cut) {
            let (text, left_out) = side.rest();
            *cut = left_out;
            if left_out > 0 {
                side.part(&mut self.sink);
                self.sink.cut(side.name, left_out);
            }
            side.show(&text, left_out > 0, &mut self.sink);
            if !side.line.is_empty() {
                let line = std::mem::take(&mut side.line);
                side.entry(&line, false, left_out > 0, &mut self.sink);
            }
        }
        self.flush();
        let [out, err] = self.sides;
        LogStats {
            bytes_out: out.seen,
            bytes_err: err.seen,
            cut_out: cut[0],
            cut_err: cut[1],
            lines: self.sink.lines,
            write_error: self.write_error,
            last_line: Some(self.sink.last_line).filter(|line| !line.is_empty()),
            tail_out: last_of(&out.shown).to_owned(),
            tail_err: last_of(&err.shown).to_owned(),
        }
    }

    /// Returns the last line so far that is not blank, masked and shortened.
    pub fn last_line(&self) -> Option<&str> {
        Some(self.sink.last_line.as_str()).filter(|line| !line.is_empty())
    }

    /// Returns the end of a stream as it was shown so far, masked; the whole end is in [`LogStats`].
    pub fn tail(&self, kind: StreamKind) -> String {
        last_of(&self.sides[kind as usize].shown).to_owned()
    }

    fn flush(&mut self) {
        if self.sink.pending.is_empty() {
            return;
        }
        if self.torn {
            self.sink.pending.insert(0, b'\n');
        }
        let written = fault::point("log-write").and_then(|()| self.file.write_all(&self.sink.pending));
        self.sink.pending.clear();
        // A full disk ends no task: what comes is counted, and written again once there is room.
        self.torn = written.is_err();
        if let Err(error) = written {
            self.write_error.get_or_insert_with(|| error.to_string());
        }
    }
}

impl Side {
    /// Makes entries of masked text.
    fn show(&mut self, text: &[u8], tail: bool, sink: &mut Sink) {
        let mut rest = text;
        while let Some(at) = rest.iter().position(|&b| b == b'\n') {
            if self.line.is_empty() && at <= TEXT_MAX {
                self.entry(&rest[..at], false, tail, sink);
            } else {
                self.line.extend_from_slice(&rest[..at]);
                self.long(tail, sink);
                let line = std::mem::take(&mut self.line);
                self.entry(&line, false, tail, sink);
            }
            rest = &rest[at + 1..];
        }
        self.line.extend_from_slice(rest);
        self.long(tail, sink);
    }

    /// Makes entries of all but the last of an over-long line.
    fn long(&mut self, tail: bool, sink: &mut Sink) {
        let line = std::mem::take(&mut self.line);
        let mut rest = &line[..];
        while rest.len() > TEXT_MAX {
            let cut = whole_characters(&rest[..TEXT_MAX]);
            self.entry(&rest[..cut], true, tail, sink);
            rest = &rest[cut..];
        }
        self.line = if rest.len() == line.len() { line } else { rest.to_vec() };
    }

    /// Makes an entry of what there is of a line.
    fn part(&mut self, sink: &mut Sink) {
        let cut = whole_characters(&self.line);
        if cut > 0 {
            let rest = self.line.split_off(cut);
            let line = std::mem::replace(&mut self.line, rest);
            self.entry(&line, true, false, sink);
        }
    }

    fn entry(&mut self, text: &[u8], part: bool, tail: bool, sink: &mut Sink) {
        let text = String::from_utf8_lossy(text);
        sink.text(self.name, &text, part, tail);
        self.shown.push_str(&text[floor(&text, text.len().saturating_sub(SHOWN_MAX))..]);
        if !part {
            self.shown.push('\n');
        }
        if self.shown.len() > 4 * SHOWN_MAX {
            self.shown = last_of(&self.shown).to_owned();
        }
    }

    /// Counts bytes past the cap, and keeps the last of them.
    fn keep(&mut self, bytes: &[u8]) {
        self.over += bytes.len() as u64;
        let most = self.caps.tail + CONTEXT;
        let last = &bytes[bytes.len().saturating_sub(most)..];
        if self.ring.len() + last.len() > 2 * most {
            let from = (self.ring.len() + last.len() - most).min(self.ring.len());
            self.ring.drain(..from);
        }
        self.ring.extend_from_slice(last);
    }

    /// Returns the masked text that is still to be shown, and how many bytes are left out before it.
    fn rest(&self) -> (Vec<u8>, u64) {
        let mut text = Vec::new();
        let most = self.caps.tail + CONTEXT;
        let last = &self.ring[self.ring.len().saturating_sub(most)..];
        if self.over <= last.len() as u64 {
            // Nothing is missing: go on where the cap stopped us.
            let (mut clean, mut stream) = (self.clean.clone(), self.stream.clone());
            clean.push(last, &mut text);
            clean.finish(&mut text);
            let mut shown = stream.push(&text);
            shown.extend(stream.finish());
            return (shown, 0);
        }
        // What begins in the middle of something is only read, not shown: a secret may be cut there.
        let (context, kept) = last.split_at(last.len() - self.caps.tail.min(last.len()));
        let line = kept.iter().take(kept.len() / 2).position(|&b| b == b'\n').map_or(0, |at| at + 1);
        let (mut clean, mut stream) = (Clean::default(), self.redactor.stream());
        clean.push(context, &mut text);
        clean.push(&kept[..line], &mut text);
        stream.push(&text);
        stream.skip_held();
        text.clear();
        clean.push(&kept[line..], &mut text);
        clean.finish(&mut text);
        let mut shown = stream.push(&text);
        shown.extend(stream.finish());
        (shown, self.over - (kept.len() - line) as u64 + self.stream.held() as u64)
    }
}

impl Sink {
    fn begin(&mut self, side: &str) {
        self.pending.extend_from_slice(b"{\"t\":\"");
        self.pending.extend_from_slice(self.time.as_bytes());
        self.pending.extend_from_slice(b"\",\"s\":\"");
        self.pending.extend_from_slice(side.as_bytes());
    }

    fn text(&mut self, side: &str, text: &str, part: bool, tail: bool) {
        self.begin(side);
        self.pending.extend_from_slice(b"\",\"text\":");
        // A `Vec` takes every write, and a string is always JSON.
        let _ = serde_json::to_writer(&mut self.pending, text);
        if part {
            self.pending.extend_from_slice(b",\"part\":true");
        }
        if tail {
            self.pending.extend_from_slice(b",\"tail\":true");
        }
        self.pending.extend_from_slice(b"}\n");
        self.lines += 1;
        let line = text.trim();
        if !line.is_empty() {
            self.last_line.clear();
            self.last_line.push_str(&line[..floor(line, LAST_MAX)]);
        }
    }

    fn cut(&mut self, side: &str, bytes: u64) {
        self.begin(side);
        self.pending.extend_from_slice(format!("\",\"cut_bytes\":{bytes}}}\n").as_bytes());
    }
}

fn stamp(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Millis, true)
}

fn last_of(text: &str) -> &str {
    &text[floor(text, text.len().saturating_sub(SHOWN_MAX))..]
}

/// Returns the last place at or before `at` where a character begins.
fn floor(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0)
}

/// Returns the length of `bytes` without the first bytes of a character that is not whole.
fn whole_characters(bytes: &[u8]) -> usize {
    let tail = bytes.iter().rev().take(3).position(|b| *b >= 0xc0).map(|n| n + 1);
    match tail {
        Some(n) => {
            let start = bytes.len() - n;
            let size = match bytes[start] {
                0xc0..=0xdf => 2,
                0xe0..=0xef => 3,
                _ => 4,
            };
            if n < size { start } else { bytes.len() }
        }
        None => bytes.len(),
    }
}
