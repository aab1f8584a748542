//! The tasks extension: handles that are the spool's own tasks, and outlive the server that gave them.

use crate::bench::{BOTH, Bench, Era, PATIENCE, object};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CancelTaskParams, GetTaskParams, TaskPayload, TaskStatus,
};
use serde_json::{Value, json};

async fn handle(client: &crate::bench::Client, arguments: Value) -> rmcp::model::Task {
    let params = CallToolRequestParams::new("submit_task").with_arguments(object(arguments));
    match client.call_tool_once(params).await.unwrap() {
        CallToolResponse::Task(created) => created.task,
        other => panic!("{other:?}"),
    }
}

async fn finished(client: &crate::bench::Client, id: &str) -> TaskPayload {
    tokio::time::timeout(PATIENCE, async {
        loop {
            let got = client.get_task(GetTaskParams::new(id)).await.unwrap();
            if got.task.status().is_terminal() {
                return got.task.payload;
            }
            tokio::time::sleep(std::time::Duration::from_millis(30)).await;
        }
    })
    .await
    .unwrap()
}

#[tokio::test]
async fn a_handle_is_the_task_and_outlives_its_server() {
    let bench = Bench::new();
    let (first, _) = bench.client_with(Era::Modern, true).await;
    let task = handle(&first, json!({ "objective": "echo done", "worker": "shell" })).await;
    assert_eq!(task.status, TaskStatus::Working);
    assert!(bench.spool().read_task(task.task_id.parse().unwrap()).is_ok());
    let tools = first.list_all_tools().await.unwrap();
    let schema = tools.iter().find(|t| t.name == "submit_task").unwrap().output_schema.clone().unwrap();
    let validator = jsonschema::validator_for(&Value::Object((*schema).clone())).unwrap();
    first.cancel().await.unwrap();

    let (second, _) = bench.client_with(Era::Modern, true).await;
    match finished(&second, &task.task_id).await {
        TaskPayload::Completed { result } => {
            assert_eq!(result["isError"], false);
            let result = &result["structuredContent"];
            assert!(validator.is_valid(result), "it is a result of submit_task: {result:#}");
            assert_eq!(result["tasks"][0]["state"], "succeeded");
            assert_eq!(result["tasks"][0]["result"]["verification"], "unverified");
        }
        other => panic!("{other:?}"),
    }
    let failing = handle(&second, json!({ "objective": "exit 3", "worker": "shell", "retries": 0 })).await;
    match finished(&second, &failing.task_id).await {
        TaskPayload::Completed { result } => assert_eq!(result["isError"], true),
        other => panic!("{other:?}"),
    }
    let long = handle(&second, json!({ "objective": "sleep 1000", "worker": "shell" })).await;
    second.cancel_task(CancelTaskParams::new(long.task_id.clone())).await.unwrap();
    assert_eq!(finished(&second, &long.task_id).await, TaskPayload::Cancelled);
    assert!(second.get_task(GetTaskParams::new("../../escaped")).await.is_err());
    second.cancel().await.unwrap();
}

#[tokio::test]
async fn a_client_of_the_older_protocol_gets_no_handle_and_may_ask_by_id() {
    let bench = Bench::new();
    let (client, _) = bench.client_with(Era::Legacy, true).await;
    let id = crate::bench::submit(&client, json!({ "objective": "true" })).await;
    match finished(&client, &id).await {
        TaskPayload::Completed { result } => assert_eq!(result["isError"], false),
        other => panic!("{other:?}"),
    }
    client.cancel().await.unwrap();
}

#[tokio::test]
async fn without_the_extension_there_is_no_handle() {
    let bench = Bench::new();
    for era in BOTH {
        let client = bench.client(era).await;
        let params = CallToolRequestParams::new("submit_task")
            .with_arguments(object(json!({ "objective": "true", "worker": "shell", "hold": true })));
        match client.call_tool_once(params).await.unwrap() {
            CallToolResponse::Complete(result) => {
                let id = result.structured_content.unwrap()["tasks"][0]["id"].as_str().unwrap().to_owned();
                let error = client.get_task(GetTaskParams::new(id)).await.unwrap_err().to_string();
                assert!(error.contains("-32021") || error.to_lowercase().contains("capability"), "{error}");
            }
            other => panic!("{other:?}"),
        }
        client.cancel().await.unwrap();
    }
}
