//! What the MCP server costs: `cargo bench --bench mcp`.
//!
//! Its start, from the process's to the answered `initialize`, beside that of a server that has nothing but the
//! protocol; and calls on a spool with few ended tasks beside one with many. What is compared runs in turns, so
//! that a busy machine slows both.

use rmcp::{ServerHandler, ServiceExt as _};
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use workspool::model::{State, TaskId};
use workspool::spool::{DONE_FOLDER, Place, Spool};

const FEW: usize = 1_000;
const MANY: usize = 100_000;
const STARTS: usize = 60;
const CALLS: usize = 300;

type Fallible<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Fallible<()> {
    if std::env::args().any(|a| a == "--empty-server") {
        return serve_nothing();
    }
    let dir = tempfile::tempdir()?;
    let small = filled(&dir.path().join("small"), FEW)?;
    let large = filled(&dir.path().join("large"), MANY)?;
    let mut within = starts(&small.root)?;
    for (tool, arguments) in [
        ("get_task", json!({ "task": "ID" })),
        ("get_task, an old one", json!({ "task": "OLDEST" })),
        ("list_tasks", json!({})),
        ("list_tasks, the last page", json!({ "after": "OLD" })),
        ("list_tasks, nothing fits", json!({ "tags": ["nowhere"] })),
        ("wait_tasks, ended", json!({ "tasks": ["ID"] })),
    ] {
        within &= calls(tool, &arguments, &small, &large)?;
    }
    if within { Ok(()) } else { Err("a figure is over its bound".into()) }
}

#[tokio::main(flavor = "current_thread")]
async fn serve_nothing() -> Fallible<()> {
    struct Nothing;
    impl ServerHandler for Nothing {}
    Nothing.serve(rmcp::transport::io::stdio_pipes()).await?.waiting().await?;
    Ok(())
}

