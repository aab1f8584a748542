//! What a request asks, whatever API it speaks.

use serde_json::Value;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wire {
    Anthropic,
    Responses,
    Chat,
    Gemini,
}

impl Wire {
    /// The API of a path, if it is one that answers.
    pub fn of(method: &str, path: &str) -> Option<Wire> {
        let path = path.split('?').next().unwrap_or_default();
        match path {
            _ if method != "POST" => None,
            _ if path.ends_with("/messages") => Some(Wire::Anthropic),
            _ if path.ends_with("/responses") => Some(Wire::Responses),
            _ if path.ends_with("/chat/completions") => Some(Wire::Chat),
            _ if path.contains("enerateContent") => Some(Wire::Gemini),
            _ => None,
        }
    }
}

/// A request, read.
#[derive(Debug)]
pub struct Ask {
    /// All text of the conversation.
    pub text: String,
    /// Results of tools since the user last gave an order (`[[…]]`).
    pub results: usize,
    /// The tools, by name.
    pub tools: Vec<(String, Value)>,
    /// Whether an answer in JSON is wanted, as Gemini's own helpers do.
    pub wants_json: bool,
}

impl Ask {
    pub fn of(wire: Wire, body: &Value) -> Ask {
        let key = match wire {
            Wire::Anthropic | Wire::Chat => "messages",
            Wire::Responses => "input",
            Wire::Gemini => "contents",
        };
        let items = match &body[key] {
            Value::String(text) => vec![serde_json::json!({"role": "user", "content": text})],
            other => other.as_array().cloned().unwrap_or_default(),
        };
        let mut results = 0;
        for item in &items {
            if is_result(wire, item) {
                results += 1;
            } else if item["role"] == "user" && all_text(item).contains("[[") {
                results = 0;
            }
        }
        let text = items.iter().map(all_text).collect::<Vec<_>>().join("\n");
        Ask { text, results, tools: tools(wire, body), wants_json: wants_json(body) }
    }

    pub fn tool(&self, name: &str) -> Option<&Value> {
        self.tools.iter().find(|(known, _)| known == name).map(|(_, tool)| tool)
    }
}

fn is_result(wire: Wire, item: &Value) -> bool {
    let parts = |key: &str| item[key].as_array().cloned().unwrap_or_default();
    match wire {
        Wire::Anthropic => parts("content").iter().any(|p| p["type"] == "tool_result"),
        Wire::Chat => item["role"] == "tool",
        Wire::Responses => item["type"].as_str().is_some_and(|t| t.ends_with("_call_output")),
        Wire::Gemini => parts("parts").iter().any(|p| p.get("functionResponse").is_some()),
    }
}

fn tools(wire: Wire, body: &Value) -> Vec<(String, Value)> {
    let name = |tool: &Value| {
        let name = tool["function"]["name"].as_str().or(tool["name"].as_str()).or(tool["type"].as_str());
        name.map(|name| (name.to_owned(), tool.clone()))
    };
    let list = body["tools"].as_array().cloned().unwrap_or_default();
    if wire == Wire::Gemini {
        let declared = list.iter().filter_map(|t| t["functionDeclarations"].as_array()).flatten();
        return declared.filter_map(name).collect();
    }
    list.iter().filter_map(name).collect()
}

fn wants_json(body: &Value) -> bool {
    let config = &body["generationConfig"];
    config["responseMimeType"] == "application/json" || config.get("responseJsonSchema").is_some()
}

fn all_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(all_text).collect::<Vec<_>>().join("\n"),
        Value::Object(fields) => fields.values().map(all_text).collect::<Vec<_>>().join("\n"),
        _ => String::new(),
    }
}
