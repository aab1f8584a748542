//! Ends from outside.

use super::bench::{APIS, Bench, Ran, read, start};
use super::modelserver::Turn;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use std::os::unix::process::ExitStatusExt as _;
use std::time::{Duration, Instant};
use workspool::process::Identity;

fn await_file(path: &std::path::Path) -> String {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        match std::fs::read_to_string(path) {
            Ok(text) if text.ends_with('\n') => return text.trim().to_owned(),
            _ => assert!(Instant::now() < until, "{} never came", path.display()),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_signal_in_a_tool_ends_the_run_and_all_of_the_tool() {
    let bench = Bench::new();
    for (k, signal) in [Signal::TERM, Signal::INT, Signal::HUP].into_iter().enumerate() {
        let command = format!(
            "trap '' TERM; (trap '' TERM; exec sleep 600) & echo $! > child{k}; \
             setsid sh -c 'trap \"\" TERM; echo $$ > tmp{k}; mv tmp{k} escaped{k}; sleep 600' & \
             echo $$ > shell{k}; sleep 600"
        );
        let scenario = format!("stop-{k}");
        bench.server.script(&scenario, [Turn::call("run_shell", json!({"command": command}))]);
        let mut child = start(&mut bench.command(APIS[k], &scenario), "go");
        let pids = ["child", "escaped", "shell"].map(|name| await_file(&bench.work(&format!("{name}{k}"))));
        kill_process(Pid::from_child(&child), signal).unwrap();
        let status = child.wait().unwrap();
        assert_eq!(status.signal(), Some(signal.as_raw()), "{status}");
        for pid in pids {
            assert_eq!(Identity::of(pid.parse().unwrap()).unwrap(), None, "{pid} is still alive");
        }
    }
}

#[test]
fn a_signal_ends_a_run_that_waits_for_its_model() {
    let bench = Bench::new();
    for (k, scenario) in ["hang", "slow", "err429"].into_iter().enumerate() {
        let child = start(&mut bench.command(APIS[k], scenario), "go");
        bench.server.await_requests(scenario, 1);
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        let ran = Ran::of(child);
        assert_eq!(ran.code, None, "{}", ran.stdout);
    }
}

#[test]
fn a_run_that_nobody_hears_ends() {
    let bench = Bench::new();
    bench.server.script("unheard", [Turn::call("run_shell", json!({"command": "echo x >> count"}))]);
    let mut child = start(&mut bench.command("anthropic", "unheard"), "go");
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(1));
    let runs = if bench.work("count").exists() { read(&bench.work("count")).lines().count() } else { 0 };
    assert!(runs <= 2, "it went on {runs} times");
}
