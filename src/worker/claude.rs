//! Claude Code's `--output-format stream-json`, and Qwen Code's, which has the same shape.

use super::Parser;
use super::classify::{self, fail, fail_until, moment};
use super::json::{self, Lines, MAX_NOTE, MAX_TEXT, clip, count, flag, list, status, tail, text};
use crate::model::{ErrorClass, Fact, LimitKind, Usage, UsageScope};
use chrono::{DateTime, Utc};
use serde_json::Value;
use std::collections::HashSet;

/// The most ids that are remembered, to report a denial once.
const MAX_IDS: usize = 1_000;

/// Whose events they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    /// Claude Code's.
    Claude,
    /// Qwen Code's.
    Qwen,
}

/// Reads the events of Claude Code (observed: 2.1.332, 2.1.197) and Qwen Code (0.24.4, 0.15.10).
///
/// - A failed request is a `result` whose `subtype` is `success` and whose `is_error` is true: only
///   `is_error` is believed. `terminal_reason` differs between versions.
/// - Claude: an assistant message's usage is a placeholder, so usage comes from `result`, where it is
///   this turn's. `total_cost_usd` counts the whole session; this run's cost is in
///   `model_usage_since_last_result`, which 2.1.197 does not have.
/// - Qwen: usage includes cached tokens, is real in each message, and in `result` counts the
///   whole session, side requests too. There is no cost.
/// - Texts of sub-agents (`parent_tool_use_id`) are not the assistant's.
/// - `rate_limit_event` was not observed, but read of in public threads.
#[derive(Debug)]
pub(super) struct Claude {
    dialect: Dialect,
    lines: Lines,
    session: Option<String>,
    denied: HashSet<String>,
    /// An error that came as a made-up message of the assistant and awaits its `result`.
    error: Option<(ErrorClass, String)>,
    last: Option<String>,
    counted: Option<String>,
    interrupted: bool,
    limited: Option<Option<DateTime<Utc>>>,
}

impl Claude {
    pub(super) fn new(dialect: Dialect) -> Self {
        Claude {
            dialect,
            lines: Lines::default(),
            session: None,
            denied: HashSet::new(),
            error: None,
            last: None,
            counted: None,
            interrupted: false,
            limited: None,
        }
    }

    fn event(&mut self, event: &Value, facts: &mut Vec<Fact>) {
        let kind = text(event, "type").unwrap_or_default();
        if kind != "result" {
            self.session(event, facts);
        }
        match kind {
            "system" => self.system(event, facts),
            "assistant" => self.assistant(event, facts),
            "user" => self.user(event, facts),
            "rate_limit_event" => self.limit(event, facts),
            "result" => self.result(event, facts),
            _ => {}
        }
    }

    fn session(&mut self, event: &Value, facts: &mut Vec<Fact>) {
        if let Some(id) = text(event, "session_id")
            && self.session.as_deref() != Some(id)
        {
            self.session = Some(id.to_owned());
            facts.push(Fact::Session { id: clip(id, MAX_NOTE).to_owned() });
        }
    }

    fn system(&mut self, event: &Value, facts: &mut Vec<Fact>) {
        match text(event, "subtype").unwrap_or_default() {
            "init" => {
                let version = json::first(event, &["claude_code_version", "qwen_code_version"]);
                facts.push(Fact::Program {
                    version: version.map(json::one_line),
                    model: text(event, "model").map(json::one_line),
                });
            }
            "permission_denied" => {
                let reason = json::first(event, &["decision_reason", "message"]).unwrap_or_default();
                self.denial(event, reason, facts);
            }
            "api_retry" => facts.push(Fact::Retry {
                status: status(event, "error_status"),
                delay_ms: count(event, "retry_delay_ms"),
            }),
            "retry" => facts.push(Fact::Retry { status: None, delay_ms: count(event, "data.delayMs") }),
            _ => {}
        }
    }

    /// Reports a denial, once: the events and the `result` both tell of it.
    fn denial(&mut self, event: &Value, reason: &str, facts: &mut Vec<Fact>) {
        if let Some(id) = text(event, "tool_use_id")
            && (self.denied.len() >= MAX_IDS || !self.denied.insert(id.to_owned()))
        {
            return;
        }
        facts.push(Fact::Denied {
            tool: text(event, "tool_name").map(json::one_line).unwrap_or_default(),
            reason: clip(reason, MAX_NOTE).to_owned(),
        });
    }

