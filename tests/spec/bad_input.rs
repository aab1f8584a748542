//! Bad input: each a clear error with an exit code of its own, and nothing half done.

use crate::support::World;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;

fn from_json(world: &World, task: Value, code: i32, words: &[&str]) {
    world.submit_file("-").input(task.to_string()).refused(code, words);
}

#[test]
fn an_unknown_field_is_named_with_the_nearest_known_one() {
    let world = World::new();
    let task = json!({"objective": "x", "worker": "shell", "priorty": 5});
    from_json(&world, task, 3, &["line 1", "priorty", "hint: did you mean `priority`?"]);
    from_json(
        &world,
        json!({"objective": "x", "budget": {"token": 5}}),
        3,
        &["budget", "did you mean `tokens`?"],
    );
}

#[test]
fn a_wrong_type_is_named_with_its_place() {
    let world = World::new();
    from_json(
        &world,
        json!({"objective": "x", "timeout": "abc"}),
        3,
        &["timeout: invalid type: string \"abc\""],
    );
    from_json(&world, json!({"objective": 5}), 3, &["objective: invalid type: integer `5`"]);
    from_json(&world, json!(["x"]), 3, &["expected a task (a JSON object), found a list"]);
    from_json(
        &world,
        json!({"objective": "x", "permission": "sudo"}),
        3,
        &["permission", "sudo", "read_only"],
    );
    from_json(&world, json!({"context": "x"}), 3, &["missing field `objective`"]);
    world.submit_file("-").input("{\n  \"objective\": \"x\",\n  oops\n}").refused(3, &["line 3, column 3"]);
    world.submit_file("-").input("").refused(3, &["the file is empty"]);
    world.submit_file("nowhere.json").refused(4, &["cannot read nowhere.json"]);
}

#[test]
fn what_cannot_be_done_yet_is_refused_as_such() {
    let world = World::new();
    from_json(
        &world,
        json!({"objective": "x", "worker": "shell", "cron": "0 3 * * *"}),
        3,
        &["cron", "cannot be done yet"],
    );
    from_json(&world, json!({"objective": "x", "version": 99}), 3, &["version: this is format version 99"]);
}

#[test]
fn every_problem_is_told_at_once() {
    let world = World::new();
    world.submit(" ").worker("shell").with("priority", "101").with("subdir", "../x").refused(
        3,
        &["objective: the objective is empty", "priority: 101 is out of range", "subdir: ../x leaves"],
    );
}

#[test]
fn a_repository_must_be_there_and_be_one() {
    let world = World::new();
    let submit = || world.script("true");
    submit().with("repo", "nowhere").refused(5, &["repository: ", "nowhere: there is no such folder"]);
    fs::write(world.root().join("file"), "").unwrap();
    submit().with("repo", "file").refused(5, &["is not a folder"]);
    fs::create_dir(world.root().join("plain")).unwrap();
    submit().with("repo", "plain").refused(5, &["plain", "is not in a git repository"]);
    let empty = world.empty_repo("empty");
    submit().repo(&empty).refused(5, &["no commit"]);
}

#[test]
fn a_path_that_is_no_text_is_refused_before_anything_is_written() {
    use std::os::unix::ffi::OsStringExt as _;
    let world = World::new();
    let name = std::ffi::OsString::from_vec(b"caf\xe9".to_vec());
    let path = world.root().join(name);
    // Not every file system takes such a name.
    if fs::create_dir(&path).is_ok() {
        let submit = || world.script("true").with("repo", &path);
        submit().refused(5, &["repository: ", "is not UTF-8"]);
        submit().with("workspace", "directory").refused(5, &["is not UTF-8"]);
    }
    world.run(&["list", "--repo", "nowhere"]).exits(5).says(&["there is no folder nowhere"]);
}

#[test]
fn a_base_must_be_a_commit() {
    let world = World::new();
    let repo = world.repo("r");
    world
        .script("true")
        .repo(&repo)
        .with("base", "no-such")
        .refused(5, &["base: ", "no-such", "hint: expected a commit"]);
    // A legal name for a branch, and never a flag of git.
    world.script("true").repo(&repo).with("base", "--all").refused(5, &["base: "]);
    let blob = repo.rev("HEAD:README.md");
    world.script("true").repo(&repo).with("base", &blob).refused(5, &["base: "]);
}

#[test]
fn spool_and_repository_are_never_inside_each_other() {
    let world = World::new();
    let inside = world.repo("../spool/inner");
    world.script("true").repo(&inside).refused(5, &["lies inside the spool"]);
    let around = world.repo("around");
    let spool = around.path().join("deep/spool");
    let ran = world.script("true").repo(&around).with("spool", &spool).run().exits(5);
    ran.says(&["the spool", "lies inside", "allow_repository_above_spool"]);
    // A link does not hide it.
    std::os::unix::fs::symlink(inside.path(), world.root().join("link")).unwrap();
    world.script("true").with("repo", "link").refused(5, &["lies inside the spool"]);
    // The owner may say that it is meant.
    fs::write(
        spool.join("config.toml"),
        "allow_repository_above_spool = true\n[disk]\nreserve_bytes = 0\nreserve_percent = 0\n",
    )
    .unwrap();
    world.script("true").repo(&around).with("spool", &spool).run().ok();
}

