//! Tests of all parsers against output that no program should print.

use super::*;
use crate::model::{ErrorClass, LimitKind, Usage, UsageScope};

mod random;

fn run(name: &str, lines: &[&[u8]]) -> Vec<Fact> {
    let mut facts = Vec::new();
    let mut parser = parser(name).unwrap();
    lines.iter().for_each(|line| parser.line(line, &mut facts));
    parser.end(&mut facts);
    facts
}

fn summary(name: &str, output: &str) -> Summary {
    let lines: Vec<&[u8]> = output.lines().map(str::as_bytes).collect();
    Summary::of(&run(name, &lines))
}

fn verdict(name: &str, exit_code: i32, output: &str) -> Verdict {
    let facts = summary(name, output);
    judge(name, &Observed { exit_code: Some(exit_code), signal: None, stderr_tail: "", facts: &facts })
}

/// The formats whose lines must be JSON.
fn structured() -> impl Iterator<Item = &'static str> {
    PARSERS.iter().copied().filter(|name| !matches!(*name, "text" | "aider"))
}

#[test]
fn names_are_those_of_parsers() {
    assert!(PARSERS.iter().all(|name| parser(name).is_some()));
    assert!(parser("no such format").is_none());
}

#[test]
fn no_output_is_no_success_where_a_last_word_is_due() {
    for name in structured() {
        assert!(run(name, &[]).is_empty());
        assert!(run(name, &[b"", b"  ", b"\r"]).is_empty(), "{name}");
        assert!(matches!(verdict(name, 0, ""), Verdict::Failed { .. }), "{name}");
    }
    assert_eq!(verdict("text", 0, ""), Verdict::Ok);
}

#[test]
fn broken_lines_are_counted_and_do_not_hide_the_others() {
    let deep = "{\"type\":".repeat(200_000);
    let good = r#"{"fact":"session","id":"s"}"#;
    for broken in ["garbage", "{\"type\":\"result\",", "{\"type\":\"result\"}}", "null", deep.as_str()] {
        for name in structured() {
            assert_eq!(summary(name, broken).unreadable, 1, "{name}");
        }
        let facts = summary("workspool", &format!("{broken}\n{good}"));
        assert_eq!((facts.unreadable, facts.session.as_deref()), (1, Some("s")));
    }
}

