//! Waiting for tasks to end. Giving up waiting changes nothing.

use super::House;
use crate::intake;
use crate::model::{State, TaskId};
use crate::runner::Watch;
use std::time::{Duration, Instant};

/// What waiting came to.
#[derive(Debug, Clone)]
pub struct Waited {
    /// Where each task stands.
    pub states: Vec<(TaskId, State)>,
    /// Whether the time was over first.
    pub timed_out: bool,
}

/// Waits until all (or any) of the tasks have ended. `news` hears of every state that changes.
pub fn wait(
    house: &House,
    ids: &[TaskId],
    any: bool,
    timeout: Option<Duration>,
    mut news: impl FnMut(TaskId, State),
) -> anyhow::Result<Waited> {
    let watch = Watch::new(&house.spool, &house.config, false);
    let deadline = timeout.map(|t| Instant::now() + t);
    let poll = Duration::from_secs(house.config.poll.max(1));
    let mut states: Vec<(TaskId, Option<State>)> = ids.iter().map(|id| (*id, None)).collect();
    let done = watch.until(poll, deadline, || {
        // What cannot be expanded is told by the runner; these may be others.
        let _ = intake::expand(&house.spool);
        for (id, known) in states.iter_mut().filter(|(_, s)| !s.is_some_and(State::is_terminal)) {
            match house.spool.state_of(*id) {
                Ok(state) if *known != Some(state) => {
                    *known = Some(state);
                    news(*id, state);
                }
                Ok(_) => {}
                Err(e) => return Some(Err(e)),
            }
        }
        let ended = states.iter().filter(|(_, s)| s.is_some_and(State::is_terminal)).count();
        (ended == states.len() || (any && ended > 0)).then_some(Ok(()))
    });
    let timed_out = match done {
        Some(result) => {
            result?;
            false
        }
        None => true,
    };
    Ok(Waited {
        states: states.into_iter().map(|(id, s)| (id, s.unwrap_or(State::Queued))).collect(),
        timed_out,
    })
}
