//! Pieces of a task's life: what is there before, which process meets the fault, and what must come out.

use crate::bench::Bench;
use std::fs;
use std::process::Output;
use workspool::model::{Class, State, TaskId};

/// What a scenario prepared.
pub struct Ready {
    /// The command line that meets the fault.
    pub args: Vec<String>,
    /// The tasks that are there already.
    pub ids: Vec<TaskId>,
}

/// A piece of a task's life.
pub struct Scenario {
    pub name: &'static str,
    /// Which process meets the fault.
    pub process: &'static str,
    /// Every how many points one is taken in the short run.
    pub thin: usize,
    pub prepare: fn(&Bench) -> Ready,
    /// Between the fault and the drain; gets what the faulted process printed.
    pub after: fn(&Bench, &Ready, &Output),
    /// What must have come out; `strict` if the fault was a death, which no task may suffer from.
    pub expect: fn(&Bench, &Ready, bool),
}

const DRAIN: [&str; 5] = ["run", "--drain", "--poll", "50ms", "--quiet"];

pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "submit",
        process: "submit",
        thin: 1,
        prepare: submit,
        after: acknowledged,
        expect: at_most_one,
    },
    Scenario {
        name: "submit-key",
        process: "submit",
        thin: 1,
        prepare: submit_key,
        after: submit_again,
        expect: just_one,
    },
    Scenario {
        name: "submit-batch",
        process: "submit",
        thin: 1,
        prepare: submit_batch,
        after: acknowledged,
        expect: both_or_none,
    },
    Scenario { name: "inbox", process: "tick", thin: 1, prepare: inbox, after: nothing, expect: just_one },
    Scenario {
        name: "inbox-refused",
        process: "tick",
        thin: 1,
        prepare: inbox_refused,
        after: nothing,
        expect: refused_once,
    },
    Scenario { name: "tick", process: "tick", thin: 1, prepare: tick, after: nothing, expect: succeeded },
    Scenario {
        name: "supervisor",
        process: "exec",
        thin: 1,
        prepare: one,
        after: nothing,
        expect: succeeded,
    },
    Scenario {
        name: "keeper-of-worker",
        process: "keep:work.1",
        thin: 1,
        prepare: one,
        after: nothing,
        expect: succeeded,
    },
    Scenario {
        name: "keeper-of-gate",
        process: "keep:gate.1.1",
        thin: 1,
        prepare: one,
        after: nothing,
        expect: succeeded,
    },
    Scenario { name: "failing", process: "exec", thin: 2, prepare: failing, after: nothing, expect: failed },
    Scenario {
        name: "own-commits",
        process: "exec",
        thin: 2,
        prepare: own_commits,
        after: nothing,
        expect: failed,
    },
    Scenario {
        name: "retried",
        process: "exec:2",
        thin: 2,
        prepare: retried,
        after: nothing,
        expect: succeeded,
    },
    Scenario { name: "warm", process: "exec", thin: 3, prepare: warm, after: nothing, expect: given_on },
    Scenario { name: "goes-on", process: "exec", thin: 4, prepare: goes_on, after: nothing, expect: all_ran },
    Scenario { name: "needs", process: "exec", thin: 3, prepare: needs, after: nothing, expect: succeeded },
    Scenario {
        name: "skipped",
        process: "exec",
        thin: 3,
        prepare: skipped,
        after: nothing,
        expect: first_failed_second_skipped,
    },
    Scenario {
        name: "cancel-queued",
        process: "cancel",
        thin: 1,
        prepare: cancel_queued,
        after: nothing,
        expect: cancelled_or_succeeded,
    },
    Scenario { name: "hold", process: "hold", thin: 1, prepare: hold, after: release_all, expect: succeeded },
    Scenario {
        name: "release",
        process: "release",
        thin: 1,
        prepare: release,
        after: release_all,
        expect: succeeded,
    },
    Scenario { name: "edit", process: "edit", thin: 1, prepare: edit, after: nothing, expect: succeeded },
    Scenario {
        name: "retry-by-hand",
        process: "retry",
        thin: 1,
        prepare: retry_by_hand,
        after: nothing,
        expect: failed,
    },
    Scenario {
        name: "retry-succeeded",
        process: "exec:2",
        thin: 3,
        prepare: retry_succeeded,
        after: nothing,
        expect: succeeded,
    },
    Scenario {
        name: "clean-gate",
        process: "exec",
        thin: 3,
        prepare: clean_gate,
        after: nothing,
        expect: succeeded,
    },
    Scenario {
        name: "overlay",
        process: "exec",
        thin: 4,
        prepare: overlay,
        after: nothing,
        expect: succeeded,
    },
    Scenario {
        name: "overlay-failing",
        process: "exec",
        thin: 4,
        prepare: overlay_failing,
        after: nothing,
        expect: failed,
    },
    Scenario { name: "clone", process: "exec", thin: 4, prepare: clone, after: nothing, expect: succeeded },
    Scenario {
        name: "clone-failing",
        process: "exec",
        thin: 4,
        prepare: clone_failing,
        after: nothing,
        expect: failed,
    },
    Scenario { name: "copy", process: "exec", thin: 4, prepare: copy, after: nothing, expect: succeeded },
    Scenario {
        name: "copy-failing",
        process: "exec",
        thin: 4,
        prepare: copy_failing,
        after: nothing,
        expect: failed,
    },
    Scenario {
        name: "accept-copy",
        process: "accept",
        thin: 3,
        prepare: accept_copy,
        after: accept_again,
        expect: copied_back_once,
    },
    Scenario {
        name: "cancel-running",
        process: "cancel",
        thin: 1,
        prepare: cancel_running,
        after: cancel_again,
        expect: cancelled,
    },
    Scenario {
        name: "accept-commit",
        process: "accept",
        thin: 2,
        prepare: accept_commit,
        after: accept_again,
        expect: accepted_once,
    },
    Scenario {
        name: "accept-apply",
        process: "accept",
        thin: 2,
        prepare: accept_apply,
        after: accept_again,
        expect: applied_once,
    },
    Scenario { name: "prune", process: "prune", thin: 2, prepare: prune, after: prune_again, expect: pruned },
];

