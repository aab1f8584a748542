//! Submitting: one task, or several that are taken together.

use super::super::schema;
use super::super::tool::{Call, Effect, Fault, Kind, Tool, in_tools, read};
use super::super::view::{ResultView, TaskView};
use crate::intake::{self, Accepted};
use crate::model::input::Submission;
use crate::model::task::SubmittedBy;
use crate::model::{Batch, Door, State, TaskSpec};
use crate::runner::{self, Woken};
use crate::spool::Place;
use crate::verbs::Shown;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// Fields of a task that are not offered: of no use to a planner, or refused by this version as not yet
/// done. They are taken all the same, and answered for.
const HIDDEN: &[&str] = &["version", "mode", "provider", "cron", "subagents", "client", "parent"];

pub fn tools() -> Vec<Tool> {
    vec![
        tool(
            "submit_task",
            "Submit a task",
            "Hand one coding task to a worker (Codex, Claude Code, OpenCode, a shell script, …). Returns at once \
             with its id; the work goes on in the background, in a git worktree of its own, and nothing reaches \
             the user's branch until the result is accepted. The worker knows nothing of this conversation: say \
             in `objective` and `context` all that it needs. Give `repository` (absolute path) and `verify` \
             (commands such as \"cargo test\" that must pass: they are run apart from the worker, and decide). \
             Then wait_tasks, get_diff, and decide. The same `idempotency_key` submits only once. With worker \
             \"shell\" the objective is the script itself.",
            task_schema(),
            |call, mut arguments| {
                let start = start(&mut arguments)?;
                submit(call, Submission::One(Box::new(read::<TaskSpec>(arguments)?)), start)
            },
        ),
        tool(
            "submit_batch",
            "Submit several tasks",
            "Hand over several tasks at once: all are taken, or none. Each has the fields of submit_task. A task \
             may have a `name` and others name it in `needs`: they start only when it has succeeded. Tasks \
             without `needs` run side by side, each in a worktree of its own; split work so that they do not \
             change the same files.",
            batch_schema(),
            |call, mut arguments| {
                let start = start(&mut arguments)?;
                let batch: Batch = read(arguments)?;
                if batch.tasks.is_empty() {
                    return Err(Fault("tasks: the batch holds no task".into()));
                }
                submit(call, Submission::Many(batch), start)
            },
        ),
    ]
}

fn tool(
    name: &'static str,
    title: &'static str,
    about: &'static str,
    input: Map<String, Value>,
    body: fn(&Call, Map<String, Value>) -> Result<Submitted, Fault>,
) -> Tool {
    Tool {
        name,
        title,
        about,
        effect: Effect::Adds,
        input: Arc::new(input),
        output: Arc::new(schema::result::<Submitted>()),
        kind: Kind::Quick(Box::new(move |call, arguments| Ok(serde_json::to_value(body(call, arguments)?)?))),
    }
}

/// What was taken.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Submitted {
    /// The tasks, in the order in which they were given.
    pub tasks: Vec<TakenTask>,
    /// Whether a runner is at work: `awake`, `started` (by this call), `none` (start was false), `done` (it has
    /// ended already), or why it could not be started.
    pub runner: String,
    /// What happens next.
    pub next: Vec<String>,
}

/// A task that was taken.
#[derive(Debug, Serialize, JsonSchema)]
pub struct TakenTask {
    /// Its id.
    pub id: String,
    /// Where it stands.
    pub state: State,
    /// Its name.
    pub title: String,
    /// SHA-256 of what was asked: proves later that this, and nothing else, was done.
    pub sha256: String,
    /// Whether an earlier submission with the same idempotency key is this task.
    pub existing: bool,
    /// What came out of it, for a client that waited by way of a handle.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<ResultView>,
}

impl Submitted {
    /// What `submit_task` says of a task that has ended, to a client that waited for that.
    pub fn ended(shown: Shown) -> Self {
        let existing = false;
        let view = TaskView::of(shown);
        let task = TakenTask {
            id: view.head.id.to_string(),
            state: view.head.state,
            title: view.head.title,
            sha256: view.sha256,
            existing,
            result: view.result,
        };
        Submitted { tasks: vec![task], runner: "done".into(), next: view.next }
    }
}

fn submit(call: &Call, submission: Submission, start: bool) -> Result<Submitted, Fault> {
    let house = &call.house;
    let by = SubmittedBy { door: Door::Mcp, client: call.client.clone(), file: None, results: None };
    let accepted = intake::submit(&house.spool, &house.config, submission, by)?;
    // What is durable is taken: from here on nothing may be answered with an error.
    let _ = intake::expand(&house.spool);
    let tasks: Vec<TakenTask> = accepted.into_iter().map(|a| taken(call, a)).collect();
    let runner = awake(call, start);
    let ids: Vec<&str> = tasks.iter().map(|t| t.id.as_str()).collect();
    let mut next = Vec::new();
    if tasks.iter().any(|t| t.state == State::Queued || t.state == State::Running) {
        next.push(format!("wait_tasks {} (or do something else first: the work goes on)", ids.join(" ")));
    }
    for task in tasks.iter().filter(|t| t.state == State::Held) {
        let hold = task.id.parse().ok().and_then(|id| house.spool.read_hold(id));
        next.push(format!("{} is held: {}", task.id, hold.map(|h| in_tools(&h.message)).unwrap_or_default()));
    }
    if runner == "none" {
        next.push(
            "no runner is awake: it starts when somebody runs `workspool run`, or by restart_runner".into(),
        );
    }
    Ok(Submitted { tasks, runner, next })
}

