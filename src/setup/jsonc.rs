//! Editing a client's JSON without touching anything else in it: comments, order, spacing, trailing commas.
//!
//! A member is added or removed by cutting text at places that a scanner finds. Removing what was added
//! gives back the same bytes.

use serde_json::{Map, Value};
use std::ops::Range;

/// Text that is not the JSON of an object.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: expected {expected}")]
pub struct NotJson {
    /// The line, from 1.
    pub line: usize,
    /// What should be there.
    pub expected: &'static str,
}

/// An object in a text.
#[derive(Debug)]
struct Object {
    /// Just behind its brace.
    open: usize,
    /// At its closing brace.
    close: usize,
    members: Vec<Member>,
}

#[derive(Debug)]
struct Member {
    name: String,
    key: usize,
    value: Range<usize>,
}

/// The value at a path of names, if it is there.
pub fn get(text: &str, path: &[&str]) -> Result<Option<Value>, NotJson> {
    let whole = parse(text)?;
    Ok(path.iter().try_fold(&whole, |value, name| value.get(name)).cloned())
}

/// Reads JSON with comments and trailing commas.
pub fn parse(text: &str) -> Result<Value, NotJson> {
    let mut scanner = Scanner { text, at: 0 };
    scanner.blank()?;
    let value = scanner.value()?;
    scanner.blank()?;
    if scanner.at < text.len() { Err(scanner.expected("the end of the file")) } else { Ok(value) }
}

/// Puts a value at a path of names, in the place of what is there.
pub fn set(text: &str, path: &[&str], value: &Value) -> Result<String, NotJson> {
    let Some((last, parents)) = path.split_last() else { return Ok(text.to_owned()) };
    if text.trim().is_empty() {
        return set("{}\n", path, value);
    }
    if get(text, path)?.as_ref() == Some(value) {
        return Ok(text.to_owned());
    }
    let unit = unit(text);
    let mut object = object(text, root(text)?)?;
    for (depth, name) in parents.iter().enumerate() {
        match object.members.iter().find(|m| m.name == *name) {
            Some(member) if text[member.value.clone()].starts_with('{') => {
                object = self::object(text, member.value.start)?;
            }
            found => {
                // The rest of the path is made at once.
                let rest = parents[depth + 1..].iter().chain([last]).rev();
                let value = rest.fold(value.clone(), |inner, name| {
                    Value::Object(Map::from_iter([((*name).to_string(), inner)]))
                });
                return Ok(match found {
                    Some(member) => replace(text, member, &value, &unit, depth + 1),
                    None => insert(text, &object, name, &value, &unit, depth + 1),
                });
            }
        }
    }
    let depth = path.len();
    Ok(match object.members.iter().find(|m| m.name == *last) {
        Some(member) => replace(text, member, value, &unit, depth),
        None => insert(text, &object, last, value, &unit, depth),
    })
}

/// Removes what is at a path of names, and objects on the way that are empty then.
pub fn remove(text: &str, path: &[&str]) -> Result<String, NotJson> {
    parse(text)?;
    let Some((last, parents)) = path.split_last() else { return Ok(text.to_owned()) };
    let mut object = object(text, root(text)?)?;
    for name in parents {
        match object.members.iter().find(|m| m.name == *name) {
            Some(member) if text[member.value.clone()].starts_with('{') => {
                object = self::object(text, member.value.start)?;
            }
            _ => return Ok(text.to_owned()),
        }
    }
    let Some(at) = object.members.iter().position(|m| m.name == *last) else { return Ok(text.to_owned()) };
    let only = object.members.len() == 1;
    let shorter = cut(text, &object, at)?;
    if only && !parents.is_empty() { remove(&shorter, parents) } else { Ok(shorter) }
}

