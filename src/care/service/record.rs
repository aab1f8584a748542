//! What was installed: `service.json` in the spool. Only what is written there is ever removed.

use super::{Kind, Mode};
use crate::durable;
use crate::spool::{Spool, SpoolError, read_json};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// What was installed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Version of this format.
    pub version: u32,
    /// What starts us.
    pub kind: Kind,
    /// How we run.
    pub mode: Mode,
    /// Seconds between ticks.
    pub every: u64,
    /// Its name among the user's services.
    pub name: String,
    /// The program.
    pub binary: PathBuf,
    /// The environment.
    pub env: BTreeMap<String, String>,
    /// Files that we wrote.
    pub files: Vec<File>,
    /// Whether all of it was made.
    #[serde(default)]
    pub active: bool,
    /// Whether the user had no crontab before.
    #[serde(default)]
    pub made_crontab: bool,
    /// Whether we switched lingering on.
    #[serde(default)]
    pub set_linger: bool,
    /// When.
    pub installed_at: DateTime<Utc>,
}

/// A file that we wrote.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct File {
    /// Where.
    pub path: PathBuf,
    /// What, as SHA-256.
    pub sha256: String,
}

impl Record {
    fn place(spool: &Spool) -> PathBuf {
        spool.root().join("service.json")
    }

    /// Reads what is installed for a spool.
    pub fn read(spool: &Spool) -> Result<Option<Record>, SpoolError> {
        read_json(&Self::place(spool))
    }

    pub(super) fn write(&self, spool: &Spool) -> anyhow::Result<()> {
        Ok(durable::replace(&Self::place(spool), &serde_json::to_vec_pretty(self)?)?)
    }

    pub(super) fn remove(spool: &Spool) -> anyhow::Result<()> {
        Ok(durable::remove_file(&Self::place(spool))?)
    }
}
