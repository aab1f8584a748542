//! I14: a receipt is recomputed offline, and the first thing that does not match is named.

use crate::support::World;
use std::fs;
use std::path::{Path, PathBuf};
use workspool::model::TaskId;

fn verified() -> (World, TaskId) {
    let world = World::new();
    let repo = world.repo("app");
    let id = world
        .script("echo one > a.txt; echo said")
        .repo(&repo)
        .verify("test -f a.txt")
        .verify("echo checked")
        .with("artifact", "a.txt")
        .with("setup", "true")
        .ok();
    world.drain();
    world.succeeded(id);
    (world, id)
}

/// Files below a folder.
fn files(root: &Path) -> Vec<PathBuf> {
    walkdir::WalkDir::new(root)
        .sort_by_file_name()
        .into_iter()
        .map(Result::unwrap)
        .filter(|e| e.file_type().is_file())
        .map(walkdir::DirEntry::into_path)
        .collect()
}

#[test]
fn what_succeeded_matches_and_is_verified_again_from_its_commit() {
    let (world, id) = verified();
    let ran = world.on("audit", id, &[]).ok();
    assert!(ran.text().contains("parts match"), "{}", ran.text());
    let ran = world.on("audit", id, &["--replay"]).ok();
    assert!(ran.text().contains("verified again"), "{}", ran.text());
}

#[test]
fn a_changed_byte_in_any_record_is_found_and_the_file_named() {
    let (world, id) = verified();
    let root = world.dir(id).path().to_owned();
    let mut found = 0;
    for path in files(&root) {
        let name = path.strip_prefix(&root).unwrap().to_string_lossy().into_owned();
        // Locks and marks hold nothing; the view's index is remade from the tree; objects are git's.
        let empty = fs::metadata(&path).unwrap().len() == 0;
        if empty || name.ends_with("keeper.err") || name.ends_with("git/index") {
            continue;
        }
        let before = fs::read(&path).unwrap();
        for at in [before.len() / 2, before.len() - 2] {
            // The last line of the history, and words of the result that nothing else says, have no witness.
            let last = before[..before.len() - 1].iter().rposition(|b| *b == b'\n').unwrap_or(0);
            if name == "events.jsonl" && at >= last || name == "result.json" {
                continue;
            }
            let mut bytes = before.clone();
            bytes[at] ^= 1;
            fs::write(&path, &bytes).unwrap();
            let ran = world.on("audit", id, &[]).exits(40);
            let part = if name.contains("/git/") { "the view of the tree" } else { name.as_str() };
            assert!(ran.text().contains(part), "{name} at {at}: {}", ran.text());
            found += 1;
        }
        fs::write(&path, &before).unwrap();
    }
    assert!(found > 40, "only {found} bytes were changed");
    world.on("audit", id, &[]).ok();
}

#[test]
fn a_result_that_was_changed_to_say_something_else_is_found() {
    let (world, id) = verified();
    let path = world.dir(id).result();
    let text = fs::read_to_string(&path).unwrap();
    let result = world.result(id);
    for (old, new) in [
        (result.commit.clone().unwrap(), "0".repeat(40)),
        (result.tree.clone().unwrap(), "1".repeat(40)),
        ("\"verified\"".to_owned(), "\"unverified\"".to_owned()),
        ("\"exit_code\": 0".to_owned(), "\"exit_code\": 7".to_owned()),
    ] {
        assert!(text.contains(&old), "{old}");
        fs::write(&path, text.replace(&old, &new)).unwrap();
        let ran = world.on("audit", id, &[]).exits(40);
        assert!(ran.text().contains("result.json"), "{}", ran.text());
    }
    fs::write(&path, text).unwrap();
    world.on("audit", id, &[]).ok();
}

#[test]
fn a_commit_that_is_gone_is_found() {
    let (world, id) = verified();
    let repo = world.root().join("repos/app/.git");
    let commit = world.result(id).commit.unwrap();
    fs::remove_file(repo.join("objects").join(&commit[..2]).join(&commit[2..])).unwrap();
    let ran = world.on("audit", id, &[]).exits(40);
    assert!(ran.text().contains("the commit"), "{}", ran.text());
}

#[test]
fn a_receipt_names_the_tree_that_was_verified_beside_the_one_that_was_produced() {
    let world = World::new();
    let repo = world.repo("app");
    std::fs::write(repo.path().join("check.sh"), "test -f a.txt\n").unwrap();
    std::fs::write(repo.path().join(".workspool.toml"), "protected = [\"check.sh\"]\ngate = \"clean\"\n")
        .unwrap();
    repo.commit("protect");
    let id = world
        .script("echo one > a.txt; echo 'exit 1' > check.sh")
        .repo(&repo)
        .with("permission", "custom")
        .with("allow", "check.sh")
        .with("allow", "a.txt")
        .verify("sh check.sh")
        .ok();
    world.drain();
    let result = world.succeeded(id);
    let gated = result.gated_tree.clone().unwrap();
    assert_ne!(Some(&gated), result.tree.as_ref());
    let receipt: serde_json::Value =
        serde_json::from_slice(&fs::read(world.dir(id).receipt()).unwrap()).unwrap();
    assert_eq!(receipt["gated_tree"], gated);
    let ran = world.on("audit", id, &["--replay"]).ok();
    assert!(ran.text().contains("verified again"), "the produced tree would fail: {}", ran.text());
}

#[test]
fn files_that_were_copied_in_are_there_when_the_gate_is_run_again() {
    let world = World::new();
    let repo = world.repo("app");
    let env = repo.path().join(".env");
    std::fs::write(&env, "A=1\n").unwrap();
    let id = world.script("echo one > a.txt").repo(&repo).with("copy", ".env").verify("test -f .env").ok();
    world.drain();
    world.succeeded(id);
    world.on("audit", id, &["--replay"]).ok();
    fs::remove_file(&env).unwrap();
    let ran = world.on("audit", id, &["--replay"]).exits(40);
    assert!(ran.stderr.contains(".env was not copied"), "{}", ran.stderr);
}

#[test]
fn a_gate_that_passes_only_where_the_worker_left_something_does_not_pass_again() {
    let world = World::new();
    let repo = world.repo("app");
    let id = world.script("echo x > a.txt; echo x > made.log").repo(&repo).verify("test -f made.log").ok();
    world.drain();
    world.succeeded(id);
    world.on("audit", id, &[]).ok();
    let ran = world.on("audit", id, &["--replay"]).exits(40);
    assert!(ran.text().contains("replay: test -f made.log"), "{}", ran.text());
}

#[test]
fn only_what_succeeded_has_a_receipt() {
    let world = World::new();
    let repo = world.repo("app");
    let id = world.script("exit 3").repo(&repo).ok();
    world.drain();
    let ran = world.on("audit", id, &[]).exits(6);
    assert!(ran.stderr.contains("has no receipt"), "{}", ran.stderr);
    assert!(!world.dir(id).receipt().exists());
}