    fn assistant(&mut self, event: &Value, facts: &mut Vec<Fact>) {
        let main = text(event, "parent_tool_use_id").is_none();
        let error = text(event, "error");
        // The program's own words in the model's place.
        let made_up = text(event, "message.model") == Some("<synthetic>");
        if !made_up {
            self.limited = None;
        }
        for block in list(event, "message.content") {
            match text(block, "type").unwrap_or_default() {
                "text" => {
                    let Some(words) = text(block, "text") else { continue };
                    if let Some(error) = error {
                        self.error = Some((class_of_name(error, words), clip(words, MAX_NOTE).to_owned()));
                    } else if main && !made_up {
                        let words = tail(words, MAX_TEXT).to_owned();
                        self.last = Some(words.clone());
                        facts.push(Fact::Message { text: words });
                    }
                }
                "tool_use" => facts.push(Fact::ToolCall {
                    id: text(block, "id").map(json::one_line),
                    name: text(block, "name").map(json::one_line).unwrap_or_default(),
                    summary: block.get("input").map(json::summary).unwrap_or_default(),
                }),
                _ => {}
            }
        }
        if self.dialect == Dialect::Qwen {
            self.count_message(event, facts);
        }
    }

    /// Counts the usage of a message of Qwen's, once if the message comes in several events.
    fn count_message(&mut self, event: &Value, facts: &mut Vec<Fact>) {
        let id = text(event, "message.id").map(str::to_owned);
        if id.is_some() && id == self.counted {
            return;
        }
        self.counted = id;
        let usage = event.get("message").map(|message| self.usage(message)).unwrap_or_default();
        if !usage.is_empty() {
            facts.push(Fact::Usage { usage, scope: UsageScope::Delta });
        }
    }

    /// Returns the tokens in the field `usage`.
    fn usage(&self, event: &Value) -> Usage {
        let cached = count(event, "usage.cache_read_input_tokens");
        let input = count(event, "usage.input_tokens");
        let input = match self.dialect {
            // Writing the cache reads the tokens too.
            Dialect::Claude => {
                let written = count(event, "usage.cache_creation_input_tokens").unwrap_or(0);
                input.map(|input| input.saturating_add(written))
            }
            Dialect::Qwen => input.map(|input| input.saturating_sub(cached.unwrap_or(0))),
        };
        Usage {
            input_tokens: input,
            output_tokens: count(event, "usage.output_tokens"),
            cached_tokens: cached,
            ..Usage::default()
        }
    }

    fn user(&mut self, event: &Value, facts: &mut Vec<Fact>) {
        for block in list(event, "message.content") {
            match text(block, "type").unwrap_or_default() {
                "tool_result" => facts.push(Fact::ToolResult {
                    id: text(block, "tool_use_id").map(json::one_line),
                    ok: !flag(block, "is_error"),
                }),
                "text"
                    if text(block, "text").is_some_and(|t| t.starts_with("[Request interrupted by user")) =>
                {
                    self.interrupted = true;
                }
                _ => {}
            }
        }
    }

    fn limit(&mut self, event: &Value, facts: &mut Vec<Fact>) {
        let word = text(event, "rate_limit_info.status").unwrap_or_default();
        // With paid overage a rejected window does not stop the work.
        let rejected = word == "rejected" && !flag(event, "rate_limit_info.isUsingOverage");
        let until = count(event, "rate_limit_info.resetsAt").and_then(moment);
        if rejected {
            self.limited = Some(until);
        }
        if rejected || word == "allowed_warning" {
            facts.push(Fact::Limit { kind: LimitKind::Quota, until, rejected });
        }
    }

