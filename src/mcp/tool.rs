//! What a tool is made of: its description, its schemas, the function behind it, and how that may fail.

use super::schema;
use crate::intake::Refused;
use crate::model::{Problem, TaskId, input};
use crate::spool::SpoolError;
use crate::spool::config::ConfigError;
use crate::verbs::House;
use rmcp::model::{self as mcp, ToolAnnotations};
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::sync::Arc;
use tokio::sync::mpsc::UnboundedSender;

/// What a call comes with besides its arguments.
#[derive(Debug)]
pub struct Call {
    /// The spool and its configuration, as they are now.
    pub house: House,
    /// The client, in its own words.
    pub client: Option<String>,
    /// Takes what is said of the call's progress, where somebody hears it.
    pub news: Option<UnboundedSender<String>>,
}

impl Call {
    /// Resolves what a planner named as a task, expanding what was just submitted first.
    pub fn task(&self, text: &str) -> Result<TaskId, Fault> {
        crate::intake::expand(&self.house.spool)?;
        Ok(self.house.spool.resolve(text)?)
    }

    /// Says how far the call is.
    pub fn tell(&self, text: &str) {
        if let Some(news) = &self.news {
            let _ = news.send(text.to_owned());
        }
    }
}

/// What a client may expect of a tool before it asks its user.
#[derive(Debug, Clone, Copy)]
pub enum Effect {
    /// Reads only.
    Reads,
    /// Adds something, or moves a task on; nothing is lost by it.
    Adds,
    /// Sets something to what it may be already.
    Sets,
    /// Ends or removes something, or changes the user's repository.
    Decides,
}

type Body = Box<dyn Fn(&Call, Map<String, Value>) -> Result<Value, Fault> + Send + Sync>;

/// How a tool is carried out.
pub enum Kind {
    /// At once, by one function on the spool.
    Quick(Body),
    /// By waiting for tasks.
    Waits,
}

/// One tool.
pub struct Tool {
    /// Its name.
    pub name: &'static str,
    /// Its name for people.
    pub title: &'static str,
    /// All that a planner reads about it.
    pub about: &'static str,
    /// What it does to the world.
    pub effect: Effect,
    /// The schema of its arguments.
    pub input: Arc<Map<String, Value>>,
    /// The schema of its result.
    pub output: Arc<Map<String, Value>>,
    /// How it is carried out.
    pub kind: Kind,
}

impl Tool {
    /// Makes a tool of a function on the spool.
    pub fn quick<A, O>(
        name: &'static str,
        title: &'static str,
        effect: Effect,
        about: &'static str,
        body: fn(&Call, A) -> Result<O, Fault>,
    ) -> Self
    where
        A: DeserializeOwned + JsonSchema + 'static,
        O: Serialize + JsonSchema + 'static,
    {
        let kind = Kind::Quick(Box::new(move |call, arguments| {
            let out = body(call, read(arguments)?)?;
            Ok(serde_json::to_value(out)?)
        }));
        Tool {
            name,
            title,
            about,
            effect,
            input: Arc::new(schema::arguments::<A>()),
            output: Arc::new(schema::result::<O>()),
            kind,
        }
    }

    /// The tool as clients see it.
    pub fn listed(&self) -> mcp::Tool {
        let (reads, decides, repeats) = match self.effect {
            Effect::Reads => (true, false, true),
            Effect::Adds => (false, false, false),
            Effect::Sets => (false, false, true),
            Effect::Decides => (false, true, false),
        };
        let annotations = ToolAnnotations::with_title(self.title)
            .read_only(reads)
            .destructive(decides)
            .idempotent(repeats)
            .open_world(false);
        mcp::Tool::new(self.name, self.about, Arc::clone(&self.input))
            .with_title(self.title)
            .with_raw_output_schema(Arc::clone(&self.output))
            .with_annotations(annotations)
    }
}

/// Reads a tool's arguments. A fault names its place, and the nearest name for an unknown one.
pub fn read<A: DeserializeOwned>(arguments: Map<String, Value>) -> Result<A, Fault> {
    let text = serde_json::to_vec(&arguments)?;
    input::json(&text).map_err(|mut problem| {
        // Nobody sees the text that line and column would be of.
        (problem.line, problem.column) = (None, None);
        problem.message = plain(&problem.message);
        Fault::of(&problem)
    })
}

