//! One line of a log, as its readers take it.

use super::StreamKind;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

/// One entry: text of a stream, or how much of it was left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogEntry {
    /// When the output came.
    #[serde(rename = "t")]
    pub at: DateTime<Utc>,
    /// Which stream it came on.
    #[serde(rename = "s")]
    pub stream: StreamKind,
    /// A line without its end, or a part of one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The line goes on in the stream's next entry.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub part: bool,
    /// It is from the end of a stream that was cut.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tail: bool,
    /// That many bytes were left out here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut_bytes: Option<u64>,
}

impl LogEntry {
    /// Reads one line; `None` for one that was torn, which a reader skips.
    pub fn read(line: &[u8]) -> Option<LogEntry> {
        serde_json::from_slice(line).ok()
    }
}
