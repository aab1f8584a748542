//! Accepting and rejecting: all or nothing, what is in the way named, and nothing of the user's touched.

use crate::support::{Repo, World};
use serde_json::Value;
use std::fs;
use workspool::model::{Review, ReviewFile, State, TaskId};

const REFUSED: i32 = 17;

fn review(world: &World, id: TaskId) -> ReviewFile {
    serde_json::from_slice(&fs::read(world.dir(id).review()).unwrap()).unwrap()
}

/// A verified change: a file added, one changed, one removed.
fn change(world: &World, repo: &Repo) -> TaskId {
    let script = "echo new > new.txt; sed -i.bak 's/two/TWO/' src/lib.txt; rm src/lib.txt.bak README.md";
    let id = world.script(script).repo(repo).verify("test -f new.txt").ok();
    world.drain();
    world.succeeded(id);
    id
}

#[test]
fn a_change_is_taken_into_the_working_tree_staged() {
    let world = World::new();
    let repo = world.repo("r");
    let head = repo.head();
    let id = change(&world, &repo);
    world.on("accept", id, &[]).ok();
    assert_eq!(repo.git(&["status", "--porcelain"]), "D  README.md\nA  new.txt\nM  src/lib.txt");
    assert_eq!(repo.git(&["write-tree"]), world.result(id).tree.unwrap());
    assert_eq!((repo.head(), repo.git(&["symbolic-ref", "HEAD"])), (head, "refs/heads/main".to_owned()));
    let verdict = review(&world, id).verdicts.remove(0);
    assert_eq!((verdict.verdict, verdict.attempt), (Review::Accepted, 1));
    assert!(verdict.landed.unwrap().gated);
    world.on("accept", id, &[]).exits(6).says(&["accepted"]);
    world.on("reject", id, &[]).exits(6);
    world.on("retry", id, &[]).exits(6).says(&["was accepted"]);
    let listed: Value = world.run(&["list", "--json", "--review", "accepted"]).ok().json();
    assert_eq!(listed["tasks"][0]["id"], id.to_string());
}

#[test]
fn a_change_is_taken_as_a_commit_or_a_branch() {
    let world = World::new();
    let repo = world.repo("r");
    let head = repo.head();
    let (a, b) = (change(&world, &repo), change(&world, &repo));
    let before = repo.fingerprint();
    world.on("accept", a, &["--as", "branch", "--branch", "mine"]).ok();
    assert_eq!(repo.rev("mine^{tree}"), world.result(a).tree.unwrap());
    repo.git(&["branch", "-D", "-q", "mine"]);
    before.assert_same(&repo.fingerprint());
    world.on("accept", b, &["--as", "commit", "--message", "In my words"]).ok();
    assert_eq!((repo.rev("HEAD^"), repo.rev("HEAD^{tree}")), (head, world.result(b).tree.unwrap()));
    assert_eq!(repo.git(&["log", "-1", "--format=%s"]), "In my words");
    assert_eq!(repo.git(&["status", "--porcelain"]), "");
}

#[test]
fn edits_of_the_user_stay_and_what_is_in_the_way_is_named() {
    let world = World::new();
    let repo = world.repo("r");
    repo.write("mine.txt", "one\n").commit("mine");
    let id = change(&world, &repo);
    repo.write("mine.txt", "two\n");
    repo.git(&["add", "mine.txt"]);
    repo.write("mine.txt", "three\n").write("untracked.txt", "u\n");
    // An edit of a file that the change touches; a file where it adds one, though it be ignored.
    repo.write("src/lib.txt", "my own edit\n");
    let before = repo.fingerprint();
    world.on("accept", id, &[]).exits(REFUSED).says(&["src/lib.txt", "nothing was touched"]);
    before.assert_same(&repo.fingerprint());
    repo.git(&["checkout", "-q", "src/lib.txt"]);
    repo.write(".git/info/exclude", "new.txt\n").write("new.txt", "ignored, and mine\n");
    let before = repo.fingerprint();
    world.on("accept", id, &[]).exits(REFUSED).says(&["new.txt", "nothing was touched"]);
    before.assert_same(&repo.fingerprint());
    assert_eq!(world.spool().read_result(id).unwrap().unwrap().state, State::Succeeded);
    fs::remove_file(repo.path().join("new.txt")).unwrap();
    world.on("accept", id, &[]).ok();
    assert_eq!(repo.show("", "mine.txt"), "two\n", "what was staged stays staged");
    assert_eq!(fs::read_to_string(repo.path().join("mine.txt")).unwrap(), "three\n");
    assert_eq!(fs::read_to_string(repo.path().join("src/lib.txt")).unwrap(), "one\nTWO\nthree\n");
}

