//! Submitting: by objective, file, standard input, batch and lines; idempotency.

use crate::support::{Ran, World};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::process::Stdio;
use workspool::model::{Door, Permission, State, TaskId, WorkspaceKind};
use workspool::spool::events;

#[test]
fn prints_the_id_and_the_hash_of_the_record() {
    let world = World::new();
    let ran = world.script("true").run().ok();
    let line = ran.text();
    let (id, hash) = line.trim().split_once("  sha256:").expect("ID  sha256:HASH");
    let id: TaskId = id.parse().unwrap();
    // Whoever reads finds the task, though no runner ever ran.
    world.on("show", id, &["--json"]).ok();
    assert_eq!(events::hash(&fs::read(world.dir(id).record(1)).unwrap()), hash);
    assert_eq!(world.state(id), State::Queued);
}

#[test]
fn prints_json_when_asked() {
    let world = World::new();
    let out: Value = world.script("true").with("title", "a name").flag("json").run().ok().json();
    let task = &out["tasks"][0];
    assert_eq!(task["title"], "a name");
    assert_eq!(task["existing"], false);
    let id: TaskId = task["id"].as_str().unwrap().parse().unwrap();
    let shown: Value = world.on("show", id, &["--json"]).ok().json();
    assert_eq!(shown["sha256"], task["sha256"]);
}

#[test]
fn returns_once_one_durable_file_is_there() {
    let world = World::new();
    let id = world.script("true").ok();
    // Nothing has expanded it yet: the intake file is the submission.
    assert_eq!(world.names("intake"), [format!("{id}.json")]);
    assert_eq!(world.names("tmp"), Vec::<String>::new(), "no half written file is left");
    let batch = world.submit_file("-").input(
        r#"{"tasks": [{"objective": "a", "worker": "shell"}, {"objective": "b", "worker": "shell"}]}"#,
    );
    let ids = batch.all();
    // The second one is one file for both tasks, and makes nothing of what was there before it.
    assert_eq!(world.names("intake"), [format!("{id}.json"), format!("{}.json", ids[0])]);
    assert_eq!(ids[1], ids[0].plus(1));
}

#[test]
fn every_option_arrives_in_the_task() {
    let world = World::new();
    let repo = world.repo("r");
    fs::create_dir(repo.path().join("sub")).unwrap();
    let need = world.script("true").ok();
    let id = world
        .submit("do it")
        .repo(&repo)
        .worker("shell")
        .verify("make test")
        .verify("make lint")
        .flag("verify-all")
        .with("repair", "2")
        .with("title", "T")
        .with("context", "C")
        .with("base", "main")
        .with("subdir", "sub")
        .with("permission", "custom")
        .with("allow", "src/**")
        .with("forbid", "src/secret*")
        .with("acceptance", "it works")
        .with("constraint", "no new dependency")
        .with("deliverable", "out.md")
        .with("artifact", "*.txt")
        .with("setup", "make deps")
        .with("copy", ".env")
        .with("env", "TOKEN")
        .with("priority", "70")
        .with("timeout", "60")
        .with("retries", "1")
        .with("tag", "one")
        .with("tag", "two")
        .needs(need)
        .with("not-before", "2h")
        .with("expires", "2100-01-01T00:00:00Z")
        .with("idempotency-key", "k")
        .flag("hold")
        .ok();
    world.run(&["list"]).ok();
    let task = world.task(id);
    assert_eq!(task.submitted_by.door, Door::Cli);
    assert_eq!(task.needs, [need]);
    let spec = task.spec;
    assert_eq!(spec.objective, "do it");
    assert_eq!(spec.repository.as_deref(), Some(repo.path()));
    assert_eq!(spec.verify.iter().map(ToString::to_string).collect::<Vec<_>>(), ["make test", "make lint"]);
    assert!(spec.verify_all && spec.hold);
    assert_eq!(
        (spec.repair, spec.priority, spec.timeout, spec.retries),
        (Some(2), Some(70), Some(60), Some(1))
    );
    assert_eq!(
        (spec.title.as_deref(), spec.context.as_deref(), spec.base.as_deref()),
        (Some("T"), Some("C"), Some("main"))
    );
    assert_eq!(spec.permission(), Permission::Custom);
    assert_eq!((spec.allow, spec.forbid), (vec!["src/**".to_owned()], vec!["src/secret*".to_owned()]));
    assert_eq!(
        (spec.acceptance, spec.constraints),
        (vec!["it works".to_owned()], vec!["no new dependency".to_owned()])
    );
    assert_eq!((spec.deliverables, spec.artifacts), (vec!["out.md".to_owned()], vec!["*.txt".to_owned()]));
    assert_eq!(
        (spec.copy, spec.env, spec.tags),
        (vec![".env".to_owned()], vec!["TOKEN".to_owned()], vec!["one".to_owned(), "two".to_owned()])
    );
    assert_eq!(spec.setup[0].to_string(), "make deps");
    assert!(spec.not_before.unwrap() > chrono::Utc::now() + chrono::TimeDelta::minutes(119));
    assert_eq!(spec.expires.unwrap().to_rfc3339(), "2100-01-01T00:00:00+00:00");
    assert_eq!(spec.idempotency_key.as_deref(), Some("k"));
    assert_eq!(spec.workspace, None);
}

