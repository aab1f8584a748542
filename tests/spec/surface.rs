//! What programs read: JSON of every reading verb, valid by its schema; waiting; lists; exit codes.

use crate::support::World;
use jsonschema::Validator;
use serde_json::{Value, json};
use std::time::Duration;
use workspool::model::{State, TaskId, schema};

fn validator(name: &str) -> Validator {
    let file = format!("{name}.schema.json");
    let (_, schema) = schema::all().into_iter().find(|(f, _)| *f == file).unwrap();
    jsonschema::options().should_validate_formats(true).build(&schema).unwrap()
}

#[track_caller]
fn valid(name: &str, value: &Value) {
    let errors: Vec<String> =
        validator(name).iter_errors(value).map(|e| format!("{}: {e}", e.instance_path())).collect();
    assert!(errors.is_empty(), "not a valid {name}: {errors:?}\n{value:#}");
}

fn ids(value: &Value) -> Vec<String> {
    value["tasks"].as_array().unwrap().iter().map(|t| t["id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn every_reading_verb_prints_json_that_its_schema_takes() {
    let world = World::new();
    let repo = world.repo("r");
    let good = world
        .script("echo x > x.txt; echo hi")
        .repo(&repo)
        .verify("true")
        .with("artifact", "x.txt")
        .with("tag", "t")
        .ok();
    let bad = world.script("exit 3").repo(&repo).ok();
    let held = world.script("true").flag("hold").ok();
    world.drain();
    for id in [good, bad, held] {
        let shown: Value = world.on("show", id, &["--json"]).ok().json();
        valid("task-record", &shown["task"]);
        assert_eq!(shown["id"], id.to_string());
        if id != held {
            valid("result", &shown["result"]);
        }
        for line in world.on("logs", id, &["--events", "--json"]).ok().text().lines() {
            valid("event", &serde_json::from_str(line).unwrap());
        }
        let why: Vec<String> = world.on("why", id, &["--json"]).ok().json();
        assert!(!why.is_empty());
    }
    let changed: Value = world.on("diff", good, &["--json"]).ok().json();
    assert_eq!(changed, json!([{"path": "x.txt", "change": "added", "added": 1, "removed": 0}]));
    let artifacts: Vec<Value> = world.on("artifacts", good, &["--json"]).ok().json();
    assert_eq!(artifacts[0]["path"], "x.txt");
    let log: Vec<Value> = world
        .on("logs", good, &["--json"])
        .ok()
        .text()
        .lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect();
    assert_eq!(
        (&log[0]["text"], &log[0]["step"], &log[0]["attempt"]),
        (&json!("hi"), &json!("work.1"), &json!(1))
    );
    let waited: Value = world.on("wait", bad, &["--json"]).exits(10).json();
    assert_eq!(waited["timed_out"], false);
    assert_eq!(waited["states"], json!([{"id": bad.to_string(), "state": "failed"}]));
    valid("result", &waited["results"][0]);
    valid("worker-profile", &world.run(&["workers", "show", "shell"]).ok().json());
    let listed: Value = world.run(&["list", "--json"]).ok().json();
    assert_eq!(listed["tasks"].as_array().unwrap().len(), 3);
    // What is on the disk is the same contract.
    for (name, file) in [("task-record", world.dir(good).record(1)), ("result", world.dir(good).result())] {
        valid(name, &serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap());
    }
}

#[test]
fn a_schema_is_printed_as_it_is_in_the_repository() {
    let world = World::new();
    let names = world.run(&["schema"]).ok().text();
    for name in ["task", "batch", "result", "review", "event", "request", "worker-profile", "rejection"] {
        assert!(names.lines().any(|l| l == name), "{name} is not in\n{names}");
        let file =
            std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("queue-schema/{name}.schema.json"));
        let printed = world.run(&["schema", name]).ok().text();
        assert!(printed == std::fs::read_to_string(file).unwrap(), "{name}.schema.json is another one");
    }
    world.run(&["schema", "tsak"]).exits(2).says(&["there is no schema tsak", "did you mean task?"]);
}

#[test]
fn a_list_is_newest_first_filtered_and_paged() {
    let world = World::new();
    let (a, b) = (world.repo("a"), world.repo("b"));
    let first = world.script("true").repo(&a).with("tag", "x").with("tag", "y").ok();
    let second = world.script("exit 1").repo(&b).with("tag", "x").ok();
    let third = world.script("true").ok();
    world.drain();
    let fourth = world.script("true").repo(&a).ok();
    let list = |args: &[&str]| ids(&world.run(&[&["list", "--json"], args].concat()).ok().json());
    let all: Vec<String> = [fourth, third, second, first].iter().map(TaskId::to_string).collect();
    assert_eq!(list(&[]), all);
    assert_eq!(list(&["--state", "failed"]), [second.to_string()]);
    assert_eq!(list(&["--state", "failed", "--state", "queued"]), [fourth.to_string(), second.to_string()]);
    assert_eq!(list(&["--tag", "x"]), [second.to_string(), first.to_string()]);
    assert_eq!(list(&["--tag", "x", "--tag", "y"]), [first.to_string()]);
    assert_eq!(list(&["--repo", a.path().to_str().unwrap()]), [fourth.to_string(), first.to_string()]);
    assert_eq!(list(&["--worker", "mock"]), Vec::<String>::new());
    assert_eq!(list(&["--review", "unreviewed"]), [third.to_string(), first.to_string()]);
    let page: Value = world.run(&["list", "--json", "--limit", "3"]).ok().json();
    assert_eq!(ids(&page), all[..3]);
    let next = page["next"].as_str().unwrap();
    let page: Value = world.run(&["list", "--json", "--limit", "3", "--after", next]).ok().json();
    assert_eq!(ids(&page), all[3..]);
    assert!(page.get("next").is_none());
    let text = world.run(&["list"]).ok().text();
    assert!(!text.contains('\u{1b}') && text.lines().count() == 4, "{text}");
    world.run(&["list", "--state", "sideways"]).exits(2).says(&["expected one of queued"]);
}

#[test]
fn waiting_for_any_returns_with_the_first() {
    let world = World::new();
    let held = world.script("true").flag("hold").ok();
    let quick = world.script("exit 3").ok();
    let _runner = world.run_loop();
    let ran = world.run(&["wait", "--any", &held.to_string(), &quick.to_string()]).exits(10);
    assert!(ran.text().contains("failed") && ran.text().contains("held"), "{}", ran.text());
}

#[test]
fn a_wait_that_is_over_changes_nothing() {
    let world = World::new();
    let id = world.script("true").flag("hold").ok();
    let ran = world.on("wait", id, &["--timeout", "1", "--json"]).exits(9);
    assert_eq!(ran.json::<Value>()["timed_out"], true);
    assert!(ran.took >= Duration::from_secs(1));
    assert_eq!(world.state(id), State::Held);
}

#[test]
fn waiting_for_all_tells_of_the_first_that_failed() {
    let world = World::new();
    let a = world.script("true").ok();
    let b = world.script("true").verify("false").ok();
    let c = world.script("exit 1").ok();
    let _runner = world.run_loop();
    let ran = world.run(&["wait", &a.to_string(), &b.to_string(), &c.to_string()]).exits(20);
    assert_eq!(ran.text().lines().count(), 3);
}

#[test]
fn show_tells_how_far_a_running_task_is() {
    let world = World::new();
    let go = world.root().join("go");
    let id =
        world.script(&format!("echo half way; while [ ! -e {} ]; do sleep 0.05; done", go.display())).ok();
    world.tick();
    let shown = world.await_some("the progress is told", || {
        let shown: Value = world.on("show", id, &["--json"]).ok().json();
        (shown["progress"]["last_line"] == "half way").then_some(shown)
    });
    assert_eq!(
        (&shown["state"], &shown["phase"], &shown["attempt"]),
        (&json!("running"), &json!("working"), &json!(1))
    );
    assert!(world.on("show", id, &[]).ok().text().contains("half way"));
    std::fs::write(go, "").unwrap();
    world.await_end(id);
    let shown: Value = world.on("show", id, &["--json"]).ok().json();
    assert!(shown.get("progress").is_none(), "{shown}");
}

#[test]
fn the_command_line_itself_is_explained() {
    let world = World::new();
    world.run(&["no-such-verb"]).exits(2);
    world.run(&["submit"]).exits(2);
    world.run(&["list", "--no-such-option"]).exits(2);
    for verb in
        ["submit", "list", "show", "logs", "diff", "wait", "cancel", "accept", "run", "tick", "workers"]
    {
        let help = world.run(&[verb, "--help"]).ok().text();
        assert!(help.contains("Usage:") && help.contains("Example"), "{verb}: {help}");
    }
    assert!(world.run(&["--version"]).ok().text().contains(env!("CARGO_PKG_VERSION")));
}

#[test]
fn the_spool_is_private() {
    use std::os::unix::fs::PermissionsExt as _;
    let world = World::new();
    let place = world.root().join("fresh");
    world.script("true").with("spool", &place).run();
    let mode = |path: &std::path::Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&place), 0o700);
    let id = world.script("echo x").ok();
    world.drain();
    assert_eq!(mode(world.dir(id).path()), 0o700);
    for file in [
        world.dir(id).record(1),
        world.dir(id).result(),
        world.dir(id).attempt(1).step("work.1").join("log.jsonl"),
    ] {
        assert_eq!(mode(&file) & 0o077, 0, "{} can be read by others", file.display());
    }
}
