//! Looking at tasks.

use super::super::tool::{Call, Effect, Fault, Tool, in_tools, range};
use super::super::view::TaskView;
use crate::model::task::cut;
use crate::model::{Review, State, TaskId};
use crate::verbs::{self, Entry, Filter};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

pub fn tools() -> Vec<Tool> {
    vec![
        Tool::quick(
            "get_task",
            "Look at a task",
            Effect::Reads,
            "Where a task stands, what came out of it (summary, changed files, verify commands, commit), and what \
             to do next. Compact: get_diff, get_log and get_artifact read the rest. `full` adds what was asked \
             and the whole record of the result.",
            get,
        ),
        Tool::quick(
            "list_tasks",
            "List tasks",
            Effect::Reads,
            "Tasks, newest first: those that have not ended, then those that have. Narrow by state, review (of \
             succeeded tasks: `unreviewed` are those to decide about), tags, repository, worker.",
            list,
        ),
        Tool::quick(
            "why",
            "Say why a task is where it is",
            Effect::Reads,
            "Which rule keeps a task where it is (a limit, a need, a time, a hold, no runner, a full disk), and \
             what would move it on.",
            why,
        ),
    ]
}

/// Names a task.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct One {
    /// The task's id, or the beginning or end of it.
    pub task: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Get {
    /// The task's id, or the beginning or end of it.
    task: String,
    /// Add what was asked and the whole record of the result.
    #[serde(default)]
    full: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Got {
    #[serde(flatten)]
    view: TaskView,
    /// What was asked, with `full`.
    #[serde(skip_serializing_if = "Option::is_none")]
    asked: Option<serde_json::Map<String, serde_json::Value>>,
    /// The whole record of the result, with `full`.
    #[serde(skip_serializing_if = "Option::is_none")]
    record: Option<serde_json::Map<String, serde_json::Value>>,
}

fn get(call: &Call, args: Get) -> Result<Got, Fault> {
    let shown = verbs::show(&call.house, call.task(&args.task)?)?;
    let (mut asked, mut record) = (None, None);
    if args.full {
        asked = object(&shown.task.spec)?;
        record = shown.result.as_ref().map(object).transpose()?.flatten();
    }
    Ok(Got { view: TaskView::of(shown), asked, record })
}

fn object<T: Serialize>(value: &T) -> Result<Option<serde_json::Map<String, serde_json::Value>>, Fault> {
    Ok(serde_json::to_value(value)?.as_object().cloned())
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct List {
    /// Only tasks in one of these states.
    #[serde(default)]
    states: Vec<State>,
    /// Only succeeded tasks with this verdict.
    #[serde(default)]
    review: Option<Review>,
    /// Only tasks with all these tags.
    #[serde(default)]
    tags: Vec<String>,
    /// Only tasks about this repository: an absolute path.
    #[serde(default)]
    repository: Option<PathBuf>,
    /// Only tasks of this worker.
    #[serde(default)]
    worker: Option<String>,
    /// At most so many.
    #[serde(default = "twenty")]
    #[schemars(range(min = 1, max = 200))]
    limit: u64,
    /// Go on after this task of the list before: its `next`.
    #[serde(default)]
    after: Option<TaskId>,
}

/// Records that one call looks through: a call costs the same with any history.
const EFFORT: usize = 2000;

fn twenty() -> u64 {
    20
}

#[derive(Debug, Serialize, JsonSchema)]
struct Listed {
    /// The tasks.
    tasks: Vec<Entry>,
    /// Give this as `after` for the next page; absent at the end. Where few tasks fit, a page may hold fewer than
    /// `limit`, or none: one call does not look through all of a long history.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<TaskId>,
    /// How many tasks are queued now.
    queued: usize,
    /// How many are held.
    held: usize,
    /// How many run.
    running: usize,
}

fn list(call: &Call, args: List) -> Result<Listed, Fault> {
    let limit = range("limit", args.limit, 1..=200)?;
    let filter = Filter {
        states: args.states,
        review: args.review,
        tags: args.tags,
        repository: args.repository,
        worker: args.worker,
        limit: usize::try_from(limit).unwrap_or(usize::MAX),
        after: args.after,
        effort: Some(EFFORT),
    };
    let mut listing = verbs::list(&call.house, &filter)?;
    for message in listing.tasks.iter_mut().filter_map(|t| t.message.as_mut()) {
        *message = cut(&in_tools(message), 300);
    }
    let counts = call.house.spool.active_counts()?;
    let count = |state| counts.iter().find(|(s, _)| *s == state).map_or(0, |(_, n)| *n);
    Ok(Listed {
        tasks: listing.tasks,
        next: listing.next,
        queued: count(State::Queued),
        held: count(State::Held),
        running: count(State::Running),
    })
}

#[derive(Debug, Serialize, JsonSchema)]
struct Why {
    /// The task.
    id: String,
    /// The reasons, the first one first.
    reasons: Vec<String>,
    /// Whether a runner is awake.
    runner_awake: bool,
}

fn why(call: &Call, args: One) -> Result<Why, Fault> {
    let id = call.task(&args.task)?;
    Ok(Why {
        id: id.to_string(),
        reasons: verbs::why(&call.house, id)?.iter().map(|r| in_tools(r)).collect(),
        runner_awake: crate::runner::is_awake(&call.house.spool)?,
    })
}
