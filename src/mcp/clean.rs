//! What leaves by a tool is masked and free of control characters, wherever it came from.

use crate::redact::{Redactor, printable};
use serde_json::Value;

/// Masks the secrets of a text, and removes what a terminal would act on.
pub fn text(text: &str) -> String {
    Redactor::new([]).str(&printable(text)).into_owned()
}

/// Does the same with every string of a value.
pub fn value(value: &mut Value) {
    let redactor = Redactor::new([]);
    walk(value, &redactor);
}

fn walk(value: &mut Value, redactor: &Redactor) {
    match value {
        Value::String(text) => {
            let plain = printable(text);
            let masked = redactor.str(&plain);
            if masked != text.as_str() {
                *text = masked.into_owned();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|v| walk(v, redactor)),
        Value::Object(map) => {
            for (name, value) in map.iter_mut() {
                // A secret may be known by the name that it stands beside.
                if let Value::String(text) = value {
                    let beside = format!("{name}={text}");
                    if redactor.str(&beside) != beside && crate::redact::env_name_is_secret(name) {
                        *text = "[redacted]".into();
                        continue;
                    }
                }
                walk(value, redactor);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Cuts a text to about `most` bytes, keeping its end, since that is where an error shows.
pub fn tail(text: &str, most: usize) -> String {
    let text = text.trim_end();
    if text.len() <= most {
        return text.to_owned();
    }
    let from = (text.len() - most..text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
    let rest = &text[from..];
    let line = rest.find('\n').map_or(0, |at| at + 1);
    format!("…\n{}", &rest[line..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn strings_are_masked_and_printable_at_every_depth_and_hashes_stay() {
        let hash = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
        let commit = "da39a3ee5e6b4b0d3255bfef95601890afd80709";
        let id = crate::model::TaskId::generate().to_string();
        let mut v = json!({
            "sha256": hash, "commit": commit, "id": id, "folder": "/home/me/.workspool/tasks/x",
            "deep": [{ "text": "\u{1b}[31mred\u{1b}[0m ghp_abcdefghijklmnopqrstuvwxyz0123456789" }],
            "metadata": { "API_TOKEN": "s3cr3t-value-0123456789" },
        });
        value(&mut v);
        assert_eq!(v["sha256"], hash);
        assert_eq!(v["commit"], commit);
        assert_eq!(v["id"], id);
        let text = v["deep"][0]["text"].as_str().unwrap();
        assert!(text.starts_with("red ") && text.contains("[redacted") && !text.contains("ghp_"), "{text}");
        assert!(v["metadata"]["API_TOKEN"].as_str().unwrap().starts_with("[redacted"));
    }

    #[test]
    fn a_long_text_keeps_its_last_whole_lines() {
        assert_eq!(tail("a\nb\n", 10), "a\nb");
        assert_eq!(tail("first line\nsecond\nthird", 14), "…\nsecond\nthird");
    }
}
