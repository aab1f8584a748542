//! Waiting: event-driven, told of, and given up without harm.

use crate::bench::{BOTH, Bench, PATIENCE, ended, ok, submit};
use rmcp::model::{CallToolRequestParams, ProgressToken};
use serde_json::json;

#[tokio::test]
async fn any_returns_with_the_first_and_a_time_out_cancels_nothing() {
    let bench = Bench::new();
    for era in BOTH {
        let client = bench.client(era).await;
        let gate = bench.root.join(format!("gate-{era:?}"));
        rustix::fs::mknodat(rustix::fs::CWD, &gate, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        let slow = submit(&client, json!({ "objective": format!("cat {}", gate.display()) })).await;
        let quick = submit(&client, json!({ "objective": "true" })).await;
        let waited =
            ok(&client, "wait_tasks", json!({ "tasks": [slow, quick], "any": true, "timeout_seconds": 80 }))
                .await;
        assert_eq!(
            (waited["timed_out"].as_bool(), waited["ended"].as_u64()),
            (Some(false), Some(1)),
            "{waited:#}"
        );
        assert_eq!(waited["tasks"][1]["state"], "succeeded");
        let waited = ok(&client, "wait_tasks", json!({ "tasks": [slow], "timeout_seconds": 0 })).await;
        assert_eq!((waited["timed_out"].as_bool(), waited["ended"].as_u64()), (Some(true), Some(0)));
        std::fs::write(&gate, "go\n").unwrap();
        assert_eq!(ended(&client, &slow).await["state"], "succeeded", "the time-out cancelled nothing");
        client.cancel().await.unwrap();
    }
}

#[tokio::test]
async fn who_waits_is_told_and_who_gives_up_cancels_only_the_call() {
    let bench = Bench::new();
    for era in BOTH {
        let (client, mut told) = bench.client_with(era, false).await;
        let gate = bench.root.join(format!("gate-{era:?}"));
        rustix::fs::mknodat(rustix::fs::CWD, &gate, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        let id = submit(&client, json!({ "objective": format!("echo at it; cat {}", gate.display()) })).await;
        let params = CallToolRequestParams::new("wait_tasks")
            .with_arguments(crate::bench::object(json!({ "tasks": [id], "timeout_seconds": 600 })));
        let heard = async {
            let mut last: Option<(ProgressToken, f64)> = None;
            loop {
                let news = told.progress.recv().await.unwrap();
                if let Some((token, progress)) = last {
                    assert_eq!(token, news.progress_token);
                    assert!(news.progress > progress, "progress goes on");
                }
                let message = news.message.unwrap_or_default();
                assert!(message.starts_with("0 of 1 ended"), "{message}");
                if message.contains("work.1") {
                    return;
                }
                last = Some((news.progress_token, news.progress));
            }
        };
        // Dropping the call tells the server that it is cancelled.
        tokio::select! {
            result = client.call_tool(params) => panic!("it ended: {result:?}"),
            () = heard => {}
            () = tokio::time::sleep(PATIENCE) => panic!("nothing was told"),
        }
        let view = ok(&client, "get_task", json!({ "task": id })).await;
        assert_eq!(view["state"], "running", "only the call was cancelled");
        std::fs::write(&gate, "go\n").unwrap();
        assert_eq!(ended(&client, &id).await["state"], "succeeded");
        client.cancel().await.unwrap();
    }
}

#[tokio::test]
async fn a_status_call_does_not_wait_behind_those_that_wait() {
    let bench = Bench::new();
    let client = bench.client(BOTH[0]).await;
    let id = submit(&client, json!({ "objective": "true", "hold": true })).await;
    let waits: Vec<_> = (0..40)
        .map(|_| {
            let params = CallToolRequestParams::new("wait_tasks")
                .with_arguments(crate::bench::object(json!({ "tasks": [id], "timeout_seconds": 600 })));
            let peer = client.peer().clone();
            tokio::spawn(async move { peer.call_tool(params).await })
        })
        .collect();
    for _ in 0..10 {
        assert_eq!(ok(&client, "get_task", json!({ "task": id })).await["state"], "held");
    }
    ok(&client, "cancel_task", json!({ "task": id })).await;
    for wait in waits {
        let result = tokio::time::timeout(PATIENCE, wait).await.unwrap().unwrap().unwrap();
        assert_eq!(result.structured_content.unwrap()["tasks"][0]["state"], "cancelled");
    }
    client.cancel().await.unwrap();
}
