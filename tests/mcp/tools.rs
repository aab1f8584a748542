//! Every tool, in both eras, through rmcp's own client.

use crate::bench::{BOTH, Bench, Client, ended, fails, ok, submit};
use serde_json::json;
use std::collections::BTreeSet;

/// What a planner does from a job to a change in the repository, with every tool on the way.
async fn everything(bench: &Bench, client: &Client) -> BTreeSet<&'static str> {
    let repo = bench.repo();
    let mut called = BTreeSet::new();
    let mut tool = |name: &'static str| {
        called.insert(name);
        name
    };

    let workers = ok(client, tool("list_workers"), json!({ "installed": true })).await;
    assert!(workers["workers"].as_array().unwrap().iter().any(|w| w["name"] == "shell"), "{workers:#}");

    let taken = ok(
        client,
        tool("submit_task"),
        json!({
            "objective": "echo two >> a.txt; echo kept > report.md; echo said so",
            "title": "Append", "worker": "shell", "repository": repo,
            "verify": ["grep -q two a.txt"], "artifacts": ["report.md"], "tags": ["first"],
        }),
    )
    .await;
    assert!(["awake", "started"].contains(&taken["runner"].as_str().unwrap()), "{taken:#}");
    let (id, sha256) = (taken["tasks"][0]["id"].as_str().unwrap(), taken["tasks"][0]["sha256"].clone());
    tool("wait_tasks");
    let view = ended(client, id).await;
    assert_eq!(view["state"], "succeeded", "{view:#}");
    assert_eq!(view["result"]["verification"], "verified");
    assert_eq!(view["result"]["gate"][0]["passed"], true);
    assert_eq!(view["result"]["files"], json!(["modified a.txt +1 -0", "added report.md +1 -0"]));
    assert!(view["next"].to_string().contains("accept_task"));

    let full = ok(client, tool("get_task"), json!({ "task": id, "full": true })).await;
    assert_eq!(full["asked"]["title"], "Append");
    assert_eq!(full["record"]["state"], "succeeded");

    let log = ok(client, tool("get_log"), json!({ "task": id })).await;
    assert!(log["text"].as_str().unwrap().contains("said so"), "{log:#}");
    let more = ok(client, "get_log", json!({ "task": id, "cursor": log["cursor"] })).await;
    assert_eq!((more["text"].as_str(), more["more"].as_bool()), (Some(""), Some(false)));

    let diff = ok(client, tool("get_diff"), json!({ "task": id, "paths": ["a.txt"] })).await;
    let patch = diff["patch"].as_str().unwrap();
    assert!(patch.contains("+two") && !patch.contains("report.md"), "{patch}");
    let stat = ok(client, "get_diff", json!({ "task": id, "stat": true })).await;
    assert_eq!((stat["files_changed"].as_u64(), stat.get("patch")), (Some(2), None));

    let artifacts = ok(client, tool("get_artifact"), json!({ "task": id })).await;
    assert_eq!(artifacts["artifacts"][0]["path"], "report.md");
    let artifact = ok(client, "get_artifact", json!({ "task": id, "path": "report.md" })).await;
    assert_eq!(artifact["text"], "kept\n");

    // Another one is decided against, and one is sent back.
    let batch = ok(
        client,
        tool("submit_batch"),
        json!({ "tasks": [
            { "name": "one", "objective": "echo 1 > one.txt", "worker": "shell", "repository": repo, "verify": ["true"] },
            { "objective": "test -f nothing-here", "worker": "shell", "repository": repo, "retries": 0 },
            { "objective": "echo 3 > three.txt", "worker": "shell", "repository": repo, "needs": ["one"] },
        ]}),
    )
    .await;
    let ids: Vec<&str> =
        batch["tasks"].as_array().unwrap().iter().map(|t| t["id"].as_str().unwrap()).collect();
    let waited = ok(client, "wait_tasks", json!({ "tasks": ids, "timeout_seconds": 80 })).await;
    let states: Vec<&str> =
        waited["tasks"].as_array().unwrap().iter().map(|t| t["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["succeeded", "failed", "succeeded"], "{waited:#}");
    assert!(waited["tasks"][1]["next"].to_string().contains("get_log"));

    let rejected = ok(client, tool("reject_task"), json!({ "task": ids[2], "reason": "not wanted" })).await;
    assert_eq!(rejected["state"], "succeeded");
    let revised = ok(client, tool("revise_task"), json!({ "task": ids[0], "feedback": "once more" })).await;
    assert!(revised["message"].as_str().unwrap().contains("feedback"));
    assert_eq!(ended(client, ids[0]).await["attempt"], 2);
    let retried = ok(client, tool("retry_task"), json!({ "task": ids[1] })).await;
    assert!(["awake", "started"].contains(&retried["runner"].as_str().unwrap()));
    assert_eq!(ended(client, ids[1]).await["attempt"], 2);

    let audit = ok(client, tool("audit_task"), json!({ "task": id, "replay": true })).await;
    assert_eq!(audit["matches"], true, "{audit:#}");

    // A folder of the repository stands for it, and is where the worker starts.
    let below = repo.join("sub");
    std::fs::create_dir_all(&below).unwrap();
    std::fs::write(below.join("s.txt"), "s\n").unwrap();
    bench.git(&repo, &["add", "sub"]);
    bench.git(&repo, &["commit", "-q", "--allow-empty", "-m", "sub"]);
    let moved =
        submit(client, json!({ "objective": "mv s.txt t.txt", "worker": "shell", "repository": below }))
            .await;
    assert_eq!(
        ended(client, &moved).await["result"]["files"],
        json!(["deleted sub/s.txt +0 -1", "added sub/t.txt +1 -0"])
    );

    let list = ok(client, tool("list_tasks"), json!({ "review": "rejected" })).await;
    assert_eq!(list["tasks"].as_array().unwrap().len(), 1, "{list:#}");
    let page = ok(client, "list_tasks", json!({ "limit": 1 })).await;
    let rest = ok(client, "list_tasks", json!({ "after": page["next"], "limit": 10 })).await;
    assert_eq!(rest["tasks"].as_array().unwrap().len(), 4);

    // Held, changed, let go, cancelled.
    let waiting = submit(client, json!({ "objective": "true", "hold": true })).await;
    let why = ok(client, tool("why"), json!({ "task": waiting })).await;
    assert!(why["reasons"].to_string().contains("held"), "{why:#}");
    let edited =
        ok(client, tool("edit_task"), json!({ "task": waiting, "changes": { "priority": 90 } })).await;
    assert!(edited["message"].as_str().unwrap().contains("revision 2"));
    ok(client, tool("hold_task"), json!({ "task": waiting })).await;
    let released = ok(client, tool("release_task"), json!({ "task": waiting })).await;
    assert_eq!(released["state"], "queued");
    assert_eq!(ended(client, &waiting).await["state"], "succeeded");
    let other = submit(client, json!({ "objective": "true", "hold": true })).await;
    let cancelled = ok(client, tool("cancel_task"), json!({ "task": other, "reason": "no need" })).await;
    assert_eq!(cancelled["state"], "cancelled");

    ok(client, tool("restart_runner"), json!({})).await;

    let figures = ok(client, tool("get_metrics"), json!({})).await;
    assert!(figures["ended"]["succeeded"].is_object(), "{figures:#}");
    let pruned = ok(client, tool("prune"), json!({ "older_than_days": 0 })).await;
    assert_eq!(pruned["applied"], false);
    assert!(pruned["count"].as_u64().unwrap() > 0, "{pruned:#}");

    let wrong = fails(client, "accept_task", json!({ "task": id, "sha256": "00ff" })).await;
    assert!(wrong.contains("hash") || wrong.contains("sha256"), "{wrong}");
    let accepted =
        ok(client, tool("accept_task"), json!({ "task": id, "how": "commit", "sha256": sha256 })).await;
    assert_eq!(accepted["files"], 2, "{accepted:#}");
    assert_eq!(std::fs::read_to_string(repo.join("a.txt")).unwrap(), "one\ntwo\n");
    assert_eq!(bench.git(&repo, &["rev-parse", "HEAD"]), accepted["commit"].as_str().unwrap());
    assert_eq!(ok(client, "get_task", json!({ "task": id })).await["review"], "accepted");
    called
}

#[tokio::test]
async fn a_planner_can_do_everything_in_both_eras() {
    for era in BOTH {
        let bench = Bench::new();
        let client = bench.client(era).await;
        let called = everything(&bench, &client).await;
        let listed = client.list_all_tools().await.unwrap();
        let names: BTreeSet<&str> = listed.iter().map(|t| t.name.as_ref()).collect();
        assert_eq!(names, called, "every tool is called here");
        client.cancel().await.unwrap();
    }
}

#[tokio::test]
async fn every_tool_says_what_it_is() {
    let bench = Bench::new();
    let client = bench.client(BOTH[0]).await;
    let tools = client.list_all_tools().await.unwrap();
    for tool in &tools {
        let about = tool.description.as_deref().unwrap();
        assert!(about.len() > 50 && about.len() < 900, "{}: {} characters", tool.name, about.len());
        assert!(tool.title.is_some() && tool.output_schema.is_some(), "{}", tool.name);
        let hints = tool.annotations.as_ref().unwrap();
        assert!(hints.read_only_hint.is_some() && hints.destructive_hint.is_some(), "{}", tool.name);
        assert_eq!(tool.input_schema["additionalProperties"], false, "{}", tool.name);
        let output = serde_json::to_string(tool.output_schema.as_ref().unwrap()).unwrap();
        let input = serde_json::to_string(&tool.input_schema).unwrap();
        for schema in [&input, &output] {
            // What some client or some model's API cannot read.
            for word in ["\"$ref\"", "\"uint", "\"null\"", "\"format\":\"double\""] {
                assert!(!schema.contains(word), "{}: {word} in {schema}", tool.name);
            }
        }
        for (name, field) in tool.input_schema["properties"].as_object().unwrap() {
            assert!(field["description"].as_str().is_some_and(|d| !d.is_empty()), "{}.{name}", tool.name);
        }
    }
    let size: usize = tools.iter().map(|t| serde_json::to_string(&t.input_schema).unwrap().len()).sum();
    assert!(size < 25_000, "all arguments together take {size} bytes of every planner's context");
    client.cancel().await.unwrap();
}

#[tokio::test]
async fn secrets_and_control_characters_do_not_leave_by_a_tool_unless_asked_for() {
    let bench = Bench::new();
    let client = bench.client(BOTH[0]).await;
    let secret = "ghp_abcdefghijklmnopqrstuvwxyz0123456789";
    let objective = format!("printf 'token {secret} \\033[31mred\\n' | tee said.txt");
    let id = submit(
        &client,
        json!({ "objective": objective, "repository": bench.repo(), "verify": ["true"], "artifacts": ["said.txt"] }),
    )
    .await;
    assert_eq!(ended(&client, &id).await["state"], "succeeded");
    for (tool, arguments) in [
        ("get_task", json!({ "task": id, "full": true })),
        ("get_log", json!({ "task": id })),
        ("get_diff", json!({ "task": id })),
        ("get_artifact", json!({ "task": id, "path": "said.txt" })),
        ("list_tasks", json!({})),
    ] {
        let shown = ok(&client, tool, arguments).await.to_string();
        assert!(!shown.contains(secret) && !shown.contains("\\u001b"), "{tool}: {shown}");
    }
    let raw = ok(&client, "get_diff", json!({ "task": id, "raw": true })).await;
    assert!(raw["patch"].as_str().unwrap().contains(secret));
    let raw = ok(&client, "get_artifact", json!({ "task": id, "path": "said.txt", "raw": true })).await;
    assert!(raw["text"].as_str().unwrap().contains(secret));
    client.cancel().await.unwrap();
}

#[tokio::test]
async fn large_things_come_in_pages() {
    let bench = Bench::new();
    let client = bench.client(BOTH[1]).await;
    let id = submit(
        &client,
        json!({ "objective": "seq 1 3000 | tee big.txt", "repository": bench.repo(), "verify": ["true"] }),
    )
    .await;
    assert_eq!(ended(&client, &id).await["state"], "succeeded");
    let (mut arguments, mut patch) = (json!({ "task": id, "max_bytes": 5000 }), String::new());
    for _ in 0..100 {
        let page = ok(&client, "get_diff", arguments.clone()).await;
        let text = page["patch"].as_str().unwrap();
        assert!(text.len() <= 5000);
        patch.push_str(text);
        match page.get("next") {
            Some(next) => arguments["offset"] = next.clone(),
            None => break,
        }
    }
    let exact = ok(&client, "get_diff", json!({ "task": id })).await["file"].as_str().unwrap().to_owned();
    assert_eq!(patch, std::fs::read_to_string(exact).unwrap());

    let mut arguments = json!({ "task": id, "step": "work.1", "from_start": true, "max_bytes": 5000 });
    let mut lines = Vec::new();
    for _ in 0..100 {
        let page = ok(&client, "get_log", arguments.clone()).await;
        let text = page["text"].as_str().unwrap();
        lines.extend(text.lines().filter_map(|l| l.parse::<u32>().ok()));
        arguments["cursor"] = page["cursor"].clone();
        if page["more"] == false {
            break;
        }
    }
    assert_eq!(lines, (1..=3000).collect::<Vec<_>>());
    client.cancel().await.unwrap();
}

#[tokio::test]
async fn a_submission_with_a_key_is_one_task_and_start_can_be_left_to_others() {
    let bench = Bench::new();
    let client = bench.client(BOTH[0]).await;
    let arguments = json!({ "objective": "true", "worker": "shell", "idempotency_key": "k", "start": false });
    let first = ok(&client, "submit_task", arguments.clone()).await;
    assert_eq!(first["runner"], "none", "{first:#}");
    assert!(first["next"].to_string().contains("restart_runner"));
    let second = ok(&client, "submit_task", arguments).await;
    assert_eq!(first["tasks"][0]["id"], second["tasks"][0]["id"]);
    assert_eq!(second["tasks"][0]["existing"], true);
    let id = first["tasks"][0]["id"].as_str().unwrap();
    let record = bench.spool().read_task(id.parse().unwrap()).unwrap();
    assert_eq!(record.submitted_by.door, workspool::model::Door::Mcp);
    assert_eq!(record.submitted_by.client.as_deref(), Some("a-planner 9.9"));
    let waited = ok(&client, "wait_tasks", json!({ "tasks": [id], "timeout_seconds": 0 })).await;
    assert_eq!(waited["timed_out"], true);
    assert!(waited["next"].to_string().contains("no runner is awake"), "{waited:#}");
    bench.run(&["run", "--drain", "--quiet"]);
    assert_eq!(ended(&client, id).await["state"], "succeeded");
    client.cancel().await.unwrap();
}
