//! Who may die, and what becomes of the task: supervisor, keeper, both, the machine.

use crate::support::World;
use std::fs;
use workspool::keeper::StepStart;
use workspool::model::{State, TaskId, TaskResult};

/// A script that says its number, and goes on when it is told to, to end with `code`.
fn waiting(world: &World, code: i32) -> String {
    let at = |name: &str| world.root().join(name).display().to_string();
    format!("echo $$ > {}; while [ ! -e {} ]; do sleep 0.05; done; exit {code}", at("pid"), at("go"))
}

/// Kills every process of the world whose command line has `word`.
fn kill(world: &World, word: &str) {
    let found: Vec<_> = world.processes().into_iter().filter(|p| p.what.contains(word)).collect();
    assert!(!found.is_empty(), "there is no {word}");
    found.iter().for_each(|p| p.kill());
    let here = || world.processes().into_iter().map(|p| p.pid).collect::<Vec<_>>();
    world.await_until("they are dead", || found.iter().all(|p| !here().contains(&p.pid)));
}

/// Runs a task until its worker waits.
fn begun(world: &World, id: TaskId) {
    world.tick();
    world.await_file(world.root().join("pid"));
    assert_eq!(world.state(id), State::Running);
}

fn start_json(world: &World, id: TaskId) -> std::path::PathBuf {
    world.dir(id).attempt(1).step("work.1").join("start.json")
}

/// Ends the task after its supervisor and its keeper died, and returns what is said of the first attempt.
fn both_dead(world: &World, change: impl FnOnce(&mut StepStart)) -> TaskResult {
    let id = world.script(&waiting(world, 0)).with("retries", "0").ok();
    begun(world, id);
    let path = start_json(world, id);
    world.await_until("the worker is recorded", || {
        fs::read_to_string(&path).unwrap().contains("\"worker\":{")
    });
    kill(world, " exec ");
    kill(world, " keep ");
    let mut start: StepStart = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    change(&mut start);
    fs::write(&path, serde_json::to_vec(&start).unwrap()).unwrap();
    world.drain();
    let result = world.await_end(id);
    assert_eq!(result.state, State::Interrupted, "{result:?}");
    assert_eq!(world.starts(id), 1);
    world.assert_gone(&world.root().join("pid"));
    result
}

#[test]
fn a_dead_supervisor_costs_nothing_and_the_exit_code_is_the_true_one() {
    let world = World::new();
    let id = world.script(&waiting(&world, 7)).with("retries", "0").ok();
    begun(&world, id);
    kill(&world, " exec ");
    fs::write(world.root().join("go"), "").unwrap();
    // Nobody runs a loop: the keeper itself starts another supervisor.
    let result = world.await_end(id);
    assert_eq!((result.state, result.exit_code), (State::Failed, Some(7)));
    assert_eq!(world.starts(id), 1);
}

#[test]
fn a_supervisor_that_dies_while_the_gate_runs_costs_nothing_either() {
    let world = World::new();
    let repo = world.repo("project");
    let gate = waiting(&world, 0);
    let id = world.script("echo x > made.txt").repo(&repo).verify(&gate).ok();
    begun(&world, id);
    kill(&world, " exec ");
    fs::write(world.root().join("go"), "").unwrap();
    let result = world.await_end(id);
    assert_eq!(result.state, State::Succeeded, "{result:?}");
    assert_eq!(result.gate.len(), 1);
    assert_eq!(world.starts(id), 1);
}

/// Linux: elsewhere each step has a keeper of its own.
#[test]
#[cfg(target_os = "linux")]
fn a_keeper_stays_for_the_next_step_and_goes_with_its_supervisor() {
    let world = World::new();
    let id = world.script("true").verify("true").verify(&waiting(&world, 0)).with("retries", "0").ok();
    begun(&world, id);
    let keeper = |step: &str| {
        let path = world.dir(id).attempt(1).step(step).join("start.json");
        let start: StepStart = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
        start.keeper.pid
    };
    let pids = ["work.1", "gate.1.1", "gate.1.2"].map(keeper);
    assert!(pids.iter().all(|pid| *pid == pids[0]), "{pids:?}");
    // One that has a step ends it first, starts another supervisor, and goes.
    kill(&world, " exec ");
    fs::write(world.root().join("go"), "").unwrap();
    assert_eq!(world.await_end(id).state, State::Succeeded);
    world.await_until("nothing is left", || world.processes().is_empty());
}

#[test]
fn a_dead_keeper_ends_its_command_and_the_attempt_is_interrupted() {
    let world = World::new();
    let id = world.script(&waiting(&world, 0)).with("retries", "0").ok();
    begun(&world, id);
    kill(&world, " keep ");
    let result = world.await_end(id);
    assert_eq!(result.state, State::Interrupted, "{result:?}");
    assert!(result.message.contains("the keeper of step work.1 was killed"), "{}", result.message);
    assert!(result.census.is_some(), "the result says how it was looked for what is left");
    world.assert_gone(&world.root().join("pid"));
}

#[test]
fn where_both_die_what_is_left_is_looked_for_and_the_result_says_how() {
    let world = World::new();
    let result = both_dead(&world, |_| {});
    let census = result.census.as_deref();
    assert!(matches!(census, Some("kernel" | "scan")), "{census:?}");
}

#[test]
fn after_a_restart_of_the_machine_the_attempt_is_interrupted() {
    let world = World::new();
    let result = both_dead(&world, |start| {
        start.boot = "another".into();
        start.keeper.boot = "another".into();
    });
    assert!(result.message.contains("the machine was started again"), "{}", result.message);
}

#[test]
fn a_step_of_a_container_that_is_gone_is_interrupted_too() {
    let world = World::new();
    let result = both_dead(&world, |start| start.keeper.pidns += 1);
    assert!(result.message.contains("another pid namespace"), "{}", result.message);
}

#[test]
fn what_was_interrupted_is_tried_again_if_the_task_says_so() {
    let world = World::configured("[defaults]\nretry_delay = 0\n");
    let id = world.script(&waiting(&world, 0)).with("retries", "1").ok();
    begun(&world, id);
    kill(&world, " keep ");
    fs::write(world.root().join("go"), "").unwrap();
    world.drain();
    let result = world.succeeded(id);
    let states: Vec<State> = result.attempts.iter().map(|a| a.state).collect();
    assert_eq!(states, [State::Interrupted, State::Succeeded]);
}
