//! Cancelling: wherever a task stands, by any process, and nothing of it is left.

use crate::support::World;
use std::time::{Duration, Instant};
use workspool::model::{Phase, State, TaskId, TaskResult};

/// Cancels a task that runs, whose process has written its number to `pid`.
fn cancel_running(world: &World, id: TaskId) -> TaskResult {
    let pid = world.root().join("pid");
    world.tick();
    world.await_file(&pid);
    let began = Instant::now();
    let said = world.on("cancel", id, &["--reason", "changed my mind", "--wait"]).ok().text();
    assert!(said.contains("cancel requested"), "{said}");
    // Two seconds on a quiet machine, of which most is the grace that a worker gets.
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    let result = world.await_end(id);
    assert_eq!(result.state, State::Cancelled);
    assert!(result.message.contains("changed my mind"), "{}", result.message);
    world.assert_gone(&pid);
    assert_eq!(world.names("requests"), Vec::<String>::new());
    world.on("wait", id, &[]).exits(12);
    result
}

fn stubborn(world: &World) -> String {
    let pid = world.root().join("pid");
    world.misbehave_line(&["ignore-term", "bare-child", pid.to_str().unwrap(), "600000", "sleep", "600000"])
}

#[test]
fn a_queued_or_held_task_is_cancelled_at_once() {
    let world = World::new();
    let queued = world.script("true").ok();
    let held = world.script("true").flag("hold").ok();
    let timed = world.script("true").with("not-before", "1h").ok();
    let ran = world
        .run(&[
            "cancel",
            &queued.to_string(),
            &held.to_string(),
            &timed.to_string(),
            "--reason",
            "never mind",
        ])
        .ok();
    assert_eq!(ran.text().matches("  cancelled").count(), 3);
    for id in [queued, held, timed] {
        let result = world.result(id);
        assert_eq!((result.state, result.attempt), (State::Cancelled, 0));
        assert_eq!(result.message, "cancelled before it started: never mind");
    }
    world.drain();
    assert_eq!(world.starts(queued), 0);
    world.on("cancel", queued, &[]).exits(6).says(&["has ended already (cancelled)"]);
}

#[test]
fn a_running_worker_is_ended_with_all_its_processes() {
    let world = World::new();
    let repo = world.repo("r");
    let head = repo.head();
    let id = world.script(&format!("echo half > half.txt; {}", stubborn(&world))).repo(&repo).ok();
    let result = cancel_running(&world, id);
    assert_eq!(result.phase, Some(Phase::Working));
    assert_eq!(repo.show(&result.salvage.unwrap().name, "tree/half.txt"), "half\n");
    assert_eq!(repo.rev(&format!("workspool/{id}")), head);
}

#[test]
fn a_running_setup_is_ended() {
    let world = World::new();
    let repo = world.repo("r");
    let id = world.script("touch never").repo(&repo).with("setup", stubborn(&world)).ok();
    assert_eq!(cancel_running(&world, id).phase, Some(Phase::Setup));
}

#[test]
fn a_running_gate_is_ended() {
    let world = World::new();
    let repo = world.repo("r");
    let id = world.script("echo x > x.txt").repo(&repo).verify(&stubborn(&world)).ok();
    let result = cancel_running(&world, id);
    assert_eq!((result.phase, result.commit), (Some(Phase::Verifying), None));
    assert_eq!(repo.show(&result.salvage.unwrap().name, "tree/x.txt"), "x\n");
}

#[test]
fn a_cancel_reaches_a_task_whose_supervisor_is_dead() {
    let world = World::new();
    let id = world.script(&stubborn(&world)).ok();
    world.tick();
    world.await_file(world.root().join("pid"));
    for process in world.processes().iter().filter(|p| p.what.contains(" exec ")) {
        process.kill();
    }
    world.on("cancel", id, &[]).ok();
    assert_eq!(world.await_end(id).state, State::Cancelled);
    world.assert_gone(&world.root().join("pid"));
}

#[test]
fn a_cancel_that_came_too_late_does_not_hit_the_next_attempt() {
    let world = World::new();
    let id = world.script("true").ok();
    world.drain();
    world.succeeded(id);
    world.on("cancel", id, &[]).exits(6).says(&["has ended already (succeeded)"]);
    world.on("retry", id, &[]).ok();
    world.drain();
    assert_eq!(world.succeeded(id).attempt, 2);
    assert_eq!(world.names("requests"), Vec::<String>::new());
}

#[test]
fn a_cancelled_task_can_be_tried_again() {
    let world = World::new();
    let id = world.script("true").ok();
    world.on("cancel", id, &[]).ok();
    world.on("retry", id, &[]).ok();
    world.drain();
    assert_eq!(world.succeeded(id).attempt, 1);
}

#[test]
fn a_task_that_is_about_to_be_repeated_can_be_cancelled() {
    let world = World::configured("[defaults]\nretry_delay = 600");
    let id = world.script("exit 1").with("retries", "3").ok();
    world.tick();
    world.await_state(id, State::Held);
    let why = world.on("why", id, &[]).ok().text();
    assert!(why.contains("attempt 1 ended as failed") && why.contains("next one in"), "{why}");
    world.on("cancel", id, &[]).ok();
    assert_eq!(world.result(id).state, State::Cancelled);
}

#[test]
fn one_that_has_ended_does_not_keep_the_others_from_being_cancelled() {
    let world = World::new();
    let ended = world.script("true").ok();
    world.drain();
    let waiting = world.script("true").flag("hold").ok();
    world
        .run(&["cancel", &ended.to_string(), &waiting.to_string()])
        .exits(6)
        .says(&["has ended already (succeeded)"]);
    assert_eq!(world.state(waiting), State::Cancelled);
}

/// Git itself takes long: a filter of the user's, or a large tree.
#[test]
fn a_checkout_is_ended() {
    for kind in ["worktree", "clone"] {
        let world = World::new();
        let repo = world.repo("r");
        let pid = world.root().join("pid");
        repo.write(".gitattributes", "*.slow filter=slow\n").write("a.slow", "a\n").commit("slow");
        let smudge = format!("echo $$ > {}; exec sleep 600", pid.display());
        repo.git(&["config", "filter.slow.smudge", &smudge]);
        let id = world.script("true").repo(&repo).with("workspace", kind).ok();
        assert_eq!(cancel_running(&world, id).phase, Some(Phase::Preparing), "{kind}");
        assert_eq!(world.names("queue"), Vec::<String>::new());
        world.run(&["check"]).ok();
    }
}
