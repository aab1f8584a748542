//! OpenAI's Chat Completions, as OpenAI and many others speak it.

use super::super::super::json::{count, list, text};
use super::{Ask, Call, Decoder, Failure, Item, Reply, Stop, set, slot, unreadable};
use crate::model::Usage;
use serde_json::{Map, Value, json};

/// Fields of a message that text and calls say already.
const OURS: &[&str] = &["role", "content", "tool_calls", "refusal", "function_call", "annotations", "audio"];

/// Makes the body of a request.
pub(super) fn body(ask: &Ask<'_>) -> Value {
    let settings = ask.settings;
    let mut messages = vec![json!({"role": "system", "content": ask.system})];
    messages.extend(ask.items.iter().map(|item| message(item, !ask.spared.thoughts)));
    let tools: Vec<Value> = ask
        .tools
        .iter()
        .map(|t| {
            json!({"type": "function", "function": {"name": t.name, "description": t.description, "parameters": t.schema}})
        })
        .collect();
    let mut body = json!({"model": settings.model, "stream": true, "messages": messages, "tools": tools});
    // OpenAI knows only the new name for newer models; most others know only the old one.
    let limit =
        if settings.is_vendor == ask.spared.other_limit { "max_tokens" } else { "max_completion_tokens" };
    body[limit] = settings.max_output_tokens.into();
    set(&mut body, "temperature", settings.temperature.filter(|_| !ask.spared.temperature));
    set(&mut body, "reasoning_effort", settings.effort.clone());
    let options = json!({"include_usage": true});
    set(&mut body, "stream_options", Some(options).filter(|_| !ask.spared.stream_options));
    body
}

fn message(item: &Item, thoughts: bool) -> Value {
    match item {
        Item::User { text } => json!({"role": "user", "content": text}),
        Item::Result { call, output, .. } => json!({"role": "tool", "tool_call_id": call, "content": output}),
        // Native is one whole message here.
        Item::Assistant { native, .. } if thoughts && !native.is_empty() => native[0].clone(),
        Item::Assistant { text, calls, .. } => {
            let content = if text.is_empty() { Value::Null } else { Value::from(text.as_str()) };
            let mut message = json!({"role": "assistant", "content": content});
            if !calls.is_empty() {
                message["tool_calls"] = calls.iter().map(|c| tool_call(c, Map::new())).collect();
            }
            message
        }
    }
}

/// A call as it goes back: some servers refuse a whole conversation over broken arguments.
fn tool_call(call: &Call, mut extra: Map<String, Value>) -> Value {
    let whole = serde_json::from_str::<Map<String, Value>>(&call.arguments).is_ok();
    let arguments = if whole { call.arguments.as_str() } else { "{}" };
    extra.insert("id".into(), call.id.as_str().into());
    extra.insert("type".into(), "function".into());
    extra.insert("function".into(), json!({"name": call.name, "arguments": arguments}));
    Value::Object(extra)
}

/// Reads an answer.
#[derive(Default)]
pub(super) struct Chat {
    text: String,
    refusal: String,
    calls: Vec<Piece>,
    /// What else the message holds, such as thoughts that are wanted back.
    extra: Map<String, Value>,
    stop: Option<String>,
    model: Option<String>,
    usage: Option<Value>,
}

/// A call, as far as it came.
#[derive(Default)]
struct Piece {
    id: String,
    name: String,
    arguments: String,
    extra: Map<String, Value>,
}

impl Chat {
    fn head(&mut self, chunk: &Value) -> Result<(), Failure> {
        if chunk.get("error").is_some_and(|e| !e.is_null()) {
            return Err(Failure::told(None, chunk.to_string().as_bytes()));
        }
        self.model = text(chunk, "model").map(str::to_owned).or(self.model.take());
        if let Some(usage) = chunk.get("usage").filter(|u| u.is_object()) {
            self.usage = Some(usage.clone());
        }
        Ok(())
    }

    /// Takes a piece of the message, or all of it.
    fn message(&mut self, message: &Value) -> Result<(), Failure> {
        self.text.push_str(text(message, "content").unwrap_or_default());
        self.refusal.push_str(text(message, "refusal").unwrap_or_default());
        for call in list(message, "tool_calls") {
            self.call(call)?;
        }
        let extra = message.as_object().into_iter().flatten();
        for (name, value) in extra.filter(|(n, v)| !OURS.contains(&n.as_str()) && !v.is_null()) {
            match (self.extra.get_mut(name), value) {
                (Some(Value::String(so_far)), Value::String(more)) => so_far.push_str(more),
                (Some(Value::Array(so_far)), Value::Array(more)) => so_far.extend(more.iter().cloned()),
                _ => {
                    self.extra.insert(name.clone(), value.clone());
                }
            }
        }
        Ok(())
    }

