//! What each real program must come through.

use super::bench::{Bench, KEY};
use super::support::Repo;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use workspool::model::{Class, State, TaskId, TaskResult, Verification};

fn paths(result: &TaskResult) -> Vec<String> {
    result.changed.iter().map(|c| c.path.clone()).collect()
}

/// Nothing of the attempt is left, and the key is nowhere in the spool.
fn clean(bench: &Bench) {
    bench.world.await_until("the end of all processes", || bench.world.processes().is_empty());
    let found = bench.world.find_in_spool(KEY, |_| false);
    assert!(found.is_empty(), "the key is in {found:?}");
}

fn drained(bench: &Bench, id: TaskId) -> TaskResult {
    let mut runner = bench.world.run_drain();
    let result = bench.world.await_end(id);
    // The result is written before the ticket moves.
    bench.world.await_until("the ticket's last move", || bench.world.state(id).is_terminal());
    runner.kill();
    result
}

/// Submits what the command line has no option for, or no room.
fn submit_file(bench: &Bench, repo: &Repo, objective: &str, more: &[(&str, Value)]) -> TaskId {
    let mut task = json!({
        "objective": objective, "repository": repo.path(), "worker": bench.program, "retries": 0
    });
    if let Some(model) = bench.model() {
        task["model"] = model.into();
    }
    for (name, value) in more {
        task[name] = value.clone();
    }
    let file = bench.world.root().join("task.json");
    fs::write(&file, task.to_string()).unwrap();
    bench.world.submit_file(&file).ok()
}

/// Writes a file and passes the gate.
pub fn write(bench: &Bench) {
    let repo = bench.world.repo("r");
    let id = bench.submit(&repo, &bench.order("out.txt")).verify("grep hello out.txt").ok();
    let result = drained(bench, id);
    bench.world.succeeded(id);
    assert_eq!(result.verification, Verification::Verified);
    assert_eq!(paths(&result), ["out.txt"]);
    assert!(result.worker.version.is_some(), "{:?}", result.worker);
    // These two print text: no session, and no figures.
    if !matches!(bench.program, "aider" | "dsh") {
        assert!(result.worker.session.is_some(), "{:?}", result.worker);
        // One that is not asked by way of its own provider does not say what was used.
        let counts = bench.program == "copilot" || result.usage.input_tokens.is_some_and(|n| n > 0);
        assert!(counts, "{:?}", result.usage);
    }
    assert!(result.survivors.is_empty(), "{:?}", result.survivors);
    clean(bench);
}

/// The provider refuses the key.
pub fn refused(bench: &Bench) {
    bench.scenario("err401");
    // It tries a refused key again for minutes.
    bench.world.set_env("CLAUDE_CODE_MAX_RETRIES", "2");
    let repo = bench.world.repo("r");
    let id = bench.submit(&repo, "do it").with("env", "CLAUDE_CODE_MAX_RETRIES").ok();
    let result = drained(bench, id);
    assert_eq!((result.state, result.class), (State::Failed, Some(Class::Auth)), "{}", result.message);
    clean(bench);
}

/// The provider has had too many requests. Programs try again for as long as they like; the time of the task
/// bounds that.
pub fn limited(bench: &Bench) {
    bench.scenario("err429");
    bench.world.set_env("CLAUDE_CODE_MAX_RETRIES", "2");
    let repo = bench.world.repo("r");
    let submit = bench.submit(&repo, "do it").with("env", "CLAUDE_CODE_MAX_RETRIES");
    let (state, class) = match bench.program {
        // It says what the provider said: when it may be asked again. Until then the task is held.
        "opencode" => {
            let id = submit.ok();
            let mut runner = bench.world.run_drain();
            bench.world.await_state(id, State::Held);
            runner.kill();
            let held = bench.world.on("why", id, &[]).ok().text();
            assert!(held.contains("held for quota"), "{held}");
            return clean(bench);
        }
        // A minute between its tries, ten times.
        "qwen" => (State::TimedOut, Class::Timeout),
        _ => (State::Failed, Class::RateLimited),
    };
    let id = if bench.program == "qwen" { submit.with("timeout", "30").ok() } else { submit.ok() };
    let result = drained(bench, id);
    assert_eq!((result.state, result.class), (state, Some(class)), "{}", result.message);
    clean(bench);
}