#[test]
fn reads_a_file_or_standard_input() {
    let world = World::new();
    let task =
        json!({"objective": "true", "worker": "shell", "workspace": "temporary", "metadata": {"n": 1}});
    let file = world.root().join("task.json");
    fs::write(&file, task.to_string()).unwrap();
    let from_file = world.submit_file(&file).ok();
    let from_input = world.submit_file("-").input(task.to_string()).ok();
    assert_ne!(from_file, from_input);
    world.run(&["list"]).ok();
    for id in [from_file, from_input] {
        let spec = world.task(id).spec;
        assert_eq!((spec.workspace, spec.metadata["n"].clone()), (Some(WorkspaceKind::Temporary), json!(1)));
    }
}

#[test]
fn a_relative_repository_is_where_the_submitter_stands() {
    let world = World::new();
    let repo = world.repo("r");
    let mut command = world.submit("true").worker("shell").with("repo", ".").command();
    command.current_dir(repo.path());
    let id: TaskId = Ran::to_end(command, b"").ok().text()[..26].parse().unwrap();
    world.run(&["list"]).ok();
    assert_eq!(world.task(id).repo.unwrap().path, repo.path());
}

#[test]
fn a_batch_is_all_or_nothing() {
    let world = World::new();
    let bad = json!({"tasks": [
        {"objective": "true", "worker": "shell"},
        {"objective": "true", "worker": "shell", "priority": 101},
        {"objective": " ", "worker": "shell"},
    ]});
    world
        .submit_file("-")
        .input(bad.to_string())
        .refused(3, &["tasks[1].priority: 101", "tasks[2].objective"]);
    let good = json!({"tasks": [
        {"objective": "true", "worker": "shell", "name": "a"},
        {"objective": "true", "worker": "shell", "needs": ["a"]},
    ]});
    let ids = world.submit_file("-").input(good.to_string()).all();
    world.run(&["list"]).ok();
    assert_eq!(world.task(ids[1]).needs, [ids[0]]);
    assert_eq!(world.task(ids[1]).batch.unwrap().first, ids[0]);
}

#[test]
fn lines_are_a_batch_and_a_bad_line_is_named() {
    let world = World::new();
    let line = r#"{"objective": "true", "worker": "shell"}"#;
    assert_eq!(world.submit_file("-").input(format!("{line}\n\n{line}\n{line}")).all().len(), 3);
    let bad = format!("{line}\n{line}\n{{\"objektive\": \"x\"}}\n");
    world.submit_file("-").input(bad).refused(3, &["line 3", "tasks[2]", "did you mean `objective`?"]);
}

#[test]
fn one_key_and_one_content_are_one_task() {
    let world = World::new();
    let submit = || world.script("true").with("idempotency-key", "nightly-1");
    let first = submit().ok();
    let again: Value = submit().flag("json").run().ok().json();
    assert_eq!(again["tasks"][0]["id"], first.to_string());
    assert_eq!(again["tasks"][0]["existing"], true);
    assert_eq!(world.task_count(), 1);
    // Also after it has run.
    world.drain();
    assert_eq!(submit().ok(), first);
    assert_eq!(world.starts(first), 1);
}

#[test]
fn one_key_and_other_content_is_refused_and_names_the_difference() {
    let world = World::new();
    let first = world.script("true").with("idempotency-key", "k").ok();
    world.run(&["list"]).ok();
    world
        .script("false")
        .with("priority", "9")
        .with("idempotency-key", "k")
        .refused(6, &["\"k\"", &first.to_string(), "objective, priority differs", "hint: use a new key"]);
}

#[test]
fn thirty_racing_submissions_with_one_key_are_one_task() {
    let world = World::new();
    let children: Vec<_> = (0..30)
        .map(|_| {
            let mut command = world.script("true").with("idempotency-key", "race").command();
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    let ids: BTreeSet<String> = children
        .into_iter()
        .map(|child| {
            let out = child.wait_with_output().unwrap();
            assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
            String::from_utf8(out.stdout).unwrap()[..26].to_owned()
        })
        .collect();
    assert_eq!(ids.len(), 1, "one key, one task");
    world.drain();
    assert_eq!(world.names("tasks"), ids.iter().cloned().collect::<Vec<_>>());
    assert_eq!(world.starts(ids.first().unwrap().parse().unwrap()), 1);
}

#[test]
fn submit_and_wait_ends_with_the_tasks_own_exit_code() {
    let world = World::new();
    let _runner = world.run_loop();
    let ran = world.script("echo done").flag("wait").run().ok();
    assert!(ran.text().contains("succeeded"), "{}", ran.text());
    world.script("exit 7").flag("wait").run().exits(10);
    world.script("true").verify("false").flag("wait").run().exits(20);
}

#[test]
fn an_objective_that_looks_like_an_option_is_an_objective() {
    let world = World::new();
    let id = world.submit("--version").worker("shell").ok();
    world.run(&["list"]).ok();
    assert_eq!(world.task(id).spec.objective, "--version");
}
