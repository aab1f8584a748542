//! The mock worker's language: one directive a line, all read before the first is carried out.

use crate::model::Usage;
use serde_json::Value;
use std::path::PathBuf;
use std::time::Duration;

/// The longest wait that a directive may name: a year, as for the limits of providers.
const MAX_SECONDS: f64 = 31_536_000.0;

/// What one line of an objective asks for.
#[derive(Debug, Clone, PartialEq)]
pub enum Directive {
    /// Makes a file of exactly this text, and the folders above it.
    Write { path: PathBuf, text: String },
    /// Adds this text to the end of a file.
    Append { path: PathBuf, text: String },
    /// Removes a file, or a folder with all in it.
    Delete { path: PathBuf },
    /// Makes a folder, and those above it.
    Mkdir { path: PathBuf },
    /// Waits.
    Sleep(Duration),
    /// Writes a line to standard output as it is: not an event.
    Print(String),
    /// Writes a line to standard error.
    Stderr(String),
    /// Text of the assistant.
    Say(String),
    /// A call of a tool, and its success.
    Tool { name: String, summary: String },
    /// Usage since the last report.
    Usage(Usage),
    /// The id of the session.
    Session(String),
    /// Commits all there is in the workspace.
    Commit(String),
    /// The report of the last word.
    Report(Value),
    /// Fails as a program does that is asked to come back later.
    RateLimit(Duration),
    /// Fails as a program does whose quota is used up.
    Quota(Duration),
    /// Fails as a program does that is not signed in.
    Auth,
    /// Fails with these words.
    Fail(String),
    /// Ends at once with this code and without a last word, as a program does that breaks down.
    Exit(u8),
    /// Never ends.
    Hang,
}

/// A directive and where it stands.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// The number of the line, from 1.
    pub number: usize,
    /// Only in this attempt.
    pub attempt: Option<u32>,
    /// What to do.
    pub directive: Directive,
}

/// What is wrong with a line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct LineError {
    /// The number of the line, from 1.
    pub line: usize,
    /// What is wrong, and what was expected.
    pub message: String,
}

/// The words that begin a line.
const WORDS: &[&str] = &[
    "write",
    "append",
    "delete",
    "mkdir",
    "sleep",
    "print",
    "stderr",
    "say",
    "tool",
    "usage",
    "session",
    "rate_limit",
    "quota",
    "auth",
    "commit",
    "fail",
    "exit",
    "report",
    "hang",
    "ask",
    "on",
];

/// Reads an objective. Blank lines and lines that begin with `#` are passed over.
pub fn parse(objective: &str) -> Result<Vec<Line>, LineError> {
    let mut lines = Vec::new();
    for (k, text) in objective.lines().enumerate() {
        let text = text.trim();
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        let number = k + 1;
        let (attempt, directive) = line(text).map_err(|message| LineError { line: number, message })?;
        lines.push(Line { number, attempt, directive });
    }
    Ok(lines)
}

fn line(text: &str) -> Result<(Option<u32>, Directive), String> {
    let (word, rest) = split(text);
    if word != "on" {
        return Ok((None, directive(word, rest)?));
    }
    let (number, rest) = split(rest);
    let attempt = number.parse().ok().filter(|n| *n > 0);
    let attempt = attempt
        .ok_or_else(|| format!("`on` takes the number of an attempt and a directive, found {number:?}"))?;
    let (word, rest) = split(rest);
    if word == "on" {
        return Err("`on` takes a directive, not another `on`".into());
    }
    Ok((Some(attempt), directive(word, rest)?))
}