/// The provider fails.
pub fn broken(bench: &Bench) {
    bench.scenario("err500");
    bench.world.set_env("CLAUDE_CODE_MAX_RETRIES", "2");
    let repo = bench.world.repo("r");
    // These two go on for minutes.
    let patient = matches!(bench.program, "opencode" | "qwen");
    let submit = bench.submit(&repo, "do it").with("env", "CLAUDE_CODE_MAX_RETRIES");
    let id = submit.with("timeout", if patient { "40" } else { "110" }).ok();
    let result = drained(bench, id);
    let expected =
        if patient { (State::TimedOut, Class::Timeout) } else { (State::Failed, Class::WorkerFailed) };
    assert_eq!((result.state, result.class), (expected.0, Some(expected.1)), "{}", result.message);
    assert!(bench.server.seen("err500").len() > 1, "it did not try again");
    clean(bench);
}

/// The model has no tool for commands.
pub fn no_shell(bench: &Bench) {
    let repo = bench.world.repo("r");
    let id = bench.submit(&repo, "[[RUN echo hello > out.txt]]").flag("no-shell").ok();
    let result = drained(bench, id);
    assert_eq!(paths(&result), [""; 0], "{}", result.message);
    let by =
        |r: &workspool::model::result::Restriction| r.what == "no_shell" && r.enforced_by == bench.program;
    assert!(result.restrictions.iter().any(by), "{:?}", result.restrictions);
    // What it has for files is still there.
    if bench.program != "qwen" {
        let id = bench.submit(&repo, &bench.order("out.txt")).flag("no-shell").ok();
        let result = drained(bench, id);
        assert_eq!(paths(&result), ["out.txt"], "{:?}", result.summary);
    }
    clean(bench);
}

/// The model that the task asks for is the one that is used.
pub fn model(bench: &Bench) {
    let repo = bench.world.repo("r");
    let id = bench.submit(&repo, &bench.order("out.txt")).with("model", "the-model-asked-for").ok();
    drained(bench, id);
    bench.world.succeeded(id);
    let seen = bench.server.seen("write");
    assert!(!seen.is_empty() && seen.iter().all(|s| s.body["model"] == "the-model-asked-for"), "{seen:?}");
    clean(bench);
}

/// A session that is not there any more is begun anew.
pub fn lost_session(bench: &Bench) {
    let repo = bench.world.repo("r");
    let id = bench.submit(&repo, &bench.order("out.txt")).ok();
    let first = drained(bench, id);
    bench.world.succeeded(id);
    for folder in [".claude/projects", ".codex", ".gemini/tmp", ".qwen"] {
        let _ = fs::remove_dir_all(bench.world.home().join(folder));
    }
    let _ = fs::remove_dir_all(bench.world.dir(id).path().join("private"));
    bench.scenario("write");
    let second = revised(bench, id, &format!("once more: {}", bench.order("two.txt")));
    assert_eq!(paths(&second), ["out.txt", "two.txt"]);
    assert_ne!(second.worker.session, first.worker.session);
    assert!(second.warnings.iter().any(|w| w.contains("was not found any more")), "{:?}", second.warnings);
    clean(bench);
}

/// The provider never answers: the attempt ends when its time is over, with all that belongs to it.
pub fn hang(bench: &Bench) {
    bench.scenario("hang");
    let repo = bench.world.repo("r");
    let id = bench.submit(&repo, "do it").with("timeout", "20").ok();
    let result = drained(bench, id);
    assert_eq!((result.state, result.class), (State::TimedOut, Some(Class::Timeout)), "{}", result.message);
    assert!(result.survivors.is_empty(), "{:?}", result.survivors);
    clean(bench);
}

/// Cancelled while a command of the model runs, which has a child in a session of its own.
pub fn cancel(bench: &Bench) {
    let repo = bench.world.repo("r");
    repo.write("wait.sh", "setsid sleep 600 &\necho begun > begun\nsleep 600\n").commit("wait");
    let id = bench.submit(&repo, "[[RUN sh ./wait.sh]]").ok();
    let mut runner = bench.world.run_drain();
    let worktrees = bench.world.spool_path().join("worktrees");
    bench.world.await_some("the command's beginning", || file_in(&worktrees, "begun"));
    bench.world.on("cancel", id, &[]).ok();
    let result = bench.world.await_end(id);
    runner.kill();
    assert_eq!(result.state, State::Cancelled, "{}", result.message);
    assert!(result.survivors.is_empty(), "{:?}", result.survivors);
    clean(bench);
}

fn file_in(folder: &Path, name: &str) -> Option<PathBuf> {
    walkdir::WalkDir::new(folder)
        .into_iter()
        .filter_map(Result::ok)
        .find(|e| e.file_name() == name)
        .map(|e| e.into_path())
}

