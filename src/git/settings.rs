//! What of a repository's settings somebody may want to know who asks what a tree lacks.

use super::bytes;
use super::config::{self, Entry};
use super::trusted::{content_entries, from_home};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// What the settings said before the worker started, for whoever tells what a tree lacks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// The folder of hooks, as `core.hooksPath` names it; empty: the git dir's.
    #[serde(default, with = "bytes")]
    pub hooks: Vec<u8>,
    /// Filters that are set and run.
    #[serde(default)]
    pub filters: BTreeSet<String>,
    /// Filters that are set and do not run on what a worker leaves: their programs lie in the tree.
    #[serde(default)]
    pub filters_left_out: BTreeSet<String>,
    /// Whether objects may be missing that a remote has.
    #[serde(default)]
    pub partial: bool,
}

impl Settings {
    pub(super) fn of(entries: &[Entry]) -> Settings {
        let hooks = entries.iter().rev().find(|e| e.key == "core.hookspath").and_then(|e| e.value.clone());
        let filters = config::filters(entries);
        Settings {
            hooks: hooks.unwrap_or_default(),
            filters: filters.kept,
            filters_left_out: filters.left_out,
            partial: content_entries(entries).1,
        }
    }

    /// The folder of hooks, if the settings name one; relative to the top of a tree.
    pub fn hooks(&self) -> Option<PathBuf> {
        if self.hooks.is_empty() { None } else { from_home(&self.hooks) }
    }
}
