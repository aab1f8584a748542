//! Confining a command: it may read what the user may, and write only below folders that are named.
//!
//! It holds for the command and all its descendants, for good; nothing can lift it again. Where the system
//! has no way to do it, the command runs as ever, and what it is told says so.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(not(target_os = "linux"))]
mod elsewhere;

#[cfg(not(target_os = "linux"))]
use elsewhere as sys;
#[cfg(target_os = "linux")]
use linux as sys;

#[cfg(target_os = "linux")]
pub use linux::{Hook, hook};

use std::io;
use std::path::PathBuf;
use std::process::Command;

/// What the system can do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Support {
    /// Whether all writes that are meant can be refused.
    pub full: bool,
    /// The version of the kernel's interface, if it has one.
    pub abi: Option<u32>,
    /// Why not, if not.
    pub why_not: Option<String>,
}

/// Asks the system.
pub fn support() -> Support {
    sys::support()
}

/// Makes a command, which is about to be spawned, write only below `writable` (files may be named, too).
/// What is not there is passed over. Beside them it may write to the usual devices.
pub fn confine(command: &mut Command, writable: &[PathBuf]) -> io::Result<Support> {
    sys::confine(command, writable)
}
