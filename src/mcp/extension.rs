//! The tasks extension, straight on the spool: a handle's id is the task's own, so it outlives this server.
//!
//! Where a client of the newer protocol declares the extension, `submit_task` answers with a handle; its result,
//! once the task has ended, is that of `submit_task` with what came out. Everything that takes an id takes the
//! handle's. Clients of the older protocol get no handle: some declare the extension and cannot read one there
//! (seen with the MCP Inspector 2.12). They may ask for any task by its id.

use super::clean;
use super::server::{Server, blocking};
use super::tool::{Call, Fault};
use super::tools::Submitted;
use crate::model::{State, TaskId};
use crate::verbs::{self, Shown};
use rmcp::model::{
    CallToolResult, CreateTaskResult, DetailedTask, GetTaskResult, Task, TaskPayload, TaskStatus,
};
use serde_json::Value;

/// How often a client should ask.
const POLL_MS: u64 = 2000;

/// The handle of a task that was just submitted and can run; `None` where the plain result says more.
pub async fn handle(server: &Server, tool: &str, value: &Value) -> Option<CreateTaskResult> {
    if tool != "submit_task" {
        return None;
    }
    let id: TaskId = value["tasks"][0]["id"].as_str()?.parse().ok()?;
    let call = server.call(None).await.ok()?;
    blocking(move || {
        let shown = verbs::show(&call.house, id)?;
        Ok(if shown.state == State::Held { None } else { Some(CreateTaskResult::new(task(&shown))) })
    })
    .await
    .ok()
    .flatten()
}

/// Where a task stands, with its result once it has ended.
pub async fn get(server: &Server, id: String) -> Result<GetTaskResult, Fault> {
    let call = server.call(None).await?;
    blocking(move || {
        let shown = find(&call, &id)?;
        let (base, state) = (task(&shown), shown.state);
        let payload = match state {
            State::Queued | State::Held | State::Running => TaskPayload::Working,
            State::Cancelled => TaskPayload::Cancelled,
            _ => {
                let mut view = serde_json::to_value(Submitted::ended(shown))?;
                clean::value(&mut view);
                let mut result = CallToolResult::structured(view);
                result.is_error = Some(state != State::Succeeded);
                let result = serde_json::to_value(result)?.as_object().cloned().unwrap_or_default();
                TaskPayload::Completed { result }
            }
        };
        Ok(GetTaskResult::new(DetailedTask::new(base, payload)))
    })
    .await
}

/// Cancels the task itself: that is what the client asked for by its handle.
pub async fn cancel(server: &Server, id: String) -> Result<(), Fault> {
    let call = server.call(None).await?;
    blocking(move || {
        let shown = find(&call, &id)?;
        if !shown.state.is_terminal() {
            verbs::cancel(&call.house, shown.id, Some("cancelled by the client's handle"))?;
        }
        Ok(())
    })
    .await
}

fn find(call: &Call, id: &str) -> Result<Shown, Fault> {
    // No beginnings of ids here: a handle is exact.
    let id: TaskId = id.parse().map_err(|e: crate::model::id::NotATaskId| Fault(e.to_string()))?;
    Ok(verbs::show(&call.house, call.task(&id.to_string())?)?)
}

fn task(shown: &Shown) -> Task {
    let status = match shown.state {
        State::Queued | State::Held | State::Running => TaskStatus::Working,
        State::Cancelled => TaskStatus::Cancelled,
        _ => TaskStatus::Completed,
    };
    let ended = shown.result.as_ref().filter(|_| shown.state.is_terminal());
    let changed = ended.map_or_else(chrono::Utc::now, |r| r.ended_at);
    let message = match (ended, &shown.waits, shown.phase) {
        (Some(result), _, _) => format!("{}: {}", shown.state, result.message),
        (None, Some(waits), _) => format!("held: {waits}"),
        (None, None, Some(phase)) => format!("{phase}, attempt {}", shown.attempt),
        (None, None, None) => shown.state.to_string(),
    };
    Task::new(shown.id.to_string(), status, shown.task.submitted_at.to_rfc3339(), changed.to_rfc3339())
        .with_status_message(clean::text(&message))
        .with_poll_interval_ms(POLL_MS)
}
