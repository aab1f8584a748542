//! Reads facts out of a command's standard output, keeps count, and writes them down.

use super::FACTS;
use super::lines::{LONGEST, Lines, Piece};
use crate::durable;
use crate::model::{Fact, LimitKind, Usage};
use crate::worker::{Parser, Summary};
use chrono::{DateTime, Utc};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, BufRead as _, BufReader};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Bytes of `facts.jsonl`; messages and tool calls that come later are only counted.
const FILE_CAP: u64 = 16 << 20;
/// As much again for the facts that decide something: the last word must not fall victim to chatter.
const LAST_CAP: u64 = 2 * FILE_CAP;
/// Bytes of one text in `facts.jsonl`.
const TEXT_CAP: usize = 256 << 10;

/// How many facts of each kind were read, and how many could be written down.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FactCounts {
    /// Facts read.
    pub total: u64,
    /// Facts that `facts.jsonl` had no room for.
    pub dropped: u64,
    /// Texts of the assistant.
    pub messages: u64,
    /// Calls of tools.
    pub tool_calls: u64,
    /// Tools that were refused.
    pub denied: u64,
    /// Requests that the program tried again.
    pub retries: u64,
    /// Errors.
    pub errors: u64,
    /// Lines that could not be read.
    pub unreadable: u64,
}

/// What a command said that decides what happens next. Texts are redacted and cut.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Said {
    /// The session by which it can be continued: the last one named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The version that the program says it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The model that it says it uses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Whether its last word calls the run a success; absent if there was no last word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub final_ok: Option<bool>,
    /// The text of its last word, else its last message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// The limit of its provider that it ran into.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<LimitKind>,
    /// When that limit lifts, if it was said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_until: Option<DateTime<Utc>>,
    /// What the session used over all its runs, for programs that count so.
    #[serde(default, skip_serializing_if = "Usage::is_empty")]
    pub session_usage: Usage,
}

impl From<&Summary> for Said {
    fn from(summary: &Summary) -> Said {
        Said {
            session: summary.session.clone(),
            version: summary.version.clone(),
            model: summary.model.clone(),
            final_ok: summary.final_ok,
            answer: summary.answer().map(str::to_owned),
            limit: summary.limit.map(|(kind, _)| kind),
            limit_until: summary.limit.and_then(|(_, until)| until),
            session_usage: summary.session_usage.clone(),
        }
    }
}

/// Sums up the facts that a keeper wrote down in `step_dir`. Lines that cannot be read are skipped: a
/// keeper may have been killed, or its disk full, in the middle of one.
pub fn summary(step_dir: &Path) -> io::Result<Summary> {
    let mut summary = Summary::default();
    let file = match File::open(step_dir.join(FACTS)) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(summary),
        Err(e) => return Err(e),
    };
    for line in BufReader::new(file).split(b'\n') {
        if let Ok(fact) = serde_json::from_slice(&line?) {
            summary.add(&fact);
        }
    }
    Ok(summary)
}

/// Turns text into what may be shown.
pub(super) type Mask = Box<dyn Fn(&str) -> String>;

/// Listens to standard output.
pub(super) struct Listener {
    lines: Lines,
    parser: Option<Box<dyn Parser>>,
    mask: Mask,
    path: PathBuf,
    written: u64,
    /// Whether the file may end in the middle of a line, after a write that failed.
    torn: bool,
    pending: Vec<u8>,
    /// What the session had used before this run, if that is known.
    before: Option<Usage>,
    pub(super) summary: Summary,
    pub(super) counts: FactCounts,
    /// When the last word was said, if nothing was done after it.
    pub(super) last_word_at: Option<Instant>,
    pub(super) error: Option<io::Error>,
}

impl Listener {
    pub(super) fn new(parser: Box<dyn Parser>, mask: Mask, path: PathBuf, before: Option<Usage>) -> Self {
        Listener {
            lines: Lines::new(LONGEST),
            parser: Some(parser),
            mask,
            path,
            written: 0,
            torn: false,
            pending: Vec::new(),
            before,
            summary: Summary::default(),
            counts: FactCounts::default(),
            last_word_at: None,
            error: None,
        }
    }

    /// Takes bytes of standard output as they come.
    pub(super) fn hear(&mut self, bytes: &[u8]) {
        let mut facts = Vec::new();
        let parser = &mut self.parser;
        self.lines.push(bytes, |piece| parse(parser, piece, &mut facts));
        self.take(facts);
    }

    /// Takes the end of standard output.
    pub(super) fn end(&mut self) {
        let mut facts = Vec::new();
        let parser = &mut self.parser;
        self.lines.end(|piece| parse(parser, piece, &mut facts));
        guarded(parser, &mut facts, |parser, facts| parser.end(facts));
        self.take(facts);
    }

