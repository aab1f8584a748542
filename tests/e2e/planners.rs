//! The real programs as planners: each has the MCP server registered by `workspool setup`, and its model
//! (scripted) submits a task, waits for it, accepts it. The repository then holds the change.

use super::bench::Bench;
use super::support::{Ran, Repo};
use serde_json::json;
use std::path::Path;
use std::process::Command;
use workspool::model::{Door, State};

#[test]
#[ignore = "needs the real program: scripts/e2e-mcp-clients"]
fn claude() {
    let bench = Bench::new("claude");
    plan(&bench, ".claude.json", &["-p", "--allowedTools", "mcp__workspool"]);
}

#[test]
#[ignore = "needs the real program: scripts/e2e-mcp-clients"]
fn codex() {
    let bench = Bench::new("codex");
    // What tools it offers its model depends on the model's name.
    let args = ["exec", "--model", "gpt-5", "--dangerously-bypass-approvals-and-sandbox", "-"];
    plan(&bench, ".codex/config.toml", &args);
}

#[test]
#[ignore = "needs the real program: scripts/e2e-mcp-clients"]
fn opencode() {
    plan(&Bench::new("opencode"), ".config/opencode/opencode.json", &["run"]);
}

/// From a prompt to the change in the repository.
fn plan(bench: &Bench, configuration: &str, args: &[&str]) {
    bench.scenario("plan");
    let repo = bench.world.repo("r");
    let configuration = bench.world.home().join(configuration);
    let before = std::fs::read_to_string(&configuration).ok();
    let setup = bench.world.run(&["setup", bench.program, "--yes"]).ok();
    assert!(setup.text().contains("is registered with"), "{}", setup.text());
    // OpenCode's own command cannot take a server out again, so its file is edited.
    assert_eq!(setup.text().contains("run  "), bench.program != "opencode", "{}", setup.text());
    assert!(bench.world.run(&["setup", bench.program, "--yes"]).ok().text().contains("registered already"));

    let task = json!({
        "objective": "echo planned > planned.txt", "worker": "shell", "repository": repo.path(),
        "verify": ["grep -q planned planned.txt"]
    });
    let prompt = format!(
        "[[CALL submit_task {task}]] [[CALL wait_tasks {}]] [[CALL accept_task {}]]",
        json!({ "tasks": ["$id"] }),
        json!({ "task": "$id", "how": "commit" }),
    );
    let ran = Ran::to_end(program(bench, &repo, args), prompt.as_bytes()).ok();
    let told = || format!("{}\n--- stderr\n{}\n{}", ran.text(), ran.stderr, bench.world.tell());
    assert!(ran.text().contains("DONE"), "{}", told());

    let spool = bench.world.spool();
    let tickets: Vec<_> = spool.all_tickets().unwrap().collect::<Result<_, _>>().unwrap();
    assert_eq!(tickets.len(), 1, "{}", told());
    let id = tickets[0].ticket.task;
    assert_eq!(bench.world.state(id), State::Succeeded, "{}", told());
    let by = bench.world.task(id).submitted_by;
    assert_eq!(by.door, Door::Mcp);
    assert!(by.client.is_some_and(|c| c.to_lowercase().contains(bench.program)), "{}", told());
    assert_eq!(repo.show("HEAD", "planned.txt"), "planned\n", "{}", told());
    assert_eq!(repo.git(&["status", "--porcelain"]), "", "the checkout holds it, too");

    bench.world.run(&["setup", bench.program, "--remove", "--yes"]).ok();
    let registered = |text: &str| text.contains(env!("CARGO_BIN_EXE_workspool"));
    let after = std::fs::read_to_string(&configuration).unwrap_or_default();
    assert!(!registered(&after) && !before.is_some_and(|b| registered(&b)), "{after}");
}

/// The program as its user starts it in the repository.
fn program(bench: &Bench, repo: &Repo, args: &[&str]) -> Command {
    let bin = std::env::var_os("WORKSPOOL_E2E_BIN").expect("WORKSPOOL_E2E_BIN is not set");
    // The environment of the world, and not the program under test.
    let like = bench.world.command(&[""; 0]);
    let mut command = Command::new(Path::new(&bin).join(bench.program));
    command.env_clear().envs(like.get_envs().filter_map(|(k, v)| Some((k, v?))));
    command.current_dir(repo.path()).args(args);
    command
}
