//! Workers: built in, and any program that is linked by one command.

use crate::support::World;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use workspool::model::{Class, State};
use workspool::process::{Identity, Liveness};

fn link(world: &World, name: &str, args: &[&str]) {
    let command = world.misbehave_command(args);
    world.run(&["workers", "link", name, "--command", &command]).ok();
}

#[test]
fn a_program_is_linked_by_one_command_and_does_the_work() {
    let world = World::new();
    let repo = world.repo("r");
    link(&world, "mine", &["--prompt", "{prompt}"]);
    let id = world
        .submit("Please do this:\n@write made.txt by my agent\n")
        .worker("mine")
        .repo(&repo)
        .verify("test -f made.txt")
        .ok();
    world.drain();
    let result = world.succeeded(id);
    assert_eq!(result.worker.name.as_str(), "mine");
    assert_eq!(repo.show(&result.commit.unwrap(), "made.txt"), "by my agent");
}

/// A kernel that ends children with their parent is Linux's.
#[cfg(target_os = "linux")]
#[test]
fn a_program_that_is_asked_something_dies_with_whoever_asked() {
    let world = World::new();
    let (program, pid) = (world.root().join("slow"), world.root().join("pid"));
    fs::write(
        &program,
        format!("#!/bin/sh\necho $$ > {0}.new; mv {0}.new {0}; exec sleep 600\n", pid.display()),
    )
    .unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let profile = json!({ "name": "slow", "command": [program], "health": { "signed_in": [program] } });
    let file = world.root().join("profile.json");
    fs::write(&file, profile.to_string()).unwrap();
    world.run(&["workers", "link", "--file", &file.to_string_lossy()]).ok();
    let mut asking = world.command(&["workers", "check", "slow"]).spawn().unwrap();
    world.await_file(&pid);
    asking.kill().unwrap();
    asking.wait().unwrap();
    let pid: u32 = fs::read_to_string(&pid).unwrap().trim().parse().unwrap();
    world.await_until("it is gone", || {
        Identity::of(pid).unwrap().is_none_or(|it| it.liveness().unwrap() != Liveness::Alive)
    });
}

#[test]
fn the_prompt_travels_by_argument_file_or_standard_input() {
    let world = World::new();
    let tricky = "Say \"hi\" to $(id) and `date`; {workspace} 'q' \\ % é\n@say line\n--flag";
    link(&world, "by-argument", &["args", "seen.txt", "--prompt", "{prompt}"]);
    link(&world, "by-file", &["args", "seen.txt", "--prompt-file", "{prompt_file}"]);
    link(&world, "by-input", &["stdin", "seen.txt"]);
    let ids = ["by-argument", "by-file", "by-input"].map(|w| world.submit(tricky).worker(w).ok());
    world.drain();
    let seen = ids.map(|id| {
        world.succeeded(id);
        world.on("artifacts", id, &["seen.txt"]).ok().text()
    });
    let prompt = fs::read_to_string(world.dir(ids[0]).attempt(1).file("prompt.md")).unwrap();
    assert!(prompt.contains(tricky), "{prompt}");
    assert!(seen[0].contains(&prompt), "one argument, byte for byte, through no shell");
    assert!(
        seen[1].ends_with(&world.dir(ids[1]).attempt(1).file("prompt.md").to_string_lossy().into_owned())
    );
    assert_eq!(seen[2], prompt);
    assert!(world.log(ids[0], "work.1").contains("line") && world.log(ids[1], "work.1").contains("line"));
}

#[test]
fn a_prompt_larger_than_an_argument_goes_by_input() {
    let world = World::new();
    link(&world, "by-input", &["stdin", "seen.txt"]);
    link(&world, "by-argument", &["args", "seen.txt", "--prompt", "{prompt}"]);
    let long = "word ".repeat(60_000);
    let task = |worker: &str| json!({"objective": long, "worker": worker, "retries": 0}).to_string();
    let good = world.submit_file("-").input(task("by-input")).ok();
    let bad = world.submit_file("-").input(task("by-argument")).ok();
    world.drain();
    world.succeeded(good);
    assert!(world.on("artifacts", good, &["seen.txt"]).ok().text().contains(&long));
    let bad = world.result(bad);
    // Where one argument holds less, it is said so.
    if bad.state != State::Succeeded {
        assert!(bad.message.contains("takes it as one argument, which holds"), "{}", bad.message);
    }
}

