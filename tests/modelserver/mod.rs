//! A scripted model server: Anthropic Messages, OpenAI Responses and Chat Completions, Gemini, in process.
//!
//! The scenario is the first part of the path: the base URL is `http://127.0.0.1:PORT/s/<scenario>`, so that
//! many runs share one server and one scenario can be played to any client. A scenario is either a script
//! that a test gave (a turn a request, the last one repeated), or one of the names in `scenario`.
//!
//! It serves our own agent and the real programs alike: tools are called by the names that the request
//! offers.

#![allow(dead_code, reason = "each test crate that includes this uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a test may panic anywhere, also in its helpers")]

mod ask;
mod encode;
mod http;
mod scenario;

use ask::{Ask, Wire};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::Write as _;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// What the server does with one request.
#[derive(Debug, Clone)]
pub enum Turn {
    /// Answers.
    Reply(Reply),
    /// Refuses.
    Fail(Failure),
    /// Takes the request and never answers.
    Hang,
    /// Begins the answer and never goes on.
    Stall,
    /// Closes the connection without an answer.
    Drop,
    /// Begins the answer, and closes the connection in the middle of it.
    Break,
    /// Begins the answer, and says in the stream that it failed.
    FailMidway,
    /// Answers with what no client can read.
    Garbage,
    /// Answers with these data, an event each.
    Raw(Vec<String>),
    /// Answers in one piece, although the client asked for a stream.
    Whole(Reply),
}

/// An answer of the model.
#[derive(Debug, Clone, Default)]
pub struct Reply {
    /// Its text.
    pub text: String,
    /// The tools that it calls: name and arguments, as they are.
    pub calls: Vec<(String, String)>,
    /// A tool with free text, which only Responses has.
    pub custom: Option<(String, String)>,
    /// Whether it is cut off at the limit of one answer.
    pub cut_off: bool,
    /// A thought, with what the client must send back unchanged.
    pub thought: Option<String>,
}

/// A refusal.
#[derive(Debug, Clone)]
pub struct Failure {
    pub status: u16,
    pub kind: String,
    pub message: String,
    pub headers: Vec<(String, String)>,
}

impl Turn {
    /// Answers with text.
    pub fn say(text: &str) -> Turn {
        Turn::Reply(Reply { text: text.into(), ..Reply::default() })
    }

    /// Calls a tool.
    pub fn call(name: &str, arguments: Value) -> Turn {
        Turn::calls([(name, arguments)])
    }

    /// Calls tools at once.
    pub fn calls<'a>(calls: impl IntoIterator<Item = (&'a str, Value)>) -> Turn {
        let calls = calls.into_iter().map(|(name, arguments)| (name.to_owned(), arguments.to_string()));
        Turn::Reply(Reply { calls: calls.collect(), ..Reply::default() })
    }

    /// Refuses.
    pub fn fail(status: u16, kind: &str, message: &str) -> Turn {
        Turn::Fail(Failure { status, kind: kind.into(), message: message.into(), headers: vec![] })
    }

    /// Adds a header to a refusal.
    pub fn header(mut self, name: &str, value: &str) -> Turn {
        if let Turn::Fail(failure) = &mut self {
            failure.headers.push((name.into(), value.into()));
        }
        self
    }
}

/// A request, as it came.
#[derive(Debug, Clone)]
pub struct Seen {
    pub scenario: String,
    pub method: String,
    pub path: String,
    pub headers: HashMap<String, String>,
    pub body: Value,
}

#[derive(Default)]
struct State {
    scripts: HashMap<String, Vec<Turn>>,
    counts: HashMap<String, usize>,
    seen: Vec<Seen>,
    /// How many bytes go out at once; all, if it says nothing.
    chunk: HashMap<String, usize>,
    gone: usize,
    stopped: bool,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// The server. It ends when dropped.
pub struct ModelServer {
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl ModelServer {
    /// Starts a server on a port of its own.
    pub fn start() -> ModelServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared { state: Mutex::default(), changed: Condvar::new() });
        let accepting = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if accepting.state.lock().unwrap().stopped {
                    return;
                }
                let (Ok(stream), shared) = (stream, Arc::clone(&accepting)) else { continue };
                std::thread::spawn(move || {
                    // A client that goes away is its own affair.
                    let _ = shared.serve(stream);
                });
            }
        });
        ModelServer { address, shared }
    }

    /// The base URL of a scenario, as Anthropic and Gemini clients want it.
    pub fn url(&self, scenario: &str) -> String {
        format!("http://{}/s/{scenario}", self.address)
    }

    /// The base URL of a scenario, as OpenAI clients want it.
    pub fn openai_url(&self, scenario: &str) -> String {
        format!("{}/v1", self.url(scenario))
    }

    /// Writes a scenario: a turn a request, the last one for all that follow.
    pub fn script(&self, scenario: &str, turns: impl Into<Vec<Turn>>) {
        self.shared.state.lock().unwrap().scripts.insert(scenario.into(), turns.into());
    }

    /// Sends the answers of a scenario in pieces of so many bytes.
    pub fn chunk(&self, scenario: &str, bytes: usize) {
        self.shared.state.lock().unwrap().chunk.insert(scenario.into(), bytes);
    }

    /// The requests for answers that came for a scenario so far.
    pub fn seen(&self, scenario: &str) -> Vec<Seen> {
        let state = self.shared.state.lock().unwrap();
        state.seen.iter().filter(|s| s.scenario == scenario && s.method == "POST").cloned().collect()
    }

    /// Waits until so many requests have come for a scenario.
    pub fn await_requests(&self, scenario: &str, count: usize) -> Vec<Seen> {
        let until = Instant::now() + Duration::from_secs(120);
        let mut state = self.shared.state.lock().unwrap();
        while state.seen.iter().filter(|s| s.scenario == scenario && s.method == "POST").count() < count {
            let left = until.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "{scenario}: {count} requests never came");
            state = self.shared.changed.wait_timeout(state, left).unwrap().0;
        }
        drop(state);
        self.seen(scenario)
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        if let Ok(mut state) = self.shared.state.lock() {
            state.stopped = true;
        }
        self.shared.changed.notify_all();
        // Wakes the listener, which then sees that it is over.
        let _ = TcpStream::connect(self.address);
    }
}