/// The program itself keeps its model from writing: nothing has to be undone.
pub fn read_only(bench: &Bench) {
    let repo = bench.world.repo("r");
    let order = format!("{} {}", bench.order("out.txt"), "[[RUN echo hello > out.txt]]");
    let id = bench.submit(&repo, &order).with("permission", "read_only").ok();
    let result = drained(bench, id);
    assert_eq!(paths(&result), [""; 0]);
    assert_eq!(result.undone, [""; 0], "it wrote, and we had to undo it");
    assert_ne!(result.state, State::TimedOut, "{}", result.message);
    let by =
        |r: &workspool::model::result::Restriction| r.what == "read_only" && r.enforced_by == bench.program;
    assert!(result.restrictions.iter().any(by), "{:?}", result.restrictions);
    clean(bench);
}

/// Four at once on one repository.
pub fn four_at_once(bench: &Bench) {
    let repo = bench.world.repo("r");
    let ids: Vec<TaskId> =
        (0..4).map(|k| bench.submit(&repo, &bench.order(&format!("out{k}.txt"))).ok()).collect();
    let mut runner = bench.world.run_drain();
    for id in &ids {
        bench.world.await_end(*id);
    }
    runner.kill();
    for (k, id) in ids.iter().enumerate() {
        assert_eq!(paths(&bench.world.succeeded(*id)), [format!("out{k}.txt")]);
    }
    clean(bench);
}

/// A prompt of 300 KB arrives whole.
pub fn long_prompt(bench: &Bench) {
    let repo = bench.world.repo("r");
    let mut objective = "line of a very long objective\n".repeat(10_000);
    objective.push_str("the very end of it. ");
    objective.push_str(&bench.order("out.txt"));
    let id = submit_file(bench, &repo, &objective, &[]);
    drained(bench, id);
    assert_eq!(paths(&bench.world.succeeded(id)), ["out.txt"]);
    let whole = |seen: &super::modelserver::Seen| {
        let body = seen.body.to_string();
        body.len() > 300_000 && body.contains("the very end of it.")
    };
    assert!(bench.server.seen("write").iter().any(whole), "no request holds the whole prompt");
    clean(bench);
}

/// A failed gate goes back into the same session.
pub fn repair(bench: &Bench) {
    let repo = bench.world.repo("r");
    let mark = bench.world.root().join("second").display().to_string();
    let gate = format!("test -e {mark} || {{ echo not yet; touch {mark}; exit 3; }}");
    let id = bench.submit(&repo, &bench.order("out.txt")).verify(&gate).with("repair", "1").ok();
    drained(bench, id);
    let result = bench.world.succeeded(id);
    assert_eq!(result.verification, Verification::Verified);
    let dir = bench.world.dir(id).attempt(1);
    if matches!(bench.program, "aider" | "dsh") {
        return clean(bench);
    }
    let session = |step: &str| workspool::keeper::summary(&dir.step(step)).unwrap().session;
    assert!(session("work.1").is_some());
    assert_eq!(session("work.1"), session("work.2"), "the session was not continued");
    clean(bench);
}

fn revised(bench: &Bench, id: TaskId, feedback: &str) -> TaskResult {
    // Whoever ended the attempt may hold the task a moment longer.
    bench
        .world
        .await_until("the revision", || bench.world.on("revise", id, &["--feedback", feedback]).code == 0);
    let mut runner = bench.world.run_drain();
    bench.world.await_until("the second attempt", || {
        bench.world.spool().read_result(id).unwrap().is_some_and(|r| r.attempt == 2)
    });
    runner.kill();
    bench.world.succeeded(id)
}

/// Feedback goes into the session of the attempt before.
pub fn revise(bench: &Bench) {
    let repo = bench.world.repo("r");
    let id = bench.submit(&repo, &bench.order("out.txt")).ok();
    let first = drained(bench, id);
    bench.world.succeeded(id);
    let second = revised(bench, id, &format!("once more: {}", bench.order("two.txt")));
    assert_eq!(paths(&second), ["out.txt", "two.txt"]);
    assert_eq!(second.worker.session, first.worker.session, "the session was not continued");
    clean(bench);
}

