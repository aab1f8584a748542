//! Anthropic's Messages.

use super::super::super::json::{count, list, text};
use super::{Ask, Call, Decoder, Failure, Item, Reply, Stop, set, slot, unreadable};
use crate::model::Usage;
use serde_json::{Value, json};

/// Makes the body of a request.
pub(super) fn body(ask: &Ask<'_>) -> Value {
    let settings = ask.settings;
    // Each request repeats the one before it: the marks let the provider read that from its cache.
    let cached = json!({"type": "ephemeral"});
    let mut messages = messages(ask.items);
    if let Some(last) =
        messages.last_mut().and_then(|m| m["content"].as_array_mut()?.last_mut()?.as_object_mut())
    {
        last.insert("cache_control".into(), cached.clone());
    }
    let tools: Vec<Value> = ask
        .tools
        .iter()
        .map(|t| json!({"name": t.name, "description": t.description, "input_schema": t.schema}))
        .collect();
    let mut body = json!({
        "model": settings.model,
        "max_tokens": settings.max_output_tokens,
        "stream": true,
        "system": [{"type": "text", "text": ask.system, "cache_control": cached}],
        "messages": messages,
        "tools": tools,
    });
    set(&mut body, "temperature", settings.temperature.filter(|_| !ask.spared.temperature));
    match settings.effort.as_deref() {
        Some(effort) if ask.spared.effort_in_words => {
            // Thinking is part of the answer's limit, and leaves no choice of a temperature.
            let budget = thinking_tokens(effort);
            body["thinking"] = json!({"type": "enabled", "budget_tokens": budget});
            body["max_tokens"] = (settings.max_output_tokens.saturating_add(budget)).into();
            body.as_object_mut().map(|fields| fields.remove("temperature"));
        }
        Some(effort) => body["output_config"] = json!({"effort": effort}),
        None => {}
    }
    body
}

/// How many tokens a model that knows no efforts may think in.
fn thinking_tokens(effort: &str) -> u32 {
    match effort {
        "low" => 2_048,
        "medium" => 8_192,
        "high" => 16_384,
        _ => 23_000,
    }
}

/// Roles alternate, and all results of one answer's calls stand in one message.
fn messages(items: &[Item]) -> Vec<Value> {
    let mut messages: Vec<Value> = Vec::new();
    for item in items {
        let (role, blocks) = match item {
            Item::User { text } => ("user", vec![json!({"type": "text", "text": text})]),
            Item::Assistant { native, .. } if !native.is_empty() => ("assistant", native.clone()),
            Item::Assistant { text, calls, .. } => {
                let mut blocks = Vec::new();
                if !text.trim().is_empty() {
                    blocks.push(json!({"type": "text", "text": text}));
                }
                blocks.extend(
                    calls.iter().map(
                        |c| json!({"type": "tool_use", "id": c.id, "name": c.name, "input": c.object()}),
                    ),
                );
                ("assistant", blocks)
            }
            Item::Result { call, output, ok, .. } => (
                "user",
                vec![json!({"type": "tool_result", "tool_use_id": call, "content": output, "is_error": !ok})],
            ),
        };
        match messages.last_mut().filter(|m| m["role"] == role).and_then(|m| m["content"].as_array_mut()) {
            Some(content) => content.extend(blocks),
            None => messages.push(json!({"role": role, "content": blocks})),
        }
    }
    messages
}

/// Reads an answer.
#[derive(Default)]
pub(super) struct Anthropic {
    blocks: Vec<Block>,
    stop: Option<String>,
    refusal: Option<String>,
    ended: bool,
    model: Option<String>,
    usage: Value,
}

/// A block of the answer, and the arguments that came for it in pieces.
#[derive(Default)]
struct Block {
    value: Value,
    arguments: String,
}

impl Anthropic {
    /// Takes figures; later ones replace earlier ones.
    fn use_up(&mut self, usage: Option<&Value>) {
        let Some(Value::Object(figures)) = usage else { return };
        for (name, figure) in figures.iter().filter(|(_, f)| f.is_number()) {
            self.usage[name] = figure.clone();
        }
    }

    fn head(&mut self, message: &Value) {
        self.model = text(message, "model").map(str::to_owned).or(self.model.take());
        self.use_up(message.get("usage"));
    }

