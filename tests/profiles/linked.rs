//! A program that nobody here has heard of, added by one file: no line of Rust knows it.

use super::programs::put;
use super::support::World;
use serde_json::json;
use std::fs;
use workspool::model::{Class, State};

/// Speaks Claude Code's format, keeps its sessions in a folder of its own, and wants a file.
const AGENT: &str = r#"
session=new
while [ $# -gt 0 ]; do
    case $1 in
        --id | --continue) session=$2; shift ;;
        --model) shift ;;
    esac
    shift
done
[ -f "$NOVEL_HOME/auth.json" ] || { echo 'please log in' >&2; exit 7; }
prompt=$(cat)
echo "$session" >> "$NOVEL_HOME/sessions"
cp "$NOVEL_CONFIG" config.txt
printf '%s\n' "$prompt" > prompt.txt
echo "$NOVEL_TOKEN" > token-length; wc -c < token-length > n; mv n token-length
echo '{"type":"system","subtype":"init","session_id":"'$session'","claude_code_version":"9.1"}'
echo '{"type":"assistant","message":{"content":[{"type":"text","text":"working, token '"$NOVEL_TOKEN"'"}]},"session_id":"'$session'"}'
echo '{"type":"result","subtype":"success","is_error":false,"result":"all done","session_id":"'$session'","usage":{"input_tokens":11,"output_tokens":7},"total_cost_usd":0.25}'
"#;

fn link(world: &World) {
    let agent = put(&world.root().join("tools"), "novel", AGENT);
    let profile = json!({
        "name": "novel",
        "command": [agent, "run"],
        "output": "claude",
        "session": ["--id", "{session}"],
        "resume": ["--continue", "{session}"],
        "model": ["--model", "{model}"],
        "env": { "NOVEL_CONFIG": "{files_dir}/conf/novel.json" },
        "pass_env": ["NOVEL_TOKEN=MY_TOKEN"],
        "private_dirs": { "NOVEL_HOME": { "from": "~/.novel", "link": ["auth.json"] } },
        "files": { "conf/novel.json": "{\"model\": {model:json}, \"probed\": {probe:json}}" },
        "probe": ["sh", "-c", "echo \"  found $NOVEL_CONFIG\" | sed s,/.*/,,"],
        "stop_patterns": [{ "pattern": "please log in", "class": "auth" }]
    });
    let file = world.root().join("novel.json");
    fs::write(&file, profile.to_string()).unwrap();
    world.run(&["workers", "link", "--file", &file.to_string_lossy()]).ok();
}

fn sign_in(world: &World) {
    fs::create_dir_all(world.home().join(".novel")).unwrap();
    fs::write(world.home().join(".novel/auth.json"), "{}").unwrap();
}

#[test]
fn a_program_is_added_by_one_file() {
    let world = World::new();
    link(&world);
    sign_in(&world);
    world.set_env("MY_TOKEN", "token-that-nobody-may-see");
    let repo = world.repo("r");
    let id = world
        .submit("the objective")
        .repo(&repo)
        .worker("novel")
        .with("model", "m\"1")
        .verify("test -f prompt.txt")
        .ok();
    world.drain();
    let result = world.succeeded(id);
    let (worker, usage) = (&result.worker, &result.usage);
    assert_eq!(worker.version.as_deref(), Some("9.1"));
    assert_eq!((usage.input_tokens, usage.output_tokens, usage.cost_usd), (Some(11), Some(7), Some(0.25)));
    assert_eq!(result.summary.as_deref(), Some("all done"));
    let branch = result.branch.clone().unwrap();
    assert!(repo.show(&branch, "prompt.txt").contains("the objective"));
    assert_eq!(repo.show(&branch, "token-length").trim(), "26", "the token came under its new name");
    let config: serde_json::Value = serde_json::from_str(&repo.show(&branch, "config.txt")).unwrap();
    assert_eq!(config, json!({ "model": "m\"1", "probed": "found novel.json" }));
    // Its value is nowhere, not even where the program printed it.
    assert_eq!(world.find_in_spool("token-that-nobody-may-see", |_| false), Vec::<std::path::PathBuf>::new());

    // The session is the one that we named, and a later attempt finds it in the same private folder.
    let session = worker.session.clone().unwrap();
    assert_eq!(session.len(), 36);
    let home = world.dir(id).path().join("private/novel/NOVEL_HOME");
    assert_eq!(fs::read_link(home.join("auth.json")).unwrap(), world.home().join(".novel/auth.json"));
    world.on("revise", id, &["--feedback", "more"]).ok();
    world.drain();
    assert_eq!(world.succeeded(id).worker.session.as_deref(), Some(session.as_str()));
    assert_eq!(fs::read_to_string(home.join("sessions")).unwrap(), format!("{session}\n{session}\n"));
}

