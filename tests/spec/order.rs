//! The order in which tasks are claimed, and what keeps them from it: hold, time, needs.

use crate::support::World;
use serde_json::{Value, json};
use std::fs;
use workspool::model::{HeldReason, Intake, State, TaskId};

/// A world in which one task runs at a time, and each says that it ran.
fn one_at_a_time() -> World {
    World::configured("max_concurrency = 1")
}

fn saying(world: &World, name: &str) -> String {
    format!("echo {name} >> {}", world.root().join("order").display())
}

fn order(world: &World) -> String {
    fs::read_to_string(world.root().join("order"))
        .unwrap_or_default()
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}

/// Makes a task that was just submitted look as if it had been waiting for so many hours.
fn age(world: &World, id: TaskId, hours: u64) -> TaskId {
    let path = world.spool().intake().join(format!("{id}.json"));
    let mut intake: Intake = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let time = ulid::Ulid::from_parts(id.timestamp_ms() - hours * 3_600_000, 1).to_string();
    let old: TaskId = time.parse().unwrap();
    intake.tasks[0].id = old;
    intake.tasks[0].submitted_at -= chrono::TimeDelta::hours(i64::try_from(hours).unwrap());
    fs::remove_file(path).unwrap();
    fs::write(world.spool().intake().join(format!("{old}.json")), serde_json::to_vec(&intake).unwrap())
        .unwrap();
    old
}

#[test]
fn higher_priority_goes_first_and_equals_go_in_order() {
    let world = one_at_a_time();
    for (name, priority) in [("low", "10"), ("a", "50"), ("b", "50"), ("high", "90"), ("c", "50")] {
        world.script(&saying(&world, name)).with("priority", priority).ok();
    }
    world.drain();
    assert_eq!(order(&world), "high a b c low");
}

#[test]
fn what_waits_for_a_task_takes_its_turn_as_soon_as_that_ends() {
    let world = one_at_a_time();
    let need = world.script(&saying(&world, "need")).with("priority", "90").ok();
    world.script(&saying(&world, "dependent")).with("priority", "90").needs(need).ok();
    world.script(&saying(&world, "other")).ok();
    world.drain();
    assert_eq!(order(&world), "need dependent other");
}

#[test]
fn nobody_goes_before_a_task_that_only_waits_for_an_end_to_be_recorded() {
    let world = World::configured("max_concurrency = 1\nrepo_concurrency = 1");
    let repo = world.repo("r");
    for name in ["a", "b"] {
        world.script(&saying(&world, name)).repo(&repo).ok();
    }
    world.script(&saying(&world, "c")).ok();
    world.drain();
    assert_eq!(order(&world), "a b c");
}

#[test]
fn a_batch_goes_in_its_order() {
    let world = one_at_a_time();
    let tasks: Vec<Value> =
        (0..12).map(|n| json!({"objective": saying(&world, &n.to_string()), "worker": "shell"})).collect();
    world.submit_file("-").input(json!({ "tasks": tasks }).to_string()).all();
    world.drain();
    assert_eq!(order(&world), "0 1 2 3 4 5 6 7 8 9 10 11");
}

#[test]
fn waiting_raises_so_that_nothing_starves() {
    let world = one_at_a_time();
    let old = world.script(&saying(&world, "old")).with("priority", "0").ok();
    age(&world, old, 24 * 30);
    world.script(&saying(&world, "new")).with("priority", "100").ok();
    world.drain();
    assert_eq!(order(&world), "old new");
}

#[test]
fn a_held_task_waits_for_its_release() {
    let world = World::new();
    let id = world.script("true").flag("hold").ok();
    world.drain();
    assert_eq!(world.state(id), State::Held);
    let why = world.on("why", id, &[]).ok().text();
    assert!(why.contains("held for hand") && why.contains("workspool release"), "{why}");
    assert!(world.on("release", id, &[]).ok().text().contains("queued"));
    world.drain();
    world.succeeded(id);
    world.on("release", id, &[]).exits(6).says(&["is succeeded: only a waiting task can be released"]);
    world.on("hold", id, &[]).exits(6).says(&["only a waiting task can be held"]);
}

