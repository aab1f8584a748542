//! Codex' `exec --json`.

use super::Parser;
use super::classify::{self, fail};
use super::json::{self, Lines, MAX_NOTE, MAX_TEXT, clip, count, list, tail, text};
use crate::model::{Fact, Usage, UsageScope};
use serde_json::Value;
use std::collections::HashSet;

/// The most open calls that are remembered.
const MAX_OPEN: usize = 1_000;

/// Reads the events of Codex (observed: 0.171.0).
///
/// - Usage counts the whole thread, earlier runs included, and cached tokens as input. There is no cost.
/// - Top-level `error` events and `error` items are not fatal; only `turn.failed` is.
/// - A command refused by the sandbox may give no item at all, and one that runs long gives no
///   `item.completed`.
/// - There is no field for an HTTP status; it stands in the message, if at all.
#[derive(Debug, Default)]
pub(super) struct Codex {
    lines: Lines,
    open: HashSet<String>,
    last: Option<String>,
    /// The last `error` event, which may be the reason why no `turn.failed` came.
    error: Option<String>,
}

impl Codex {
    fn event(&mut self, event: &Value, facts: &mut Vec<Fact>) {
        match text(event, "type").unwrap_or_default() {
            "thread.started" => {
                if let Some(id) = text(event, "thread_id") {
                    facts.push(Fact::Session { id: clip(id, MAX_NOTE).to_owned() });
                }
            }
            "item.started" => self.item(event, false, facts),
            "item.completed" => self.item(event, true, facts),
            "turn.completed" => {
                self.error = None;
                let cached = count(event, "usage.cached_input_tokens");
                let usage = Usage {
                    input_tokens: count(event, "usage.input_tokens")
                        .map(|input| input.saturating_sub(cached.unwrap_or(0))),
                    output_tokens: count(event, "usage.output_tokens"),
                    cached_tokens: cached,
                    ..Usage::default()
                };
                if !usage.is_empty() {
                    facts.push(Fact::Usage { usage, scope: UsageScope::Session });
                }
                facts.push(Fact::Final { ok: true, text: self.last.clone() });
            }
            "turn.failed" => {
                let message = text(event, "error.message").or(self.error.as_deref()).unwrap_or("turn failed");
                fail(facts, classify::of(None, message), message);
                self.error = None;
                facts.push(Fact::Final { ok: false, text: None });
            }
            "error" => {
                let message = text(event, "message").unwrap_or_default();
                if message.starts_with("Reconnecting") {
                    facts.push(Fact::Retry { status: classify::status_in(message), delay_ms: None });
                } else {
                    self.error = Some(clip(message, MAX_NOTE).to_owned());
                }
            }
            _ => {}
        }
    }

    fn item(&mut self, event: &Value, completed: bool, facts: &mut Vec<Fact>) {
        let Some(item) = event.get("item") else { return };
        let (name, summary) = match text(item, "type").unwrap_or_default() {
            "agent_message" => {
                if let Some(words) = text(item, "text").filter(|_| completed) {
                    let words = tail(words, MAX_TEXT).to_owned();
                    self.last = Some(words.clone());
                    facts.push(Fact::Message { text: words });
                }
                return;
            }
            "mcp_tool_call" => {
                let name = [text(item, "server"), text(item, "tool")].into_iter().flatten();
                (name.collect::<Vec<_>>().join("."), item.get("arguments").map(json::summary))
            }
            "file_change" => {
                let paths: Vec<&str> = list(item, "changes").iter().filter_map(|c| text(c, "path")).collect();
                ("file_change".to_owned(), Some(json::one_line(&paths.join(" "))))
            }
            kind @ ("command_execution" | "web_search" | "collab_tool_call") => {
                (kind.to_owned(), Some(json::summary(item)))
            }
            _ => return,
        };
        let id = text(item, "id").map(json::one_line);
        let known = id.as_ref().is_some_and(|id| self.open.contains(id));
        if !known {
            facts.push(Fact::ToolCall {
                id: id.clone(),
                name: json::one_line(&name),
                summary: summary.unwrap_or_default(),
            });
        }
        if !completed {
            if let Some(id) = id.filter(|_| self.open.len() < MAX_OPEN) {
                self.open.insert(id);
            }
            return;
        }
        if let Some(id) = &id {
            self.open.remove(id);
        }
        let ok = text(item, "status").is_none_or(|status| status == "completed")
            && count(item, "exit_code").unwrap_or(0) == 0;
        facts.push(Fact::ToolResult { id, ok });
        if let Some(reason) =
            text(item, "error.message").filter(|reason| reason.contains("requires approval"))
        {
            facts.push(Fact::Denied {
                tool: json::one_line(&name),
                reason: clip(reason, MAX_NOTE).to_owned(),
            });
        }
    }
}

impl Parser for Codex {
    fn line(&mut self, line: &[u8], facts: &mut Vec<Fact>) {
        for event in self.lines.read(line, facts) {
            self.event(&event, facts);
        }
    }

    fn end(&mut self, facts: &mut Vec<Fact>) {
        self.lines.end(facts);
        if let Some(message) = self.error.take() {
            fail(facts, classify::of(None, &message), &message);
        }
    }
}
