//! Looking after the spool: figures, and taking away what is no longer needed.

use super::super::tool::{Call, Effect, Fault, Tool, range};
use crate::care::metrics;
use crate::care::prune::{self, Done, Policy};
use crate::model::Usage;
use chrono::{DateTime, Utc};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// Most things that are named.
const FEW: usize = 50;
const DAY: u64 = 24 * 3600;

pub fn tools() -> Vec<Tool> {
    vec![
        Tool::quick(
            "get_metrics",
            "Read the figures",
            Effect::Reads,
            "Counts of tasks by how they ended and why, what each worker and model has used, how long phases take, \
             what waits and runs now, and how much disk is free.",
            figures,
        ),
        Tool::quick(
            "prune",
            "Take away what is no longer needed",
            Effect::Decides,
            "Old ended tasks, their workspaces, build output, leftovers of crashes. Says only what it would do, \
             unless `apply` is true. A workspace goes only if everything in it is in a commit or a salvage; \
             branches of results that nobody accepted, and salvages, always stay.",
            take_away,
        ),
    ]
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Nothing {}

#[derive(Debug, Serialize, JsonSchema)]
struct Figures {
    /// Since when ended tasks are counted.
    since: DateTime<Utc>,
    /// How many have ended: by state, then by class of failure (empty where there is none).
    ended: BTreeMap<String, BTreeMap<String, u64>>,
    /// How long phases took on average, in seconds.
    mean_seconds: BTreeMap<String, f64>,
    /// What was used, as reported.
    used: Vec<Used>,
    /// How many are queued.
    queued: u64,
    /// How many run.
    running: u64,
    /// How many are held, by reason.
    held: BTreeMap<String, u64>,
    /// Seconds that the oldest queued task has waited.
    oldest_queued_seconds: f64,
    /// Whether a runner is awake.
    runner_awake: bool,
    /// Free bytes on the spool's disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    free_bytes: Option<u64>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Used {
    /// The worker.
    worker: String,
    /// The model; empty where it is not known.
    model: String,
    /// In how many tasks.
    tasks: u64,
    /// How much.
    #[serde(skip_serializing_if = "Usage::is_empty")]
    usage: Usage,
}

fn figures(call: &Call, _: Nothing) -> Result<Figures, Fault> {
    let metrics = metrics::read(&call.house.spool)?;
    let mean = |sum_ms: u64, count: u64| sum_ms as f64 / count as f64 / 1000.0;
    let phases = metrics.ended.phases.iter().filter(|(_, h)| h.count > 0);
    let used = metrics.ended.used.iter().flat_map(|(worker, models)| {
        models.iter().map(move |(model, used)| Used {
            worker: worker.clone(),
            model: model.clone(),
            tasks: used.tasks,
            usage: used.usage.clone(),
        })
    });
    Ok(Figures {
        since: metrics.ended.since,
        mean_seconds: phases.map(|(name, h)| (name.clone(), mean(h.sum_ms, h.count))).collect(),
        used: used.collect(),
        queued: metrics.active.queued,
        running: metrics.active.running,
        held: metrics.active.held.iter().map(|(reason, n)| ((*reason).to_owned(), *n)).collect(),
        oldest_queued_seconds: metrics.active.queue_age_seconds,
        runner_awake: crate::runner::is_awake(&call.house.spool)?,
        free_bytes: metrics.free_bytes,
        ended: metrics.ended.ended,
    })
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Prune {
    /// Do it. Without, nothing is changed.
    #[serde(default)]
    apply: bool,
    /// Tasks that ended longer ago than so many days.
    #[serde(default = "week")]
    #[schemars(range(min = 0, max = 3650))]
    older_than_days: u64,
    /// Keep this many of the newest ended tasks, however old.
    #[serde(default)]
    #[schemars(range(min = 0, max = 1_000_000))]
    keep: u64,
    /// Also younger ones, the oldest first, until ended tasks take no more bytes than this.
    #[serde(default)]
    max_bytes: Option<u64>,
    /// Cancel tasks that have been held by hand or for an answer for as long.
    #[serde(default)]
    include_held: bool,
    /// Also the records of succeeded tasks that nobody accepted or rejected; their branches stay.
    #[serde(default)]
    include_unreviewed: bool,
}

fn week() -> u64 {
    7
}

#[derive(Debug, Serialize, JsonSchema)]
struct Pruned {
    /// Whether it was done.
    applied: bool,
    /// How many things went, or would go.
    count: usize,
    /// How many bytes they took.
    bytes: u64,
    /// The first of them, and why they may go.
    items: Vec<String>,
    /// What stays although it is old, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    stays: Vec<String>,
}

fn take_away(call: &Call, args: Prune) -> Result<Pruned, Fault> {
    let days = range("older_than_days", args.older_than_days, 0..=3650)?;
    let keep = range("keep", args.keep, 0..=1_000_000)?;
    let policy = Policy {
        older_than: Duration::from_secs(days * DAY),
        keep: usize::try_from(keep).unwrap_or(usize::MAX),
        max_bytes: args.max_bytes,
        include_held: args.include_held,
        include_unreviewed: args.include_unreviewed,
    };
    let report = prune::prune(&call.house.spool, &policy, args.apply)?;
    let mut pruned =
        Pruned { applied: args.apply, count: 0, bytes: 0, items: Vec::new(), stays: report.kept };
    for item in report.items {
        let what = serde_json::to_value(item.what)?.as_str().unwrap_or_default().replace('_', " ");
        if let Some(Done::Kept(why)) = &item.outcome {
            pruned.stays.push(format!("{what} {}: {why}", item.path.display()));
            continue;
        }
        pruned.count += 1;
        pruned.bytes += item.bytes;
        if pruned.items.len() < FEW {
            pruned.items.push(format!("{what} {}: {}", item.path.display(), item.why));
        }
    }
    pruned.stays.truncate(FEW);
    Ok(pruned)
}