#[test]
fn what_its_output_means_is_in_its_file_too() {
    let world = World::new();
    link(&world);
    let repo = world.repo("r");
    let id = world.submit("x").repo(&repo).worker("novel").with("model", "m").ok();
    world.drain();
    let result = world.result(id);
    assert_eq!((result.state, result.class), (State::Failed, Some(Class::Auth)), "{}", result.message);
    assert!(result.message.contains("please log in"), "{}", result.message);
}

#[test]
fn a_repository_that_would_steer_the_program_is_refused_unless_it_may() {
    let world = World::new();
    let agent = put(&world.root().join("tools"), "steered", "echo x > out.txt");
    let profile = |name: &str, more: serde_json::Value| {
        let mut profile = json!({ "name": name });
        profile.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let file = world.root().join("profile.json");
        fs::write(&file, profile.to_string()).unwrap();
        world.run(&["workers", "link", "--file", &file.to_string_lossy()]).ok();
    };
    profile("wary", json!({ "command": [agent], "refuse_files": [".agent/hooks"] }));
    profile("trusting", json!({ "extends": "wary", "refuse_files": [] }));
    let repo = world.repo("r");
    repo.write(".agent/hooks/start", "x").write("sub/a", "x").commit("hooks");
    let wary = world.submit("x").repo(&repo).worker("wary").with("subdir", "sub").ok();
    let trusting = world.submit("x").repo(&repo).worker("trusting").ok();
    world.drain();
    let result = world.result(wary);
    assert_eq!((result.state, result.class), (State::Failed, Some(Class::Permission)));
    assert!(result.message.contains(".agent/hooks"), "{}", result.message);
    world.succeeded(trusting);
}

#[test]
fn a_program_may_be_wrapped_and_what_was_wrapped_is_stopped() {
    let world = World::new();
    let tools = world.root().join("tools");
    let stopped = world.root().join("stopped");
    let wrapper = put(&tools, "box", "name=$1; shift; echo \"in $name\" > boxed.txt; exec \"$@\"");
    let agent = put(&tools, "agent", "cat > prompt.txt");
    let stop = put(&tools, "unbox", &format!("echo \"$@\" >> '{}'", stopped.display()));
    let profile = json!({
        "name": "boxed", "command": [agent], "wrap": [wrapper, "w-{task}"], "stop": [stop, "w-{task}", "{attempt}"]
    });
    let file = world.root().join("boxed.json");
    fs::write(&file, profile.to_string()).unwrap();
    world.run(&["workers", "link", "--file", &file.to_string_lossy()]).ok();
    let repo = world.repo("r");
    let id = world.submit("the objective").repo(&repo).worker("boxed").ok();
    world.drain();
    let branch = world.succeeded(id).branch.unwrap();
    assert_eq!(repo.show(&branch, "boxed.txt"), format!("in w-{id}\n"));
    assert!(repo.show(&branch, "prompt.txt").contains("the objective"));
    assert_eq!(fs::read_to_string(&stopped).unwrap(), format!("w-{id} 1\n"));
}

#[test]
fn a_program_that_is_silent_by_nature_says_so_in_its_file() {
    let world = World::configured("[defaults]\nsilence_timeout = 1\n");
    let agent = put(&world.root().join("tools"), "agent", "sleep 3; echo done");
    let link = |name: &str, more: serde_json::Value| {
        let mut profile = json!({ "name": name, "command": [agent] });
        profile.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let file = world.root().join("profile.json");
        fs::write(&file, profile.to_string()).unwrap();
        world.run(&["workers", "link", "--file", &file.to_string_lossy()]).ok();
    };
    link("quiet", json!({ "silence_timeout": 600 }));
    link("plain", json!({}));
    let quiet = world.submit("x").worker("quiet").ok();
    let plain = world.submit("x").worker("plain").with("retries", "0").ok();
    let task = json!({ "objective": "x", "worker": "quiet", "retries": 0, "silence_timeout": 1 });
    let asked = world.submit_file("-").input(task.to_string()).ok();
    world.drain();
    world.succeeded(quiet);
    for id in [plain, asked] {
        assert_eq!(world.result(id).class, Some(Class::SilenceTimeout));
    }
}
