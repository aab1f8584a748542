//! Whatever a server sends: no decoder panics, and a request is well-formed after anything.

use super::super::conversation::Item;
use super::super::settings::Settings;
use super::super::{ApiChoice, Options};
use super::{Api, Ask, Spared};
use clap::Parser as _;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

const APIS: [Api; 3] = [Api::Chat, Api::Responses, Api::Anthropic];

/// Words that mean something to one of the APIs.
const WORDS: &[&str] = &[
    "message_start",
    "content_block_start",
    "content_block_delta",
    "message_delta",
    "message_stop",
    "error",
    "text",
    "text_delta",
    "thinking",
    "thinking_delta",
    "signature_delta",
    "tool_use",
    "input_json_delta",
    "response.created",
    "response.output_item.done",
    "response.completed",
    "response.failed",
    "message",
    "function_call",
    "reasoning",
    "output_text",
    "stop",
    "length",
    "tool_calls",
    "max_tokens",
    "a",
    "",
];
/// Names of their fields.
const KEYS: &[&str] = &[
    "type",
    "index",
    "message",
    "usage",
    "input_tokens",
    "delta",
    "content_block",
    "content",
    "text",
    "id",
    "name",
    "input",
    "partial_json",
    "thinking",
    "stop_reason",
    "error",
    "response",
    "item",
    "output",
    "arguments",
    "call_id",
    "choices",
    "tool_calls",
    "function",
    "finish_reason",
    "model",
    "status",
    "encrypted_content",
    "reasoning_content",
    "incomplete_details",
    "reason",
    "refusal",
    "role",
];

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        4 => proptest::sample::select(WORDS).prop_map(Value::from),
        2 => (0u64..4).prop_map(Value::from),
        1 => Just(json!(u64::MAX)),
        1 => Just(json!(-1.5)),
        1 => Just(Value::Null),
        1 => any::<bool>().prop_map(Value::from),
        1 => "[{}\"a-zé]{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        let field = (proptest::sample::select(KEYS), inner.clone());
        prop_oneof![
            1 => proptest::collection::vec(inner, 0..4).prop_map(Value::from),
            4 => proptest::collection::vec(field, 0..7).prop_map(|fields| {
                Value::Object(fields.into_iter().map(|(k, v)| (k.to_owned(), v)).collect::<Map<_, _>>())
            }),
        ]
    })
}

fn settings(choice: &str) -> Settings {
    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }
    let line =
        Line::parse_from(["agent", "--api", choice, "--model", "m", "--base-url", "http://127.0.0.1:1"]);
    assert_ne!(line.options.api, ApiChoice::Openai);
    Settings::resolve(&line.options, |_| None).unwrap()
}

proptest! {
    #[test]
    fn no_answer_panics_and_each_can_go_back(events in proptest::collection::vec(value(), 0..8), whole in any::<bool>()) {
        for api in APIS {
            let mut decoder = api.decoder();
            for event in &events {
                let taken = if whole { decoder.whole(event.clone()).map(|()| true) } else { decoder.event(event.clone()) };
                if taken.is_err() {
                    break;
                }
            }
            let _ = (decoder.is_complete(), decoder.usage(), decoder.model());
            let reply = decoder.reply();
            let mut items = vec![
                Item::user("go"),
                Item::Assistant { text: reply.text, calls: reply.calls.clone(), native: reply.native },
            ];
            items.extend(reply.calls.into_iter().map(|c| Item::Result {
                call: c.id,
                name: c.name,
                output: "x".into(),
                ok: true,
            }));
            let ask = Ask { settings: &settings(api.name()), spared: Spared::default(), system: "s", items: &items, tools: &[] };
            let body = api.body(&ask);
            prop_assert!(body["messages"].is_array() || body["input"].is_array());
        }
    }
}
