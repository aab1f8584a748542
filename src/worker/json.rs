//! Reads lines of JSON that other programs wrote, and fields of them, without trusting their shape.

use crate::model::Fact;
use serde_json::Value;

/// The longest line that is parsed; a longer one is counted as unreadable.
const MAX_LINE: usize = 32 << 20;
/// The longest line in which a spliced event is looked for, and the longest first half that is kept.
const MAX_SPLICE: usize = 4 << 20;
/// The most text that one fact carries. The end of a text is kept, since a report stands at the end.
pub(super) const MAX_TEXT: usize = 256 << 10;
/// The most text of an error or a reason.
pub(super) const MAX_NOTE: usize = 2_000;
/// The most text of a name or a one-line summary.
const MAX_SHORT: usize = 200;

/// Returns what stands at a dotted path, such as `message.content`.
pub(super) fn at<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(value, |value, key| value.get(key))
}

/// Returns the text at a path; an empty one counts as absent.
pub(super) fn text<'a>(value: &'a Value, path: &str) -> Option<&'a str> {
    at(value, path)?.as_str().filter(|text| !text.is_empty())
}

/// Returns the count at a path; a negative number or a broken one counts as absent.
pub(super) fn count(value: &Value, path: &str) -> Option<u64> {
    let number = at(value, path)?;
    number.as_u64().or_else(|| number.as_f64().filter(|n| *n >= 0.0 && n.is_finite()).map(|n| n as u64))
}

/// Returns the amount at a path, if it is a sensible one.
pub(super) fn amount(value: &Value, path: &str) -> Option<f64> {
    at(value, path)?.as_f64().filter(|n| *n >= 0.0 && n.is_finite())
}

/// Returns the HTTP status at a path.
pub(super) fn status(value: &Value, path: &str) -> Option<u16> {
    count(value, path).and_then(|n| u16::try_from(n).ok()).filter(|n| (100..1000).contains(n))
}

/// Returns whether `true` stands at a path.
pub(super) fn flag(value: &Value, path: &str) -> bool {
    at(value, path).and_then(Value::as_bool).unwrap_or(false)
}

/// Returns the elements at a path, none if there is no list.
pub(super) fn list<'a>(value: &'a Value, path: &str) -> &'a [Value] {
    at(value, path).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Returns a text field at the first of several keys that has one.
pub(super) fn first<'a>(value: &'a Value, keys: &[&str]) -> Option<&'a str> {
    keys.iter().find_map(|key| text(value, key))
}

/// Says in one short line what a tool was asked to do.
pub(super) fn summary(input: &Value) -> String {
    const KEYS: &[&str] = &[
        "file_path",
        "filePath",
        "absolute_path",
        "notebook_path",
        "command",
        "cmd",
        "path",
        "url",
        "pattern",
        "query",
        "description",
        "prompt",
    ];
    first(input, KEYS).map(one_line).unwrap_or_default()
}

