//! One function a verb: what the command line, MCP and the board all call. Each works on the spool and
//! keeps nothing.

mod change;
mod log;
mod look;
mod patch;
mod status;
mod wait;
mod why;

pub use change::{Cancelled, cancel, edit, hold, release, retry};
pub use log::{Cursor, LogPage, LogQuery, LogReader, read_log};
pub use look::{Entry, Filter, Head, Listing, Shown, Step, list, log_steps, show};
pub use patch::{Changes, DiffPage, DiffQuery, artifact, artifacts, changes, part, read_diff};
pub use status::{Status, status};
pub use wait::{Waited, wait};
pub use why::why;

use crate::model::Config;
use crate::spool::config::ConfigError;
use crate::spool::{Spool, config};
use std::path::PathBuf;

/// An opened spool with its configuration.
#[derive(Debug, Clone)]
pub struct House {
    /// The spool.
    pub spool: Spool,
    /// The owner's configuration.
    pub config: Config,
}

impl House {
    /// Opens the spool that is named, or the one of the environment, or the user's own.
    pub fn open(explicit: Option<PathBuf>) -> Result<Self, ConfigError> {
        let spool = Spool::open(&Spool::locate(explicit)?)?;
        let config = config::load(&spool)?;
        let spool = match &config.worktrees {
            Some(path) => spool.with_worktrees(path.clone()),
            None => spool,
        };
        Ok(House { spool, config })
    }
}
