//! Replays recorded runs of the real programs and compares each with what a person read in it.
//!
//! `samples/<program>/<case>.jsonl` is what the program printed, `<case>.meta.json` how it was called and how
//! it ended, `samples/<program>.expect.json` what the run amounts to, written from reading the
//! recordings and not from the parsers. A `note` marks a case whose meaning was in doubt.

#![allow(clippy::unwrap_used, reason = "a test")]

use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use workspool::model::{Fact, Usage};
use workspool::worker::{Observed, Summary, Verdict, judge, parser};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Expected {
    /// The format, if it is not the one of the program's name.
    parser: Option<String>,
    /// `ok`, or the class of the failure.
    class: String,
    session: Option<String>,
    model: Option<String>,
    version: Option<String>,
    text: Option<String>,
    #[serde(default)]
    tool_calls: u64,
    #[serde(default)]
    usage: Usage,
    #[serde(default)]
    session_usage: Usage,
    #[serde(default)]
    denied: Vec<String>,
    #[serde(default)]
    #[allow(dead_code, reason = "for people")]
    note: String,
}

#[derive(Deserialize)]
struct Meta {
    rc: i32,
    stderr_tail: String,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/samples")
}

fn facts_of(name: &str, output: &[u8]) -> Vec<Fact> {
    let mut facts = Vec::new();
    let mut parser = parser(name).unwrap();
    for line in output.split(|byte| *byte == b'\n') {
        parser.line(line, &mut facts);
    }
    parser.end(&mut facts);
    facts
}

/// Makes figures comparable: sums of floats differ in their last bits.
fn figures(usage: &Usage) -> String {
    let cost = usage.cost_usd.map(|cost| format!("{cost:.9}"));
    format!("{:?} cost {cost:?}", Usage { cost_usd: None, ..usage.clone() })
}

