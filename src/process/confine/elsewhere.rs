//! Systems without a way to confine a process that the process can use itself.

use super::Support;
use std::io;
use std::path::PathBuf;
use std::process::Command;

pub(super) fn support() -> Support {
    let why_not = Some(format!("{} has nothing for it", std::env::consts::OS));
    Support { full: false, abi: None, why_not }
}

#[allow(clippy::unnecessary_wraps, reason = "it can fail where there is something to do")]
pub(super) fn confine(_: &mut Command, _: &[PathBuf]) -> io::Result<Support> {
    Ok(support())
}
