//! Which worker a task gets.

use super::programs::{only, put};
use super::support::World;
use workspool::model::task::RoutedBy;

fn routed(world: &World, worker: Option<&str>) -> (String, RoutedBy) {
    let submit = world.submit("x").flag("hold");
    let id = match worker {
        Some(name) => submit.worker(name).ok(),
        None => submit.ok(),
    };
    world.run(&["list"]).ok();
    let task = world.task(id);
    (task.worker.to_string(), task.routed_by)
}

#[test]
fn auto_takes_the_first_that_is_there_and_says_so() {
    let world = World::new();
    let bin = only(&world);
    world
        .submit("x")
        .refused(4, &["no worker is named, and none was found", "claude is not installed", "--worker shell"]);
    world.set_env("OPENAI_API_KEY", "a-key-that-nobody-uses");
    assert_eq!(routed(&world, None), ("openai".into(), RoutedBy::Auto));
    for name in ["gemini", "codex", "claude", "opencode"] {
        put(&bin, name, "echo 1.0");
        assert_eq!(routed(&world, None), (name.into(), RoutedBy::Auto));
        assert_eq!(routed(&world, Some("auto")), (name.into(), RoutedBy::Auto));
    }
    // What is named goes first, and is never replaced.
    assert_eq!(routed(&world, Some("claude-code")), ("claude".into(), RoutedBy::Task));
    world.submit("x").worker("qwen").refused(4, &["worker qwen is not installed", "npm install"]);
    world.configure("default_worker = \"codex\"\n");
    assert_eq!(routed(&world, None), ("codex".into(), RoutedBy::Default));
    assert_eq!(routed(&world, Some("auto")), ("opencode".into(), RoutedBy::Auto));
    world.configure("default_worker = \"auto\"\n");
    world.set_env("WORKSPOOL_WORKER", "gemini");
    assert_eq!(routed(&world, None), ("opencode".into(), RoutedBy::Auto));
    world.configure("");
    assert_eq!(routed(&world, None), ("gemini".into(), RoutedBy::Environment));
    world.set_env("WORKSPOOL_WORKER", "auto");
    assert_eq!(routed(&world, None), ("opencode".into(), RoutedBy::Auto));
}

#[test]
fn a_role_has_its_route_and_the_task_goes_before_it() {
    let world = World::new();
    let bin = only(&world);
    for name in ["claude", "codex", "gemini", "qwen"] {
        put(&bin, name, "echo 1.0");
    }
    world.configure("default_worker = \"qwen\"\n[routes]\nreviewer = \"codex\"\ndefault = \"gemini\"\n");
    let by = |role: Option<&str>, worker: Option<&str>| {
        let submit = world.submit("x").flag("hold");
        let submit = role.into_iter().fold(submit, |s, role| s.with("role", role));
        let id = worker.into_iter().fold(submit, |s, name| s.worker(name)).ok();
        world.run(&["list"]).ok();
        let task = world.task(id);
        (task.worker.to_string(), task.routed_by)
    };
    assert_eq!(by(Some("reviewer"), None), ("codex".into(), RoutedBy::Role));
    assert_eq!(by(Some("reviewer"), Some("claude")), ("claude".into(), RoutedBy::Task));
    assert_eq!(by(Some("tester"), None), ("gemini".into(), RoutedBy::DefaultRoute));
    assert_eq!(by(None, None), ("gemini".into(), RoutedBy::DefaultRoute));
    world.configure("default_worker = \"qwen\"\n[routes]\nreviewer = \"auto\"\n");
    assert_eq!(by(Some("reviewer"), None), ("claude".into(), RoutedBy::Auto));
    assert_eq!(by(Some("tester"), None), ("qwen".into(), RoutedBy::Default));

    // A route that leads nowhere is an error, and says where it stands.
    world.configure("[routes]\nreviewer = \"opencode\"\n");
    world
        .submit("x")
        .with("role", "reviewer")
        .refused(4, &["opencode is not installed", "config.toml routes the role reviewer to it"]);
    world.configure("[routes]\nreviewr = \"codex\"\n");
    let said = world.run(&["config", "check"]).exits(8).text();
    assert!(said.contains("unknown value `reviewr`") && said.contains("did you mean `reviewer`?"), "{said}");
}

#[test]
fn a_worker_that_was_spoilt_does_not_give_way_to_the_next() {
    let world = World::new();
    let bin = only(&world);
    put(&bin, "claude", "echo 1.0");
    std::fs::write(world.spool_path().join("workers/opencode.json"), "{").unwrap();
    world.submit("x").refused(4, &["opencode.json"]);
}

#[test]
fn workers_are_listed_with_what_is_known_of_them() {
    let world = World::new();
    let bin = only(&world);
    put(&bin, "claude", "case $1 in --version) echo '3.2.1 (Claude Code)' ;; auth) exit 1 ;; esac");
    let rows: Vec<serde_json::Value> = world.run(&["workers", "list", "--json"]).ok().json();
    let row = |name: &str| rows.iter().find(|r| r["name"] == name).unwrap();
    let claude = row("claude");
    assert_eq!((&claude["installed"], &claude["version"]), (&true.into(), &"3.2.1".into()));
    assert_eq!(claude.get("signed_in"), None, "it is not asked for a list");
    assert_eq!((&row("codex")["installed"], &row("shell")["installed"]), (&false.into(), &true.into()));
    assert_eq!(row("zcode-glm")["signed_in"], false);
    // Asked, it says that it is signed out.
    let checked: serde_json::Value = world.run(&["workers", "check", "claude", "--json"]).exits(4).json();
    assert_eq!(checked["signed_in"], false);
    world.set_env("ANTHROPIC_API_KEY", "a-key-that-nobody-uses");
    let checked: serde_json::Value = world.run(&["workers", "check", "claude-code", "--json"]).ok().json();
    assert_eq!((&checked["name"], &checked["signed_in"]), (&"claude".into(), &true.into()));
    world.run(&["workers", "check", "codex"]).exits(4).says(&["codex is not installed", "npm install"]);
}
