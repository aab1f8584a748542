//! Calls of the programs that manage services: by name along PATH, with a limit, their words in errors.

use anyhow::{Context as _, bail};
use std::io::Write as _;
use std::process::{Command, Output, Stdio};

/// Runs a program to its end and returns what it said, whatever its exit code.
pub(super) fn output(program: &str, args: &[&str], stdin: Option<&[u8]>) -> anyhow::Result<Output> {
    let mut command = Command::new(program);
    command.args(args).env("LC_ALL", "C").stdout(Stdio::piped()).stderr(Stdio::piped());
    command.stdin(if stdin.is_some() { Stdio::piped() } else { Stdio::null() });
    let mut child = command.spawn().with_context(|| format!("cannot start {program}"))?;
    if let (Some(bytes), Some(mut pipe)) = (stdin, child.stdin.take()) {
        // It may end without reading; its exit code says why.
        let _ = pipe.write_all(bytes);
    }
    child.wait_with_output().with_context(|| format!("cannot wait for {program}"))
}

/// Runs a program that must succeed.
pub(super) fn run(program: &str, args: &[&str]) -> anyhow::Result<String> {
    let output = output(program, args, None)?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.trim();
        bail!(
            "{program} {} ended with {}{}{said}",
            args.join(" "),
            output.status,
            if said.is_empty() { "" } else { ": " }
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
