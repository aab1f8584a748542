//! Everything that a provider or the network can do wrong.

use super::bench::{APIS, Bench, Ran, run, start};
use super::modelserver::Turn;
use chrono::{TimeDelta, Utc};
use std::time::Instant;
use workspool::model::{ErrorClass, Fact, LimitKind};
use workspool::worker::Verdict;

#[test]
fn what_will_not_pass_is_told_at_once() {
    let bench = Bench::new();
    for api in APIS {
        for (scenario, class) in [
            ("err400", ErrorClass::InvalidRequest),
            ("err401", ErrorClass::Auth),
            ("err402", ErrorClass::Quota),
            ("err403", ErrorClass::Auth),
            ("err404", ErrorClass::ModelNotFound),
            ("errquota", ErrorClass::Quota),
            ("errctx", ErrorClass::ContextFull),
        ] {
            let before = bench.server.seen(scenario).len();
            let ran = bench.run(api, scenario, "go");
            let (got, message) = ran.failed();
            assert_eq!(got, class, "{api} {scenario}: {message}");
            assert!(message.contains("scripted") || scenario == "errctx", "the provider's words: {message}");
            assert_eq!((ran.retries(), ran.code), (0, Some(1)), "{api} {scenario}");
            assert_eq!(bench.server.seen(scenario).len(), before + 1);
        }
    }
}

#[test]
fn what_may_pass_is_tried_again_and_then_told() {
    let bench = Bench::new();
    for api in APIS {
        for (scenario, class, status) in [
            ("err500", ErrorClass::Provider, Some(500)),
            ("err529", ErrorClass::Provider, Some(529)),
            ("drop", ErrorClass::Network, None),
            ("break", ErrorClass::Network, None),
            ("midstream", ErrorClass::Provider, None),
            ("garbage", ErrorClass::Provider, None),
        ] {
            let before = bench.server.seen(scenario).len();
            let mut command = bench.command(api, scenario);
            command.args(["--max-retries", "2"]);
            let ran = run(&mut command, "go");
            let (got, message) = ran.failed();
            assert_eq!(got, class, "{api} {scenario}: {message}");
            assert_eq!(bench.server.seen(scenario).len(), before + 3, "{api} {scenario}");
            let told: Vec<Option<u16>> = ran
                .facts
                .iter()
                .filter_map(|f| if let Fact::Retry { status, .. } = f { Some(*status) } else { None })
                .collect();
            assert_eq!(told, [status, status], "{api} {scenario}");
        }
    }
}

#[test]
fn what_passes_does_no_harm() {
    let bench = Bench::new();
    for api in APIS {
        for fault in ["err500", "err529", "drop", "break", "midstream", "garbage"] {
            let scenario = format!("once-{fault}");
            // The count of a scenario goes on over runs, so each has its own.
            let own = format!("{scenario}-{api}");
            let first = match fault {
                "err500" => Turn::fail(500, "api_error", "x"),
                "err529" => Turn::fail(529, "overloaded_error", "x"),
                "drop" => Turn::Drop,
                "break" => Turn::Break,
                "midstream" => Turn::FailMidway,
                _ => Turn::Garbage,
            };
            bench.server.script(&own, [first, Turn::say("fine")]);
            let ran = bench.run(api, &own, "go");
            assert_eq!(ran.done(), "fine", "{own}");
            assert_eq!(ran.retries(), 1, "{own}");
            let texts = ran.facts.iter().filter(|f| matches!(f, Fact::Message { .. })).count();
            assert_eq!(texts, 1, "{own}: nothing of a broken answer is said");
            assert_eq!(ran.usage().turns, Some(1));
        }
    }
}

