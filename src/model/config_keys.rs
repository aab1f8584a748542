//! Every key of `config.toml`: its path, meaning, form, default and an example, all taken from the types,
//! so that `config show`, `config init` and `docs/configuration.md` cannot differ from them.

use super::config::Config;
use serde_json::{Map, Value};
use std::fmt::Write as _;
use std::sync::LazyLock;

/// One key of the configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct Key {
    /// Its path, such as `disk.reserve_bytes`.
    pub path: String,
    /// What it means.
    pub about: String,
    /// What form a value has.
    pub form: String,
    /// Its default; null where there is none.
    pub default: Value,
    /// A value to show where the default says nothing.
    pub example: Option<Value>,
}

impl Key {
    /// The environment variable that sets it.
    pub fn variable(&self) -> String {
        format!("WORKSPOOL_{}", self.path.replace('.', "_").to_ascii_uppercase())
    }

    /// The table that it is in, and its name there.
    pub fn parts(&self) -> (Option<&str>, &str) {
        self.path.rsplit_once('.').map_or((None, self.path.as_str()), |(table, name)| (Some(table), name))
    }

    /// Its value in a configuration that was read as JSON.
    pub fn in_json<'a>(&self, config: &'a Value) -> &'a Value {
        self.path.split('.').fold(config, |at, name| &at[name])
    }

    /// Whether nothing is set unless somebody does.
    fn is_unset(&self) -> bool {
        match &self.default {
            Value::Null => true,
            Value::Array(items) => items.is_empty(),
            Value::Object(map) => map.is_empty(),
            _ => false,
        }
    }
}

/// A table of keys.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    /// Its path; none for keys outside any table.
    pub path: Option<String>,
    /// What it is for.
    pub about: String,
}

struct All {
    keys: Vec<Key>,
    tables: Vec<Table>,
}

static ALL: LazyLock<All> = LazyLock::new(|| {
    let schema = schemars::schema_for!(Config).to_value();
    let defaults = serde_json::to_value(Config::default()).unwrap_or_default();
    let mut all = All { keys: Vec::new(), tables: Vec::new() };
    all.walk(&schema, &schema, None, text(&schema), &defaults);
    all
});

/// All keys: those outside tables first, then table by table.
pub fn keys() -> &'static [Key] {
    &ALL.keys
}

/// All tables, in the order of [`keys`].
pub fn tables() -> &'static [Table] {
    &ALL.tables
}

impl All {
    fn walk(&mut self, root: &Value, at: &Value, path: Option<&str>, about: String, defaults: &Value) {
        let none = Map::new();
        let fields = at["properties"].as_object().unwrap_or(&none);
        self.tables.push(Table { path: path.map(str::to_owned), about });
        let under = |name: &str| path.map_or_else(|| name.to_owned(), |p| format!("{p}.{name}"));
        let resolved: Vec<_> =
            fields.iter().map(|(name, field)| (name, field, resolve(root, field))).collect();
        for (name, field, inner) in resolved.iter().filter(|(_, _, inner)| inner["properties"].is_null()) {
            self.keys.push(Key {
                path: under(name),
                about: text(field),
                form: form(root, inner),
                default: defaults[name.as_str()].clone(),
                example: field["examples"].get(0).cloned(),
            });
        }
        for (name, field, inner) in resolved.iter().filter(|(_, _, inner)| !inner["properties"].is_null()) {
            let about = if field["description"].is_null() { text(inner) } else { text(field) };
            self.walk(root, inner, Some(&under(name)), about, &defaults[name.as_str()]);
        }
    }
}

/// Follows a reference, and takes the one that is not null of "this or null".
fn resolve<'a>(root: &'a Value, field: &'a Value) -> &'a Value {
    if let Some(name) = field["$ref"].as_str() {
        return root.pointer(name.trim_start_matches('#')).unwrap_or(field);
    }
    let choice = field["anyOf"].as_array().and_then(|c| c.iter().find(|c| c["type"] != "null"));
    choice.map_or(field, |choice| resolve(root, choice))
}

fn text(of: &Value) -> String {
    of["description"].as_str().unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ")
}

fn form(root: &Value, of: &Value) -> String {
    if let Some(words) = of["enum"].as_array() {
        let words: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
        return format!("one of {}", words.join(", "));
    }
    let kind = match &of["type"] {
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).find(|k| *k != "null"),
        kind => kind.as_str(),
    };
    match kind {
        Some("integer") => "whole number".into(),
        Some("number") => "number".into(),
        Some("boolean") => "true or false".into(),
        Some("array") => match resolve(root, &of["items"]) {
            item if item["properties"].is_object() => "list of tables".into(),
            item if item["enum"].is_array() => format!("list: {}", form(root, item)),
            _ => "list of texts".into(),
        },
        Some("object") => {
            let values = of["patternProperties"].as_object().and_then(|p| p.values().next());
            let value = values.unwrap_or(&of["additionalProperties"]);
            format!("table: name to {}", form(root, value))
        }
        _ => "text".into(),
    }
}

