//! opencode's `run --format json`.

use super::Parser;
use super::classify::{self, fail_until, lifts};
use super::json::{self, Lines, MAX_NOTE, MAX_TEXT, clip, count, status, tail, text};
use crate::model::{ErrorClass, Fact, Usage, UsageScope};
use chrono::{TimeDelta, Utc};
use serde_json::Value;

/// Reads the events of opencode (observed: 1.18.33).
///
/// - There is no last event. The run is done when its last step finished with `stop` and nothing failed after it.
/// - Tokens and costs are by step; the request for a title is in no event.
/// - A tool that would have to ask is refused and ends the run after its step, with exit code 0.
/// - Nothing is printed before the model's first answer, the session's id neither.
#[derive(Debug, Default)]
pub(super) struct Opencode {
    lines: Lines,
    session: Option<String>,
    last: Option<String>,
    outcome: Option<Outcome>,
}

#[derive(Debug, Clone, PartialEq)]
enum Outcome {
    /// The last step finished for a reason.
    Finished(String),
    /// The last event was an error of this text.
    Failed(String),
}

impl Opencode {
    fn event(&mut self, event: &Value, facts: &mut Vec<Fact>) {
        if let Some(id) = text(event, "sessionID")
            && self.session.as_deref() != Some(id)
        {
            self.session = Some(id.to_owned());
            facts.push(Fact::Session { id: clip(id, MAX_NOTE).to_owned() });
        }
        match text(event, "type").unwrap_or_default() {
            "step_start" => self.outcome = None,
            "text" => {
                if let Some(words) = text(event, "part.text") {
                    let words = tail(words, MAX_TEXT).to_owned();
                    self.last = Some(words.clone());
                    facts.push(Fact::Message { text: words });
                }
            }
            "tool_use" => tool(event, facts),
            "step_finish" => {
                self.outcome = Some(Outcome::Finished(
                    text(event, "part.reason").map(json::one_line).unwrap_or_default(),
                ));
                let sum = |a: &str, b: &str| {
                    count(event, a).map(|n| n.saturating_add(count(event, b).unwrap_or(0)))
                };
                let usage = Usage {
                    input_tokens: sum("part.tokens.input", "part.tokens.cache.write"),
                    output_tokens: sum("part.tokens.output", "part.tokens.reasoning"),
                    cached_tokens: count(event, "part.tokens.cache.read"),
                    cost_usd: json::amount(event, "part.cost"),
                    turns: Some(1),
                    ..Usage::default()
                };
                facts.push(Fact::Usage { usage, scope: UsageScope::Delta });
            }
            "error" => self.error(event, facts),
            _ => {}
        }
    }

    fn error(&mut self, event: &Value, facts: &mut Vec<Fact>) {
        let name = text(event, "error.name").unwrap_or_default();
        let message = text(event, "error.data.message").unwrap_or(name);
        // The same error is often told twice in a row.
        if self.outcome.as_ref().is_some_and(|o| matches!(o, Outcome::Failed(last) if last == message)) {
            return;
        }
        let class = match name {
            "ContextOverflowError" => ErrorClass::ContextFull,
            "ProviderAuthError" => ErrorClass::Auth,
            "ProviderModelNotFoundError" => ErrorClass::ModelNotFound,
            "MessageAbortedError" => ErrorClass::Interrupted,
            _ => classify::of(status(event, "error.data.statusCode"), message),
        };
        let now = Utc::now();
        let wait = text(event, "error.data.responseHeaders.retry-after")
            .and_then(|seconds| seconds.parse::<u32>().ok())
            .and_then(|seconds| now.checked_add_signed(TimeDelta::seconds(i64::from(seconds))));
        let until = wait
            .or_else(|| lifts(message, now))
            .or_else(|| text(event, "error.data.responseBody").and_then(|body| lifts(body, now)));
        fail_until(facts, class, message, until);
        self.outcome = Some(Outcome::Failed(message.to_owned()));
    }
}

fn tool(event: &Value, facts: &mut Vec<Fact>) {
    let id = text(event, "part.callID").map(json::one_line);
    let name = text(event, "part.tool").map(json::one_line).unwrap_or_default();
    let summary = json::at(event, "part.state.input").map(json::summary).unwrap_or_default();
    facts.push(Fact::ToolCall { id: id.clone(), name: name.clone(), summary });
    facts.push(Fact::ToolResult { id, ok: text(event, "part.state.status") == Some("completed") });
    if let Some(reason) = text(event, "part.state.error")
        && (reason.starts_with("The user rejected permission")
            || reason.starts_with("The user has specified a rule which prevents"))
    {
        facts.push(Fact::Denied { tool: name, reason: clip(reason, MAX_NOTE).to_owned() });
    }
}

impl Parser for Opencode {
    fn line(&mut self, line: &[u8], facts: &mut Vec<Fact>) {
        for event in self.lines.read(line, facts) {
            self.event(&event, facts);
        }
    }

    fn end(&mut self, facts: &mut Vec<Fact>) {
        self.lines.end(facts);
        match self.outcome.take() {
            Some(Outcome::Finished(reason)) if reason == "stop" => {
                facts.push(Fact::Final { ok: true, text: self.last.take() });
            }
            // The run goes on after these: the program was stopped in between, or stopped over a refusal.
            Some(Outcome::Finished(reason)) if matches!(reason.as_str(), "tool-calls" | "unknown" | "") => {}
            Some(Outcome::Finished(reason)) => {
                let message = format!("the model stopped with the reason {reason}");
                facts.push(Fact::Error { class: ErrorClass::Other, message });
                facts.push(Fact::Final { ok: false, text: None });
            }
            Some(Outcome::Failed(_)) => facts.push(Fact::Final { ok: false, text: None }),
            None => {}
        }
    }
}
