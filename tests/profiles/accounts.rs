//! Several workers that one provider takes for one: they wait together, and count together.

use super::programs::put;
use super::support::World;
use serde_json::{Value, json};
use std::fs;
use workspool::model::State;

fn link(world: &World, profile: &Value) {
    let file = world.root().join("profile.json");
    fs::write(&file, profile.to_string()).unwrap();
    world.run(&["workers", "link", "--file", &file.to_string_lossy()]).ok();
}

#[test]
fn workers_of_one_account_wait_together_when_its_provider_refuses() {
    let world = World::new();
    link(&world, &json!({ "name": "one", "extends": "mock", "account": "team" }));
    link(&world, &json!({ "name": "two", "extends": "mock", "account": "team" }));
    link(&world, &json!({ "name": "other", "extends": "mock", "account": "mine" }));
    let limited = world.submit("quota 3600").worker("one").ok();
    world.drain();
    world.await_state(limited, State::Held);
    let (two, other) =
        (world.submit("say hi").worker("two").ok(), world.submit("say hi").worker("other").ok());
    world.drain();
    world.succeeded(other);
    assert_eq!(world.state(two), State::Queued);
    let rows: Vec<Value> = world.run(&["workers", "list", "--json"]).ok().json();
    let limited = |name: &str| rows.iter().find(|r| r["name"] == name).unwrap().get("limited").cloned();
    for name in ["one", "two"] {
        let limited = limited(name).unwrap();
        assert!(limited["message"].as_str().unwrap().contains("out of quota"), "{limited}");
    }
    assert_eq!(limited("other"), None);
    world.run(&["workers", "list"]).ok();
    let why = world.on("why", two, &[]).ok().text();
    assert!(why.contains("the provider of worker two refuses requests until"), "{why}");
}

#[test]
fn workers_of_one_account_count_together() {
    let world = World::new();
    let gate = world.root().join("gate");
    let wait = format!("until [ -e '{}' ]; do sleep 0.05; done", gate.display());
    let agent = put(&world.root().join("tools"), "agent", &wait);
    for (name, most) in [("one", json!(5)), ("two", json!(1))] {
        link(&world, &json!({ "name": name, "command": [agent], "account": "team", "concurrency": most }));
    }
    let first = world.submit("x").worker("one").ok();
    let second = world.submit("x").worker("two").ok();
    let mut runner = world.run_loop();
    world.await_state(first, State::Running);
    world.await_until("the reason", || {
        world.on("why", second, &[]).text().contains("with the account team run")
    });
    assert_eq!(world.state(second), State::Queued);
    fs::write(&gate, "").unwrap();
    world.await_end(second);
    runner.kill();
    world.succeeded(first);
}

#[test]
fn one_program_can_be_signed_in_twice() {
    let world = World::new();
    let agent = put(&world.root().join("tools"), "agent", "echo \"$AGENT_TOKEN\" | tr a-z A-Z > token.txt");
    link(
        &world,
        &json!({ "name": "first", "command": [agent], "pass_env": ["AGENT_TOKEN=FIRST_TOKEN"], "account": "first" }),
    );
    link(
        &world,
        &json!({ "name": "second", "extends": "first", "pass_env": ["AGENT_TOKEN=SECOND_TOKEN"], "account": "second" }),
    );
    world.set_env("FIRST_TOKEN", "token-of-the-first");
    world.set_env("SECOND_TOKEN", "token-of-the-second");
    for (name, token) in [("first", "TOKEN-OF-THE-FIRST\n"), ("second", "TOKEN-OF-THE-SECOND\n")] {
        let repo = world.repo(name);
        let id = world.submit("x").repo(&repo).worker(name).ok();
        world.drain();
        assert_eq!(repo.show(&world.succeeded(id).branch.unwrap(), "token.txt"), token);
    }
}