fn args(args: &[&str]) -> Vec<String> {
    args.iter().map(|a| (*a).to_owned()).collect()
}

fn submission(bench: &Bench, more: &str) -> Vec<String> {
    let script = bench.script(more);
    args(&["submit", &script, "--repo", ".", "--worker", "shell", "--verify", "test -s made.txt"])
}

/// Submits without a fault.
fn given(bench: &Bench, more: &str, flags: &[&str]) -> TaskId {
    let mut line = submission(bench, more);
    line.extend(args(flags));
    let line: Vec<&str> = line.iter().map(String::as_str).collect();
    bench.run(&line).split_whitespace().next().unwrap().parse().unwrap()
}

fn ready(line: &[&str], ids: Vec<TaskId>) -> Ready {
    Ready { args: args(line), ids }
}

fn nothing(_: &Bench, _: &Ready, _: &Output) {}

fn submit(bench: &Bench) -> Ready {
    Ready { args: submission(bench, "true"), ids: Vec::new() }
}

fn submit_key(bench: &Bench) -> Ready {
    let mut line = submission(bench, "true");
    line.extend(args(&["--idempotency-key", "k"]));
    Ready { args: line, ids: Vec::new() }
}

fn batch(bench: &Bench) -> String {
    let repo = bench.repo();
    let task = |name: &str, needs: &str| {
        serde_json::json!({
            "name": name, "objective": bench.script("true"), "repository": repo, "worker": "shell",
            "needs": if needs.is_empty() { vec![] } else { vec![needs] },
        })
    };
    serde_json::json!({ "version": 1, "tasks": [task("a", ""), task("b", "a")] }).to_string()
}

fn submit_batch(bench: &Bench) -> Ready {
    let path = bench.path("batch.json");
    fs::write(&path, batch(bench)).unwrap();
    ready(&["submit", "--file", path.to_str().unwrap()], Vec::new())
}

