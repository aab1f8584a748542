//! How hard the model is to think: each API has words of its own for it.

use super::bench::Bench;
use super::modelserver::{Reply, Turn};
use serde_json::{Value, json};
use workspool::model::ErrorClass;

fn body_of(bench: &Bench, api: &str, scenario: &str) -> Value {
    let mut command = bench.command(api, scenario);
    command.args(["--effort", "high"]);
    super::bench::run(&mut command, "think").done();
    bench.server.seen(scenario).pop().unwrap().body
}

#[test]
fn it_is_sent_where_each_api_wants_it() {
    let bench = Bench::new();
    assert_eq!(body_of(&bench, "openai-chat", "text")["reasoning_effort"], "high");
    assert_eq!(body_of(&bench, "openai-responses", "text")["reasoning"]["effort"], "high");
    let body = body_of(&bench, "anthropic", "text");
    assert_eq!(body["output_config"], json!({ "effort": "high" }));
    assert_eq!(body.get("thinking"), None);
    bench.run("anthropic", "none", "x").done();
    assert_eq!(bench.server.seen("none")[0].body.get("output_config"), None);
}

#[test]
fn an_older_model_gets_room_to_think_in_and_keeps_it() {
    let bench = Bench::new();
    let refused =
        Turn::fail(400, "invalid_request_error", "This model does not support the effort parameter.");
    let thought = Reply {
        thought: Some("hm".into()),
        calls: vec![("list_directory".into(), "{}".into())],
        ..Reply::default()
    };
    bench.server.script("older", [refused, Turn::Reply(thought), Turn::say("well")]);
    let last = body_of(&bench, "anthropic", "older");
    assert_eq!(last["thinking"], json!({ "type": "enabled", "budget_tokens": 16_384 }));
    assert_eq!(last["max_tokens"], json!(8192 + 16_384));
    assert_eq!((last.get("output_config"), last.get("temperature")), (None, None));
    // What it thought goes back with the results, as it must.
    assert!(last["messages"].to_string().contains("\"thinking\":\"hm\""), "{}", last["messages"]);
    assert_eq!(bench.server.seen("older").len(), 3);
}

#[test]
fn an_effort_is_not_given_up_in_silence() {
    let bench = Bench::new();
    let refuse = |what: &str| Turn::fail(400, "invalid_request_error", what);
    for (api, words) in [
        ("anthropic", "output_config: Extra inputs are not permitted"),
        ("openai-chat", "Unsupported parameter: 'reasoning_effort' is not supported with this model."),
    ] {
        bench.server.script(api, [refuse(words)]);
        let mut command = bench.command(api, api);
        command.args(["--effort", "high"]);
        let (class, message) = super::bench::run(&mut command, "think").failed();
        assert_eq!(class, ErrorClass::InvalidRequest, "{message}");
        assert!(message.contains(words), "{message}");
    }
}