#[test]
fn the_prompt_says_all_that_the_task_says() {
    let world = World::new();
    let repo = world.repo("r");
    repo.write(".workspool.toml", "protected = [\"LICENSE\"]\n").commit("protect");
    link(&world, "reader", &["stdin", "../seen"]);
    let task = json!({
        "objective": "THE-OBJECTIVE", "context": "THE-CONTEXT", "worker": "reader", "repository": repo.path(),
        "constraints": ["THE-CONSTRAINT"], "acceptance": ["THE-CRITERION"], "verify": ["echo THE-VERIFICATION"],
        "deliverables": ["THE-DELIVERABLE.md"], "forbid": ["THE-FORBIDDEN/**"], "subagents": ["THE-HELPER"],
    });
    let id = world.submit_file("-").input(task.to_string()).ok();
    world.drain();
    let prompt = fs::read_to_string(world.dir(id).attempt(1).file("prompt.md")).unwrap();
    for part in [
        "THE-OBJECTIVE",
        "THE-CONTEXT",
        "THE-CONSTRAINT",
        "THE-CRITERION",
        "THE-VERIFICATION",
        "THE-DELIVERABLE.md",
        "THE-FORBIDDEN/**",
        "THE-HELPER",
        "LICENSE",
        "workspool-report",
    ] {
        assert!(prompt.contains(part), "the prompt lacks {part}:\n{prompt}");
    }
    // It is the fake worker that put it beside its workspace, which is no change of the task's.
    assert!(world.succeeded(id).changed.is_empty());
}

#[test]
fn placeholders_are_filled_and_unknown_ones_refused() {
    let world = World::new();
    link(&world, "all", &["args", "seen.txt", "say", "{task}|{attempt}|{workspace}|{model}|{unclosed"]);
    let id = world.submit("x").worker("all").ok();
    world.drain();
    let result = world.succeeded(id);
    let log = world.log(id, "work.1");
    assert_eq!(log, format!("{id}|1|{}||{{unclosed", result.workspace.unwrap().display()));
    world.run(&["workers", "link", "typo", "--command", r#"["true", "{promt}"]"#]).exits(3).says(&[
        "command[1]",
        "{promt} stands for nothing",
        "{prompt}",
    ]);
}

#[test]
fn a_worker_is_wrapped_and_stopped() {
    let world = World::new();
    let stopped = world.root().join("stopped");
    let command = world.misbehave_command(&["env", "env.txt"]);
    let stop = json!(["sh", "-c", format!("echo {{task}} >> {}", stopped.display())]).to_string();
    world
        .run(&[
            "workers",
            "link",
            "boxed",
            "--wrap",
            r#"["env", "WRAPPED=yes"]"#,
            "--stop",
            &stop,
            "--command",
            &command,
        ])
        .ok();
    let id = world.submit("x").worker("boxed").ok();
    world.drain();
    world.succeeded(id);
    assert!(world.on("artifacts", id, &["env.txt"]).ok().text().contains("WRAPPED=yes"));
    assert_eq!(fs::read_to_string(stopped).unwrap(), format!("{id}\n"));
}

