//! Reading what people write: tasks, batches, configuration. Every fault names its place and what was expected.

use super::rejection::{Problem, ProblemKind};
use super::task::{Batch, TaskSpec, VERSION};
use serde::de::DeserializeOwned;

/// Reads one JSON document as `T`.
pub fn json<T: DeserializeOwned>(text: &[u8]) -> Result<T, Problem> {
    let mut reader = serde_json::Deserializer::from_slice(text);
    let value = serde_path_to_error::deserialize(&mut reader).map_err(|e| {
        let field = e.path().to_string();
        let inner = e.into_inner();
        problem(&inner.to_string(), &field, Some((inner.line(), inner.column())))
    })?;
    reader.end().map_err(|e| {
        problem(&e.to_string(), "", Some((e.line(), e.column())))
            .hint("one JSON document was expected; several tasks go into {\"tasks\": […]} or, one a line, into a .jsonl file")
    })?;
    Ok(value)
}

/// Reads a TOML document as `T`.
pub fn toml<T: DeserializeOwned>(text: &str) -> Result<T, Problem> {
    let place = |span: Option<std::ops::Range<usize>>| span.map(|s| line_column(text, s.start));
    let reader = toml::Deserializer::parse(text).map_err(|e| problem(e.message(), "", place(e.span())))?;
    serde_path_to_error::deserialize(reader).map_err(|e| {
        let field = e.path().to_string();
        let inner = e.into_inner();
        problem(inner.message(), &field, place(inner.span()))
    })
}

/// What a submission holds.
#[derive(Debug, Clone, PartialEq)]
pub enum Submission {
    /// One task.
    One(Box<TaskSpec>),
    /// Several, all or none.
    Many(Batch),
}

/// Reads a submission: one task, a batch, or one task a line.
pub fn submission(text: &[u8]) -> Result<Submission, Problem> {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    if text.iter().all(u8::is_ascii_whitespace) {
        return Err(Problem::new(ProblemKind::Malformed, "the file is empty")
            .hint("expected a JSON object such as {\"objective\": \"…\", \"repository\": \"/path\"}"));
    }
    // Which of the three it is must be known first, or the error would be about the wrong one.
    match serde_json::from_slice::<serde_json::Value>(text) {
        Ok(serde_json::Value::Object(map)) if map.contains_key("tasks") => {
            let batch: Batch = json(text)?;
            check_version(batch.version)?;
            if batch.tasks.is_empty() {
                return Err(Problem::new(ProblemKind::Invalid, "the batch holds no task").at("tasks"));
            }
            for (k, task) in batch.tasks.iter().enumerate() {
                check_version(task.version).map_err(|p| p.under(&format!("tasks[{k}]")))?;
            }
            Ok(Submission::Many(batch))
        }
        Ok(serde_json::Value::Object(_)) => {
            let task: TaskSpec = json(text)?;
            check_version(task.version)?;
            Ok(Submission::One(Box::new(task)))
        }
        Ok(other) => Err(Problem::new(
            ProblemKind::Malformed,
            format!("expected a task (a JSON object), found {}", kind_of(&other)),
        )
        .hint("several tasks go into {\"tasks\": […]}")),
        Err(whole) => match lines(text) {
            Some(read) => read,
            None => Err(problem(&whole.to_string(), "", Some((whole.line(), whole.column())))),
        },
    }
}

/// Reads one task a line; `None` if the text is not of that form at all.
fn lines(text: &[u8]) -> Option<Result<Submission, Problem>> {
    let rows: Vec<(usize, &[u8])> = text
        .split(|b| *b == b'\n')
        .enumerate()
        .filter(|(_, row)| !row.iter().all(u8::is_ascii_whitespace))
        .collect();
    let looks_like = rows.len() > 1
        && rows
            .first()
            .is_some_and(|(_, row)| matches!(serde_json::from_slice(row), Ok(serde_json::Value::Object(_))));
    if !looks_like {
        return None;
    }
    let mut tasks = Vec::with_capacity(rows.len());
    for (k, (number, row)) in rows.into_iter().enumerate() {
        let read = json::<TaskSpec>(row).and_then(|task| check_version(task.version).map(|()| task));
        match read {
            Ok(task) => tasks.push(task),
            Err(p) => {
                let mut p = p.under(&format!("tasks[{k}]"));
                p.line = Some(number + 1);
                return Some(Err(p));
            }
        }
    }
    Some(Ok(Submission::Many(Batch { version: None, tasks, idempotency_key: None })))
}

fn check_version(version: Option<u32>) -> Result<(), Problem> {
    match version {
        None | Some(VERSION) => Ok(()),
        Some(other) => Err(Problem::new(
            ProblemKind::Invalid,
            format!("this is format version {other}; this program reads version {VERSION}"),
        )
        .at("version")
        .hint("leave the version out, or use a newer workspool")),
    }
}

fn kind_of(value: &serde_json::Value) -> &'static str {
    match value {
        serde_json::Value::Null => "null",
        serde_json::Value::Bool(_) => "true or false",
        serde_json::Value::Number(_) => "a number",
        serde_json::Value::String(_) => "a string",
        serde_json::Value::Array(_) => "a list",
        serde_json::Value::Object(_) => "an object",
    }
}

