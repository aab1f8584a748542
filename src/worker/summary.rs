//! What a run's facts amount to, in bounded space.

use super::json::{MAX_NOTE, MAX_TEXT, clip, tail};
use crate::model::{ErrorClass, Fact, LimitKind, Usage, UsageScope};
use chrono::{DateTime, Utc};

/// The most denials and errors that are kept; the latest ones are.
const KEPT: usize = 50;

/// What the facts of one run amount to.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Summary {
    /// The id under which the session can be continued.
    pub session: Option<String>,
    /// The version that the program says it has.
    pub version: Option<String>,
    /// The model that it says it uses.
    pub model: Option<String>,
    /// Whether its last word calls the run a success; absent if there was no last word.
    pub final_ok: Option<bool>,
    /// The text of its last word.
    pub final_text: Option<String>,
    /// The last text of the assistant.
    pub last_message: Option<String>,
    /// What this run used, as far as the program counts it by run.
    pub usage: Usage,
    /// What the session used, for figures that the program counts over all runs of a session.
    pub session_usage: Usage,
    /// Tools that the program refused its model, and why.
    pub denials: Vec<(String, String)>,
    /// What failed.
    pub errors: Vec<(ErrorClass, String)>,
    /// The limit that was reached and, if that was said, when it lifts.
    pub limit: Option<(LimitKind, Option<DateTime<Utc>>)>,
    /// Calls of tools that were seen.
    pub tool_calls: u64,
    /// Lines that could not be read.
    pub unreadable: u64,
    /// Whether the program is trying a failed request again, and after which HTTP status.
    pub(super) retrying: Option<Option<u16>>,
}

impl Summary {
    /// Takes one more fact into account.
    pub fn add(&mut self, fact: &Fact) {
        match fact {
            Fact::Session { id } => self.session = Some(clip(id, MAX_NOTE).to_owned()),
            Fact::Program { version, model } => {
                take(&mut self.version, version);
                take(&mut self.model, model);
            }
            Fact::Message { text } => {
                self.last_message = Some(tail(text, MAX_TEXT).to_owned());
                self.went_on();
            }
            Fact::ToolCall { .. } => {
                self.tool_calls += 1;
                self.went_on();
            }
            Fact::ToolResult { .. } => {}
            Fact::Usage { usage, scope } => match scope {
                UsageScope::Delta => self.usage.add(usage),
                UsageScope::Total => self.usage.replace(usage),
                UsageScope::Session => self.session_usage.replace(usage),
            },
            Fact::Limit { kind, until, rejected } => {
                if *rejected {
                    self.limit = Some(stricter(self.limit, (*kind, *until)));
                }
            }
            Fact::Retry { status, .. } => self.retrying = Some(*status),
            Fact::Denied { tool, reason } => {
                keep(&mut self.denials, (clip(tool, MAX_NOTE).to_owned(), clip(reason, MAX_NOTE).to_owned()));
            }
            Fact::Error { class, message } => {
                keep(&mut self.errors, (*class, clip(message, MAX_NOTE).to_owned()));
            }
            Fact::Final { ok, text } => {
                self.final_ok = Some(*ok);
                self.final_text = text.as_ref().map(|text| tail(text, MAX_TEXT).to_owned());
                if *ok {
                    self.went_on();
                }
            }
            Fact::Unreadable { .. } => self.unreadable += 1,
        }
    }

    /// Whether the program was trying a failed request again at its end, and after which HTTP status.
    pub fn retrying(&self) -> Option<Option<u16>> {
        self.retrying
    }

    /// Makes the summary of many facts.
    pub fn of<'a>(facts: impl IntoIterator<Item = &'a Fact>) -> Summary {
        let mut summary = Summary::default();
        facts.into_iter().for_each(|fact| summary.add(fact));
        summary
    }

    /// Returns the worker's answer: the text of its last word, else its last message.
    pub fn answer(&self) -> Option<&str> {
        self.final_text.as_deref().or(self.last_message.as_deref())
    }

    /// Returns what this run used.
    ///
    /// Some programs count by session, so that a continued session repeats what earlier runs used.
    /// `before` is the `session_usage` at the end of the session's last run: an empty one for a new
    /// session, `None` if it is not known. Then figures by run are preferred, and a figure that
    /// is only known by session may be too high.
    pub fn usage_since(&self, before: Option<&Usage>) -> Usage {
        let Some(before) = before else {
            let mut usage = self.session_usage.clone();
            usage.replace(&self.usage);
            return usage;
        };
        fn less(after: Option<u64>, before: Option<u64>) -> Option<u64> {
            after.map(|after| after.saturating_sub(before.unwrap_or(0)))
        }
        let after = &self.session_usage;
        let mut usage = self.usage.clone();
        usage.replace(&Usage {
            input_tokens: less(after.input_tokens, before.input_tokens),
            output_tokens: less(after.output_tokens, before.output_tokens),
            cached_tokens: less(after.cached_tokens, before.cached_tokens),
            tool_calls: less(after.tool_calls, before.tool_calls),
            turns: less(after.turns, before.turns),
            cost_usd: after.cost_usd.map(|cost| (cost - before.cost_usd.unwrap_or(0.0)).max(0.0)),
        });
        usage
    }

    /// Forgets a limit and a retry, since the model has answered after them.
    fn went_on(&mut self) {
        self.limit = None;
        self.retrying = None;
    }
}

/// Takes a new value where there is one.
fn take(into: &mut Option<String>, from: &Option<String>) {
    if let Some(from) = from {
        *into = Some(clip(from, MAX_NOTE).to_owned());
    }
}

/// Adds to a list of bounded length.
fn keep<T>(list: &mut Vec<T>, item: T) {
    if list.len() >= KEPT {
        list.remove(0);
    }
    list.push(item);
}

/// Returns the limit that holds longer: a quota over a rate, a known time over an unknown one.
fn stricter(
    old: Option<(LimitKind, Option<DateTime<Utc>>)>,
    new: (LimitKind, Option<DateTime<Utc>>),
) -> (LimitKind, Option<DateTime<Utc>>) {
    let Some(old) = old else { return new };
    let kind = if old.0 == LimitKind::Quota { LimitKind::Quota } else { new.0 };
    (kind, old.1.max(new.1))
}
