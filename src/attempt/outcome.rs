//! What an attempt came to, as far as it got.

use crate::git::{Oid, Tampering};
use crate::model::result::{
    Artifact, ChangedFile, Confinement, Deliverable, FileRef, GateRun, Restriction, SalvageRef,
};
use crate::model::{Class, Phase, State, TaskId, Usage, Verification};
use crate::process::{Census, CensusMethod, Cleared, Survivor};
use crate::worker::Report;
use chrono::{DateTime, Utc};

/// What an attempt came to. Filled in phase by phase; what was not observed stays absent.
#[derive(Debug, Clone)]
pub struct Outcome {
    pub(super) state: State,
    pub(super) class: Option<Class>,
    pub(super) phase: Option<Phase>,
    pub(super) message: String,
    pub(super) until: Option<DateTime<Utc>>,
    /// Whether the same attempt again may well end better.
    pub(super) transient: bool,
    /// Keep workspace and records exactly as they are.
    pub(super) keep: bool,
    pub(super) verification: Verification,
    pub(super) report: Report,
    pub(super) commit: Option<Oid>,
    pub(super) tree: Option<Oid>,
    pub(super) gated_tree: Option<Oid>,
    pub(super) salvage: Option<SalvageRef>,
    pub(super) changed: Vec<ChangedFile>,
    pub(super) diff: Option<FileRef>,
    pub(super) gate: Vec<GateRun>,
    pub(super) warnings: Vec<String>,
    pub(super) deliverables: Vec<Deliverable>,
    pub(super) artifacts: Vec<Artifact>,
    pub(super) version: Option<String>,
    pub(super) model: Option<String>,
    pub(super) session: Option<String>,
    pub(super) usage: Usage,
    pub(super) durations: crate::model::result::Durations,
    pub(super) confinement: Option<Confinement>,
    pub(super) lacks: Vec<String>,
    pub(super) tree_from: Option<TaskId>,
    pub(super) restrictions: Vec<Restriction>,
    pub(super) undone: Vec<String>,
    pub(super) tampering: Vec<Tampering>,
    pub(super) census: Option<String>,
    pub(super) survivors: Vec<String>,
    pub(super) left_over: Vec<String>,
    pub(super) exit_code: Option<i32>,
    pub(super) signal: Option<i32>,
    pub(super) stderr_tail: Option<String>,
}

impl Default for Outcome {
    fn default() -> Self {
        Outcome {
            state: State::Succeeded,
            class: None,
            phase: None,
            message: String::new(),
            until: None,
            transient: false,
            keep: false,
            verification: Verification::NotRun,
            report: Report::default(),
            commit: None,
            tree: None,
            gated_tree: None,
            salvage: None,
            changed: Vec::new(),
            diff: None,
            gate: Vec::new(),
            warnings: Vec::new(),
            deliverables: Vec::new(),
            artifacts: Vec::new(),
            version: None,
            model: None,
            session: None,
            usage: Usage::default(),
            durations: crate::model::result::Durations::default(),
            confinement: None,
            lacks: Vec::new(),
            tree_from: None,
            restrictions: Vec::new(),
            undone: Vec::new(),
            tampering: Vec::new(),
            census: None,
            survivors: Vec::new(),
            left_over: Vec::new(),
            exit_code: None,
            signal: None,
            stderr_tail: None,
        }
    }
}

/// How an attempt ended before its time.
#[derive(Debug, Clone)]
pub(super) struct End {
    pub state: State,
    pub class: Option<Class>,
    pub phase: Phase,
    pub message: String,
    pub until: Option<DateTime<Utc>>,
    pub transient: bool,
    /// What a dead keeper left.
    pub left: Option<Cleared>,
}

impl End {
    pub fn failed(class: Class, phase: Phase, message: impl Into<String>) -> Self {
        let (state, transient) = match class {
            Class::Timeout => (State::TimedOut, false),
            Class::StartTimeout | Class::SilenceTimeout => (State::TimedOut, true),
            Class::RateLimited | Class::Quota | Class::Internal | Class::Disk => (State::Failed, true),
            _ => (State::Failed, false),
        };
        End { state, class: Some(class), phase, message: message.into(), until: None, transient, left: None }
    }

    /// A fault of ours or of the machine, by what it says of itself.
    pub fn fault(phase: Phase, error: &str, message: String) -> Self {
        let full = error.contains("No space left on device") || error.contains("os error 28");
        End::failed(if full { Class::Disk } else { Class::Internal }, phase, message)
    }

    pub fn cancelled(phase: Phase, reason: Option<String>) -> Self {
        let message = match reason {
            Some(reason) => format!("cancelled while {phase}: {reason}"),
            None => format!("cancelled while {phase}"),
        };
        End {
            state: State::Cancelled,
            class: None,
            phase,
            message,
            until: None,
            transient: false,
            left: None,
        }
    }

    pub fn interrupted(phase: Phase, message: impl Into<String>) -> Self {
        End {
            state: State::Interrupted,
            class: None,
            phase,
            message: message.into(),
            until: None,
            transient: true,
            left: None,
        }
    }

    /// Interrupted, with what the dead keeper of a step left.
    pub fn lost(phase: Phase, message: String, left: Cleared) -> Self {
        End { left: Some(left), ..End::interrupted(phase, message) }
    }

    pub fn over_budget(phase: Phase, message: impl Into<String>) -> Self {
        End {
            state: State::BudgetExceeded,
            class: None,
            phase,
            message: message.into(),
            until: None,
            transient: false,
            left: None,
        }
    }

    /// The outcome with what was found out until then.
    pub fn with(self, mut outcome: Outcome) -> Outcome {
        if let Some(left) = &self.left {
            outcome.note_census(&left.census, &left.ended);
        }
        Outcome {
            state: self.state,
            class: self.class,
            phase: Some(self.phase),
            message: self.message,
            until: self.until,
            transient: self.transient,
            ..outcome
        }
    }
}

impl Outcome {
    pub(super) fn failed(class: Class, phase: Phase, message: String) -> Self {
        End::failed(class, phase, message).with(Outcome::default())
    }

    /// A fault of ours, or of the machine.
    pub(super) fn fault(error: anyhow::Error) -> Self {
        let full = error.chain().any(|cause| {
            cause.downcast_ref::<std::io::Error>().is_some_and(|e| {
                matches!(e.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded)
            }) || cause.to_string().contains("No space left on device")
        });
        let class = if full {
            Class::Disk
        } else if error.chain().any(|c| c.is::<crate::git::GitError>() || c.is::<crate::git::RepoError>()) {
            Class::Workspace
        } else {
            Class::Internal
        };
        Outcome::failed(class, Phase::Finishing, format!("{error:#}"))
    }

    /// Takes over what was counted when a step had ended.
    pub(super) fn note_census(&mut self, census: &Census, left_over: &[Survivor]) {
        let word = match census.method {
            CensusMethod::Kernel => "kernel",
            CensusMethod::Subreaper => "subreaper",
            CensusMethod::Scan => "scan",
        };
        self.census = Some(word.to_owned());
        let show = |s: &Survivor| format!("{} (pid {})", s.command, s.pid);
        self.survivors.extend(census.survivors.iter().map(show));
        self.left_over.extend(left_over.iter().map(show));
    }

    /// Leaves everything as it is, for somebody to look at.
    pub(super) fn keep_all(self) -> Self {
        Outcome { keep: true, ..self }
    }
}
