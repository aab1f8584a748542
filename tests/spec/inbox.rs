//! Dropped files: `cp task.json inbox/` is an interface, and every file gets an answer.

use crate::support::World;
use serde_json::{Value, json};
use std::fs;
use std::io::Write as _;
use std::path::Path;
use workspool::model::{Door, ProblemKind, Rejection, State, TaskId};
use workspool::spool::dropped_name;

fn task(script: &str) -> String {
    json!({"objective": script, "worker": "shell"}).to_string()
}

fn answer(world: &World, name: &str) -> Value {
    serde_json::from_str(&world.await_file(world.spool_path().join("taken").join(name))).unwrap()
}

fn id_in(answer: &Value) -> TaskId {
    answer["tasks"][0]["id"].as_str().unwrap().parse().unwrap()
}

fn reason(world: &World, name: &str) -> Rejection {
    let path = world.spool_path().join("rejected").join(format!("{name}.reason.json"));
    serde_json::from_str(&world.await_file(path)).unwrap()
}

#[test]
fn a_dropped_task_is_taken_answered_and_run() {
    let world = World::new();
    world.drop_file("spool/inbox", "fix.json", task("echo dropped"));
    world.drain();
    let answer = answer(&world, "fix.json");
    let id = id_in(&answer);
    assert_eq!(answer["file"], "fix.json");
    assert_eq!(world.succeeded(id).id, id);
    assert_eq!(world.task(id).submitted_by.door, Door::Inbox);
    assert_eq!(world.task(id).submitted_by.file.as_deref(), Some("fix.json"));
    assert_eq!(world.names("inbox"), Vec::<String>::new());
    // The client knows only its file's name.
    for verb in ["show", "wait", "why", "logs"] {
        world.run(&[verb, "fix.json"]).ok();
    }
}