/// Writes a JSON value as TOML, on one line. Null has no spelling there.
pub fn to_toml(value: &Value) -> String {
    match value {
        Value::Null => "(none)".to_owned(),
        Value::Array(items) => {
            format!("[{}]", items.iter().map(to_toml).collect::<Vec<_>>().join(", "))
        }
        Value::Object(map) if map.is_empty() => "{}".to_owned(),
        Value::Object(map) => {
            let fields: Vec<String> = map
                .iter()
                .filter(|(_, v)| !v.is_null())
                .map(|(k, v)| format!("{} = {}", to_toml(&Value::String(k.clone())), to_toml(v)))
                .collect();
            format!("{{ {} }}", fields.join(", "))
        }
        Value::String(text) => toml::Value::String(text.clone()).to_string(),
        other => other.to_string(),
    }
}

/// The text of a new `config.toml`: every key with its default, each commented out.
pub fn initial_file() -> String {
    let mut out = String::from(
        "# Configuration of workspool. Every key has a default: take the # away from a line to change it.\n\
         # A variable WORKSPOOL_<TABLE>_<KEY> goes before this file, and --set KEY=VALUE before both.\n\
         # `workspool config show` says what holds and where it comes from.\n",
    );
    for table in tables() {
        let keys: Vec<&Key> = keys().iter().filter(|k| k.parts().0 == table.path.as_deref()).collect();
        if let Some(path) = &table.path {
            out.push('\n');
            comment(&mut out, &table.about);
            // The header stays: what follows it is of this table as soon as it counts.
            let _ = writeln!(out, "[{path}]");
        }
        for key in keys {
            out.push('\n');
            comment(&mut out, &key.about);
            let shown = match &key.example {
                Some(example) if key.is_unset() => {
                    comment(&mut out, "Not set. For example:");
                    example
                }
                _ if key.default.is_null() => {
                    comment(&mut out, "Not set.");
                    &Value::from(100)
                }
                _ => &key.default,
            };
            let _ = writeln!(out, "# {} = {}", key.parts().1, to_toml(shown));
        }
    }
    out
}

fn comment(out: &mut String, text: &str) {
    let mut line = String::from("#");
    for word in text.split_whitespace() {
        if line.len() + word.len() > 98 {
            let _ = writeln!(out, "{line}");
            line = String::from("#");
        }
        line.push(' ');
        line.push_str(word);
    }
    if line.len() > 1 {
        let _ = writeln!(out, "{line}");
    }
}

/// The part of `docs/configuration.md` that lists every key.
pub fn reference() -> String {
    let mut out = String::new();
    for table in tables() {
        match &table.path {
            Some(path) => {
                let _ = write!(out, "\n### `[{path}]`\n\n{}\n", table.about);
            }
            None => out.push_str("### Outside any table\n"),
        }
        let rows: Vec<&Key> = keys().iter().filter(|k| k.parts().0 == table.path.as_deref()).collect();
        if rows.is_empty() {
            continue;
        }
        out.push_str("\n| key | value | default | meaning |\n| --- | --- | --- | --- |\n");
        for key in rows {
            let default = if key.default.is_null() {
                "none".to_owned()
            } else {
                format!("`{}`", to_toml(&key.default))
            };
            let mut about = key.about.replace('|', "\\|");
            if let Some(example) = key.example.as_ref().filter(|_| key.is_unset()) {
                let _ = write!(about, " Example: `{}`", to_toml(example));
            }
            let _ = writeln!(out, "| `{}` | {} | {default} | {about} |", key.parts().1, key.form);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_of_the_types_is_listed_with_a_meaning() {
        let paths: Vec<&str> = keys().iter().map(|k| k.path.as_str()).collect();
        for wanted in
            ["max_concurrency", "disk.reserve_bytes", "ceilings.budget.cost_usd", "notify.on", "inbox"]
        {
            assert!(paths.contains(&wanted), "{wanted} is missing in {paths:?}");
        }
        for key in keys() {
            assert!(!key.about.is_empty(), "{} has no description", key.path);
            assert!(!key.form.is_empty());
        }
        let first_in_table = keys().iter().position(|k| k.path.contains('.')).unwrap();
        assert!(
            keys()[first_in_table..].iter().all(|k| k.path.contains('.')),
            "a key after a table is in it"
        );
    }

    #[test]
    fn no_two_keys_have_one_variable() {
        let mut names: Vec<String> = keys().iter().map(Key::variable).collect();
        names.sort();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn the_initial_file_says_the_defaults_and_each_line_of_it_counts_when_uncommented() {
        let text = initial_file();
        assert_eq!(super::super::input::toml::<Config>(&text).unwrap(), Config::default());
        let assignment = regex::Regex::new("^# [a-z_]+ = ").unwrap();
        let mut uncommented = 0;
        let live: String = text
            .lines()
            .map(|line| {
                let live = assignment.is_match(line);
                uncommented += usize::from(live);
                format!("{}\n", if live { &line[2..] } else { line })
            })
            .collect();
        assert_eq!(uncommented, keys().len());
        let read: Config = super::super::input::toml(&live).unwrap();
        assert_eq!(read.disk, Config::default().disk);
        assert_eq!(read.inbox.len(), 1);
    }

    #[test]
    fn values_are_written_as_toml_reads_them() {
        for value in [
            serde_json::json!("a \"quoted\" text"),
            serde_json::json!(["a", "b"]),
            serde_json::json!({ "a-b": 2 }),
            serde_json::json!(true),
            serde_json::json!(4096),
        ] {
            let text = format!("v = {}", to_toml(&value));
            let read: toml::Table = text.parse().unwrap();
            assert_eq!(serde_json::to_value(&read["v"]).unwrap(), value, "{text}");
        }
    }
}
