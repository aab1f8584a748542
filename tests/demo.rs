//! The demo passes and leaves nothing behind; the mock worker does each thing that its lines may say.
#![allow(clippy::unwrap_used, reason = "a test may panic anywhere, also in its helpers")]

use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

/// A home, a folder for temporary files, and a spool, all of one test.
struct Home {
    dir: TempDir,
}

impl Home {
    fn new() -> Self {
        let dir = TempDir::new().unwrap();
        for name in ["home", "tmp"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        Home { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .env("HOME", self.path("home"))
            .env("TMPDIR", self.path("tmp"))
            .env("WORKSPOOL_HOME", self.path("spool"))
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .stdin(Stdio::null());
        command
    }

    fn workspool(&self, args: &[&str]) -> Output {
        self.command(env!("CARGO_BIN_EXE_workspool")).args(args).output().unwrap()
    }

    /// Runs a command that must succeed, in a folder.
    fn must(&self, at: &Path, program: &str, args: &[&str]) -> String {
        let output = self.command(program).args(args).current_dir(at).output().unwrap();
        assert!(output.status.success(), "{program} {args:?}: {}", all(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    fn left(&self, name: &str) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(self.path(name)) else { return vec![] };
        entries.map(|entry| entry.unwrap().path()).collect()
    }

    fn repository(&self) -> PathBuf {
        let path = self.path("repository");
        fs::create_dir(&path).unwrap();
        fs::write(path.join("old.txt"), "old\n").unwrap();
        self.must(&path, "git", &["init", "--quiet"]);
        self.must(&path, "git", &["config", "user.name", "Test"]);
        self.must(&path, "git", &["config", "user.email", "test@example.invalid"]);
        self.must(&path, "git", &["add", "--all"]);
        self.must(&path, "git", &["commit", "--quiet", "--message", "Begin"]);
        path
    }

    /// Works a task of the mock worker off and returns its result.
    fn work(&self, repository: &Path, objective: &str, more: &Value) -> Value {
        let mut task = json!({
            "objective": objective, "repository": repository, "worker": "mock",
            "verify": ["true"], "retries": 0,
        });
        task.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let file = self.path("task.json");
        fs::write(&file, task.to_string()).unwrap();
        let said = self.workspool(&["submit", "--file", file.to_str().unwrap()]);
        assert!(said.status.success(), "{}", all(&said));
        let id = String::from_utf8(said.stdout).unwrap()[..26].to_owned();
        let ran = self.workspool(&["run", "--drain"]);
        assert!(ran.status.success(), "{}", all(&ran));
        let result = fs::read(self.path("spool").join("tasks").join(id).join("result.json")).unwrap();
        serde_json::from_slice(&result).unwrap()
    }
}

fn all(output: &Output) -> String {
    format!(
        "{}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// Runs the mock worker by itself in a folder: exit code, facts, other lines, standard error.
fn mock(at: &Path, objective: &str, args: &[&str]) -> (i32, Vec<Value>, Vec<String>, String) {
    let file = at.join(".prompt");
    fs::write(&file, objective).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_workspool"))
        .arg("mock")
        .arg(&file)
        .args(args)
        .current_dir(at)
        .env_remove("WORKSPOOL_WORKSPACE")
        .output()
        .unwrap();
    fs::remove_file(&file).unwrap();
    let (mut facts, mut other) = (vec![], vec![]);
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        match serde_json::from_str::<Value>(line) {
            Ok(fact) if fact.get("fact").is_some() => facts.push(fact),
            _ => other.push(line.to_owned()),
        }
    }
    (output.status.code().unwrap(), facts, other, String::from_utf8(output.stderr).unwrap())
}

fn last(facts: &[Value]) -> &Value {
    facts.last().unwrap()
}

#[test]
fn the_demo_passes_and_leaves_nothing() {
    let home = Home::new();
    let output = home.workspool(&["demo"]);
    let said = all(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    for what in [
        "FAILED  9 items, 4 a parcel: 2 parcels, expected 3",
        "gate       passed  sh test.sh",
        "+    echo $(( (items + size - 1) / size ))",
        "ok      9 items, 4 a parcel: 3 parcels",
        "accepted as commit",
        "is removed again",
    ] {
        assert!(said.contains(what), "{what}: {said}");
    }
    for folder in ["tmp", "home", "spool"] {
        assert_eq!(home.left(folder), Vec::<PathBuf>::new(), "{folder}");
    }
}

#[test]
fn the_demo_can_be_kept_and_looked_at() {
    let home = Home::new();
    let output = home.workspool(&["demo", "--keep"]);
    assert!(output.status.success(), "{}", all(&output));
    let kept = home.left("tmp").pop().unwrap();
    let said = all(&output);
    // The commands that it names are the ones to go on with.
    let (_, after) = said.split_once("To look around:").unwrap();
    let mut script = String::from("set -e\n");
    script.extend(after.lines().filter_map(|line| line.strip_prefix("  ")).map(|line| format!("{line}\n")));
    assert!(script.contains("workspool accept changelog.json --as commit"), "{script}");
    let bin = Path::new(env!("CARGO_BIN_EXE_workspool")).parent().unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let looked = home.command("sh").args(["-c", &script]).env("PATH", path).output().unwrap();
    assert!(looked.status.success(), "{}", all(&looked));
    let log = home.must(&kept.join("shop"), "git", &["log", "--format=%s"]);
    assert_eq!(log.lines().collect::<Vec<_>>(), ["Begin a changelog", "Round parcels up", "Count parcels"]);
}

#[test]
fn a_demo_that_cannot_go_on_says_why_and_leaves_nothing() {
    let home = Home::new();
    let bin = home.path("bin");
    fs::create_dir(&bin).unwrap();
    std::os::unix::fs::symlink("/bin/sh", bin.join("sh")).unwrap();
    let mut command = home.command(env!("CARGO_BIN_EXE_workspool"));
    let output = command.arg("demo").env("PATH", &bin).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", all(&output));
    assert!(all(&output).contains("the demo failed: cannot run git"), "{}", all(&output));
    assert_eq!(home.left("tmp"), Vec::<PathBuf>::new());
}

#[test]
fn a_demo_that_is_interrupted_leaves_nothing() {
    let home = Home::new();
    let bin = home.path("bin");
    fs::create_dir(&bin).unwrap();
    // The first git that a child of the demo starts interrupts the demo: tasks are there by then.
    let path = std::env::var("PATH").unwrap();
    let git = std::env::split_paths(&path).map(|dir| dir.join("git")).find(|git| git.is_file()).unwrap();
    let pid = home.path("pid");
    let script = format!(
        "#!/bin/sh\n\
         if [ \"$1\" = init ]; then echo $PPID > '{pid}'; fi\n\
         demo=$(cat '{pid}')\n\
         if [ $PPID != $demo ]; then kill -INT $demo; fi\n\
         exec '{git}' \"$@\"\n",
        pid = pid.display(),
        git = git.display(),
    );
    fs::write(bin.join("git"), script).unwrap();
    fs::set_permissions(bin.join("git"), fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{path}", bin.display());
    let mut command = home.command(env!("CARGO_BIN_EXE_workspool"));
    command.arg("demo").env("PATH", path);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", all(&output));
    assert!(all(&output).contains("the demo failed: interrupted"), "{}", all(&output));
    assert!(all(&output).contains("$ workspool submit"), "{}", all(&output));
    assert_eq!(home.left("tmp"), Vec::<PathBuf>::new());
}

#[test]
fn a_demo_that_nobody_reads_leaves_nothing() {
    let home = Home::new();
    let mut command = home.command(env!("CARGO_BIN_EXE_workspool"));
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = command.arg("demo").stdout(writer).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", all(&output));
    assert!(all(&output).contains("cannot write to standard output"), "{}", all(&output));
    assert_eq!(home.left("tmp"), Vec::<PathBuf>::new());
}

#[test]
fn lines_about_files_change_files() {
    let dir = TempDir::new().unwrap();
    let at = dir.path();
    fs::write(at.join("gone"), "").unwrap();
    fs::create_dir_all(at.join("folder/inner")).unwrap();
    let objective = "# a remark\n\
        write a/b.txt one\\n\\ttwo\\n\n\
        append a/b.txt three\n\
        append new.txt first\n\
        write \"with space.txt\" x\\\\n\n\
        mkdir made/deep\n\
        delete gone\n\
        delete folder\n";
    let (code, facts, _, _) = mock(at, objective, &[]);
    assert_eq!(code, 0);
    assert_eq!(last(&facts), &json!({"fact": "final", "ok": true, "text": "Carried out 7 lines."}));
    assert_eq!(fs::read_to_string(at.join("a/b.txt")).unwrap(), "one\n\ttwo\nthree");
    assert_eq!(fs::read_to_string(at.join("new.txt")).unwrap(), "first");
    assert_eq!(fs::read_to_string(at.join("with space.txt")).unwrap(), "x\\n");
    assert!(at.join("made/deep").is_dir());
    assert!(!at.join("gone").exists() && !at.join("folder").exists());
}

#[test]
fn a_line_that_cannot_be_carried_out_fails_with_its_number() {
    let dir = TempDir::new().unwrap();
    let (code, facts, _, _) = mock(dir.path(), "say hello\ndelete nothing\nwrite after x", &[]);
    assert_eq!(code, 1);
    assert_eq!(last(&facts)["ok"], false);
    let text = last(&facts)["text"].as_str().unwrap();
    assert!(text.starts_with("line 2: nothing: "), "{text}");
    assert!(!dir.path().join("after").exists());
}

#[test]
fn a_line_that_is_not_known_is_an_error_before_anything_is_done() {
    let dir = TempDir::new().unwrap();
    for (objective, message) in [
        ("write a x\n\nwriet b y", "line 3: there is no directive `wriet`: did you mean `write`?"),
        (
            "write a x\nask Which?",
            "line 2: `ask` cannot be carried out yet: a worker has no way to ask a question",
        ),
    ] {
        let (code, facts, _, _) = mock(dir.path(), objective, &[]);
        assert_eq!(code, 2);
        assert_eq!(facts[1], json!({"fact": "error", "class": "usage", "message": message}));
        assert_eq!(last(&facts), &json!({"fact": "final", "ok": false, "text": message}));
        assert!(!dir.path().join("a").exists());
    }
}

#[test]
fn lines_about_output_print_it() {
    let dir = TempDir::new().unwrap();
    let objective = "print plain {text}\nstderr to the side\nsay First.\ntool edit a.txt\nsession s-1\n\
        usage input=10 output=5 cached=2 tool_calls=1 turns=3 cost=0.25\nsleep 0.01\nsay Last.";
    let (code, facts, other, stderr) = mock(dir.path(), objective, &["--model", "m-1"]);
    assert_eq!(code, 0);
    assert_eq!(other, ["plain {text}"]);
    assert_eq!(stderr, "to the side\n");
    assert_eq!(
        facts,
        [
            json!({"fact": "program", "version": env!("CARGO_PKG_VERSION"), "model": "m-1"}),
            json!({"fact": "message", "text": "First."}),
            json!({"fact": "tool_call", "id": "call-4", "name": "edit", "summary": "a.txt"}),
            json!({"fact": "tool_result", "id": "call-4", "ok": true}),
            json!({"fact": "session", "id": "s-1"}),
            json!({"fact": "usage", "scope": "delta", "usage": {
                "input_tokens": 10, "output_tokens": 5, "cached_tokens": 2, "tool_calls": 1, "turns": 3,
                "cost_usd": 0.25,
            }}),
            json!({"fact": "message", "text": "Last."}),
            json!({"fact": "final", "ok": true, "text": "Last."}),
        ]
    );
}

#[test]
fn an_attempt_can_have_lines_of_its_own() {
    let dir = TempDir::new().unwrap();
    let objective = "on 1 fail at first\nwrite a x";
    assert_eq!(mock(dir.path(), objective, &["--attempt", "1"]).0, 1);
    assert!(!dir.path().join("a").exists());
    assert_eq!(mock(dir.path(), objective, &["--attempt", "2"]).0, 0);
    assert!(dir.path().join("a").exists());
}

#[test]
fn the_command_line_of_the_mock_is_checked() {
    for (args, message) in [
        (&["mock"][..], "the prompt's file is missing"),
        (&["mock", "a", "--quick"], "there is no option --quick"),
        (&["mock", "a", "b"], "one argument too many"),
        (&["mock", "a", "--attempt", "x"], "is no number"),
        (&["mock", "a", "--model"], "is missing"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_workspool")).args(args).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(all(&output).contains(message), "{args:?}: {}", all(&output));
    }
    let help = Command::new(env!("CARGO_BIN_EXE_workspool")).args(["mock", "--help"]).output().unwrap();
    assert!(help.status.success() && all(&help).contains("write PATH TEXT"));
}

#[test]
fn a_task_takes_over_what_the_mock_says() {
    let home = Home::new();
    let repository = home.repository();
    let objective = "session s-1\nusage input=10 cost=0.5\nwrite new.txt x\\n\ntool edit new.txt\n\
        usage input=5 output=1\n\
        report {\"summary\": \"Made it.\", \"commit_message\": \"Add new\", \"open_questions\": [\"Why?\"]}";
    let result = home.work(&repository, objective, &json!({}));
    assert_eq!(result["state"], "succeeded", "{result}");
    assert_eq!(result["summary"], "Made it.");
    assert_eq!(result["open_questions"], json!(["Why?"]));
    assert_eq!(result["usage"]["input_tokens"], 15);
    assert_eq!(result["usage"]["output_tokens"], 1);
    assert_eq!(result["usage"]["cost_usd"], 0.5);
    let commit = result["commit"].as_str().unwrap();
    assert_eq!(home.must(&repository, "git", &["log", "-1", "--format=%s", commit]), "Add new\n");
}

#[test]
fn a_commit_of_the_mock_is_kept() {
    let home = Home::new();
    let repository = home.repository();
    let result = home.work(&repository, "write own.txt x\ncommit My own words\nwrite rest.txt y", &json!({}));
    assert_eq!(result["state"], "succeeded", "{result}");
    let commit = result["commit"].as_str().unwrap();
    let log = home.must(&repository, "git", &["log", "--format=%s", commit]);
    assert_eq!(log.lines().collect::<Vec<_>>()[1..], ["My own words", "Begin"]);
    let outside = TempDir::new().unwrap();
    let (code, facts, _, _) = mock(outside.path(), "commit no repository", &[]);
    assert_eq!((code, &last(&facts)["ok"]), (1, &json!(false)));
}

#[test]
fn ends_of_the_mock_are_ends_of_the_task() {
    let home = Home::new();
    let repository = home.repository();
    for (objective, state, class, message) in [
        ("fail Out of ideas", "failed", json!("worker_failed"), "Out of ideas"),
        ("auth", "failed", json!("auth"), "not signed in"),
        ("exit 7", "failed", json!("worker_failed"), "exit code 7"),
        ("exit 0", "failed", json!("worker_failed"), "without its last word"),
        ("nonsense", "failed", json!("worker_failed"), "line 1: there is no directive `nonsense`"),
        ("hang", "timed_out", json!("timeout"), "its time was over"),
    ] {
        let more = if objective == "hang" { json!({"timeout": 1}) } else { json!({}) };
        let result = home.work(&repository, objective, &more);
        assert_eq!((&result["state"], &result["class"]), (&json!(state), &class), "{objective}: {result}");
        let said = result["message"].as_str().unwrap();
        assert!(said.contains(message), "{objective}: {said}");
        assert_eq!(result["survivors"], json!([]));
    }
}

#[test]
fn limits_of_the_mock_name_their_end() {
    let dir = TempDir::new().unwrap();
    for (objective, kind, class) in
        [("rate_limit 60", "rate", "rate_limited"), ("quota 3600", "quota", "quota")]
    {
        let before = chrono::Utc::now();
        let (code, facts, _, _) = mock(dir.path(), objective, &[]);
        assert_eq!(code, 1);
        assert_eq!((&facts[1]["kind"], &facts[1]["rejected"]), (&json!(kind), &json!(true)));
        let until = facts[1]["until"].as_str().unwrap().parse::<chrono::DateTime<chrono::Utc>>().unwrap();
        let seconds: i64 = objective.split(' ').nth(1).unwrap().parse().unwrap();
        assert!(until >= before + chrono::TimeDelta::seconds(seconds));
        assert!(until <= chrono::Utc::now() + chrono::TimeDelta::seconds(seconds));
        assert_eq!(facts[2]["class"], class);
        assert_eq!(last(&facts)["ok"], false);
    }
}
