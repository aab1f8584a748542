//! Gemini CLI's `-o stream-json`.

use super::Parser;
use super::classify::{self, fail};
use super::json::{self, Lines, MAX_NOTE, MAX_TEXT, clip, count, tail, text};
use crate::model::{ErrorClass, Fact, Usage, UsageScope};
use serde_json::Value;
use std::collections::HashMap;

/// The most calls whose names are remembered.
const MAX_CALLS: usize = 1_000;

/// Reads the events of Gemini CLI (observed: 0.61.0).
///
/// - A message of the assistant comes in pieces (`delta`).
/// - Interrupted by SIGINT or SIGTERM it exits with 0 and gives no `result`.
/// - A run that was stopped because it went in a loop, and one that never called the model, say `success`.
/// - Tokens of thoughts are in the total only; input includes cached tokens. There is no cost.
/// - Retries are in no event.
#[derive(Debug, Default)]
pub(super) struct Gemini {
    lines: Lines,
    message: String,
    last: Option<String>,
    calls: HashMap<String, String>,
    looped: Option<String>,
    acted: bool,
}

impl Gemini {
    fn event(&mut self, event: &Value, facts: &mut Vec<Fact>) {
        let kind = text(event, "type").unwrap_or_default();
        let piece = kind == "message" && text(event, "role") == Some("assistant");
        if !piece || !json::flag(event, "delta") {
            self.flush(facts);
        }
        match kind {
            "init" => {
                if let Some(id) = text(event, "session_id") {
                    facts.push(Fact::Session { id: clip(id, MAX_NOTE).to_owned() });
                }
                if let Some(model) = text(event, "model") {
                    facts.push(Fact::Program { version: None, model: Some(json::one_line(model)) });
                }
            }
            "message" if piece => {
                self.message.push_str(text(event, "content").unwrap_or_default());
                if self.message.len() > 2 * MAX_TEXT {
                    self.message = tail(&self.message, MAX_TEXT).to_owned();
                }
                if !json::flag(event, "delta") {
                    self.flush(facts);
                }
            }
            "tool_use" => {
                self.acted = true;
                let id = text(event, "tool_id").map(json::one_line);
                let name = text(event, "tool_name").map(json::one_line).unwrap_or_default();
                if let Some(id) = id.clone().filter(|_| self.calls.len() < MAX_CALLS) {
                    self.calls.insert(id, name.clone());
                }
                let summary = event.get("parameters").map(json::summary).unwrap_or_default();
                facts.push(Fact::ToolCall { id, name, summary });
            }
            "tool_result" => self.tool_result(event, facts),
            "error" => self.error(event, facts),
            "result" => self.result(event, facts),
            _ => {}
        }
    }

    fn flush(&mut self, facts: &mut Vec<Fact>) {
        if !self.message.is_empty() {
            let message = tail(&std::mem::take(&mut self.message), MAX_TEXT).to_owned();
            self.acted = true;
            self.last = Some(message.clone());
            facts.push(Fact::Message { text: message });
        }
    }

    fn tool_result(&mut self, event: &Value, facts: &mut Vec<Fact>) {
        const REFUSALS: &[&str] = &["Path not in workspace", "Access denied", "denied by policy"];
        let id = text(event, "tool_id").map(json::one_line);
        let name = id.as_ref().and_then(|id| self.calls.remove(id)).unwrap_or_default();
        facts.push(Fact::ToolResult { id, ok: text(event, "status") == Some("success") });
        if let Some(reason) = text(event, "error.message")
            && REFUSALS.iter().any(|refusal| clip(reason, MAX_NOTE).contains(refusal))
        {
            facts.push(Fact::Denied { tool: name, reason: clip(reason, MAX_NOTE).to_owned() });
        }
    }

    fn error(&mut self, event: &Value, facts: &mut Vec<Fact>) {
        let message = text(event, "message").unwrap_or_default();
        if message.starts_with("Loop detected") || message.starts_with("Maximum session turns") {
            self.looped = Some(clip(message, MAX_NOTE).to_owned());
        } else if text(event, "severity") == Some("error") {
            fail(facts, classify::of(None, message), message);
        }
    }

    fn result(&mut self, event: &Value, facts: &mut Vec<Fact>) {
        let input = count(event, "stats.input_tokens");
        let output = count(event, "stats.output_tokens");
        // What the total has more than the input was written by the model, thoughts included.
        let written = count(event, "stats.total_tokens").zip(input).map(|(t, i)| t.saturating_sub(i));
        let cached = count(event, "stats.cached");
        let usage = Usage {
            input_tokens: input.map(|input| input.saturating_sub(cached.unwrap_or(0))),
            output_tokens: output.max(written),
            cached_tokens: cached,
            tool_calls: count(event, "stats.tool_calls"),
            ..Usage::default()
        };
        if !usage.is_empty() {
            facts.push(Fact::Usage { usage, scope: UsageScope::Total });
        }
        let mut ok = text(event, "status") == Some("success");
        if !ok {
            let message = text(event, "error.message").unwrap_or("failed, and gave no reason");
            let class = match text(event, "error.type") {
                Some("FatalTurnLimitedError") => ErrorClass::OwnLimit,
                Some("FatalAuthenticationError") => ErrorClass::Auth,
                _ => classify::of(None, message),
            };
            fail(facts, class, message);
        } else if let Some(message) = self.looped.take() {
            ok = false;
            fail(facts, ErrorClass::OwnLimit, &message);
        } else if !self.acted {
            ok = false;
            fail(facts, ErrorClass::Other, "it calls the run a success, but the model said and did nothing");
        }
        facts.push(Fact::Final { ok, text: ok.then(|| self.last.clone()).flatten() });
    }
}

impl Parser for Gemini {
    fn line(&mut self, line: &[u8], facts: &mut Vec<Fact>) {
        for event in self.lines.read(line, facts) {
            self.event(&event, facts);
        }
    }

    fn end(&mut self, facts: &mut Vec<Fact>) {
        self.lines.end(facts);
        self.flush(facts);
        if let Some(message) = self.looped.take() {
            fail(facts, ErrorClass::OwnLimit, &message);
        }
    }
}
