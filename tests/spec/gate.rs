//! The gate: what we run ourselves after the worker and all its processes are gone.

use crate::support::World;
use serde_json::json;
use std::fs;
use workspool::model::{Class, Phase, State, Verification};

#[test]
fn a_gate_that_passes_verifies() {
    let world = World::new();
    let repo = world.repo("r");
    let id =
        world.script("echo x > x.txt").repo(&repo).verify("echo looking; test -f x.txt").verify("true").ok();
    world.drain();
    let result = world.succeeded(id);
    assert_eq!(result.verification, Verification::Verified);
    assert_eq!(result.message, "succeeded and verified (1 file changed)");
    let runs: Vec<_> = result.gate.iter().map(|r| (r.command.as_str(), r.passed, r.exit_code)).collect();
    assert_eq!(runs, [("echo looking; test -f x.txt", true, Some(0)), ("true", true, Some(0))]);
    assert_eq!(result.gate[0].output_tail.trim(), "looking");
    assert!(world.dir(id).path().join(&result.gate[0].log).is_file());
}

#[test]
fn a_gate_that_fails_fails_the_task_and_keeps_the_work() {
    let world = World::new();
    let repo = world.repo("r");
    let head = repo.head();
    let id =
        world.script("echo x > x.txt").repo(&repo).verify("echo why >&2; exit 3").verify("touch never").ok();
    world.drain();
    let result = world.result(id);
    assert_eq!(
        (result.state, result.class, result.phase),
        (State::Failed, Some(Class::GateFailed), Some(Phase::Verifying))
    );
    assert_eq!(result.verification, Verification::Failed);
    assert_eq!(result.message, "verification failed: echo why >&2; exit 3 (exit code 3)");
    assert_eq!(result.gate.len(), 1, "the first failure is enough");
    assert_eq!(result.gate[0].output_tail.trim(), "why");
    assert_eq!((result.commit, repo.rev(&format!("workspool/{id}"))), (None, head.clone()));
    let salvage = result.salvage.unwrap();
    assert!(salvage.complete);
    assert_eq!(repo.show(&salvage.name, "tree/x.txt"), "x\n");
    assert_eq!(repo.rev(&salvage.name), salvage.commit);
    world.on("wait", id, &[]).exits(20);
}

#[test]
fn no_commands_are_unverified_which_is_not_passed() {
    let world = World::new();
    let repo = world.repo("r");
    let id = world.script("echo x > x.txt").repo(&repo).ok();
    world.drain();
    let result = world.succeeded(id);
    assert_eq!(result.verification, Verification::Unverified);
    assert!(result.message.contains("unverified"), "{}", result.message);
    let shown = world.on("show", id, &[]).ok().text();
    assert!(shown.contains("no: there are no verify commands"), "{shown}");
}

#[test]
fn all_commands_run_if_asked() {
    let world = World::new();
    let id =
        world.script("true").verify("exit 1").verify("true").verify("kill -9 $$").flag("verify-all").ok();
    world.drain();
    let result = world.result(id);
    let runs: Vec<_> = result.gate.iter().map(|r| (r.passed, r.exit_code, r.signal)).collect();
    assert_eq!(runs, [(false, Some(1), None), (true, Some(0), None), (false, None, Some(9))]);
    assert_eq!(result.message, "verification failed: exit 1 (exit code 1) and 1 more");
}

#[test]
fn a_command_can_be_a_list_and_a_missing_program_is_a_failure() {
    let world = World::new();
    let task = json!({"objective": "true", "worker": "shell", "verify_all": true, "verify": [["printf", "%s", "a b; $(id)"], ["no-such-program-here"]]});
    let id = world.submit_file("-").input(task.to_string()).ok();
    world.drain();
    let result = world.result(id);
    assert_eq!(result.class, Some(Class::GateFailed));
    assert_eq!((result.gate[0].passed, result.gate[0].output_tail.as_str()), (true, "a b; $(id)\n"));
    assert_eq!((result.gate[1].passed, result.gate[1].exit_code), (false, None));
    assert!(result.gate[1].output_tail.contains("No such file"), "{:?}", result.gate[1]);
}

#[test]
fn the_time_of_a_gate_is_limited_and_nothing_of_it_lives_on() {
    let world = World::new();
    let pid = world.root().join("pid");
    let task = json!({
        "objective": "true", "worker": "shell", "verify_timeout": 1,
        "verify": [world.misbehave_line(&["setsid", pid.to_str().unwrap(), "600000", "sleep", "600000"])],
    });
    let id = world.submit_file("-").input(task.to_string()).ok();
    world.drain();
    let result = world.result(id);
    assert_eq!((result.state, result.class), (State::Failed, Some(Class::GateFailed)));
    assert!(result.gate[0].timed_out && !result.gate[0].passed);
    assert!(result.message.contains("its time was over"), "{}", result.message);
    world.assert_gone(&pid);
}

