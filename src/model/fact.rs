//! What a worker's output said, as its parser understood it.

use chrono::{DateTime, Utc};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One thing that a worker's output said.
///
/// Facts are claims of the worker's program, kept apart from what we observed ourselves (exit code,
/// files, gate).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "fact", rename_all = "snake_case")]
pub enum Fact {
    /// The session can be continued later under this id.
    Session {
        /// The program's own id for it.
        id: String,
    },
    /// The program names itself.
    Program {
        /// Its version.
        #[serde(skip_serializing_if = "Option::is_none")]
        version: Option<String>,
        /// The model that it says it uses.
        #[serde(skip_serializing_if = "Option::is_none")]
        model: Option<String>,
    },
    /// Text of the assistant.
    Message {
        /// The text.
        text: String,
    },
    /// The assistant called a tool.
    ToolCall {
        /// The program's id for the call.
        #[serde(skip_serializing_if = "Option::is_none")]
        id: Option<String>,
        /// The tool's name.
        name: String,
        /// A short line: the path or the command, where there is one.
        summary: String,
    },
    /// A tool answered.
    ToolResult {
        /// The program's id for the call.
        #[serde(skip_serializing_if = "Option::is_none")]
        id: Option<String>,
        /// Whether the tool said that it worked.
        ok: bool,
    },
    /// Tokens, calls, turns or money were used.
    Usage {
        /// The figures; a figure that was not reported is absent.
        usage: Usage,
        /// Whether the figures add to earlier ones or replace them.
        scope: UsageScope,
    },
    /// The provider said that a limit is near or reached.
    Limit {
        /// Which kind of limit.
        kind: LimitKind,
        /// When it lifts, if that was said.
        #[serde(skip_serializing_if = "Option::is_none")]
        until: Option<DateTime<Utc>>,
        /// Whether requests are being refused now (and not only a warning given).
        rejected: bool,
    },
    /// The program tries a failed request again by itself.
    Retry {
        /// HTTP status that made it try again, if known.
        #[serde(skip_serializing_if = "Option::is_none")]
        status: Option<u16>,
        /// Milliseconds until the next try, if known.
        #[serde(skip_serializing_if = "Option::is_none")]
        delay_ms: Option<u64>,
    },
    /// The program refused its model a tool.
    Denied {
        /// The tool.
        tool: String,
        /// Why, in the program's words.
        reason: String,
    },
    /// Something failed.
    Error {
        /// Who should act.
        class: ErrorClass,
        /// The program's words.
        message: String,
    },
    /// The program's last word about the run.
    Final {
        /// Whether it calls the run a success.
        ok: bool,
        /// The final text.
        #[serde(skip_serializing_if = "Option::is_none")]
        text: Option<String>,
    },
    /// A line that should have been readable was not.
    Unreadable {
        /// Its length in bytes.
        bytes: u64,
        /// What was wrong with it.
        reason: String,
    },
}

/// What was used. A figure that was not reported is absent, never zero.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Usage {
    /// Tokens read by the model, cached ones not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_tokens: Option<u64>,
    /// Tokens written by the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_tokens: Option<u64>,
    /// Tokens read from the provider's cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_tokens: Option<u64>,
    /// Calls of tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_calls: Option<u64>,
    /// Turns of the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turns: Option<u64>,
    /// US dollars.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
}

impl Usage {
    /// Adds the figures of `other` to these.
    pub fn add(&mut self, other: &Usage) {
        // Figures come from other programs: a nonsense one must not end us.
        fn sum<T: Copy>(into: &mut Option<T>, from: Option<T>, add: fn(T, T) -> T) {
            *into = match (*into, from) {
                (Some(a), Some(b)) => Some(add(a, b)),
                (a, b) => a.or(b),
            };
        }
        sum(&mut self.input_tokens, other.input_tokens, u64::saturating_add);
        sum(&mut self.output_tokens, other.output_tokens, u64::saturating_add);
        sum(&mut self.cached_tokens, other.cached_tokens, u64::saturating_add);
        sum(&mut self.tool_calls, other.tool_calls, u64::saturating_add);
        sum(&mut self.turns, other.turns, u64::saturating_add);
        sum(&mut self.cost_usd, other.cost_usd, |a, b| a + b);
    }

    /// Takes the figures of `other` where it has them.
    pub fn replace(&mut self, other: &Usage) {
        fn set<T: Copy>(into: &mut Option<T>, from: Option<T>) {
            *into = from.or(*into);
        }
        set(&mut self.input_tokens, other.input_tokens);
        set(&mut self.output_tokens, other.output_tokens);
        set(&mut self.cached_tokens, other.cached_tokens);
        set(&mut self.tool_calls, other.tool_calls);
        set(&mut self.turns, other.turns);
        set(&mut self.cost_usd, other.cost_usd);
    }

    /// Whether nothing was reported.
    pub fn is_empty(&self) -> bool {
        *self == Usage::default()
    }
}

/// Whether usage figures add to earlier ones or replace them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UsageScope {
    /// Since the last report.
    Delta,
    /// Since the run began.
    Total,
    /// Since the session began, earlier runs of it included.
    Session,
}

/// Kinds of limits of a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LimitKind {
    /// Too many requests at once; lifts in seconds or minutes.
    Rate,
    /// What was paid for is used up; lifts in hours or days.
    Quota,
}

/// Kinds of errors that a worker's program reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ErrorClass {
    /// Not signed in, or the key is refused: a person must act.
    Auth,
    /// Too many requests.
    RateLimited,
    /// Out of credit or quota.
    Quota,
    /// The provider is overloaded or failed (5xx).
    Provider,
    /// The conversation no longer fits the model's context.
    ContextFull,
    /// The model is not known or not allowed.
    ModelNotFound,
    /// The provider refused the request as malformed.
    InvalidRequest,
    /// The session to continue was not found.
    SessionNotFound,
    /// The program's own limit of turns, time or money was reached.
    OwnLimit,
    /// The provider could not be reached.
    Network,
    /// The run was interrupted from outside.
    Interrupted,
    /// A command line, a configuration or a folder that the program refuses.
    Usage,
    /// What it was to do is not allowed: the program refused its model a tool and stopped over it, or
    /// refused the task.
    Permission,
    /// A program that it needs, or somebody that it was to talk to on this machine, is not there.
    NotFound,
    /// Anything else.
    Other,
}