#[test]
fn newer_commits_are_merged_with_and_a_conflict_is_named() {
    let world = World::new();
    let repo = world.repo("r");
    let (fits, conflicts) = (change(&world, &repo), change(&world, &repo));
    repo.write("other.txt", "newer\n").commit("newer");
    world.on("accept", fits, &["--as", "commit"]).ok().says(&["HEAD had moved on"]);
    assert_eq!(repo.show("HEAD", "other.txt"), "newer\n");
    assert_eq!(repo.show("HEAD", "new.txt"), "new\n");
    assert!(!review(&world, fits).verdicts[0].landed.as_ref().unwrap().gated);
    repo.git(&["reset", "-q", "--hard", "HEAD^"]);
    repo.write("src/lib.txt", "one\nzwei\nthree\n").commit("conflicting");
    let before = repo.fingerprint();
    world.on("accept", conflicts, &[]).exits(REFUSED).says(&["src/lib.txt", "nothing was touched"]);
    before.assert_same(&repo.fingerprint());
}

#[test]
fn what_is_not_verified_or_did_not_succeed_is_not_taken() {
    let world = World::new();
    let repo = world.repo("r");
    let unverified = world.script("echo x > x.txt").repo(&repo).ok();
    let failed = world.script("exit 1").repo(&repo).ok();
    let held = world.script("true").repo(&repo).flag("hold").ok();
    world.drain();
    let before = repo.fingerprint();
    world.on("accept", unverified, &[]).exits(6).says(&["is not verified", "--unverified"]);
    world.on("accept", failed, &[]).exits(6);
    world.on("accept", held, &[]).exits(6);
    let other = "0".repeat(64);
    world.on("accept", unverified, &["--unverified", "--sha256", &other]).exits(6).says(&["another hash"]);
    before.assert_same(&repo.fingerprint());
    let sha256 = world.result(unverified).task_sha256;
    world.on("accept", unverified, &["--unverified", "--sha256", &sha256]).ok();
    assert!(review(&world, unverified).verdicts[0].landed.as_ref().unwrap().unverified);
}

#[test]
fn a_checkout_in_the_middle_of_something_is_left_alone() {
    let world = World::new();
    let repo = world.repo("r");
    let id = change(&world, &repo);
    repo.git(&["checkout", "-q", "-b", "side"]);
    repo.write("c.txt", "side\n").commit("side");
    repo.git(&["checkout", "-q", "main"]);
    repo.write("c.txt", "main\n").commit("main");
    assert!(!repo.try_git(&["merge", "-q", "side"]), "a conflict was wanted");
    let before = repo.fingerprint();
    world.on("accept", id, &[]).exits(REFUSED).says(&["merge"]);
    before.assert_same(&repo.fingerprint());
}

#[test]
fn settings_that_can_execute_and_are_new_must_be_meant() {
    let world = World::new();
    let repo = world.repo("r");
    let id = change(&world, &repo);
    repo.git(&["config", "core.fsmonitor", "/bin/true"]);
    world.on("accept", id, &[]).exits(REFUSED).says(&["core.fsmonitor", "--changed-settings"]);
    assert_eq!(repo.git(&["-c", "core.fsmonitor=", "status", "--porcelain"]), "");
    world.on("accept", id, &["--changed-settings"]).ok();
}

#[test]
fn a_rejection_keeps_its_reason_and_removes_nothing() {
    let world = World::new();
    let repo = world.repo("r");
    let id = change(&world, &repo);
    let before = repo.fingerprint();
    world.on("reject", id, &["--reason", "not what I wanted"]).ok();
    let verdict = review(&world, id).verdicts.remove(0);
    assert_eq!((verdict.verdict, verdict.message.as_deref()), (Review::Rejected, Some("not what I wanted")));
    before.assert_same(&repo.fingerprint());
    assert_eq!(repo.rev(&format!("workspool/{id}")), world.result(id).commit.unwrap());
    let listed: Value = world.run(&["list", "--json", "--review", "rejected"]).ok().json();
    assert_eq!(listed["tasks"][0]["id"], id.to_string());
}

#[test]
fn nothing_is_written_through_a_link() {
    let world = World::new();
    let repo = world.repo("r");
    let id = world.script("mkdir out; echo x > out/x.txt").repo(&repo).verify("true").ok();
    world.drain();
    // Meanwhile the user has a link to somewhere else at that place.
    fs::create_dir(world.root().join("elsewhere")).unwrap();
    std::os::unix::fs::symlink(world.root().join("elsewhere"), repo.path().join("out")).unwrap();
    let before = repo.fingerprint();
    world.on("accept", id, &[]).exits(REFUSED).says(&["out"]);
    before.assert_same(&repo.fingerprint());
    assert_eq!(fs::read_dir(world.root().join("elsewhere")).unwrap().count(), 0);
}

#[test]
fn several_results_are_taken_one_after_the_other() {
    let world = World::new();
    let repo = world.repo("r");
    let ids: Vec<_> = (0..5)
        .map(|n| world.script(&format!("echo {n} > out-{n}.txt")).repo(&repo).verify("true").ok())
        .collect();
    world.drain();
    for id in &ids {
        world.on("accept", *id, &["--as", "commit"]).ok();
    }
    assert_eq!(repo.git(&["log", "--oneline", "main"]).lines().count(), 6);
    assert_eq!(repo.files("main").iter().filter(|f| f.starts_with("out-")).count(), 5);
    assert_eq!(repo.git(&["status", "--porcelain"]), "");
}
