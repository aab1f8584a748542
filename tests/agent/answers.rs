//! Conversations that go well, in every API and however the bytes come.

use super::bench::{APIS, Bench, read, results_in, run};
use super::modelserver::{Reply, Turn};
use serde_json::{Value, json};
use workspool::model::{ErrorClass, Fact, Usage};

#[test]
fn an_answer_is_the_last_word() {
    let bench = Bench::new();
    for api in APIS {
        let ran = bench.run(api, &format!("text-{api}"), "hello [[");
        assert!(ran.done().starts_with("No tool fits"), "the scenario is not one with a name");
        let ran = bench.run(api, "text", "hello");
        assert_eq!(ran.done(), "DONE: the scripted task is finished.", "{api}");
        assert_eq!(ran.stderr, "");
        let usage = ran.usage();
        let wanted = Usage {
            input_tokens: Some(1200),
            cached_tokens: Some(300),
            output_tokens: Some(42),
            turns: Some(1),
            ..Usage::default()
        };
        assert_eq!(usage, wanted, "{api}");
        assert_eq!(ran.summary().model.as_deref(), Some("scripted"));
        assert_eq!(ran.summary().version.as_deref(), Some(env!("CARGO_PKG_VERSION")));
    }
}

#[test]
fn a_file_is_written_by_a_tool() {
    let bench = Bench::new();
    for api in APIS {
        let ran = bench.run(api, "write", &format!("[[WRITE deep/{api}.txt]]"));
        assert_eq!(ran.done(), "DONE: the scripted task is finished.");
        assert_eq!(read(&bench.work(&format!("deep/{api}.txt"))), "hello from the scripted model\n");
        assert_eq!(ran.results(), [true]);
        assert_eq!(ran.usage().turns, Some(2));
        assert_eq!(ran.usage().input_tokens, Some(2400));
        let call = Fact::ToolCall { id: None, name: "write_file".into(), summary: format!("deep/{api}.txt") };
        let same = |f: &&Fact| matches!((f, &call), (Fact::ToolCall { name: a, summary: b, .. }, Fact::ToolCall { name: c, summary: d, .. }) if a == c && b == d);
        assert_eq!(ran.facts.iter().filter(same).count(), 1, "{}", ran.stdout);
    }
}

#[test]
fn bytes_may_come_one_by_one() {
    let bench = Bench::new();
    let text = "grüße, 世界 😀 — done";
    for api in APIS {
        let scenario = format!("bytes-{api}");
        bench.server.chunk(&scenario, 1);
        bench.server.script(
            &scenario,
            [
                Turn::Reply(Reply {
                    text: text.into(),
                    calls: vec![(
                        "write_file".into(),
                        json!({"path": format!("{api} 世界.txt"), "content": text}).to_string(),
                    )],
                    ..Reply::default()
                }),
                Turn::say(text),
            ],
        );
        let ran = bench.run(api, &scenario, "go");
        assert_eq!(ran.done(), text, "{api}");
        assert_eq!(read(&bench.work(&format!("{api} 世界.txt"))), text);
        assert!(ran.facts.contains(&Fact::Message { text: text.into() }));
    }
}

#[test]
fn tools_called_at_once_are_answered_at_once() {
    let bench = Bench::new();
    for api in APIS {
        let scenario = format!("parallel-{api}");
        bench.server.script(
            &scenario,
            [
                Turn::calls([
                    ("write_file", json!({"path": "a.txt", "content": "a"})),
                    ("no_such_tool", json!({"x": 1})),
                    ("read_file", json!({"path": "a.txt"})),
                ]),
                Turn::say("done"),
            ],
        );
        let ran = bench.run(api, &scenario, "go");
        assert_eq!(ran.done(), "done");
        assert_eq!(ran.results(), [true, false, true]);
        let seen = bench.server.seen(&scenario);
        assert_eq!(seen.len(), 2, "{api}: one request for all results");
        let results = results_in(&seen[1].body);
        assert_eq!(results.len(), 3);
        assert!(
            results[1].contains("there is no tool \"no_such_tool\"") && results[1].contains("write_file")
        );
        assert_eq!(results[2], "a");
    }
}

