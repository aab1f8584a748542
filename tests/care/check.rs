//! `check` finds each invariant that is broken, says nothing where none is, and repairs what it can.

use crate::support::World;
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use workspool::model::{HeldReason, State, TaskId};
use workspool::spool::ticket_of;

/// Exit code and findings of a check, as words.
fn check(world: &World, flags: &[&str]) -> (i32, Vec<(String, Value)>) {
    let ran = world.run(&[&["check", "--json"], flags].concat());
    let report: Value = serde_json::from_slice(&ran.stdout).unwrap_or_else(|e| panic!("{e}: {ran:?}"));
    let findings = report["findings"].as_array().unwrap();
    (ran.code, findings.iter().map(|f| (f["kind"].as_str().unwrap().to_owned(), f.clone())).collect())
}

fn kinds(world: &World) -> (i32, Vec<String>) {
    let (code, found) = check(world, &[]);
    (code, found.into_iter().map(|f| f.0).collect())
}

/// Asserts that a repair makes a spool clean again.
fn repairs(world: &World, kind: &str) {
    let (code, found) = kinds(world);
    assert_eq!((code, found.as_slice()), (40, [kind.to_owned()].as_slice()));
    let (code, found) = check(world, &["--repair"]);
    assert_eq!(code, 0, "{found:?}");
    assert_eq!(found[0].1["outcome"], "repaired", "{found:?}");
    assert_eq!(kinds(world), (0, vec![]));
}

fn cannot_be_repaired(world: &World, kind: &str) {
    assert_eq!(kinds(world), (40, vec![kind.to_owned()]));
    let (code, _) = check(world, &["--repair"]);
    assert_eq!(code, 40);
}

/// A world with one task that has succeeded, and where its ticket lies.
fn ended() -> (World, TaskId, PathBuf) {
    let world = World::new();
    let repo = world.repo("app");
    let id = world.script("echo one > a.txt").repo(&repo).verify("test -f a.txt").ok();
    world.drain();
    let ticket = world.spool_path().join(world.succeeded(id).ticket);
    assert_eq!(kinds(&world), (0, vec![]));
    (world, id, ticket)
}

/// A world with one task that is queued, and its ticket.
fn queued() -> (World, TaskId, PathBuf) {
    let world = World::new();
    let id = world.script("true").ok();
    world.run(&["list"]).ok();
    let ticket = world.spool_path().join("queue").join(ticket_of(&world.task(id), 1).to_string());
    assert_eq!(kinds(&world), (0, vec![]));
    (world, id, ticket)
}

#[test]
fn i1_a_task_without_a_ticket_is_found_and_its_ticket_put_where_its_result_says() {
    let (world, id, ticket) = ended();
    fs::remove_file(ticket).unwrap();
    repairs(&world, "no_ticket");
    assert_eq!(world.state(id), State::Succeeded);
}

#[test]
fn i1_a_task_that_never_ran_and_lost_its_ticket_is_held_for_a_person() {
    let (world, id, ticket) = queued();
    fs::remove_file(ticket).unwrap();
    repairs(&world, "no_ticket");
    assert_eq!(world.state(id), State::Held);
    world.on("release", id, &[]).ok();
    world.drain();
    world.succeeded(id);
}

#[test]
fn i1_of_two_tickets_the_one_that_the_result_names_stays() {
    let (world, id, ticket) = ended();
    let second = world.spool_path().join("queue").join(ticket_of(&world.task(id), 1).to_string());
    fs::write(&second, "").unwrap();
    repairs(&world, "several_tickets");
    assert!(ticket.exists() && !second.exists());
}

#[test]
fn i1_a_ticket_whose_task_is_gone_is_removed() {
    let (world, id, ticket) = queued();
    fs::remove_dir_all(world.dir(id).path()).unwrap();
    repairs(&world, "ticket_without_task");
    assert!(!ticket.exists());
}

