//! Deciding about a change.

use super::super::tool::{Call, Effect, Fault, Tool};
use super::submit::awake;
use crate::model::State;
use crate::review::{self, Acceptance, As, NotAccepted};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

pub fn tools() -> Vec<Tool> {
    vec![
        Tool::quick(
            "accept_task",
            "Accept a change",
            Effect::Decides,
            "Bring a succeeded task's change into the user's repository, whole or not at all. A conflict, or a \
             file in the way, is named, and nothing is touched. `how`: `apply` puts it into the working tree, \
             staged; `commit` makes a commit on the current branch; `branch` makes a branch and touches nothing \
             else. Give `sha256` from submit_task to be sure that this is the task you mean. A result without \
             verify commands is refused unless `unverified`.",
            accept,
        ),
        Tool::quick(
            "reject_task",
            "Reject a change",
            Effect::Sets,
            "Record that a succeeded task's change is not wanted, and why. Nothing is removed: it can still be \
             looked at, and revised.",
            reject,
        ),
        Tool::quick(
            "revise_task",
            "Ask for changes",
            Effect::Adds,
            "Send a succeeded task back to its worker with feedback. A new attempt goes on from what the last one \
             left, and the verify commands run again.",
            revise,
        ),
        Tool::quick(
            "audit_task",
            "Audit a result",
            Effect::Sets,
            "Recompute what proves a succeeded task's result (hashes that tie task, base, commit, diff, verify \
             commands and log together) from the spool and the repository, and name the first thing that does not \
             match. `replay` also runs the verify commands again on a clean copy of the commit, which takes as \
             long as they do.",
            audit,
        ),
    ]
}