    /// What was used, with the calls of tools that we counted where none were reported.
    pub(super) fn usage(&self) -> Usage {
        let mut usage = self.summary.usage_since(self.before.as_ref());
        if usage.tool_calls.is_none() && self.counts.tool_calls > 0 {
            usage.tool_calls = Some(self.counts.tool_calls);
        }
        usage
    }

    fn take(&mut self, facts: Vec<Fact>) {
        for fact in facts {
            let fact = masked(fact, &*self.mask);
            self.count(&fact);
            self.queue(&fact);
        }
        self.write();
    }

    fn count(&mut self, fact: &Fact) {
        self.counts.total += 1;
        self.summary.add(fact);
        match fact {
            Fact::Message { .. } => self.counts.messages += 1,
            Fact::ToolCall { .. } => self.counts.tool_calls += 1,
            Fact::Retry { .. } => self.counts.retries += 1,
            Fact::Denied { .. } => self.counts.denied += 1,
            Fact::Unreadable { .. } => self.counts.unreadable += 1,
            Fact::Error { .. } => self.counts.errors += 1,
            _ => {}
        }
        match fact {
            Fact::Final { .. } => self.last_word_at = Some(Instant::now()),
            // It went on working after all.
            Fact::Message { .. } | Fact::ToolCall { .. } => self.last_word_at = None,
            _ => {}
        }
    }

    fn queue(&mut self, fact: &Fact) {
        let Ok(line) = serde_json::to_vec(&cut(fact, TEXT_CAP)) else { return };
        let chatter = matches!(
            fact,
            Fact::Message { .. } | Fact::ToolCall { .. } | Fact::ToolResult { .. } | Fact::Unreadable { .. }
        );
        let cap = if chatter { FILE_CAP } else { LAST_CAP };
        if self.written + (self.pending.len() + line.len()) as u64 >= cap {
            self.counts.dropped += 1;
            return;
        }
        self.pending.extend_from_slice(&line);
        self.pending.push(b'\n');
    }

    fn write(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        let facts = self.pending.iter().filter(|b| **b == b'\n').count() as u64;
        if self.torn {
            self.pending.insert(0, b'\n');
        }
        match durable::append(&self.path, &self.pending) {
            Ok(()) => {
                self.written += self.pending.len() as u64;
                self.torn = false;
            }
            Err(e) => {
                self.counts.dropped += facts;
                self.torn = true;
                self.error.get_or_insert(e);
            }
        }
        self.pending.clear();
    }
}

fn parse(parser: &mut Option<Box<dyn Parser>>, piece: Piece<'_>, facts: &mut Vec<Fact>) {
    match piece {
        Piece::Line(line) => guarded(parser, facts, |parser, facts| parser.line(line, facts)),
        Piece::TooLong(bytes) => facts.push(Fact::Unreadable { bytes, reason: "line too long".into() }),
    }
}

/// A parser that panics must not take the worker down with the keeper: it is asked no more.
fn guarded(
    parser: &mut Option<Box<dyn Parser>>,
    facts: &mut Vec<Fact>,
    ask: impl FnOnce(&mut dyn Parser, &mut Vec<Fact>),
) {
    let Some(asked) = parser else { return };
    if catch_unwind(AssertUnwindSafe(|| ask(asked.as_mut(), facts))).is_err() {
        *parser = None;
        facts.push(Fact::Unreadable { bytes: 0, reason: "the parser failed and was given up".into() });
    }
}

/// Masks the texts of a fact. Ids stay whole: a session is continued by them.
fn masked(mut fact: Fact, mask: &dyn Fn(&str) -> String) -> Fact {
    each_text(&mut fact, &mut |text| *text = mask(text));
    fact
}

/// Cuts the texts of a fact at `cap` bytes.
fn cut(fact: &Fact, cap: usize) -> Fact {
    let mut fact = fact.clone();
    each_text(&mut fact, &mut |text| {
        if text.len() > cap {
            let end = (0..=cap).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
            text.truncate(end);
            text.push('…');
        }
    });
    fact
}