#[test]
fn a_queued_task_can_be_held() {
    let world = World::new();
    let id = world.script("true").ok();
    world.on("hold", id, &[]).ok();
    world.on("hold", id, &[]).ok();
    world.drain();
    assert_eq!(world.state(id), State::Held);
    world.on("release", id, &[]).ok();
    world.on("release", id, &[]).exits(6).says(&["is not held, it is queued"]);
}

#[test]
fn an_edit_makes_a_revision_and_keeps_the_old_one() {
    let world = one_at_a_time();
    let first = world.script(&saying(&world, "first")).ok();
    let second = world.script(&saying(&world, "second")).ok();
    let ran = world.on("edit", second, &["--priority", "99", "--objective", &saying(&world, "edited")]).ok();
    assert!(ran.text().contains("revision 2"), "{}", ran.text());
    world.on("edit", second, &["--priority", "101"]).exits(3).says(&["priority: 101 is out of range"]);
    world.drain();
    assert_eq!(order(&world), "edited first");
    world.succeeded(first);
    let dir = world.dir(second);
    let old: Value = serde_json::from_slice(&fs::read(dir.record(1)).unwrap()).unwrap();
    assert_eq!(old["spec"]["objective"], saying(&world, "second"));
    assert_eq!(world.task(second).revision, 2);
    let result = world.succeeded(second);
    assert_eq!(result.task_sha256, workspool::spool::events::hash(&fs::read(dir.record(2)).unwrap()));
    world.on("edit", second, &["--priority", "1"]).exits(6).says(&["only a waiting task can be edited"]);
}

#[test]
fn not_before_its_time() {
    let world = World::new();
    let later = world.script("true").with("not-before", "1h").ok();
    let soon = world.script("true").with("not-before", "1s").ok();
    world.drain();
    assert_eq!(world.state(later), State::Held);
    let why = world.on("why", later, &[]).ok().text();
    assert!(why.contains("held for time") && why.contains("it will be queued at"), "{why}");
    let _runner = world.run_loop();
    world.await_end(soon);
    let result = world.succeeded(soon);
    assert!(
        result.started_at.unwrap() >= world.task(soon).spec.not_before.unwrap(),
        "it ran before its time"
    );
    // Somebody may know better.
    world.on("release", later, &[]).ok();
    assert_eq!(world.await_end(later).state, State::Succeeded);
}

#[test]
fn what_is_too_late_expires_and_is_not_run() {
    let world = World::new();
    let queued = world.script("true").with("expires", "1s").ok();
    let held = world.script("true").with("expires", "1s").flag("hold").ok();
    let dependent = world.script("true").needs(queued).ok();
    std::thread::sleep(std::time::Duration::from_millis(1200));
    world.drain();
    for id in [queued, held] {
        let result = world.result(id);
        assert_eq!((result.state, result.attempt), (State::Expired, 0));
        assert_eq!(world.starts(id), 0);
    }
    assert_eq!(world.result(dependent).state, State::Skipped);
    world.on("wait", queued, &[]).exits(15);
    world.on("retry", queued, &[]).exits(6).says(&["has expired"]);
    world.script("true").with("not-before", "2h").with("expires", "1h").refused(3, &["expires: lies before"]);
}

#[test]
fn a_task_waits_for_what_it_needs() {
    let world = World::new();
    let first = world.script(&saying(&world, "first")).flag("hold").ok();
    let second = world.script(&saying(&world, "second")).needs(first).ok();
    let third = world.script(&saying(&world, "third")).needs(first).needs(second).ok();
    world.drain();
    assert_eq!(world.state(third), State::Held);
    assert_eq!(world.spool().find_ticket(third).unwrap().map(|f| f.place.state()), Some(State::Held));
    assert_eq!(world.names(&format!("held/{}", HeldReason::Needs)).len(), 2);
    let why = world.on("why", third, &[]).ok().text();
    assert!(why.contains(&format!("it needs {first}, which is held")), "{why}");
    world.on("release", third, &[]).exits(6).says(&["held for needs", "cannot be released by hand"]);
    world.on("release", first, &[]).ok();
    world.drain();
    assert_eq!(order(&world), "first second third");
}

