//! The words that tasks and results are told in: states, classes, kinds.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

/// Declares an enum of words: its JSON spelling and schema, `Display`, `FromStr` and the list of all.
macro_rules! words {
    ($(#[doc = $doc:literal])* $name:ident {
        $($(#[doc = $vdoc:literal])* $variant:ident = $word:literal $(| $alias:literal)*),+ $(,)?
    }) => {
        $(#[doc = $doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum $name {
            $($(#[doc = $vdoc])* #[serde(rename = $word $(, alias = $alias)*)] $variant,)+
        }

        impl $name {
            /// All of them, in order.
            pub const ALL: &'static [$name] = &[$($name::$variant),+];

            /// The word as it is written in files and on the command line.
            pub const fn as_str(self) -> &'static str {
                match self { $($name::$variant => $word),+ }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl FromStr for $name {
            type Err = String;

            fn from_str(s: &str) -> Result<Self, String> {
                match s {
                    $($word $(| $alias)* => Ok($name::$variant),)+
                    _ => Err(format!("{s:?}: expected one of {}", [$($word),+].join(", "))),
                }
            }
        }

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                word_schema(
                    concat!($($doc),*),
                    &[$(($word, &[$($alias),*], concat!($($vdoc),*))),+],
                )
            }
        }
    };
}

/// Makes the schema of words: each with its other spellings and what it means.
///
/// One plain `enum`: the form that a map's keys can be checked by, too.
fn word_schema(about: &str, words: &[(&str, &[&str], &str)]) -> Schema {
    let all = words.iter().map(|(word, ..)| *word);
    let aliases = words.iter().flat_map(|(_, aliases, _)| aliases.iter().copied());
    let mut description = about.trim().to_owned();
    for (word, aliases, meaning) in words {
        let spellings: Vec<String> =
            std::iter::once(word).chain(*aliases).map(|spelling| format!("`{spelling}`")).collect();
        description.push_str(&format!("\n- {}: {}", spellings.join(" or "), meaning.trim()));
    }
    json_schema!({
        "type": "string",
        "enum": all.chain(aliases).collect::<Vec<_>>(),
        "description": description
    })
}

words! {
    /// Where a task is. Queued, held and running are folders; the others are ways to have ended.
    State {
        /// Ready to run.
        Queued = "queued",
        /// Waits for a time, another task, an answer, quota, or a person.
        Held = "held",
        /// An attempt is under way.
        Running = "running",
        /// The worker finished, and the gate (if there is one) passed.
        Succeeded = "succeeded",
        /// Something failed; the class says what.
        Failed = "failed",
        /// A deadline passed.
        TimedOut = "timed_out",
        /// Somebody cancelled it.
        Cancelled = "cancelled",
        /// It used more than its budget.
        BudgetExceeded = "budget_exceeded",
        /// Its processes were lost (crash, restart of the machine).
        Interrupted = "interrupted",
        /// It waited longer than it was allowed to.
        Expired = "expired",
        /// A task that it needs did not succeed.
        Skipped = "skipped",
    }
}

impl State {
    /// Whether a task in this state has ended.
    pub fn is_terminal(self) -> bool {
        !matches!(self, State::Queued | State::Held | State::Running)
    }
}

words! {
    /// Who should act on a failure.
    Class {
        /// The worker said that it failed, or its program did.
        WorkerFailed = "worker_failed",
        /// A verify command failed.
        GateFailed = "gate_failed",
        /// The gate passes in the workspace but not in a clean tree.
        GateEnv = "gate_env",
        /// The provider refuses requests for a while.
        RateLimited = "rate_limited",
        /// Credit or quota is used up.
        Quota = "quota",
        /// The worker is not signed in.
        Auth = "auth",
        /// An executable is missing, or a program on this machine that the worker talks to.
        NotFound = "not_found",
        /// The worker printed nothing at all in the time that it had for its start.
        StartTimeout = "start_timeout",
        /// The worker printed nothing for too long.
        SilenceTimeout = "silence_timeout",
        /// The attempt, or the task, took too long.
        Timeout = "timeout",
        /// The conversation no longer fits the model.
        ContextFull = "context_full",
        /// The worker changed what it was not allowed to.
        Permission = "permission",
        /// A required deliverable is not there.
        DeliverablesMissing = "deliverables_missing",
        /// The workspace could not be made or read.
        Workspace = "workspace",
        /// The disk is full.
        Disk = "disk",
        /// A fault of workspool itself.
        Internal = "internal",
    }
}

words! {
    /// What an attempt is doing.
    Phase {
        /// Making the workspace.
        Preparing = "preparing",
        /// Running setup commands.
        Setup = "setup",
        /// The worker is at work.
        Working = "working",
        /// Running the verify commands.
        Verifying = "verifying",
        /// Writing commit, diff and result.
        Finishing = "finishing",
    }
}

words! {
    /// Why a task is held.
    HeldReason {
        /// Until a time.
        Time = "time",
        /// Until other tasks have succeeded.
        Needs = "needs",
        /// Until somebody answers the worker's question. No worker can ask one yet.
        Answer = "answer",
        /// Until a provider's limit lifts.
        Quota = "quota",
        /// Until somebody releases it.
        Hand = "hand",
    }
}

words! {
    /// What somebody may want to be told of.
    NoticeKind {
        /// A task succeeded.
        Done = "done",
        /// A task ended otherwise.
        Failed = "failed",
        /// A worker asks something. None can yet.
        Question = "question",
    }
}

words! {
    /// Where a worker works.
    WorkspaceKind {
        /// A git worktree on a fresh branch.
        Worktree = "worktree",
        /// A clone with a git directory of its own.
        Clone = "clone",
        /// A git worktree that shares one checkout with others until it is written to (Linux).
        Overlay = "overlay",
        /// A copy of the folder.
        Copy = "copy",
        /// The folder itself, one writer at a time.
        Directory = "directory",
        /// An empty folder, kept until pruned.
        Temporary = "temporary",
    }
}

words! {
    /// Whether the system keeps a command from writing elsewhere, where it can.
    Confine {
        /// It may write where the user may.
        Off = "off",
        /// It may write only in its workspace, its temporary folder, and what else is named.
        Strict = "strict",
    }
}

words! {
    /// What a worker may change.
    Permission {
        /// Anything.
        Full = "full" | "full_access",
        /// Anything inside its workspace.
        WorkspaceWrite = "workspace_write",
        /// Nothing; what it writes is undone and listed.
        ReadOnly = "read_only" | "readonly",
        /// Only paths that match `allow`, and none that match `forbid`.
        Custom = "custom",
    }
}

words! {
    /// What kind of work is asked for.
    Mode {
        /// Change code.
        Code = "code",
        /// Find out and report.
        Research = "research",
        /// Review a change.
        Review = "review",
        /// Write or run tests.
        Test = "test",
        /// Write documentation.
        Docs = "docs",
        /// Analyse data.
        Analysis = "analysis",
        /// Find the cause of a fault.
        Debug = "debug",
        /// Propose operations; changes nothing.
        Ops = "ops",
    }
}

words! {
    /// The part that a worker plays in a workflow.
    Role {
        /// Writes the change.
        Implementer = "implementer",
        /// Writes and runs tests.
        Tester = "tester",
        /// Finds out.
        Researcher = "researcher",
        /// Reviews.
        Reviewer = "reviewer",
        /// Writes documentation.
        DocsWriter = "docs_writer",
        /// Analyses data.
        DataAnalyst = "data_analyst",
        /// Finds causes of faults.
        Debugger = "debugger",
        /// Looks at operations.
        OpsAnalyst = "ops_analyst",
    }
}

/// What a route of the configuration is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RouteKey {
    /// Tasks without a role, or with a role that has no route.
    Default,
    /// Tasks of a role.
    Role(Role),
}

impl RouteKey {
    const DEFAULT: &'static str = "default";
    /// The words of all of them.
    pub const WORDS: &'static [&'static str] = &{
        let mut words = [Self::DEFAULT; Role::ALL.len() + 1];
        let mut k = 0;
        while k < Role::ALL.len() {
            words[k + 1] = Role::ALL[k].as_str();
            k += 1;
        }
        words
    };

    /// The word as it is written in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            RouteKey::Default => Self::DEFAULT,
            RouteKey::Role(role) => role.as_str(),
        }
    }
}

