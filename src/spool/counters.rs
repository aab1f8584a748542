//! Counts of what has ended, kept up by whoever ends a task: reading them costs the same with any history.
//!
//! The file is replaced under a lock of its own, after the ticket has moved, and nobody waits for the disk.
//! At worst (a crash in between, a power loss) a count is missing; none is ever counted twice.

use super::Spool;
use crate::durable;
use crate::model::{State, TaskResult, Usage, VERSION};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Upper bounds of the histogram's buckets, in milliseconds; the last bucket has none.
pub const BOUNDS_MS: [u64; 14] = [
    100, 300, 1_000, 3_000, 10_000, 30_000, 60_000, 180_000, 600_000, 1_200_000, 1_800_000, 3_600_000,
    7_200_000, 14_400_000,
];

/// Most pairs of worker and model that are told apart; names come from tasks and other programs.
const MOST_PAIRS: usize = 200;

/// What has ended so far: `metrics.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Counters {
    /// Version of this format.
    pub version: u32,
    /// Since when it is counted.
    pub since: DateTime<Utc>,
    /// Ended tasks by state, then by class; the class is empty where there is none.
    pub ended: BTreeMap<String, BTreeMap<String, u64>>,
    /// Durations of the last attempts by phase.
    pub phases: BTreeMap<String, Histogram>,
    /// What was used, by worker, then by model; the model is empty where it is not known.
    pub used: BTreeMap<String, BTreeMap<String, Used>>,
}

/// A histogram of durations.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Histogram {
    /// How many fell into each bucket, and into none, last.
    pub buckets: Vec<u64>,
    /// How many there were.
    pub count: u64,
    /// Their sum.
    pub sum_ms: u64,
}

impl Histogram {
    fn add(&mut self, ms: u64) {
        self.buckets.resize(BOUNDS_MS.len() + 1, 0);
        let at = BOUNDS_MS.iter().position(|bound| ms <= *bound).unwrap_or(BOUNDS_MS.len());
        self.buckets[at] += 1;
        self.count += 1;
        self.sum_ms = self.sum_ms.saturating_add(ms);
    }
}

/// What a worker with a model has used.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Used {
    /// In how many tasks.
    pub tasks: u64,
    /// How much.
    #[serde(default, skip_serializing_if = "Usage::is_empty")]
    pub usage: Usage,
}

impl Counters {
    fn new() -> Self {
        Counters {
            version: VERSION,
            since: Utc::now(),
            ended: BTreeMap::new(),
            phases: BTreeMap::new(),
            used: BTreeMap::new(),
        }
    }

    /// Adds what came out of one task.
    pub fn add(&mut self, result: &TaskResult) {
        let class = result.class.map_or("", |c| c.as_str());
        let by_class = self.ended.entry(result.state.as_str().to_owned()).or_default();
        *by_class.entry(class.to_owned()).or_default() += 1;
        if result.attempt == 0 {
            return;
        }
        let d = &result.durations;
        for (phase, ms) in [
            ("queued", d.queued_ms),
            ("preparing", d.preparing_ms),
            ("setup", d.setup_ms),
            ("working", d.working_ms),
            ("verifying", d.verifying_ms),
            ("finishing", d.finishing_ms),
        ] {
            if let Some(ms) = ms {
                self.phases.entry(phase.to_owned()).or_default().add(ms);
            }
        }
        let (mut worker, mut model) =
            (result.worker.name.to_string(), result.worker.model.clone().unwrap_or_default());
        let known = self.used.get(&worker).is_some_and(|m| m.contains_key(&model));
        if !known && self.used.values().map(BTreeMap::len).sum::<usize>() >= MOST_PAIRS {
            (worker, model) = ("other".into(), "other".into());
        }
        let used = self.used.entry(worker).or_default().entry(model).or_default();
        used.tasks += 1;
        used.usage.add(&result.usage);
    }

    /// How many tasks ended in a state.
    pub fn ended_as(&self, state: State) -> u64 {
        self.ended.get(state.as_str()).map_or(0, |classes| classes.values().sum())
    }
}

/// What has been counted in a spool.
pub fn read(spool: &Spool) -> Counters {
    // Without the lock where it cannot be had: then nobody counts either.
    let _alone = spool.lock("metrics").take();
    // One that is broken begins anew, and says since when it counts.
    parsed(&std::fs::read(path(spool)).unwrap_or_default()).unwrap_or_else(Counters::new)
}

