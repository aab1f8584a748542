//! Keys: where they come from, and where they must never go.

use super::bench::{APIS, Bench, KEY, read, results_in, run};
use super::modelserver::Turn;
use serde_json::json;
use workspool::model::{ErrorClass, Fact};

#[test]
fn the_key_is_sent_as_each_api_wants_it() {
    let bench = Bench::new();
    for api in APIS {
        bench.run(api, "text", "go").done();
        let headers = bench.server.seen("text").pop().unwrap().headers;
        if api == "anthropic" {
            assert_eq!(headers["x-api-key"], KEY);
            assert!(!headers.contains_key("authorization"));
        } else {
            assert_eq!(headers["authorization"], format!("Bearer {KEY}"));
        }
    }
    let mut command = bench.bare("anthropic");
    command.args(["--model", "m", "--base-url", &bench.server.url("text")]);
    command.args(["--api-key-env", "GATEWAY_TOKEN"]).env("GATEWAY_TOKEN", "token-of-the-gateway-1");
    run(&mut command, "go").done();
    let headers = bench.server.seen("text").pop().unwrap().headers;
    assert_eq!(headers["authorization"], "Bearer token-of-the-gateway-1");
    assert!(!headers.contains_key("x-api-key"));
}

#[test]
fn a_gateway_needs_no_key_and_gets_no_other() {
    let bench = Bench::new();
    for api in APIS {
        let url = if api == "anthropic" { bench.server.url("text") } else { bench.server.openai_url("text") };
        for (named, value) in
            [(None, None), (Some(""), None), (Some("UNSET"), None), (Some("UNSET"), Some(""))]
        {
            let mut command = bench.bare(api);
            command.args(["--base-url", &url, "--model", "m"]);
            // The provider's own key is not for others.
            command.env("OPENAI_API_KEY", KEY).env("ANTHROPIC_API_KEY", KEY);
            if let Some(named) = named {
                command.args(["--api-key-env", named]);
            }
            if let Some(value) = value {
                command.env("UNSET", value);
            }
            run(&mut command, "go").done();
            let headers = bench.server.seen("text").pop().unwrap().headers;
            assert!(
                !headers.contains_key("authorization") && !headers.contains_key("x-api-key"),
                "{api} {named:?}"
            );
        }
    }
}

#[test]
fn the_address_comes_from_the_environment_too() {
    let bench = Bench::new();
    for (api, variable, url) in [
        ("openai", "OPENAI_BASE_URL", bench.server.openai_url("env-chat")),
        ("openai-responses", "OPENAI_BASE_URL", bench.server.openai_url("env-responses") + "/"),
        ("anthropic", "ANTHROPIC_BASE_URL", bench.server.url("env-anthropic") + "/v1"),
    ] {
        let mut command = bench.bare(api);
        command.args(["--model", "m", "--api-key-env", "K"]).env(variable, url).env("K", KEY);
        run(&mut command, "go").done();
    }
    for (scenario, path) in [
        ("env-chat", "/v1/chat/completions"),
        ("env-responses", "/v1/responses"),
        ("env-anthropic", "/v1/messages"),
    ] {
        assert_eq!(bench.server.seen(scenario)[0].path, path);
    }
}

#[test]
fn the_provider_itself_is_not_asked_without_a_key() {
    let bench = Bench::new();
    for (api, variable) in
        [("openai", "OPENAI_API_KEY"), ("openai-chat", "OPENAI_API_KEY"), ("anthropic", "ANTHROPIC_API_KEY")]
    {
        let ran = run(bench.bare(api).args(["--model", "m"]), "go");
        let (class, message) = ran.failed();
        assert_eq!((class, ran.code), (ErrorClass::Auth, Some(1)));
        assert!(message.contains(variable), "{message}");
        assert_eq!((ran.retries(), ran.facts.len()), (0, 2), "{}", ran.stdout);
    }
    let mut command = bench.bare("anthropic");
    command.args(["--model", "m"]).env("ANTHROPIC_API_KEY", "two\nlines-of-0123456789");
    let ran = run(&mut command, "go");
    assert_eq!(ran.failed().0, ErrorClass::Auth);
    assert!(!ran.stdout.contains("lines-of"), "{}", ran.stdout);
}

#[test]
fn the_key_is_printed_nowhere() {
    let bench = Bench::new();
    for api in APIS {
        let scenario = format!("leak-{api}");
        bench.server.script(
            &scenario,
            [
                Turn::call("run_shell", json!({"command": "env"})),
                Turn::call("run_shell", json!({"command": "cat /proc/$PPID/environ; true"})),
                Turn::call("run_shell", json!({"command": format!("echo {KEY}")})),
                Turn::say(&format!("the key is {KEY}")),
            ],
        );
        let transcript = bench.path(&format!("{api}.jsonl"));
        let mut command = bench.command(api, &scenario);
        command.arg("--transcript").arg(&transcript);
        let ran = run(&mut command, "go");
        assert!(ran.done().starts_with("the key is [redacted"), "{}", ran.stdout);
        assert!(!ran.stdout.contains(KEY) && !ran.stderr.contains(KEY), "{}", ran.stdout);
        let kept = read(&transcript);
        assert!(!kept.contains(KEY) && kept.contains("the key is"), "{kept}");
        let results = results_in(&bench.server.seen(&scenario)[2].body);
        assert!(results[0].contains("PATH=") && !results[0].contains("TEST_KEY"), "{}", results[0]);
        // Root may read everything.
        assert!(rustix::process::getuid().is_root() || !results[1].contains(KEY), "{}", results[1]);

        let echo = format!("echo-{api}");
        bench.server.script(&echo, [Turn::fail(401, "authentication_error", &format!("wrong key: {KEY}"))]);
        let ran = bench.run(api, &echo, "go");
        assert_eq!(ran.failed().0, ErrorClass::Auth);
        assert!(!ran.stdout.contains(KEY), "{}", ran.stdout);
        assert!(
            ran.facts
                .iter()
                .any(|f| matches!(f, Fact::Error { message, .. } if message.contains("redacted")))
        );
    }
}