/// A server that is spoken to in lines.
struct Server {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Server {
    /// Starts one, and waits until it has answered the handshake.
    fn start(program: &Path, args: &[&str], spool: &Path) -> Fallible<Server> {
        let mut command = Command::new(program);
        command.args(args).env("WORKSPOOL_HOME", spool).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let input = child.stdin.take().ok_or("no input")?;
        let output = BufReader::new(child.stdout.take().ok_or("no output")?);
        let mut server = Server { child, input, output };
        server.ask(json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "bench", "version": "1" } } }))?;
        writeln!(server.input, "{}", json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }))?;
        Ok(server)
    }

    fn ask(&mut self, message: Value) -> Fallible<Value> {
        writeln!(self.input, "{message}")?;
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        Ok(serde_json::from_str(&line)?)
    }

    fn call(&mut self, tool: &str, arguments: &Value) -> Fallible<Value> {
        let params = json!({ "name": tool, "arguments": arguments });
        let answer =
            self.ask(json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params }))?;
        if answer["result"]["isError"] != false {
            return Err(format!("{tool}: {answer}").into());
        }
        Ok(answer["result"]["structuredContent"].clone())
    }

    fn end(mut self) -> Fallible<()> {
        drop(self.input);
        self.child.wait()?;
        Ok(())
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// Prints two medians and their ratio; says whether it is within its bound.
fn tell(what: &str, first: Vec<Duration>, second: Vec<Duration>, bound: f64) -> bool {
    let (first, second) = (median(first), median(second));
    let ratio = second.as_secs_f64() / first.as_secs_f64();
    println!("{what:28} {first:>10.2?} {second:>10.2?}   ratio {ratio:.2} (at most {bound})");
    ratio <= bound
}

fn starts(spool: &Path) -> Fallible<bool> {
    let own = std::env::current_exe()?;
    let workspool = Path::new(env!("CARGO_BIN_EXE_workspool"));
    let (mut empty, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..STARTS {
        for (program, args, times) in
            [(own.as_path(), &["--empty-server"][..], &mut empty), (workspool, &["mcp"][..], &mut ours)]
        {
            let began = Instant::now();
            let server = Server::start(program, args, spool)?;
            times.push(began.elapsed());
            server.end()?;
        }
    }
    println!("{:28} {:>10} {:>10}", "", "empty", "workspool");
    Ok(tell("start to initialize", empty, ours, 3.0))
}

fn calls(what: &str, arguments: &Value, small: &Filled, large: &Filled) -> Fallible<bool> {
    let tool = what.split(',').next().unwrap_or_default();
    let program = Path::new(env!("CARGO_BIN_EXE_workspool"));
    let mut pair = Vec::new();
    for filled in [small, large] {
        let text = arguments.to_string();
        let text = text.replace("OLDEST", &filled.ids[0].to_string());
        let text = text.replace("OLD", &filled.ids[30].to_string());
        let text = text.replace("ID", &filled.ids[filled.ids.len() - 1].to_string());
        let mut server = Server::start(program, &["mcp"], &filled.root)?;
        server.call(tool, &serde_json::from_str(&text)?)?;
        pair.push((server, serde_json::from_str(&text)?, Vec::new()));
    }
    // What looks through many records takes longer.
    let turns = if what.contains("nothing") { CALLS / 20 } else { CALLS };
    for _ in 0..turns {
        for (server, arguments, times) in &mut pair {
            let began = Instant::now();
            server.call(tool, arguments)?;
            times.push(began.elapsed());
        }
    }
    let mut times = Vec::new();
    for (server, _, taken) in pair {
        times.push(taken);
        server.end()?;
    }
    let (many, few) = (times.pop().unwrap_or_default(), times.pop().unwrap_or_default());
    println!("{:28} {:>10} {:>10}", "", FEW, MANY);
    // What one call may look through is more than all that the small spool has.
    Ok(tell(what, few, many, if what.contains("nothing") { 3.0 } else { 1.5 }))
}

/// A spool with ended tasks.
struct Filled {
    root: std::path::PathBuf,
    /// The oldest first.
    ids: Vec<TaskId>,
}

/// Makes a spool with so many ended tasks: one is really submitted and cancelled, the others are made like it.
fn filled(root: &Path, count: usize) -> Fallible<Filled> {
    std::fs::create_dir_all(root)?;
    std::fs::write(root.join("config.toml"), "[disk]\nreserve_bytes = 0\nreserve_percent = 0\n")?;
    let run = |args: &[&str]| -> Fallible<String> {
        let out =
            Command::new(env!("CARGO_BIN_EXE_workspool")).args(args).env("WORKSPOOL_HOME", root).output()?;
        if !out.status.success() {
            return Err(String::from_utf8_lossy(&out.stderr).into());
        }
        Ok(String::from_utf8(out.stdout)?)
    };
    let model = run(&["submit", "true", "--worker", "shell", "--hold"])?[..26].to_owned();
    run(&["cancel", &model])?;
    let spool = Spool::open(root)?;
    let id: TaskId = model.parse()?;
    let found = spool.find_ticket(id)?.ok_or("the first task has no ticket")?;
    let old_ticket = spool.ticket_path(found.place, &found.ticket);
    let old_ticket = old_ticket.strip_prefix(root)?.to_string_lossy().into_owned();
    let mut files = Vec::new();
    for entry in std::fs::read_dir(spool.task(id).path())? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            files.push((entry.file_name(), std::fs::read_to_string(entry.path())?));
        }
    }
    let mut ids: Vec<TaskId> = (1..count).map(|_| TaskId::generate()).collect();
    ids.sort_unstable();
    for (k, new) in ids.iter().enumerate() {
        let place = Place::Done(2 + (k / DONE_FOLDER) as u64, State::Cancelled);
        let mut ticket = found.ticket;
        ticket.task = *new;
        let path = spool.ticket_path(place, &ticket);
        let named = path.strip_prefix(root)?.to_string_lossy().into_owned();
        let folder = spool.task(*new).path().to_owned();
        std::fs::create_dir_all(&folder)?;
        for (name, text) in &files {
            let text = text.replace(&old_ticket, &named).replace(&model, &new.to_string());
            std::fs::write(folder.join(name), text)?;
        }
        if k % DONE_FOLDER == 0 {
            std::fs::create_dir_all(path.parent().ok_or("no folder")?)?;
        }
        std::fs::write(path, "")?;
    }
    Ok(Filled { root: root.to_owned(), ids })
}
