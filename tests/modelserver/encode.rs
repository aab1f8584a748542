//! Answers and refusals in the form of each API.

use super::ask::Wire;
use super::{Failure, Reply};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU64, Ordering};

/// Name and data of an event.
type Event = (String, String);

/// Figures of every answer: what is read anew, what is read from the cache, what is written.
pub const INPUT: u64 = 1200;
pub const CACHED: u64 = 300;
pub const OUTPUT: u64 = 42;

fn id(kind: &str) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    format!("{kind}_{:08}", NEXT.fetch_add(1, Ordering::Relaxed))
}

fn event(data: Value) -> Event {
    (data["type"].as_str().unwrap_or_default().to_owned(), data.to_string())
}

/// Splits a text into words, each with the space after it.
fn words(text: &str) -> Vec<&str> {
    text.split_inclusive(' ').collect()
}

/// The events of a streamed answer.
pub fn events(wire: Wire, reply: &Reply, model: &str) -> Vec<Event> {
    match wire {
        Wire::Anthropic => anthropic_events(reply, model),
        Wire::Responses => responses_events(reply, model),
        Wire::Chat => chat_events(reply, model),
        Wire::Gemini => vec![(String::new(), gemini(reply).to_string())],
    }
}

/// The same in one piece.
pub fn whole(wire: Wire, reply: &Reply, model: &str) -> Value {
    match wire {
        Wire::Anthropic => anthropic_message(reply, model),
        Wire::Responses => response(model, responses_items(reply), reply),
        Wire::Chat => {
            let mut message = json!({"role": "assistant", "content": reply.text});
            if !reply.calls.is_empty() {
                message["tool_calls"] = chat_calls(reply).into();
            }
            json!({"id": id("chatcmpl"), "object": "chat.completion", "model": model, "usage": chat_usage(),
                "choices": [{"index": 0, "message": message, "finish_reason": chat_finish(reply)}]})
        }
        Wire::Gemini => gemini(reply),
    }
}

/// The body of a refusal.
pub fn failure(wire: Wire, failure: &Failure) -> Value {
    let Failure { status, kind, message, .. } = failure;
    match wire {
        Wire::Anthropic => {
            json!({"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_scripted"})
        }
        Wire::Gemini => {
            let word = match status {
                400 => "INVALID_ARGUMENT",
                401 => "UNAUTHENTICATED",
                403 => "PERMISSION_DENIED",
                404 => "NOT_FOUND",
                429 => "RESOURCE_EXHAUSTED",
                500 => "INTERNAL",
                _ => "UNKNOWN",
            };
            json!({"error": {"code": status, "message": message, "status": word}})
        }
        Wire::Chat | Wire::Responses => {
            let code = if *status == 404 { "model_not_found" } else { kind };
            json!({"error": {"message": message, "type": kind, "param": null, "code": code}})
        }
    }
}

/// An event that says that the answer failed.
pub fn failure_midway(wire: Wire) -> Event {
    match wire {
        Wire::Anthropic => event(json!({"type": "error",
            "error": {"type": "overloaded_error", "message": "Overloaded midstream (scripted)"}})),
        Wire::Responses => event(json!({"type": "response.failed", "response": {"status": "failed",
            "error": {"code": "server_error", "message": "failed midstream (scripted)"}}})),
        Wire::Chat | Wire::Gemini => {
            let error = json!({"error": {"message": "failed midstream (scripted)", "type": "server_error", "code": 500}});
            (String::new(), error.to_string())
        }
    }
}

fn anthropic_message(reply: &Reply, model: &str) -> Value {
    let mut content = Vec::new();
    if let Some(thought) = &reply.thought {
        content.push(json!({"type": "thinking", "thinking": thought, "signature": "c2lnbmVkIHRob3VnaHQ="}));
    }
    if !reply.text.is_empty() || reply.calls.is_empty() && !reply.cut_off {
        content.push(json!({"type": "text", "text": reply.text}));
    }
    for (name, arguments) in &reply.calls {
        let input: Value = serde_json::from_str(arguments).unwrap_or_else(|_| json!({}));
        content.push(json!({"type": "tool_use", "id": id("toolu"), "name": name, "input": input}));
    }
    let stop = match reply {
        r if r.cut_off => "max_tokens",
        r if r.calls.is_empty() => "end_turn",
        _ => "tool_use",
    };
    json!({"id": id("msg"), "type": "message", "role": "assistant", "model": model, "content": content,
        "stop_reason": stop, "stop_sequence": null,
        "usage": {"input_tokens": INPUT, "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": CACHED, "output_tokens": OUTPUT}})
}