#[test]
fn bytes_that_are_no_text_do_not_stop_it() {
    let world = World::new();
    let id = world.script("true").verify(&world.misbehave_line(&["invalid-utf8", "line", "3000000"])).ok();
    world.drain();
    let result = world.succeeded(id);
    assert_eq!(result.verification, Verification::Verified);
    assert!(world.log(id, "gate.1.1").contains("before \u{fffd}\u{fffd}\u{fffd} after"));
}

#[test]
fn a_process_that_a_gate_leaves_behind_is_ended_and_named() {
    let world = World::new();
    let pid = world.root().join("pid");
    let line = world.misbehave_line(&["daemon", pid.to_str().unwrap(), "600000"]);
    let id = world.script("true").verify(&line).ok();
    world.drain();
    let result = world.succeeded(id);
    world.assert_gone(&pid);
    assert!(result.left_over.iter().any(|l| l.contains("misbehave")), "{:?}", result.left_over);
    assert_eq!(result.survivors, Vec::<String>::new());
}

#[test]
fn what_the_gate_writes_is_not_part_of_the_work() {
    let world = World::new();
    let repo = world.repo("r");
    let id = world
        .script("echo x > x.txt")
        .repo(&repo)
        .verify("echo changed > x.txt; echo report > report.txt")
        .ok();
    world.drain();
    let result = world.succeeded(id);
    let commit = result.commit.unwrap();
    assert_eq!(repo.show(&commit, "x.txt"), "x\n", "what is committed is what the gate was given");
    assert!(!repo.files(&commit).contains(&"report.txt".to_owned()));
    assert_eq!(result.changed.len(), 1);
}

#[test]
fn what_a_worker_leaves_running_cannot_change_what_was_verified() {
    let world = World::new();
    let repo = world.repo("r");
    let script = "echo good > x.txt; (sleep 0.3; echo evil > x.txt; sleep 600) > /dev/null 2>&1 &";
    let id = world.script(script).repo(&repo).verify("sleep 0.6; grep -q good x.txt").ok();
    world.drain();
    let result = world.succeeded(id);
    assert_eq!(repo.show(&result.commit.unwrap(), "x.txt"), "good\n");
    assert!(!result.left_over.is_empty());
}

#[test]
fn a_failed_gate_goes_back_to_the_worker_with_the_evidence() {
    let world = World::new();
    let repo = world.repo("r");
    let command = world.misbehave_command(&["stdin", "../prompt-seen", "append", "log.md", "x"]);
    world.run(&["workers", "link", "fixer", "--command", &command]).ok();
    // The first try leaves one x, the second two.
    let id = world
        .submit("write x")
        .worker("fixer")
        .repo(&repo)
        .with("repair", "2")
        .verify("echo need $((1 + 1)) >&2; test $(wc -c < log.md) -ge 2")
        .ok();
    world.drain();
    let result = world.succeeded(id);
    assert_eq!(repo.show(&result.commit.unwrap(), "log.md"), "xx");
    let prompt = fs::read_to_string(world.dir(id).attempt(1).file("prompt.2.md")).unwrap();
    for part in ["test $(wc -c < log.md) -ge 2", "exit code 1", "need 2"] {
        assert!(prompt.contains(part), "the second prompt lacks {part:?}:\n{prompt}");
    }
    let first = fs::read_to_string(world.dir(id).attempt(1).file("prompt.md")).unwrap();
    assert!(!first.contains("need 2"));
    assert!(
        world.dir(id).attempt(1).step("gate.2.1").is_dir()
            && !world.dir(id).attempt(1).step("work.3").exists()
    );
}

#[test]
fn repairs_come_to_an_end() {
    let world = World::new();
    let id = world.script("echo x >> n.txt").verify("false").with("repair", "2").ok();
    world.drain();
    let result = world.result(id);
    assert_eq!(result.class, Some(Class::GateFailed));
    let rounds = ["work.1", "work.2", "work.3", "work.4"].map(|s| world.dir(id).attempt(1).step(s).exists());
    assert_eq!(rounds, [true, true, true, false]);
}

#[test]
fn a_worker_that_claims_success_does_not_pass_the_gate() {
    let world = World::new();
    let repo = world.repo("r");
    repo.write("check.sh", "exit 1\n").commit("a check that fails");
    // It edits PATH in its own shell, prints that all is well, and does nothing.
    let id = world
        .script("export PATH=/nowhere; echo 'all tests passed'; exit 0")
        .repo(&repo)
        .verify("sh check.sh")
        .ok();
    world.drain();
    assert_eq!(world.result(id).class, Some(Class::GateFailed));
}