fn parsed(bytes: &[u8]) -> Option<Counters> {
    serde_json::from_slice(bytes).ok()
}

/// Counts one end. Counting is no reason to fail.
pub(super) fn count(spool: &Spool, result: &TaskResult) {
    let counted = || -> std::io::Result<()> {
        let _alone = spool.lock("metrics").take()?;
        let path = path(spool);
        let old = std::fs::read(&path).unwrap_or_default();
        let mut counters = parsed(&old).unwrap_or_else(Counters::new);
        counters.add(result);
        let bytes = serde_json::to_vec(&counters)?;
        // A new file for each task would cost more than all else here.
        match (1..=bytes.len()).contains(&old.len()) && bytes.len() <= durable::PAGE {
            true => durable::overwrite(&path, &bytes),
            false => durable::replace_unsynced(&path, &bytes),
        }
    };
    drop(counted());
}

fn path(spool: &Spool) -> std::path::PathBuf {
    spool.root().join("metrics.json")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Class, TaskId};

    fn result(worker: &str, model: Option<&str>) -> TaskResult {
        let value = serde_json::json!({
            "version": 1, "id": TaskId::generate(), "attempt": 2, "state": "failed", "class": "gate_failed",
            "message": "m", "verification": "not_run", "worker": { "name": worker, "model": model },
            "usage": { "input_tokens": 10, "cost_usd": 0.5 },
            "durations": { "preparing_ms": 50, "working_ms": 20_000_000u64 },
            "task_sha256": "0", "ended_at": Utc::now(), "ticket": ""
        });
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn ends_are_counted_by_state_phase_and_worker() {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::open(&dir.path().join("s")).unwrap();
        for _ in 0..3 {
            count(&spool, &result("claude", Some("m1")));
        }
        count(&spool, &TaskResult { attempt: 0, state: State::Cancelled, class: None, ..result("x", None) });
        let counters = read(&spool);
        assert_eq!((counters.ended_as(State::Failed), counters.ended_as(State::Cancelled)), (3, 1));
        assert_eq!(counters.ended["failed"][Class::GateFailed.as_str()], 3);
        assert_eq!(counters.phases["preparing"].buckets[0], 3);
        assert_eq!(*counters.phases["working"].buckets.last().unwrap(), 3, "longer than the last bound");
        assert_eq!(counters.phases["working"].sum_ms, 60_000_000);
        let used = &counters.used["claude"]["m1"];
        assert_eq!((used.tasks, used.usage.input_tokens, used.usage.cost_usd), (3, Some(30), Some(1.5)));
        assert!(!counters.used.contains_key("x"), "it never got to a worker");
    }

    #[test]
    fn an_end_is_counted_without_a_new_file_while_the_counts_fit_in_a_page() {
        use std::os::unix::fs::MetadataExt as _;
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::open(&dir.path().join("s")).unwrap();
        let file = || {
            let meta = path(&spool).metadata().unwrap();
            (meta.ino(), meta.len())
        };
        count(&spool, &result("w", None));
        let first = file();
        count(&spool, &result("w", Some("m")));
        assert_eq!(file().0, first.0);
        while file().1 <= durable::PAGE as u64 {
            count(&spool, &result("w", Some(&format!("model-{}", file().1))));
        }
        assert_ne!(file().0, first.0);
        assert!(read(&spool).ended_as(State::Failed) > 2);
    }

    #[test]
    fn names_without_end_do_not_make_a_file_without_end() {
        let mut counters = Counters::new();
        for k in 0..1000 {
            counters.add(&result("w", Some(&format!("model-{k}"))));
        }
        assert!(counters.used.values().map(BTreeMap::len).sum::<usize>() <= MOST_PAIRS + 1);
        assert_eq!(counters.used["other"]["other"].tasks, 800);
    }

    #[test]
    fn counts_of_many_at_once_are_all_kept_and_a_broken_file_begins_anew() {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::open(&dir.path().join("s")).unwrap();
        std::fs::write(path(&spool), "{").unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..10).for_each(|_| count(&spool, &result("w", None))));
            }
        });
        assert_eq!(read(&spool).ended_as(State::Failed), 40);
    }
}
