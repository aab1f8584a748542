//! Somebody is told when a task ends, once, and no task waits for it.

use super::support::{Home, until};
use std::path::Path;

fn none(dir: &Path) -> bool {
    std::fs::read_dir(dir).is_ok_and(|d| d.count() == 0)
}

#[test]
fn a_command_gets_its_values_as_arguments_and_all_else_as_json() {
    let home = Home::new();
    let told = home.path().join("told");
    home.program(
        "tell",
        &format!("{{ printf '%s\\n' \"$@\"; cat; echo; }} > '{0}.tmp' && mv '{0}.tmp' '{0}'", told.display()),
    );
    home.write(
        "spool/config.toml",
        "[notify]\ncommand = [\"tell\", \"{event}\", \"{title}\", \"{state}: {message}\"]\n",
    );
    home.run(["submit", "exit 3", "--worker", "shell", "--title", "a $(b) 'c'"]).good();
    home.run(["run", "--drain"]).good();
    until("the command", || told.exists().then_some(()));
    let text = std::fs::read_to_string(&told).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[..2], ["failed", "a $(b) 'c'"]);
    assert!(lines[2].starts_with("failed: "), "{text}");
    let details: serde_json::Value = serde_json::from_str(lines[3]).unwrap();
    assert_eq!((&details["state"], &details["worker"]), (&"failed".into(), &"shell".into()));
    until("the wish to go", || none(&home.spool().join("notices")).then_some(()));
}

#[test]
fn what_fails_is_tried_again_later_by_a_tick_and_given_up_in_the_end() {
    let home = Home::new();
    home.recorder("tell", "exit 1");
    home.write("spool/config.toml", "[notify]\ncommand = [\"tell\"]\nattempts = 2\n");
    home.submit("true");
    home.run(["run", "--drain"]).good();
    let notices = home.spool().join("notices");
    let wish = until("the first try", || {
        let path = std::fs::read_dir(&notices).ok()?.next()?.ok()?.path();
        let text = std::fs::read_to_string(&path).ok()?;
        text.contains("not_before").then_some((path, text))
    });
    assert_eq!(home.calls("tell").lines().count(), 1);
    home.run(["tick"]).good();
    // As if the pause were over.
    let mut value: serde_json::Value = serde_json::from_str(&wish.1).unwrap();
    value["not_before"] = "2020-01-01T00:00:00Z".into();
    std::fs::write(&wish.0, value.to_string()).unwrap();
    home.run(["tick"]).good();
    until("the last try", || none(&notices).then_some(()));
    assert_eq!(home.calls("tell").lines().count(), 2, "not before its time, and not more often");
    let log = home.spool().join("logs/notify.log");
    until("the log", || std::fs::read_to_string(&log).unwrap().contains("given up").then_some(()));
}

#[test]
fn only_what_was_chosen_is_told_and_nothing_of_what_was_cancelled() {
    let home = Home::new();
    home.recorder("tell", "");
    home.write("spool/config.toml", "[notify]\non = [\"done\"]\ncommand = [\"tell\", \"{event}\"]\n");
    home.submit("exit 1");
    let cancelled = home.submit("true");
    home.run(["cancel", &cancelled]).good();
    home.submit("true");
    home.run(["run", "--drain"]).good();
    until("the command", || (!home.calls("tell").is_empty()).then_some(()));
    until("the wish to go", || none(&home.spool().join("notices")).then_some(()));
    assert_eq!(home.calls("tell"), "done\n");
}

#[test]
fn without_anybody_to_tell_nothing_is_written() {
    let home = Home::new();
    home.submit("true");
    home.run(["run", "--drain"]).good();
    assert!(!home.spool().join("notices").exists());
}

#[test]
fn a_wish_that_a_crash_left_is_fulfilled_by_the_next_tick() {
    let home = Home::new();
    home.recorder("tell", "");
    let id = home.submit("true");
    home.run(["run", "--drain"]).good();
    home.write("spool/config.toml", "[notify]\ncommand = [\"tell\", \"{task}\"]\n");
    let wish = serde_json::json!({ "version": 1, "task": id, "attempt": 1, "kind": "done", "at": "2026-01-01T00:00:00Z" });
    home.write(format!("spool/notices/{id}.1.done"), &wish.to_string());
    home.run(["tick"]).good();
    until("the command", || (home.calls("tell") == format!("{id}\n")).then_some(()));
}
