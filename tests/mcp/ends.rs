//! How a server ends, and what does not end with it.

use crate::bench::{BOTH, Bench, PATIENCE, ended, ok};
use rmcp::model::CallToolRequestParams;
use serde_json::json;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

const HELLO: &str = concat!(
    r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","#,
    r#""capabilities":{},"clientInfo":{"name":"raw","version":"1"}}}"#,
    "\n",
    r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
    "\n"
);

fn server(bench: &Bench) -> (Child, BufReader<std::process::ChildStdout>) {
    let mut command = bench.workspool(&["mcp"]);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    child.stdin.as_mut().unwrap().write_all(HELLO.as_bytes()).unwrap();
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert!(line.contains("serverInfo"), "{line}");
    (child, output)
}

fn wait(mut child: Child) -> std::process::ExitStatus {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        assert!(Instant::now() < deadline, "it does not end");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

fn fifo(bench: &Bench, name: &str) -> std::path::PathBuf {
    let path = bench.root.join(name);
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    path
}

/// Has a server wait for a task that is held.
fn waiting(bench: &Bench, child: &mut Child) -> String {
    let id = bench.run(&["submit", "true", "--worker", "shell", "--hold"])[..26].to_owned();
    let call = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {
        "name": "wait_tasks", "arguments": { "tasks": [id], "timeout_seconds": 3600 } } });
    child.stdin.as_mut().unwrap().write_all(format!("{call}\n").as_bytes()).unwrap();
    id
}

#[test]
fn the_end_of_input_ends_it_also_while_a_call_waits() {
    let bench = Bench::new();
    let (mut child, _output) = server(&bench);
    waiting(&bench, &mut child);
    drop(child.stdin.take());
    assert!(wait(child).success());
}

#[test]
fn sigterm_ends_it_also_while_a_call_waits_and_the_pipe_stays_open() {
    let bench = Bench::new();
    for signal in [rustix::process::Signal::TERM, rustix::process::Signal::INT] {
        let (mut child, _output) = server(&bench);
        waiting(&bench, &mut child);
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, signal).unwrap();
        assert!(wait(child).success());
    }
}

#[test]
fn an_idle_server_ends_by_itself() {
    let bench = Bench::new();
    let mut command = bench.workspool(&["mcp", "--idle", "1ms"]);
    // Whether it is asked anything before it ends, we do not know; its input stays open.
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let _input = child.stdin.take();
    assert!(wait(child).success());
}

#[test]
fn a_server_whose_parent_is_gone_ends_although_the_pipe_is_open() {
    let bench = Bench::new();
    // The shell leaves the server behind when we say so; we hold its pipes.
    let go = fifo(&bench, "go");
    let mut command = bench.isolated(Command::new("sh"));
    command.args(["-c", "exec 3<&0; \"$0\" mcp <&3 & read x < \"$1\""]);
    command.arg(env!("CARGO_BIN_EXE_workspool")).arg(&go);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    input.write_all(HELLO.as_bytes()).unwrap();
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    std::fs::write(go, "go\n").unwrap();
    child.wait().unwrap();
    // Its end closes the pipe. We would wait for ever if it did not.
    let mut all = String::new();
    std::io::Read::read_to_string(&mut output, &mut all).unwrap();
}

