//! What is wrong with arguments is said with its place, for the model to read: never as a protocol error.

use crate::bench::{BOTH, Bench, call, fails, ok, submit};
use serde_json::json;

#[tokio::test]
async fn a_fault_in_arguments_names_its_path() {
    let bench = Bench::new();
    for era in BOTH {
        let client = bench.client(era).await;
        let batch = |second: serde_json::Value| json!({ "tasks": [{ "objective": "true" }, second] });
        for (tool, arguments, expected) in [
            (
                "submit_batch",
                batch(json!({ "objective": "x", "priority": "high" })),
                "tasks[1].priority: invalid type",
            ),
            (
                "submit_batch",
                batch(json!({ "objective": "x", "priority": 101 })),
                "tasks[1].priority: 101 is out of range: expected 0 to 100",
            ),
            ("submit_batch", batch(json!({ "objective": "x", "prioritty": 1 })), "did you mean `priority`?"),
            ("submit_batch", json!({ "tasks": [] }), "tasks: the batch holds no task"),
            ("submit_task", json!({}), "missing field `objective`"),
            ("submit_task", json!({ "objective": "x", "priority": 300 }), "priority: invalid value"),
            (
                "submit_task",
                json!({ "objective": "x", "start": "yes" }),
                "start: \"yes\" is neither true nor false",
            ),
            (
                "submit_task",
                json!({ "objective": "x", "repository": "relative" }),
                "repository: relative is not an absolute path",
            ),
            ("submit_task", json!({ "objective": "x", "worker": "shel" }), "shell"),
            ("submit_task", json!({ "objective": "x", "worker": "shell", "cron": "* * * * *" }), "cron"),
            (
                "wait_tasks",
                json!({ "tasks": [], "timeout_seconds": 1 }),
                "tasks: 0 is out of range: expected 1 to 100",
            ),
            (
                "wait_tasks",
                json!({ "tasks": ["x"], "timeout_seconds": 3601 }),
                "timeout_seconds: 3601 is out of range",
            ),
            ("list_tasks", json!({ "limit": 0 }), "limit: 0 is out of range: expected 1 to 200"),
            ("list_tasks", json!({ "states": ["finished"] }), "states[0]: unknown value `finished`"),
            ("get_task", json!({ "task": "../../escaped" }), "there is no task ../../escaped"),
            ("get_task", json!({ "task": 7 }), "task: invalid type"),
            ("get_log", json!({ "task": "x", "max_bytes": 1 }), "max_bytes: 1 is out of range"),
            ("get_log", json!({ "task": "x", "offset": 1 }), "unknown field `offset`"),
        ] {
            let text = fails(&client, tool, arguments.clone()).await;
            assert!(text.contains(expected), "{tool} {arguments}: {text:?} does not say {expected:?}");
            assert!(!text.contains("line 1") && !text.contains("u8"), "{text}");
        }
        client.cancel().await.unwrap();
    }
    assert!(bench.spool().active().unwrap().is_empty(), "nothing was taken");
}

#[tokio::test]
async fn every_range_that_a_schema_gives_is_enforced() {
    let bench = Bench::new();
    let client = bench.client(BOTH[0]).await;
    let mut tried = 0;
    for tool in client.list_all_tools().await.unwrap() {
        let schema = serde_json::Value::Object((*tool.input_schema).clone());
        let required: Vec<&str> =
            schema["required"].as_array().into_iter().flatten().map(|n| n.as_str().unwrap()).collect();
        for (name, field) in schema["properties"].as_object().unwrap() {
            let bounds = [
                field["minimum"].as_i64().map(|least| least - 1),
                field["maximum"].as_i64().map(|most| most + 1),
            ];
            for value in bounds.into_iter().flatten() {
                let mut arguments = serde_json::Map::new();
                for name in &required {
                    let list = schema["properties"][*name]["type"] == "array";
                    arguments.insert((*name).into(), if list { json!(["x"]) } else { json!("x") });
                }
                arguments.insert(name.clone(), value.into());
                let text = fails(&client, &tool.name, arguments.into()).await;
                assert!(text.contains(&format!("{name}: ")), "{}: {text:?} does not name {name}", tool.name);
                let told = ["out of range: expected", "whole number from", "invalid value"];
                assert!(told.iter().any(|t| text.contains(t)), "{}: {name} {value}: {text:?}", tool.name);
                tried += 1;
            }
        }
    }
    assert!(tried > 20, "only {tried} bounds were found");
    client.cancel().await.unwrap();
}

#[tokio::test]
async fn a_fault_about_a_task_says_what_to_do() {
    let bench = Bench::new();
    let client = bench.client(BOTH[1]).await;
    assert!(
        fails(&client, "get_task", json!({ "task": "01jdq3m6t8v5x2c4k7n9p0r1sa" }))
            .await
            .contains("list_tasks")
    );
    let id = submit(&client, json!({ "objective": "true", "hold": true })).await;
    for (tool, arguments, expected) in [
        ("get_diff", json!({ "task": id }), "has no diff yet, it is held"),
        ("get_artifact", json!({ "task": id }), "has no artifacts yet"),
        ("retry_task", json!({ "task": id }), "has not ended"),
        ("accept_task", json!({ "task": id }), "held"),
        ("revise_task", json!({ "task": id, "feedback": " " }), "feedback: it is empty"),
        (
            "edit_task",
            json!({ "task": id, "changes": { "priority": "x" } }),
            "changes.priority: invalid type",
        ),
        ("edit_task", json!({ "task": id, "changes": { "priority": 101 } }), "priority: 101 is out of range"),
        ("get_log", json!({ "task": id, "cursor": "junk" }), "cursor: \"junk\" is not a cursor"),
    ] {
        let text = fails(&client, tool, arguments).await;
        assert!(text.contains(expected), "{tool}: {text:?} does not say {expected:?}");
    }
    ok(&client, "cancel_task", json!({ "task": id })).await;
    assert!(fails(&client, "cancel_task", json!({ "task": id })).await.contains("has ended already"));
    client.cancel().await.unwrap();
}

#[tokio::test]
async fn a_broken_configuration_is_said_by_the_tools_and_mended_without_a_restart() {
    let bench = Bench::new();
    let client = bench.client(BOTH[0]).await;
    let config = bench.spool_path().join("config.toml");
    let good = std::fs::read(&config).unwrap();
    std::fs::write(&config, "max_concurency = 3\n").unwrap();
    let text = fails(&client, "list_tasks", json!({})).await;
    assert!(text.contains("max_concurency") && text.contains("did you mean"), "{text}");
    assert_eq!(call(&client, "list_workers", json!({})).await.is_error, Some(true));
    std::fs::write(&config, good).unwrap();
    ok(&client, "list_tasks", json!({})).await;
    client.cancel().await.unwrap();
}