fn anthropic_events(reply: &Reply, model: &str) -> Vec<Event> {
    let message = anthropic_message(reply, model);
    let mut start = message.clone();
    start["content"] = json!([]);
    start["stop_reason"] = Value::Null;
    start["usage"]["output_tokens"] = 1.into();
    let mut events =
        vec![event(json!({"type": "message_start", "message": start})), event(json!({"type": "ping"}))];
    let mut raw = reply.calls.iter().map(|(_, arguments)| arguments);
    for (index, block) in message["content"].as_array().into_iter().flatten().enumerate() {
        let (mut start, mut deltas) = (block.clone(), Vec::new());
        match block["type"].as_str() {
            Some("text") => {
                start["text"] = "".into();
                let text = block["text"].as_str().unwrap();
                deltas.extend(words(text).iter().map(|w| json!({"type": "text_delta", "text": w})));
            }
            Some("thinking") => {
                (start["thinking"], start["signature"]) = ("".into(), "".into());
                deltas.push(json!({"type": "thinking_delta", "thinking": block["thinking"]}));
                deltas.push(json!({"type": "signature_delta", "signature": block["signature"]}));
            }
            _ => {
                start["input"] = json!({});
                let arguments = words(raw.next().unwrap());
                deltas
                    .extend(arguments.iter().map(|w| json!({"type": "input_json_delta", "partial_json": w})));
            }
        }
        events.push(event(json!({"type": "content_block_start", "index": index, "content_block": start})));
        events.extend(
            deltas
                .into_iter()
                .map(|d| event(json!({"type": "content_block_delta", "index": index, "delta": d}))),
        );
        events.push(event(json!({"type": "content_block_stop", "index": index})));
    }
    events.push(event(json!({"type": "message_delta", "usage": {"output_tokens": OUTPUT},
        "delta": {"stop_reason": message["stop_reason"], "stop_sequence": null}})));
    events.push(event(json!({"type": "message_stop"})));
    events
}

fn responses_items(reply: &Reply) -> Vec<Value> {
    let mut items = Vec::new();
    if let Some(thought) = &reply.thought {
        items.push(json!({"type": "reasoning", "id": id("rs"), "encrypted_content": "c2VhbGVk",
            "summary": [{"type": "summary_text", "text": thought}]}));
    }
    if !reply.text.is_empty() || reply.calls.is_empty() && reply.custom.is_none() && !reply.cut_off {
        let part = json!({"type": "output_text", "text": reply.text, "annotations": []});
        items.push(json!({"type": "message", "id": id("msg"), "role": "assistant", "status": "completed",
            "content": [part]}));
    }
    for (name, arguments) in &reply.calls {
        let mut item = json!({"type": "function_call", "id": id("fc"), "call_id": id("call"), "name": name,
            "arguments": arguments, "status": "completed"});
        if let Some((space, name)) = name.split_once(':') {
            (item["namespace"], item["name"]) = (space.into(), name.into());
        }
        items.push(item);
    }
    if let Some((name, input)) = &reply.custom {
        items.push(json!({"type": "custom_tool_call", "id": id("ctc"), "call_id": id("call"), "name": name,
            "input": input, "status": "completed"}));
    }
    items
}

fn response(model: &str, items: Vec<Value>, reply: &Reply) -> Value {
    let mut response = json!({"id": id("resp"), "object": "response", "created_at": 1_700_000_000,
        "status": "completed", "model": model, "output": items, "usage": {
            "input_tokens": INPUT + CACHED, "input_tokens_details": {"cached_tokens": CACHED},
            "output_tokens": OUTPUT, "output_tokens_details": {"reasoning_tokens": 10},
            "total_tokens": INPUT + CACHED + OUTPUT}});
    if reply.cut_off {
        response["status"] = "incomplete".into();
        response["incomplete_details"] = json!({"reason": "max_output_tokens"});
    }
    response
}