#[test]
fn a_worker_must_be_there() {
    let world = World::new();
    world.submit("x").worker("shel").refused(4, &["worker: there is no worker shel", "did you mean shell?"]);
    // Whatever agents this machine has, they are not found here.
    let nowhere = world.root().join("nowhere").to_string_lossy().into_owned();
    let words = ["worker: no worker is named, and none was found", "claude is not installed"];
    world.submit("x").env("PATH", &nowhere).refused(4, &words);
    world
        .submit("x")
        .worker("shell")
        .with("model", "m")
        .refused(4, &["model: worker shell cannot choose a model"]);
    // clap refuses what can be no name at all.
    world.submit("x").worker("../x").refused(2, &["is not a worker name"]);
}

#[test]
fn the_default_worker_comes_from_the_configuration_then_the_environment() {
    let world = World::new();
    let by_environment = world.submit("true").env("WORKSPOOL_WORKER", "shell").ok();
    world.configure("default_worker = \"shell\"");
    let by_configuration = world.submit("true").env("WORKSPOOL_WORKER", "mock").ok();
    world.run(&["list"]).ok();
    assert_eq!(world.task(by_environment).worker.as_str(), "shell");
    assert_eq!(world.task(by_configuration).worker.as_str(), "shell");
}

#[test]
fn a_spool_that_cannot_be_written_is_named() {
    let world = World::new();
    fs::write(world.root().join("file"), "").unwrap();
    let place = world.root().join("file/spool");
    world.script("true").with("spool", &place).run().exits(7).says(&["file/spool"]);
    let broken = world.root().join("broken");
    fs::create_dir(&broken).unwrap();
    fs::write(broken.join("spool.json"), "{").unwrap();
    world.script("true").with("spool", &broken).run().exits(7).says(&["spool.json is broken"]);
    fs::write(broken.join("spool.json"), r#"{"version": 99, "id": "x"}"#).unwrap();
    world.script("true").with("spool", &broken).run().exits(7).says(&["format version 99"]);
    let locked = world.root().join("locked");
    fs::create_dir(&locked).unwrap();
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o500)).unwrap();
    if fs::write(locked.join("probe"), "").is_err() {
        world.script("true").with("spool", locked.join("s")).run().exits(7).says(&["locked"]);
    }
}

#[test]
fn a_wrong_configuration_is_named_with_its_place() {
    let world = World::new();
    fs::write(world.spool_path().join("config.toml"), "poll = 5\nmax_concurency = 3\n").unwrap();
    world.run(&["list"]).exits(8).says(&["config.toml", "line 2", "did you mean `max_concurrency`?"]);
    fs::write(world.spool_path().join("config.toml"), "poll = \"often\"\n").unwrap();
    world.script("true").run().exits(8).says(&["config.toml", "poll"]);
    let mut command = world.command(&["list"]);
    fs::write(world.spool_path().join("config.toml"), "").unwrap();
    command.env("WORKSPOOL_MAX_CONCURRENCY", "many");
    crate::support::Ran::to_end(command, b"").exits(8).says(&["WORKSPOOL_MAX_CONCURRENCY"]);
}

#[test]
fn ids_that_do_not_exist_are_not_found_by_any_verb() {
    let world = World::new();
    world.script("true").ok();
    let id = "01aaaaaaaaaaaaaaaaaaaaaaaa";
    for verb in ["show", "logs", "diff", "artifacts", "wait", "why", "cancel", "hold", "release", "retry"] {
        world.run(&[verb, id]).exits(4).says(&["there is no task", id]);
        world.run(&[verb, "../../escaped"]).exits(4).says(&["there is no task ../../escaped"]);
    }
    world.run(&["edit", id, "--priority", "1"]).exits(4).says(&["there is no task"]);
    world.script("true").with("needs", id).refused(4, &["needs[0]: there is no task"]);
}

#[test]
fn a_beginning_that_fits_several_tasks_names_them() {
    let world = World::new();
    let tasks =
        r#"{"tasks": [{"objective": "a", "worker": "shell"}, {"objective": "b", "worker": "shell"}]}"#;
    let ids = world.submit_file("-").input(tasks).all();
    let (a, b) = (ids[0].to_string(), ids[1].to_string());
    let shared = &a[..12];
    world.run(&["show", shared]).exits(4).says(&["is ambiguous", &a, &b]);
    world.run(&["cancel", shared]).exits(4).says(&["is ambiguous"]);
    // Three letters stand for nothing, and an end that fits one task is that task.
    world.run(&["show", &a[..3]]).exits(4);
    let shown = world.run(&["show", &b[18..]]).ok().text();
    assert!(shown.contains(&b), "{shown}");
}

#[test]
fn the_owners_ceilings_hold_for_whoever_submits() {
    let world = World::configured(
        "[ceilings]\npermission = \"workspace_write\"\ntimeout = 60\nbudget = { tokens = 1000 }",
    );
    let task = json!({"objective": "x", "worker": "shell", "permission": "full", "timeout": 61, "budget": {"tokens": 1001}});
    from_json(
        &world,
        task,
        3,
        &[
            "permission: full is wider than the owner allows",
            "timeout: 61 is more",
            "budget.tokens: 1001 is more",
        ],
    );
    world.script("true").with("timeout", "60").ok();
}

#[test]
fn a_full_disk_takes_nothing_in() {
    let world = World::configured("[disk]\nreserve_bytes = 4000000000000000000");
    world.script("true").refused(7, &["MiB free", "must be left", "hint: free some space"]);
}