    /// Finds the call that a piece belongs to, or the place of a new one.
    ///
    /// Some servers number all calls 0, and some number none: a new id begins a new call there.
    fn index_of(&self, index: Option<u64>, id: Option<&str>, name: Option<&str>) -> u64 {
        let new = self.calls.len() as u64;
        if let Some(same) = id.and_then(|id| self.calls.iter().position(|piece| piece.id == id)) {
            return same as u64;
        }
        match index {
            // A number that another id has already is no number.
            Some(index) => {
                let taken = usize::try_from(index).ok().and_then(|at| self.calls.get(at));
                let other = taken.is_some_and(|piece| id.is_some() && !piece.id.is_empty());
                if other { new } else { index }
            }
            None if id.is_none() && name.is_none() => new.saturating_sub(1),
            None => new,
        }
    }

    fn call(&mut self, delta: &Value) -> Result<(), Failure> {
        let id = text(delta, "id");
        let name = text(delta, "function.name");
        let index = self.index_of(count(delta, "index"), id, name);
        let piece = slot(&mut self.calls, index)?;
        if let Some(id) = id {
            piece.id = id.to_owned();
        }
        if let Some(name) = name.filter(|_| piece.name.is_empty()) {
            piece.name = name.to_owned();
        }
        match delta.get("function").and_then(|f| f.get("arguments")) {
            Some(Value::String(more)) => piece.arguments.push_str(more),
            Some(object @ Value::Object(_)) => piece.arguments = object.to_string(),
            _ => {}
        }
        let extra = delta.as_object().into_iter().flatten();
        for (name, value) in extra.filter(|(n, _)| !["index", "id", "type", "function"].contains(&n.as_str()))
        {
            piece.extra.insert(name.clone(), value.clone());
        }
        Ok(())
    }
}

impl Decoder for Chat {
    fn event(&mut self, chunk: Value) -> Result<bool, Failure> {
        self.head(&chunk)?;
        if let Some(choice) = list(&chunk, "choices").first() {
            self.message(&choice["delta"])?;
            self.stop = text(choice, "finish_reason").map(str::to_owned).or(self.stop.take());
        }
        Ok(false)
    }

    fn whole(&mut self, answer: Value) -> Result<(), Failure> {
        self.head(&answer)?;
        let Some(choice) = list(&answer, "choices").first() else {
            return Err(unreadable("it holds no choice"));
        };
        self.message(&choice["message"])?;
        self.stop = Some(text(choice, "finish_reason").unwrap_or("stop").to_owned());
        Ok(())
    }

    fn is_complete(&self) -> bool {
        self.stop.is_some()
    }

    fn usage(&self) -> Usage {
        let Some(usage) = &self.usage else { return Usage::default() };
        let cached = count(usage, "prompt_tokens_details.cached_tokens")
            .or_else(|| count(usage, "prompt_cache_hit_tokens"));
        Usage {
            input_tokens: count(usage, "prompt_tokens").map(|n| n.saturating_sub(cached.unwrap_or(0))),
            output_tokens: count(usage, "completion_tokens"),
            cached_tokens: cached,
            ..Usage::default()
        }
    }

    fn model(&self) -> Option<String> {
        self.model.clone()
    }

    fn reply(mut self: Box<Self>) -> Reply {
        let (mut calls, mut raw, mut extra) = (Vec::new(), Vec::new(), !self.extra.is_empty());
        for (k, piece) in self.calls.into_iter().enumerate().filter(|(_, p)| !p.name.is_empty()) {
            let id = if piece.id.is_empty() { format!("call_{k}") } else { piece.id };
            let arguments = if piece.arguments.trim().is_empty() { "{}".to_owned() } else { piece.arguments };
            let call = Call { id, name: piece.name, arguments };
            extra |= !piece.extra.is_empty();
            raw.push(tool_call(&call, piece.extra));
            calls.push(call);
        }
        let mut native = Vec::new();
        if extra && (!calls.is_empty() || !self.text.is_empty()) {
            self.extra.insert("role".into(), "assistant".into());
            let content = if self.text.is_empty() { Value::Null } else { self.text.clone().into() };
            self.extra.insert("content".into(), content);
            if !raw.is_empty() {
                self.extra.insert("tool_calls".into(), raw.into());
            }
            native.push(Value::Object(self.extra));
        }
        let stop = match self.stop.as_deref() {
            _ if !self.refusal.is_empty() => Stop::Refused(self.refusal),
            Some("length") => Stop::Length,
            Some("content_filter") => Stop::Refused("the provider's filter stopped the answer".into()),
            _ => Stop::Done,
        };
        Reply { text: self.text, calls, native, stop }
    }
}
