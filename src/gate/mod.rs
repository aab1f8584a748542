//! The gate: the verification that we run ourselves, after the worker has ended.

pub mod audit;
pub mod receipt;
mod replay;

use crate::keeper::{Carried, Cause, Ended, StepExit};
use crate::model::result::GateRun;
use crate::model::{Command, Verification};
use std::time::Duration;

/// What the gate found.
#[derive(Debug, Clone, PartialEq)]
pub struct Gate {
    /// Every command that ran.
    pub runs: Vec<GateRun>,
    /// What they come to.
    pub verification: Verification,
    /// Whether the gate was cancelled.
    pub cancelled: bool,
    /// Whether it failed in a clean tree and passes in the workspace.
    pub only_in_place: bool,
    /// Whether a command's keeper was lost, so that nobody knows how it ended.
    pub lost: bool,
    /// Why a command could not be run, where that was a fault of ours or of the machine.
    pub fault: Option<String>,
    /// Processes that outlived a command and were ended.
    pub left_over: Vec<String>,
}

/// Runs verify commands one after the other, stopping at the first failure unless `all`.
///
/// `run` carries one command to its recorded end: it gets the command's place, the command, and the time
/// that is left for it. No command at all is `unverified`, which is not the same as passed.
pub fn run<E>(
    commands: &[Command],
    all: bool,
    total: Duration,
    mut run: impl FnMut(usize, &Command, Duration) -> Result<(Carried, String), E>,
) -> Result<Gate, E> {
    let mut gate = Gate {
        runs: Vec::new(),
        verification: if commands.is_empty() { Verification::Unverified } else { Verification::Verified },
        cancelled: false,
        only_in_place: false,
        lost: false,
        fault: None,
        left_over: Vec::new(),
    };
    // Counted from what is recorded, so that whoever takes over counts the same.
    let mut spent = Duration::ZERO;
    for (k, command) in commands.iter().enumerate() {
        let left = total.saturating_sub(spent);
        let (carried, log) = run(k, command, left)?;
        let made = match carried {
            Carried::Ended(exit) => {
                gate.cancelled |= exit.cause == Cause::Cancelled;
                if let Cause::KeeperFault { error } = &exit.cause {
                    gate.fault = Some(error.clone());
                }
                gate.left_over
                    .extend(exit.left_over.iter().map(|s| format!("{} (pid {})", s.command, s.pid)));
                made(command, &exit, log)
            }
            Carried::Lost(_) => {
                gate.lost = true;
                GateRun {
                    command: command.to_string(),
                    passed: false,
                    exit_code: None,
                    signal: None,
                    timed_out: false,
                    elapsed_ms: 0,
                    output_tail: String::new(),
                    log,
                }
            }
        };
        spent += Duration::from_millis(made.elapsed_ms);
        let passed = made.passed;
        gate.runs.push(made);
        if !passed {
            gate.verification = Verification::Failed;
            if !all || gate.cancelled || gate.lost || gate.fault.is_some() {
                break;
            }
        }
    }
    Ok(gate)
}

fn made(command: &Command, exit: &StepExit, log: String) -> GateRun {
    let (exit_code, signal) = match exit.ended {
        Ended::Exited { code } => (Some(code), None),
        Ended::Signaled { signal } => (None, Some(signal)),
        Ended::NotStarted { .. } | Ended::StillRunning => (None, None),
    };
    let mut tail = String::new();
    if let Ended::NotStarted { error, .. } = &exit.ended {
        tail.push_str(error);
    }
    for part in [&exit.stdout_tail, &exit.stderr_tail] {
        if !tail.is_empty() && !tail.ends_with('\n') && !part.is_empty() {
            tail.push('\n');
        }
        tail.push_str(part);
    }
    GateRun {
        command: command.to_string(),
        passed: exit_code == Some(0) && exit.cause == Cause::Exit,
        exit_code,
        signal,
        timed_out: matches!(exit.cause, Cause::Deadline { .. }),
        elapsed_ms: exit.elapsed_ms,
        output_tail: tail,
        log,
    }
}

/// How a command of the gate ended, in words.
pub fn ended(run: &GateRun) -> String {
    match (run.timed_out, run.exit_code, run.signal) {
        (true, _, _) => "its time was over".to_owned(),
        (_, Some(code), _) => format!("exit code {code}"),
        (_, _, Some(signal)) => format!("signal {signal}"),
        _ => "it could not be run".to_owned(),
    }
}
