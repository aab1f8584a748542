//! Editing a client's TOML without touching anything else in it.

use anyhow::{Context as _, bail};
use serde_json::{Map, Value};
use toml_edit::{DocumentMut, InlineTable, Item, Table, Value as Toml};

/// The value at a path of names, if it is there.
pub fn get(text: &str, path: &[&str]) -> anyhow::Result<Option<Value>> {
    let whole: toml::Table = toml::from_str(text).context("it is not TOML")?;
    let whole = serde_json::to_value(whole)?;
    Ok(path.iter().try_fold(&whole, |value, name| value.get(name)).cloned())
}

/// Puts a table at a path of names, in the place of what is there.
pub fn set(text: &str, path: &[&str], value: &Value) -> anyhow::Result<String> {
    let mut document: DocumentMut = text.parse().context("it is not TOML")?;
    let Some((last, parents)) = path.split_last() else { return Ok(text.to_owned()) };
    let mut table: &mut Table = document.as_table_mut();
    for name in parents {
        let item = table.entry(name).or_insert_with(|| {
            let mut table = Table::new();
            // No header of its own: `[parent.entry]` says enough.
            table.set_implicit(true);
            Item::Table(table)
        });
        table = match item {
            Item::Table(table) => table,
            _ => bail!("`{name}` is written on one line"),
        };
    }
    let Value::Object(fields) = value else { bail!("an entry is a table") };
    match table.get_mut(last) {
        Some(Item::Table(entry)) => {
            entry.retain(|name, _| fields.contains_key(name));
            for (name, field) in fields {
                let field = toml(field)?;
                let same =
                    entry.get(name).and_then(Item::as_value).is_some_and(|old| plain(old) == plain(&field));
                if !same {
                    entry.insert(name, Item::Value(field));
                }
            }
        }
        _ => drop(table.insert(last, Item::Table(entry(fields)?))),
    }
    Ok(document.to_string())
}

/// Removes what is at a path of names.
pub fn remove(text: &str, path: &[&str]) -> anyhow::Result<String> {
    let mut document: DocumentMut = text.parse().context("it is not TOML")?;
    let Some((last, parents)) = path.split_last() else { return Ok(text.to_owned()) };
    let mut item: &mut Item = document.as_item_mut();
    for name in parents {
        match item.get_mut(name) {
            Some(inner) => item = inner,
            None => return Ok(text.to_owned()),
        }
    }
    if let Some(table) = item.as_table_like_mut() {
        table.remove(last);
    }
    Ok(document.to_string())
}

fn entry(fields: &Map<String, Value>) -> anyhow::Result<Table> {
    let mut table = Table::new();
    // As people write it: what it runs first.
    let order = |name: &str| ["command", "args"].iter().position(|n| *n == name).unwrap_or(9);
    let mut names: Vec<&String> = fields.keys().collect();
    names.sort_by_key(|name| (order(name), name.as_str()));
    for name in names {
        table.insert(name, Item::Value(toml(&fields[name])?));
    }
    Ok(table)
}

fn toml(value: &Value) -> anyhow::Result<Toml> {
    Ok(match value {
        Value::String(text) => Toml::from(text.as_str()),
        Value::Bool(flag) => Toml::from(*flag),
        Value::Number(n) if n.is_i64() => Toml::from(n.as_i64().unwrap_or_default()),
        Value::Number(n) => Toml::from(n.as_f64().unwrap_or_default()),
        Value::Array(items) => Toml::Array(items.iter().map(toml).collect::<anyhow::Result<_>>()?),
        Value::Object(map) => {
            let mut table = InlineTable::new();
            for (name, value) in map {
                table.insert(name, toml(value)?);
            }
            Toml::InlineTable(table)
        }
        Value::Null => bail!("TOML has no null"),
    })
}

/// A value without the spacing around it.
fn plain(value: &Toml) -> String {
    value.clone().decorated("", "").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const PATH: &[&str] = &["mcp_servers", "workspool"];

    fn value() -> Value {
        json!({ "command": "/bin/workspool", "args": ["mcp"] })
    }

    #[test]
    fn what_was_added_is_removed_and_the_rest_stays_to_the_byte() {
        for text in [
            "",
            "# mine\nmodel = \"x\" # why\n\n[mcp_servers.other]\ncommand = \"y\"\nargs = [\n  \"a\", # first\n]\n",
            "model   =   'x'\n[projects.\"/home/me\"]\ntrust_level = \"trusted\"\n",
        ] {
            let with = set(text, PATH, &value()).unwrap();
            assert_eq!(get(&with, PATH).unwrap(), Some(value()), "{with}");
            assert!(with.starts_with(text), "{with}");
            assert!(
                with.contains("[mcp_servers.workspool]\ncommand = \"/bin/workspool\"\nargs = [\"mcp\"]\n"),
                "{with}"
            );
            assert_eq!(set(&with, PATH, &value()).unwrap(), with);
            assert_eq!(remove(&with, PATH).unwrap(), text);
        }
    }

    #[test]
    fn an_entry_is_changed_in_its_place() {
        let text = "[mcp_servers.workspool]\n# approve all\ndefault_tools_approval_mode = \"approve\"\ncommand = \"old\"\nargs = [\"mcp\"]\n\n[tui]\nx = 1\n";
        let mut wanted = value();
        wanted["default_tools_approval_mode"] = "approve".into();
        let with = set(text, PATH, &wanted).unwrap();
        assert_eq!(with, text.replace("\"old\"", "\"/bin/workspool\""));
    }

    #[test]
    fn what_cannot_be_edited_is_refused() {
        assert!(set("mcp_servers = {}", PATH, &value()).is_err());
        assert!(set("a = = b", PATH, &value()).is_err());
        assert!(get("a = = b", PATH).is_err());
        assert_eq!(remove("a = 1\n", PATH).unwrap(), "a = 1\n");
    }
}
