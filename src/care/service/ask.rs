//! Calls of the programs that manage services: by name along PATH, with a limit, their words in errors.

use crate::process::{self, Asking, Said};
use anyhow::{Context as _, bail};
use std::process::Command;
use std::time::Duration;

/// A manager whose bus does not answer would hold us up for ever.
const LIMIT: Duration = Duration::from_secs(60);

/// Runs a program to its end and returns all that it said, whatever its exit code.
pub(super) fn output(program: &str, args: &[&str], stdin: Option<&[u8]>) -> anyhow::Result<Said> {
    let mut command = Command::new(program);
    command.args(args).env("LC_ALL", "C");
    // All of it: the end of a crontab that was not read would be lost when it is written back.
    let asking =
        Asking { input: stdin.map(<[u8]>::to_vec), most: u64::MAX, may_leave: true, ..Asking::within(LIMIT) };
    let said = process::ask(command, asking).with_context(|| format!("cannot start {program}"))?;
    said.with_context(|| format!("{program} {} did not end within {} s", args.join(" "), LIMIT.as_secs()))
}

/// Runs a program that must succeed.
pub(super) fn run(program: &str, args: &[&str]) -> anyhow::Result<String> {
    let output = output(program, args, None)?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.err);
        let said = said.trim();
        bail!(
            "{program} {} ended with {}{}{said}",
            args.join(" "),
            output.status,
            if said.is_empty() { "" } else { ": " }
        );
    }
    Ok(String::from_utf8_lossy(&output.out).into_owned())
}