#[test]
fn the_server_says_how_long_to_wait() {
    let bench = Bench::new();
    let began = Instant::now();
    let mut children = Vec::new();
    for api in APIS {
        let scenario = format!("wait-{api}");
        let limited = || Turn::fail(429, "rate_limit_error", "slow down");
        let theirs = Utc::now() - TimeDelta::hours(5);
        let [date, later] = [theirs, theirs + TimeDelta::seconds(1)]
            .map(|time| time.format("%a, %d %b %Y %H:%M:%S GMT").to_string());
        bench.server.script(
            &scenario,
            [
                limited().header("retry-after", "1"),
                limited().header("retry-after-ms", "30"),
                // Its clock is five hours behind ours; the wait is one second all the same.
                limited().header("retry-after", &later).header("date", &date),
                Turn::say("fine"),
            ],
        );
        children.push(start(&mut bench.command(api, &scenario), "go"));
    }
    for child in children {
        let ran = Ran::of(child);
        assert_eq!(ran.done(), "fine");
        assert!(began.elapsed().as_millis() >= 2030, "it did not wait: {:?}", began.elapsed());
        let delays: Vec<u64> = ran
            .facts
            .iter()
            .filter_map(|f| if let Fact::Retry { delay_ms, .. } = f { *delay_ms } else { None })
            .collect();
        assert!(delays[0] >= 1000 && delays[0] < 2000 && delays[1] >= 30 && delays[1] < 100, "{delays:?}");
        assert!(delays[2] >= 1000 && delays[2] < 2000, "{delays:?}");
        let warned = |f: &&Fact| matches!(f, Fact::Limit { kind: LimitKind::Rate, rejected: false, .. });
        assert_eq!(ran.facts.iter().filter(warned).count(), 3);
    }
}

#[test]
fn a_long_wait_is_left_to_the_runner() {
    let bench = Bench::new();
    for api in APIS {
        let ran = bench.run(api, "err429-long", "go");
        assert_eq!((ran.failed().0, ran.retries()), (ErrorClass::RateLimited, 0));
        let Verdict::Failed { until: Some(until), .. } = ran.verdict() else { panic!("{}", ran.stdout) };
        let wait = until - Utc::now();
        assert!(wait > TimeDelta::minutes(110) && wait <= TimeDelta::minutes(120), "{wait}");
    }
}

#[test]
fn a_server_that_says_not_to_retry_is_believed() {
    let bench = Bench::new();
    let turn = Turn::fail(500, "api_error", "never").header("x-should-retry", "false");
    bench.server.script("never", [turn]);
    assert_eq!(bench.run("openai-chat", "never", "go").retries(), 0);
}

#[test]
fn silence_of_the_server_ends() {
    let bench = Bench::new();
    let mut children = Vec::new();
    for api in APIS {
        for scenario in ["hang", "slow"] {
            let mut command = bench.command(api, scenario);
            command.args(["--read-timeout", "1", "--max-retries", "1"]);
            children.push((api, scenario, start(&mut command, "go")));
        }
    }
    for (api, scenario, child) in children {
        let ran = Ran::of(child);
        let (class, message) = ran.failed();
        assert_eq!(class, ErrorClass::Network, "{api} {scenario}: {message}");
        assert_eq!(ran.retries(), 1);
    }
}

#[test]
fn nobody_there_is_a_network_error() {
    let bench = Bench::new();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    for api in APIS {
        let mut command = bench.bare(api);
        command.args(["--model", "m", "--max-retries", "1", "--retry-delay", "1", "--base-url"]);
        command.arg(format!("http://127.0.0.1:{port}/v1"));
        let ran = run(&mut command, "go");
        let (class, message) = ran.failed();
        assert_eq!(class, ErrorClass::Network, "{message}");
        assert_eq!(ran.retries(), 1);
    }
}

#[test]
fn a_redirect_is_not_followed() {
    let bench = Bench::new();
    let away = Turn::fail(307, "redirect", "over there").header("location", &bench.server.openai_url("text"));
    bench.server.script("away", [away]);
    let (class, message) = bench.run("openai-chat", "away", "go").failed();
    assert_eq!(class, ErrorClass::InvalidRequest);
    assert!(message.contains("redirects are not followed"), "{message}");
    assert!(bench.server.seen("text").is_empty());
}

#[test]
fn a_wrong_command_line_is_a_usage_error() {
    let bench = Bench::new();
    let base = ["--base-url", "http://127.0.0.1:1"];
    for (args, prompt) in [
        (&["--model", "m", "--base-url", "gopher://x"][..], "go"),
        (&["--model", "m", "--base-url", "http://api.openai.com/v1"][..], "go"),
        (&base[..], "go"),
        (&["--model", "m", "--temperature", "7", base[0], base[1]][..], "go"),
        (&["--model", "m", base[0], base[1]][..], " \n"),
    ] {
        let ran = run(bench.bare("openai-chat").args(args), prompt);
        assert_eq!((ran.failed().0, ran.code), (ErrorClass::Usage, Some(2)), "{args:?}");
    }
    let lost = run(bench.command("anthropic", "text").args(["--resume", "01jnosuchsession"]), "go");
    assert_eq!(lost.failed().0, ErrorClass::SessionNotFound);
}
