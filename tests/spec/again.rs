//! Another attempt: asked for with feedback, after a limit, with another worker.

use crate::support::World;
use workspool::model::{EventKind, State};

#[test]
fn a_revision_goes_on_from_what_the_last_attempt_left() {
    let world = World::new();
    let repo = world.repo("r");
    let id = world.script("printf x >> n.txt").repo(&repo).verify("test -f n.txt").ok();
    world.drain();
    let first = world.succeeded(id);
    world.on("revise", id, &["--feedback", "once more"]).ok();
    world.drain();
    let second = world.succeeded(id);
    assert_eq!(second.attempt, 2);
    let branch = format!("workspool/{id}");
    assert_eq!(repo.show(&branch, "n.txt"), "xx");
    assert_eq!(repo.rev(&format!("{branch}~1")), first.commit.unwrap(), "the first attempt's commit is kept");
    assert_eq!(second.base, first.base);
}

#[test]
fn a_failed_revision_leaves_the_branch_where_it_was() {
    let world = World::new();
    let repo = world.repo("r");
    let id = world
        .script("if test -f n.txt; then echo bad > n.txt; exit 3; fi; echo good > n.txt")
        .repo(&repo)
        .ok();
    world.drain();
    let first = world.succeeded(id);
    world.on("revise", id, &["--feedback", "worse, please"]).ok();
    world.drain();
    let second = world.result(id);
    assert_eq!(second.state, State::Failed);
    assert_eq!(repo.rev(&format!("workspool/{id}")), first.commit.unwrap());
    let salvage = second.salvage.unwrap();
    assert_eq!(repo.show(&salvage.name, "tree/n.txt"), "bad\n");
}

#[test]
fn feedback_and_the_last_summary_are_in_the_prompt() {
    let world = World::new();
    let repo = world.repo("r");
    let agent =
        "cat > seen.txt; printf '```workspool-report\\n{\"summary\": \"did the first half\"}\\n```\\n'";
    world
        .run(&["workers", "link", "agent", "--command", &serde_json::json!(["sh", "-c", agent]).to_string()])
        .ok();
    let id = world.submit("halve it").worker("agent").repo(&repo).ok();
    world.drain();
    assert_eq!(world.succeeded(id).summary.as_deref(), Some("did the first half"));
    world.on("revise", id, &["--feedback", "now the second half"]).ok();
    world.drain();
    world.succeeded(id);
    let seen = repo.show(&format!("workspool/{id}"), "seen.txt");
    assert!(seen.contains("now the second half") && seen.contains("did the first half"), "{seen}");
}

#[test]
fn a_limit_holds_every_task_of_that_worker_and_costs_no_retry() {
    let world = World::new();
    let limited = world.submit("quota 3600").worker("mock").with("retries", "0").ok();
    world.tick();
    world.await_state(limited, State::Held);
    let other = world.submit("print hello").worker("mock").ok();
    let shell = world.script("true").ok();
    world.drain();
    world.succeeded(shell);
    assert_eq!(world.state(other), State::Queued);
    assert!(world.on("why", other, &[]).ok().text().contains("refuses requests until"));
    assert!(world.on("why", limited, &[]).ok().text().contains("held for quota"));
    assert_eq!(world.starts(limited), 1);
}

#[test]
fn a_limit_that_one_task_meets_keeps_the_next_one_from_starting() {
    let world = World::configured("max_concurrency = 1");
    let quota = || world.submit("quota 3600").worker("mock").with("retries", "0").ok();
    let (first, second) = (quota(), quota());
    world.drain();
    assert_eq!((world.starts(first), world.starts(second)), (1, 0));
    // What waits for it does not keep a drain from ending either.
    std::fs::write(world.spool_path().join("releases").join(first.to_string()), "").unwrap();
    world.drain();
}

#[test]
fn a_task_falls_back_to_another_worker() {
    let world = World::new();
    let spec = serde_json::json!({
        "objective": "exit 7", "worker": "mock", "retries": 1,
        "fallback": [{"worker": "shell"}],
    });
    let id = world.submit_file("-").input(spec.to_string()).ok();
    world.configure("[defaults]\nretry_delay = 0");
    world.drain();
    let result = world.result(id);
    assert_eq!(result.attempts.iter().map(|a| a.worker.to_string()).collect::<Vec<_>>(), ["mock", "shell"]);
    assert_eq!(result.exit_code, Some(7));
    assert!(world.events(id).iter().any(|e| matches!(e, EventKind::Edited { revision: 2, .. })));
}

#[test]
fn a_temporary_workspace_starts_empty_each_time_and_the_old_one_is_kept() {
    let world = World::new();
    let id = world.script("test ! -e seen.txt; echo 1 > seen.txt; exit 3").ok();
    world.drain();
    assert_eq!(world.result(id).exit_code, Some(3));
    world.on("retry", id, &[]).ok();
    world.drain();
    let result = world.result(id);
    assert_eq!((result.attempt, result.exit_code), (2, Some(3)), "it found an empty folder");
    assert!(world.spool_path().join(format!("worktrees/.kept/{id}.1/seen.txt")).exists());
}

#[test]
fn a_pattern_of_the_repository_that_is_none_is_named_before_anything_runs() {
    let world = World::new();
    let repo = world.repo("r");
    repo.write(".workspool.toml", "protected = [\"a[\"]\n").commit("bad pattern");
    let id = world.script("echo ran").repo(&repo).ok();
    world.drain();
    let result = world.result(id);
    assert_eq!(result.class, Some(workspool::model::Class::Workspace));
    assert!(result.message.contains("protected"), "{}", result.message);
}

#[test]
fn accept_takes_nothing_whose_records_were_changed() {
    let world = World::new();
    let repo = world.repo("r");
    let id = world.script("echo good > n.txt").repo(&repo).verify("grep -q good n.txt").ok();
    world.drain();
    world.succeeded(id);
    let path = world.dir(id).result();
    let text = std::fs::read_to_string(&path).unwrap();
    let base = repo.head();
    let commit = world.result(id).commit.unwrap();
    std::fs::write(&path, text.replace(&commit, &base)).unwrap();
    world.on("accept", id, &[]).exits(40).says(&["does not match its receipt"]);
    assert!(!repo.path().join("n.txt").exists());
    std::fs::write(&path, text).unwrap();
    world.on("accept", id, &[]).ok();
    assert!(repo.path().join("n.txt").exists());
}

#[test]
fn a_queued_task_whose_record_is_broken_ends_and_holds_up_nobody() {
    let world = World::new();
    let broken = world.script("true").ok();
    let other = world.script("true").ok();
    world.run(&["list"]).ok();
    std::fs::write(world.dir(broken).record(1), "{ not json").unwrap();
    world.drain();
    world.succeeded(other);
    assert_eq!(world.result(broken).state, State::Failed);
}

#[test]
fn a_list_after_a_task_that_is_not_there_is_refused() {
    let world = World::new();
    world.script("true").ok();
    world.run(&["list", "--after", "01jdq3m6t8v5x2c4k7n9p0r1sa"]).exits(4);
}
