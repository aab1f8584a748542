//! The count of what is still alive, and how it was made.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How a census looked, which says what it is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CensusMethod {
    /// The kernel keeps the list (cgroup v2): complete.
    Kernel,
    /// Orphans come back to us (child subreaper), and the kernel says that we have no child: complete.
    Subreaper,
    /// Known identities, their descendants, and environment markers: a process that hides escapes.
    Scan,
}

/// What was alive when somebody looked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Census {
    /// How it was made.
    pub method: CensusMethod,
    /// Who was alive.
    pub survivors: Vec<Survivor>,
}

impl Census {
    /// Whether nobody was alive.
    pub fn is_empty(&self) -> bool {
        self.survivors.is_empty()
    }
}

/// A process that was alive in a census.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Survivor {
    /// Its process id.
    pub pid: u32,
    /// Its start time, in the system's unit.
    pub start: u64,
    /// The short name of its program; arguments are left out since they may hold secrets.
    pub command: String,
}
