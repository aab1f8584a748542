//! How tasks fail: each with its class, the phase, what was observed, and the work kept.

use crate::support::World;
use serde_json::json;
use std::fs;
use workspool::model::{Class, Phase, State, TaskId, TaskResult};

fn ended(world: &World, id: TaskId) -> TaskResult {
    world.drain();
    world.result(id)
}

#[test]
fn a_worker_that_fails_is_told_with_its_code_and_its_last_words() {
    let world = World::new();
    let repo = world.repo("r");
    let head = repo.head();
    let id = world
        .misbehave(&["write", "x.txt", "x", "err", "cannot do it", "exit", "7"])
        .repo(&repo)
        .verify("true")
        .ok();
    let result = ended(&world, id);
    assert_eq!(
        (result.state, result.class, result.phase),
        (State::Failed, Some(Class::WorkerFailed), Some(Phase::Working))
    );
    assert_eq!((result.exit_code, result.signal), (Some(7), None));
    assert_eq!(result.message, "the worker failed (exit code 7: cannot do it)");
    assert_eq!(result.stderr_tail.as_deref().map(str::trim), Some("cannot do it"));
    assert!(result.gate.is_empty());
    // Failed work is never on the branch, and never lost.
    assert_eq!(repo.rev(&format!("workspool/{id}")), head);
    let salvage = result.salvage.unwrap();
    assert!(salvage.complete);
    assert_eq!(repo.show(&salvage.name, "tree/x.txt"), "x");
    assert_eq!(result.changed.len(), 1);
    world.on("wait", id, &[]).exits(10);
}

#[test]
fn a_failed_workers_own_commits_leave_the_branch_and_stay_in_the_salvage() {
    let world = World::new();
    let repo = world.repo("r");
    let head = repo.head();
    let id = world
        .misbehave(&["append", "README.md", "more", "commit", "half way", "write", "y.txt", "y", "exit", "1"])
        .repo(&repo)
        .ok();
    let salvage = ended(&world, id).salvage.unwrap();
    assert_eq!(repo.rev(&format!("workspool/{id}")), head);
    assert_eq!(repo.show(&salvage.name, "tree/y.txt"), "y");
    assert_eq!(repo.git(&["log", "-1", "--format=%s", &format!("{}^", salvage.commit)]), "half way");
}

#[test]
fn a_death_by_signal_is_not_an_exit_code() {
    let world = World::new();
    let id = world.misbehave(&["signal", "6"]).with("retries", "0").ok();
    let result = ended(&world, id);
    assert_eq!((result.exit_code, result.signal), (None, Some(6)));
    assert!(result.message.contains("signal 6"), "{}", result.message);
}

#[test]
fn a_missing_program_is_a_class_of_its_own() {
    let world = World::new();
    let program = world.root().join("agent");
    fs::copy("/bin/true", &program).unwrap();
    let command = serde_json::to_string(&[program.to_str().unwrap()]).unwrap();
    world.run(&["workers", "link", "agent", "--command", &command]).ok();
    let id = world.submit("x").worker("agent").ok();
    fs::remove_file(program).unwrap();
    let result = ended(&world, id);
    assert_eq!((result.state, result.class), (State::Failed, Some(Class::NotFound)));
    assert_eq!(result.exit_code, None);
    world.on("wait", id, &[]).exits(25);
}

#[test]
fn a_worker_that_was_unlinked_meanwhile_is_not_replaced_by_another() {
    let world = World::new();
    world.run(&["workers", "link", "agent", "--command", "[\"true\"]"]).ok();
    let id = world.submit("x").worker("agent").ok();
    world.run(&["workers", "unlink", "agent"]).ok();
    let result = ended(&world, id);
    assert_eq!(result.class, Some(Class::NotFound));
    assert!(result.message.contains("there is no worker agent any more"), "{}", result.message);
}

#[test]
fn the_time_of_an_attempt_is_limited() {
    let world = World::new();
    let pid = world.root().join("pid");
    let verbs = ["ignore-term", "bare-child", pid.to_str().unwrap(), "600000", "sleep", "600000"];
    let id = world.misbehave(&verbs).with("timeout", "1").ok();
    let result = ended(&world, id);
    assert_eq!(
        (result.state, result.class, result.phase),
        (State::TimedOut, Some(Class::Timeout), Some(Phase::Working))
    );
    assert_eq!(result.attempts.len(), 1, "a time-out is not repeated");
    world.assert_gone(&pid);
    assert_eq!(result.survivors, Vec::<String>::new());
    world.on("wait", id, &[]).exits(11);
}

