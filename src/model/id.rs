//! Ids of tasks, and the names that users give to workers.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use ulid::Ulid;

/// The id of a task: a lower-case ULID, 26 characters, sorting by time of submission.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TaskId(Ulid);

/// A string that is not a task id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a task id: expected 26 characters such as 01jdq3m6t8v5x2c4k7n9p0r1sa")]
pub struct NotATaskId(pub String);

impl TaskId {
    /// Makes an id for now.
    pub fn generate() -> Self {
        TaskId(Ulid::generate())
    }

    /// Returns the id of item `k` of a batch whose first task has this id.
    pub fn plus(self, k: usize) -> Self {
        TaskId(Ulid(self.0.0.wrapping_add(k as u128)))
    }

    /// Returns how far this id lies behind `first`: the item's place in a batch.
    pub fn minus(self, first: TaskId) -> Option<u128> {
        self.0.0.checked_sub(first.0.0)
    }

    /// Milliseconds since 1970 at which the id was made.
    pub fn timestamp_ms(self) -> u64 {
        self.0.timestamp_ms()
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut buffer = [0; ulid::ULID_LEN];
        let text = self.0.array_to_str(&mut buffer);
        text.make_ascii_lowercase();
        f.pad(text)
    }
}

impl fmt::Debug for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TaskId({self})")
    }
}

impl FromStr for TaskId {
    type Err = NotATaskId;

    fn from_str(s: &str) -> Result<Self, NotATaskId> {
        let bad = || NotATaskId(s.to_owned());
        if s.len() != ulid::ULID_LEN || !s.is_ascii() {
            return Err(bad());
        }
        let id = TaskId(Ulid::from_string(&s.to_ascii_uppercase()).map_err(|_| bad())?);
        // Crockford's alphabet has aliases (I and L for 1): one id has one spelling.
        if id.to_string() == s.to_ascii_lowercase() { Ok(id) } else { Err(bad()) }
    }
}

impl Serialize for TaskId {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for TaskId {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for TaskId {
    fn schema_name() -> Cow<'static, str> {
        "TaskId".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "pattern": "^[0-7][0-9a-hjkmnp-tv-z]{25}$",
            "description": "A lower-case ULID."
        })
    }
}

/// The name of a worker: letters, digits, `-`, `_` and `.`, at most 64, starting with a letter or digit.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct WorkerName(String);

impl WorkerName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for WorkerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl FromStr for WorkerName {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let ok = s.len() <= 64 && s.starts_with(|c: char| c.is_ascii_alphanumeric()) && s.chars().all(fits);
        if ok {
            Ok(WorkerName(s.to_owned()))
        } else {
            Err(format!(
                "{s:?} is not a worker name: expected at most 64 letters, digits, '-', '_' or '.', starting with a letter or digit"
            ))
        }
    }
}

impl<'de> Deserialize<'de> for WorkerName {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for WorkerName {
    fn schema_name() -> Cow<'static, str> {
        "WorkerName".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_reads_back_and_has_one_spelling() {
        let id = TaskId::generate();
        let text = id.to_string();
        assert_eq!(text.len(), 26);
        assert_eq!(text.parse::<TaskId>().unwrap(), id);
        assert_eq!(text.to_uppercase().parse::<TaskId>().unwrap(), id);
        assert!("../../escaped".parse::<TaskId>().is_err());
        assert!("l1jdq3m6t8v5x2c4k7n9p0r1sa".parse::<TaskId>().is_err());
    }

    #[test]
    fn items_of_a_batch_follow_their_first() {
        let first = TaskId::generate();
        assert_eq!(first.plus(3).minus(first), Some(3));
        assert!(first < first.plus(1));
    }

    #[test]
    fn worker_names_are_never_paths_or_flags() {
        for bad in ["", "-x", ".hidden", "a/b", "a b", "é"] {
            assert!(bad.parse::<WorkerName>().is_err(), "{bad}");
        }
        assert!("claude-code_2.1".parse::<WorkerName>().is_ok());
    }
}
