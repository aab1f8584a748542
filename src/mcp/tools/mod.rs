//! The tools, by subject. Few, each does one thing; their descriptions are all that a planner reads.

mod care;
mod change;
mod look;
mod read;
mod review;
mod runner;
mod submit;
pub mod wait;
mod workers;

pub use submit::Submitted;

use super::tool::Tool;
use crate::model::TaskId;
use std::sync::LazyLock;

/// All tools, in the order in which they are listed.
pub static ALL: LazyLock<Vec<Tool>> = LazyLock::new(|| {
    let mut all = Vec::new();
    all.extend(submit::tools());
    all.extend(wait::tools());
    all.extend(look::tools());
    all.extend(read::tools());
    all.extend(review::tools());
    all.extend(change::tools());
    all.extend(workers::tools());
    all.extend(runner::tools());
    all.extend(care::tools());
    all
});

/// Finds a tool by its name.
pub fn find(name: &str) -> Option<&'static Tool> {
    ALL.iter().find(|t| t.name == name)
}

/// How a planner decides about a change.
pub fn decide(id: TaskId) -> String {
    format!("accept_task {id}, or reject_task, or revise_task with feedback")
}
