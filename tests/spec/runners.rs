//! Runners: any number at once, each task once; and limits on what runs at the same time.

use crate::support::World;
use serde_json::json;
use std::collections::BTreeMap;
use std::fs;
use std::process::Stdio;
use workspool::model::{State, TaskId};

/// A script that says that it is there, and goes on when it is told to.
fn waiting(world: &World, name: &str) -> String {
    let (there, go) = (world.root().join(format!("{name}.there")), world.root().join(format!("{name}.go")));
    format!("echo x > {}; while [ ! -e {} ]; do sleep 0.05; done", there.display(), go.display())
}

fn go(world: &World, name: &str) {
    fs::write(world.root().join(format!("{name}.go")), "").unwrap();
}

fn await_there(world: &World, name: &str) {
    world.await_file(world.root().join(format!("{name}.there")));
}

#[test]
fn two_loops_side_by_side_run_two_hundred_tasks_once_each() {
    let world = World::new();
    let runs = world.root().join("runs");
    let script = format!("echo $WORKSPOOL_TASK >> {}", runs.display());
    let tasks: Vec<_> = (0..200).map(|_| json!({"objective": script, "worker": "shell"})).collect();
    let ids = world.submit_file("-").input(json!({ "tasks": tasks }).to_string()).all();
    let (a, b) = (world.run_drain(), world.run_drain());
    for said in [a.join(), b.join()] {
        assert!(!said.contains("error:"), "{said}");
    }
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for line in fs::read_to_string(runs).unwrap().lines() {
        *counts.entry(line.to_owned()).or_default() += 1;
    }
    assert_eq!(counts.len(), 200);
    assert!(counts.values().all(|n| *n == 1), "{counts:?}");
    for id in ids {
        assert_eq!(world.succeeded(id).attempts.len(), 1);
    }
}

#[test]
fn runners_and_supervisors_that_are_killed_at_random_run_each_task_once() {
    let world = World::new();
    let runs = world.root().join("runs");
    let script = format!("echo $WORKSPOOL_TASK >> {}; sleep 0.05", runs.display());
    let tasks: Vec<_> =
        (0..60).map(|_| json!({"objective": script, "worker": "shell", "retries": 9})).collect();
    let ids = world.submit_file("-").input(json!({ "tasks": tasks }).to_string()).all();
    let mut runners: Vec<_> = (0..3).map(|_| world.run_loop()).collect();
    let mut dice = 7_u32;
    let mut killed = 0;
    world.await_until("all tasks have ended", || {
        dice = dice.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let k = (dice >> 16) as usize;
        if killed < 40 {
            killed += 1;
            if k.is_multiple_of(3) {
                runners[k % 5 % 3].kill();
                runners[k % 5 % 3] = world.run_loop();
            } else if let Some(p) = world.processes().into_iter().find(|p| p.what.contains(" exec ")) {
                p.kill();
            }
        }
        ids.iter().all(|id| world.spool().state_of(*id).is_ok_and(State::is_terminal))
    });
    let mut lines: Vec<String> = fs::read_to_string(runs).unwrap().lines().map(str::to_owned).collect();
    lines.sort_unstable();
    assert_eq!(lines, ids.iter().map(ToString::to_string).collect::<Vec<_>>(), "each task once");
    for id in ids {
        let result = world.succeeded(id);
        assert_eq!(result.attempts.len(), 1, "{result:?}");
        workspool::spool::events::verify_chain(&fs::read(world.dir(id).events()).unwrap()).unwrap();
    }
}