fn inbox(bench: &Bench) -> Ready {
    let _ = bench.spool();
    let task = serde_json::json!({
        "version": 1, "objective": bench.script("true"), "repository": bench.repo(), "worker": "shell",
    });
    fs::write(bench.spool_path().join("inbox/t.json"), task.to_string()).unwrap();
    ready(&["tick", "--quiet"], Vec::new())
}

fn inbox_refused(bench: &Bench) -> Ready {
    let _ = bench.spool();
    let (drop, answers) = (bench.path("drop"), bench.path("answers"));
    for folder in [&drop, &answers] {
        fs::create_dir(folder).unwrap();
    }
    let config = bench.spool_path().join("config.toml");
    let text = fs::read_to_string(&config).unwrap_or_default();
    let inbox = format!("[[inbox]]\npath = {drop:?}\nresults = {answers:?}\n");
    fs::write(config, format!("{text}\n{inbox}")).unwrap();
    fs::write(bench.spool_path().join("inbox/own.json"), "[1]").unwrap();
    fs::write(drop.join("further.json"), "[2]").unwrap();
    ready(&["tick", "--quiet"], Vec::new())
}

fn tick(bench: &Bench) -> Ready {
    let id = given(bench, "true", &[]);
    ready(&["tick", "--quiet"], vec![id])
}

fn one(bench: &Bench) -> Ready {
    let id = given(bench, "true", &[]);
    ready(&DRAIN, vec![id])
}

fn failing(bench: &Bench) -> Ready {
    let id = given(bench, "exit 3", &[]);
    ready(&DRAIN, vec![id])
}

fn own_commits(bench: &Bench) -> Ready {
    let commit = "git add made.txt; git -c user.name=w -c user.email=w@w commit -q -m w; exit 3";
    let id = given(bench, commit, &[]);
    ready(&DRAIN, vec![id])
}

fn retried(bench: &Bench) -> Ready {
    let flag = bench.path("flag");
    let once = format!("if [ ! -e '{0}' ]; then touch '{0}'; exit 3; fi", flag.display());
    let id = given(bench, &once, &["--retries", "3"]);
    ready(&DRAIN, vec![id])
}

/// A task that is given the tree of another one, and whose tree is given on.
fn warm(bench: &Bench) -> Ready {
    bench.keep_warm();
    given(bench, "true", &[]);
    bench.drain();
    let id = given(bench, "test \"$(cat old.txt)\" = old; echo changed > old.txt", &[]);
    ready(&DRAIN, vec![id])
}

/// One supervisor for three tasks, which records the end of each while the next one's command runs.
fn goes_on(bench: &Bench) -> Ready {
    let apart = |bench: &Bench| {
        let line = ["submit", &bench.script("true"), "--worker", "shell", "--workspace", "temporary"];
        bench.run(&line).split_whitespace().next().unwrap().parse().unwrap()
    };
    let ids = vec![apart(bench), apart(bench), given(bench, "true", &[])];
    bench.run(&["list"]);
    bench.one_at_a_time();
    ready(&DRAIN, ids)
}

fn needs(bench: &Bench) -> Ready {
    let path = bench.path("batch.json");
    fs::write(&path, batch(bench)).unwrap();
    bench.run(&["submit", "--file", path.to_str().unwrap()]);
    ready(&DRAIN, Vec::new())
}

fn skipped(bench: &Bench) -> Ready {
    let path = bench.path("batch.json");
    let text = batch(bench).replacen("; true", "; exit 3", 1);
    fs::write(&path, text).unwrap();
    bench.run(&["submit", "--file", path.to_str().unwrap()]);
    ready(&DRAIN, Vec::new())
}

fn cancel_queued(bench: &Bench) -> Ready {
    let id = given(bench, "true", &[]);
    bench.run(&["list"]);
    ready(&["cancel", &id.to_string()], vec![id])
}

fn hold(bench: &Bench) -> Ready {
    let id = given(bench, "true", &[]);
    bench.run(&["list"]);
    ready(&["hold", &id.to_string()], vec![id])
}

