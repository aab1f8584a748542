//! The report that a worker's model writes at the end of its output, since our prompt asks for one.

use super::json::{clip, tail};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// How much of the end of a text is searched.
const MAX_SEARCHED: usize = 1 << 20;
/// The longest summary or commit message.
const MAX_TEXT: usize = 8 << 10;
/// The longest entry of a list, and the most entries.
const MAX_ITEM: usize = 1 << 10;
const MAX_ITEMS: usize = 50;
/// The name of the block.
const NAME: &str = "workspool-report";
/// A line that gives only a commit message.
const COMMIT_LINE: &str = "suggested_commit_message:";

/// What a worker's model reports about its work. All of it is a claim.
///
/// It is written as a fenced block named `workspool-report`, or after a line `workspool-report:`, as JSON:
///
/// ````text
/// ```workspool-report
/// {"summary": "…", "commit_message": "…", "tests_run": ["…"], "open_questions": ["…"], "warnings": []}
/// ```
/// ````
///
/// A plain line `suggested_commit_message: …` is read too, if the block has no commit message.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Report {
    /// What was done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// A message for the commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit_message: Option<String>,
    /// The tests that were run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tests_run: Vec<String>,
    /// What a person should decide.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub open_questions: Vec<String>,
    /// What a person should know, and what was wrong with the report itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

impl Report {
    /// Finds the report in a worker's last message or output; the last one counts.
    ///
    /// A report whose JSON is broken is a report with nothing but a warning.
    pub fn find(text: &str) -> Option<Report> {
        let text = tail(text, MAX_SEARCHED);
        let (mut block, mut commit) = (None, None);
        let mut start = 0;
        for line in text.split_inclusive('\n') {
            let end = start + line.len();
            let trimmed = line.trim();
            if is_fence(trimmed) {
                block = Some(end);
            } else if let Some(at) = after_label(line) {
                block = Some(start + at);
            } else if let Some(message) = trimmed.strip_prefix(COMMIT_LINE) {
                commit = Some(clean(message.trim().trim_matches(['"', '`']), MAX_TEXT));
            }
            start = end;
        }
        let commit = commit.filter(|message| !message.is_empty());
        let mut report = match block {
            Some(at) => Report::read(&text[at..]),
            None => Report { commit_message: Some(commit.clone()?), ..Report::default() },
        };
        if report.commit_message.is_none() {
            report.commit_message = commit;
        }
        Some(report)
    }

    /// Reads the JSON at the beginning of a text; what comes after it is ignored.
    fn read(text: &str) -> Report {
        let json = inner(text);
        let mut values = serde_json::Deserializer::from_str(json).into_iter::<Value>();
        match values.next() {
            Some(Ok(Value::Object(object))) => Report::of(object),
            Some(Ok(_)) => Report::warning("the report is no JSON object"),
            Some(Err(error)) => Report::warning(&format!("the report is no valid JSON: {error}")),
            None => Report::warning("the report is empty"),
        }
    }

    fn of(object: serde_json::Map<String, Value>) -> Report {
        let mut report = Report::default();
        let mut odd = Vec::new();
        for (key, value) in object {
            if value.is_null() {
                continue;
            }
            match key.as_str() {
                "summary" => report.summary = text_of(value),
                "commit_message" | "suggested_commit_message" => report.commit_message = text_of(value),
                "tests_run" => report.tests_run = list_of(value),
                "open_questions" => report.open_questions = list_of(value),
                "warnings" => report.warnings = list_of(value),
                // A later version of the prompt may ask for more.
                _ => odd.push(clean(&key, 100)),
            }
        }
        if !odd.is_empty() && report.warnings.len() < MAX_ITEMS {
            let names = clean(&odd.join(", "), MAX_ITEM);
            report.warnings.push(format!("the report has fields that are not known: {names}"));
        }
        report
    }

    fn warning(warning: &str) -> Report {
        Report { warnings: vec![clean(warning, MAX_ITEM)], ..Report::default() }
    }
}

/// Returns whether a line opens a fenced report.
fn is_fence(line: &str) -> bool {
    let info = line.trim_start_matches('`');
    line.len() - info.len() >= 3 && info.trim() == NAME
}

/// Returns where the JSON may begin in a line `workspool-report: …`.
fn after_label(line: &str) -> Option<usize> {
    let rest = line.trim_start_matches([' ', '\t', '*', '#']).strip_prefix(NAME)?;
    let rest = rest.trim_start_matches('*').strip_prefix(':')?;
    Some(line.len() - rest.len())
}

/// Skips what a model may put around the JSON: blank lines, marks of emphasis, a fence of its own.
fn inner(text: &str) -> &str {
    let text = text.trim_start_matches([' ', '\t', '\r', '\n', '*']);
    if !text.starts_with("```") {
        return text;
    }
    let info = text.trim_start_matches('`');
    match info.split_once('\n') {
        // A fence that says nothing or `json` is the beginning of a block, else the end of an empty one.
        Some((name, rest)) if matches!(name.trim(), "" | "json" | "JSON") => rest,
        _ => "",
    }
}