    fn result(&mut self, event: &Value, facts: &mut Vec<Fact>) {
        let subtype = text(event, "subtype").unwrap_or("success");
        let answer = text(event, "result");
        // A usage limit was seen reported as a success whose text is the limit's message.
        let banner = answer.filter(|answer| {
            answer.len() < 300
                && classify::of_words(answer) == Some(ErrorClass::Quota)
                && (self.limited.is_some() || answer.starts_with("Claude AI usage limit reached"))
        });
        let ok = !flag(event, "is_error") && subtype == "success" && banner.is_none();
        let error = (!ok).then(|| self.failure(event, subtype, answer));
        if !matches!(error, Some((ErrorClass::SessionNotFound, _))) {
            self.session(event, facts);
        }
        for denial in list(event, "permission_denials") {
            self.denial(denial, "not allowed", facts);
        }
        self.report_usage(event, facts);
        self.error = None;
        if let Some((class, message)) = error {
            match self.limited {
                Some(until) if matches!(class, ErrorClass::RateLimited | ErrorClass::Quota) => {
                    fail_until(facts, ErrorClass::Quota, &message, until);
                }
                _ => fail(facts, class, &message),
            }
        }
        let text = ok.then(|| answer.map(|t| tail(t, MAX_TEXT).to_owned()).or_else(|| self.last.clone()));
        facts.push(Fact::Final { ok, text: text.flatten() });
        self.interrupted = false;
    }

    fn report_usage(&self, event: &Value, facts: &mut Vec<Fact>) {
        let (tokens, turns) = (self.usage(event), count(event, "num_turns"));
        let (run, session) = match self.dialect {
            Dialect::Claude => {
                let cost = json::at(event, "model_usage_since_last_result").and_then(Value::as_object).map(
                    |models| {
                        models.values().filter_map(|m| json::amount(m, "costUSD")).fold(0.0, |a, b| a + b)
                    },
                );
                let total = json::amount(event, "total_cost_usd");
                (Usage { turns, cost_usd: cost, ..tokens }, Usage { cost_usd: total, ..Usage::default() })
            }
            Dialect::Qwen => (Usage { turns, ..Usage::default() }, tokens),
        };
        for (usage, scope) in [(run, UsageScope::Delta), (session, UsageScope::Session)] {
            if !usage.is_empty() {
                facts.push(Fact::Usage { usage, scope });
            }
        }
    }

    /// Returns the class and the words of a failed `result`.
    fn failure(&self, event: &Value, subtype: &str, answer: Option<&str>) -> (ErrorClass, String) {
        let listed: Vec<&str> = list(event, "errors").iter().filter_map(Value::as_str).collect();
        let message = answer
            .map(str::to_owned)
            .or_else(|| (!listed.is_empty()).then(|| listed.join("; ")))
            .or_else(|| text(event, "error.message").map(str::to_owned))
            .or_else(|| self.error.as_ref().map(|(_, message)| message.clone()))
            .unwrap_or_else(|| subtype.to_owned());
        let reason = text(event, "terminal_reason").unwrap_or_default();
        let class = if subtype.starts_with("error_max_") {
            ErrorClass::OwnLimit
        } else if reason == "prompt_too_long" {
            ErrorClass::ContextFull
        } else if reason.starts_with("aborted") || self.interrupted {
            ErrorClass::Interrupted
        } else {
            let by_text = classify::of(status(event, "api_error_status"), &message);
            match (&self.error, by_text) {
                (Some((class, _)), ErrorClass::Other) => *class,
                (_, class) => class,
            }
        };
        (class, message)
    }
}

/// Returns the class for the name that Claude Code gives an error.
fn class_of_name(name: &str, words: &str) -> ErrorClass {
    match name {
        "authentication_failed" | "oauth_org_not_allowed" => ErrorClass::Auth,
        "billing_error" => ErrorClass::Quota,
        "model_not_found" => ErrorClass::ModelNotFound,
        "rate_limit" => match classify::of_words(words) {
            Some(ErrorClass::Quota) => ErrorClass::Quota,
            _ => ErrorClass::RateLimited,
        },
        "server_error" | "overloaded" => match classify::of_words(words) {
            Some(ErrorClass::Network) => ErrorClass::Network,
            _ => ErrorClass::Provider,
        },
        "invalid_request" => match classify::of_words(words) {
            Some(ErrorClass::ContextFull) => ErrorClass::ContextFull,
            _ => ErrorClass::InvalidRequest,
        },
        _ => classify::of(None, words),
    }
}

impl Parser for Claude {
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
        if self.interrupted {
            fail(facts, ErrorClass::Interrupted, "interrupted while it waited for the model");
        }
    }
}
