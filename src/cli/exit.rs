//! Exit codes, one a class, and the errors that lead to them. Documented in docs/cli.md.

use crate::intake::Refused;
use crate::model::{Class, ProblemKind, State, TaskResult};
use crate::spool::SpoolError;
use crate::spool::config::ConfigError;

/// A fault of ours, or of the machine.
pub const FAULT: u8 = 1;
/// The command line itself is wrong.
pub const USAGE: u8 = 2;
/// A task, a batch or a file is wrong.
pub const INPUT: u8 = 3;
/// There is no such task, worker or file.
pub const NOT_FOUND: u8 = 4;
/// The repository cannot be used.
pub const REPOSITORY: u8 = 5;
/// The task is not in a state in which this can be done.
pub const STATE: u8 = 6;
/// The spool cannot be read or written, or the disk is full.
pub const SPOOL: u8 = 7;
/// The configuration is wrong.
pub const CONFIG: u8 = 8;
/// The repository does not take the change: a conflict, or something of the user's in the way.
pub const REFUSED: u8 = 17;
/// The time to wait was over first.
pub const WAIT_OVER: u8 = 9;

/// `check` or `audit` found a problem.
pub const PROBLEMS: u8 = 40;
/// Another loop works the spool.
pub const ALREADY_RUNNING: u8 = 41;

/// An error with the exit code of its class.
#[derive(Debug)]
pub struct Exit {
    /// The exit code.
    pub code: u8,
    /// What went wrong, and what to do.
    pub message: String,
}

impl Exit {
    /// Makes an error.
    pub fn new(code: u8, message: impl Into<String>) -> Self {
        Exit { code, message: message.into() }
    }
}

/// The exit code for a task that has ended.
pub fn of_result(result: &TaskResult) -> u8 {
    match (result.state, result.class) {
        (State::Succeeded, _) => 0,
        (State::Failed, Some(class)) => of_class(class),
        (State::Failed, None) => 10,
        (State::TimedOut, _) => 11,
        (State::Cancelled, _) => 12,
        (State::BudgetExceeded, _) => 13,
        (State::Interrupted, _) => 14,
        (State::Expired, _) => 15,
        (State::Skipped, _) => 16,
        (State::Queued | State::Held | State::Running, _) => WAIT_OVER,
    }
}

fn of_class(class: Class) -> u8 {
    match class {
        Class::WorkerFailed => 10,
        Class::Timeout | Class::StartTimeout | Class::SilenceTimeout => 11,
        Class::GateFailed => 20,
        Class::GateEnv => 21,
        Class::RateLimited => 22,
        Class::Quota => 23,
        Class::Auth => 24,
        Class::NotFound => 25,
        Class::ContextFull => 26,
        Class::Permission => 27,
        Class::DeliverablesMissing => 28,
        Class::Workspace => 29,
        Class::Disk => 30,
        Class::Internal => 31,
    }
}

fn of_spool(e: &SpoolError) -> u8 {
    match e {
        SpoolError::NoTask(_) | SpoolError::Ambiguous(..) | SpoolError::NotThere(_) => NOT_FOUND,
        SpoolError::WrongState(_) | SpoolError::Busy(_) => STATE,
        SpoolError::NoHome | SpoolError::Io { .. } | SpoolError::Broken(..) | SpoolError::Newer(..) => SPOOL,
    }
}

impl From<SpoolError> for Exit {
    fn from(e: SpoolError) -> Self {
        Exit::new(of_spool(&e), e.to_string())
    }
}

impl From<ConfigError> for Exit {
    fn from(e: ConfigError) -> Self {
        match e {
            ConfigError::Spool(e) => e.into(),
            e @ (ConfigError::File(..) | ConfigError::Environment(..)) => Exit::new(CONFIG, e.to_string()),
        }
    }
}

impl From<anyhow::Error> for Exit {
    fn from(e: anyhow::Error) -> Self {
        if e.chain().any(|c| c.is::<crate::care::heartbeat::AlreadyRunning>()) {
            return Exit::new(ALREADY_RUNNING, format!("{e:#}"));
        }
        let code = e.chain().find_map(|c| c.downcast_ref::<SpoolError>()).map_or(FAULT, of_spool);
        Exit::new(code, format!("{e:#}"))
    }
}

impl From<std::io::Error> for Exit {
    fn from(e: std::io::Error) -> Self {
        Exit::new(FAULT, e.to_string())
    }
}

impl From<serde_json::Error> for Exit {
    fn from(e: serde_json::Error) -> Self {
        Exit::new(FAULT, e.to_string())
    }
}

impl From<Refused> for Exit {
    fn from(e: Refused) -> Self {
        match e {
            Refused::Problems(problems) => {
                let code = problems.first().map_or(INPUT, |p| of_problem(p.kind));
                let text = problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
                Exit::new(code, text)
            }
            Refused::Disk(message) => Exit::new(SPOOL, message),
            Refused::Fault(e) => e.into(),
        }
    }
}

/// The exit code for what is wrong with a submission.
pub fn of_problem(kind: ProblemKind) -> u8 {
    match kind {
        ProblemKind::Repository => REPOSITORY,
        ProblemKind::Worker | ProblemKind::Task => NOT_FOUND,
        ProblemKind::Conflict => STATE,
        ProblemKind::Malformed | ProblemKind::Invalid | ProblemKind::NotYet | ProblemKind::Ceiling => INPUT,
    }
}