#[test]
fn a_server_that_does_not_stream_will_do() {
    let bench = Bench::new();
    for api in APIS {
        let scenario = format!("whole-{api}");
        let call = vec![("write_file".into(), json!({"path": "w.txt", "content": "w"}).to_string())];
        bench.server.script(
            &scenario,
            [
                Turn::Whole(Reply { calls: call, ..Reply::default() }),
                Turn::Whole(Reply { text: "whole".into(), ..Reply::default() }),
            ],
        );
        let ran = bench.run(api, &scenario, "go");
        assert_eq!(ran.done(), "whole", "{api}");
        assert_eq!((ran.usage().output_tokens, ran.usage().cached_tokens), (Some(84), Some(600)));
        assert_eq!(read(&bench.work("w.txt")), "w");
    }
}

#[test]
fn thoughts_go_back_as_they_came() {
    let bench = Bench::new();
    for api in APIS {
        let scenario = format!("thought-{api}");
        bench.server.script(
            &scenario,
            [
                Turn::Reply(Reply {
                    thought: Some("I should look".into()),
                    calls: vec![("list_directory".into(), "{}".into())],
                    ..Reply::default()
                }),
                Turn::say("done"),
            ],
        );
        bench.run(api, &scenario, "go").done();
        let body = bench.server.seen(&scenario)[1].body.clone();
        match api {
            "anthropic" => {
                let block = &body["messages"][1]["content"][0];
                assert_eq!(block["thinking"], "I should look");
                assert_eq!(block["signature"], "c2lnbmVkIHRob3VnaHQ=");
            }
            "openai-responses" => {
                assert_eq!(body["input"][1]["encrypted_content"], "c2VhbGVk");
                assert_eq!(body["input"][1].get("id"), None, "nothing is stored there under an id");
                assert_eq!(body["store"], json!(false));
            }
            _ => assert_eq!(body["messages"][2]["reasoning_content"], "I should look"),
        }
    }
}

#[test]
fn requests_are_what_the_apis_want() {
    let bench = Bench::new();
    for api in APIS {
        let mut command = bench.command(api, "text");
        command.args(["--max-output-tokens", "1234", "--temperature", "0.5"]);
        run(&mut command, "hello").done();
        let seen = bench.server.seen("text").pop().unwrap();
        let body = &seen.body;
        assert_eq!(body["model"], "scripted");
        assert_eq!(body["stream"], json!(true));
        assert_eq!(body["temperature"], json!(0.5));
        let names: Vec<&str> = body["tools"]
            .as_array()
            .unwrap()
            .iter()
            .map(|t| t["name"].as_str().or(t["function"]["name"].as_str()).unwrap())
            .collect();
        assert_eq!(names, ["read_file", "list_directory", "search", "write_file", "edit_file", "run_shell"]);
        let (path, limit) = match api {
            "anthropic" => ("/v1/messages", "max_tokens"),
            "openai-responses" => ("/v1/responses", "max_output_tokens"),
            _ => ("/v1/chat/completions", "max_tokens"),
        };
        assert_eq!(seen.path, path);
        assert_eq!(body[limit], json!(1234));
        if api == "anthropic" {
            assert_eq!(seen.headers["anthropic-version"], "2023-06-01");
            assert_eq!(body["messages"][0]["content"][0]["cache_control"]["type"], "ephemeral");
        }
    }
    // What was not asked for is left to Anthropic, and is 0.2 for OpenAI's.
    bench.run("anthropic", "defaults", "hello").done();
    bench.run("openai-chat", "defaults", "hello").done();
    let seen = bench.server.seen("defaults");
    assert_eq!(seen[0].body.get("temperature"), None);
    assert_eq!(seen[1].body["temperature"], json!(0.2));
}

