//! What a worker does to the state that it shares with the user.

use super::super::*;
use super::support::*;
use std::fs;

fn guard(f: &Fixture) -> (Repo, Guard) {
    let repo = f.repo();
    let guard = Guard::take(&repo, "refs/heads/workspool/t1").unwrap();
    (repo, guard)
}

#[test]
fn a_quiet_worker_leaves_no_difference() {
    let f = Fixture::new();
    let (repo, guard) = guard(&f);
    let task = f.task("t1");
    task.write("new", "x");
    task.finish();
    assert_eq!(guard.check(&repo).unwrap(), []);
    let json = serde_json::to_string(&guard).unwrap();
    let back: Guard = serde_json::from_str(&json).unwrap();
    assert_eq!(back.hash(), guard.hash());
}

#[test]
fn refs_are_read_from_their_files_as_git_reads_them() {
    let f = Fixture::new();
    let repo = f.repo();
    let by_git = || f.git(["for-each-ref", "--format=%(objectname) %(refname) %(symref)"]);
    let ours = || {
        let calls = runner::calls_of_this_thread();
        let listing = String::from_utf8(refs::listing(&repo).unwrap()).unwrap();
        assert_eq!(runner::calls_of_this_thread(), calls, "a process");
        listing
    };
    let same = |what: &str| assert_eq!(ours().trim_end(), by_git().trim_end(), "{what}");
    same("one branch");
    f.git(["branch", "a/b/c"]);
    f.git(["-c", "user.name=u", "-c", "user.email=u@u", "tag", "-a", "-m", "m", "v1"]);
    f.git(["update-ref", "refs/remotes/o/main", "HEAD"]);
    f.git(["symbolic-ref", "refs/remotes/o/HEAD", "refs/remotes/o/main"]);
    same("loose");
    f.git(["pack-refs", "--all"]);
    f.git(["commit", "-q", "--allow-empty", "-m", "next"]);
    same("packed, and one of them moved since");
    f.git(["branch", "-D", "a/b/c"]);
    f.git(["symbolic-ref", "refs/heads/nowhere", "refs/heads/no-such-branch"]);
    fs::write(f.top().join(".git/refs/heads/x.lock"), "").unwrap();
    same("removed, leading nowhere, being written");
    // What is no file of a ref is not waited for.
    let pipe = f.top().join(".git/refs/heads/pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    assert!(!ours().contains("pipe"));
    fs::remove_file(pipe).unwrap();
    // Of links, and of another storage, git is asked.
    let asked = || {
        let calls = runner::calls_of_this_thread();
        let listing = String::from_utf8(refs::listing(&repo).unwrap()).unwrap();
        assert_eq!(runner::calls_of_this_thread(), calls + 1);
        listing
    };
    std::os::unix::fs::symlink("main", f.top().join(".git/refs/heads/link")).unwrap();
    assert!(asked().contains("refs/heads/link"));
    fs::remove_file(f.top().join(".git/refs/heads/link")).unwrap();
    fs::create_dir(f.top().join(".git/reftable")).unwrap();
    asked();
}

#[test]
fn what_can_execute_is_told_from_what_cannot_and_put_back() {
    let f = Fixture::new();
    fs::create_dir_all(f.top().join(".git/hooks")).unwrap();
    fs::write(f.top().join(".git/hooks/pre-push"), "the user's").unwrap();
    let (repo, guard) = guard(&f);
    let before = fingerprint(&f.top());
    f.git(["config", "core.fsmonitor", "evil"]);
    f.git(["config", "branch.main.description", "harmless"]);
    fs::write(f.top().join(".git/hooks/post-checkout"), "evil").unwrap();
    fs::write(f.top().join(".git/hooks/pre-push"), "evil").unwrap();
    let found = guard.check(&repo).unwrap();
    let executable: Vec<_> = found.iter().filter(|t| t.executable).map(|t| t.what.as_str()).collect();
    assert_eq!(executable.len(), 3, "{found:?}");
    assert!(found.iter().any(|t| !t.executable && t.what.contains("branch.main.description")));
    let reverted = guard.revert_executable(&repo, &f.path("kept")).unwrap();
    assert_eq!(reverted.len(), 3);
    assert_eq!(fingerprint(&f.top()), before);
    assert_eq!(guard.check(&repo).unwrap(), []);
    assert_eq!(fs::read_dir(f.path("kept")).unwrap().count(), 3, "what was replaced is kept aside");
}

#[test]
fn a_harmless_change_of_the_users_is_named_and_stays() {
    let f = Fixture::new();
    let (repo, guard) = guard(&f);
    f.git(["config", "branch.main.description", "the user's"]);
    f.git(["branch", "another"]);
    f.write("b", "x");
    f.git(["add", "b"]);
    let found = guard.check(&repo).unwrap();
    assert!(found.iter().all(|t| !t.executable));
    let named = |text: &str| found.iter().any(|t| t.what.contains(text));
    assert!(named("branch.main.description") && named("refs/heads/another") && named("index"));
    guard.revert_executable(&repo, &f.path("kept")).unwrap();
    assert_eq!(f.git(["config", "branch.main.description"]).trim(), "the user's");
    assert!(!f.path("kept").exists());
}
