//! No output, of whatever shape, makes a parser panic.

use super::super::{PARSERS, json};
use super::*;
use proptest::prelude::*;

/// Makes JSON that looks like events: names that parsers look for, values of any type.
fn events() -> impl Strategy<Value = serde_json::Value> {
    let word = prop::sample::select(vec![
        "type",
        "subtype",
        "result",
        "message",
        "content",
        "text",
        "usage",
        "error",
        "item",
        "id",
        "part",
        "reason",
        "stop",
        "assistant",
        "user",
        "system",
        "init",
        "tool_use",
        "tool_result",
        "session_id",
        "sessionID",
        "state",
        "status",
        "step_finish",
        "turn.completed",
        "turn.failed",
        "item.completed",
        "agent_message",
        "command_execution",
        "data",
        "session.error",
        "rate_limit_event",
        "rate_limit_info",
        "resetsAt",
        "rejected",
        "success",
        "is_error",
        "fact",
        "final",
        "ok",
        "tokens",
        "input",
        "cost",
        "role",
        "delta",
        "stats",
        "exitCode",
        "errors",
        "permission_denials",
    ]);
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        any::<u64>().prop_map(Into::into),
        any::<f64>().prop_map(Into::into),
        word.clone().prop_map(Into::into),
        ".{0,20}".prop_map(Into::into),
    ];
    let tree = leaf.prop_recursive(4, 40, 6, {
        let word = word.clone();
        move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Into::into),
                prop::collection::btree_map(word.clone(), inner, 0..6).prop_map(|map| map
                    .into_iter()
                    .map(|(k, v)| (k.to_owned(), v))
                    .collect::<serde_json::Map<_, _>>()
                    .into()),
            ]
        }
    });
    (word.clone(), prop::collection::btree_map(word, tree, 0..8)).prop_map(|(kind, map)| {
        let mut map: serde_json::Map<_, _> = map.into_iter().map(|(k, v)| (k.to_owned(), v)).collect();
        map.insert("type".into(), kind.into());
        map.into()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_bytes_make_a_parser_panic(lines in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..80), 0..8)) {
        let lines: Vec<&[u8]> = lines.iter().map(Vec::as_slice).collect();
        for name in PARSERS {
            let facts = Summary::of(&run(name, &lines));
            let _ = judge(name, &Observed { exit_code: None, signal: Some(9), stderr_tail: "x", facts: &facts });
        }
    }

    #[test]
    fn no_events_make_a_parser_panic(
        events in prop::collection::vec(events(), 1..8),
        cut in any::<prop::sample::Index>(),
        code in prop::option::of(any::<i32>()),
        signal in prop::option::of(1i32..64),
        stderr in "(?s).{0,100}",
    ) {
        let mut lines: Vec<String> = events.iter().map(ToString::to_string).collect();
        // One of them is cut short.
        let cut = cut.index(lines.len());
        let half = lines[cut].len() / 2;
        lines[cut] = json::clip(&lines[cut], half).to_owned();
        let lines: Vec<&[u8]> = lines.iter().map(|line| line.as_bytes()).collect();
        for name in PARSERS {
            let facts = Summary::of(&run(name, &lines));
            let verdict = judge(name, &Observed { exit_code: code, signal, stderr_tail: &stderr, facts: &facts });
            if code != Some(0) || signal.is_some() {
                prop_assert_ne!(verdict, Verdict::Ok);
            }
            let earlier = facts.usage_since(Some(&Usage { input_tokens: Some(5), ..Usage::default() }));
            prop_assert!(earlier.cost_usd.is_none_or(|cost| cost >= 0.0));
        }
    }

    #[test]
    fn what_cannot_be_read_changes_nothing_but_its_count(garbage in "[^{\\[\"0-9tfn\r\n]{1,40}", at in 0usize..3) {
        let mut lines = vec![
            r#"{"type":"system","subtype":"init","session_id":"s","model":"m"}"#,
            r#"{"type":"result","subtype":"success","is_error":false,"result":"done","session_id":"s"}"#,
        ];
        let clean = summary("claude", &lines.join("\n"));
        lines.insert(at, &garbage);
        let mut dirty = summary("claude", &lines.join("\n"));
        prop_assert_eq!(dirty.unreadable, u64::from(!garbage.trim_ascii().is_empty()));
        dirty.unreadable = 0;
        prop_assert_eq!(clean, dirty);
    }
}