fn cut(text: &str, object: &Object, at: usize) -> Result<String, NotJson> {
    let member = &object.members[at];
    let after = comma(text, member.value.end)?;
    // From the end of the line before, where the member begins its own line.
    let before = text[..member.key].trim_end_matches([' ', '\t']).len();
    let from = if text[..before].ends_with('\n') { before - 1 } else { member.key };
    let mut out = String::with_capacity(text.len());
    match (after, at.checked_sub(1).map(|k| &object.members[k])) {
        (Some(comma), _) => {
            out.push_str(&text[..from]);
            let rest = &text[comma + 1..];
            out.push_str(if from == member.key { rest.trim_start_matches(' ') } else { rest });
        }
        (None, Some(previous)) => {
            let comma = comma(text, previous.value.end)?.unwrap_or(previous.value.end);
            out.push_str(&text[..comma]);
            out.push_str(text.get(comma + 1..from).unwrap_or_default());
            out.push_str(&text[member.value.end..]);
        }
        (None, None)
            if text[object.open..member.key].trim().is_empty()
                && text[member.value.end..object.close].trim().is_empty() =>
        {
            out.push_str(&text[..object.open]);
            out.push_str(&text[object.close..]);
        }
        (None, None) => {
            out.push_str(&text[..from]);
            out.push_str(&text[member.value.end..]);
        }
    }
    Ok(out)
}

fn insert(text: &str, object: &Object, name: &str, value: &Value, unit: &str, depth: usize) -> String {
    let indent = unit.repeat(depth);
    let member = format!("\n{indent}{}: {}", Value::from(name), pretty(value, unit, depth));
    let mut out = String::with_capacity(text.len() + member.len() + 8);
    match object.members.last() {
        None => {
            out.push_str(&text[..object.open]);
            out.push_str(&member);
            if text[object.open..object.close].trim().is_empty() {
                out.push_str(&format!("\n{}", unit.repeat(depth - 1)));
            } else {
                out.push_str(&text[object.open..object.close]);
            }
            out.push_str(&text[object.close..]);
        }
        Some(last) => {
            let trailing = comma(text, last.value.end).ok().flatten();
            let end = line_comment(text, trailing.map_or(last.value.end, |c| c + 1));
            out.push_str(&text[..last.value.end]);
            if trailing.is_none() {
                out.push(',');
            }
            out.push_str(&text[last.value.end..end]);
            out.push_str(&member);
            if trailing.is_some() {
                out.push(',');
            }
            out.push_str(&text[end..]);
        }
    }
    out
}

fn replace(text: &str, member: &Member, value: &Value, unit: &str, depth: usize) -> String {
    let Range { start, end } = member.value;
    format!("{}{}{}", &text[..start], pretty(value, unit, depth), &text[end..])
}

/// Writes a value as it would stand in the text.
fn pretty(value: &Value, unit: &str, depth: usize) -> String {
    match value {
        // Arguments stay on a line.
        Value::Array(items) => {
            format!("[{}]", items.iter().map(Value::to_string).collect::<Vec<_>>().join(", "))
        }
        Value::Object(map) if !map.is_empty() => {
            // As people write an entry.
            let order = |name: &str| ["type", "command", "args", "env"].iter().position(|n| *n == name);
            let mut members: Vec<(&String, &Value)> = map.iter().collect();
            members.sort_by_key(|(name, _)| (order(name).unwrap_or(9), name.as_str()));
            let members = members.into_iter().map(|(name, value)| {
                let value = pretty(value, unit, depth + 1);
                format!("\n{}{}: {value}", unit.repeat(depth + 1), Value::from(name.as_str()))
            });
            format!("{{{}\n{}}}", members.collect::<Vec<_>>().join(","), unit.repeat(depth))
        }
        other => other.to_string(),
    }
}

/// What the text indents by.
fn unit(text: &str) -> String {
    let first = text.lines().find(|l| l.starts_with([' ', '\t']) && l.trim_start().starts_with('"'));
    let indent = first.map_or("  ", |l| &l[..l.len() - l.trim_start().len()]);
    indent.to_owned()
}

/// The place of a comma after `at`, if one comes next.
fn comma(text: &str, at: usize) -> Result<Option<usize>, NotJson> {
    let mut scanner = Scanner { text, at };
    scanner.blank()?;
    Ok((scanner.peek() == Some(b',')).then_some(scanner.at))
}

/// The end of a comment that follows on the same line, or `at` itself.
fn line_comment(text: &str, at: usize) -> usize {
    let line = text[at..].lines().next().unwrap_or_default();
    if line.trim_start().starts_with("//") { at + line.trim_end_matches('\r').len() } else { at }
}

