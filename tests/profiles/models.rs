//! Which model a worker uses.

use super::programs::put;
use super::support::World;
use serde_json::Value;
use workspool::model::EventKind;

fn model_of(world: &World, worker: &str) -> Value {
    let rows: Vec<Value> = world.run(&["models", worker, "--json"]).ok().json();
    rows.into_iter().next().unwrap()
}

#[test]
fn the_task_goes_before_the_configuration_before_the_environment() {
    let world = World::new();
    let agent = put(&world.root().join("tools"), "agent", "echo \"$*\" > model.txt");
    let command = serde_json::to_string(&[&agent]).unwrap();
    let file = world.root().join("a.json");
    std::fs::write(&file, format!(r#"{{"name": "a-b", "command": {command}, "model": ["{{model}}"]}}"#))
        .unwrap();
    world.run(&["workers", "link", "--file", &file.to_string_lossy()]).ok();
    let used = |model: Option<&str>| {
        let repo = world.repo(&format!("r{}", world.task_count()));
        let submit = world.submit("x").repo(&repo).worker("a-b");
        let id = match model {
            Some(model) => submit.with("model", model).ok(),
            None => submit.ok(),
        };
        world.drain();
        let result = world.succeeded(id);
        let seen = repo.show(result.branch.as_deref().unwrap(), "model.txt").trim().to_owned();
        assert_eq!(result.worker.model.unwrap_or_default(), seen);
        let chosen = world.events(id).into_iter().find_map(|e| match e {
            EventKind::Started { model, .. } => Some(model),
            _ => None,
        });
        assert_eq!(chosen.unwrap().unwrap_or_default(), seen);
        seen
    };
    assert_eq!(used(None), "");
    assert_eq!(model_of(&world, "a-b")["model"], Value::Null);
    world.set_env("WORKSPOOL_A_B_MODEL", "by-environment");
    assert_eq!(used(None), "by-environment");
    assert_eq!(model_of(&world, "a-b")["from"], "environment");
    world.configure("[models]\na-b = \"by-config\"\n");
    assert_eq!(used(None), "by-config");
    assert_eq!(model_of(&world, "a-b")["from"], "config");
    assert_eq!(used(Some("by-task")), "by-task");
}

#[test]
fn a_worker_that_cannot_choose_a_model_refuses_one_from_anywhere() {
    let world = World::new();
    world.script("true").with("model", "m").refused(4, &["worker shell cannot choose a model"]);
    world.configure("[models]\nshell = \"m\"\n");
    world.script("true").refused(4, &["worker shell cannot choose a model", "config.toml"]);
}
