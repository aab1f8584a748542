//! What a check can find, and how each kind is told.

use crate::model::{TaskId, TaskResult, Ticket};
use crate::spool::{Found, Place};
use schemars::JsonSchema;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// An invariant is broken.
    Problem,
    /// Something is left over; no invariant is broken.
    Leftover,
}

/// What a repair came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It was repaired, and a second look found it gone.
    Repaired,
    /// It could not be repaired, and this is why.
    Failed(String),
}

macro_rules! kinds {
    ($($(#[doc = $doc:literal])* $name:ident = $severity:ident $(, $invariant:literal)?;)+) => {
        /// What was found. The word is stable: scripts may rely on it.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
        #[serde(rename_all = "snake_case")]
        pub enum Kind { $($(#[doc = $doc])* $name,)+ }

        impl Kind {
            /// How bad it is.
            pub fn severity(self) -> Severity {
                match self { $(Kind::$name => Severity::$severity,)+ }
            }

            /// The invariant that it breaks, by its number in docs/spool.md.
            pub fn invariant(self) -> Option<&'static str> {
                match self { $(Kind::$name => kinds!(@ $($invariant)?),)+ }
            }
        }
    };
    (@ $invariant:literal) => { Some($invariant) };
    (@) => { None };
}

kinds! {
    /// A task without a ticket in any folder.
    NoTicket = Problem, "I1";
    /// A task with several tickets.
    SeveralTickets = Problem, "I1";
    /// A ticket whose task has no record.
    TicketWithoutTask = Problem, "I1";
    /// A ticket whose name does not follow from the task's record.
    TicketName = Problem, "I1";
    /// A name in a state's folder that is no ticket.
    NotATicket = Problem, "I1";
    /// A ticket for an attempt that does not follow from the attempts that were made.
    AttemptNumber = Problem, "I3";
    /// A keeper lives for an attempt that does not run.
    LiveOutsideRunning = Problem, "I3";
    /// Keepers of several attempts live.
    SeveralLive = Problem, "I3";
    /// A task that ended, without a result.
    NoResult = Problem, "I6";
    /// A result that tells of another attempt, state or ticket than the ticket's.
    ResultDiffers = Problem, "I6";
    /// A result that was written for a ticket that has not moved.
    ResultWithoutEnd = Problem, "I6";
    /// What a worker left is neither in its tree, nor in a commit, nor in a salvage.
    WorkNotKept = Problem, "I7";
    /// The commit of a result is not at the task's branch, and nothing else keeps it.
    CommitNotKept = Problem, "I7";
    /// A record that cannot be read.
    Unreadable = Problem;
    /// A task's record that tells of another task or revision than its name.
    RecordDiffers = Problem;
    /// A history whose lines do not follow from each other.
    EventChain = Problem, "I14";
    /// A line of a history that was cut short by a crash.
    TornEvent = Leftover;
    /// A task that waits for another one that does not know of it.
    NotRegistered = Problem;
    /// A task that waits for others though nothing keeps it.
    NeedsOver = Problem;
    /// A task's folder without a record, and no submission that would write one.
    NoRecord = Leftover;
    /// A running ticket that nobody works on; the next pass takes it over.
    Unattended = Leftover;
    /// A submission that was not expanded yet; the next pass does it.
    NotExpanded = Leftover;
    /// A dropped file that was not answered yet; the next pass does it.
    NotAnswered = Leftover;
    /// An idempotency key whose submission was never made, or whose task is gone.
    DanglingKey = Leftover;
    /// A wish about a past attempt or a task that is gone; the next pass removes it.
    PastRequest = Leftover;
    /// A name in a folder of ours that means nothing there.
    Unknown = Leftover;
    /// A note about a task that is gone.
    DanglingNote = Leftover;
    /// A file that was being written.
    HalfMade = Leftover;
    /// The temporary folder of an attempt that has ended.
    TemporaryFolder = Leftover;
    /// A workspace whose task is gone.
    OrphanWorkspace = Leftover;
    /// A tree that was moved away to be deleted, and was not.
    Trash = Leftover;
    /// A warm tree that no task will be given.
    WarmTree = Leftover;
    /// Git's registration of a workspace that is gone.
    StaleRegistration = Leftover;
    /// A workspace that git does not know of, or knows under another path.
    NotRegisteredWorktree = Leftover;
    /// A repository that cannot be opened, so that its tasks' work cannot be looked for.
    RepositoryGone = Leftover;
}

/// What a repair does.
#[derive(Debug, Clone)]
pub(super) enum Fix {
    RemoveFile(PathBuf),
    RemoveTree(PathBuf),
    /// Removes all but one ticket of a task: these.
    RemoveTickets(Vec<Found>),
    PutTicket(Place, Ticket),
    /// Holds a task whose ticket is lost, so that a person decides.
    PutHeld(Ticket),
    MoveTicket(Found, Place, Ticket),
    WriteResult(Box<TaskResult>),
    EndAsResult(Found),
    Register(TaskId),
    Settle(Found),
    Expand,
    Unregister(PathBuf, PathBuf),
    /// Removes a warm tree.
    Discard(PathBuf),
}

/// One thing that was found.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Finding {
    /// What.
    pub kind: Kind,
    /// How bad it is.
    pub severity: Severity,
    /// The invariant that it breaks, if it breaks one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub invariant: Option<&'static str>,
    /// The task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskId>,
    /// Where.
    pub path: PathBuf,
    /// In words.
    pub message: String,
    /// What `--repair` does about it; absent if a person must look.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repair: Option<String>,
    /// What a repair came to, if one was tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    #[serde(skip)]
    pub(super) fix: Option<Fix>,
}

impl Finding {
    pub(super) fn new(kind: Kind, path: &Path, message: impl Into<String>) -> Self {
        Finding {
            kind,
            severity: kind.severity(),
            invariant: kind.invariant(),
            task: None,
            path: path.to_owned(),
            message: message.into(),
            repair: None,
            outcome: None,
            fix: None,
        }
    }

    pub(super) fn of(mut self, task: TaskId) -> Self {
        self.task = Some(task);
        self
    }

    pub(super) fn fix(mut self, words: impl Into<String>, fix: Fix) -> Self {
        (self.repair, self.fix) = (Some(words.into()), Some(fix));
        self
    }
}