#[test]
fn silence_and_a_slow_start_have_their_own_deadlines() {
    let world = World::new();
    let submit = |verbs: &[&str], field: &str| {
        let mut task = json!({"objective": world.misbehave_line(verbs), "worker": "shell", "retries": 0});
        task[field] = 1.into();
        world.submit_file("-").input(task.to_string()).ok()
    };
    let silent = submit(&["say", "hello", "sleep", "600000"], "silence_timeout");
    let never = submit(&["sleep", "600000"], "start_timeout");
    let talks = submit(&["say", "hello", "sleep", "1500", "say", "still here"], "start_timeout");
    world.drain();
    let result = world.result(silent);
    assert_eq!((result.state, result.class), (State::TimedOut, Some(Class::SilenceTimeout)));
    let result = world.result(never);
    assert_eq!((result.state, result.class), (State::TimedOut, Some(Class::StartTimeout)));
    world.succeeded(talks);
}

#[test]
fn all_attempts_together_have_a_deadline() {
    let world = World::new();
    let task =
        json!({"objective": "sleep 1.2; exit 1", "worker": "shell", "retries": 50, "total_timeout": 2});
    let id = world.submit_file("-").input(task.to_string()).ok();
    let result = ended(&world, id);
    assert_eq!((result.state, result.class), (State::TimedOut, Some(Class::Timeout)), "{}", result.message);
    assert!(result.attempts.len() < 5, "{:?}", result.attempts);
}

#[test]
fn a_failure_is_repeated_as_often_as_asked() {
    let world = World::new();
    let repo = world.repo("r");
    let count = world.root().join("count");
    let script = format!(
        "echo x >> {0}; echo $WORKSPOOL_TASK; echo try >> tries.txt; test $(wc -l < {0}) -ge 3",
        count.display()
    );
    let id = world.script(&script).repo(&repo).with("retries", "5").ok();
    let never = world.script("exit 1").with("retries", "2").ok();
    let plain = world.script("exit 1").ok();
    world.drain();
    let result = world.succeeded(id);
    assert_eq!((result.attempt, result.attempts.len()), (3, 3));
    assert_eq!(repo.show(&result.commit.unwrap(), "tries.txt"), "try\n", "each attempt starts from the base");
    assert_eq!(world.result(never).attempts.len(), 3);
    assert_eq!(
        world.result(plain).attempts.len(),
        1,
        "a failure of the worker's own is not repeated unasked"
    );
}

#[test]
fn a_retry_makes_another_attempt_and_keeps_what_the_first_left() {
    let world = World::new();
    let repo = world.repo("r");
    let flag = world.root().join("flag");
    let script = format!(
        "echo $$ > who.txt; echo first > only-first.txt; test -e {0} && rm only-first.txt; test -e {0}",
        flag.display()
    );
    let id = world.script(&script).repo(&repo).ok();
    let first = ended(&world, id);
    assert_eq!((first.state, first.attempt), (State::Failed, 1));
    fs::write(&flag, "").unwrap();
    world.on("retry", id, &[]).ok();
    assert_eq!(world.state(id), State::Queued);
    let second = ended(&world, id);
    assert_eq!((second.state, second.attempt), (State::Succeeded, 2));
    assert_eq!(
        second.attempts.iter().map(|a| (a.attempt, a.state)).collect::<Vec<_>>(),
        [(1, State::Failed), (2, State::Succeeded)]
    );
    assert_eq!(repo.show(&first.salvage.unwrap().name, "tree/only-first.txt"), "first\n");
    assert!(
        world.dir(id).attempt(1).step("work.1").is_dir() && world.dir(id).attempt(2).step("work.1").is_dir()
    );
}

#[test]
fn a_retry_may_be_by_another_worker() {
    let world = World::new();
    world.run(&["workers", "link", "fails", "--command", "[\"false\"]"]).ok();
    let id = world.submit("true").worker("fails").ok();
    assert_eq!(ended(&world, id).class, Some(Class::WorkerFailed));
    world.on("retry", id, &["--worker", "no-such"]).exits(4).says(&["there is no worker no-such"]);
    assert_eq!(world.state(id), State::Failed);
    world.on("retry", id, &["--worker", "shell"]).ok();
    let result = ended(&world, id);
    assert_eq!((result.state, result.worker.name.as_str()), (State::Succeeded, "shell"));
    assert_eq!(result.attempts.iter().map(|a| a.worker.as_str()).collect::<Vec<_>>(), ["fails", "shell"]);
}

#[test]
fn any_amount_of_output_is_cut_and_the_cut_is_told() {
    let world = World::configured("[defaults]\noutput_cap = 20000");
    let id =
        world.misbehave(&["say", "begins", "bytes", "3000000", "line", "5000000", "say", "\\nends"]).ok();
    world.drain();
    let result = world.succeeded(id);
    assert!(
        result.warnings.iter().any(|w| w.contains("over the cap and were not logged")),
        "{:?}",
        result.warnings
    );
    let log = world.on("logs", id, &[]).ok().text();
    assert!(log.contains("begins") && log.contains("ends") && log.contains("bytes were not logged"));
    assert!(log.len() < 200_000, "{} bytes are kept", log.len());
}

