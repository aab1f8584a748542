//! The history of a task: one line an event, each naming the hash of the line before it.
//!
//! Only the holder of the task's lock appends. A line that was cut short by a crash is closed by the next
//! append, so that it stays visible as what it is.

use crate::durable;
use crate::model::{Event, EventKind, VERSION, hex};
use anyhow::Context as _;
use sha2::{Digest as _, Sha256};
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

/// The hash that the first line names.
pub const GENESIS: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// A task's history, open for appending.
#[derive(Debug)]
pub struct EventLog {
    path: PathBuf,
    seq: u64,
    head: String,
}

impl EventLog {
    /// Opens the history, reading only its last line.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        let tail = last_line(path).with_context(|| format!("cannot read {}", path.display()))?;
        let (seq, head) = match &tail {
            None => (0, GENESIS.to_owned()),
            Some(Tail { line, whole }) => {
                // A line that cannot be read still has its place.
                let seq = serde_json::from_slice::<Event>(line)
                    .map_or_else(|_| count_lines(path) + u64::from(!whole), |e| e.seq);
                if !whole {
                    durable::append(path, b"\n")?;
                }
                (seq, hash(line))
            }
        };
        Ok(EventLog { path: path.to_owned(), seq, head })
    }

    /// Appends one event and returns it. Not synced: the result is what must survive.
    pub fn add(&mut self, attempt: Option<u32>, what: EventKind) -> anyhow::Result<()> {
        let event =
            Event { seq: self.seq + 1, at: chrono::Utc::now(), attempt, what, prev: self.head.clone() };
        let mut line = serde_json::to_vec(&event)?;
        let head = hash(&line);
        line.push(b'\n');
        durable::append(&self.path, &line)
            .with_context(|| format!("cannot write {}", self.path.display()))?;
        (self.seq, self.head) = (event.seq, head);
        Ok(())
    }

    /// The hash of the last line.
    pub fn head(&self) -> &str {
        &self.head
    }
}

/// Reads a task's history; lines that cannot be read are passed over.
pub fn read(path: &Path) -> std::io::Result<Vec<Event>> {
    match std::fs::read(path) {
        Ok(bytes) => {
            Ok(bytes.split(|b| *b == b'\n').filter_map(|l| serde_json::from_slice(l).ok()).collect())
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(e) => Err(e),
    }
}

/// SHA-256 in hexadecimal.
pub fn hash(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

struct Tail {
    line: Vec<u8>,
    whole: bool,
}

fn last_line(path: &Path) -> std::io::Result<Option<Tail>> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e),
    };
    let size = file.metadata()?.len();
    let mut window = 4096;
    loop {
        let from = size.saturating_sub(window);
        file.seek(SeekFrom::Start(from))?;
        let mut bytes = Vec::with_capacity(usize::try_from(size - from).unwrap_or_default() + 1);
        (&file).take(size - from).read_to_end(&mut bytes)?;
        let whole = bytes.last() == Some(&b'\n');
        let body = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
        if body.is_empty() && from == 0 {
            return Ok(None);
        }
        match body.iter().rposition(|b| *b == b'\n') {
            Some(at) => return Ok(Some(Tail { line: body[at + 1..].to_vec(), whole })),
            None if from == 0 => return Ok(Some(Tail { line: body.to_vec(), whole })),
            None => window *= 4,
        }
    }
}

fn count_lines(path: &Path) -> u64 {
    std::fs::read(path).map_or(0, |b| b.iter().filter(|b| **b == b'\n').count() as u64)
}

/// What is wrong with a chain of events, and at which line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct BrokenChain {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong.
    pub what: String,
}

/// What a history says about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain {
    /// The hash of the last line.
    pub head: String,
    /// Lines, from 1, that a crash cut short. The line after one names its hash all the same.
    pub torn: Vec<usize>,
    /// The first line that does not follow from the line before it.
    pub broken: Option<BrokenChain>,
}

/// Walks a history from its first line, over lines that were cut short.
pub fn walk_chain(bytes: &[u8]) -> Chain {
    let mut chain = Chain { head: GENESIS.to_owned(), torn: Vec::new(), broken: None };
    let lines = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    if lines.is_empty() {
        return chain;
    }
    for (k, line) in lines.split(|b| *b == b'\n').enumerate() {
        match serde_json::from_slice::<Event>(line) {
            Err(_) => chain.torn.push(k + 1),
            Ok(event) => {
                let what = if event.prev != chain.head {
                    Some("does not name the hash of the line before it".to_owned())
                } else if event.seq != k as u64 + 1 {
                    Some(format!("is numbered {}", event.seq))
                } else {
                    None
                };
                if let Some(what) = what {
                    chain.broken.get_or_insert(BrokenChain { line: k + 1, what });
                }
            }
        }
        chain.head = hash(line);
    }
    chain
}

/// Checks that every line names the hash of the line before it; returns the hash of the last line.
pub fn verify_chain(bytes: &[u8]) -> Result<String, BrokenChain> {
    let chain = walk_chain(bytes);
    let torn = chain.torn.first().map(|line| BrokenChain { line: *line, what: "not an event".into() });
    match [chain.broken, torn].into_iter().flatten().min_by_key(|b| b.line) {
        Some(broken) => Err(broken),
        None => Ok(chain.head),
    }
}

const _: () = assert!(VERSION == 1, "a new version of events needs a reader for the old one");

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn filled(n: u32) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events.jsonl");
        for k in 0..n {
            let mut log = EventLog::open(&path).unwrap();
            log.add(Some(k), EventKind::Warning { message: "x".repeat(k as usize * 1000) }).unwrap();
        }
        (dir, path)
    }

    #[test]
    fn each_line_names_the_one_before() {
        let (_dir, path) = filled(8);
        let bytes = std::fs::read(&path).unwrap();
        let head = verify_chain(&bytes).unwrap();
        assert_eq!(head, EventLog::open(&path).unwrap().head());
        assert_eq!(read(&path).unwrap().len(), 8);
    }

    #[test]
    fn a_line_cut_short_by_a_crash_stays_visible_and_does_not_swallow_the_next() {
        let (_dir, path) = filled(2);
        durable::append(&path, b"{\"seq\":3,\"at\":\"20").unwrap();
        EventLog::open(&path).unwrap().add(None, EventKind::Warning { message: "after".into() }).unwrap();
        assert_eq!(read(&path).unwrap().len(), 3);
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(verify_chain(&bytes).unwrap_err().line, 3);
        let chain = walk_chain(&bytes);
        assert_eq!((chain.torn, chain.broken), (vec![3], None), "the line after it still follows");
    }

    proptest! {
        #[test]
        fn a_changed_byte_is_found(at in 0usize..2000, n in 3u32..5) {
            let (_dir, path) = filled(n);
            let mut bytes = std::fs::read(&path).unwrap();
            // The last line is covered by the receipt, which names its hash.
            let last = bytes[..bytes.len() - 1].iter().rposition(|b| *b == b'\n').unwrap();
            let at = at % last;
            bytes[at] = if bytes[at] == b'x' { b'y' } else { b'x' };
            prop_assert!(verify_chain(&bytes).is_err());
        }
    }
}