/// Says Rust's names of types in words.
fn plain(message: &str) -> String {
    let mut message = message.to_owned();
    for (rust, words) in [
        ("expected u8", "expected a whole number from 0 to 255"),
        ("expected u16", "expected a whole number from 0 to 65535"),
        ("expected u32", "expected a whole number from 0"),
        ("expected u64", "expected a whole number from 0"),
        ("expected usize", "expected a whole number from 0"),
        ("expected f64", "expected a number"),
        ("expected a sequence", "expected a list"),
        ("expected path string", "expected a path as a string"),
    ] {
        if message.ends_with(rust) {
            message.truncate(message.len() - rust.len());
            message.push_str(words);
        }
    }
    message
}

/// Refuses a number outside of its range.
pub fn range(field: &str, value: u64, allowed: std::ops::RangeInclusive<u64>) -> Result<u64, Fault> {
    if allowed.contains(&value) {
        return Ok(value);
    }
    let (least, most) = (allowed.start(), allowed.end());
    Err(Fault(format!("{field}: {value} is out of range: expected {least} to {most}")))
}

/// Why a tool could not do what it was asked, and what to do about it: for the planner to read.
#[derive(Debug)]
pub struct Fault(pub String);

impl Fault {
    fn of(problem: &Problem) -> Self {
        Fault(problem.to_string())
    }

    /// The text, in the words of tools instead of the command line's.
    pub fn text(&self) -> String {
        in_tools(&self.0).replace("use retry --worker", "use retry_task with another worker")
    }
}

/// Verbs of the command line, and the tools that do the same.
const VERBS: &[(&str, &str)] = &[
    ("accept", "accept_task"),
    ("audit", "audit_task"),
    ("cancel", "cancel_task"),
    ("diff", "get_diff"),
    ("hold", "hold_task"),
    ("list", "list_tasks"),
    ("logs", "get_log"),
    ("metrics", "get_metrics"),
    ("prune", "prune"),
    ("reject", "reject_task"),
    ("release", "release_task"),
    ("retry", "retry_task"),
    ("revise", "revise_task"),
    ("run", "restart_runner"),
    ("show", "get_task"),
    ("wait", "wait_tasks"),
    ("workers", "list_workers"),
];

/// Says in the words of tools what we say in those of the command line: `` `workspool retry ID` `` becomes
/// `retry_task ID`. What no tool does stays a command for the user.
pub fn in_tools(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("`workspool ") {
        let (before, command) = rest.split_at(at);
        let Some(end) = command[1..].find('`').map(|e| e + 1) else { break };
        out.push_str(before);
        let words = command[1..end].trim_start_matches("workspool ");
        let (verb, arguments) = words.split_once(' ').unwrap_or((words, ""));
        match VERBS.iter().find(|(known, _)| *known == verb) {
            Some((_, tool)) => {
                out.push_str(tool);
                // Options have other names there; an id is an id.
                if !arguments.is_empty() && !arguments.contains('-') {
                    out.push_str(&format!(" {arguments}"));
                }
            }
            None => out.push_str(&command[..=end]),
        }
        rest = &command[end + 1..];
    }
    out.push_str(rest);
    out
}

impl From<anyhow::Error> for Fault {
    fn from(e: anyhow::Error) -> Self {
        Fault(format!("{e:#}"))
    }
}

impl From<SpoolError> for Fault {
    fn from(e: SpoolError) -> Self {
        Fault(e.to_string())
    }
}

impl From<ConfigError> for Fault {
    fn from(e: ConfigError) -> Self {
        Fault(format!("{e}\n  hint: the owner of the spool must repair this before anything can be done"))
    }
}

impl From<serde_json::Error> for Fault {
    fn from(e: serde_json::Error) -> Self {
        Fault(e.to_string())
    }
}

impl From<std::io::Error> for Fault {
    fn from(e: std::io::Error) -> Self {
        Fault(e.to_string())
    }
}

impl From<Refused> for Fault {
    fn from(e: Refused) -> Self {
        match e {
            Refused::Fault(e) => e.into(),
            refused => Fault(refused.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_command_line_says_is_said_in_tools() {
        assert_eq!(
            in_tools("try `workspool retry 01j`; its log is `workspool logs 01j`"),
            "try retry_task 01j; its log is get_log 01j"
        );
        assert_eq!(in_tools("start one with `workspool run --drain`"), "start one with restart_runner");
        assert_eq!(in_tools("see `workspool check`, `x`"), "see `workspool check`, `x`");
        assert_eq!(in_tools("an open `workspool end"), "an open `workspool end");
    }

    #[test]
    fn every_tool_that_is_named_is_one() {
        for (verb, tool) in VERBS {
            assert!(crate::mcp::tools::find(tool).is_some(), "{verb}: {tool}");
        }
    }
}
