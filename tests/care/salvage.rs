//! Salvages by the command line: what a failed attempt left is listed, shown, put back, and let go.

use crate::support::World;
use std::fs;

#[test]
fn what_failed_work_left_is_listed_shown_restored_and_dropped() {
    let world = World::new();
    let repo = world.repo("app");
    let id = world.script("echo mine > a.txt; echo log > b.log; exit 3").repo(&repo).ok();
    world.drain();
    let listed = world.run(&["salvage", "list"]).ok().text();
    assert!(listed.contains(&id.to_string()) && listed.contains("complete"), "{listed}");
    let shown = world.run(&["salvage", "show", &id.to_string()]).ok().text();
    assert!(shown.contains("a.txt") && shown.contains("b.log"), "{shown}");

    let into = world.root().join("saved");
    let into_text = into.to_str().unwrap();
    world.run(&["salvage", "restore", &id.to_string(), "--into", into_text]).ok();
    assert_eq!(fs::read_to_string(into.join("a.txt")).unwrap(), "mine\n");
    assert_eq!(fs::read_to_string(into.join("b.log")).unwrap(), "log\n");
    let again = world.run(&["salvage", "restore", &id.to_string(), "--into", into_text]);
    assert_ne!(again.code, 0, "a folder that is there is not written into");

    world.run(&["salvage", "drop", &id.to_string()]).ok();
    assert_eq!(world.run(&["salvage", "list"]).ok().text(), "");
    let none = world.run(&["salvage", "show", &id.to_string()]).exits(6);
    assert!(none.stderr.contains("has no salvage"), "{}", none.stderr);
}

#[test]
fn salvages_of_one_repository_are_told_apart_by_task() {
    let world = World::new();
    let (one, two) = (world.repo("one"), world.repo("two"));
    let first = world.script("echo 1 > a.txt; exit 3").repo(&one).ok();
    let second = world.script("echo 2 > a.txt; exit 3").repo(&two).ok();
    world.drain();
    let path = one.path().to_str().unwrap().to_owned();
    let listed = world.run(&["salvage", "list", "--repo", &path]).ok().text();
    assert!(listed.contains(&first.to_string()) && !listed.contains(&second.to_string()), "{listed}");
    let listed = world.run(&["salvage", "list", &second.to_string()]).ok().text();
    assert!(listed.contains(&second.to_string()) && !listed.contains(&first.to_string()), "{listed}");
}
