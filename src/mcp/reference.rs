//! The reference of all tools, prompts and resources, made from what the server itself says.

use super::tool::{Effect, Tool};
use super::{prompts, resources, tools};
use serde_json::Value;

/// Writes the reference as Markdown: a part of `docs/mcp.md`.
pub fn reference() -> String {
    let mut out = String::from("## Tools\n");
    for tool in tools::ALL.iter() {
        write_tool(tool, &mut out);
    }
    out.push_str("\n## Resources\n\n| address | type | what it is |\n| --- | --- | --- |\n");
    for template in resources::templates().resource_templates {
        out.push_str(&format!(
            "| `{}` | {} | {} |\n",
            template.uri_template,
            template.mime_type.unwrap_or_default(),
            template.description.unwrap_or_default()
        ));
    }
    out.push_str("\n## Prompts\n\n| prompt | arguments | what it does |\n| --- | --- | --- |\n");
    for prompt in prompts::list().prompts {
        let arguments: Vec<String> = prompt
            .arguments
            .into_iter()
            .flatten()
            .map(
                |a| if a.required == Some(true) { format!("`{}`", a.name) } else { format!("`{}`?", a.name) },
            )
            .collect();
        out.push_str(&format!(
            "| `{}` | {} | {} |\n",
            prompt.name,
            arguments.join(", "),
            prompt.description.unwrap_or_default()
        ));
    }
    out
}

fn write_tool(tool: &Tool, out: &mut String) {
    let effect = match tool.effect {
        Effect::Reads => "Reads only.",
        Effect::Adds => "Adds; nothing is lost by it.",
        Effect::Sets => "Changes; calling it twice is calling it once.",
        Effect::Decides => "Ends or changes something for good.",
    };
    out.push_str(&format!("\n### `{}`\n\n{} {effect}\n", tool.name, tool.about));
    let required: Vec<&str> = tool
        .input
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let Some(Value::Object(fields)) = tool.input.get("properties") else { return };
    if fields.is_empty() {
        return;
    }
    out.push_str("\n| argument | type | what it is |\n| --- | --- | --- |\n");
    for (name, field) in fields {
        let mark = if required.contains(&name.as_str()) { " (required)" } else { "" };
        let about = field.get("description").and_then(Value::as_str).unwrap_or_default();
        let about = about.split("\n- ").next().unwrap_or_default().replace('\n', " ").replace('|', "\\|");
        out.push_str(&format!("| `{name}`{mark} | {} | {about}{} |\n", kind(field), limits(field)));
    }
}

fn kind(field: &Value) -> String {
    if let Some(Value::Array(words)) = field.get("enum") {
        let words: Vec<String> = words.iter().filter_map(Value::as_str).map(|w| format!("`{w}`")).collect();
        return words.join(", ");
    }
    for keyword in ["anyOf", "oneOf"] {
        if let Some(Value::Array(choices)) = field.get(keyword) {
            return choices.iter().map(kind).collect::<Vec<_>>().join(" or ");
        }
    }
    match field.get("type").and_then(Value::as_str) {
        Some("array") => format!("list of {}", field.get("items").map(kind).unwrap_or_default()),
        Some(other) => other.to_owned(),
        None => "any".to_owned(),
    }
}

fn limits(field: &Value) -> String {
    let mut text = String::new();
    if let Some(default) =
        field.get("default").filter(|d| **d != Value::Bool(false) && d.as_array().is_none())
    {
        text.push_str(&format!(" Default: {default}."));
    }
    match (field.get("minimum"), field.get("maximum")) {
        (Some(least), Some(most)) => text.push_str(&format!(" {least} to {most}.")),
        (None, Some(most)) => text.push_str(&format!(" At most {most}.")),
        _ => {}
    }
    text
}