#[test]
fn events_that_are_not_known_are_ignored() {
    for name in structured() {
        for line in
            [r#"{"type":"from the future","x":[1]}"#, r#"{"type":7}"#, "{}", r#"{"fact":"from_the_future"}"#]
        {
            let facts = summary(name, line);
            let odd = u64::from(name == "workspool" && !line.contains("fact"));
            assert_eq!(facts, Summary { unreadable: odd, ..Summary::default() }, "{name} {line}");
        }
    }
}

#[test]
fn fields_of_another_type_are_absent() {
    for line in [
        r#"{"type":"result","subtype":5,"result":{"a":1},"session_id":[],"usage":"many","num_turns":-3,"is_error":"no"}"#,
        r#"{"type":"assistant","message":"hello","session_id":7}"#,
        r#"{"type":"turn.completed","usage":{"input_tokens":-5,"output_tokens":1e400}}"#,
        r#"{"type":"item.completed","item":[]}"#,
        r#"{"type":"step_finish","part":{"reason":null,"tokens":{"input":"x"},"cost":-1}}"#,
        r#"{"type":"tool_use","part":null,"parameters":3}"#,
        r#"{"type":"error","error":"bad","message":{}}"#,
    ] {
        for name in structured() {
            for fact in run(name, &[line.as_bytes()]) {
                if let Fact::Usage { usage, .. } = fact {
                    assert!(usage.input_tokens.is_none_or(|n| n == 0), "{name} {line}");
                    assert!(usage.cost_usd.is_none_or(|n| n >= 0.0), "{name} {line}");
                }
            }
        }
    }
}

#[test]
fn a_long_text_is_cut_and_its_end_kept() {
    let long = format!("{}THE END", "x".repeat(1 << 20));
    let result =
        serde_json::json!({"type": "result", "subtype": "success", "is_error": false, "result": long});
    let facts = summary("claude", &result.to_string());
    let text = facts.final_text.unwrap();
    assert!(text.len() <= 256 << 10 && text.ends_with("THE END"));
    for name in ["text", "aider"] {
        let text = summary(name, &format!("first\n{long}\n")).last_message.unwrap();
        assert!(text.len() <= 256 << 10 && text.ends_with("THE END"), "{name}");
    }
    // Many lines need no more room than one.
    let mut facts = Vec::new();
    let mut text = parser("text").unwrap();
    (0..20_000).for_each(|n| text.line(format!("{n:0100}").as_bytes(), &mut facts));
    text.end(&mut facts);
    assert!(
        matches!(&facts[..], [Fact::Message { text }] if text.len() <= 256 << 10 && text.ends_with("19999"))
    );
}

#[test]
fn broken_utf8_is_no_reason_to_lose_a_result() {
    let facts = run("claude", &[b"{\"type\":\"result\",\"is_error\":false,\"result\":\"caf\xe9\"}"]);
    assert!(facts.contains(&Fact::Final { ok: true, text: Some("caf\u{fffd}".into()) }));
}

const REJECTED: &str = r#"{"type":"rate_limit_event","rate_limit_info":{"status":"rejected","resetsAt":1788000000,"rateLimitType":"five_hour"}}"#;

#[test]
fn a_limit_event_within_the_result_loses_neither() {
    let result = r#"{"type":"result","subtype":"success","is_error":true,"api_error_status":429,"result":"Request rejected"}"#;
    let (head, end) = result.split_at(40);
    let until = chrono::DateTime::from_timestamp(1_788_000_000, 0);
    for output in [
        format!("{head}{REJECTED}{end}"),
        format!("{head}{REJECTED}\n{end}"),
        format!("{REJECTED}\n{result}"),
    ] {
        let facts = summary("claude", &output);
        assert_eq!(facts.unreadable, 0, "{output}");
        assert_eq!(facts.limit, Some((LimitKind::Quota, until)), "{output}");
        match verdict("claude", 1, &output) {
            Verdict::Failed { class, message, until: got } => {
                assert_eq!((class, message.as_str(), got), (ErrorClass::Quota, "Request rejected", until));
            }
            Verdict::Ok => panic!("a success: {output}"),
        }
    }
}

#[test]
fn a_limit_that_has_passed_is_no_reason_any_more() {
    let message = r#"{"type":"assistant","message":{"content":[{"type":"text","text":"On with it."}]}}"#;
    let result = r#"{"type":"result","subtype":"success","is_error":true,"api_error_status":429,"result":"slow down"}"#;
    let output = format!("{REJECTED}\n{message}\n{result}");
    let want = Some((LimitKind::Rate, None));
    assert_eq!(summary("claude", &output).limit, want);
    assert!(matches!(
        verdict("claude", 1, &output),
        Verdict::Failed { class: ErrorClass::RateLimited, until: None, .. }
    ));
}

#[test]
fn a_limit_told_as_a_success_is_none() {
    let banner = r#"{"type":"result","subtype":"success","is_error":false,"result":"Claude AI usage limit reached|1788000000"}"#;
    let until = chrono::DateTime::from_timestamp(1_788_000_000, 0);
    assert!(
        matches!(verdict("claude", 0, banner), Verdict::Failed { class: ErrorClass::Quota, until: u, .. } if u == until)
    );
    // Somebody who writes about limits has not reached one, nor is overage a refusal.
    let about =
        r#"{"type":"result","subtype":"success","is_error":false,"result":"I fixed the usage limit check."}"#;
    assert_eq!(verdict("claude", 0, about), Verdict::Ok);
    let overage = REJECTED.replace("\"five_hour\"", "\"five_hour\",\"isUsingOverage\":true");
    assert_eq!(verdict("claude", 0, &format!("{overage}\n{about}")), Verdict::Ok);
    assert_eq!(summary("claude", &overage).limit, None);
}

#[test]
fn several_results_of_one_run_add_up() {
    let result = |cost: f64| {
        serde_json::json!({"type": "result", "subtype": "success", "is_error": false, "result": "ok", "num_turns": 1,
            "total_cost_usd": cost, "usage": {"input_tokens": 10, "cache_creation_input_tokens": 5},
            "model_usage_since_last_result": {"a": {"costUSD": 0.25}, "b": {"costUSD": 0.25}}})
    };
    let facts = summary("claude", &format!("{}\n{}", result(3.5), result(4.0)));
    assert_eq!(facts.usage.input_tokens, Some(30));
    assert_eq!((facts.usage.turns, facts.usage.cost_usd), (Some(2), Some(1.0)));
    assert_eq!(facts.session_usage.cost_usd, Some(4.0));
    assert_eq!(facts.usage_since(None).cost_usd, Some(1.0));
    let before = Usage { cost_usd: Some(3.0), ..Usage::default() };
    assert_eq!(facts.usage_since(Some(&before)).cost_usd, Some(1.0));
}

#[test]
fn nonsense_figures_do_not_overflow() {
    let line = format!(
        r#"{{"type":"step_finish","part":{{"tokens":{{"input":{0},"output":{0}}},"cost":1e308}}}}"#,
        u64::MAX
    );
    let facts = summary("opencode", &[line.as_str(); 3].join("\n"));
    assert_eq!((facts.usage.input_tokens, facts.usage.turns), (Some(u64::MAX), Some(3)));
}

#[test]
fn words_of_subagents_are_not_the_answer() {
    let line = |parent: &str, text: &str| {
        format!(
            r#"{{"type":"assistant","parent_tool_use_id":{parent},"message":{{"content":[{{"type":"text","text":"{text}"}}]}}}}"#
        )
    };
    let facts = summary("claude", &format!("{}\n{}", line("null", "mine"), line("\"toolu_1\"", "another's")));
    assert_eq!(facts.answer(), Some("mine"));
}

#[test]
fn opencode_fails_when_an_error_follows_the_last_step() {
    let stop = r#"{"type":"step_finish","sessionID":"s","part":{"reason":"stop","tokens":{"input":1}}}"#;
    let error = r#"{"type":"error","error":{"name":"APIError","data":{"message":"slow down","statusCode":429,"responseHeaders":{"retry-after":"60"}}}}"#;
    assert_eq!(verdict("opencode", 0, stop), Verdict::Ok);
    let before = chrono::Utc::now();
    let Verdict::Failed { class, until, .. } = verdict("opencode", 0, &format!("{stop}\n{error}")) else {
        panic!("a success");
    };
    assert_eq!(class, ErrorClass::RateLimited);
    let wait = (until.unwrap() - before).num_seconds();
    assert!((59..=61).contains(&wait), "{wait}");
    let length = stop.replace("\"stop\"", "\"length\"");
    assert!(matches!(verdict("opencode", 0, &length), Verdict::Failed { class: ErrorClass::Other, .. }));
}

#[test]
fn codex_tries_again_without_having_failed() {
    let again =
        r#"{"type":"error","message":"Reconnecting... 1/5 (unexpected status 503 Service Unavailable)"}"#;
    let done = r#"{"type":"turn.completed","usage":{}}"#;
    let facts = run("codex", &[again.as_bytes()]);
    assert_eq!(facts, [Fact::Retry { status: Some(503), delay_ms: None }]);
    assert!(summary("codex", &format!("{again}\n{done}")).errors.is_empty());
    let facts = Summary::of(&facts);
    let killed = Observed { exit_code: None, signal: Some(9), stderr_tail: "", facts: &facts };
    assert!(matches!(judge("codex", &killed), Verdict::Failed { class: ErrorClass::Provider, .. }));
}

#[test]
fn codex_says_when_a_usage_limit_lifts() {
    let line = r#"{"type":"turn.failed","error":{"message":"You've hit your usage limit. Upgrade to Pro or try again in 2 hours 30 minutes."}}"#;
    let before = chrono::Utc::now();
    let Verdict::Failed { class, until, .. } = verdict("codex", 1, line) else { panic!("a success") };
    assert_eq!(class, ErrorClass::Quota);
    let wait = (until.unwrap() - before).num_minutes();
    assert!((149..=150).contains(&wait), "{wait}");
}

#[test]
fn gemini_puts_pieces_together_and_believes_no_idle_success() {
    let piece =
        |text: &str| format!(r#"{{"type":"message","role":"assistant","content":"{text}","delta":true}}"#);
    let result = r#"{"type":"result","status":"success","stats":{"total_tokens":0}}"#;
    let output = format!("{}\n{}\n{result}", piece("Hel"), piece("lo"));
    assert_eq!(summary("gemini", &output).final_text.as_deref(), Some("Hello"));
    assert_eq!(verdict("gemini", 0, &output), Verdict::Ok);
    assert!(matches!(verdict("gemini", 0, result), Verdict::Failed { class: ErrorClass::Other, .. }));
}

#[test]
fn geminis_exit_code_says_what_its_words_do_not() {
    let result = r#"{"type":"result","status":"error","error":{"type":"unknown","message":"Please wait."}}"#;
    assert!(matches!(verdict("gemini", 173, result), Verdict::Failed { class: ErrorClass::RateLimited, .. }));
    assert!(matches!(verdict("gemini", 1, result), Verdict::Failed { class: ErrorClass::Other, .. }));
}

#[test]
fn copilot_is_read_to_its_result() {
    let output = r#"{"type":"session.start","data":{"sessionId":"c1","copilotVersion":"1.0.102"}}
{"type":"tool.execution_start","data":{"toolCallId":"t1","toolName":"create","arguments":{"path":"a.txt"}}}
{"type":"tool.execution_complete","data":{"toolCallId":"t1","success":true}}
{"type":"assistant.usage","data":{"inputTokens":100,"cacheReadTokens":40,"outputTokens":7}}
{"type":"assistant.message","data":{"content":"Done."}}
{"type":"result","sessionId":"c1","exitCode":0,"usage":{"premiumRequests":1}}"#;
    let facts = summary("copilot", output);
    assert_eq!((facts.session.as_deref(), facts.version.as_deref()), (Some("c1"), Some("1.0.102")));
    assert_eq!((facts.final_text.as_deref(), facts.tool_calls), (Some("Done."), 1));
    assert_eq!((facts.usage.input_tokens, facts.usage.output_tokens), (Some(60), Some(7)));
    assert_eq!(verdict("copilot", 0, output), Verdict::Ok);

    let refused = r#"{"type":"session.error","data":{"errorType":"authentication","message":"no","statusCode":401}}
{"type":"result","sessionId":"c1","exitCode":1}"#;
    assert!(matches!(verdict("copilot", 1, refused), Verdict::Failed { class: ErrorClass::Auth, .. }));
}

#[test]
fn aider_fails_in_words_though_it_exits_with_0() {
    let head = "Aider v0.86.2\nModel: openai/gpt with diff edit format\n";
    let refused =
        format!("{head}litellm.AuthenticationError: AuthenticationError: OpenAIException - bad key\n");
    assert!(matches!(verdict("aider", 0, &refused), Verdict::Failed { class: ErrorClass::Auth, .. }));
    let retried = format!(
        "{head}litellm.RateLimitError: slow down\nRetrying in 0.2 seconds...\nHello.\n\
         Tokens: 2.1k sent, 120 received. Cost: $0.0070 message, $0.0070 session.\n"
    );
    assert_eq!(verdict("aider", 0, &retried), Verdict::Ok);
    let facts = summary("aider", &retried);
    assert_eq!(facts.model.as_deref(), Some("openai/gpt"));
    assert_eq!((facts.usage.input_tokens, facts.usage.cost_usd), (Some(2_100), Some(0.007)));
}

#[test]
fn our_own_lines_are_facts() {
    let facts = vec![
        Fact::Session { id: "s".into() },
        Fact::Usage { usage: Usage { turns: Some(1), ..Usage::default() }, scope: UsageScope::Delta },
        Fact::Limit { kind: LimitKind::Rate, until: None, rejected: true },
        Fact::Final { ok: true, text: Some("done".into()) },
    ];
    let lines: Vec<String> = facts.iter().map(|fact| serde_json::to_string(fact).unwrap()).collect();
    let lines: Vec<&[u8]> = lines.iter().map(|line| line.as_bytes()).collect();
    assert_eq!(run("workspool", &lines), facts);
    let wrong = summary("workspool", r#"{"fact":"session"}"#);
    assert_eq!((wrong.unreadable, wrong.session), (1, None));
}

#[test]
fn a_summary_does_not_grow() {
    let mut facts = Summary::default();
    let long = "x".repeat(1 << 20);
    for _ in 0..500 {
        facts.add(&Fact::Error { class: ErrorClass::Other, message: long.clone() });
        facts.add(&Fact::Denied { tool: long.clone(), reason: long.clone() });
    }
    facts.add(&Fact::Error { class: ErrorClass::Auth, message: "the last".into() });
    assert!(facts.errors.len() <= 50 && facts.denials.len() <= 50);
    assert_eq!(facts.errors.last(), Some(&(ErrorClass::Auth, "the last".into())));
    let size: usize = facts.denials.iter().map(|(tool, reason)| tool.len() + reason.len()).sum();
    assert!(size <= 50 * 2 * 2_000, "{size}");
}
