//! Stand-ins for rooms that are being built next door; to be deleted.
use chrono::{DateTime, Utc};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::io::{self, Write as _};
use std::path::Path;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LogStats {
    pub bytes: u64,
}
#[derive(Debug, Clone, Copy)]
pub enum StreamKind {
    Stdout,
    Stderr,
}
#[derive(Clone)]
pub struct Redactor {
    known: Vec<String>,
}
impl Redactor {
    pub fn new(known: impl IntoIterator<Item = Vec<u8>>) -> Self {
        Redactor {
            known: known
                .into_iter()
                .filter_map(|k| String::from_utf8(k).ok())
                .filter(|k| k.len() > 3)
                .collect(),
        }
    }
    pub fn redact(&self, text: &str) -> String {
        self.known.iter().fold(text.to_owned(), |t, k| t.replace(k, "***"))
    }
}
pub struct LogCaps {
    pub bytes: u64,
}
pub struct LogWriter {
    file: std::fs::File,
    redactor: Redactor,
    stats: LogStats,
    caps: LogCaps,
    tails: [Vec<u8>; 2],
    last: Option<String>,
}
impl LogWriter {
    pub fn create(path: &Path, redactor: Redactor, caps: LogCaps) -> io::Result<Self> {
        Ok(LogWriter {
            file: std::fs::File::create(path)?,
            redactor,
            stats: LogStats::default(),
            caps,
            tails: Default::default(),
            last: None,
        })
    }
    pub fn output(&mut self, kind: StreamKind, bytes: &[u8], at: DateTime<Utc>) {
        self.stats.bytes += bytes.len() as u64;
        let t = &mut self.tails[kind as usize];
        t.extend_from_slice(bytes);
        if t.len() > 8192 {
            let n = t.len() - 4096;
            t.drain(..n);
        }
        if self.stats.bytes < self.caps.bytes {
            let text = self.redactor.redact(&String::from_utf8_lossy(bytes));
            self.last = text.lines().last().map(str::to_owned);
            let _ = writeln!(
                self.file,
                "{}",
                serde_json::json!({"at": at, "stream": format!("{kind:?}"), "text": text})
            );
        }
    }
    pub fn idle_flush(&mut self) {}
    pub fn finish(self) -> io::Result<LogStats> {
        Ok(self.stats)
    }
    pub fn last_line(&self) -> Option<&str> {
        self.last.as_deref()
    }
    pub fn tail(&self, kind: StreamKind) -> String {
        self.redactor.redact(&String::from_utf8_lossy(&self.tails[kind as usize]))
    }
}
pub fn env_name_is_secret(name: &str) -> bool {
    name.contains("KEY")
}
pub fn known_from_env_file(bytes: &[u8]) -> Vec<Vec<u8>> {
    bytes.split(|b| *b == b'\n').filter_map(|l| Some(l.splitn(2, |b| *b == b'=').nth(1)?.to_vec())).collect()
}
