//! The keeper killed, or its disk failing, at every point at which it touches the world.
//!
//! Needs the `faults` feature.

#![cfg(feature = "faults")]
#![allow(clippy::unwrap_used, reason = "a test may panic anywhere, also in its helpers")]

mod bench;

use bench::Bench;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::Duration;
use workspool::keeper::{Ended, Orphans, StepState, launch_with, sweep, wait};

/// What the command does: it leaves a stray, says something, and counts that it ran.
const SCRIPT: &str = r#"setsid sleep 300 & echo ran >> runs; echo '{"fact":"final","ok":true}'; exit 3"#;

/// A program that is the keeper with the fault `order`; names of points passed go to `points`.
fn faulty(bench: &Bench, order: &str) -> PathBuf {
    let path = bench.path("faulty");
    let (log, program) = (bench.path("points"), env!("CARGO_BIN_EXE_workspool"));
    let script = format!(
        "#!/bin/sh\nWORKSPOOL_FAULT='{order}' WORKSPOOL_FAULT_LOG='{}' exec '{program}' \"$@\"\n",
        log.display()
    );
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
    path
}

fn runs(bench: &Bench) -> usize {
    fs::read_to_string(bench.work().join("runs")).map_or(0, |t| t.lines().count())
}

/// Runs the script under a keeper with a fault; returns the state, and how many points were passed.
fn run_with(bench: &Bench, order: &str) -> (StepState, usize) {
    let mut plan = bench.plan(SCRIPT);
    plan.parser = "workspool".into();
    plan.grace_ms = 50;
    plan.unkillable_ms = 300;
    plan.progress = Some(bench.path("progress.json"));
    let program = faulty(bench, order);
    let mut keeper = launch_with(&program, &bench.step(), &plan, &bench.path("task.lock")).unwrap();
    let state = wait(&mut keeper, &bench.step()).unwrap();
    if let StepState::Lost(_) = state {
        let cleared =
            sweep(&bench.step(), &plan.marker, Orphans::Elsewhere, Duration::ZERO, Duration::from_secs(20))
                .unwrap();
        assert!(cleared.cleared.census.is_empty(), "{order}: {cleared:?}");
    }
    assert_eq!(bench.marked(&plan), 0, "{order}: something is alive");
    let points = fs::read_to_string(bench.path("points")).unwrap_or_default().lines().count();
    (state, points)
}

#[test]
fn a_keeper_killed_anywhere_leaves_a_state_that_is_true() {
    let (_, points) = run_with(&Bench::new(), "0:kill");
    assert!(points > 8, "only {points} points");
    let mut seen = [0; 3];
    for k in 1..=points {
        let bench = Bench::new();
        let (state, _) = run_with(&bench, &format!("{k}:kill"));
        match state {
            StepState::NotStarted => {
                assert_eq!(runs(&bench), 0, "{k}: what is said never to have run has run");
                seen[0] += 1;
            }
            StepState::Lost(_) => seen[1] += 1,
            StepState::Ended(exit) => {
                assert_eq!(exit.ended, Ended::Exited { code: 3 }, "{k}");
                seen[2] += 1;
            }
            StepState::Running(_) => panic!("{k}: nobody holds the lock"),
        }
    }
    assert!(seen.iter().take(2).all(|n| *n > 0), "{seen:?}");
}

#[test]
fn a_full_disk_anywhere_runs_nothing_twice_and_makes_nothing_up() {
    let (_, points) = run_with(&Bench::new(), "0:kill");
    for k in 1..=points {
        let bench = Bench::new();
        let (state, _) = run_with(&bench, &format!("{k}:enospc"));
        match state {
            StepState::Ended(exit) => match exit.ended {
                Ended::NotStarted { .. } => assert_eq!(runs(&bench), 0, "{k}"),
                Ended::Exited { code: 3 } => assert_eq!(runs(&bench), 1, "{k}"),
                other => panic!("{k}: {other:?}"),
            },
            other => panic!("{k}: {other:?}"),
        }
    }
}