#[test]
fn i1_a_name_that_is_no_ticket_is_shown() {
    let (world, ..) = queued();
    fs::write(world.spool_path().join("queue/hello"), "").unwrap();
    cannot_be_repaired(&world, "not_a_ticket");
}

#[test]
fn i1_a_ticket_with_the_priority_of_an_older_revision_is_renamed() {
    let (world, id, ticket) = queued();
    let name = ticket.file_name().unwrap().to_str().unwrap();
    let (key, rest) = name.split_once('-').unwrap();
    let other = format!("{:014}-{rest}", key.parse::<u64>().unwrap() + 60_000);
    fs::rename(&ticket, ticket.with_file_name(other)).unwrap();
    repairs(&world, "ticket_name");
    assert!(ticket.exists());
    assert_eq!(world.state(id), State::Queued);
}

#[test]
fn i3_a_ticket_for_an_attempt_that_was_made_is_renamed_for_the_next() {
    let (world, id, ticket) = ended();
    let old = ticket_of(&world.task(id), 1);
    fs::create_dir_all(world.dir(id).attempt(2).path()).unwrap();
    fs::rename(ticket, world.spool_path().join("queue").join(old.to_string())).unwrap();
    fs::remove_file(world.dir(id).result()).unwrap();
    let (code, found) = kinds(&world);
    assert_eq!(code, 40);
    assert!(found.contains(&"attempt_number".to_owned()), "{found:?}");
    check(&world, &["--repair"]);
    assert!(world.names("queue").iter().any(|n| n.ends_with(".3")), "{:?}", world.names("queue"));
}

#[test]
fn i6_a_lost_result_is_written_again_from_what_is_known_and_says_so() {
    let (world, id, _) = ended();
    let before = world.result(id);
    fs::remove_file(world.dir(id).result()).unwrap();
    repairs(&world, "no_result");
    let now = world.result(id);
    assert_eq!((now.state, now.attempt, &now.ticket), (before.state, 1, &before.ticket));
    assert!(now.message.contains("was lost"), "{}", now.message);
    assert_eq!(now.commit, None, "nothing is made up");
}

#[test]
fn i6_a_result_of_another_state_is_shown_and_left_for_a_person() {
    let (world, id, _) = ended();
    let path = world.dir(id).result();
    let text = fs::read_to_string(&path).unwrap().replace("\"succeeded\"", "\"failed\"");
    fs::write(&path, text).unwrap();
    cannot_be_repaired(&world, "result_differs");
}

#[test]
fn i6_a_result_whose_ticket_has_not_moved_is_carried_through_by_the_next_pass() {
    let world = World::new();
    let id = world.script("true").flag("hold").ok();
    world.on("cancel", id, &[]).ok();
    let done = world.spool_path().join(world.result(id).ticket);
    let back = world.spool().held(HeldReason::Hand).join(ticket_of(&world.task(id), 1).to_string());
    fs::rename(&done, &back).unwrap();
    repairs(&world, "result_without_end");
    assert_eq!(world.state(id), State::Cancelled);
    // A runner does the same by itself, and nothing runs.
    let queue = world.spool_path().join("queue").join(ticket_of(&world.task(id), 1).to_string());
    fs::rename(&done, queue).unwrap();
    world.drain();
    assert_eq!(world.state(id), State::Cancelled);
    assert_eq!(world.starts(id), 0);
}

#[test]
fn a_task_that_is_tried_again_after_it_was_cancelled_in_the_queue_is_not_taken_for_ended() {
    let (world, id, _) = queued();
    world.on("cancel", id, &[]).ok();
    world.on("retry", id, &[]).ok();
    assert_eq!(kinds(&world), (0, vec![]));
    world.drain();
    world.succeeded(id);
}