#[test]
fn fields_that_a_server_does_not_know_are_left_out() {
    let bench = Bench::new();
    let refuse = |what: &str| Turn::fail(400, "invalid_request_error", what);
    bench.server.script(
        "picky",
        [
            refuse("Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."),
            refuse("Unsupported value: 'temperature' does not support 0.2 with this model."),
            refuse("Unknown field stream_options"),
            Turn::say("at last"),
        ],
    );
    assert_eq!(bench.run("openai-chat", "picky", "go").done(), "at last");
    let last = bench.server.seen("picky").pop().unwrap().body;
    assert_eq!(last["max_completion_tokens"], json!(8192));
    for gone in ["max_tokens", "temperature", "stream_options"] {
        assert_eq!(last.get(gone), None, "{gone}");
    }
    // One that knows no thoughts gets none back.
    let thought = Reply {
        thought: Some("hm".into()),
        calls: vec![("list_directory".into(), "{}".into())],
        ..Reply::default()
    };
    bench.server.script(
        "thoughtless",
        [Turn::Reply(thought), refuse("property 'reasoning_content' is unsupported"), Turn::say("well")],
    );
    assert_eq!(bench.run("openai-chat", "thoughtless", "go").done(), "well");
    let seen = bench.server.seen("thoughtless");
    assert!(seen[1].body.to_string().contains("reasoning_content"));
    assert!(!seen[2].body.to_string().contains("reasoning_content"));
    // The same refusal again is a refusal.
    bench.server.script("stubborn", [refuse("temperature must be warm")]);
    let (class, message) = bench.run("openai-chat", "stubborn", "go").failed();
    assert_eq!(class, ErrorClass::InvalidRequest);
    assert!(message.contains("temperature must be warm"));
    assert_eq!(bench.server.seen("stubborn").len(), 2);
}

#[test]
fn a_cut_off_answer_is_gone_on_with() {
    let bench = Bench::new();
    let cut = |text: &str| Turn::Reply(Reply { text: text.into(), cut_off: true, ..Reply::default() });
    for api in APIS {
        let scenario = format!("cut-{api}");
        bench.server.script(&scenario, [cut("the first half"), Turn::say("the second half")]);
        assert_eq!(bench.run(api, &scenario, "go").done(), "the second half");
        // A thought alone came of it: it is dropped, since no API takes it back.
        let scenario = format!("thought-cut-{api}");
        let thought = Reply { thought: Some("hm, let me".into()), cut_off: true, ..Reply::default() };
        bench.server.script(&scenario, [Turn::Reply(thought), Turn::say("short")]);
        assert_eq!(bench.run(api, &scenario, "go").done(), "short");
        let body = bench.server.seen(&scenario)[1].body.to_string();
        assert!(!body.contains("hm, let me") && !body.contains("c2VhbGVk"), "{body}");
        assert!(body.contains("cut off at the limit"), "{body}");
        let scenario = format!("always-cut-{api}");
        bench.server.script(&scenario, [cut("again")]);
        let (class, message) = bench.run(api, &scenario, "go").failed();
        assert_eq!(class, ErrorClass::OwnLimit, "{message}");
    }
}

#[test]
fn arguments_that_were_cut_off_are_an_answer_to_the_model() {
    let bench = Bench::new();
    for api in APIS {
        let scenario = format!("half-{api}");
        let half = vec![("write_file".to_owned(), "{\"path\": \"x.txt\", \"content\": \"ab".to_owned())];
        let turn = Turn::Reply(Reply { calls: half, cut_off: true, ..Reply::default() });
        bench.server.script(&scenario, [turn, Turn::say("ok")]);
        let ran = bench.run(api, &scenario, "go");
        assert_eq!(ran.done(), "ok");
        assert_eq!(ran.results(), [false]);
        assert!(!bench.work("x.txt").exists());
        let body = &bench.server.seen(&scenario)[1].body;
        assert!(results_in(body)[0].contains("the arguments are no JSON"), "{body}");
    }
}

#[test]
fn the_number_of_answers_is_limited() {
    let bench = Bench::new();
    for api in APIS {
        let mut command = bench.command(api, "loop");
        command.args(["--max-iterations", "3"]);
        let ran = run(&mut command, "go");
        let (class, message) = ran.failed();
        assert_eq!(class, ErrorClass::OwnLimit);
        assert!(message.contains("3 answers"), "{message}");
        assert_eq!((ran.usage().turns, ran.results().len()), (Some(3), 3));
    }
}

#[test]
fn empty_answers_do_not_go_on_for_ever() {
    let bench = Bench::new();
    for api in APIS {
        let scenario = format!("empty-{api}");
        bench.server.script(&scenario, [Turn::say("")]);
        let (class, message) = bench.run(api, &scenario, "go").failed();
        assert_eq!((class, message.as_str()), (ErrorClass::Other, "the model gave no answer"));
        let scenario = format!("empty-end-{api}");
        bench.server.script(&scenario, [Turn::say("I write it."), Turn::say("")]);
        assert_eq!(bench.run(api, &scenario, "go").done(), "I write it.");
    }
}

