//! The direct worker in a spool: submitted, supervised, judged.

use super::bench::{Bench, KEY, read};
use super::modelserver::Turn;
use chrono::{DateTime, TimeDelta, Utc};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};
use workspool::process::Identity;

/// A spool, and a repository with one commit.
struct Spool {
    bench: Bench,
    repo: PathBuf,
}

impl Spool {
    fn new() -> Spool {
        let bench = Bench::new();
        let repo = bench.path("repo");
        std::fs::create_dir(&repo).unwrap();
        std::fs::write(repo.join("README.md"), "# before\n").unwrap();
        let spool = Spool { bench, repo };
        spool.git(&["init", "-q", "-b", "main"]);
        spool.git(&["add", "."]);
        spool.git(&["-c", "user.name=T", "-c", "user.email=t@example.com", "commit", "-qm", "first"]);
        spool
    }

    fn isolated(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap());
        command.env("HOME", self.bench.path("home")).env("WORKSPOOL_HOME", self.bench.path("spool"));
        command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
        command.current_dir(&self.repo);
        command
    }

    fn git(&self, args: &[&str]) {
        let output = self.isolated("git").args(args).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// Runs workspool; both workers play `scenario`.
    fn workspool(&self, scenario: &str, args: &[&str]) -> Output {
        let mut command = self.isolated(env!("CARGO_BIN_EXE_workspool"));
        command.env("OPENAI_API_KEY", KEY).env("OPENAI_BASE_URL", self.bench.server.openai_url(scenario));
        command.env("ANTHROPIC_API_KEY", KEY).env("ANTHROPIC_BASE_URL", self.bench.server.url(scenario));
        command.args(args).output().unwrap()
    }

    fn submit(&self, scenario: &str, worker: &str, args: &[&str]) -> String {
        let mut all = vec!["submit", "do it", "--repo", ".", "--worker", worker, "--json"];
        all.extend(args);
        let output = self.workspool(scenario, &all);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
        let answer: Value = serde_json::from_str(&text).unwrap();
        find(&answer, "id").unwrap_or_else(|| panic!("no id: {answer}"))
    }

    fn task(&self, id: &str) -> PathBuf {
        self.bench.path("spool/tasks").join(id)
    }

    fn result(&self, id: &str) -> Value {
        serde_json::from_str(&read(&self.task(id).join("result.json"))).unwrap()
    }

    /// Works off what is there.
    fn drain(&self, scenario: &str) {
        let output = self.workspool(scenario, &["run", "--drain"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

fn find(value: &Value, key: &str) -> Option<String> {
    match value {
        Value::Object(fields) => fields
            .get(key)
            .and_then(Value::as_str)
            .map(str::to_owned)
            .or_else(|| fields.values().find_map(|v| find(v, key))),
        Value::Array(items) => items.iter().find_map(|v| find(v, key)),
        _ => None,
    }
}

/// Whether any file below `dir` holds `needle`.
fn holds(dir: &Path, needle: &str) -> Option<PathBuf> {
    walkdir::WalkDir::new(dir).into_iter().flatten().filter(|e| e.file_type().is_file()).find_map(|e| {
        let bytes = std::fs::read(e.path()).ok()?;
        memchr::memmem::find(&bytes, needle.as_bytes()).map(|_| e.path().to_owned())
    })
}

const REPORT: &str = "All done.\n```workspool-report\n{\"summary\": \"Renamed the title\", \"commit_message\": \"Rename the title\", \"tests_run\": [\"true\"], \"open_questions\": [], \"warnings\": []}\n```";

#[test]
fn a_task_is_done_verified_and_accounted_for() {
    let spool = Spool::new();
    for worker in ["openai", "anthropic"] {
        let scenario = format!("e2e-{worker}");
        spool.bench.server.script(
            &scenario,
            [
                Turn::calls([
                    ("read_file", json!({"path": "README.md"})),
                    ("edit_file", json!({"path": "README.md", "old_string": "before", "new_string": worker})),
                ]),
                Turn::call("run_shell", json!({"command": "grep -q . README.md"})),
                Turn::say(REPORT),
            ],
        );
        let id = spool.submit(&scenario, worker, &["--verify", &format!("grep -q {worker} README.md")]);
        spool.drain(&scenario);
        let result = spool.result(&id);
        assert_eq!(result["state"], "succeeded", "{result}");
        assert_eq!(result["verification"], "verified");
        assert_eq!(result["summary"], "Renamed the title");
        assert_eq!(result["changed"].as_array().unwrap().len(), 1, "{result}");
        let usage = &result["usage"];
        assert_eq!((&usage["input_tokens"], &usage["cached_tokens"]), (&json!(3600), &json!(900)), "{usage}");
        assert_eq!((&usage["output_tokens"], &usage["turns"]), (&json!(126), &json!(3)));
        assert_eq!(usage["tool_calls"], json!(3));
        assert_eq!(result["worker"]["version"], env!("CARGO_PKG_VERSION"));
        let session = result["worker"]["session"].as_str().unwrap();
        let transcript = read(&spool.task(&id).join("attempts/1/transcript.jsonl"));
        assert!(transcript.contains(session) && transcript.contains("Renamed the title"));
        assert!(
            spool.bench.server.seen(&scenario).iter().all(|s| s.headers.values().any(|v| v.contains(KEY)))
        );
        assert_eq!(holds(&spool.bench.path("spool"), KEY), None);
    }
}

#[test]
fn a_refused_key_is_for_a_person() {
    let spool = Spool::new();
    let id = spool.submit("err401", "openai", &["--retries", "3"]);
    spool.drain("err401");
    let result = spool.result(&id);
    assert_eq!((&result["state"], &result["class"]), (&json!("failed"), &json!("auth")), "{result}");
    assert_eq!(result["attempt"], json!(1));
    assert_eq!(spool.bench.server.seen("err401").len(), 1);
}

#[test]
fn a_limit_with_its_end_holds_the_task_until_then() {
    let spool = Spool::new();
    let id = spool.submit("err429-long", "anthropic", &[]);
    let output = spool.workspool("err429-long", &["tick"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let until = Instant::now() + Duration::from_secs(120);
    let held = loop {
        let shown = spool.workspool("err429-long", &["show", &id, "--json"]);
        let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
        if find(&shown, "state").as_deref() == Some("held") {
            break shown;
        }
        assert!(Instant::now() < until, "never held: {shown}");
        std::thread::sleep(Duration::from_millis(50));
    };
    let until: DateTime<Utc> = held["until"].as_str().unwrap().parse().unwrap();
    assert!(until > Utc::now() + TimeDelta::minutes(110), "{held}");
    assert!(held["waits"].as_str().unwrap().contains("rate limited"), "{held}");
    assert_eq!(held["attempt"], json!(2));
    assert!(!spool.task(&id).join("result.json").exists());
    assert_eq!(spool.bench.server.seen("err429-long").len(), 1);
}

#[test]
fn a_cancel_in_a_tool_leaves_no_process() {
    let spool = Spool::new();
    let pids = spool.bench.path("pids");
    let command = format!(
        "setsid sh -c 'trap \"\" TERM; echo $$ >> {0}; sleep 600' & while [ ! -s {0} ]; do sleep 0.02; done; echo $$ >> {0}; sleep 600",
        pids.display()
    );
    spool.bench.server.script("cancel", [Turn::call("run_shell", json!({"command": command}))]);
    let id = spool.submit("cancel", "openai", &[]);
    // The worker is confined: this one file outside its workspace is named.
    std::fs::write(&pids, "").unwrap();
    let config = format!("[confine]\nwritable = [{pids:?}]\n");
    std::fs::write(spool.bench.path("spool/config.toml"), config).unwrap();
    assert!(spool.workspool("cancel", &["tick"]).status.success());
    let until = Instant::now() + Duration::from_secs(120);
    while std::fs::read_to_string(&pids).unwrap_or_default().lines().count() < 2 {
        assert!(Instant::now() < until, "the tool never ran");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(spool.workspool("cancel", &["cancel", &id]).status.success());
    let waited = spool.workspool("cancel", &["wait", &id, "--timeout", "120"]);
    let result = spool.result(&id);
    assert_eq!(result["state"], "cancelled", "{result} {}", String::from_utf8_lossy(&waited.stderr));
    for pid in read(&pids).lines() {
        assert_eq!(Identity::of(pid.parse().unwrap()).unwrap(), None, "{pid} is still alive");
    }
}

#[test]
fn a_read_only_task_has_nothing_to_write_with() {
    let spool = Spool::new();
    spool
        .bench
        .server
        .script("look", [Turn::call("read_file", json!({"path": "README.md"})), Turn::say(REPORT)]);
    let id = spool.submit("look", "anthropic", &["--permission", "read_only"]);
    spool.drain("look");
    let result = spool.result(&id);
    assert_eq!(result["state"], "succeeded", "{result}");
    let offered = spool.bench.server.seen("look")[0].body["tools"].to_string();
    assert!(!offered.contains("write_file") && !offered.contains("run_shell"));
    assert!(result["restrictions"].to_string().contains("read_only"), "{result}");
}

#[test]
fn a_failed_gate_and_a_review_go_on_with_the_conversation() {
    let spool = Spool::new();
    let write = |text: &str| Turn::call("write_file", json!({"path": "out.txt", "content": text}));
    spool.bench.server.script(
        "again",
        [
            write("wrong\n"),
            Turn::say("the first report"),
            write("right\n"),
            Turn::say("the second report"),
            write("right\nand more\n"),
            Turn::say("the third report"),
        ],
    );
    let id = spool.submit("again", "anthropic", &["--verify", "grep -q right out.txt", "--repair", "1"]);
    spool.drain("again");
    let result = spool.result(&id);
    assert_eq!((&result["state"], &result["attempt"]), (&json!("succeeded"), &json!(1)), "{result}");
    let session = result["worker"]["session"].clone();
    assert!(session.is_string(), "{result}");
    // The repair is told what failed, in the same conversation.
    let repair = spool.bench.server.seen("again")[2].body.to_string();
    assert!(repair.contains("the first report") && repair.contains("Repair 1 of 1"), "{repair}");
    assert_eq!(result["usage"]["turns"], json!(4), "each answer counts once");

    let output = spool.workspool("again", &["revise", &id, "--feedback", "say more"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    spool.drain("again");
    let result = spool.result(&id);
    assert_eq!((&result["state"], &result["attempt"]), (&json!("succeeded"), &json!(2)), "{result}");
    assert_eq!(result["worker"]["session"], session);
    let revised = spool.bench.server.seen("again")[4].body.to_string();
    assert!(revised.contains("the second report") && revised.contains("say more"), "{revised}");
}

#[test]
fn four_tasks_at_once_and_a_long_prompt_do_not_mix() {
    let spool = Spool::new();
    let long = format!("{}\n[[WRITE long.txt]]", "all work and no play ".repeat(15_000));
    let file = spool.bench.path("task.json");
    let task =
        |objective: &str| json!({"objective": objective, "worker": "openai", "repository": spool.repo});
    let mut tasks: Vec<Value> = (1..4).map(|k| task(&format!("[[WRITE {k}.txt]]"))).collect();
    tasks.push(task(&long));
    std::fs::write(&file, json!({"tasks": tasks}).to_string()).unwrap();
    let output = spool.workspool("write", &["submit", "--file", file.to_str().unwrap(), "--json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    spool.drain("write");
    let mut changed: Vec<String> = std::fs::read_dir(spool.bench.path("spool/tasks"))
        .unwrap()
        .map(|entry| {
            let id = entry.unwrap().file_name().into_string().unwrap();
            let result = spool.result(&id);
            assert_eq!(result["state"], "succeeded", "{result}");
            assert_eq!(result["changed"].as_array().unwrap().len(), 1);
            find(&result["changed"], "path").unwrap()
        })
        .collect();
    changed.sort();
    assert_eq!(changed, ["1.txt", "2.txt", "3.txt", "long.txt"]);
}

#[test]
fn the_pages_example_of_a_local_server_works() {
    let spool = Spool::new();
    let page = read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/api-workers.md"));
    let example = page.split("```json\n").nth(1).unwrap().split("```").next().unwrap();
    let profile = example.replace("http://127.0.0.1:11434/v1", &spool.bench.server.openai_url("write"));
    assert_ne!(profile, example);
    let file = spool.bench.path("spool/workers/local.json");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(&file, profile).unwrap();
    let output = spool.workspool("write", &["submit", "[[WRITE a.txt]]", "--repo", ".", "--worker", "local"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    spool.drain("write");
    let seen = spool.bench.server.seen("write");
    assert_eq!((seen.len(), seen[0].body["model"].as_str()), (2, Some("qwen3-coder")));
    assert!(!seen[0].headers.contains_key("authorization"), "no key was named");
}