#[test]
fn a_background_child_that_holds_the_pipe_does_not_hold_the_attempt() {
    let world = World::new();
    let pid = world.root().join("pid");
    let id = world.misbehave(&["hold-pipe", pid.to_str().unwrap(), "600000", "say", "done"]).ok();
    world.drain();
    let result = world.succeeded(id);
    world.assert_gone(&pid);
    assert!(result.left_over.iter().any(|l| l.contains("misbehave")), "{:?}", result.left_over);
    assert_eq!(world.log(id, "work.1"), "done");
}

#[test]
fn whatever_a_worker_leaves_running_is_ended() {
    let world = World::new();
    let at = |name: &str| world.root().join(name);
    let files = ["daemon", "setsid", "bare"].map(at);
    let path = |k: usize| files[k].to_str().unwrap();
    let port = at("port");
    let server =
        world.misbehave_line(&["port", port.to_str().unwrap(), "sleep", "600000"]).replacen("exec ", "", 1);
    let script = format!(
        "({server}) > /dev/null 2>&1 & while [ ! -s {} ]; do sleep 0.05; done\n{}",
        port.display(),
        world.misbehave_line(&[
            "daemon",
            path(0),
            "600000",
            "setsid",
            path(1),
            "600000",
            "bare-child",
            path(2),
            "600000",
            "storm",
            "6",
            "600000",
        ])
    );
    let id = world.script(&script).ok();
    world.drain();
    let result = world.succeeded(id);
    files.iter().for_each(|f| world.assert_gone(f));
    let port: u16 = fs::read_to_string(port).unwrap().parse().unwrap();
    drop(
        std::net::TcpListener::bind(("127.0.0.1", port))
            .expect("a server that the worker left holds its port"),
    );
    assert_eq!(result.survivors, Vec::<String>::new());
    assert!(result.left_over.len() >= 4, "{:?}", result.left_over);
    let still: Vec<_> = world.processes().into_iter().filter(|p| p.what.contains("misbehave")).collect();
    assert!(still.is_empty(), "{still:?}");
}

#[test]
fn standard_input_is_never_an_open_pipe() {
    let world = World::new();
    let id = world.misbehave(&["stdin", "input.bin"]).ok();
    world.drain();
    world.succeeded(id);
    assert_eq!(world.on("artifacts", id, &["input.bin"]).ok().stdout, b"");
}

#[test]
fn the_environment_is_made_from_nothing() {
    let world = World::new();
    world.set_env("PLAIN", "not asked for");
    world.set_env("ASKED", "asked for");
    world.set_env("AWS_SECRET_ACCESS_KEY", "not for everybody");
    let id = world.misbehave(&["env", "env.txt"]).with("env", "ASKED").ok();
    world.drain();
    world.succeeded(id);
    let env = world.on("artifacts", id, &["env.txt"]).ok().text();
    let has = |name: &str| env.lines().any(|l| l.starts_with(&format!("{name}=")));
    assert!(has("HOME") && has("PATH") && has("TMPDIR") && has("ASKED"), "{env}");
    assert!(!has("PLAIN") && !has("AWS_SECRET_ACCESS_KEY"), "{env}");
    let tmp = env.lines().find_map(|l| l.strip_prefix("TMPDIR=")).unwrap();
    assert!(tmp.starts_with(world.root().to_str().unwrap()), "{tmp}");
    assert!(!std::path::Path::new(tmp).exists(), "its temporary folder is gone with it");
}

#[test]
fn the_time_for_making_a_workspace_is_limited() {
    let world = World::configured("[defaults]\nprepare_timeout = 1");
    let repo = world.repo("r");
    repo.write(".gitattributes", "*.slow filter=slow\n").write("a.slow", "a\n").commit("slow");
    let pid = world.root().join("pid");
    repo.git(&["config", "filter.slow.smudge", &format!("echo $$ > {}; exec sleep 600", pid.display())]);
    let id = world.script("true").repo(&repo).with("retries", "0").ok();
    let result = ended(&world, id);
    assert_eq!(
        (result.state, result.class, result.phase),
        (State::Failed, Some(Class::Workspace), Some(Phase::Preparing))
    );
    assert_eq!(result.message, "the time for making the workspace is over");
    world.assert_gone(&pid);
}

#[test]
fn the_time_of_setup_is_limited() {
    let world = World::configured("[defaults]\nsetup_timeout = 1");
    let repo = world.repo("r");
    let pid = world.root().join("pid");
    let slow = world.misbehave_line(&[
        "ignore-term",
        "bare-child",
        pid.to_str().unwrap(),
        "600000",
        "sleep",
        "600000",
    ]);
    let id = world.script("touch never").repo(&repo).with("setup", slow).with("retries", "0").ok();
    let result = ended(&world, id);
    assert_eq!(
        (result.state, result.class, result.phase),
        (State::Failed, Some(Class::Workspace), Some(Phase::Setup))
    );
    assert!(result.message.starts_with("setup command failed (its time was over)"), "{}", result.message);
    world.assert_gone(&pid);
}