fn directive(word: &str, rest: &str) -> Result<Directive, String> {
    let none = |made: Directive| {
        if rest.is_empty() { Ok(made) } else { Err(format!("`{word}` takes nothing, found {rest:?}")) }
    };
    let some = |what: &str| {
        if rest.is_empty() { Err(format!("`{word}` takes {what}")) } else { unescape(rest) }
    };
    Ok(match word {
        "write" => path_and_text(word, rest).map(|(path, text)| Directive::Write { path, text })?,
        "append" => path_and_text(word, rest).map(|(path, text)| Directive::Append { path, text })?,
        "delete" => Directive::Delete { path: only_path(word, rest)? },
        "mkdir" => Directive::Mkdir { path: only_path(word, rest)? },
        "sleep" => Directive::Sleep(seconds(word, rest)?),
        "print" => Directive::Print(unescape(rest)?),
        "stderr" => Directive::Stderr(unescape(rest)?),
        "say" => Directive::Say(some("a text")?),
        "tool" => {
            let (name, summary) = first_word(word, rest, "the name of a tool")?;
            Directive::Tool { name, summary: unescape(summary)? }
        }
        "usage" => Directive::Usage(usage(rest)?),
        "session" => Directive::Session(some("an id")?),
        "rate_limit" => Directive::RateLimit(seconds(word, rest)?),
        "quota" => Directive::Quota(seconds(word, rest)?),
        "auth" => none(Directive::Auth)?,
        "commit" => Directive::Commit(some("a message")?),
        "fail" => Directive::Fail(some("a message")?),
        "exit" => Directive::Exit(
            rest.parse().map_err(|_| format!("`exit` takes a code from 0 to 255, found {rest:?}"))?,
        ),
        "report" => {
            let value: Value = serde_json::from_str(rest)
                .map_err(|e| format!("`report` takes a JSON object on the same line: {e}"))?;
            if !value.is_object() {
                return Err("`report` takes a JSON object".into());
            }
            Directive::Report(value)
        }
        "hang" => none(Directive::Hang)?,
        "ask" => return Err("`ask` cannot be carried out yet: a worker has no way to ask a question".into()),
        _ => {
            let hint = match crate::model::input::nearest(word, WORDS) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("known are {}", WORDS.join(", ")),
            };
            return Err(format!("there is no directive `{word}`: {hint}"));
        }
    })
}

/// Splits off the first word.
fn split(text: &str) -> (&str, &str) {
    let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    (word, rest.trim_start())
}

/// Splits off the first word, which may stand in quotation marks.
fn first_word<'a>(word: &str, rest: &'a str, what: &str) -> Result<(String, &'a str), String> {
    let Some(quoted) = rest.strip_prefix('"') else {
        let (first, rest) = split(rest);
        return if first.is_empty() {
            Err(format!("`{word}` takes {what}"))
        } else {
            Ok((unescape(first)?, rest))
        };
    };
    let mut escaped = false;
    for (at, c) in quoted.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' if at > 0 => return Ok((unescape(&quoted[..at])?, quoted[at + 1..].trim_start())),
            _ => {}
        }
    }
    Err(format!("`{word}` takes {what}; a closing quotation mark is missing"))
}

fn path_and_text(word: &str, rest: &str) -> Result<(PathBuf, String), String> {
    let (path, text) = first_word(word, rest, "a path and a text")?;
    Ok((path.into(), unescape(text)?))
}

fn only_path(word: &str, rest: &str) -> Result<PathBuf, String> {
    match first_word(word, rest, "a path")? {
        (path, "") => Ok(path.into()),
        (_, more) => Err(format!(
            "`{word}` takes one path (in quotation marks if it has spaces), found {more:?} after it"
        )),
    }
}

/// Puts in what `\n`, `\t`, `\\` and `\"` stand for.
fn unescape(text: &str) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        out.push(match chars.next() {
            Some('n') => '\n',
            Some('t') => '\t',
            Some(c @ ('\\' | '"')) => c,
            Some(c) => return Err(format!("`\\{c}` stands for nothing: known are \\n, \\t, \\\\ and \\\"")),
            None => return Err("a `\\` stands at the end of the line: write `\\\\` for one".into()),
        });
    }
    Ok(out)
}

fn seconds(word: &str, rest: &str) -> Result<Duration, String> {
    let number: Option<f64> = rest.parse().ok().filter(|n| (0.0..=MAX_SECONDS).contains(n));
    number
        .map(Duration::from_secs_f64)
        .ok_or_else(|| format!("`{word}` takes seconds, such as 2 or 0.5, found {rest:?}"))
}