/// How a change is taken.
#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum How {
    /// Into the working tree, staged.
    #[default]
    Apply,
    /// As a commit on the current branch.
    Commit,
    /// As a branch.
    Branch,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Accept {
    /// The task's id, or the beginning or end of it.
    task: String,
    /// `apply` (into the working tree, staged), `commit` (on the current branch) or `branch`.
    #[serde(default)]
    #[schemars(with = "How")]
    how: How,
    /// The branch's name, with `branch`. Default: accepted/ID.
    #[serde(default)]
    branch: Option<String>,
    /// The commit's message, with `commit`. Default: the task's.
    #[serde(default)]
    message: Option<String>,
    /// Accept although there are no verify commands.
    #[serde(default)]
    unverified: bool,
    /// Accept although hooks or settings that can execute changed since the task began.
    #[serde(default)]
    changed_settings: bool,
    /// Accept only if the task has this hash.
    #[serde(default)]
    sha256: Option<String>,
    /// Land in this checkout of the same repository: an absolute path.
    #[serde(default)]
    into: Option<PathBuf>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Accepted {
    /// The task.
    id: String,
    /// How the change was taken.
    how: String,
    /// How many files changed.
    files: usize,
    /// The commit, where one was made or a branch points at it.
    #[serde(skip_serializing_if = "Option::is_none")]
    commit: Option<String>,
    /// The branch.
    #[serde(skip_serializing_if = "Option::is_none")]
    branch: Option<String>,
    /// Whether the tree that landed is the one that the verify commands saw: it is not, where the user's
    /// branch had moved on.
    gated: bool,
    /// What to do next.
    next: Vec<String>,
}

fn accept(call: &Call, args: Accept) -> Result<Accepted, Fault> {
    let id = call.task(&args.task)?;
    let how = match args.how {
        How::Apply => As::Apply,
        How::Commit => As::Commit,
        How::Branch => As::Branch,
    };
    if args.branch.is_some() && how != As::Branch {
        return Err(Fault("branch: goes with how \"branch\" only".into()));
    }
    if args.into.as_ref().is_some_and(|p| !p.is_absolute()) {
        return Err(Fault("into: expected an absolute path".into()));
    }
    let wish = Acceptance {
        how,
        branch: args.branch,
        message: args.message,
        unverified: args.unverified,
        unaudited: false,
        changed_settings: args.changed_settings,
        sha256: args.sha256.map(|s| s.trim_start_matches("sha256:").to_ascii_lowercase()),
        checkout: args.into,
        remark: call.client.as_ref().map(|client| format!("by MCP, {client}")),
    };
    let landed = review::accept(&call.house.spool, id, &wish)?;
    let mut next = Vec::new();
    if !landed.gated && landed.files > 0 {
        next.push(
            "the branch had moved on: run the verify commands once more on the merged result".to_owned(),
        );
    }
    if how == As::Apply && landed.files > 0 {
        next.push("the change is staged in the working tree: the user commits it".to_owned());
    }
    Ok(Accepted {
        id: id.to_string(),
        how: landed.how,
        files: landed.files,
        commit: landed.commit,
        branch: landed.branch,
        gated: landed.gated,
        next,
    })
}

impl From<NotAccepted> for Fault {
    fn from(e: NotAccepted) -> Self {
        let mut text = e.to_string();
        // In the words of tools.
        for (option, argument) in [
            ("--unverified", "`unverified`: true"),
            ("--changed-settings", "`changed_settings`: true"),
            ("--as branch", "`how`: \"branch\""),
            ("--into", "`into`"),
        ] {
            text = text.replace(option, argument);
        }
        Fault(text)
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Reject {
    /// The task's id, or the beginning or end of it.
    task: String,
    /// Why, for the record.
    #[serde(default)]
    reason: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Decided {
    /// The task.
    id: String,
    /// Where it stands now.
    state: State,
    /// What was done.
    message: String,
    /// Whether a runner is at work, where one is needed now.
    #[serde(skip_serializing_if = "Option::is_none")]
    runner: Option<String>,
}

fn reject(call: &Call, args: Reject) -> Result<Decided, Fault> {
    let id = call.task(&args.task)?;
    review::reject(&call.house.spool, id, args.reason)?;
    let state = call.house.spool.state_of(id)?;
    Ok(Decided { id: id.to_string(), state, message: "rejected; nothing was removed".into(), runner: None })
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Revise {
    /// The task's id, or the beginning or end of it.
    task: String,
    /// What is to be changed.
    #[schemars(length(min = 1))]
    feedback: String,
}

fn revise(call: &Call, args: Revise) -> Result<Decided, Fault> {
    let id = call.task(&args.task)?;
    if args.feedback.trim().is_empty() {
        return Err(Fault("feedback: it is empty: say what is to be changed".into()));
    }
    review::revise(&call.house.spool, id, args.feedback)?;
    call.house.spool.ring();
    let state = call.house.spool.state_of(id)?;
    let runner = (state == State::Queued).then(|| awake(call, true));
    let message = "the worker goes on with the feedback: wait_tasks".into();
    Ok(Decided { id: id.to_string(), state, message, runner })
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Audit {
    /// The task's id, or the beginning or end of it.
    task: String,
    /// Run setup and verify commands again, on a clean copy of the commit.
    #[serde(default)]
    replay: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Audited {
    /// The task.
    id: String,
    /// Whether everything matches.
    matches: bool,
    /// How many things were looked at.
    checked: usize,
    /// What does not match, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    differs: Vec<String>,
    /// What cannot be said, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
    /// SHA-256 of the receipt.
    receipt_sha256: String,
}

fn audit(call: &Call, args: Audit) -> Result<Audited, Fault> {
    let id = call.task(&args.task)?;
    let audit = crate::gate::audit::audit(&call.house.spool, id, args.replay, &mut |text| call.tell(text))?;
    let differs = audit.checked.iter().filter_map(|c| Some(format!("{}: {}", c.what, c.differs.as_ref()?)));
    Ok(Audited {
        id: id.to_string(),
        matches: audit.first().is_none(),
        checked: audit.checked.len(),
        differs: differs.collect(),
        notes: audit.notes,
        receipt_sha256: audit.receipt_sha256,
    })
}