#[test]
fn what_cannot_be_a_worker_is_refused() {
    let world = World::new();
    let link = |name: &str, command: &str| world.run(&["workers", "link", name, "--command", command]);
    link("a", r#"["no-such-program-here"]"#)
        .exits(4)
        .says(&["command[0]: there is no executable \"no-such-program-here\" on PATH", "hint: install it"]);
    link("a", r#"["/no/such/program"]"#)
        .exits(4)
        .says(&["/no/such/program is not there, or is not executable"]);
    link("a", "[]").exits(3).says(&["command", "empty"]);
    link("a", "my-agent run").exits(2).says(&["expected a JSON list of strings"]);
    link("../a", r#"["true"]"#).exits(2).says(&["is not a worker name"]);
    world
        .run(&["workers", "link", "a", "--output", "claud", "--command", r#"["true"]"#])
        .exits(3)
        .says(&["did you mean \"claude\"?"]);
    world
        .run(&["workers", "link", "a", "--wrap", r#"["no-such-box"]"#, "--command", r#"["true"]"#])
        .exits(4)
        .says(&["wrap[0]"]);
    assert_eq!(world.names("workers"), Vec::<String>::new());
    link("a", r#"["true"]"#).ok();
    link("a", r#"["false"]"#).exits(6).says(&["a worker a is linked already", "--replace"]);
    world.run(&["workers", "link", "a", "--replace", "--command", r#"["false"]"#]).ok();
    let shown: Value = world.run(&["workers", "show", "a"]).ok().json();
    assert_eq!(shown["command"], json!(["false"]));
}

#[test]
fn workers_are_listed_shown_and_unlinked() {
    let world = World::new();
    link(&world, "mine", &["say", "hi"]);
    let rows: Vec<Value> = world.run(&["workers", "list", "--json"]).ok().json();
    let row = |name: &str| {
        rows.iter().find(|r| r["name"] == name).unwrap_or_else(|| panic!("{name} is not listed"))
    };
    assert_eq!((&row("mine")["origin"], &row("mine")["installed"]), (&json!("linked"), &json!(true)));
    assert_eq!((&row("shell")["origin"], &row("shell")["installed"]), (&json!("built-in"), &json!(true)));
    world.run(&["workers", "show", "nobody"]).exits(4).says(&["there is no worker nobody"]);
    world.run(&["workers", "unlink", "shell"]).exits(6).says(&["built in"]);
    world.run(&["workers", "unlink", "mine"]).ok();
    world.run(&["workers", "unlink", "mine"]).exits(4);
    world.submit("x").worker("mine").refused(4, &["there is no worker mine"]);
}

#[test]
fn a_whole_profile_can_be_linked_and_a_broken_one_stops_no_other() {
    let world = World::new();
    let file = world.root().join("profile.json");
    let profile = json!({"name": "whole", "command": ["sh", "-c", "exit 41"], "exit_codes": {"41": "auth"}, "concurrency": 1});
    fs::write(&file, profile.to_string()).unwrap();
    world.run(&["workers", "link", "--file", file.to_str().unwrap()]).ok();
    fs::write(&file, r#"{"name": "x", "comand": ["true"]}"#).unwrap();
    world
        .run(&["workers", "link", "--file", file.to_str().unwrap()])
        .exits(3)
        .says(&["did you mean `command`?"]);
    fs::write(world.spool_path().join("workers/broken.json"), "{").unwrap();
    let (whole, shell) = (world.submit("x").worker("whole").ok(), world.script("true").ok());
    world.submit("x").worker("broken").refused(4, &["broken.json"]);
    world.drain();
    world.on("wait", whole, &[]).exits(24);
    world.succeeded(shell);
    assert!(world.run(&["workers", "list"]).ok().text().contains("broken"));
}

#[test]
fn a_script_may_name_its_own_interpreter() {
    let world = World::new();
    let id = world.script("#!/usr/bin/awk -f\nBEGIN { print 6 * 7 > \"out.txt\" }\n").ok();
    world.drain();
    world.succeeded(id);
    assert_eq!(world.on("artifacts", id, &["out.txt"]).ok().text(), "42\n");
}

#[test]
fn a_command_runs_without_a_shell() {
    let world = World::new();
    let repo = world.repo("r");
    let submit = |objective: &str| world.submit(objective).repo(&repo).worker("command").ok();
    let words = submit("cp README.md 'a b; $HOME *.txt'");
    let list = submit("[\"touch\", \"x y\", \"$(id)\"]");
    let (missing, broken) = (submit("no-such-program-here x"), submit("touch 'x"));
    let denied = submit("./README.md");
    world.drain();
    let files = |id| {
        let result = world.succeeded(id);
        result.changed.into_iter().map(|c| c.path).collect::<Vec<_>>()
    };
    assert_eq!(files(words), ["a b; $HOME *.txt"]);
    assert_eq!(files(list), ["$(id)", "x y"]);
    let result = world.result(missing);
    assert_eq!((result.state, result.class), (State::Failed, Some(Class::NotFound)), "{}", result.message);
    assert!(result.message.contains("cannot start no-such-program-here"), "{}", result.message);
    assert_eq!(world.result(denied).class, Some(Class::Permission));
    let result = world.result(broken);
    assert_eq!((result.state, result.class), (State::Failed, Some(Class::WorkerFailed)));
    assert!(result.message.contains("is not closed"), "{}", result.message);
}
