//! Installing a timer or a loop with what the system has: cron, systemd, launchd.
//!
//! What is installed is shown first, recorded in the spool (`service.json`) before it is made, and only
//! what is recorded is ever removed.

mod ask;
mod cron;
mod environment;
mod launchd;
mod manage;
mod plan;
mod record;
mod systemd;

pub use environment::{Resolved, resolve};
pub(super) use launchd::once as launchd_once;
pub use manage::{Status, install, restart, status, uninstall};
pub use plan::{Plan, Unit};
pub use record::{File, Record};

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// What starts us.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A user's crontab.
    Cron,
    /// A user's systemd.
    Systemd,
    /// A user's launchd.
    Launchd,
}

/// How we run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// A tick from time to time.
    Timer,
    /// A loop that is kept alive.
    Loop,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Kind::Cron => "cron",
            Kind::Systemd => "systemd",
            Kind::Launchd => "launchd",
        })
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Mode::Timer => "timer",
            Mode::Loop => "loop",
        })
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        match s {
            "cron" => Ok(Kind::Cron),
            "systemd" => Ok(Kind::Systemd),
            "launchd" => Ok(Kind::Launchd),
            _ => Err("expected cron, systemd or launchd".into()),
        }
    }
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        match s {
            "timer" => Ok(Mode::Timer),
            "loop" => Ok(Mode::Loop),
            _ => Err("expected timer or loop".into()),
        }
    }
}

impl Kind {
    /// The one that fits this machine: launchd on macOS, systemd where a user's manager answers, else cron.
    pub fn of_this_machine() -> anyhow::Result<Kind> {
        if cfg!(target_os = "macos") {
            return Ok(Kind::Launchd);
        }
        if systemd::answers() {
            return Ok(Kind::Systemd);
        }
        if crate::worker::env::find_executable("crontab").is_some() {
            return Ok(Kind::Cron);
        }
        anyhow::bail!(
            "neither a systemd user manager nor crontab is here\n  hint: install cron, or keep `workspool run` alive by what this machine has; `workspool tick` once a minute is enough"
        )
    }
}
