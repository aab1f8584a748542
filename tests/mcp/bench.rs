//! A world of a test's own, and clients of both protocol eras in it.

use rmcp::model::{
    CallToolRequestParams, CallToolResult, ClientCapabilities, ClientConfig, Implementation,
    ProgressNotificationParam, ProtocolVersion, ResourceUpdatedNotificationParam,
};
use rmcp::service::{
    ClientLifecycleMode, ClientServiceExt as _, NotificationContext, RunningService, ServiceExt as _,
};
use rmcp::transport::TokioChildProcess;
use rmcp::{ClientHandler, RoleClient};
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::sync::mpsc;
use workspool::spool::Spool;

/// How long anything that is awaited may take: far more than it needs, for a machine that is busy.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// A protocol era.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Era {
    /// With a handshake.
    Legacy,
    /// Every request by itself.
    Modern,
}

pub const BOTH: [Era; 2] = [Era::Legacy, Era::Modern];

pub type Client = RunningService<RoleClient, Planner>;

/// The client's side: what it can do, and what it is told.
pub struct Planner {
    tasks: bool,
    progress: mpsc::UnboundedSender<ProgressNotificationParam>,
    updates: mpsc::UnboundedSender<String>,
}

/// What a client was told.
pub struct Told {
    pub progress: mpsc::UnboundedReceiver<ProgressNotificationParam>,
    pub updates: mpsc::UnboundedReceiver<String>,
}

impl ClientHandler for Planner {
    fn get_info(&self) -> ClientConfig {
        let mut capabilities = ClientCapabilities::default();
        if self.tasks {
            capabilities = ClientCapabilities::builder().enable_tasks().build();
        }
        ClientConfig::new(capabilities, Implementation::new("a-planner", "9.9"))
    }

    async fn on_progress(&self, params: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        let _ = self.progress.send(params);
    }

    async fn on_resource_updated(
        &self,
        params: ResourceUpdatedNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        let _ = self.updates.send(params.uri);
    }
}

/// A world.
pub struct Bench {
    _dir: TempDir,
    pub root: PathBuf,
}

impl Bench {
    pub fn new() -> Bench {
        let dir = tempfile::Builder::new().prefix("workspool-mcp-").tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        for folder in ["home", "repo"] {
            std::fs::create_dir(root.join(folder)).unwrap();
        }
        let bench = Bench { _dir: dir, root };
        bench.spool();
        std::fs::write(
            bench.spool_path().join("config.toml"),
            "[disk]\nreserve_bytes = 0\nreserve_percent = 0\ncopy_reserve_bytes = 0\n[defaults]\nretry_delay = 0\ngrace_ms = 400\n",
        )
        .unwrap();
        bench
    }

    pub fn spool_path(&self) -> PathBuf {
        self.root.join("spool")
    }

    pub fn spool(&self) -> Spool {
        Spool::open(&self.spool_path()).unwrap()
    }

    /// A repository with one commit.
    pub fn repo(&self) -> PathBuf {
        let path = self.root.join("repo");
        if !path.join(".git").exists() {
            self.git(&path, &["init", "-q", "-b", "main", "."]);
            self.git(&path, &["config", "user.name", "A User"]);
            self.git(&path, &["config", "user.email", "user@example.com"]);
            std::fs::write(path.join("a.txt"), "one\n").unwrap();
            self.git(&path, &["add", "-A"]);
            self.git(&path, &["commit", "-q", "-m", "first"]);
        }
        path
    }