fn each_text(fact: &mut Fact, f: &mut dyn FnMut(&mut String)) {
    match fact {
        Fact::Message { text } => f(text),
        Fact::ToolCall { name, summary, .. } => {
            f(name);
            f(summary);
        }
        Fact::Denied { tool, reason } => {
            f(tool);
            f(reason);
        }
        Fact::Program { version, model } => version.iter_mut().chain(model).for_each(f),
        Fact::Error { message: text, .. } | Fact::Unreadable { reason: text, .. } => f(text),
        Fact::Final { text: Some(text), .. } => f(text),
        Fact::Final { text: None, .. }
        | Fact::Session { .. }
        | Fact::ToolResult { .. }
        | Fact::Usage { .. }
        | Fact::Limit { .. }
        | Fact::Retry { .. } => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Says what the line says: a fact in JSON, or panics.
    struct Echo;
    impl Parser for Echo {
        fn line(&mut self, line: &[u8], facts: &mut Vec<Fact>) {
            assert!(line != b"panic");
            facts.push(serde_json::from_slice(line).unwrap());
        }
        fn end(&mut self, facts: &mut Vec<Fact>) {
            facts.push(Fact::Message { text: "end".into() });
        }
    }

    fn listener(dir: &std::path::Path) -> Listener {
        let mask = Box::new(|text: &str| text.replace("hunter2", "***"));
        Listener::new(Box::new(Echo), mask, dir.join(FACTS), Some(Usage::default()))
    }

    fn written(dir: &std::path::Path) -> Vec<Fact> {
        let text = std::fs::read_to_string(dir.join("facts.jsonl")).unwrap();
        text.lines().map(|l| serde_json::from_str(l).unwrap()).collect()
    }

    #[test]
    fn facts_are_counted_masked_and_written_with_ids_whole() {
        let dir = tempfile::tempdir().unwrap();
        let mut l = listener(dir.path());
        l.hear(
            b"{\"fact\":\"session\",\"id\":\"hunter2\"}\n{\"fact\":\"message\",\"text\":\"pw hunter2\"}\n",
        );
        l.hear(b"{\"fact\":\"tool_call\",\"name\":\"Bash\",\"summary\":\"echo hunter2\"}\n");
        l.hear(b"{\"fact\":\"usage\",\"usage\":{\"input_tokens\":5},\"scope\":\"delta\"}\n");
        l.hear(b"{\"fact\":\"usage\",\"usage\":{\"input_tokens\":7},\"scope\":\"delta\"}\n");
        l.hear(b"{\"fact\":\"final\",\"ok\":true,\"text\":\"done hunter2\"}");
        assert!(l.last_word_at.is_none(), "the line is not whole yet");
        l.end();
        let said = Said::from(&l.summary);
        assert_eq!(said.session.as_deref(), Some("hunter2"));
        assert_eq!(l.usage().input_tokens, Some(12));
        assert_eq!(l.usage().tool_calls, Some(1));
        assert_eq!((said.final_ok, said.answer.as_deref()), (Some(true), Some("done ***")));
        assert_eq!(Said::from(&summary(dir.path()).unwrap()), said, "what was written says the same");
        assert!(l.last_word_at.is_none(), "a message came after it");
        let facts = written(dir.path());
        assert_eq!(facts.len(), 7);
        assert_eq!(facts[1], Fact::Message { text: "pw ***".into() });
        assert_eq!((l.counts.total, l.counts.messages, l.counts.dropped), (7, 2, 0));
    }

    #[test]
    fn a_parser_that_panics_is_given_up() {
        let dir = tempfile::tempdir().unwrap();
        let mut l = listener(dir.path());
        l.hear(b"panic\n{\"fact\":\"message\",\"text\":\"x\"}\n");
        l.end();
        assert_eq!((l.counts.total, l.counts.unreadable), (1, 1));
    }

    #[test]
    fn facts_that_cannot_be_written_are_counted() {
        let dir = tempfile::tempdir().unwrap();
        let mut l = listener(dir.path());
        l.path = dir.path().join("no/such/folder/facts.jsonl");
        l.hear(b"{\"fact\":\"message\",\"text\":\"x\"}\n");
        assert_eq!((l.counts.dropped, l.error.is_some()), (1, true));
        l.path = dir.path().join("facts.jsonl");
        l.hear(b"{\"fact\":\"message\",\"text\":\"y\"}\n");
        let text = std::fs::read_to_string(dir.path().join("facts.jsonl")).unwrap();
        assert_eq!(text.lines().filter(|l| !l.is_empty()).count(), 1);
    }

    #[test]
    fn chatter_does_not_crowd_out_the_last_word() {
        let dir = tempfile::tempdir().unwrap();
        let mut l = listener(dir.path());
        let message = format!("{{\"fact\":\"message\",\"text\":\"{}\"}}\n", "x".repeat(200_000));
        for _ in 0..FILE_CAP / 200_000 + 2 {
            l.hear(message.as_bytes());
        }
        l.hear(b"{\"fact\":\"final\",\"ok\":false}\n");
        assert!(l.counts.dropped > 0);
        assert!(std::fs::metadata(&l.path).unwrap().len() < FILE_CAP + 1000);
        assert_eq!(summary(dir.path()).unwrap().final_ok, Some(false));
    }

    #[test]
    fn a_text_is_cut_at_a_character() {
        let fact = cut(&Fact::Message { text: "aé".repeat(10) }, 5);
        assert_eq!(fact, Fact::Message { text: "aéa…".into() });
    }
}
