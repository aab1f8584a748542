//! Waiting for tasks to end. Giving up, by time-out or by a cancelled call, changes nothing.

use super::super::progress::{NEWS, Progress};
use super::super::schema;
use super::super::server::{Server, blocking};
use super::super::tool::{Effect, Fault, Kind, Tool, range, read};
use super::super::view::TaskView;
use crate::model::{State, TaskId};
use crate::verbs::{self, House};
use rmcp::RoleServer;
use rmcp::service::RequestContext;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Most tasks that one call waits for.
const MOST: usize = 100;

pub fn tools() -> Vec<Tool> {
    vec![Tool {
        name: "wait_tasks",
        title: "Wait for tasks",
        about: "Wait until tasks have ended: all of them, or with `any` the first of them. Returns where each \
                stands, and what came out. When `timeout_seconds` are over it returns with `timed_out` true: \
                nothing is cancelled, so call again, or do something else meanwhile.",
        effect: Effect::Reads,
        input: Arc::new(schema::arguments::<Wait>()),
        output: Arc::new(schema::result::<Waited>()),
        kind: Kind::Waits,
    }]
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Wait {
    /// The tasks' ids, or beginnings or ends of them.
    #[schemars(length(min = 1, max = 100))]
    tasks: Vec<String>,
    /// Return when one of them has ended.
    #[serde(default)]
    any: bool,
    /// How long to wait at most. Many clients cut a call after 60 seconds.
    #[serde(default = "default_timeout")]
    #[schemars(range(min = 0, max = 3600))]
    timeout_seconds: u64,
}

fn default_timeout() -> u64 {
    45
}

#[derive(Debug, Serialize, JsonSchema)]
struct Waited {
    /// Whether the time was over first.
    timed_out: bool,
    /// How many of the tasks have ended.
    ended: usize,
    /// The tasks, in the order in which they were named.
    tasks: Vec<TaskView>,
    /// What to do next.
    next: Vec<String>,
}

/// Waits, telling the client that asked for progress how far it is.
pub async fn run(
    server: &Server,
    arguments: Map<String, Value>,
    context: &RequestContext<RoleServer>,
) -> Result<Value, Fault> {
    let args: Wait = read(arguments)?;
    let timeout = Duration::from_secs(range("timeout_seconds", args.timeout_seconds, 0..=3600)?);
    range("tasks", args.tasks.len() as u64, 1..=MOST as u64).map_err(|f| Fault(format!("{} names", f.0)))?;
    let call = server.call(None).await?;
    let house = call.house.clone();
    let ids = {
        let names = args.tasks.clone();
        blocking(move || names.iter().map(|name| call.task(name)).collect::<Result<Vec<_>, _>>()).await?
    };
    let (start, progress) = (Instant::now(), Progress::of(context));
    let deadline = start + timeout;
    let mut bell = server.bell().listen(&house);
    let mut news = start + NEWS;
    let mut known = Vec::new();
    let timed_out = loop {
        let states = {
            let (house, ids) = (house.clone(), ids.clone());
            blocking(move || states(&house, &ids)).await?
        };
        let ended = states.iter().filter(|s| s.is_terminal()).count();
        if ended == states.len() || (args.any && ended > 0) {
            break false;
        }
        let now = Instant::now();
        if now >= deadline || server.gone().is_cancelled() {
            break true;
        }
        let moved = !known.is_empty() && known != states;
        if let Some(progress) = progress.as_ref().filter(|_| now >= news || moved) {
            let (house, ids, states) = (house.clone(), ids.clone(), states.clone());
            let message = blocking(move || Ok(words(&house, &ids, &states))).await?;
            progress.tell(Some(timeout), &message).await;
            news = now + NEWS;
        }
        known = states;
        let wake = if progress.is_some() { deadline.min(news) } else { deadline };
        tokio::select! {
            _ = bell.changed() => {}
            () = tokio::time::sleep_until(wake) => {}
            () = context.ct.cancelled() => return Err(Fault("the call was cancelled; the tasks go on".into())),
            () = server.gone().cancelled() => {}
        }
    };
    drop(bell);
    let waited = blocking(move || {
        let mut tasks = Vec::new();
        for id in &ids {
            tasks.push(TaskView::of(verbs::show(&house, *id)?));
        }
        let ended = tasks.iter().filter(|t| t.head.state.is_terminal()).count();
        let mut next = Vec::new();
        if ended < tasks.len() {
            next.push("the others go on: wait_tasks again, or do something else first".to_owned());
            if !crate::runner::is_awake(&house.spool)? {
                next.push("no runner is awake: restart_runner starts one".to_owned());
            }
        }
        Ok(serde_json::to_value(Waited { timed_out, ended, tasks, next })?)
    });
    waited.await
}

fn states(house: &House, ids: &[TaskId]) -> Result<Vec<State>, Fault> {
    crate::intake::expand(&house.spool)?;
    Ok(ids.iter().map(|id| house.spool.state_of(*id)).collect::<Result<Vec<_>, _>>()?)
}

/// How far the tasks are, in a line.
fn words(house: &House, ids: &[TaskId], states: &[State]) -> String {
    let ended = states.iter().filter(|s| s.is_terminal()).count();
    let mut text = format!("{ended} of {} ended", ids.len());
    let running = ids.iter().zip(states).find(|(_, s)| **s == State::Running).map(|(id, _)| *id);
    if let Some(id) = running
        && let Ok(shown) = verbs::show(house, id)
        && let Some(progress) = shown.progress
    {
        let seconds = (chrono::Utc::now() - progress.started_at).num_seconds().max(0);
        text.push_str(&format!("; {id} in {} for {seconds} s", progress.step));
        if let Some(line) = progress.last_line {
            text.push_str(&format!(": {}", crate::model::task::cut(&line, 120)));
        }
    }
    text
}