fn release(bench: &Bench) -> Ready {
    let id = given(bench, "true", &["--hold"]);
    bench.run(&["list"]);
    ready(&["release", &id.to_string()], vec![id])
}

fn edit(bench: &Bench) -> Ready {
    let id = given(bench, "true", &[]);
    bench.run(&["list"]);
    ready(&["edit", &id.to_string(), "--priority", "90"], vec![id])
}

fn retry_by_hand(bench: &Bench) -> Ready {
    let id = given(bench, "exit 3", &[]);
    bench.drain();
    ready(&["retry", &id.to_string()], vec![id])
}

fn retry_succeeded(bench: &Bench) -> Ready {
    let id = given(bench, "true", &[]);
    bench.drain();
    bench.run(&["retry", &id.to_string()]);
    ready(&DRAIN, vec![id])
}

fn clean_gate(bench: &Bench) -> Ready {
    let id = given(bench, "true", &["--gate", "clean"]);
    ready(&DRAIN, vec![id])
}

fn overlay(bench: &Bench) -> Ready {
    let commit = "rm old.txt; git -c user.name=w -c user.email=w@w commit -qam w";
    let id = given(bench, commit, &["--workspace", overlay_kind(bench)]);
    ready(&DRAIN, vec![id])
}

fn overlay_failing(bench: &Bench) -> Ready {
    let id = given(bench, "rm old.txt; exit 3", &["--workspace", overlay_kind(bench)]);
    ready(&DRAIN, vec![id])
}

/// The kind of workspace, or one much like it where the system does not let anybody make overlays.
fn overlay_kind(bench: &Bench) -> &'static str {
    let doctor = bench.command(&["doctor"]).output().unwrap();
    let said = String::from_utf8_lossy(&doctor.stdout);
    if said.contains("workspaces can be overlays") { "overlay" } else { "worktree" }
}

fn clone(bench: &Bench) -> Ready {
    let commit = "git -c user.name=w -c user.email=w@w commit -q --allow-empty -m w";
    let id = given(bench, commit, &["--workspace", "clone"]);
    ready(&DRAIN, vec![id])
}

fn clone_failing(bench: &Bench) -> Ready {
    let commit = "git add made.txt; git -c user.name=w -c user.email=w@w commit -q -m w; exit 3";
    let id = given(bench, commit, &["--workspace", "clone"]);
    ready(&DRAIN, vec![id])
}

fn copy(bench: &Bench) -> Ready {
    let id = given(bench, "true", &["--workspace", "copy"]);
    ready(&DRAIN, vec![id])
}

fn copy_failing(bench: &Bench) -> Ready {
    let id = given(bench, "exit 3", &["--workspace", "copy"]);
    ready(&DRAIN, vec![id])
}

fn accept_copy(bench: &Bench) -> Ready {
    let id = given(bench, "echo new > old.txt", &["--workspace", "copy"]);
    bench.drain();
    ready(&["accept", &id.to_string()], vec![id])
}

fn cancel_running(bench: &Bench) -> Ready {
    let id = given(bench, "sleep 60", &[]);
    bench.run(&["tick", "--quiet"]);
    bench.await_ledger();
    ready(&["cancel", &id.to_string()], vec![id])
}

fn accept_as(bench: &Bench, how: &str) -> Ready {
    let id = given(bench, "echo new > old.txt", &[]);
    bench.drain();
    ready(&["accept", &id.to_string(), "--as", how], vec![id])
}

fn accept_commit(bench: &Bench) -> Ready {
    accept_as(bench, "commit")
}

fn accept_apply(bench: &Bench) -> Ready {
    accept_as(bench, "apply")
}

fn prune(bench: &Bench) -> Ready {
    let id = given(bench, "exit 3", &["--idempotency-key", "k"]);
    bench.drain();
    ready(&["prune", "--older-than", "0s", "--apply"], vec![id])
}

fn cancel_again(bench: &Bench, ready: &Ready, _: &Output) {
    let line: Vec<&str> = ready.args.iter().map(String::as_str).collect();
    // It may have been cancelled already.
    let _ = bench.command(&line).output().unwrap();
}