fn taken(call: &Call, accepted: Accepted) -> TakenTask {
    let found = call.house.spool.find_ticket(accepted.id).ok().flatten();
    TakenTask {
        id: accepted.id.to_string(),
        state: found.map_or(Place::Queue, |f| f.place).state(),
        title: accepted.title,
        sha256: accepted.sha256,
        existing: accepted.existing,
        result: None,
    }
}

/// Makes sure that a runner is awake, if it is wanted, and says how it is about it.
pub fn awake(call: &Call, start: bool) -> String {
    let woken = match start {
        true => runner::wake(&call.house.spool).map(|w| match w {
            Woken::Already => "awake",
            Woken::Started => "started",
        }),
        false => {
            runner::is_awake(&call.house.spool).map(|a| if a { "awake" } else { "none" }).map_err(Into::into)
        }
    };
    woken.map_or_else(|e| format!("{e:#}"), str::to_owned)
}

/// Takes `start` out of the arguments: it is about us, not about the task.
fn start(arguments: &mut Map<String, Value>) -> Result<bool, Fault> {
    match arguments.remove("start") {
        None | Some(Value::Null) => Ok(true),
        Some(Value::Bool(start)) => Ok(start),
        Some(other) => Err(Fault(format!("start: {other} is neither true nor false"))),
    }
}

fn start_schema() -> Value {
    json!({
        "type": "boolean",
        "default": true,
        "description": "Wake a runner if none is awake. It outlives this client and ends when nothing is left to do."
    })
}

fn task_schema() -> Map<String, Value> {
    let mut schema = schema::arguments::<TaskSpec>();
    if let Some(Value::Object(fields)) = schema.get_mut("properties") {
        HIDDEN.iter().for_each(|field| drop(fields.remove(*field)));
        fields.insert("start".into(), start_schema());
    }
    schema
}

/// The schema of a batch: its tasks have the types of `submit_task` without saying everything twice.
fn batch_schema() -> Map<String, Value> {
    let mut item = task_schema();
    if let Some(Value::Object(fields)) = item.get_mut("properties") {
        fields.remove("start");
        for (name, field) in fields.iter_mut() {
            if !matches!(name.as_str(), "name" | "needs" | "objective") {
                strip(field);
            }
        }
    }
    let schema = json!({
        "type": "object",
        "properties": {
            "tasks": {
                "type": "array",
                "minItems": 1,
                "description": "The tasks; their fields are those of submit_task.",
                "items": item
            },
            "idempotency_key": {
                "type": "string",
                "description": "Submissions with one key and the same content are one batch."
            },
            "start": start_schema()
        },
        "required": ["tasks"],
        "additionalProperties": false
    });
    match schema {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

/// Removes descriptions at every depth.
fn strip(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            if map.get("description").is_some_and(Value::is_string) {
                map.remove("description");
            }
            map.values_mut().for_each(strip);
        }
        Value::Array(items) => items.iter_mut().for_each(strip),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_done_is_not_hidden() {
        use crate::model::check::check;
        for (field, value) in [
            ("mode", json!("review")),
            ("role", json!("tester")),
            ("provider", json!("x")),
            ("cron", json!("0 3 * * *")),
        ] {
            let spec: TaskSpec = serde_json::from_value(json!({ "objective": "x", field: value })).unwrap();
            let refused = check(&spec).iter().any(|p| p.kind == crate::model::ProblemKind::NotYet);
            assert_eq!(
                refused,
                HIDDEN.contains(&field),
                "{field}: take it out of HIDDEN when it can be done"
            );
        }
    }

    #[test]
    fn hidden_fields_are_fields_and_the_rest_is_offered() {
        let full = schema::arguments::<TaskSpec>();
        let offered = task_schema();
        for field in HIDDEN {
            assert!(full["properties"].get(field).is_some(), "{field} is no field any more");
            assert!(offered["properties"].get(field).is_none());
        }
        assert!(offered["properties"]["verify"]["description"].is_string());
        let item = &batch_schema()["properties"]["tasks"]["items"];
        assert_eq!(item["required"], json!(["objective"]));
        assert!(item["properties"]["needs"]["description"].is_string());
        assert!(item["properties"]["verify"].get("description").is_none());
    }
}
