//! What no task may exceed, whoever submits it: the owner's ceilings.

use crate::support::World;
use serde_json::json;
use workspool::model::State;

const INPUT: i32 = 3;

#[test]
fn a_task_above_a_ceiling_is_refused_and_the_ceiling_is_named() {
    let world =
        World::configured("[ceilings]\npermission = \"read_only\"\ntimeout = 60\nbudget = { turns = 5 }");
    world.script("true").refused(INPUT, &["permission", "wider than the owner allows", "config.toml"]);
    world
        .script("true")
        .with("permission", "read_only")
        .with("timeout", "61")
        .refused(INPUT, &["timeout", "60"]);
    let spec =
        json!({"objective": "true", "worker": "shell", "permission": "read_only", "budget": {"turns": 6}});
    world
        .submit_file("-")
        .input(spec.to_string())
        .refused(INPUT, &["budget.turns", "6 is more than the owner allows"]);
    assert_eq!(world.task_count(), 0);
}

#[test]
fn the_longest_time_in_the_queue_expires_a_task() {
    let world = World::configured("[ceilings]\nqueue_age = 1");
    let id = world.script("true").flag("hold").ok();
    let _runner = world.run_loop();
    let result = world.await_end(id);
    assert_eq!(result.state, State::Expired);
    assert_eq!(world.starts(id), 0);
}

#[test]
fn tasks_that_tasks_submit_are_limited_in_number_and_depth() {
    let world = World::configured("[ceilings]\nchildren = 1\ndepth = 1");
    let parent = world.script("true").ok();
    let child = |parent: &dyn std::fmt::Display| {
        json!({"objective": "true", "worker": "shell", "parent": parent.to_string()}).to_string()
    };
    let first = world.submit_file("-").input(child(&parent)).ok();
    world.drain();
    world.submit_file("-").input(child(&parent)).refused(INPUT, &["parent", "has submitted 1 tasks"]);
    world.submit_file("-").input(child(&first)).refused(INPUT, &["parent", "1 deep"]);
    let unknown = "01jdq3m6t8v5x2c4k7n9p0r1sa";
    world.submit_file("-").input(child(&unknown)).refused(4, &["parent", unknown]);
}