/// A person who saw an accept die tries it once more.
fn accept_again(bench: &Bench, ready: &Ready, _: &Output) {
    let accepted = |id: TaskId| {
        let review = bench.spool().task(id).review();
        fs::read_to_string(review).is_ok_and(|t| t.contains("accepted"))
    };
    if !accepted(ready.ids[0]) {
        let line: Vec<&str> = ready.args.iter().map(String::as_str).collect();
        bench.run(&line);
    }
}

fn prune_again(bench: &Bench, ready: &Ready, _: &Output) {
    bench.run(&["check", "--repair"]);
    let line: Vec<&str> = ready.args.iter().map(String::as_str).collect();
    bench.run(&line);
}

/// What was acknowledged is there, whatever happened.
fn acknowledged(bench: &Bench, _: &Ready, out: &Output) {
    if out.status.success() {
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        for id in text.split_whitespace().filter_map(|w| w.parse::<TaskId>().ok()) {
            bench.run(&["show", &id.to_string()]);
        }
    }
}

fn submit_again(bench: &Bench, ready: &Ready, _: &Output) {
    let line: Vec<&str> = ready.args.iter().map(String::as_str).collect();
    bench.run(&line);
}

/// Lets go what is held by hand.
fn release_all(bench: &Bench, ready: &Ready, _: &Output) {
    for id in &ready.ids {
        if bench.spool().state_of(*id).unwrap() == State::Held {
            bench.run(&["release", &id.to_string()]);
        }
    }
}

fn at_most_one(bench: &Bench, _: &Ready, strict: bool) {
    assert!(bench.ids().len() <= 1);
    ended_well(bench, strict);
}

fn just_one(bench: &Bench, _: &Ready, strict: bool) {
    assert_eq!(bench.ids().len(), 1);
    ended_well(bench, strict);
}

/// Each refused file is there once, with its reason, and its client was told.
fn refused_once(bench: &Bench, _: &Ready, _: bool) {
    let shown = |folder: std::path::PathBuf| {
        let names = workspool::spool::names(&folder).unwrap();
        let mut names: Vec<String> = names.into_iter().map(|n| n.into_string().unwrap()).collect();
        names.retain(|name| !name.starts_with('.'));
        names.sort();
        names
    };
    assert_eq!(
        shown(bench.spool_path().join("rejected")),
        ["further.json", "further.json.reason.json", "own.json", "own.json.reason.json"]
    );
    assert_eq!(shown(bench.path("answers")), ["further.json.reason.json"]);
    assert!(shown(bench.path("drop")).is_empty() && shown(bench.spool_path().join("inbox")).is_empty());
    assert_eq!(bench.ids().len(), 0);
}

fn both_or_none(bench: &Bench, _: &Ready, strict: bool) {
    assert!([0, 2].contains(&bench.ids().len()));
    ended_well(bench, strict);
}

fn all_ran(bench: &Bench, ready: &Ready, strict: bool) {
    for id in &ready.ids {
        let result = bench.result(*id);
        let fits = result.state == State::Succeeded || (!strict && is_fault(bench, *id));
        assert!(fits, "{id} ended as {} ({:?}): {}", result.state, result.class, result.message);
    }
}

fn succeeded(bench: &Bench, _: &Ready, strict: bool) {
    assert!(!bench.ids().is_empty());
    ended_well(bench, strict);
}

/// A task after the fault has a tree like one that was made anew, whatever became of the warm one.
fn given_on(bench: &Bench, _: &Ready, strict: bool) {
    ended_well(bench, strict);
    let look = "test \"$(cat old.txt)\" = old; test ! -e made.txt; test -z \"$(git status --porcelain --ignored)\"; ";
    let look = format!("{look}{}", bench.script("true"));
    let out = bench.run(&["submit", &look, "--repo", ".", "--worker", "shell"]);
    bench.drain();
    let result = bench.result(out.split_whitespace().next().unwrap().parse().unwrap());
    assert_eq!(result.state, State::Succeeded, "{}", result.message);
    bench.check();
}