/// Makes one short line of a text.
pub(super) fn one_line(text: &str) -> String {
    let mut line = String::new();
    for word in text.split_whitespace() {
        if line.len() >= MAX_SHORT {
            break;
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    clip(&line, MAX_SHORT).to_owned()
}

/// Returns the beginning of a text, at most `max` bytes.
pub(super) fn clip(text: &str, max: usize) -> &str {
    let mut end = text.len().min(max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Returns the end of a text, at most `max` bytes.
pub(super) fn tail(text: &str, max: usize) -> &str {
    let mut start = text.len().saturating_sub(max);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    &text[start..]
}

/// Makes values of lines, and mends what it can.
///
/// Claude Code was seen to write a `rate_limit_event` into the middle of another event, so that one
/// line held two and a half objects, or a line ended within one. Both are put together again.
#[derive(Debug, Default)]
pub(super) struct Lines {
    /// The first half of a line that an event cut in two.
    held: Vec<u8>,
}

impl Lines {
    /// Returns the objects of a line, and says in `facts` what could not be read.
    pub(super) fn read(&mut self, line: &[u8], facts: &mut Vec<Fact>) -> Vec<Value> {
        let line = line.trim_ascii();
        if line.is_empty() {
            return Vec::new();
        }
        if line.len() > MAX_LINE {
            facts.push(unreadable(line.len(), "too long"));
            return Vec::new();
        }
        let error = match parse(line) {
            Ok(Value::Object(object)) => {
                self.end(facts);
                return vec![Value::Object(object)];
            }
            // Some programs print all their events as one list.
            Ok(Value::Array(list)) if list.iter().any(Value::is_object) => {
                self.end(facts);
                return list.into_iter().filter(Value::is_object).collect();
            }
            Ok(_) => "not a JSON object".to_owned(),
            Err(error) => error.to_string(),
        };
        if !self.held.is_empty() {
            let mut whole = std::mem::take(&mut self.held);
            let held = whole.len();
            whole.extend_from_slice(line);
            if let Ok(value @ Value::Object(_)) = parse(&whole) {
                return vec![value];
            }
            facts.push(unreadable(held, "cut in two"));
        }
        if let Some((event, rest)) = splice(line) {
            match parse(&rest) {
                Ok(value @ Value::Object(_)) => return vec![value, event],
                _ => self.held = rest,
            }
            return vec![event];
        }
        facts.push(unreadable(line.len(), &error));
        Vec::new()
    }

    /// Gives up on a half line that is still kept.
    pub(super) fn end(&mut self, facts: &mut Vec<Fact>) {
        if !self.held.is_empty() {
            facts.push(unreadable(std::mem::take(&mut self.held).len(), "cut in two"));
        }
    }
}

/// Makes the fact of a line that could not be read.
pub(super) fn unreadable(bytes: usize, reason: &str) -> Fact {
    Fact::Unreadable { bytes: bytes as u64, reason: one_line(reason) }
}

fn parse(line: &[u8]) -> serde_json::Result<Value> {
    match std::str::from_utf8(line) {
        Ok(text) => serde_json::from_str(text),
        Err(_) => serde_json::from_str(&String::from_utf8_lossy(line)),
    }
}

/// Finds a whole rate limit event within a broken line; returns it and the line without it.
fn splice(line: &[u8]) -> Option<(Value, Vec<u8>)> {
    const MARK: &[u8] = b"\"rate_limit_event\"";
    if line.len() > MAX_SPLICE {
        return None;
    }
    let mark = line.windows(MARK.len()).position(|window| window == MARK)?;
    // The key's place in the object is not fixed, so each brace before it may be the beginning.
    let starts = (0..mark).rev().filter(|&at| line[at] == b'{').take(64);
    for start in starts {
        let mut values = serde_json::Deserializer::from_slice(&line[start..]).into_iter::<Value>();
        let Some(Ok(event)) = values.next() else { continue };
        let end = start + values.byte_offset();
        if text(&event, "type") == Some("rate_limit_event") {
            let mut rest = line[..start].to_vec();
            rest.extend_from_slice(&line[end..]);
            return Some((event, rest));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENT: &str = r#"{"type":"rate_limit_event","rate_limit_info":{"status":"allowed"}}"#;

    fn read(lines: &[&str]) -> (Vec<String>, usize) {
        let (mut reader, mut facts, mut types) = (Lines::default(), Vec::new(), Vec::new());
        for line in lines {
            for value in reader.read(line.as_bytes(), &mut facts) {
                types.push(text(&value, "type").unwrap_or("?").to_owned());
            }
        }
        reader.end(&mut facts);
        (types, facts.len())
    }

    #[test]
    fn an_event_within_a_line_is_taken_out_and_the_line_mended() {
        let spliced = format!(r#"{{"type":"result","result":"al{EVENT}l good"}}"#);
        assert_eq!(read(&[&spliced]), (vec!["result".into(), "rate_limit_event".into()], 0));
        let first = format!(r#"{{"type":"result","result":"al{EVENT}"#);
        let got = read(&[&first, r#"l good","is_error":false}"#]);
        assert_eq!(got, (vec!["rate_limit_event".into(), "result".into()], 0));
    }

    #[test]
    fn a_half_line_that_never_ends_is_counted_once() {
        let first = format!(r#"{{"type":"assistant","message":{EVENT}"#);
        assert_eq!(read(&[&first]), (vec!["rate_limit_event".into()], 1));
        assert_eq!(
            read(&[&first, r#"{"type":"result"}"#]),
            (vec!["rate_limit_event".into(), "result".into()], 1)
        );
    }

    #[test]
    fn broken_lines_are_counted_and_empty_ones_not() {
        assert_eq!(read(&["", "  ", "garbage", "{\"a\":", "12", "[]", "\"x\""]), (vec![], 5));
        let deep = "[".repeat(100_000);
        assert_eq!(read(&[&deep]), (vec![], 1));
    }

    #[test]
    fn broken_utf8_is_read_with_marks_in_its_place() {
        let (mut reader, mut facts) = (Lines::default(), Vec::new());
        let values = reader.read(b"{\"type\":\"a\xff\xfeb\"}", &mut facts);
        assert_eq!(text(&values[0], "type"), Some("a\u{fffd}\u{fffd}b"));
        assert!(facts.is_empty());
    }

    #[test]
    fn texts_are_cut_at_characters() {
        assert_eq!(clip("äöü", 3), "ä");
        assert_eq!(tail("äöü", 3), "ü");
        assert_eq!(one_line(" a\n b\t c "), "a b c");
        assert!(one_line(&"ä ".repeat(1000)).len() <= MAX_SHORT);
    }
}