#[test]
fn a_need_that_fails_skips_all_that_depend_on_it_and_is_named() {
    let world = World::new();
    let batch = json!({"tasks": [
        {"name": "build", "objective": "exit 3", "worker": "shell"},
        {"name": "test", "objective": "true", "worker": "shell", "needs": ["build"]},
        {"name": "ship", "objective": "true", "worker": "shell", "needs": ["test"]},
        {"name": "docs", "objective": "true", "worker": "shell"},
    ]});
    let ids = world.submit_file("-").input(batch.to_string()).all();
    world.drain();
    assert_eq!(world.result(ids[0]).state, State::Failed);
    let test = world.result(ids[1]);
    assert_eq!((test.state, test.attempt), (State::Skipped, 0));
    assert!(
        test.message.contains(&format!("needs task {}, which ended as failed", ids[0])),
        "{}",
        test.message
    );
    let ship = world.result(ids[2]);
    assert!(
        ship.message.contains(&format!("needs task {}, which ended as skipped", ids[1])),
        "{}",
        ship.message
    );
    world.succeeded(ids[3]);
    world.on("wait", ids[2], &[]).exits(16);
    assert_eq!(world.names("releases"), Vec::<String>::new());
}

#[test]
fn a_need_that_has_ended_already_is_met_or_not_at_once() {
    let world = World::new();
    let (good, bad) = (world.script("true").ok(), world.script("false").ok());
    world.drain();
    let (runs, skipped) = (world.script("true").needs(good).ok(), world.script("true").needs(bad).ok());
    world.drain();
    world.succeeded(runs);
    assert_eq!(world.result(skipped).state, State::Skipped);
}

#[test]
fn names_of_a_batch_are_checked() {
    let world = World::new();
    let refused = |tasks: Value, words: &[&str]| {
        world.submit_file("-").input(json!({ "tasks": tasks }).to_string()).refused(3, words);
    };
    refused(
        json!([{"name": "a", "objective": "x", "worker": "shell", "needs": ["b"]}, {"name": "b", "objective": "x", "worker": "shell", "needs": ["a"]}]),
        &["need each other in a circle: a, b"],
    );
    refused(
        json!([{"name": "a", "objective": "x", "worker": "shell"}, {"name": "a", "objective": "x", "worker": "shell"}]),
        &["tasks[1].name: two tasks of the batch are named \"a\""],
    );
    let typo = json!({"tasks": [{"name": "build", "objective": "x", "worker": "shell"}, {"objective": "x", "worker": "shell", "needs": ["biuld"]}]});
    world
        .submit_file("-")
        .input(typo.to_string())
        .refused(4, &["tasks[1].needs[0]", "did you mean \"build\""]);
    refused(
        json!([{"name": "a", "objective": "x", "worker": "shell", "needs": ["a"]}]),
        &["tasks[0].needs[0]: a task cannot need itself"],
    );
}

#[test]
fn a_cancelled_need_skips_too_and_a_retry_does_not_bring_it_back_by_itself() {
    let world = World::new();
    let need = world.script("true").flag("hold").ok();
    let dependent = world.script("true").needs(need).ok();
    world.on("cancel", need, &["--reason", "not wanted"]).ok();
    assert_eq!(world.result(dependent).state, State::Skipped);
    // Its need is still cancelled: trying again comes to the same end, and says so.
    world.on("retry", dependent, &[]).exits(6);
    world.on("retry", need, &[]).ok();
    world.drain();
    world.succeeded(need);
    world.on("retry", dependent, &[]).ok();
    world.drain();
    world.succeeded(dependent);
}