fn responses_events(reply: &Reply, model: &str) -> Vec<Event> {
    let items = responses_items(reply);
    let whole = response(model, items.clone(), reply);
    let mut begun = whole.clone();
    (begun["status"], begun["output"], begun["usage"]) = ("in_progress".into(), json!([]), Value::Null);
    let mut events = vec![json!({"type": "response.created", "response": begun})];
    for (k, item) in items.iter().enumerate() {
        let (mut start, item_id) = (item.clone(), item["id"].clone());
        let at = |kind: &str, more: Value| {
            let mut event = json!({"type": kind, "item_id": item_id, "output_index": k});
            event.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            event
        };
        let mut middle = Vec::new();
        match item["type"].as_str() {
            Some("message") => {
                (start["content"], start["status"]) = (json!([]), "in_progress".into());
                let part = json!({"type": "output_text", "text": "", "annotations": []});
                middle.push(at("response.content_part.added", json!({"content_index": 0, "part": part})));
                for word in words(&reply.text) {
                    let delta = json!({"content_index": 0, "delta": word});
                    middle.push(at("response.output_text.delta", delta));
                }
                let text = json!({"content_index": 0, "text": reply.text});
                middle.push(at("response.output_text.done", text));
            }
            Some("function_call") => {
                (start["arguments"], start["status"]) = ("".into(), "in_progress".into());
                let arguments = &item["arguments"];
                middle.push(at("response.function_call_arguments.delta", json!({"delta": arguments})));
                middle.push(at("response.function_call_arguments.done", json!({"arguments": arguments})));
            }
            _ => {}
        }
        events.push(json!({"type": "response.output_item.added", "output_index": k, "item": start}));
        events.extend(middle);
        events.push(json!({"type": "response.output_item.done", "output_index": k, "item": item}));
    }
    let last = if reply.cut_off { "response.incomplete" } else { "response.completed" };
    events.push(json!({"type": last, "response": whole}));
    let numbered = events.into_iter().enumerate().map(|(k, mut e)| {
        e["sequence_number"] = k.into();
        event(e)
    });
    numbered.collect()
}

fn chat_calls(reply: &Reply) -> Vec<Value> {
    let call = |(name, arguments): &(String, String)| json!({"id": id("call"), "type": "function", "function": {"name": name, "arguments": arguments}});
    reply.calls.iter().map(call).collect()
}

fn chat_usage() -> Value {
    json!({"prompt_tokens": INPUT + CACHED, "completion_tokens": OUTPUT,
        "total_tokens": INPUT + CACHED + OUTPUT, "prompt_tokens_details": {"cached_tokens": CACHED}})
}

fn chat_finish(reply: &Reply) -> &'static str {
    match reply {
        r if r.cut_off => "length",
        r if r.calls.is_empty() => "stop",
        _ => "tool_calls",
    }
}

fn chat_events(reply: &Reply, model: &str) -> Vec<Event> {
    let chat_id = id("chatcmpl");
    let chunk = |choices: Value| {
        json!({"id": chat_id, "object": "chat.completion.chunk", "created": 1_700_000_000, "model": model,
            "choices": choices})
    };
    let delta = |delta: Value| chunk(json!([{"index": 0, "delta": delta, "finish_reason": null}]));
    let mut events = vec![delta(json!({"role": "assistant", "content": ""}))];
    if let Some(thought) = &reply.thought {
        events.extend(words(thought).iter().map(|w| delta(json!({"reasoning_content": w}))));
    }
    events.extend(words(&reply.text).iter().map(|w| delta(json!({"content": w}))));
    for (k, call) in chat_calls(reply).into_iter().enumerate() {
        let mut start = call.clone();
        (start["index"], start["function"]["arguments"]) = (k.into(), "".into());
        events.push(delta(json!({"tool_calls": [start]})));
        for word in words(call["function"]["arguments"].as_str().unwrap()) {
            events.push(delta(json!({"tool_calls": [{"index": k, "function": {"arguments": word}}]})));
        }
    }
    events.push(chunk(json!([{"index": 0, "delta": {}, "finish_reason": chat_finish(reply)}])));
    let mut last = chunk(json!([]));
    last["usage"] = chat_usage();
    events.push(last);
    let mut events: Vec<Event> = events.into_iter().map(|e| (String::new(), e.to_string())).collect();
    events.push((String::new(), "[DONE]".into()));
    events
}

fn gemini(reply: &Reply) -> Value {
    let mut parts = Vec::new();
    if !reply.text.is_empty() || reply.calls.is_empty() {
        parts.push(json!({"text": reply.text}));
    }
    for (name, arguments) in &reply.calls {
        let args: Value = serde_json::from_str(arguments).unwrap_or_else(|_| json!({}));
        parts.push(json!({"functionCall": {"name": name, "args": args}}));
    }
    let finish = if reply.cut_off { "MAX_TOKENS" } else { "STOP" };
    json!({"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": finish, "index": 0}],
        "usageMetadata": {"promptTokenCount": INPUT + CACHED, "candidatesTokenCount": OUTPUT,
            "cachedContentTokenCount": CACHED, "thoughtsTokenCount": 10,
            "totalTokenCount": INPUT + CACHED + OUTPUT + 10},
        "modelVersion": "scripted", "responseId": id("gemini")})
}
