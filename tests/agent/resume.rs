//! Conversations that go on.

use super::bench::{APIS, Bench, read, run, start};
use super::modelserver::Turn;
use serde_json::json;
use workspool::model::Fact;

#[test]
fn a_conversation_goes_on_where_it_ended() {
    let bench = Bench::new();
    for api in APIS {
        let scenario = format!("resume-{api}");
        bench.server.script(
            &scenario,
            [Turn::call("list_directory", json!({})), Turn::say("first done"), Turn::say("second done")],
        );
        let (one, two) = (
            bench.path(&format!("{api}/1/transcript.jsonl")),
            bench.path(&format!("{api}/2/transcript.jsonl")),
        );
        let first = run(bench.command(api, &scenario).arg("--transcript").arg(&one), "the first order");
        first.done();
        let session = first.summary().session.unwrap();
        // Another attempt knows only the id.
        let mut command = bench.command(api, &scenario);
        command.arg("--transcript").arg(&two).args(["--resume", &session]);
        let second = run(&mut command, "the second order");
        assert_eq!(second.done(), "second done");
        assert_eq!(second.summary().session.as_deref(), Some(session.as_str()));
        let body = bench.server.seen(&scenario)[2].body.to_string();
        for said in ["the first order", "list_directory", "first done", "the second order"] {
            assert!(body.contains(said), "{api}: {said}: {body}");
        }
        // A file does as well, and the one that goes on holds all.
        let mut command = bench.command(api, &scenario);
        let third = run(command.arg("--resume").arg(&two), "the third order");
        assert_eq!(third.done(), "second done");
        assert_eq!(third.summary().session, None, "nothing is kept, so nothing can go on");
        let body = bench.server.seen(&scenario)[3].body.to_string();
        assert!(body.contains("the first order") && body.contains("the third order"));
    }
}

#[test]
fn a_run_that_was_killed_in_a_tool_goes_on() {
    let bench = Bench::new();
    for api in APIS {
        let scenario = format!("killed-{api}");
        let wait = format!("touch {api}.started; sleep 600");
        bench.server.script(
            &scenario,
            [Turn::call("run_shell", json!({"command": wait})), Turn::say("as if nothing had been")],
        );
        let transcript = bench.path(&format!("{api}.jsonl"));
        let mut child = start(bench.command(api, &scenario).arg("--transcript").arg(&transcript), "go");
        while !bench.work(&format!("{api}.started")).exists() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        // TERM, so that no command is left behind.
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        assert!(!child.wait().unwrap().success());
        assert!(read(&transcript).contains("run_shell"));
        let mut command = bench.command(api, &scenario);
        let ran = run(command.arg("--resume").arg(&transcript).arg("--transcript").arg(&transcript), "go on");
        assert_eq!(ran.done(), "as if nothing had been");
        let body = bench.server.seen(&scenario)[1].body.to_string();
        assert!(body.contains("The run was interrupted here"), "{api}: {body}");
    }
}

#[test]
fn another_api_can_go_on() {
    let bench = Bench::new();
    let turns = [Turn::call("list_directory", json!({})), Turn::say("one")];
    bench.server.script("from", turns);
    let transcript = bench.path("t.jsonl");
    run(bench.command("anthropic", "from").arg("--transcript").arg(&transcript), "go").done();
    bench.server.script("to", [Turn::say("two")]);
    let ran = run(bench.command("openai-chat", "to").arg("--resume").arg(&transcript), "on");
    assert_eq!(ran.done(), "two");
    let body = &bench.server.seen("to")[0].body;
    assert_eq!(body["messages"][2]["tool_calls"][0]["function"]["name"], "list_directory");
    assert_eq!(body["messages"][3]["role"], "tool");
    assert!(!ran.facts.iter().any(|f| matches!(f, Fact::Session { .. })));
}