/// Whether a result tells of a fault of ours or of the machine.
fn is_fault(bench: &Bench, id: TaskId) -> bool {
    let result = bench.result(id);
    result.state == State::Failed
        && matches!(result.class, Some(Class::Internal | Class::Disk | Class::Workspace))
}

fn ended_well(bench: &Bench, strict: bool) {
    for id in bench.ids() {
        let result = bench.result(id);
        let fits = result.state == State::Succeeded
            || (!strict && (is_fault(bench, id) || result.state == State::Skipped));
        assert!(fits, "{id} ended as {} ({:?}): {}", result.state, result.class, result.message);
        if result.state == State::Succeeded {
            let commit = result.commit.unwrap();
            let made = bench.git(&["show", &format!("{commit}:made.txt")], &bench.repository_of(id));
            assert!(made.contains(&format!("{id}.{}/work.1", result.attempt)), "{made:?}");
        }
    }
}

fn failed(bench: &Bench, _: &Ready, strict: bool) {
    for id in bench.ids() {
        let result = bench.result(id);
        let fits = result.class == Some(Class::WorkerFailed) || (!strict && is_fault(bench, id));
        assert!(fits, "{id} ended as {} ({:?}): {}", result.state, result.class, result.message);
        if result.class == Some(Class::WorkerFailed) && strict {
            assert!(result.salvage.is_some(), "{result:#?}");
        }
    }
}

fn first_failed_second_skipped(bench: &Bench, _: &Ready, strict: bool) {
    let states = bench.states();
    assert_eq!(states[1], State::Skipped);
    assert_eq!(states[0], State::Failed);
    if strict {
        assert_eq!(bench.result(bench.ids()[0]).class, Some(Class::WorkerFailed));
    }
}

/// A wish that was not acknowledged may or may not have been.
fn cancelled_or_succeeded(bench: &Bench, _: &Ready, strict: bool) {
    let states = bench.states();
    assert_eq!(states.len(), 1);
    if states[0] != State::Cancelled {
        ended_well(bench, strict);
    }
}

fn cancelled(bench: &Bench, ready: &Ready, _: bool) {
    let result = bench.result(ready.ids[0]);
    assert_eq!(result.state, State::Cancelled, "{}", result.message);
    assert_eq!(bench.ledger().len(), 1);
}

/// The user's branch has the change, once, and nothing else is different.
fn accepted_once(bench: &Bench, _: &Ready, _: bool) {
    let repo = bench.repo();
    assert_eq!(bench.git(&["show", "HEAD:old.txt"], &repo), "new\n");
    assert_eq!(bench.git(&["rev-list", "--count", "HEAD"], &repo), "2\n");
    assert_eq!(bench.git(&["status", "--porcelain"], &repo), "");
}

/// The user's tree and index have the change, and nothing else is different.
fn applied_once(bench: &Bench, _: &Ready, _: bool) {
    let repo = bench.repo();
    assert_eq!(bench.git(&["rev-list", "--count", "HEAD"], &repo), "1\n");
    assert_eq!(bench.git(&["status", "--porcelain"], &repo), "A  made.txt\nM  old.txt\n");
    assert_eq!(fs::read_to_string(repo.join("old.txt")).unwrap(), "new\n");
}

/// The user's folder has the change, and git's index of it knows nothing of that.
fn copied_back_once(bench: &Bench, _: &Ready, _: bool) {
    let repo = bench.repo();
    assert_eq!(bench.git(&["status", "--porcelain"], &repo), " M old.txt\n?? made.txt\n");
    assert_eq!(fs::read_to_string(repo.join("old.txt")).unwrap(), "new\n");
}

fn pruned(bench: &Bench, _: &Ready, _: bool) {
    assert_eq!(bench.ids(), Vec::<TaskId>::new());
    let left = |folder: &str| fs::read_dir(bench.spool_path().join(folder)).unwrap().flatten().count();
    assert_eq!((left("keys"), left("running"), left("queue")), (0, 0, 0));
}
