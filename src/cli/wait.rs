//! `workspool wait`.

use super::exit::{self, Exit};
use super::term;
use crate::model::{State, TaskId, TaskResult};
use crate::verbs::{self, House};
use std::io::IsTerminal as _;
use std::time::Duration;

/// Wait until tasks have ended
///
/// The exit code is that of the first task that did not succeed, or 9 if the time was over first. Giving up
/// waiting changes nothing.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  workspool wait 01jdq3m6 --timeout 600 && workspool accept 01jdq3m6")]
pub struct Args {
    /// Ids of tasks, or beginnings of ids, or names of dropped files
    #[arg(required = true, value_name = "TASK")]
    tasks: Vec<String>,
    /// Return when one of them has ended
    #[arg(long)]
    any: bool,
    /// Seconds to wait at most
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<u64>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Carries the verb out.
pub fn run(house: &House, args: &Args) -> Result<u8, Exit> {
    let ids = args.tasks.iter().map(|t| super::resolve(house, t)).collect::<Result<Vec<_>, _>>()?;
    wait_and_tell(house, &ids, args.any, args.timeout.map(Duration::from_secs), args.json)
}

/// Waits, telling what happens on a terminal, and says how each task ended.
pub fn wait_and_tell(
    house: &House,
    ids: &[TaskId],
    any: bool,
    timeout: Option<Duration>,
    json: bool,
) -> Result<u8, Exit> {
    let live = std::io::stderr().is_terminal() && !json;
    let ended = |id: &TaskId| house.spool.state_of(*id).is_ok_and(State::is_terminal);
    if live && !crate::runner::is_awake(&house.spool)? && !ids.iter().all(ended) {
        term::note("no runner is awake: the next `workspool tick` or `workspool run` starts what is queued");
    }
    let waited = verbs::wait(house, ids, any, timeout, |id, state| {
        if live && !state.is_terminal() {
            term::note(&format!("{id}  {state}"));
        }
    })?;
    let mut code = 0;
    let mut results: Vec<TaskResult> = Vec::new();
    for (id, state) in &waited.states {
        let result = if state.is_terminal() { house.spool.read_result(*id)? } else { None };
        if let Some(result) = &result
            && code == 0
        {
            code = exit::of_result(result);
        }
        if !json {
            let message = result.as_ref().map(|r| r.message.clone()).unwrap_or_default();
            term::line(&format!("{id}  {}  {}", term::state(*state, 0), term::printable(&message)))?;
        }
        results.extend(result);
    }
    if json {
        #[derive(serde::Serialize)]
        struct Out<'a> {
            timed_out: bool,
            states: Vec<Row>,
            results: &'a [TaskResult],
        }
        #[derive(serde::Serialize)]
        struct Row {
            id: TaskId,
            state: State,
        }
        let states = waited.states.iter().map(|(id, state)| Row { id: *id, state: *state }).collect();
        term::json(&Out { timed_out: waited.timed_out, states, results: &results })?;
    }
    if waited.timed_out && code == 0 {
        code = exit::WAIT_OVER;
    }
    Ok(code)
}
