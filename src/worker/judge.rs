//! The verdict on a finished run: the exit as observed and what the output said, never one alone.

use super::classify::{self, compile, of_status};
use super::json::{MAX_NOTE, clip};
use super::summary::Summary;
use crate::model::{ErrorClass, LimitKind};
use chrono::{DateTime, Utc};

/// A finished run, as it was observed.
///
/// A program that was stopped because it lingered after its last word is to be given here with the exit
/// code 0 and no signal, if that is to count as an end of its own.
#[derive(Debug, Clone, Copy)]
pub struct Observed<'a> {
    /// The exit code, if it exited.
    pub exit_code: Option<i32>,
    /// The signal, if one ended it.
    pub signal: Option<i32>,
    /// The end of what it wrote to its standard error.
    pub stderr_tail: &'a str,
    /// What its output said.
    pub facts: &'a Summary,
}

/// Whether a run did its work.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// It did. Tools that were refused on the way are in the summary.
    Ok,
    /// It did not.
    Failed {
        /// Who should act.
        class: ErrorClass,
        /// Why, in the program's words where it had any.
        message: String,
        /// When the limit lifts that it ran into, if that was said.
        until: Option<DateTime<Utc>>,
    },
}

/// What is known of a format besides its events.
struct Format {
    name: &'static str,
    /// Whether the output says at its end whether the run was a success.
    last_word: bool,
    /// What exit codes mean.
    codes: &'static [(i32, ErrorClass)],
    /// Whether an exit code may be an HTTP status modulo 256.
    status_codes: bool,
    /// Whether it stops, with the code 0, when it refused its model a tool.
    refusal_ends: bool,
    /// What an end with the code 0 and without a last word means.
    silent: ErrorClass,
    /// What words on its standard error mean, looked for only after a failure.
    stderr: &'static [(&'static str, ErrorClass)],
}

const HELP: (&str, ErrorClass) = (r"^ +-h, --help\b|\[boolean\] \[default: false\]\s*\z", ErrorClass::Usage);

const FORMATS: &[Format] = &[
    Format {
        name: "claude",
        last_word: true,
        codes: &[],
        status_codes: false,
        refusal_ends: false,
        silent: ErrorClass::Other,
        stderr: &[
            (
                r"error: unknown option|requires --verbose|input must be provided|cannot be used with root|is already in use",
                ErrorClass::Usage,
            ),
            (r"no conversation found", ErrorClass::SessionNotFound),
        ],
    },
    Format {
        name: "codex",
        last_word: true,
        codes: &[(2, ErrorClass::Usage)],
        status_codes: false,
        refusal_ends: false,
        silent: ErrorClass::Other,
        stderr: &[
            (
                r"error: unexpected argument|error loading config|not inside a trusted directory|required mcp servers failed",
                ErrorClass::Usage,
            ),
            (r"no rollout found", ErrorClass::SessionNotFound),
        ],
    },
    Format {
        name: "opencode",
        last_word: true,
        codes: &[],
        status_codes: false,
        refusal_ends: true,
        silent: ErrorClass::Other,
        stderr: &[
            HELP,
            (r"you must provide a message", ErrorClass::Usage),
            (r"session not found", ErrorClass::SessionNotFound),
            (r"permission requested: [^\n]*; auto-rejecting", ErrorClass::Permission),
        ],
    },
    Format {
        name: "gemini",
        last_word: true,
        codes: &[
            (41, ErrorClass::Auth),
            (52, ErrorClass::Usage),
            (53, ErrorClass::OwnLimit),
            (55, ErrorClass::Usage),
            (130, ErrorClass::Interrupted),
        ],
        status_codes: true,
        refusal_ends: false,
        silent: ErrorClass::Interrupted,
        stderr: &[
            HELP,
            (r"no previous sessions|invalid session identifier", ErrorClass::SessionNotFound),
            (r"already exists|no input provided", ErrorClass::Usage),
        ],
    },
    Format {
        name: "qwen",
        last_word: true,
        codes: &[(53, ErrorClass::OwnLimit), (55, ErrorClass::OwnLimit), (130, ErrorClass::Interrupted)],
        status_codes: false,
        refusal_ends: false,
        silent: ErrorClass::Other,
        stderr: &[
            HELP,
            (r"no saved session found", ErrorClass::SessionNotFound),
            (r"session id [^\n]* already exists", ErrorClass::Usage),
            (r"^operation cancelled\.$", ErrorClass::Interrupted),
        ],
    },
    Format {
        name: "copilot",
        last_word: true,
        codes: &[],
        status_codes: false,
        refusal_ends: false,
        silent: ErrorClass::Other,
        stderr: &[(r"error: unknown option", ErrorClass::Usage)],
    },
    Format {
        name: "workspool",
        last_word: true,
        codes: &[(2, ErrorClass::Usage)],
        status_codes: false,
        refusal_ends: false,
        silent: ErrorClass::Other,
        stderr: &[],
    },
    Format {
        name: "aider",
        last_word: false,
        codes: &[],
        status_codes: false,
        refusal_ends: false,
        silent: ErrorClass::Other,
        stderr: &[(r"aider: error: ", ErrorClass::Usage)],
    },
    TEXT,
];

