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
async fn a_gate_that_is_run_again_tells_which_command_it_is_at() {
    let bench = Bench::new();
    for era in BOTH {
        let (client, mut told) = bench.client_with(era, false).await;
        let arguments = json!({ "objective": "echo two >> a.txt", "repository": bench.repo(), "verify": ["true", "test -f a.txt"] });
        let id = submit(&client, arguments).await;
        assert_eq!(ended(&client, &id).await["state"], "succeeded");
        while told.progress.try_recv().is_ok() {}
        ok(&client, "audit_task", json!({ "task": id, "replay": true })).await;
        for command in ["verify command 1 of 2: true", "verify command 2 of 2: test -f a.txt"] {
            let news = told.progress.recv().await.unwrap();
            assert_eq!(news.message.as_deref(), Some(format!("replay: {command}").as_str()));
        }
        client.cancel().await.unwrap();
    }
}

/// How often the threads of a process have gone to sleep and been woken.
#[cfg(target_os = "linux")]
fn wake_ups(pid: u32) -> u64 {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let status = threads.filter_map(|t| std::fs::read_to_string(t.ok()?.path().join("status")).ok());
    let count = |status: String| {
        let line = status.lines().find_map(|l| l.strip_prefix("voluntary_ctxt_switches:").map(str::to_owned));
        line.unwrap().trim().parse::<u64>().unwrap()
    };
    status.map(count).sum()
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn calls_that_wait_do_not_poll() {
    use std::io::{BufRead as _, Write as _};
    let bench = Bench::new();
    let config = bench.spool_path().join("config.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    // The slow look that a file system without events needs is out of the way.
    std::fs::write(&config, format!("poll = 3600\n{text}")).unwrap();
    let id = bench.run(&["submit", "true", "--worker", "shell", "--hold"])[..26].to_owned();
    let mut server = bench.workspool(&["mcp"]);
    server.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut server = server.spawn().unwrap();
    let mut input = server.stdin.take().unwrap();
    let output = std::io::BufReader::new(server.stdout.take().unwrap());
    let mut send = |message: serde_json::Value| writeln!(input, "{message}").unwrap();
    send(json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "raw", "version": "1" } } }));
    send(json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
    for k in 1..=20 {
        send(json!({ "jsonrpc": "2.0", "id": k, "method": "tools/call", "params": {
            "name": "wait_tasks", "arguments": { "tasks": [id], "timeout_seconds": 3600 } } }));
    }
    // Twenty calls that wait come to rest. The server itself looks for its parent every 5 seconds.
    let deadline = std::time::Instant::now() + PATIENCE;
    loop {
        let before = wake_ups(server.id());
        std::thread::sleep(std::time::Duration::from_secs(2));
        let woken = wake_ups(server.id()).saturating_sub(before);
        if woken <= 4 {
            break;
        }
        assert!(std::time::Instant::now() < deadline, "{woken} wake-ups in 2 seconds of waiting");
    }
    bench.run(&["cancel", &id]);
    let mut answered = 0;
    for line in output.lines().map_while(Result::ok) {
        answered += usize::from(line.contains("\"cancelled\""));
        if answered == 20 {
            break;
        }
    }
    assert_eq!(answered, 20, "the end is heard of");
    drop(input);
    server.wait().unwrap();
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
