//! Rules of the protocol, line by line: what is written is JSON-RPC and nothing else.

use crate::bench::Bench;
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

/// A server that is spoken to in raw lines.
struct Raw {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Raw {
    fn start(bench: &Bench) -> Raw {
        let mut command = bench.workspool(&["mcp"]);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Raw { input: child.stdin.take(), output, child }
    }

    fn send(&mut self, line: &str) {
        let input = self.input.as_mut().unwrap();
        input.write_all(line.as_bytes()).unwrap();
        input.write_all(b"\n").unwrap();
        input.flush().unwrap();
    }

    /// The next message; every line must be one.
    fn next(&mut self) -> Value {
        let mut line = String::new();
        assert!(self.output.read_line(&mut line).unwrap() > 0, "the server is gone");
        let message: Value = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {line:?}"));
        assert_eq!(message["jsonrpc"], "2.0");
        message
    }

    fn ask(&mut self, message: Value) -> Value {
        self.send(&message.to_string());
        loop {
            let answer = self.next();
            if answer["id"] == message["id"] {
                return answer;
            }
        }
    }

    fn initialize(&mut self, version: &str) -> Value {
        let answer = self.ask(json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": version, "capabilities": {}, "clientInfo": { "name": "raw", "version": "1" }
        }}));
        self.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        answer
    }

    fn end(mut self) -> (std::process::ExitStatus, String) {
        drop(self.input.take());
        let mut rest = String::new();
        std::io::Read::read_to_string(&mut self.output, &mut rest).unwrap();
        let mut err = String::new();
        std::io::Read::read_to_string(&mut self.child.stderr.take().unwrap(), &mut err).unwrap();
        assert_eq!(rest, "", "nothing is said after the last answer");
        (self.child.wait().unwrap(), err)
    }
}

#[test]
fn the_versions_that_have_a_handshake_are_spoken() {
    let bench = Bench::new();
    for (asked, spoken) in [
        ("2024-11-05", "2024-11-05"),
        ("2025-03-26", "2025-03-26"),
        ("2025-06-18", "2025-06-18"),
        ("2025-11-25", "2025-11-25"),
        ("2026-07-28", "2025-11-25"),
        ("2099-01-01", "2025-11-25"),
    ] {
        let mut raw = Raw::start(&bench);
        let answer = raw.initialize(asked);
        assert_eq!(answer["result"]["protocolVersion"], spoken);
        assert_eq!(answer["result"]["serverInfo"]["name"], "workspool");
        assert!(answer["result"]["instructions"].as_str().unwrap().contains("submit_task"));
        assert_eq!(raw.ask(json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" }))["result"], json!({}));
        let (status, err) = raw.end();
        assert!(status.success() && err.is_empty(), "{err}");
    }
}

#[test]
fn unknown_methods_tools_and_malformed_lines_are_answered_as_the_protocol_says() {
    let bench = Bench::new();
    let mut raw = Raw::start(&bench);
    raw.initialize("2025-06-18");
    let unknown = raw.ask(json!({ "jsonrpc": "2.0", "id": 1, "method": "no/such" }));
    assert_eq!(unknown["error"]["code"], -32601);
    let params = json!({ "name": "submit_tsk", "arguments": {} });
    let unknown = raw.ask(json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params }));
    assert_eq!(unknown["error"]["code"], -32602);
    assert!(unknown["error"]["message"].as_str().unwrap().contains("did you mean submit_task?"));
    raw.send("this is not JSON");
    raw.send("");
    let params = json!({ "name": "list_tasks" });
    let answer =
        raw.ask(json!({ "jsonrpc": "2.0", "id": "three", "method": "tools/call", "params": params }));
    assert_eq!(answer["result"]["isError"], false, "it goes on, and arguments may be left out: {answer}");
    let modern = raw.ask(json!({ "jsonrpc": "2.0", "id": 4, "method": "subscriptions/listen", "params": {
        "notifications": { "resourceSubscriptions": ["workspool://tasks/x"] } } }));
    assert_eq!(modern["error"]["code"], -32601, "not in this era");
    let (status, _) = raw.end();
    assert!(status.success());
}

#[test]
fn a_request_of_the_newer_era_needs_no_handshake_and_says_what_kind_of_result_it_got() {
    let bench = Bench::new();
    let mut raw = Raw::start(&bench);
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "raw", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let found = raw
        .ask(json!({ "jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": { "_meta": meta } }));
    assert!(found["result"]["supportedVersions"].to_string().contains("2026-07-28"), "{found}");
    let params = json!({ "_meta": meta, "name": "list_tasks", "arguments": {} });
    let called = raw.ask(json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params }));
    assert_eq!(called["result"]["resultType"], "complete", "{called}");
    let ping = raw.ask(json!({ "jsonrpc": "2.0", "id": 3, "method": "ping", "params": { "_meta": meta } }));
    assert_eq!(ping["error"]["code"], -32601, "there is none in this era");
    assert!(raw.end().0.success());
}

#[test]
fn a_request_before_the_handshake_is_answered_with_what_is_missing_and_the_handshake_still_works() {
    let bench = Bench::new();
    let mut raw = Raw::start(&bench);
    let early = raw.ask(json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" }));
    assert_eq!(early["error"]["code"], -32602, "{early}");
    assert!(raw.initialize("2025-06-18")["result"].is_object());
    assert!(raw.end().0.success());
}

#[test]
fn a_first_message_that_can_begin_nothing_ends_the_server_with_a_line_on_standard_error() {
    let bench = Bench::new();
    let mut raw = Raw::start(&bench);
    raw.send(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
    let (status, err) = raw.end();
    assert!(!status.success());
    assert_eq!(err.lines().count(), 1, "{err}");
}
