//! GitHub Copilot CLI's `--output-format json`.

use super::Parser;
use super::classify::{self, fail};
use super::json::{self, Lines, MAX_NOTE, MAX_TEXT, clip, count, status, tail, text};
use crate::model::{ErrorClass, Fact, Usage, UsageScope};
use serde_json::Value;

/// Reads the events of Copilot CLI (observed: 1.0.102, its last event and its errors; the other events
/// as public session logs show them).
///
/// - The last line is `result` with `exitCode`.
/// - It masks the provider's key wherever it stands in the output, even within names of fields: a
///   key that is a short or common word makes lines unreadable.
#[derive(Debug, Default)]
pub(super) struct Copilot {
    lines: Lines,
    session: Option<String>,
    last: Option<String>,
    error: Option<(ErrorClass, String)>,
}

impl Copilot {
    fn event(&mut self, event: &Value, facts: &mut Vec<Fact>) {
        match text(event, "type").unwrap_or_default() {
            "session.start" => {
                self.session(text(event, "data.sessionId"), facts);
                let version = text(event, "data.copilotVersion").map(json::one_line);
                let model = text(event, "data.selectedModel").map(json::one_line);
                if version.is_some() || model.is_some() {
                    facts.push(Fact::Program { version, model });
                }
            }
            "session.model_change" => {
                if let Some(model) = text(event, "data.newModel") {
                    facts.push(Fact::Program { version: None, model: Some(json::one_line(model)) });
                }
            }
            "assistant.message" => {
                let main = text(event, "data.parentToolCallId").is_none();
                if let Some(words) = text(event, "data.content").filter(|_| main) {
                    let words = tail(words, MAX_TEXT).to_owned();
                    self.last = Some(words.clone());
                    // An answer after an error: the request was tried again.
                    self.error = None;
                    facts.push(Fact::Message { text: words });
                }
            }
            "assistant.usage" => {
                let cached = count(event, "data.cacheReadTokens");
                let usage = Usage {
                    input_tokens: count(event, "data.inputTokens")
                        .map(|input| input.saturating_sub(cached.unwrap_or(0))),
                    output_tokens: count(event, "data.outputTokens"),
                    cached_tokens: cached,
                    turns: Some(1),
                    ..Usage::default()
                };
                facts.push(Fact::Usage { usage, scope: UsageScope::Delta });
            }
            "tool.execution_start" => facts.push(Fact::ToolCall {
                id: text(event, "data.toolCallId").map(json::one_line),
                name: text(event, "data.toolName").map(json::one_line).unwrap_or_default(),
                summary: json::at(event, "data.arguments").map(json::summary).unwrap_or_default(),
            }),
            "tool.execution_complete" => {
                facts.push(Fact::ToolResult {
                    id: text(event, "data.toolCallId").map(json::one_line),
                    ok: json::flag(event, "data.success"),
                });
                if matches!(text(event, "data.error.code"), Some("denied" | "rejected")) {
                    facts.push(Fact::Denied {
                        tool: text(event, "data.toolName").map(json::one_line).unwrap_or_default(),
                        reason: clip(text(event, "data.error.message").unwrap_or_default(), MAX_NOTE)
                            .to_owned(),
                    });
                }
            }
            "session.error" => {
                let message = text(event, "data.message").or_else(|| text(event, "data.errorType"));
                let message = message.unwrap_or("session error");
                let status = status(event, "data.statusCode");
                let class = match (text(event, "data.errorType"), status) {
                    (Some("authentication" | "authorization"), None) => ErrorClass::Auth,
                    (Some("quota"), _) => ErrorClass::Quota,
                    (Some("rate_limit"), None) => ErrorClass::RateLimited,
                    _ => classify::of(status, message),
                };
                self.error = Some((class, clip(message, MAX_NOTE).to_owned()));
            }
            "result" => {
                self.session(text(event, "sessionId"), facts);
                let ok = json::at(event, "exitCode").and_then(Value::as_i64) == Some(0);
                let error = self.error.take();
                if !ok {
                    let (class, message) =
                        error.unwrap_or_else(|| (ErrorClass::Other, "failed, and gave no reason".to_owned()));
                    fail(facts, class, &message);
                }
                facts.push(Fact::Final { ok, text: ok.then(|| self.last.clone()).flatten() });
            }
            _ => {}
        }
    }

    fn session(&mut self, id: Option<&str>, facts: &mut Vec<Fact>) {
        if let Some(id) = id.filter(|id| self.session.as_deref() != Some(id)) {
            self.session = Some(id.to_owned());
            facts.push(Fact::Session { id: clip(id, MAX_NOTE).to_owned() });
        }
    }
}

impl Parser for Copilot {
    fn line(&mut self, line: &[u8], facts: &mut Vec<Fact>) {
        for event in self.lines.read(line, facts) {
            self.event(&event, facts);
        }
    }

    fn end(&mut self, facts: &mut Vec<Fact>) {
        self.lines.end(facts);
        if let Some((class, message)) = self.error.take() {
            fail(facts, class, &message);
        }
    }
}