#[test]
fn fifty_submitting_processes_lose_none() {
    let world = World::new();
    let _runner = world.run_loop();
    let children: Vec<_> = (0..50)
        .map(|_| {
            let mut command = world.script("true").command();
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    let mut ids: Vec<TaskId> = children
        .into_iter()
        .map(|child| {
            let out = child.wait_with_output().unwrap();
            assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
            String::from_utf8(out.stdout).unwrap()[..26].parse().unwrap()
        })
        .collect();
    ids.sort_unstable();
    for id in &ids {
        assert_eq!(world.await_end(*id).state, State::Succeeded);
        assert_eq!(world.starts(*id), 1);
    }
    assert_eq!(world.names("tasks"), ids.iter().map(ToString::to_string).collect::<Vec<_>>());
}

#[test]
fn a_killed_runner_kills_no_task() {
    let world = World::new();
    let id = world.script(&waiting(&world, "a")).ok();
    let mut runner = world.run_loop();
    await_there(&world, "a");
    runner.kill();
    assert_eq!(world.state(id), State::Running);
    // Another runner leaves what lives alone.
    world.tick();
    go(&world, "a");
    assert_eq!(world.await_end(id).state, State::Succeeded);
    assert_eq!(world.starts(id), 1);
    assert_eq!(world.result(id).attempts.len(), 1);
}

#[test]
fn a_runner_that_is_told_to_stop_leaves_its_tasks_to_go_on() {
    let world = World::new();
    let id = world.script(&waiting(&world, "a")).ok();
    let runner = world.run_loop();
    await_there(&world, "a");
    runner.stop();
    assert_eq!(world.state(id), State::Running);
    go(&world, "a");
    assert_eq!(world.await_end(id).state, State::Succeeded);
}

#[test]
fn a_tick_returns_without_waiting() {
    let world = World::new();
    let id = world.script(&waiting(&world, "a")).ok();
    world.tick();
    await_there(&world, "a");
    assert_eq!(world.state(id), State::Running);
    let shown = world.on("show", id, &[]).ok().text();
    assert!(shown.contains("working (attempt 1)"), "{shown}");
    world.on("hold", id, &[]).exits(6).says(&["is running: only a waiting task can be held"]);
    world.on("retry", id, &[]).exits(6).says(&["is running"]);
    world.on("diff", id, &[]).exits(6).says(&["has no diff yet, it is running"]);
    go(&world, "a");
    assert_eq!(world.await_end(id).state, State::Succeeded);
}

#[test]
fn a_loop_wakes_at_once_for_a_new_task() {
    let world = World::new();
    // With a poll of an hour, only an event can have woken it.
    let mut command = world.command(&["run", "--poll", "3600s"]);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    world.await_until("the runner has made its first pass", || world.spool_path().join("bell").exists());
    for _ in 0..3 {
        let id = world.script("true").ok();
        assert_eq!(world.await_end(id).state, State::Succeeded);
    }
    world.drop_file("spool/inbox", "a.json", json!({"objective": "true", "worker": "shell"}).to_string());
    world.await_file(world.spool_path().join("taken/a.json"));
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn no_more_than_the_spool_allows() {
    let world = World::configured("max_concurrency = 2");
    let ids: Vec<_> = ["a", "b", "c"].map(|n| world.script(&waiting(&world, n)).ok()).to_vec();
    world.tick();
    await_there(&world, "a");
    await_there(&world, "b");
    world.tick();
    assert_eq!(world.state(ids[2]), State::Queued);
    let why = world.on("why", ids[2], &[]).ok().text();
    assert!(why.contains("2 tasks run, which is max_concurrency"), "{why}");
    ["a", "b", "c"].iter().for_each(|n| go(&world, n));
    world.drain();
    ids.iter().for_each(|id| drop(world.succeeded(*id)));
}

#[test]
fn a_full_repository_does_not_block_the_next_task() {
    let world = World::configured("repo_concurrency = 1");
    let repo = world.repo("r");
    // The same repository by another checkout is the same repository.
    repo.git(&["worktree", "add", "-q", "--detach", "../linked"]);
    let first = world.script(&waiting(&world, "a")).repo(&repo).ok();
    let second = world.script("true").with("repo", "repos/linked").ok();
    let elsewhere = world.script("true").ok();
    world.tick();
    await_there(&world, "a");
    assert_eq!(world.await_end(elsewhere).state, State::Succeeded);
    world.tick();
    assert_eq!(world.state(second), State::Queued);
    let why = world.on("why", second, &[]).ok().text();
    assert!(why.contains("1 tasks run on its repository, which is repo_concurrency"), "{why}");
    go(&world, "a");
    world.drain();
    world.succeeded(first);
    world.succeeded(second);
}

#[test]
fn a_worker_has_its_own_limit() {
    let world = World::configured("[worker_concurrency]\nshell = 1");
    let (first, second) = (world.script(&waiting(&world, "a")).ok(), world.script("true").ok());
    world.tick();
    await_there(&world, "a");
    world.tick();
    assert_eq!(world.state(second), State::Queued);
    let why = world.on("why", second, &[]).ok().text();
    assert!(why.contains("1 tasks of worker shell run, which is its limit"), "{why}");
    go(&world, "a");
    world.drain();
    world.succeeded(first);
    world.succeeded(second);
}

#[test]
fn a_folder_takes_one_task_at_a_time() {
    let world = World::new();
    let folder = world.root().join("folder");
    fs::create_dir(&folder).unwrap();
    let submit =
        |script: &str| world.script(script).with("repo", &folder).with("workspace", "directory").ok();
    let first = submit(&format!("echo one > a.txt; {}", waiting(&world, "a")));
    let second = submit("cat a.txt; echo two > a.txt");
    world.tick();
    await_there(&world, "a");
    world.tick();
    assert_eq!(world.state(second), State::Queued);
    let why = world.on("why", second, &[]).ok().text();
    assert!(why.contains("takes one at a time"), "{why}");
    go(&world, "a");
    world.drain();
    let paths = |id| world.succeeded(id).changed.into_iter().map(|c| (c.path, c.change)).collect::<Vec<_>>();
    assert_eq!(paths(first), [("a.txt".to_owned(), "added".to_owned())]);
    assert_eq!(paths(second), [("a.txt".to_owned(), "modified".to_owned())]);
    assert_eq!(fs::read_to_string(folder.join("a.txt")).unwrap(), "two\n");
}

#[test]
fn limits_come_from_the_environment_too() {
    let world = World::new();
    world.set_env("WORKSPOOL_MAX_CONCURRENCY", "1");
    let (first, second) = (world.script(&waiting(&world, "a")).ok(), world.script("true").ok());
    world.tick();
    await_there(&world, "a");
    world.tick();
    assert_eq!(world.state(second), State::Queued);
    go(&world, "a");
    world.drain();
    world.succeeded(first);
    world.succeeded(second);
}

#[test]
fn shutdown_ends_every_loop_and_no_task() {
    let world = World::new();
    let running = world.script(&waiting(&world, "a")).ok();
    let (a, b) = (world.run_loop(), world.run_drain());
    await_there(&world, "a");
    let said = world.run(&["shutdown"]).ok().text();
    assert_eq!(said.matches("ended the loop").count(), 2, "{said}");
    assert!(said.contains("1 running, which go on"), "{said}");
    let waits = world.script("true").ok();
    assert!(!a.stop().contains("error:"));
    b.join();
    go(&world, "a");
    world.await_state(running, State::Succeeded);
    assert_eq!(world.starts(running), 1);
    let said: serde_json::Value = world.run(&["shutdown", "--json"]).ok().json();
    assert_eq!(said, json!({"ended": [], "running": 0, "queued": 1}));
    assert_eq!(world.state(waits), State::Queued);
    world.drain();
    world.succeeded(waits);
}