    fn delta(&mut self, event: &Value) -> Result<(), Failure> {
        let block = slot(&mut self.blocks, count(event, "index").unwrap_or(0))?;
        let delta = &event["delta"];
        let (field, more) = match text(delta, "type").unwrap_or_default() {
            "text_delta" => ("text", text(delta, "text")),
            "thinking_delta" => ("thinking", text(delta, "thinking")),
            "signature_delta" => ("signature", text(delta, "signature")),
            "input_json_delta" => {
                block.arguments.push_str(text(delta, "partial_json").unwrap_or_default());
                return Ok(());
            }
            // Citations and what is to come: the text alone is what we need.
            _ => return Ok(()),
        };
        if !block.value.is_object() {
            return Err(unreadable("a piece came before its block"));
        }
        let whole =
            format!("{}{}", block.value[field].as_str().unwrap_or_default(), more.unwrap_or_default());
        block.value[field] = whole.into();
        Ok(())
    }

    fn stopped(&mut self, delta: &Value) {
        self.stop = text(delta, "stop_reason").map(str::to_owned).or(self.stop.take());
        self.refusal = text(delta, "stop_details.explanation").map(str::to_owned).or(self.refusal.take());
    }
}

impl Decoder for Anthropic {
    fn event(&mut self, event: Value) -> Result<bool, Failure> {
        match text(&event, "type").unwrap_or_default() {
            "message_start" => self.head(&event["message"]),
            "content_block_start" => {
                let block = slot(&mut self.blocks, count(&event, "index").unwrap_or(0))?;
                *block = Block { value: event["content_block"].clone(), arguments: String::new() };
            }
            "content_block_delta" => self.delta(&event)?,
            "message_delta" => {
                self.use_up(event.get("usage"));
                self.stopped(&event["delta"]);
            }
            "message_stop" => self.ended = true,
            "error" => return Err(Failure::told(None, event.to_string().as_bytes())),
            "" if event.get("error").is_some() => {
                return Err(Failure::told(None, event.to_string().as_bytes()));
            }
            // `content_block_stop`, `ping`, and what is to come.
            _ => {}
        }
        Ok(self.ended)
    }

    fn whole(&mut self, message: Value) -> Result<(), Failure> {
        if message.get("error").is_some() {
            return Err(Failure::told(None, message.to_string().as_bytes()));
        }
        self.head(&message);
        let blocks = list(&message, "content").iter().cloned();
        self.blocks = blocks.map(|value| Block { value, arguments: String::new() }).collect();
        self.stopped(&message);
        Ok(())
    }

    fn is_complete(&self) -> bool {
        self.ended || self.stop.is_some()
    }

    fn usage(&self) -> Usage {
        let figure = |name| count(&self.usage, name);
        let written = figure("cache_creation_input_tokens");
        Usage {
            // What is written into the cache was read by the model all the same.
            input_tokens: figure("input_tokens").map(|n| n.saturating_add(written.unwrap_or(0))).or(written),
            output_tokens: figure("output_tokens"),
            cached_tokens: figure("cache_read_input_tokens"),
            ..Usage::default()
        }
    }

    fn model(&self) -> Option<String> {
        self.model.clone()
    }

    fn reply(self: Box<Self>) -> Reply {
        let (mut said, mut calls, mut native) = (String::new(), Vec::new(), Vec::new());
        for Block { mut value, arguments } in self.blocks {
            match text(&value, "type").unwrap_or_default() {
                "text" => {
                    let piece = text(&value, "text").unwrap_or_default();
                    if piece.trim().is_empty() {
                        continue;
                    }
                    said.push_str(piece);
                }
                "tool_use" => {
                    let arguments =
                        if arguments.trim().is_empty() { value["input"].to_string() } else { arguments };
                    let call = Call {
                        id: text(&value, "id").unwrap_or_default().to_owned(),
                        name: text(&value, "name").unwrap_or_default().to_owned(),
                        arguments,
                    };
                    value["input"] = call.object();
                    calls.push(call);
                }
                "" => continue,
                _ => {}
            }
            native.push(value);
        }
        // A thought that led to nothing is not taken back.
        while native.last().is_some_and(|b| b["type"] == "thinking" || b["type"] == "redacted_thinking") {
            native.pop();
        }
        let stop = match self.stop.as_deref() {
            Some("max_tokens") => Stop::Length,
            Some("pause_turn") => Stop::Pause,
            Some("refusal") => {
                Stop::Refused(self.refusal.unwrap_or_else(|| "the model refused to answer".into()))
            }
            Some("model_context_window_exceeded") => Stop::ContextFull,
            _ => Stop::Done,
        };
        Reply { text: said, calls, native, stop }
    }
}