fn text_of(value: Value) -> Option<String> {
    let text = match value {
        Value::String(text) => text,
        Value::Array(items) => items.into_iter().filter_map(text_of).collect::<Vec<_>>().join("\n"),
        other => other.to_string(),
    };
    let text = clean(text.trim(), MAX_TEXT);
    (!text.is_empty()).then_some(text)
}

fn list_of(value: Value) -> Vec<String> {
    let items = match value {
        Value::Array(items) => items,
        other => vec![other],
    };
    let texts = items.into_iter().filter(|item| !item.is_null()).filter_map(text_of);
    texts.map(|text| clip(&text, MAX_ITEM).to_owned()).take(MAX_ITEMS).collect()
}

/// Cuts a text and takes out control characters: it goes into commits and onto terminals.
fn clean(text: &str, max: usize) -> String {
    let kept = clip(text, max).chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t'));
    kept.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warned(text: &str) -> Report {
        Report::find(text).unwrap()
    }

    #[test]
    fn the_last_block_wins_and_what_follows_it_is_ignored() {
        let text = "Talk.\n```workspool-report\n{\"summary\":\"one\"}\n```\nMore.\n````workspool-report\n\
                    {\"summary\":\"two\",\"commit_message\":[\"a\",\"\",\"b\"],\"tests_run\":\"cargo test\",\
                    \"open_questions\":[\"why?\",null,{\"a\":1}],\"warnings\":[]}\n````\nBye.\n";
        let want = Report {
            summary: Some("two".into()),
            commit_message: Some("a\nb".into()),
            tests_run: vec!["cargo test".into()],
            open_questions: vec!["why?".into(), "{\"a\":1}".into()],
            warnings: vec![],
        };
        assert_eq!(Report::find(text), Some(want));
    }

    #[test]
    fn a_label_does_as_well_as_a_fence() {
        for text in [
            "workspool-report: {\"summary\":\"s\"}",
            "**workspool-report:**\n\n{\"summary\":\"s\"} and so on",
            "  workspool-report:\n```json\n{\n\"summary\":\"s\"}\n```",
            "```workspool-report\n{\"summary\":\"s\"}",
            "```workspool-report\r\n{\"summary\":\"s\"}\r\n```\r\n",
        ] {
            assert_eq!(warned(text).summary.as_deref(), Some("s"), "{text}");
        }
    }

    #[test]
    fn a_plain_line_gives_a_commit_message() {
        let report = warned("done\nsuggested_commit_message: Fix the `door`\nbye");
        assert_eq!(report.commit_message.as_deref(), Some("Fix the `door"));
        let report = warned("suggested_commit_message: Two\nworkspool-report: {\"commit_message\":\"One\"}");
        assert_eq!(report.commit_message.as_deref(), Some("One"));
        assert_eq!(Report::find("nothing of the kind\nsuggested_commit_message:"), None);
    }

    #[test]
    fn a_broken_report_is_a_warning() {
        for text in [
            "```workspool-report\n{\"summary\": \"s\n```",
            "```workspool-report\n```",
            "workspool-report: [1]",
            "workspool-report:",
            "```workspool-report\n{\"summary\":\"good\"}\n```\n```workspool-report\noh no\n```",
        ] {
            let report = warned(text);
            assert_eq!(report.summary, None, "{text}");
            assert_eq!(report.warnings.len(), 1, "{text}");
        }
        assert_eq!(warned("workspool-report: {\"mood\":\"fine\"}").warnings.len(), 1);
    }

    #[test]
    fn sizes_are_capped_and_control_characters_taken_out() {
        let long = "ä".repeat(10_000);
        let list: Vec<&str> = vec![&long[..2_000]; 200];
        let json =
            serde_json::json!({"summary": long, "tests_run": list, "commit_message": "a\u{1b}[31m\u{0}b"});
        let report = warned(&format!("workspool-report: {json}"));
        assert_eq!(report.summary.map(|s| s.len()), Some(MAX_TEXT));
        assert_eq!(report.tests_run.len(), MAX_ITEMS);
        assert!(report.tests_run.iter().all(|test| test.len() == MAX_ITEM));
        assert_eq!(report.commit_message.as_deref(), Some("a[31mb"));
        let huge = format!("workspool-report: {}", "x".repeat(3 * MAX_SEARCHED));
        assert_eq!(Report::find(&huge), None);
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics(text in "(?s).{0,300}") {
            let _ = Report::find(&text);
            let _ = Report::find(&format!("```workspool-report\n{text}"));
            let _ = Report::find(&format!("workspool-report:{text}"));
        }
    }
}