    pub fn git(&self, dir: &Path, args: &[&str]) -> String {
        let out = self.isolated(Command::new("git")).current_dir(dir).args(args).output().unwrap();
        assert!(out.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap().trim().to_owned()
    }

    /// A command that sees this world only.
    pub fn isolated(&self, mut command: Command) -> Command {
        command.env_clear().current_dir(&self.root);
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("HOME", self.root.join("home")).env("WORKSPOOL_HOME", self.spool_path());
        command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
        command
    }

    pub fn workspool(&self, args: &[&str]) -> Command {
        let mut command = self.isolated(Command::new(env!("CARGO_BIN_EXE_workspool")));
        command.args(args);
        command
    }

    /// Runs the program under test, which must succeed.
    pub fn run(&self, args: &[&str]) -> String {
        let out = self.workspool(args).stdin(Stdio::null()).output().unwrap();
        assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap()
    }

    /// A client with a server of its own.
    pub async fn client(&self, era: Era) -> Client {
        self.client_with(era, false).await.0
    }

    /// A client, and the process of its server.
    pub async fn client_and_server(&self, era: Era) -> (Client, u32) {
        let (client, _, server) = self.start(era, false).await;
        (client, server)
    }

    /// A client that declares the tasks extension or not, and what it is told.
    pub async fn client_with(&self, era: Era, tasks: bool) -> (Client, Told) {
        let (client, told, _) = self.start(era, tasks).await;
        (client, told)
    }

    async fn start(&self, era: Era, tasks: bool) -> (Client, Told, u32) {
        let (progress, heard_progress) = mpsc::unbounded_channel();
        let (updates, heard_updates) = mpsc::unbounded_channel();
        let planner = Planner { tasks, progress, updates };
        let transport =
            TokioChildProcess::new(tokio::process::Command::from(self.workspool(&["mcp"]))).unwrap();
        let server = transport.id().unwrap();
        let client = match era {
            Era::Legacy => planner.serve(transport).await.unwrap(),
            Era::Modern => {
                let preferred_versions = vec![ProtocolVersion::V_2026_07_28];
                let mode = ClientLifecycleMode::Discover { preferred_versions };
                planner.serve_with_lifecycle(transport, mode).await.unwrap()
            }
        };
        (client, Told { progress: heard_progress, updates: heard_updates }, server)
    }
}

impl Drop for Bench {
    /// Waits for the loop in the background: it would write into a folder that is gone.
    fn drop(&mut self) {
        let spool = self.spool();
        let deadline = Instant::now() + PATIENCE;
        while workspool::runner::is_awake(&spool).unwrap_or(false) {
            if Instant::now() > deadline {
                assert!(std::thread::panicking(), "a loop is still awake");
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

pub fn object(value: Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

/// Calls a tool.
pub async fn call(client: &Client, tool: &str, arguments: Value) -> CallToolResult {
    let params = CallToolRequestParams::new(tool.to_owned()).with_arguments(object(arguments));
    tokio::time::timeout(PATIENCE, client.call_tool(params)).await.expect("no answer").unwrap()
}

/// Calls a tool that must succeed, and checks its result against its schema.
pub async fn ok(client: &Client, tool: &str, arguments: Value) -> Value {
    let result = call(client, tool, arguments).await;
    assert_ne!(result.is_error, Some(true), "{tool}: {:?}", result.content);
    let value = result.structured_content.expect("a structured result");
    let text = result.content[0].as_text().unwrap().text.clone();
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value, "the text is the same");
    let listed = client.list_all_tools().await.unwrap();
    let schema = listed.iter().find(|t| t.name == tool).unwrap().output_schema.clone().unwrap();
    let schema = Value::Object((*schema).clone());
    let validator = jsonschema::validator_for(&schema).unwrap();
    let errors: Vec<String> = validator.iter_errors(&value).map(|e| e.to_string()).collect();
    assert!(errors.is_empty(), "{tool}: {errors:?}\n{value:#}");
    value
}

/// Calls a tool that must fail, and returns what the planner reads.
pub async fn fails(client: &Client, tool: &str, arguments: Value) -> String {
    let result = call(client, tool, arguments).await;
    assert_eq!(result.is_error, Some(true), "{tool}: {:?}", result.content);
    result.content[0].as_text().unwrap().text.clone()
}

/// Submits a shell task, and returns its id.
pub async fn submit(client: &Client, mut arguments: Value) -> String {
    arguments.as_object_mut().unwrap().entry("worker").or_insert("shell".into());
    ok(client, "submit_task", arguments).await["tasks"][0]["id"].as_str().unwrap().to_owned()
}

/// Waits until a task has ended, and returns its view.
pub async fn ended(client: &Client, id: &str) -> Value {
    let waited = ok(client, "wait_tasks", serde_json::json!({ "tasks": [id], "timeout_seconds": 80 })).await;
    assert_eq!(waited["timed_out"], false, "{waited:#}");
    waited["tasks"][0].clone()
}
