//! Changing where a task stands.

use super::super::tool::{Call, Effect, Fault, Tool};
use super::look::One;
use super::submit::awake;
use crate::model::{State, TaskId, TaskSpec, WorkerName};
use crate::verbs::{self, Cancelled};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub fn tools() -> Vec<Tool> {
    vec![
        Tool::quick(
            "cancel_task",
            "Cancel a task",
            Effect::Decides,
            "End a task, wherever it stands. A running one is ended with all its processes, within moments; what \
             it had done is kept in a ref. (Giving up waiting cancels nothing: only this does.)",
            cancel,
        ),
        Tool::quick(
            "retry_task",
            "Try a task again",
            Effect::Adds,
            "Make another attempt at a task that has ended, perhaps with another worker. For another objective, \
             submit a new task.",
            retry,
        ),
        Tool::quick(
            "edit_task",
            "Change a waiting task",
            Effect::Sets,
            "Change what is asked of a task that has not started, such as its priority or objective. `changes` \
             has the fields of submit_task; null takes a field back to its default. The old request is kept.",
            edit,
        ),
        Tool::quick(
            "hold_task",
            "Hold a task",
            Effect::Sets,
            "Keep a queued or waiting task from starting until release_task.",
            hold,
        ),
        Tool::quick(
            "release_task",
            "Release a task",
            Effect::Sets,
            "Let a task go that is held by hand, for a time or for a quota.",
            release,
        ),
    ]
}

/// Where a task stands after a change.
#[derive(Debug, Serialize, JsonSchema)]
struct Changed {
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

impl Changed {
    fn new(id: TaskId, state: State, message: impl Into<String>) -> Self {
        Changed { id: id.to_string(), state, message: message.into(), runner: None }
    }

    /// Wakes a runner if the task can run now.
    fn waking(mut self, call: &Call) -> Self {
        if self.state == State::Queued {
            self.runner = Some(awake(call, true));
        }
        self
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Cancel {
    /// The task's id, or the beginning or end of it.
    task: String,
    /// Why, for the record.
    #[serde(default)]
    reason: Option<String>,
}

fn cancel(call: &Call, args: Cancel) -> Result<Changed, Fault> {
    let id = call.task(&args.task)?;
    Ok(match verbs::cancel(&call.house, id, args.reason.as_deref())? {
        Cancelled::Now => Changed::new(id, State::Cancelled, "cancelled"),
        Cancelled::Requested => {
            // Nobody may be there to see to it but its keeper, which is enough.
            Changed::new(id, State::Running, "it is being ended; wait_tasks returns when it has")
        }
    })
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Retry {
    /// The task's id, or the beginning or end of it.
    task: String,
    /// Let this worker do it: see list_workers.
    #[serde(default)]
    worker: Option<WorkerName>,
}

fn retry(call: &Call, args: Retry) -> Result<Changed, Fault> {
    let id = call.task(&args.task)?;
    let state = verbs::retry(&call.house, id, args.worker)?;
    Ok(Changed::new(id, state, "another attempt will be made").waking(call))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Edit {
    /// The task's id, or the beginning or end of it.
    task: String,
    /// The fields to change.
    changes: Map<String, Value>,
}

fn edit(call: &Call, args: Edit) -> Result<Changed, Fault> {
    let id = call.task(&args.task)?;
    let spec = call.house.spool.read_task(id)?.spec;
    let mut fields = serde_json::to_value(&spec)?.as_object().cloned().unwrap_or_default();
    for (name, value) in args.changes {
        match value {
            Value::Null => drop(fields.remove(&name)),
            value => drop(fields.insert(name, value)),
        }
    }
    let new: TaskSpec = super::super::tool::read(fields).map_err(|f| Fault(format!("changes.{}", f.0)))?;
    let revision = verbs::edit(&call.house, id, |spec| *spec = new)?;
    let state = call.house.spool.state_of(id)?;
    Ok(Changed::new(id, state, format!("this is revision {revision} of the request")).waking(call))
}

fn hold(call: &Call, args: One) -> Result<Changed, Fault> {
    let id = call.task(&args.task)?;
    verbs::hold(&call.house, id)?;
    Ok(Changed::new(id, State::Held, "held: release_task lets it go"))
}

fn release(call: &Call, args: One) -> Result<Changed, Fault> {
    let id = call.task(&args.task)?;
    let state = verbs::release(&call.house, id)?;
    Ok(Changed::new(id, state, "released").waking(call))
}