fn usage(rest: &str) -> Result<Usage, String> {
    let mut usage = Usage::default();
    let expected =
        "`usage` takes figures such as input=1200 output=300 cached=0 tool_calls=4 turns=2 cost=0.05";
    if rest.is_empty() {
        return Err(expected.into());
    }
    for figure in rest.split_whitespace() {
        let wrong = || format!("{expected}, found {figure:?}");
        let (name, number) = figure.split_once('=').ok_or_else(wrong)?;
        if name == "cost" {
            let cost: Option<f64> = number.parse().ok().filter(|n: &f64| n.is_finite() && *n >= 0.0);
            usage.cost_usd = Some(cost.ok_or_else(wrong)?);
            continue;
        }
        let field = match name {
            "input" => &mut usage.input_tokens,
            "output" => &mut usage.output_tokens,
            "cached" => &mut usage.cached_tokens,
            "tool_calls" => &mut usage.tool_calls,
            "turns" => &mut usage.turns,
            _ => return Err(wrong()),
        };
        *field = Some(number.parse().map_err(|_| wrong())?);
    }
    Ok(usage)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> Directive {
        parse(text).unwrap().remove(0).directive
    }

    fn refused(text: &str) -> String {
        parse(text).unwrap_err().to_string()
    }

    #[test]
    fn texts_and_paths_have_escapes() {
        assert_eq!(
            one(r#"write "a b/\"c\".txt" one\n\ttwo\\n"#),
            Directive::Write { path: r#"a b/"c".txt"#.into(), text: "one\n\ttwo\\n".into() }
        );
        assert_eq!(one("write empty"), Directive::Write { path: "empty".into(), text: String::new() });
        assert_eq!(one("  say  \"as it is\"  "), Directive::Say("\"as it is\"".into()));
        assert_eq!(one("print"), Directive::Print(String::new()));
        assert_eq!(one("delete \"a b\""), Directive::Delete { path: "a b".into() });
    }

    #[test]
    fn lines_keep_their_numbers() {
        let lines = parse("# a remark\n\nauth\r\non 2 hang\n").unwrap();
        assert_eq!(
            lines,
            [
                Line { number: 3, attempt: None, directive: Directive::Auth },
                Line { number: 4, attempt: Some(2), directive: Directive::Hang },
            ]
        );
    }

    #[test]
    fn figures_are_read_and_nothing_is_made_up() {
        let Directive::Usage(usage) = one("usage input=12 cost=0.5") else { panic!() };
        let want = Usage { input_tokens: Some(12), cost_usd: Some(0.5), ..Usage::default() };
        assert_eq!(usage, want);
        assert_eq!(one("sleep 0.25"), Directive::Sleep(Duration::from_millis(250)));
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        assert_eq!(
            refused("auth\nwriet a b"),
            "line 2: there is no directive `wriet`: did you mean `write`?"
        );
        assert!(refused("frobnicate").contains("known are write, append"));
        for (text, what) in [
            ("write", "a path and a text"),
            ("write \"a b", "quotation mark"),
            ("write a \\x", "stands for nothing"),
            ("say \\", "end of the line"),
            ("delete a b", "one path"),
            ("sleep -1", "seconds"),
            ("sleep nan", "seconds"),
            ("quota soon", "seconds"),
            ("usage", "figures"),
            ("usage input=-1", "figures"),
            ("usage money=1", "figures"),
            ("usage cost=inf", "figures"),
            ("exit 256", "0 to 255"),
            ("report [1]", "JSON object"),
            ("report {", "JSON object"),
            ("auth now", "takes nothing"),
            ("on 0 hang", "number of an attempt"),
            ("on 1 on 2 hang", "not another"),
            ("ask what?", "cannot be carried out yet"),
        ] {
            let error = refused(text);
            assert!(error.starts_with("line 1: ") && error.contains(what), "{text}: {error}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_objective_panics(text in "(?s).{0,200}") {
            let _ = parse(&text);
            for word in WORDS {
                let _ = parse(&format!("{word} {text}"));
            }
        }
    }
}