/// What an untrusted repository brings for the program itself is not run.
pub fn untrusted(bench: &Bench) {
    let repo = bench.world.repo("r");
    let evil = bench.world.root().join("evil.sh");
    let mark = bench.world.root().join("evil-was-run");
    fs::write(&evil, format!("#!/bin/sh\necho \"$@\" >> '{}'\ncat > /dev/null\n", mark.display())).unwrap();
    let evil = format!("sh {}", evil.display());
    let hook = |name: &str| json!([{ "matcher": "*", "hooks": [{ "type": "command", "name": name, "command": format!("{evil} {name}") }] }]);
    let hooks = json!({
        "SessionStart": hook("session"), "PreToolUse": hook("pre"), "BeforeTool": hook("before"), "Stop": hook("stop")
    });
    let server = json!({ "evil": { "command": "sh", "args": [evil.split_once(' ').unwrap().1, "mcp"] } });
    let settings = json!({
        "hooks": hooks, "mcpServers": server, "hooksConfig": { "enabled": true },
        "tools": { "discoveryCommand": format!("{evil} discovery") }
    });
    for path in [".claude/settings.json", ".gemini/settings.json"] {
        repo.write(path, settings.to_string());
    }
    let current = json!({ "$version": 4, "hooks": hooks, "mcpServers": server });
    repo.write(".qwen/settings.json", current.to_string());
    repo.write(".mcp.json", json!({ "mcpServers": server }).to_string());
    repo.write(".codex/hooks.json", json!({ "hooks": hooks }).to_string());
    let codex = format!(
        "notify = [\"sh\", \"-c\", \"{evil} notify\"]\n[mcp_servers.evil]\ncommand = \"sh\"\nargs = [\"-c\", \"{evil} mcp\"]\n"
    );
    repo.write(".codex/config.toml", codex);
    let opencode = json!({
        "mcp": { "evil": { "type": "local", "command": ["sh", "-c", format!("{evil} mcp")], "enabled": true } }
    });
    repo.write("opencode.json", opencode.to_string());
    let step = json!([{ "type": "command", "bash": format!("{evil} hook"), "timeoutSec": 10 }]);
    let hooks =
        json!({ "version": 1, "hooks": { "sessionStart": step, "preToolUse": step, "sessionEnd": step } });
    repo.write(".github/hooks/evil.json", hooks.to_string());
    for path in [".vscode/mcp.json", ".github/mcp.json"] {
        repo.write(path, json!({ "servers": server, "mcpServers": server }).to_string());
    }
    let aider = format!(
        "lint-cmd: {evil} lint\ntest-cmd: {evil} test\nauto-test: true\nnotifications-command: {evil} notify\nnotifications: true\n"
    );
    if bench.program != "aider" {
        repo.write(".aider.conf.yml", aider);
    }
    repo.commit("what the program itself would obey");
    let id = bench.submit(&repo, &bench.order("out.txt")).ok();
    drained(bench, id);
    assert!(paths(&bench.world.succeeded(id)).contains(&"out.txt".to_owned()));
    assert_eq!(fs::read_to_string(&mark).unwrap_or_default(), "", "the repository's own commands were run");

    // Where it cannot be kept from obeying, it is not started.
    let file = match bench.program {
        "opencode" => ".opencode/plugin/evil.js",
        "gemini" => ".gemini/.env",
        "qwen" => ".qwen/.env",
        "dsh" => ".env",
        "aider" => ".aider.conf.yml",
        _ => return clean(bench),
    };
    repo.write(file, "x");
    repo.git(&["add", "-f", "."]);
    repo.commit("more of it");
    let id = bench.submit(&repo, &bench.order("out.txt")).ok();
    let result = drained(bench, id);
    assert_eq!((result.state, result.class), (State::Failed, Some(Class::Permission)), "{}", result.message);
    assert!(result.message.contains(file.split("/plugin").next().unwrap()), "{}", result.message);
    clean(bench);
}

/// The program's sandbox keeps commands from the network.
pub fn no_network(bench: &Bench) {
    let repo = bench.world.repo("r");
    let url = bench.server.url("x");
    let order = format!("[[RUN curl -s -o reached.txt {url}/v1/models || echo offline > out.txt]]");
    let id = submit_file(bench, &repo, &order, &[("no_network", true.into())]);
    drained(bench, id);
    let result = bench.world.succeeded(id);
    assert_eq!(paths(&result), ["out.txt"]);
    assert!(result.restrictions.iter().any(|r| r.what == "no_network" && r.enforced_by == bench.program));
    let id = bench.submit(&repo, &order).ok();
    drained(bench, id);
    assert_eq!(paths(&bench.world.succeeded(id)), ["reached.txt"]);
    clean(bench);
}