#[test]
fn ten_rubbish_files_are_refused_with_reasons_and_the_good_one_runs() {
    let world = World::new();
    let whole = [
        ("01-list.json", "[1, 2]", ProblemKind::Malformed),
        ("02-number.json", "7", ProblemKind::Malformed),
        ("03-timeout.json", r#"{"objective": "x", "timeout": "abc"}"#, ProblemKind::Malformed),
        ("04-script.json", r#"{"objective": 5}"#, ProblemKind::Malformed),
        ("05-field.json", r#"{"objective": "x", "worker": "shell", "priorty": 1}"#, ProblemKind::Malformed),
        ("06-empty.json", r#"{"tasks": []}"#, ProblemKind::Invalid),
        ("07-worker.json", r#"{"objective": "x", "worker": "nobody"}"#, ProblemKind::Worker),
        (
            "08-repository.json",
            r#"{"objective": "x", "worker": "shell", "repository": "/nowhere/at/all"}"#,
            ProblemKind::Repository,
        ),
        ("09-range.json", r#"{"objective": "x", "worker": "shell", "priority": 200}"#, ProblemKind::Invalid),
        ("10-need.json", r#"{"objective": "x", "worker": "shell", "needs": ["nothing"]}"#, ProblemKind::Task),
    ];
    for (name, text, _) in whole {
        world.drop_file("spool/inbox", name, text);
    }
    world.drop_file("spool/inbox", "11-good.json", task("echo good"));
    world.tick();
    let good = id_in(&answer(&world, "11-good.json"));
    assert_eq!(world.await_end(good).state, State::Succeeded);
    for (name, text, kind) in whole {
        let reason = reason(&world, name);
        assert_eq!((reason.file.as_str(), reason.problems[0].kind), (name, kind), "{reason:?}");
        assert_eq!(fs::read_to_string(world.spool_path().join("rejected").join(name)).unwrap(), text);
    }
    assert_eq!(world.names("inbox"), Vec::<String>::new());
    assert_eq!(world.names("tasks").len(), 1, "nothing of a refused file became a task");
    let field = reason(&world, "05-field.json").problems.remove(0);
    assert_eq!((field.line, field.field.as_deref()), (Some(1), Some("priorty")));
    assert_eq!(field.hint.as_deref(), Some("did you mean `priority`?"));
    let timeout = reason(&world, "03-timeout.json").problems.remove(0);
    assert_eq!(timeout.field.as_deref(), Some("timeout"));
    assert!(timeout.message.contains("expected u64"), "{timeout:?}");
}

#[test]
fn what_is_no_json_is_left_alone_for_a_while_and_then_refused() {
    let world = World::new();
    let nuls = vec![0; 512];
    for (name, bytes) in
        [("torn.json", &b"{\"objective\": \"x\""[..]), ("nuls.json", &nuls[..]), ("empty.json", b"")]
    {
        world.drop_file("spool/inbox", name, bytes);
    }
    world.tick();
    assert_eq!(world.names("inbox").len(), 3, "each of them may still be arriving");
    assert_eq!(world.names("rejected"), Vec::<String>::new());
    let _runner = world.run_loop();
    for name in ["torn.json", "nuls.json", "empty.json"] {
        assert_eq!(reason(&world, name).problems[0].kind, ProblemKind::Malformed);
    }
}

#[test]
fn a_file_that_is_copied_slowly_runs_once() {
    let world = World::new();
    let mark = world.root().join("runs");
    let text = task(&format!("echo ran >> {}", mark.display()));
    let runner = world.run_loop();
    let mut file = fs::File::create(world.spool_path().join("inbox/slow.json")).unwrap();
    for piece in text.as_bytes().chunks(text.len() / 8) {
        file.write_all(piece).unwrap();
        file.flush().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(120));
    }
    drop(file);
    let id = id_in(&answer(&world, "slow.json"));
    assert_eq!(world.await_end(id).state, State::Succeeded);
    drop(runner);
    assert_eq!(world.names("tasks").len(), 1);
    assert_eq!(world.names("rejected"), Vec::<String>::new());
    assert_eq!(fs::read_to_string(mark).unwrap(), "ran\n");
}

#[test]
fn copies_that_sync_tools_make_are_one_task_if_it_has_a_key() {
    let world = World::new();
    let text = json!({"objective": "true", "worker": "shell", "idempotency_key": "k1"}).to_string();
    for name in ["x.json", "x (conflicted copy).json", "x 2.json"] {
        world.drop_file("spool/inbox", name, &text);
    }
    let other = json!({"objective": "false", "worker": "shell", "idempotency_key": "k1"}).to_string();
    world.drop_file("spool/inbox", "z other.json", other);
    world.drain();
    let ids: Vec<TaskId> = ["x.json", "x (conflicted copy).json", "x 2.json"]
        .iter()
        .map(|n| id_in(&answer(&world, n)))
        .collect();
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    assert_eq!(world.names("tasks").len(), 1);
    let problem = reason(&world, "z other.json").problems.remove(0);
    assert_eq!(problem.kind, ProblemKind::Conflict);
    assert!(problem.message.contains("objective differs"), "{problem:?}");
}

#[test]
fn a_file_of_lines_is_a_batch_and_is_taken_when_it_is_still() {
    let world = World::new();
    let lines = format!("{}\n{}\n{}\n", task("echo 1"), task("echo 2"), task("echo 3"));
    world.drop_file("spool/inbox", "many.jsonl", &lines);
    world.tick();
    assert_eq!(world.names("inbox"), ["many.jsonl"], "a part of it would read like the whole");
    let _runner = world.run_loop();
    let answer = answer(&world, "many.jsonl.json");
    let tasks = answer["tasks"].as_array().unwrap();
    assert_eq!(tasks.len(), 3);
    for task in tasks {
        assert_eq!(world.await_end(task["id"].as_str().unwrap().parse().unwrap()).state, State::Succeeded);
    }
}

#[test]
fn a_byte_order_mark_does_no_harm_and_a_batch_is_all_or_nothing() {
    let world = World::new();
    world.drop_file(
        "spool/inbox",
        "bom.json",
        [b"\xef\xbb\xbf".as_slice(), task("true").as_bytes()].concat(),
    );
    let half = json!({"tasks": [{"objective": "true", "worker": "shell"}, {"objective": "true", "worker": "nobody"}]});
    world.drop_file("spool/inbox", "half.json", half.to_string());
    world.drain();
    world.succeeded(id_in(&answer(&world, "bom.json")));
    assert_eq!(reason(&world, "half.json").problems[0].field.as_deref(), Some("tasks[1].worker"));
    assert_eq!(world.names("tasks").len(), 1);
}

#[test]
fn links_folders_and_giants_do_not_get_in() {
    let world = World::new();
    let inbox = world.spool_path().join("inbox");
    fs::write(world.root().join("target.json"), task("true")).unwrap();
    std::os::unix::fs::symlink(world.root().join("target.json"), inbox.join("link.json")).unwrap();
    std::os::unix::fs::symlink(world.root().join("nowhere"), inbox.join("dangling.json")).unwrap();
    fs::create_dir(inbox.join("folder.json")).unwrap();
    fs::File::create(inbox.join("giant.json")).unwrap().set_len(64 * 1024 * 1024 + 1).unwrap();
    for other in [".hidden.json", "notes.txt", "task.json.part", "task.json~"] {
        fs::write(inbox.join(other), task("true")).unwrap();
    }
    world.drain();
    assert!(reason(&world, "link.json").problems[0].message.contains("symbolic link"));
    assert!(reason(&world, "giant.json").problems[0].message.contains("larger than"));
    assert!(world.root().join("target.json").is_file(), "what a link points at is not ours");
    assert_eq!(world.names("tasks"), Vec::<String>::new());
    let left = [".hidden.json", "dangling.json", "folder.json", "notes.txt", "task.json.part", "task.json~"];
    assert_eq!(world.names("inbox"), left);
}

#[test]
fn a_name_that_comes_again_is_another_task() {
    let world = World::new();
    let mut seen = Vec::new();
    for n in 0..2 {
        world.drop_file("spool/inbox", "same.json", task(&format!("echo {n}")));
        world.drain();
        seen.push(id_in(&answer(&world, "same.json")));
    }
    assert_ne!(seen[0], seen[1]);
    for n in 0..2 {
        world.drop_file("spool/inbox", "bad.json", format!("[{n}]"));
        world.drain();
    }
    assert_eq!(
        world.names("rejected"),
        ["bad.json", "bad.json.2", "bad.json.2.reason.json", "bad.json.reason.json"]
    );
}

#[test]
fn a_name_as_long_as_a_file_system_takes_is_taken_and_refused_like_any_other() {
    let world = World::configured("[[inbox]]\npath = \"{root}/drop\"\nresults = \"{root}/answers\"");
    for folder in ["drop", "answers"] {
        fs::create_dir(world.root().join(folder)).unwrap();
    }
    let [good, bad] = ["g", "b"].map(|letter| format!("{}.json", letter.repeat(250)));
    for inbox in ["spool/inbox", "drop"] {
        fs::write(world.root().join(inbox).join(&good), task("true")).unwrap();
        fs::write(world.root().join(inbox).join(&bad), "[]").unwrap();
    }
    world.drain();
    let (kept, refused) = (dropped_name(&good), dropped_name(&bad));
    assert!(kept.starts_with("ggg") && kept.ends_with(".json") && kept.len() < good.len());
    let id = id_in(&answer(&world, &kept));
    world.succeeded(id);
    // Its client knows it by the whole of its name.
    assert!(world.run(&["show", &good]).ok().text().contains("succeeded"));
    assert_eq!(reason(&world, &refused).file, refused);
    assert_eq!(world.names("inbox"), Vec::<String>::new());
    let answers = world.root().join("answers");
    assert!(answers.join(&kept).is_file() && answers.join(format!("{refused}.reason.json")).is_file());
    assert_eq!(fs::read_dir(world.root().join("drop")).unwrap().count(), 0);
}

#[test]
fn a_reason_without_its_file_makes_room_for_the_next() {
    let world = World::new();
    world.drop_file("spool/inbox", "a.json", "[]");
    world.drain();
    let rejected = world.spool_path().join("rejected");
    // The client has mended it.
    fs::remove_file(rejected.join("a.json")).unwrap();
    world.drop_file("spool/inbox", "a.json", r#"{"objective": ""}"#);
    world.drain();
    assert_eq!(world.names("rejected"), ["a.json", "a.json.reason.json"]);
    assert!(reason(&world, "a.json").problems[0].message.contains("empty"));
}

#[test]
fn a_further_inbox_answers_in_its_results_folder() {
    let world = World::configured("[[inbox]]\npath = \"{root}/drop\"\nresults = \"{root}/answers\"");
    let at = |name: &str| world.root().join(name);
    for folder in ["drop", "answers"] {
        fs::create_dir(at(folder)).unwrap();
    }
    world.drop_file("drop", "a.json", task("echo hi > out.txt"));
    world.drop_file("drop", "b.json", "[]");
    world.drain();
    let taken: Value = serde_json::from_str(&fs::read_to_string(at("answers/a.json")).unwrap()).unwrap();
    let id = id_in(&taken);
    let result: Value =
        serde_json::from_str(&fs::read_to_string(at("answers").join(format!("{id}.result.json"))).unwrap())
            .unwrap();
    assert_eq!(result["state"], "succeeded");
    assert_eq!(result, serde_json::to_value(world.result(id)).unwrap());
    let refused: Rejection =
        serde_json::from_str(&fs::read_to_string(at("answers/b.json.reason.json")).unwrap()).unwrap();
    assert_eq!(refused.file, "b.json");
    assert_eq!(fs::read_dir(at("drop")).unwrap().count(), 0);
}

#[test]
fn an_inbox_that_is_not_there_does_not_stop_the_others() {
    let world = World::configured("[[inbox]]\npath = \"{root}/not-mounted\"");
    world.drop_file("spool/inbox", "a.json", task("true"));
    world.drain();
    world.succeeded(id_in(&answer(&world, "a.json")));
    assert!(!Path::new(&world.root().join("not-mounted")).exists());
}

#[test]
fn a_submission_that_cannot_be_read_does_not_stop_the_others() {
    let world = World::new();
    std::fs::write(world.spool_path().join("intake/00000000000000000000000000.json"), "{").unwrap();
    let id = world.script("true").ok();
    world.on("show", id, &[]).ok();
    assert!(world.run(&["list"]).ok().text().contains(&id.to_string()));
    // It says so, and ends all the same.
    let ran = world.run(&["run", "--drain", "--poll", "300ms"]).ok();
    assert!(ran.stderr.contains("00000000000000000000000000.json"), "{}", ran.stderr);
    world.succeeded(id);
}
