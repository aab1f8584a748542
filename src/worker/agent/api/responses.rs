//! OpenAI's Responses.

use super::super::super::json::{count, list, text};
use super::{Ask, Call, Decoder, Failure, Item, Reply, Stop, set};
use crate::model::Usage;
use serde_json::{Value, json};

/// Makes the body of a request. Nothing is stored at the provider: the whole conversation goes each time.
pub(super) fn body(ask: &Ask<'_>) -> Value {
    let settings = ask.settings;
    let tools: Vec<Value> = ask
        .tools
        .iter()
        .map(|t| {
            json!({"type": "function", "name": t.name, "description": t.description, "parameters": t.schema, "strict": false})
        })
        .collect();
    let mut body = json!({
        "model": settings.model,
        "stream": true,
        "store": false,
        "instructions": ask.system,
        "input": input(ask.items),
        "tools": tools,
        "max_output_tokens": settings.max_output_tokens,
    });
    set(&mut body, "temperature", settings.temperature.filter(|_| !ask.spared.temperature));
    set(&mut body, "reasoning", settings.effort.as_ref().map(|effort| json!({"effort": effort})));
    // What is not stored there must be kept here for the model to think on.
    let include = json!(["reasoning.encrypted_content"]);
    set(&mut body, "include", Some(include).filter(|_| !ask.spared.encrypted_thoughts));
    body
}

fn input(items: &[Item]) -> Vec<Value> {
    let mut input = Vec::new();
    for item in items {
        match item {
            Item::User { text } => input.push(
                json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}),
            ),
            Item::Assistant { native, .. } if !native.is_empty() => input.extend(native.iter().cloned()),
            Item::Assistant { text, calls, .. } => {
                if !text.is_empty() {
                    input.push(json!({
                        "type": "message",
                        "role": "assistant",
                        "content": [{"type": "output_text", "text": text}],
                    }));
                }
                input.extend(calls.iter().map(|c| {
                    json!({"type": "function_call", "call_id": c.id, "name": c.name, "arguments": c.arguments})
                }));
            }
            Item::Result { call, output, .. } => {
                input.push(json!({"type": "function_call_output", "call_id": call, "output": output}));
            }
        }
    }
    input
}

/// Reads an answer.
#[derive(Default)]
pub(super) struct Responses {
    items: Vec<Value>,
    /// The whole response, once it has ended.
    end: Option<Value>,
    model: Option<String>,
}

impl Responses {
    fn end(&mut self, response: Value) {
        if self.items.is_empty() {
            self.items = list(&response, "output").to_vec();
        }
        self.model = text(&response, "model").map(str::to_owned).or(self.model.take());
        self.end = Some(response);
    }
}

impl Decoder for Responses {
    fn event(&mut self, event: Value) -> Result<bool, Failure> {
        match text(&event, "type").unwrap_or_default() {
            "response.created" => {
                self.model = text(&event, "response.model").map(str::to_owned);
            }
            "response.output_item.done" => self.items.push(event["item"].clone()),
            "response.completed" | "response.incomplete" => self.end(event["response"].clone()),
            "response.failed" => {
                self.end = Some(event["response"].clone());
                return Err(Failure::told(None, event["response"].to_string().as_bytes()));
            }
            "error" => return Err(Failure::told(None, event.to_string().as_bytes())),
            "" if event.get("error").is_some() => {
                return Err(Failure::told(None, event.to_string().as_bytes()));
            }
            // Pieces of what comes whole in the end, and what is to come.
            _ => {}
        }
        Ok(self.end.is_some())
    }

    fn whole(&mut self, response: Value) -> Result<(), Failure> {
        if response.get("error").is_some_and(|e| !e.is_null()) {
            return Err(Failure::told(None, response.to_string().as_bytes()));
        }
        self.end(response);
        Ok(())
    }

    fn is_complete(&self) -> bool {
        self.end.is_some()
    }

    fn usage(&self) -> Usage {
        let Some(usage) = self.end.as_ref().and_then(|end| end.get("usage")) else { return Usage::default() };
        let cached = count(usage, "input_tokens_details.cached_tokens");
        Usage {
            input_tokens: count(usage, "input_tokens").map(|n| n.saturating_sub(cached.unwrap_or(0))),
            output_tokens: count(usage, "output_tokens"),
            cached_tokens: cached,
            ..Usage::default()
        }
    }

    fn model(&self) -> Option<String> {
        self.model.clone()
    }

    fn reply(self: Box<Self>) -> Reply {
        let end = self.end.unwrap_or_default();
        let (mut said, mut refusal, mut calls, mut native) = (String::new(), None, Vec::new(), Vec::new());
        for mut item in self.items {
            match text(&item, "type").unwrap_or_default() {
                "message" => {
                    for part in list(&item, "content") {
                        said.push_str(text(part, "text").unwrap_or_default());
                        refusal = text(part, "refusal").map(str::to_owned).or(refusal);
                    }
                }
                "function_call" => {
                    let mut call = Call {
                        id: text(&item, "call_id").or(text(&item, "id")).unwrap_or_default().to_owned(),
                        name: text(&item, "name").unwrap_or_default().to_owned(),
                        arguments: text(&item, "arguments").unwrap_or("{}").to_owned(),
                    };
                    if call.id.is_empty() {
                        call.id = format!("call_{}", calls.len());
                    }
                    item["call_id"] = call.id.as_str().into();
                    calls.push(call);
                }
                // A thought that was neither stored nor encrypted cannot be referred to.
                "reasoning" if text(&item, "encrypted_content").is_none() => continue,
                _ => {}
            }
            if let Some(fields) = item.as_object_mut() {
                // Ids name what the provider has stored, and it has stored nothing.
                fields.remove("id");
                fields.remove("status");
            }
            native.push(item);
        }
        // A thought that led to nothing is not taken back.
        while native.last().is_some_and(|item| item["type"] == "reasoning") {
            native.pop();
        }
        let stop = match (refusal, text(&end, "incomplete_details.reason")) {
            (Some(refusal), _) => Stop::Refused(refusal),
            (None, Some("content_filter")) => {
                Stop::Refused("the provider's filter stopped the answer".to_owned())
            }
            (None, Some(_)) => Stop::Length,
            (None, None) => Stop::Done,
        };
        Reply { text: said, calls, native, stop }
    }
}