/// Plain text, which is also what an unknown format is taken for.
const TEXT: Format = Format {
    name: "text",
    last_word: false,
    codes: &[],
    status_codes: false,
    refusal_ends: false,
    silent: ErrorClass::Other,
    stderr: &[],
};

/// HTTP statuses that providers answer with.
const STATUSES: &[u16] = &[400, 401, 402, 403, 404, 408, 409, 413, 422, 429, 500, 502, 503, 504, 529];

/// Returns the verdict on a run that printed a format.
///
/// It is a success if it exited with 0 and, where the format has a last word, that was one of success.
/// For text the exit code is all there is.
pub fn judge(parser: &str, observed: &Observed<'_>) -> Verdict {
    let format = FORMATS.iter().find(|format| format.name == parser).unwrap_or(&TEXT);
    let facts = observed.facts;
    let done = match facts.final_ok {
        Some(ok) => ok,
        None => !format.last_word,
    };
    if done && observed.exit_code == Some(0) && observed.signal.is_none() {
        return Verdict::Ok;
    }
    let (class, message) = cause(format, observed);
    let limit = facts.limit.filter(|_| {
        matches!(
            class,
            ErrorClass::RateLimited | ErrorClass::Quota | ErrorClass::Other | ErrorClass::Interrupted
        )
    });
    let (class, until) = match limit {
        Some((LimitKind::Quota, until)) => (ErrorClass::Quota, until),
        Some((LimitKind::Rate, until)) if class != ErrorClass::Quota => (ErrorClass::RateLimited, until),
        _ => (class, None),
    };
    let until = until.or_else(|| match class {
        ErrorClass::RateLimited | ErrorClass::Quota => classify::lifts(&message, Utc::now()),
        _ => None,
    });
    Verdict::Failed { class, message: clip(&message, MAX_NOTE).to_owned(), until }
}

/// Returns why a run failed, by the first of the witnesses that knows.
fn cause(format: &Format, o: &Observed<'_>) -> (ErrorClass, String) {
    let facts = o.facts;
    let stderr = o.stderr_tail;
    let by_code = o.exit_code.and_then(|code| class_of_code(format, code));
    let by_stderr = || {
        compile(format.stderr)
            .iter()
            .find(|(pattern, _)| stderr.split('\n').any(|line| pattern.is_match(line.as_bytes())))
            .map(|(_, class)| *class)
    };
    if let Some((class, message)) = facts.errors.last() {
        // Where the words tell nothing, the exit code may: Gemini's is the HTTP status.
        let class = match (class, by_code) {
            (ErrorClass::Other, Some(class)) => class,
            (class, _) => *class,
        };
        return (class, message.clone());
    }
    let killed = o.signal.is_some() || matches!(o.exit_code, Some(129..=131 | 137 | 143));
    if killed && !matches!(facts.final_ok, Some(false)) {
        return stopped(o);
    }
    let last_line = || {
        let line = stderr.lines().rev().map(str::trim).find(|line| !line.is_empty());
        line.map(str::to_owned)
    };
    if let Some(class) = by_stderr() {
        return (class, last_line().unwrap_or_default());
    }
    if let Some(class) = by_code {
        return (class, last_line().unwrap_or_else(|| ended(o)));
    }
    if o.exit_code == Some(0) {
        if let Some((tool, reason)) = facts.denials.last().filter(|_| format.refusal_ends) {
            return (ErrorClass::Permission, format!("stopped after {tool} was refused: {reason}"));
        }
        return (format.silent, "exited with 0, but without its last word".to_owned());
    }
    // What a program without events says of a provider stands in its text.
    let said = if format.last_word { None } else { facts.last_message.as_deref() };
    for text in [Some(stderr), said].into_iter().flatten() {
        let class = classify::of(None, text);
        if class != ErrorClass::Other {
            let line = text.lines().rev().find(|line| classify::of(None, line) == class);
            return (class, line.unwrap_or_default().trim().to_owned());
        }
    }
    (ErrorClass::Other, last_line().unwrap_or_else(|| ended(o)))
}