#[test]
fn i7_a_branch_that_lost_its_result_is_found() {
    let (world, id, _) = ended();
    let repo = world.repo("other").at(world.root().join("repos/app"));
    repo.git(&["update-ref", "-d", &format!("refs/heads/workspool/{id}")]);
    cannot_be_repaired(&world, "commit_not_kept");
}

#[test]
fn i7_work_that_is_nowhere_is_found() {
    let world = World::new();
    let repo = world.repo("app");
    let id = world.script("echo one > a.txt; exit 3").repo(&repo).ok();
    world.drain();
    let result = world.result(id);
    assert_eq!(kinds(&world), (0, vec![]));
    repo.git(&["update-ref", "-d", &result.salvage.unwrap().name]);
    assert_eq!(kinds(&world), (0, vec![]), "the tree still holds it");
    fs::remove_dir_all(result.workspace.unwrap()).unwrap();
    let (code, found) = kinds(&world);
    assert_eq!(code, 40);
    assert!(found.contains(&"work_not_kept".to_owned()), "{found:?}");
    assert!(found.contains(&"stale_registration".to_owned()), "{found:?}");
}

#[test]
fn i7_what_succeeded_is_kept_when_it_is_tried_again() {
    let (world, id, _) = ended();
    let repo = world.repo("other").at(world.root().join("repos/app"));
    let first = world.result(id).commit.unwrap();
    world.on("retry", id, &[]).ok();
    world.drain();
    assert_eq!(world.succeeded(id).attempt, 2);
    let refs = repo.git(&["for-each-ref", "--contains", &first, "--format=%(refname)"]);
    assert!(refs.contains(&format!("refs/workspool/kept/{id}/1")), "{refs}");
    assert_eq!(kinds(&world), (0, vec![]));
}

#[test]
fn i14_a_changed_history_is_found_and_a_torn_line_is_not_taken_for_one() {
    let (world, id, _) = ended();
    let path = world.dir(id).events();
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replacen("\"worker\":\"shell\"", "\"worker\":\"other\"", 1)).unwrap();
    cannot_be_repaired(&world, "event_chain");
    fs::write(&path, format!("{text}{{\"seq\":99,")).unwrap();
    assert_eq!(kinds(&world), (0, vec!["torn_event".into()]));
}

#[test]
fn records_that_cannot_be_read_are_found() {
    let (world, id, _) = queued();
    fs::write(world.dir(id).record(1), "{").unwrap();
    cannot_be_repaired(&world, "unreadable");
}

#[test]
fn a_waiting_task_that_its_need_does_not_know_is_registered() {
    let world = World::new();
    let first = world.script("true").flag("hold").ok();
    let second = world.script("true").needs(first).ok();
    world.run(&["list"]).ok();
    assert_eq!(kinds(&world), (0, vec![]));
    fs::remove_file(world.dir(first).dependents().join(second.to_string())).unwrap();
    repairs(&world, "not_registered");
    world.on("release", first, &[]).ok();
    world.drain();
    world.succeeded(second);
}

#[test]
fn a_task_that_waits_for_what_has_ended_goes_on() {
    let world = World::new();
    let first = world.script("true").flag("hold").ok();
    let second = world.script("true").needs(first).ok();
    world.run(&["list"]).ok();
    fs::remove_file(world.dir(first).dependents().join(second.to_string())).unwrap();
    world.on("release", first, &[]).ok();
    world.drain();
    repairs(&world, "needs_over");
    world.drain();
    world.succeeded(second);
}

#[test]
fn a_running_task_is_in_good_hands() {
    let world = World::new();
    let id = world.misbehave(&["sleep", "30"]).ok();
    world.tick();
    world.await_state(id, State::Running);
    let (code, found) = check(&world, &[]);
    let problems: Vec<_> = found.iter().filter(|f| f.1["severity"] == "problem").collect();
    assert!(code == 0 && problems.is_empty(), "{found:?}");
    world.on("cancel", id, &["--wait"]);
    assert_eq!(world.await_end(id).state, State::Cancelled);
}
