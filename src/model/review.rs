//! Verdicts about a result: `tasks/<id>/review.json`.

use super::words::Review;
use chrono::{DateTime, Utc};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// All verdicts about a task, in order. The last one holds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(title = "workspool review")]
pub struct ReviewFile {
    /// Version of this format.
    pub version: u32,
    /// The verdicts.
    pub verdicts: Vec<Verdict>,
}

/// One verdict.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Verdict {
    /// What was decided.
    pub verdict: Review,
    /// When.
    pub at: DateTime<Utc>,
    /// About which attempt.
    pub attempt: u32,
    /// Why, or what to change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// For an acceptance: how the change was taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub landed: Option<Landed>,
}

/// How an accepted change came into the user's repository.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Landed {
    /// `apply`, `commit` or `branch`.
    pub how: String,
    /// The commit that was produced and verified.
    pub produced: String,
    /// The commit made, with `commit`; the branch's commit, with `branch`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// The branch, with `branch`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// The user's HEAD before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<String>,
    /// Whether the tree that landed is the tree that the gate saw; `false` where it was merged with newer
    /// commits of the user.
    pub gated: bool,
    /// Whether it was taken although nothing verified it.
    #[serde(default)]
    pub unverified: bool,
    /// Number of files that changed.
    pub files: usize,
}
