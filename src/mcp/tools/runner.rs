//! The loop that works tasks off.

use super::super::tool::{Call, Effect, Fault, Tool};
use crate::runner;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub fn tools() -> Vec<Tool> {
    vec![Tool::quick(
        "restart_runner",
        "Start the runner, or start it anew",
        Effect::Adds,
        "Make sure that a fresh runner is at work: one that is awake is told to stop, and one is started in the \
         background. Tasks that run are not touched. Needed after the program or its configuration changed, or \
         when tasks wait and no runner is awake.",
        restart,
    )]
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Nothing {}

#[derive(Debug, Serialize, JsonSchema)]
struct Restarted {
    /// The process that was stopped, if a runner was awake.
    #[serde(skip_serializing_if = "Option::is_none")]
    stopped: Option<u32>,
    /// What happened.
    message: String,
}

fn restart(call: &Call, _: Nothing) -> Result<Restarted, Fault> {
    let old = runner::restart(&call.house.spool)?;
    let message = match &old {
        None => "a runner was started; it ends when nothing is left to do".to_owned(),
        Some(old) if old.drain => "the runner was stopped and another one started".to_owned(),
        Some(_) => "the runner was stopped and one started that ends when nothing is left to do; a service \
                    that kept the old one starts its own again"
            .to_owned(),
    };
    Ok(Restarted { stopped: old.map(|o| o.process.pid), message })
}
