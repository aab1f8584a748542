//! With the real cron and the real systemd user manager, where the machine has them. Both change the
//! user's own crontab or units for some minutes, so they run only when asked for:
//!
//! `WORKSPOOL_REAL=1 cargo test --test ops -- --ignored real`

use super::support::{Home, Running};
use std::process::{Command, Stdio};

fn asked() -> bool {
    let asked = std::env::var_os("WORKSPOOL_REAL").is_some();
    if !asked {
        eprintln!("WORKSPOOL_REAL is not set: not run");
    }
    asked
}

fn crontab() -> Option<Vec<u8>> {
    let said = Command::new("crontab").arg("-l").output().unwrap();
    said.status.success().then_some(said.stdout)
}

#[test]
#[ignore = "changes the user's crontab for some minutes"]
fn real_cron_works_tasks_off_and_the_crontab_is_as_before() {
    if !asked() {
        return;
    }
    let home = Home::new();
    let before = crontab();
    // One that runs already keeps its place, and this one ends.
    let _cron = Running(Command::new("cron").arg("-f").stderr(Stdio::null()).spawn().unwrap());
    home.run(["service", "install", "--kind", "cron", "--yes"]).good();
    // Longer than the tick that starts it.
    let id = home.submit("sleep 5; echo worked");
    let waited = home.run(["wait", &id, "--timeout", "200"]);
    let shown = home.run(["show", &id, "--json"]).json();
    let status = home.run(["service", "status"]).code();
    let doctor = home.run(["doctor", "--json"]).json();
    home.run(["service", "uninstall"]).good();
    assert_eq!(crontab(), before);
    waited.good();
    assert_eq!(shown["result"]["attempt"], 1);
    assert_eq!(status, 0);
    let runner = doctor.as_array().unwrap().iter().find(|f| f["check"] == "runner").unwrap().clone();
    assert!(
        runner["level"] == "ok" && runner["what"].as_str().unwrap().starts_with("ticks come"),
        "{runner}"
    );
}

#[test]
#[ignore = "installs a unit of the user's systemd for a moment"]
fn real_systemd_works_tasks_off_and_no_unit_is_left() {
    if !asked() {
        return;
    }
    let answers = Command::new("systemctl").args(["--user", "show-environment"]).output();
    if !answers.is_ok_and(|a| a.status.success()) {
        eprintln!("no systemd user manager answers here: not run");
        return;
    }
    let home = Home::new();
    // Its manager reads the units of the real user.
    let mut names: Vec<&str> = vec!["XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS", "HOME", "USER"];
    names.retain(|n| std::env::var_os(n).is_some());
    let run = |args: &[&str]| {
        let mut command = home.command(args);
        command.envs(names.iter().map(|n| (*n, std::env::var_os(n).unwrap())));
        super::support::Said(command.output().unwrap())
    };
    for (mode, every) in [("timer", "5s"), ("loop", "60s")] {
        run(&["service", "install", "--kind", "systemd", "--mode", mode, "--every", every, "--yes"]).good();
        let id = home.submit("sleep 5; echo worked");
        let waited = run(&["wait", &id, "--timeout", "120"]);
        let restarted = run(&["service", "restart"]);
        let status = run(&["service", "status"]);
        let as_service = run(&["doctor", "--as-service"]);
        run(&["service", "uninstall"]).good();
        waited.good();
        restarted.good();
        assert_eq!(status.code(), 0, "{}", status.out());
        assert!(as_service.out().contains("outlives the tick"), "{}", as_service.out());
    }
    let left = Command::new("systemctl").args(["--user", "list-unit-files", "workspool-*"]).output().unwrap();
    assert!(String::from_utf8_lossy(&left.stdout).contains("0 unit files"));
}