#[test]
fn a_huge_output_is_cut_for_the_model() {
    let bench = Bench::new();
    for api in APIS {
        let scenario = format!("huge-{api}");
        let call = Turn::call("run_shell", json!({"command": "yes scripted | head -c 3000000"}));
        bench.server.script(&scenario, [call, Turn::say("much")]);
        bench.run(api, &scenario, "go").done();
        let result = results_in(&bench.server.seen(&scenario)[1].body).remove(0);
        assert!(result.len() < 40_000, "{}", result.len());
        assert!(result.starts_with("exit code 0\nscripted\n") && result.contains("bytes left out]"));
    }
}

#[test]
fn old_results_make_room_for_new_ones() {
    let bench = Bench::new();
    std::fs::write(bench.work("big.txt"), "0123456789abcdef\n".repeat(1000)).unwrap();
    for api in APIS {
        let scenario = format!("room-{api}");
        let mut turns = vec![Turn::call("read_file", json!({"path": "big.txt"})); 12];
        turns.push(Turn::say("read it all"));
        bench.server.script(&scenario, turns);
        let mut command = bench.command(api, &scenario);
        // The server counts 1500 tokens for everything, so only the guess counts at first: each result is
        // about 1700 tokens at the lowest rate that is believed.
        command.args(["--context-tokens", "20000", "--max-output-tokens", "4000"]);
        run(&mut command, "go").done();
        let results = results_in(&bench.server.seen(&scenario)[12].body);
        assert_eq!(results.len(), 12);
        assert!(results[0].contains("left out to save room"), "{api}: {} bytes", results[0].len());
        assert!(!results[11].contains("left out to save room"));
    }
}

#[test]
fn a_full_context_is_said_after_all_was_tried() {
    let bench = Bench::new();
    std::fs::write(bench.work("big.txt"), "0123456789abcdef\n".repeat(100)).unwrap();
    for api in APIS {
        // Nothing to shorten.
        let (class, message) = bench.run(api, "errctx", "go").failed();
        assert_eq!(class, ErrorClass::ContextFull, "{message}");
        // By our own count, before anything is sent.
        let mut command = bench.command(api, "never");
        command.args(["--context-tokens", "10000"]);
        let ran = run(&mut command, &"much ".repeat(10_000));
        assert_eq!(ran.failed().0, ErrorClass::ContextFull);
        assert_eq!(bench.server.seen("never").len(), 0);
        // The provider says so, an old result goes, and it is well.
        let scenario = format!("ctx-{api}");
        let read = || Turn::call("read_file", json!({"path": "big.txt"}));
        let full = Turn::fail(400, "invalid_request_error", "prompt is too long: 9 tokens > 8 maximum");
        bench.server.script(&scenario, [read(), read(), full, Turn::say("fits")]);
        assert_eq!(bench.run(api, &scenario, "go").done(), "fits");
        let results = results_in(&bench.server.seen(&scenario)[3].body);
        let left_out: Vec<bool> = results.iter().map(|r| r.contains("left out")).collect();
        assert_eq!(left_out, [true, false], "{api}");
    }
}

#[test]
fn calls_of_loose_dialects_are_understood() {
    // Gemini numbers all calls 0; others give no number, or whole arguments.
    let bench = Bench::new();
    let call = |id: &str, path: &str, index: Value| {
        let arguments = json!({"path": path, "content": "x"}).to_string();
        let mut call =
            json!({"id": id, "type": "function", "function": {"name": "write_file", "arguments": arguments}});
        if !index.is_null() {
            call["index"] = index;
        }
        call
    };
    for (name, indexes) in [("zeros", [json!(0), json!(0)]), ("none", [Value::Null, Value::Null])] {
        let [a, b] = indexes;
        let chunks = [
            json!({"choices": [{"delta": {"tool_calls": [call("a", &format!("{name}-a"), a)]}}]}),
            json!({"choices": [{"delta": {"tool_calls": [call("b", &format!("{name}-b"), b)]}, "finish_reason": "stop"}]}),
        ];
        bench.server.script(name, [Turn::Raw(chunks.map(|c| c.to_string()).to_vec()), Turn::say("ok")]);
        let ran = bench.run("openai-chat", name, "go");
        assert_eq!(ran.done(), "ok");
        assert!(
            bench.work(&format!("{name}-a")).exists() && bench.work(&format!("{name}-b")).exists(),
            "{name}"
        );
        assert_eq!(ran.usage().input_tokens, Some(1200), "one answer had no figures");
    }
}