fn root(text: &str) -> Result<usize, NotJson> {
    let mut scanner = Scanner { text, at: 0 };
    scanner.blank()?;
    Ok(scanner.at)
}

fn object(text: &str, at: usize) -> Result<Object, NotJson> {
    let mut scanner = Scanner { text, at };
    scanner.take(b'{', "an object")?;
    let open = scanner.at;
    let mut members = Vec::new();
    loop {
        scanner.blank()?;
        if scanner.peek() == Some(b'}') {
            return Ok(Object { open, close: scanner.at, members });
        }
        let key = scanner.at;
        let name = scanner.string()?;
        scanner.blank()?;
        scanner.take(b':', "a colon")?;
        scanner.blank()?;
        let start = scanner.at;
        scanner.value()?;
        members.push(Member { name, key, value: start..scanner.at });
        scanner.blank()?;
        match scanner.peek() {
            Some(b',') => scanner.at += 1,
            Some(b'}') => {}
            _ => return Err(scanner.expected("a comma or a closing brace")),
        }
    }
}

/// Reads JSON with comments and trailing commas, and knows where it is.
struct Scanner<'a> {
    text: &'a str,
    at: usize,
}

impl Scanner<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn expected(&self, expected: &'static str) -> NotJson {
        let before = &self.text.as_bytes()[..self.at.min(self.text.len())];
        NotJson { line: before.iter().filter(|b| **b == b'\n').count() + 1, expected }
    }

    fn take(&mut self, byte: u8, expected: &'static str) -> Result<(), NotJson> {
        if self.peek() == Some(byte) {
            self.at += 1;
            Ok(())
        } else {
            Err(self.expected(expected))
        }
    }

    /// Passes over white space and comments.
    fn blank(&mut self) -> Result<(), NotJson> {
        loop {
            let rest = &self.text[self.at..];
            let blank = rest.len() - rest.trim_start_matches([' ', '\t', '\r', '\n', '\u{feff}']).len();
            self.at += blank;
            let rest = &self.text[self.at..];
            if rest.starts_with("//") {
                self.at += rest.find('\n').unwrap_or(rest.len());
            } else if rest.starts_with("/*") {
                let end = rest.find("*/").ok_or_else(|| self.expected("the end of the comment"))?;
                self.at += end + 2;
            } else {
                return Ok(());
            }
        }
    }

    fn string(&mut self) -> Result<String, NotJson> {
        let start = self.at;
        self.take(b'"', "a string")?;
        loop {
            match self.peek() {
                Some(b'"') => break,
                Some(b'\\') => self.at += 2,
                Some(_) => self.at += 1,
                None => return Err(self.expected("the end of the string")),
            }
        }
        self.at += 1;
        let text = self.text.get(start..self.at).ok_or_else(|| self.expected("a string"))?;
        serde_json::from_str(text).map_err(|_| self.expected("a string"))
    }

    fn value(&mut self) -> Result<Value, NotJson> {
        match self.peek() {
            Some(b'"') => Ok(Value::String(self.string()?)),
            Some(b'{') => {
                let found = object(self.text, self.at)?;
                self.at = found.close + 1;
                let mut map = Map::new();
                for member in found.members {
                    let mut inner = Scanner { text: self.text, at: member.value.start };
                    map.insert(member.name, inner.value()?);
                }
                Ok(Value::Object(map))
            }
            Some(b'[') => {
                self.at += 1;
                let mut items = Vec::new();
                loop {
                    self.blank()?;
                    if self.peek() == Some(b']') {
                        self.at += 1;
                        return Ok(Value::Array(items));
                    }
                    items.push(self.value()?);
                    self.blank()?;
                    match self.peek() {
                        Some(b',') => self.at += 1,
                        Some(b']') => {}
                        _ => return Err(self.expected("a comma or a closing bracket")),
                    }
                }
            }
            _ => {
                let rest = &self.text[self.at..];
                let word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
                let end = rest.find(|c| !word(c)).unwrap_or(rest.len());
                let value = serde_json::from_str(&rest[..end]).map_err(|_| self.expected("a value"))?;
                self.at += end;
                Ok(value)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const PATH: &[&str] = &["servers", "workspool"];

    fn entry() -> Value {
        json!({ "command": "/usr/bin/workspool", "args": ["mcp"], "env": {} })
    }

    /// Adds and removes, and looks that nothing else is different in between or afterwards.
    #[track_caller]
    fn round(text: &str) -> String {
        let with = set(text, PATH, &entry()).unwrap();
        assert_eq!(get(&with, PATH).unwrap(), Some(entry()), "{with}");
        let mut expected = parse(text).unwrap();
        expected["servers"]["workspool"] = entry();
        assert_eq!(parse(&with).unwrap(), expected, "{with}");
        assert_eq!(set(&with, PATH, &entry()).unwrap(), with, "idempotent");
        assert_eq!(remove(&with, PATH).unwrap(), text, "undone:\n{with}");
        with
    }

    #[test]
    fn what_was_added_is_removed_to_the_byte() {
        for text in [
            "{}",
            "{}\n",
            "{\n  \"theme\": \"dark\"\n}\n",
            "{\n  \"theme\": \"dark\", // mine\n}\n",
            "{\n\t\"theme\": \"dark\" // mine\n\t// the end\n}\n",
            "{\"servers\":{\"other\":{\"command\":\"x\"}},\"a\":[1,2,{\"b\":null}]}",
            "{\n    \"servers\": {\n        \"other\": { \"command\": \"x\" }, // keep\n    },\n    \"z\": 1e3,\n}",
            "// head\n{ /* in */ \"servers\": {\"o\": true} /* out */ }\n// foot\n",
            "{\n  \"a\": \"}{,:\\\"//\",\n  \"servers\": {\n    \"o\": {}\n  }\n}",
        ] {
            round(text);
        }
    }

    #[test]
    fn the_indentation_of_the_file_is_kept() {
        let with = round("{\n\t\"theme\": \"dark\"\n}\n");
        assert_eq!(
            with,
            "{\n\t\"theme\": \"dark\",\n\t\"servers\": {\n\t\t\"workspool\": {\n\t\t\t\"command\": \"/usr/bin/workspool\",\n\t\t\t\"args\": [\"mcp\"],\n\t\t\t\"env\": {}\n\t\t}\n\t}\n}\n"
        );
    }

    #[test]
    fn an_entry_in_the_middle_is_replaced_and_removed_alone() {
        let text =
            "{\n  \"servers\": {\n    \"a\": 1,\n    \"workspool\": {\"old\": true},\n    \"b\": 2\n  }\n}\n";
        let with = set(text, PATH, &entry()).unwrap();
        assert_eq!(get(&with, &["servers", "b"]).unwrap(), Some(json!(2)));
        assert_eq!(get(&with, PATH).unwrap(), Some(entry()));
        assert_eq!(
            remove(&with, PATH).unwrap(),
            "{\n  \"servers\": {\n    \"a\": 1,\n    \"b\": 2\n  }\n}\n"
        );
        let line = "{\"servers\": {\"workspool\": 1, \"b\": 2}}";
        assert_eq!(remove(line, PATH).unwrap(), "{\"servers\": {\"b\": 2}}");
    }

    #[test]
    fn an_empty_file_is_begun_and_a_broken_one_left_alone() {
        assert!(set("", PATH, &entry()).unwrap().starts_with("{\n  \"servers\": {\n"));
        for bad in
            ["[]x", "{\"a\" 1}", "{\"a\": }", "{\"a\": 1", "{\"a\": \"b}", "{ /* }", "{\"a\": 1 \"b\": 2}"]
        {
            assert!(set(bad, PATH, &entry()).is_err(), "{bad}");
            assert!(remove(bad, PATH).is_err(), "{bad}");
        }
        assert_eq!(set("{\n\n\"a\": x}", PATH, &entry()).unwrap_err().line, 3);
        assert_eq!(remove("{\"a\": 1}", PATH).unwrap(), "{\"a\": 1}");
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics(text in ".{0,60}") {
            let _ = set(&text, PATH, &entry());
            let _ = remove(&text, PATH);
        }

        #[test]
        fn braces_and_commas_do_not_confuse_it(text in "[{}\\[\\]:,\"/* a1\n]{0,40}") {
            let _ = set(&text, PATH, &entry());
            let _ = remove(&text, PATH);
        }
    }
}
