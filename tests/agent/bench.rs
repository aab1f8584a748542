//! Runs `workspool agent` in a workspace of its own, and reads what it says.

use crate::modelserver::ModelServer;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use workspool::model::{ErrorClass, Fact, Usage};
use workspool::worker::{Observed, Summary, Verdict, judge};

/// A key as providers give them out.
pub const KEY: &str = "sk-scripted-0123456789abcdefghijklmnop";

/// The three APIs.
pub const APIS: [&str; 3] = ["openai-chat", "openai-responses", "anthropic"];

pub struct Bench {
    pub server: ModelServer,
    dir: tempfile::TempDir,
}

/// How a run ended.
pub struct Ran {
    pub code: Option<i32>,
    pub facts: Vec<Fact>,
    pub stdout: String,
    pub stderr: String,
}

impl Bench {
    pub fn new() -> Bench {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("work/.git")).unwrap();
        std::fs::create_dir(dir.path().join("home")).unwrap();
        Bench { server: ModelServer::start(), dir }
    }

    /// The folder that holds all.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The workspace.
    pub fn work(&self, name: &str) -> PathBuf {
        self.dir.path().join("work").join(name)
    }

    /// The agent, ready to be started: quick to try again, with a key, in an environment made from nothing.
    pub fn command(&self, api: &str, scenario: &str) -> Command {
        let url = match api {
            "anthropic" => self.server.url(scenario),
            _ => self.server.openai_url(scenario),
        };
        let mut command = self.bare(api);
        command.args(["--base-url", &url, "--model", "scripted", "--api-key-env", "TEST_KEY"]);
        command.args(["--retry-delay", "1"]);
        command.env("TEST_KEY", KEY);
        command
    }

    /// The agent without an address, a model or a key.
    pub fn bare(&self, api: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_workspool"));
        command.args(["agent", "--api", api]);
        command.current_dir(self.work("")).env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap()).env("HOME", self.path("home"));
        command
    }

    /// Runs a scenario on a prompt.
    pub fn run(&self, api: &str, scenario: &str, prompt: &str) -> Ran {
        run(&mut self.command(api, scenario), prompt)
    }
}

/// Starts the agent on a prompt.
pub fn start(command: &mut Command, prompt: &str) -> Child {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // It may have ended already, without reading.
    let _ = child.stdin.take().unwrap().write_all(prompt.as_bytes());
    child
}

/// Runs the agent on a prompt to its end.
pub fn run(command: &mut Command, prompt: &str) -> Ran {
    Ran::of(start(command, prompt))
}

impl Ran {
    pub fn of(child: Child) -> Ran {
        let output = child.wait_with_output().unwrap();
        let stdout = String::from_utf8(output.stdout).unwrap();
        let facts = stdout
            .lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("no fact ({e}): {line}")))
            .collect();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        Ran { code: output.status.code(), facts, stdout, stderr }
    }

    pub fn summary(&self) -> Summary {
        Summary::of(&self.facts)
    }

    pub fn usage(&self) -> Usage {
        self.summary().usage
    }

    /// Asserts that it did its work, and returns its last word.
    pub fn done(&self) -> String {
        assert_eq!(self.code, Some(0), "{}{}", self.stdout, self.stderr);
        assert_eq!(self.verdict(), Verdict::Ok, "{}", self.stdout);
        assert!(matches!(self.facts.last(), Some(Fact::Final { ok: true, .. })), "{}", self.stdout);
        self.summary().final_text.unwrap()
    }

    /// Asserts that it failed, and returns why, as the supervisor judges it.
    pub fn failed(&self) -> (ErrorClass, String) {
        assert!(matches!(self.code, Some(1 | 2)), "{:?} {}{}", self.code, self.stdout, self.stderr);
        assert!(matches!(self.facts.last(), Some(Fact::Final { ok: false, .. })), "{}", self.stdout);
        match self.verdict() {
            Verdict::Failed { class, message, .. } => (class, message),
            Verdict::Ok => panic!("it did its work: {}", self.stdout),
        }
    }

    pub fn verdict(&self) -> Verdict {
        let facts = self.summary();
        let observed =
            Observed { exit_code: self.code, signal: None, stderr_tail: &self.stderr, facts: &facts };
        judge("workspool", &observed)
    }

    /// How often it tried again.
    pub fn retries(&self) -> usize {
        self.facts.iter().filter(|f| matches!(f, Fact::Retry { .. })).count()
    }

    /// Whether the tools that it called did what they were asked, in order.
    pub fn results(&self) -> Vec<bool> {
        let ok = |fact: &Fact| match fact {
            Fact::ToolResult { ok, .. } => Some(*ok),
            _ => None,
        };
        self.facts.iter().filter_map(ok).collect()
    }
}

/// The results of tools that a request carried, whatever API it speaks, in order.
pub fn results_in(body: &serde_json::Value) -> Vec<String> {
    let text = |v: &serde_json::Value| v.as_str().unwrap_or_default().to_owned();
    let mut results = Vec::new();
    for message in body["messages"].as_array().or(body["input"].as_array()).unwrap() {
        if message["role"] == "tool" {
            results.push(text(&message["content"]));
        } else if message["type"] == "function_call_output" {
            results.push(text(&message["output"]));
        }
        for block in message["content"].as_array().into_iter().flatten() {
            if block["type"] == "tool_result" {
                results.push(text(&block["content"]));
            }
        }
    }
    results
}

/// Reads a file of the workspace as text.
pub fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}