impl Shared {
    fn serve(&self, mut stream: TcpStream) -> std::io::Result<()> {
        stream.set_nodelay(true)?;
        let mut reader = std::io::BufReader::new(stream.try_clone()?);
        while let Some(request) = http::read(&mut reader)? {
            if !self.answer(&mut stream, request)? {
                break;
            }
        }
        Ok(())
    }

    /// Answers one request; says whether the connection goes on.
    fn answer(&self, stream: &mut TcpStream, request: http::Request) -> std::io::Result<bool> {
        let (scenario, path) = match request.path.strip_prefix("/s/").and_then(|p| p.split_once('/')) {
            Some((scenario, path)) => (scenario.to_owned(), format!("/{path}")),
            None => ("write".to_owned(), request.path.clone()),
        };
        let body: Value = serde_json::from_slice(&request.body).unwrap_or(Value::Null);
        let wire = Wire::of(&request.method, &path);
        let (turn, chunk) = {
            let mut state = self.state.lock().unwrap();
            state.seen.push(Seen {
                scenario: scenario.clone(),
                method: request.method.clone(),
                path: path.clone(),
                headers: request.headers.clone(),
                body: body.clone(),
            });
            self.changed.notify_all();
            let Some(wire) = wire else {
                drop(state);
                return other(stream, &request, &path);
            };
            let count = state.counts.entry(scenario.clone()).or_default();
            let at = *count;
            *count += 1;
            let turn = match state.scripts.get(&scenario) {
                Some(turns) => turns[at.min(turns.len() - 1)].clone(),
                None => scenario::turn(&scenario, at, &Ask::of(wire, &body)),
            };
            (turn, state.chunk.get(&scenario).copied())
        };
        let wire = wire.unwrap();
        let streams = wire == Wire::Gemini && path.contains("stream") || body["stream"] == json!(true);
        let model = body["model"].as_str().unwrap_or("scripted").to_owned();
        match turn {
            Turn::Reply(reply) if streams => {
                http::events(stream, &encode::events(wire, &reply, &model), chunk)?;
                Ok(false)
            }
            Turn::Reply(reply) | Turn::Whole(reply) => {
                http::json(stream, 200, &[], &encode::whole(wire, &reply, &model))?;
                Ok(true)
            }
            Turn::Fail(failure) => {
                let body = encode::failure(wire, &failure);
                http::json(stream, failure.status, &failure.headers, &body)?;
                Ok(true)
            }
            Turn::Hang => {
                self.hold();
                Ok(false)
            }
            Turn::Stall => {
                let all = encode::events(wire, &Reply::default(), &model);
                http::events(stream, &all[..1], chunk)?;
                self.hold();
                Ok(false)
            }
            Turn::Drop => Ok(false),
            Turn::Break => {
                let reply = Reply { text: "This is only the beginning of".into(), ..Reply::default() };
                let all = encode::events(wire, &reply, &model);
                http::events(stream, &all[..all.len() / 2], chunk)?;
                stream.write_all(b"data: {\"half\": ")?;
                Ok(false)
            }
            Turn::FailMidway => {
                let mut all = encode::events(wire, &Reply::default(), &model);
                all.truncate(1);
                all.push(encode::failure_midway(wire));
                http::events(stream, &all, chunk)?;
                Ok(false)
            }
            Turn::Raw(data) => {
                let all: Vec<_> = data.into_iter().map(|data| (String::new(), data)).collect();
                http::events(stream, &all, chunk)?;
                Ok(false)
            }
            Turn::Garbage => {
                http::raw(stream, "text/event-stream", b"<html>\ndata: this is { no JSON\n\n\xff\xfe\0")?;
                Ok(false)
            }
        }
    }

    /// Waits for the end of the server.
    fn hold(&self) {
        let mut state = self.state.lock().unwrap();
        while !state.stopped {
            state = self.changed.wait(state).unwrap();
        }
    }
}

/// Answers what the real programs ask besides: whether we are there, what models there are, counts.
fn other(stream: &mut TcpStream, request: &http::Request, path: &str) -> std::io::Result<bool> {
    let (status, body) = match request.method.as_str() {
        "HEAD" => (200, Value::Null),
        _ if request.headers.contains_key("upgrade") => {
            (426, json!({"error": {"message": "no websocket here"}}))
        }
        _ if path.contains("count_tokens") => (200, json!({"input_tokens": 123})),
        _ if path.contains("countTokens") => (200, json!({"totalTokens": 123})),
        "GET" if path.split('?').next().is_some_and(|p| p.ends_with("/models")) => {
            let model = json!({"id": "scripted", "object": "model", "type": "model", "owned_by": "tests"});
            (200, json!({"object": "list", "data": [model], "models": [], "has_more": false}))
        }
        _ => (404, json!({"error": {"type": "not_found_error", "message": format!("nothing at {path}")}})),
    };
    http::json(stream, status, &[], &body)?;
    Ok(request.method != "HEAD")
}