fn replay(program: &str) {
    let expected: BTreeMap<String, Expected> =
        serde_json::from_slice(&std::fs::read(folder().join(format!("{program}.expect.json"))).unwrap())
            .unwrap();
    let cases: BTreeSet<String> = std::fs::read_dir(folder().join(program))
        .unwrap()
        .filter_map(|entry| {
            entry.unwrap().file_name().to_str()?.strip_suffix(".meta.json").map(str::to_owned)
        })
        .collect();
    assert_eq!(
        cases,
        expected.keys().cloned().collect(),
        "each sample is expected, and each expectation has one"
    );

    let mut wrong = Vec::new();
    for (case, want) in &expected {
        let read =
            |suffix: &str| std::fs::read(folder().join(program).join(format!("{case}.{suffix}"))).unwrap();
        let meta: Meta = serde_json::from_slice(&read("meta.json")).unwrap();
        let format = want.parser.as_deref().unwrap_or(program);
        let facts = facts_of(format, &read("jsonl"));
        let summary = Summary::of(&facts);
        let observed = Observed {
            exit_code: (meta.rc >= 0).then_some(meta.rc),
            signal: (meta.rc < 0).then_some(-meta.rc),
            stderr_tail: &meta.stderr_tail,
            facts: &summary,
        };
        let (class, message) = match judge(format, &observed) {
            Verdict::Ok => ("ok".to_owned(), None),
            Verdict::Failed { class, message, .. } => {
                (serde_json::to_value(class).unwrap().as_str().unwrap().to_owned(), Some(message))
            }
        };
        let mut differ = |what: &str, got: String, want: String| {
            if got != want {
                wrong.push(format!("{case}: {what} is {got}, not {want} ({message:?})"));
            }
        };
        differ("class", class, want.class.clone());
        let text = if format == "text" { &summary.last_message } else { &summary.final_text };
        differ("text", format!("{text:?}"), format!("{:?}", want.text));
        differ("session", format!("{:?}", summary.session), format!("{:?}", want.session));
        differ("model", format!("{:?}", summary.model), format!("{:?}", want.model));
        differ("version", format!("{:?}", summary.version), format!("{:?}", want.version));
        differ("calls", summary.tool_calls.to_string(), want.tool_calls.to_string());
        differ("usage", figures(&summary.usage), figures(&want.usage));
        differ("session's usage", figures(&summary.session_usage), figures(&want.session_usage));
        let denied: Vec<&String> = summary.denials.iter().map(|(tool, _)| tool).collect();
        differ("denied", format!("{denied:?}"), format!("{:?}", want.denied));
        differ("unreadable", summary.unreadable.to_string(), "0".to_owned());
        differ(
            "has a message",
            message.as_ref().is_none_or(|m| !m.is_empty()).to_string(),
            "true".to_owned(),
        );
    }
    assert!(wrong.is_empty(), "{} of {program}:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn claude() {
    replay("claude");
}

#[test]
fn codex() {
    replay("codex");
}

#[test]
fn opencode() {
    replay("opencode");
}

#[test]
fn gemini() {
    replay("gemini");
}

#[test]
fn qwen() {
    replay("qwen");
}

/// A success is one only with its end: no recording that is cut short before its last line passes.
#[test]
fn no_run_that_is_cut_short_is_a_success() {
    for program in ["claude", "codex", "opencode", "gemini", "qwen"] {
        let output = std::fs::read(folder().join(program).join("write.jsonl")).unwrap();
        let lines: Vec<&[u8]> = output.trim_ascii_end().split(|byte| *byte == b'\n').collect();
        for kept in 0..=lines.len() {
            let summary = Summary::of(&facts_of(program, &lines[..kept].join(&b'\n')));
            let observed = Observed { exit_code: Some(0), signal: None, stderr_tail: "", facts: &summary };
            let ok = judge(program, &observed) == Verdict::Ok;
            assert_eq!(ok, kept == lines.len(), "{program} with {kept} of {} lines", lines.len());
        }
        for cut in (0..output.len().saturating_sub(2)).step_by(97) {
            let summary = Summary::of(&facts_of(program, &output[..cut]));
            let observed = Observed { exit_code: Some(0), signal: None, stderr_tail: "", facts: &summary };
            assert_ne!(judge(program, &observed), Verdict::Ok, "{program} cut at {cut}");
        }
    }
}

/// What a session used before is taken off what it has used since.
#[test]
fn a_continued_session_counts_only_its_own_usage() {
    for (program, first, second) in [
        ("claude", "sessid", "resume"),
        ("codex", "r1", "resume"),
        ("qwen", "sessid", "resume"),
        ("opencode", "r1", "resume"),
        ("gemini", "sessid", "resume"),
    ] {
        let [first, second] = [first, second].map(|case| {
            let output = std::fs::read(folder().join(program).join(format!("{case}.jsonl"))).unwrap();
            Summary::of(&facts_of(program, &output))
        });
        let fresh = first.usage_since(Some(&Usage::default()));
        let again = second.usage_since(Some(&first.session_usage));
        assert_eq!(figures(&fresh), figures(&again), "{program}");
        let tokens = [fresh.input_tokens, fresh.output_tokens, fresh.cached_tokens];
        // Gemini counts its thoughts as well.
        let written = if program == "gemini" { 104 } else { 84 };
        assert_eq!(tokens, [Some(2_400), Some(written), Some(600)], "{program}");
    }
}

/// The recordings name no machine: no folder of a person's, no host but the local one.
#[test]
fn the_recordings_name_no_machine() {
    for program in ["claude", "codex", "opencode", "gemini", "qwen"] {
        for entry in std::fs::read_dir(folder().join(program)).unwrap() {
            let path = entry.unwrap().path();
            let text = String::from_utf8_lossy(&std::fs::read(&path).unwrap()).into_owned();
            for folder in ["/home/", "/root/", "/work/", "/tmp/", "/Users/"] {
                assert!(!text.contains(folder), "{} names {folder}", path.display());
            }
            for (at, _) in text.match_indices("://") {
                let host = &text[at + 3..text.len().min(at + 20)];
                let known = ["127.0.0.1", "example.invalid"].iter().any(|known| host.starts_with(known));
                // An opened file of a stack trace has no host.
                assert!(known || text[..at].ends_with("file"), "{} names {host}", path.display());
            }
        }
    }
}