impl Serialize for RouteKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for RouteKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = String::deserialize(deserializer)?;
        match word.parse() {
            _ if word == Self::DEFAULT => Ok(RouteKey::Default),
            Ok(role) => Ok(RouteKey::Role(role)),
            Err(_) => Err(D::Error::unknown_variant(&word, Self::WORDS)),
        }
    }
}

words! {
    /// How hard a model should think.
    Effort {
        /// As little as possible.
        Minimal = "minimal",
        /// Little.
        Low = "low",
        /// The usual.
        Medium = "medium",
        /// Much.
        High = "high",
        /// As much as possible.
        Max = "max",
    }
}

words! {
    /// Where the verify commands run.
    GateKind {
        /// In the worker's workspace.
        InPlace = "in_place",
        /// In a second, clean worktree of the produced commit.
        Clean = "clean",
    }
}

words! {
    /// By which door a task came in.
    Door {
        /// The command line.
        Cli = "cli",
        /// A file dropped into an inbox.
        Inbox = "inbox",
        /// An MCP tool.
        Mcp = "mcp",
        /// The Rust library.
        Library = "library",
        /// The board's HTTP interface.
        Http = "http",
        /// The runner itself (recurring tasks, workflows).
        Runner = "runner",
    }
}

words! {
    /// What was decided about a succeeded task.
    Review {
        /// Nothing yet.
        Unreviewed = "unreviewed",
        /// Its change was taken.
        Accepted = "accepted",
        /// It should be done again, with feedback.
        ChangesRequested = "changes_requested" | "needs_revision",
        /// Its change is not wanted.
        Rejected = "rejected",
    }
}

words! {
    /// What the gate says of a result.
    Verification {
        /// All verify commands passed.
        Verified = "verified",
        /// There were no verify commands: not the same as passed.
        Unverified = "unverified",
        /// A verify command failed.
        Failed = "failed",
        /// The gate did not run, since the attempt ended before.
        NotRun = "not_run",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_read_back_in_every_spelling() {
        for state in State::ALL {
            assert_eq!(state.as_str().parse::<State>().unwrap(), *state);
            assert_eq!(serde_json::to_string(state).unwrap(), format!("{:?}", state.as_str()));
        }
        assert_eq!("full_access".parse::<Permission>().unwrap(), Permission::Full);
        assert_eq!(serde_json::from_str::<Review>("\"needs_revision\"").unwrap(), Review::ChangesRequested);
        assert!("sideways".parse::<State>().unwrap_err().contains("queued"));
    }
}
