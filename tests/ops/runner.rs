//! One loop a spool; ticks and drains beside it; taking its place.

use super::support::{Home, Running, until};
use std::process::Stdio;

fn start(home: &Home, args: &[&str]) -> Running {
    Running(home.command(args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
}

fn loop_pid(home: &Home) -> Option<u64> {
    let status = home.run(["status", "--json"]).json();
    (status["runner"]["works"] == true).then(|| status["runner"]["process"]["identity"]["pid"].as_u64())?
}

#[test]
fn a_second_loop_is_told_who_runs_and_ticks_and_drains_may_run_beside() {
    let home = Home::new();
    let first = start(&home, &["run", "--poll", "100ms"]);
    let pid = until("the loop", || loop_pid(&home));
    assert_eq!(pid, u64::from(first.0.id()));
    let said = home.run(["run"]);
    assert_eq!(said.code(), 41, "{}", said.err());
    assert!(said.err().contains(&format!("process {pid}")), "{}", said.err());
    assert_eq!(home.run(["run", "--unless-awake"]).good(), "");
    home.run(["tick"]).good();
    home.submit("true");
    home.run(["run", "--drain"]).good();
}

#[test]
fn a_loop_that_was_killed_leaves_no_lock_and_is_told() {
    let home = Home::new();
    let mut first = start(&home, &["run"]);
    until("the loop", || loop_pid(&home));
    first.0.kill().unwrap();
    first.0.wait().unwrap();
    let said = home.run(["status"]).good();
    assert!(said.contains("died"), "{said}");
    let second = start(&home, &["run"]);
    assert_eq!(until("the second loop", || loop_pid(&home)), u64::from(second.0.id()));
}

#[test]
fn taking_its_place_ends_the_loop_and_no_task() {
    let home = Home::new();
    let mut first = start(&home, &["run", "--poll", "100ms"]);
    let gate = home.path().join("gate");
    let id = home.submit(&format!("while [ ! -e '{}' ]; do sleep 0.05; done; echo worked", gate.display()));
    until("the task", || home.run(["show", &id, "--json"]).out().contains("\"running\"").then_some(()));
    let second = start(&home, &["run", "--restart", "--poll", "100ms"]);
    assert!(first.0.wait().unwrap().success(), "it ended by itself");
    assert_eq!(until("the second loop", || loop_pid(&home)), u64::from(second.0.id()));
    std::fs::write(gate, "").unwrap();
    home.run(["wait", &id, "--timeout", "60"]).good();
    let shown = home.run(["show", &id, "--json"]).json();
    assert_eq!(shown["result"]["attempt"], 1, "the same attempt went on: {shown}");
}

#[test]
fn status_counts_what_waits_and_says_what_is_due() {
    let home = Home::new();
    home.submit("true");
    let id = home.submit("true");
    home.run(["hold", &id]).good();
    home.run(["submit", "true", "--worker", "shell", "--not-before", "2099-01-01T00:00:00Z"]).good();
    let status = home.run(["status", "--json"]).json();
    assert_eq!(status["runner"]["works"], false);
    assert_eq!((&status["counts"]["queued"], &status["counts"]["running"]), (&1.into(), &0.into()));
    assert_eq!(
        (&status["counts"]["held"]["hand"], &status["counts"]["held"]["time"]),
        (&1.into(), &1.into())
    );
    assert_eq!(status["next_due"].as_str().unwrap()[..4], *"2099");
    assert!(home.run(["status"]).good().contains("1 held (time)"));
}

#[test]
fn a_log_is_written_by_the_process_and_rotates() {
    let home = Home::new();
    home.write("spool/config.toml", "[logs]\nservice_bytes = 10\n");
    let log = home.spool().join("logs/service.log");
    for _ in 0..3 {
        home.submit("true");
        let said = home.run(["tick", "--log", log.to_str().unwrap()]);
        assert_eq!((said.good(), said.err()), (String::new(), String::new()), "all of it is in the file");
    }
    assert!(std::fs::read_to_string(&log).unwrap().contains("started"));
    assert!(log.with_extension("log.1").exists());
    assert!(home.run(["service", "logs"]).good().contains("started"));
}
