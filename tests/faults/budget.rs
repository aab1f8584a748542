//! What a task may cost: syncs, files, processes and git calls, counted exactly.
//!
//! Times drift with the machine, counts do not. A change that makes a task cheaper lowers a budget; one that
//! makes it dearer has to say so here.

use crate::bench::Bench;
use std::collections::BTreeMap;

/// How often each point was passed by all processes of a run.
fn counted(bench: &Bench, args: &[&str]) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for name in bench.all_points(args) {
        *counts.entry(name).or_insert(0) += 1;
    }
    counts
}

fn of(counts: &BTreeMap<String, u64>, names: &[&str]) -> u64 {
    names.iter().filter_map(|name| counts.get(*name)).sum()
}

/// Waits for the disk.
const SYNCS: [&str; 5] = ["sync", "sync-file", "sync-dir", "sync-tree", "sync-fs"];
/// How often a task waits for the disk that does nothing, if its supervisor does nothing else.
const NOTHING: u64 = 21;
/// The same, if the supervisor goes on: claim 2, journal 1, end 2.
const GOING_ON: u64 = 5;
const PROCESSES: [&str; 5] = ["spawn-supervisor", "spawn-keeper", "hand-step", "spawn-worker", "git"];
/// What makes a new file or folder.
const FILES: [&str; 3] = ["create", "log-create", "mkdir"];

const TEMPORARY: [&str; 6] = ["submit", "true", "--worker", "shell", "--workspace", "temporary"];
const DRAIN: [&str; 5] = ["run", "--drain", "--poll", "50ms", "--quiet"];

/// A bench whose first task is over: what is made once is there.
fn warm() -> Bench {
    let bench = Bench::new();
    bench.run(&TEMPORARY);
    bench.drain();
    bench
}

#[test]
fn a_submission_is_one_synced_file() {
    let counts = counted(&warm(), &TEMPORARY);
    assert_eq!(of(&counts, &SYNCS), 2, "the file and its folder: {counts:?}");
    assert_eq!(of(&counts, &PROCESSES), 0, "{counts:?}");
}

#[test]
fn a_batch_costs_no_more_syncs_than_a_task() {
    let bench = warm();
    let task = r#"{"objective":"true","worker":"shell","workspace":"temporary"}"#;
    std::fs::write(
        bench.path("batch.json"),
        format!(r#"{{"version":1,"tasks":[{}]}}"#, [task; 50].join(",")),
    )
    .unwrap();
    let file = bench.path("batch.json");
    let counts = counted(&bench, &["submit", "--file", file.to_str().unwrap()]);
    assert_eq!(of(&counts, &SYNCS), 2, "{counts:?}");
}

#[test]
fn a_task_that_does_nothing_keeps_to_its_budget() {
    let bench = warm();
    bench.run(&TEMPORARY);
    bench.run(&["list"]);
    let counts = counted(&bench, &DRAIN);
    // Claim 2; what the receipt names 9, and its folders 4; receipt, result and their folder 3; history and end 3.
    assert_eq!(of(&counts, &SYNCS), NOTHING, "{counts:?}");
    // Its folders 5, and 12 files; one more for the first count of the spool.
    assert_eq!(of(&counts, &FILES), 17 + 1, "{counts:?}");
    assert_eq!(PROCESSES.map(|name| of(&counts, &[name])), [1, 1, 0, 1, 0], "{counts:?}");
}

#[test]
fn a_supervisor_goes_on_to_the_next_task() {
    let bench = warm();
    const TASKS: u64 = 12;
    for _ in 0..TASKS {
        bench.run(&TEMPORARY);
    }
    bench.run(&["list"]);
    let counts =
        counted(&bench, &["--set", "max_concurrency=1", "run", "--drain", "--poll", "60s", "--quiet"]);
    assert_eq!(of(&counts, &["spawn-keeper", "hand-step"]), TASKS, "{counts:?}");
    // A keeper goes with its supervisor.
    assert_eq!(of(&counts, &["spawn-keeper"]), of(&counts, &["spawn-supervisor"]), "{counts:?}");
    // One loop, one supervisor: its journal 2, and 1 for all files of its ends.
    assert_eq!(of(&counts, &["spawn-supervisor"]), 1, "{counts:?}");
    assert_eq!(of(&counts, &SYNCS), GOING_ON * (TASKS - 1) + NOTHING + 3, "{counts:?}");
    // The loop may be faster once, when it starts.
    assert!(of(&counts, &["spawn-supervisor"]) <= 3, "{counts:?}");
}

/// What one task in a git worktree costs.
fn drained(bench: &Bench) -> BTreeMap<String, u64> {
    bench.run(&["submit", "echo new > new.txt", "--repo", ".", "--worker", "shell", "--verify", "true"]);
    bench.run(&["list"]);
    counted(bench, &DRAIN)
}

#[test]
fn a_task_in_a_worktree_keeps_to_its_budget_of_git_processes() {
    let bench = Bench::new();
    drained(&bench);
    let counts = drained(&bench);
    assert_eq!(PROCESSES.map(|name| of(&counts, &[name])), [1, 1, 1, 2, 13], "{counts:?}");
    // As for a task that does nothing, with one more step and the view. What git waits for is its own.
    assert_eq!(of(&counts, &SYNCS), 36, "{counts:?}");
    let again = drained(&bench);
    let costs = |counts: &BTreeMap<String, u64>| [&SYNCS[..], &PROCESSES].map(|names| of(counts, names));
    assert_eq!(costs(&again), costs(&counts), "the same again: {again:?}");
}

#[test]
fn a_task_in_a_warm_tree_keeps_to_its_budget_of_git_processes() {
    let bench = Bench::new();
    bench.keep_warm();
    drained(&bench);
    let counts = drained(&bench);
    // As in a tree that is made anew, but for filling it: then what tree the commit has, and the files that differ.
    assert_eq!(PROCESSES.map(|name| of(&counts, &[name])), [1, 1, 1, 2, 14], "{counts:?}");
    assert_eq!(of(&counts, &SYNCS), 36, "{counts:?}");
}

#[test]
fn many_submissions_are_expanded_with_the_folders_synced_once() {
    let bench = warm();
    const TASKS: u64 = 20;
    for _ in 0..TASKS {
        bench.run(&TEMPORARY);
    }
    let counts = counted(&bench, &["list"]);
    // Each record and its folder; `tasks/` and `queue/` once.
    assert_eq!(of(&counts, &SYNCS), 2 * TASKS + 2, "{counts:?}");
}