/// Returns what a stopped program had been at.
///
/// One that was trying a failed request again, or had nothing from its model yet, was held up by its
/// provider, if there is a trace of that.
fn stopped(o: &Observed<'_>) -> (ErrorClass, String) {
    let facts = o.facts;
    let untouched = facts.last_message.is_none() && facts.tool_calls == 0;
    let trace = match facts.retrying {
        Some(Some(status)) => of_status(status),
        Some(None) | None if facts.retrying.is_some() || untouched => {
            match classify::of(None, o.stderr_tail) {
                class @ (ErrorClass::RateLimited
                | ErrorClass::Quota
                | ErrorClass::Provider
                | ErrorClass::Network
                | ErrorClass::Auth) => class,
                // A request that failed without a status never got an answer.
                _ if facts.retrying.is_some() => ErrorClass::Network,
                _ => ErrorClass::Interrupted,
            }
        }
        _ => ErrorClass::Interrupted,
    };
    match trace {
        ErrorClass::Interrupted => (trace, ended(o)),
        _ => (trace, format!("{}, while it was trying a failed request again", ended(o))),
    }
}

fn class_of_code(format: &Format, code: i32) -> Option<ErrorClass> {
    let listed = format.codes.iter().find(|(known, _)| *known == code).map(|(_, class)| *class);
    listed.or_else(|| {
        let status = STATUSES.iter().find(|status| i32::from(**status & 255) == code)?;
        format.status_codes.then(|| of_status(*status))
    })
}

/// Says how a run ended.
fn ended(o: &Observed<'_>) -> String {
    match (o.signal, o.exit_code) {
        (Some(signal), _) => format!("ended by signal {signal}"),
        (None, Some(code)) => format!("exited with {code}"),
        (None, None) => "ended in an unknown way".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Fact;
    use crate::worker::PARSERS;

    fn class(parser: &str, code: i32, stderr_tail: &str, facts: &[Fact]) -> Option<ErrorClass> {
        let facts = Summary::of(facts);
        let observed = Observed { exit_code: Some(code), signal: None, stderr_tail, facts: &facts };
        match judge(parser, &observed) {
            Verdict::Ok => None,
            Verdict::Failed { class, .. } => Some(class),
        }
    }

    #[test]
    fn each_parser_has_its_table() {
        let mut names: Vec<&str> = FORMATS.iter().map(|format| format.name).collect();
        let mut parsers = PARSERS.to_vec();
        names.sort();
        parsers.sort();
        assert_eq!(names, parsers);
        for format in FORMATS {
            assert_eq!(compile(format.stderr).len(), format.stderr.len(), "{}", format.name);
        }
    }

    #[test]
    fn neither_the_code_nor_the_last_word_is_enough() {
        let done = [Fact::Final { ok: true, text: None }];
        assert_eq!(class("claude", 0, "", &done), None);
        assert_eq!(class("claude", 1, "", &done), Some(ErrorClass::Other));
        assert_eq!(class("claude", 0, "", &[]), Some(ErrorClass::Other));
        assert_eq!(class("claude", 0, "", &[Fact::Final { ok: false, text: None }]), Some(ErrorClass::Other));
        assert_eq!(class("text", 0, "error: 429", &[]), None);
        assert_eq!(class("no such format", 0, "", &[]), None);
        assert_eq!(class("aider", 0, "", &[Fact::Final { ok: false, text: None }]), Some(ErrorClass::Other));
    }

    #[test]
    fn a_limit_that_was_passed_does_not_explain_a_later_failure() {
        let until = DateTime::from_timestamp(1_788_000_000, 0);
        let limit = Fact::Limit { kind: LimitKind::Quota, until, rejected: true };
        assert_eq!(class("claude", 1, "", std::slice::from_ref(&limit)), Some(ErrorClass::Quota));
        let went_on = [limit.clone(), Fact::Message { text: "on with it".into() }];
        assert_eq!(class("claude", 1, "", &went_on), Some(ErrorClass::Other));
        let facts = Summary::of(&[limit]);
        let observed = Observed { exit_code: None, signal: Some(15), stderr_tail: "", facts: &facts };
        let verdict = judge("claude", &observed);
        assert!(matches!(verdict, Verdict::Failed { class: ErrorClass::Quota, until: u, .. } if u == until));
    }

    #[test]
    fn geminis_exit_code_is_a_status() {
        for (code, want) in
            [(144, ErrorClass::InvalidRequest), (145, ErrorClass::Auth), (173, ErrorClass::RateLimited)]
        {
            assert_eq!(class("gemini", code, "", &[]), Some(want));
        }
        assert_eq!(class("codex", 145, "", &[]), Some(ErrorClass::Other));
    }
}
