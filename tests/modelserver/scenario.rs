//! The scenarios that have a name, and orders in the prompt.
//!
//! `[[WRITE path]]` and `[[RUN command]]` let the model write a file or run a command by whatever tool the
//! client offers for it; `[[CALL tool {"json": …}]]` calls a tool by name. The last order counts, and after
//! its result the model says that it is done. In the scenario `plan`, all calls are made, one after the other.

use super::ask::Ask;
use super::{Reply, Turn};
use serde_json::{Value, json};

const DONE: &str = "DONE: the scripted task is finished.";
const CONTENT: &str = "hello from the scripted model\n";

/// What the server does with request number `at` (from 0) of a scenario.
///
/// `text`, `write`, `tool` (orders), `loop` (calls tools for ever), `patch`, `hang`, `slow` (begins to answer
/// and stops), `drop`, `break`, `midstream`, `garbage`, `parallel`, `unknown` (a tool that is not there), `huge`
/// (much output), `plan` (calls all tools that are ordered, in turn), `err400` and so on, `errctx`, `errquota`;
/// `once-X` does X at first and then `write`.
pub fn turn(scenario: &str, at: usize, ask: &Ask) -> Turn {
    if let Some(first) = scenario.strip_prefix("once-") {
        return turn(if at == 0 { first } else { "write" }, at, ask);
    }
    match scenario {
        "hang" => Turn::Hang,
        "slow" => Turn::Stall,
        "drop" => Turn::Drop,
        "break" => Turn::Break,
        "midstream" => Turn::FailMidway,
        "garbage" => Turn::Garbage,
        "err400" => Turn::fail(400, "invalid_request_error", "bad request (scripted)"),
        "err401" => Turn::fail(401, "authentication_error", "invalid x-api-key (scripted)"),
        "err402" => Turn::fail(402, "billing_error", "Your credit balance is too low (scripted)"),
        "err403" => Turn::fail(403, "permission_error", "forbidden (scripted)"),
        "err404" => Turn::fail(404, "not_found_error", "model: not found (scripted)"),
        "err429" => Turn::fail(429, "rate_limit_error", "rate limited (scripted)").header("retry-after", "1"),
        // Longer than anybody in a test waits.
        "err429-long" => {
            Turn::fail(429, "rate_limit_error", "rate limited (scripted)").header("retry-after", "7200")
        }
        "err500" => Turn::fail(500, "api_error", "Internal server error (scripted)"),
        "err529" => Turn::fail(529, "overloaded_error", "Overloaded (scripted)"),
        "errctx" => {
            Turn::fail(400, "invalid_request_error", "prompt is too long: 250000 tokens > 200000 maximum")
        }
        "errquota" => Turn::fail(429, "insufficient_quota", "You exceeded your current quota (scripted)"),
        _ => Turn::Reply(reply(scenario, ask)),
    }
}

fn reply(scenario: &str, ask: &Ask) -> Reply {
    let say = |text: &str| Reply { text: text.into(), ..Reply::default() };
    if ask.wants_json {
        let answer = json!({"reasoning": "scripted", "next_speaker": "user", "model_choice": "flash",
            "complexity_reasoning": "x", "complexity_score": 10});
        return say(&answer.to_string());
    }
    if scenario == "plan" {
        return plan(ask);
    }
    if scenario == "text" || ask.results > 0 && scenario != "loop" {
        return say(DONE);
    }
    let called = match scenario {
        "loop" => run(ask, "echo loop").map(|call| vec![call]),
        "huge" => run(ask, "yes scripted | head -c 3000000").map(|call| vec![call]),
        "unknown" => Some(vec![("no_such_tool".to_owned(), json!({}))]),
        "patch" => return patch(ask),
        "parallel" => {
            let calls = ["one.txt", "two.txt"].map(|path| write(ask, path));
            calls.into_iter().collect()
        }
        _ => order(ask).map(|call| vec![call]),
    };
    match called {
        Some(calls) => Reply {
            calls: calls.into_iter().map(|(name, args)| (name, args.to_string())).collect(),
            ..Reply::default()
        },
        // A client without tools takes files from the text: aider, by their name and a block.
        None if ask.tools.is_empty() && order_of(ask, "WRITE").is_some() => {
            say(&format!("{}\n```\n{CONTENT}```\n", order_of(ask, "WRITE").unwrap_or_default()))
        }
        None => {
            let names: Vec<&str> = ask.tools.iter().map(|(name, _)| name.as_str()).collect();
            say(&format!("No tool fits (scripted). tools={names:?}"))
        }
    }
}

/// Finds the last order in the prompt.
fn order(ask: &Ask) -> Option<(String, Value)> {
    let last = |what: &str| order_of(ask, what);
    if let Some((name, arguments)) = last("CALL").and_then(|call| call.split_once(' ')) {
        return Some((name.to_owned(), serde_json::from_str(arguments).ok()?));
    }
    last("RUN")
        .and_then(|command| run(ask, command))
        .or_else(|| last("WRITE").and_then(|path| write(ask, path)))
}