#[tokio::test]
async fn a_client_killed_with_its_whole_tree_takes_no_task_along() {
    let bench = Bench::new();
    let gate = fifo(&bench, "gate");
    let (client, server) = bench.client_and_server(BOTH[0]).await;
    let objective = format!("cat {}; echo two >> a.txt", gate.display());
    let arguments =
        json!({ "objective": objective, "worker": "shell", "repository": bench.repo(), "verify": ["true"] });
    let id = ok(&client, "submit_task", arguments).await["tasks"][0]["id"].as_str().unwrap().to_owned();
    let deadline = Instant::now() + PATIENCE;
    while ok(&client, "get_task", json!({ "task": id })).await["running"]["step"] != "work.1" {
        assert!(Instant::now() < deadline, "it does not start");
    }
    // The server, and whatever it has started and not let go.
    for pid in descendants(server) {
        let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
    let params = CallToolRequestParams::new("list_tasks");
    assert!(client.call_tool(params).await.is_err(), "the server is dead");
    std::fs::write(&gate, "go\n").unwrap();
    let other = bench.client(BOTH[1]).await;
    let view = ended(&other, &id).await;
    assert_eq!((view["state"].as_str(), view["attempt"].as_u64()), (Some("succeeded"), Some(1)), "{view:#}");
    other.cancel().await.unwrap();
}

#[tokio::test]
async fn what_goes_wrong_in_the_background_is_told_by_why_and_status() {
    let bench = Bench::new();
    let client = bench.client(BOTH[1]).await;
    let arguments = json!({ "objective": "true", "worker": "shell", "start": false });
    let taken = ok(&client, "submit_task", arguments).await;
    let id = &taken["tasks"][0]["id"];
    let config = bench.spool_path().join("config.toml");
    let good = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, good.replace("reserve_bytes = 0", "reserve_bytes = 9000000000000000000"))
        .unwrap();
    ok(&client, "restart_runner", json!({})).await;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let why = ok(&client, "why", json!({ "task": id })).await;
        if why["reasons"].to_string().contains("the last runner in the background said") {
            assert!(why["reasons"].to_string().contains("background.log"), "{why:#}");
            break;
        }
        assert!(Instant::now() < deadline, "{why:#}");
    }
    let status: serde_json::Value = serde_json::from_str(&bench.run(&["status", "--json"])).unwrap();
    assert!(status["trouble"]["message"].as_str().unwrap().contains("MiB must be left"), "{status:#}");
    assert!(bench.run(&["status"]).contains("trouble  in the background, "));
    // A runner that cannot even be started says why at once.
    let logs = bench.spool_path().join("logs");
    std::fs::remove_dir_all(&logs).unwrap();
    std::fs::write(&logs, "no folder").unwrap();
    let failed = crate::bench::fails(&client, "restart_runner", json!({})).await;
    assert!(failed.contains("could not be started"), "{failed}");
    std::fs::write(&config, good).unwrap();
    client.cancel().await.unwrap();
}

/// A process and all that descend from it, as a client that kills a tree finds them.
fn descendants(root: u32) -> Vec<u32> {
    let out = Command::new("ps").args(["-A", "-o", "pid=,ppid="]).output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let rows: Vec<(u32, u32)> = text
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
        })
        .collect();
    let mut found = vec![root];
    let mut at = 0;
    while at < found.len() {
        let parent = found[at];
        found.extend(rows.iter().filter(|(_, p)| *p == parent).map(|(pid, _)| *pid));
        at += 1;
    }
    found
}

#[tokio::test]
async fn ten_servers_work_side_by_side() {
    let bench = Bench::new();
    let mut clients = Vec::new();
    for k in 0..10 {
        clients.push(bench.client(BOTH[k % 2]).await);
    }
    let submitted = clients.iter().enumerate().map(|(k, client)| async move {
        let arguments =
            json!({ "objective": format!("echo {k}"), "worker": "shell", "idempotency_key": "one for two" });
        // Half of them race for one key.
        let mut arguments = arguments;
        if k >= 5 {
            arguments = json!({ "objective": format!("echo {k}"), "worker": "shell" });
        } else {
            arguments["objective"] = "echo same".into();
        }
        ok(client, "submit_task", arguments).await["tasks"][0]["id"].as_str().unwrap().to_owned()
    });
    let ids: Vec<String> = futures(submitted).await;
    let distinct: std::collections::BTreeSet<&String> = ids.iter().collect();
    assert_eq!(distinct.len(), 6, "five share one task: {ids:?}");
    let waits = clients.iter().zip(&ids).map(|(client, id)| ended(client, id));
    for view in futures(waits).await {
        assert_eq!(view["state"], "succeeded");
    }
    // Each sees what all have done.
    for client in &clients {
        let list = ok(client, "list_tasks", json!({ "states": ["succeeded"] })).await;
        assert_eq!(list["tasks"].as_array().unwrap().len(), 6);
    }
    for client in clients {
        client.cancel().await.unwrap();
    }
}

/// Runs futures side by side.
async fn futures<F: Future>(all: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut all: Vec<_> = all.map(Box::pin).collect();
    let mut done: Vec<Option<F::Output>> = all.iter().map(|_| None).collect();
    std::future::poll_fn(|cx| {
        let mut pending = false;
        for (future, out) in all.iter_mut().zip(&mut done) {
            if out.is_none() {
                match future.as_mut().poll(cx) {
                    std::task::Poll::Ready(value) => *out = Some(value),
                    std::task::Poll::Pending => pending = true,
                }
            }
        }
        if pending { std::task::Poll::Pending } else { std::task::Poll::Ready(()) }
    })
    .await;
    done.into_iter().flatten().collect()
}