/// Turns serde's text into a problem: place apart from message, nearest known name for an unknown one.
fn problem(text: &str, field: &str, place: Option<(usize, usize)>) -> Problem {
    let message = match text.rfind(" at line ") {
        Some(at) => &text[..at],
        None => text.trim_end(),
    };
    let mut problem = Problem::new(ProblemKind::Malformed, message);
    if let Some((unknown, known)) = unknown_name(message) {
        problem.hint = nearest(&unknown, &known).map(|near| format!("did you mean `{near}`?"));
        let what = if message.starts_with("unknown variant") { "value" } else { "field" };
        problem.message = if known.len() > 12 {
            format!("unknown {what} `{unknown}`")
        } else {
            format!("unknown {what} `{unknown}`, expected one of {}", known.join(", "))
        };
    }
    if !field.is_empty() && field != "." {
        problem.field = Some(field.to_owned());
    }
    if let Some((line, column)) = place.filter(|(line, _)| *line > 0) {
        problem.line = Some(line);
        problem.column = Some(column.max(1));
    }
    problem
}

/// Picks the names out of "unknown field `x`, expected one of `a`, `b`".
fn unknown_name(message: &str) -> Option<(String, Vec<String>)> {
    let rest = message.strip_prefix("unknown field ").or_else(|| message.strip_prefix("unknown variant "))?;
    let mut names = rest.split('`').skip(1).step_by(2).map(str::to_owned);
    Some((names.next()?, names.collect()))
}

/// Returns the known name that is nearest to `name`, if one is near.
pub fn nearest<'a, S: AsRef<str>>(name: &str, known: &'a [S]) -> Option<&'a str> {
    let lower = name.to_lowercase();
    let (distance, best) = known
        .iter()
        .map(|k| (distance(&lower, &k.as_ref().to_lowercase()), k.as_ref()))
        .min_by_key(|(d, _)| *d)?;
    (distance <= name.len().max(3) / 3 + usize::from(name.len() > 3)).then_some(best)
}

/// Edits (insert, delete, change, swap of neighbours) between two names.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().take(64).collect(), b.chars().take(64).collect());
    let mut rows = vec![(0..=b.len()).collect::<Vec<usize>>()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let change = usize::from(a[i - 1] != b[j - 1]);
            let mut best = (rows[i - 1][j] + 1).min(row[j - 1] + 1).min(rows[i - 1][j - 1] + change);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

fn line_column(text: &str, at: usize) -> (usize, usize) {
    let before = &text[..at.min(text.len())];
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().map_or(0, |l| l.chars().count()) + 1;
    (line, column)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::config::Config;
    use proptest::prelude::*;

    fn refused(text: &str) -> Problem {
        submission(text.as_bytes()).unwrap_err()
    }

    #[test]
    fn an_unknown_field_is_named_with_its_place_and_the_nearest_known_one() {
        let p = refused("{\n  \"objective\": \"x\",\n  \"prioritty\": 3\n}");
        assert_eq!((p.line, p.field.as_deref()), (Some(3), Some("prioritty")));
        assert_eq!(p.hint.as_deref(), Some("did you mean `priority`?"));
    }

    #[test]
    fn a_wrong_type_is_named_with_its_path() {
        let p = refused(r#"{"tasks": [{"objective": "a"}, {"objective": "b", "priority": "high"}]}"#);
        assert_eq!(p.field.as_deref(), Some("tasks[1].priority"));
        assert!(p.message.contains("invalid type: string \"high\""), "{}", p.message);
        assert_eq!(p.line, Some(1));
    }

    #[test]
    fn a_wrong_word_lists_the_right_ones() {
        let p = refused(r#"{"objective": "x", "permission": "read-only"}"#);
        assert!(p.message.contains("read_only"), "{}", p.message);
        assert_eq!(p.hint.as_deref(), Some("did you mean `read_only`?"));
    }

    #[test]
    fn a_line_of_a_jsonl_file_is_named() {
        let p = refused("{\"objective\": \"a\"}\n\n{\"objective\": 4}\n");
        assert_eq!((p.line, p.field.as_deref()), (Some(3), Some("tasks[1].objective")));
        match submission(b"{\"objective\":\"a\"}\n{\"objective\":\"b\"}\n").unwrap() {
            Submission::Many(batch) => assert_eq!(batch.tasks.len(), 2),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_is_no_task_at_all_says_what_was_expected() {
        assert!(refused("").message.contains("empty"));
        assert!(refused("[]").message.contains("found a list"));
        assert!(refused("{\"objective\": \"x\"} trailing").line.is_some());
        assert!(refused("{\"objective\": \"x\"").line.is_some());
        assert!(refused("{\"tasks\": []}").message.contains("no task"));
        assert!(refused("{\"version\": 99, \"objective\": \"x\"}").message.contains("version 99"));
    }

    #[test]
    fn toml_faults_name_line_and_key() {
        let p = toml::<Config>("max_concurrency = 2\nmax_concurency = 3\n").unwrap_err();
        assert_eq!(p.line, Some(2));
        assert_eq!(p.hint.as_deref(), Some("did you mean `max_concurrency`?"));
        let p = toml::<Config>("[defaults]\ntimeout = \"long\"\n").unwrap_err();
        assert_eq!((p.line, p.field.as_deref()), (Some(2), Some("defaults.timeout")));
    }

    proptest! {
        #[test]
        fn no_input_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = submission(&bytes);
        }

        #[test]
        fn near_names_are_found(at in 0usize..8) {
            let mut name = "objective".to_owned();
            name.remove(at);
            prop_assert_eq!(nearest(&name, &["objective", "context", "title"]), Some("objective"));
        }
    }
}