/// Makes the calls that are ordered, each after the result of the one before. `$id` in their arguments stands
/// for the task that the conversation names last; a wait whose time was over is made again.
fn plan(ask: &Ask) -> Reply {
    let calls: Vec<(&str, &str)> =
        ask.text.split("[[CALL ").skip(1).filter_map(|c| c.split_once("]]")?.0.split_once(' ')).collect();
    let timed_out = ["\"timed_out\":true", "\\\"timed_out\\\":true"];
    let again = timed_out.iter().map(|t| ask.text.matches(t).count()).sum::<usize>()
        + ask.text.lines().filter(|line| *line == SEARCH).count();
    let say = |text: String| Reply { text, ..Reply::default() };
    let Some((tool, arguments)) = calls.get(ask.results.saturating_sub(again)) else {
        return say(DONE.into());
    };
    let Some(name) = offered(ask, tool) else {
        if ask.tool(SEARCH).is_some() && again < 10 {
            let query = json!({"query": format!("+{tool}"), "max_results": 3});
            return Reply { calls: vec![(SEARCH.into(), query.to_string())], ..Reply::default() };
        }
        let names: Vec<&str> = ask.tools.iter().map(|(name, _)| name.as_str()).collect();
        return say(format!("No tool is {tool} (scripted). tools={names:?}"));
    };
    let id = ask.text.split(|c: char| !c.is_ascii_alphanumeric()).rfind(|w| is_id(w)).unwrap_or_default();
    Reply { calls: vec![(name, arguments.replace("$id", id))], ..Reply::default() }
}

/// The tool of a client that shows its model the tools of MCP servers only when asked for.
const SEARCH: &str = "ToolSearch";

/// Whether a word is the id of a task.
fn is_id(word: &str) -> bool {
    word.len() == 26
        && word.starts_with("01")
        && word.bytes().all(|b| b.is_ascii_digit() || b.is_ascii_lowercase())
}

/// The name under which the client offers a tool of an MCP server.
fn offered(ask: &Ask, tool: &str) -> Option<String> {
    for (name, offered) in &ask.tools {
        // Responses has tools in groups, and a call names its group.
        let mut grouped =
            offered["tools"].as_array().into_iter().flatten().filter_map(|t| t["name"].as_str());
        if let Some(inner) = grouped.find(|n| is_named(n, tool)) {
            return Some(format!("{name}:{inner}"));
        }
    }
    ask.tools.iter().map(|(name, _)| name).find(|name| is_named(name, tool)).cloned()
}

fn is_named(name: &str, tool: &str) -> bool {
    name.strip_suffix(tool).is_some_and(|rest| rest.is_empty() || rest.ends_with('_'))
}

/// What the last order of a kind names.
fn order_of<'a>(ask: &'a Ask, what: &str) -> Option<&'a str> {
    let at = ask.text.rfind(&format!("[[{what} "))? + what.len() + 3;
    let end = ask.text[at..].find("]]")?;
    Some(&ask.text[at..at + end])
}

/// Calls the client's tool for commands.
fn run(ask: &Ask, command: &str) -> Option<(String, Value)> {
    let told = json!({"command": command, "description": "run it"});
    let words = json!({"command": ["bash", "-lc", command]});
    let tools = [
        ("Bash", told.clone()),
        ("bash", told),
        ("run_shell", json!({"command": command})),
        ("exec_command", json!({"cmd": command})),
        ("shell_command", json!({"command": command})),
        ("shell", words.clone()),
        ("local_shell", words),
        ("run_shell_command", json!({"command": command, "description": "run it", "is_background": false})),
        ("run_commands", json!({"commands": [command]})),
        ("execute_command", json!({"command": command, "requires_approval": false})),
    ];
    first(ask, tools)
}

/// Calls the client's tool for writing a file.
fn write(ask: &Ask, path: &str) -> Option<(String, Value)> {
    let by_command = format!("printf '{}' > {path}", CONTENT.replace('\n', "\\n"));
    let file_path = json!({"file_path": path, "content": CONTENT});
    let write = match ask.tool("write") {
        Some(tool) if tool.to_string().contains("filePath") => {
            json!({"filePath": path, "content": CONTENT})
        }
        Some(tool) if tool.to_string().contains("file_path") => file_path.clone(),
        _ => json!({"path": path, "content": CONTENT}),
    };
    let write_file = match ask.tool("write_file") {
        Some(tool) if tool.to_string().contains("file_path") => file_path.clone(),
        _ => json!({"path": path, "content": CONTENT}),
    };
    let tools = [
        ("Write", file_path),
        ("write_file", write_file),
        ("write", write),
        ("create", json!({"path": path, "file_text": CONTENT})),
        ("write_to_file", json!({"path": path, "content": CONTENT})),
    ];
    first(ask, tools).or_else(|| run(ask, &by_command))
}

fn first<const N: usize>(ask: &Ask, tools: [(&str, Value); N]) -> Option<(String, Value)> {
    tools.into_iter().find(|(name, _)| ask.tool(name).is_some()).map(|(name, args)| (name.to_owned(), args))
}

/// Adds a file by a patch, as Codex does.
fn patch(ask: &Ask) -> Reply {
    let patch = "*** Begin Patch\n*** Add File: patched.txt\n+hello\n*** End Patch";
    if ask.tool("apply_patch").is_some() {
        let custom = Some(("apply_patch".to_owned(), patch.to_owned()));
        return Reply { custom, ..Reply::default() };
    }
    let command = format!("apply_patch <<'EOF'\n{patch}\nEOF");
    let edit = json!({"path": "patched.txt", "old_string": "before", "new_string": "hello"});
    let call = first(ask, [("edit_file", edit)]).or_else(|| run(ask, &command));
    let calls = call.into_iter().map(|(name, args)| (name, args.to_string())).collect();
    Reply { calls, ..Reply::default() }
}
