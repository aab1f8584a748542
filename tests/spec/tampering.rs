//! Workers that reach out of their workspace: into the repository's configuration, hooks and refs, into the
//! spool's records, into git itself. Nothing that they wrote is executed or believed by us (I14).

use crate::support::World;
use std::fs;
use workspool::model::{Class, State, Verification};

#[test]
fn hooks_and_settings_that_a_worker_plants_do_not_run_and_are_put_back() {
    let world = World::new();
    let repo = world.repo("r");
    let mark = world.root().join("ran");
    let path = mark.to_str().unwrap();
    let command = format!("touch {path}; cat");
    let before = repo.fingerprint();
    let verbs = [
        "write",
        "x.txt",
        "x",
        "hook",
        path,
        "git-config",
        "core.fsmonitor",
        &command,
        "git-config",
        "core.hooksPath",
        ".",
        "driver",
        "evil",
        &command,
    ];
    let id = world.misbehave(&verbs).repo(&repo).with("permission", "full").verify("true").ok();
    world.drain();
    let result = world.succeeded(id);
    assert!(!mark.exists(), "what the worker planted was run");
    before.assert_same(&repo.fingerprint());
    for what in ["core.fsmonitor", "core.hookspath", "filter.evil.clean", "merge.evil.driver", "pre-commit"] {
        assert!(
            result.tampering.iter().any(|t| t.to_lowercase().contains(what)),
            "{what} in {:?}",
            result.tampering
        );
    }
    assert!(result.warnings.iter().any(|w| w.starts_with("put back:")), "{:?}", result.warnings);
    assert_eq!(repo.show(&result.commit.unwrap(), "x.txt"), "x");
}

#[test]
fn what_is_not_executable_is_only_named() {
    let world = World::new();
    let repo = world.repo("r");
    let id = world.script("echo x > x.txt; git branch extra; git config my.note hello").repo(&repo).ok();
    world.drain();
    let result = world.succeeded(id);
    assert!(result.tampering.iter().any(|t| t.contains("refs/heads/extra")), "{:?}", result.tampering);
    assert!(repo.try_git(&["rev-parse", "--verify", "extra"]), "the user might have made it: it stays");
}

#[test]
fn a_worker_that_moves_its_branch_away_loses_nothing() {
    let world = World::new();
    let repo = world.repo("r");
    let head = repo.head();
    let id =
        world.misbehave(&["write", "x.txt", "x", "branch-move"]).repo(&repo).verify("test -f x.txt").ok();
    world.drain();
    let result = world.succeeded(id);
    let commit = result.commit.unwrap();
    assert!(
        result.warnings.iter().any(|w| w.contains("do not descend from the base")),
        "{:?}",
        result.warnings
    );
    assert_eq!(repo.rev(&format!("workspool/{id}")), commit);
    assert_eq!(repo.rev(&format!("{commit}^")), head);
    assert_eq!(repo.show(&commit, "x.txt"), "x");
}

#[test]
fn a_worker_that_deletes_its_branch_loses_nothing() {
    let world = World::new();
    let repo = world.repo("r");
    let id = world.misbehave(&["write", "x.txt", "x", "branch-delete"]).repo(&repo).ok();
    world.drain();
    let result = world.succeeded(id);
    assert!(result.warnings.iter().any(|w| w.contains("deleted its branch")), "{:?}", result.warnings);
    assert_eq!(repo.show(&format!("workspool/{id}"), "x.txt"), "x");
}

#[test]
fn a_worker_that_deletes_its_git_file_does_not_reach_the_repository_above() {
    let world = World::new();
    let repo = world.repo("r");
    let before = repo.fingerprint();
    let id =
        world.misbehave(&["write", "x.txt", "x", "delete-dot-git"]).repo(&repo).verify("test -f x.txt").ok();
    world.drain();
    let result = world.succeeded(id);
    assert_eq!(result.changed.len(), 1);
    assert_eq!(repo.show(&result.commit.unwrap(), "x.txt"), "x");
    before.assert_same(&repo.fingerprint());
}

#[test]
fn a_worker_that_rewrites_its_task_is_not_believed() {
    let world = World::new();
    let repo = world.repo("r");
    let forged = r#"{"version":1,"id":"01aaaaaaaaaaaaaaaaaaaaaaaa","spec":{"objective":"forged"}}"#;
    let id = world
        .misbehave(&["write", "x.txt", "x", "spool-write", "task.json", forged])
        .repo(&repo)
        .verify("true")
        .ok();
    let other = world.script("true").repo(&repo).ok();
    world.drain();
    let result = world.result(id);
    assert_eq!((result.id, result.state, result.class), (id, State::Failed, Some(Class::Internal)));
    assert!(result.message.contains("the task's record was changed while it ran"), "{}", result.message);
    assert_eq!(result.commit, None);
    world.succeeded(other);
    // What was asked is put back, so that it can be asked again.
    assert_eq!(world.task(id).id, id);
    world.on("show", id, &[]).ok();
}

#[test]
fn spoiled_records_and_a_dead_supervisor_do_not_keep_a_task_for_ever() {
    let world = World::new();
    let go = world.root().join("go");
    let spoil = world.misbehave_line(&[
        "spool-write",
        "task.json",
        "{",
        "spool-write",
        "result.json",
        "[",
        "spool-write",
        "events.jsonl",
        "?\n",
    ]);
    let script = format!(
        "{}; echo x > {}; while [ ! -e {} ]; do sleep 0.05; done",
        spoil.replacen("exec ", "", 1),
        world.root().join("there").display(),
        go.display()
    );
    let id = world.script(&script).ok();
    let other = world.script("true").needs(id).ok();
    world.tick();
    world.await_file(world.root().join("there"));
    world.processes().iter().filter(|p| p.what.contains(" exec ")).for_each(|p| p.kill());
    fs::write(go, "").unwrap();
    world.await_end(id);
    assert_eq!((world.result(id).state, world.result(id).class), (State::Failed, Some(Class::Internal)));
    world.drain();
    assert_eq!(world.result(other).state, State::Skipped);
}

#[test]
fn a_worker_that_removes_its_verification_is_not_believed() {
    let world = World::new();
    let repo = world.repo("r");
    // The record stays well-formed, and only says what suits the worker.
    let script = "f=$WORKSPOOL_HOME/tasks/$WORKSPOOL_TASK/task.json; sed 's/\"exit 5\"/\"exit 0\"/' $f > $f.new; mv $f.new $f; echo x > x.txt";
    let id = world.script(script).repo(&repo).verify("exit 5").ok();
    world.drain();
    let result = world.result(id);
    assert_eq!(result.state, State::Failed);
    assert_ne!(result.verification, Verification::Verified);
    assert_eq!(result.commit, None);
}

#[test]
fn a_worker_that_writes_its_own_result_is_not_believed() {
    let world = World::new();
    let repo = world.repo("r");
    let id = world
        .misbehave(&[
            "spool-write",
            "result.json",
            r#"{"state": "succeeded"}"#,
            "spool-write",
            "diff.patch",
            "forged",
            "exit",
            "4",
        ])
        .repo(&repo)
        .ok();
    world.drain();
    let result = world.result(id);
    assert_eq!(
        (result.state, result.class, result.exit_code),
        (State::Failed, Some(Class::WorkerFailed), Some(4))
    );
}

#[test]
fn a_repository_inside_the_workspace_is_named_and_salvaged() {
    let world = World::new();
    let repo = world.repo("r");
    let good = world.misbehave(&["write", "x.txt", "x", "nested", "vendor/inner"]).repo(&repo).ok();
    let failed =
        world.misbehave(&["write", "x.txt", "x", "nested", "vendor/inner", "exit", "3"]).repo(&repo).ok();
    world.drain();
    let result = world.succeeded(good);
    assert!(
        result.warnings.iter().any(|w| w.contains("vendor/inner is a repository of its own")),
        "{:?}",
        result.warnings
    );
    assert_eq!(repo.files(&result.commit.unwrap()), [".gitignore", "README.md", "src/lib.txt", "x.txt"]);
    let salvage = world.result(failed).salvage.unwrap();
    assert!(salvage.complete, "{salvage:?}");
    let kept = repo.files(&salvage.name);
    assert!(kept.iter().any(|f| f.starts_with("raw/") && f.contains("inner")), "{kept:?}");
}

#[test]
fn folders_that_cannot_be_read_do_not_stop_a_salvage() {
    let world = World::new();
    let repo = world.repo("r");
    let id = world.misbehave(&["write", "x.txt", "x", "unreadable", "closed", "exit", "3"]).repo(&repo).ok();
    world.drain();
    let result = world.result(id);
    assert_eq!(result.class, Some(Class::WorkerFailed), "{}", result.message);
    let salvage = result.salvage.unwrap();
    assert!(salvage.complete, "{salvage:?}");
    assert_eq!(repo.show(&salvage.name, "tree/closed/inside"), "x");
}

#[test]
fn a_link_named_as_an_ignored_folder_is_not_committed() {
    let world = World::new();
    let repo = world.repo("r");
    repo.write(".gitignore", "node_modules/\n").commit("ignore");
    fs::create_dir(world.root().join("modules")).unwrap();
    let target = world.root().join("modules");
    let id = world
        .misbehave(&["symlink", target.to_str().unwrap(), "node_modules", "write", "x.txt", "x"])
        .repo(&repo)
        .ok();
    world.drain();
    let result = world.succeeded(id);
    assert_eq!(result.changed.len(), 1, "{:?}", result.changed);
    assert!(
        result.warnings.iter().any(|w| w.contains("node_modules is not in the commit")),
        "{:?}",
        result.warnings
    );
}

#[test]
fn a_worker_that_edits_what_the_next_one_uses_does_not_reach_it() {
    let world = World::new();
    let repo = world.repo("r");
    let first = world
        .script("git config user.name Mallory; git config core.autocrlf true; echo x > x.txt")
        .repo(&repo)
        .ok();
    world.drain();
    let commit = world.succeeded(first).commit.unwrap();
    assert_eq!(repo.git(&["log", "-1", "--format=%an", &commit]), "A User");
}

#[test]
fn a_worker_that_adds_a_revision_of_its_task_is_not_believed() {
    let world = World::new();
    let repo = world.repo("r");
    let there = world.root().join("there");
    let go = world.root().join("go");
    let script = format!(
        "t=$WORKSPOOL_HOME/tasks/$WORKSPOOL_TASK
        sed -e 's/\"exit 5\"/\"exit 0\"/' -e 's/\"revision\": *1/\"revision\":2/' $t/task.json > $t/task.2.json
        echo x > x.txt; echo x > {}; while [ ! -e {} ]; do sleep 0.05; done",
        there.display(),
        go.display()
    );
    let id = world.script(&script).repo(&repo).verify("exit 5").ok();
    world.tick();
    world.await_file(&there);
    // Whoever takes over reads the records anew.
    world.processes().iter().filter(|p| p.what.contains(" exec ")).for_each(|p| p.kill());
    fs::write(go, "").unwrap();
    let result = world.await_end(id);
    assert_eq!((result.state, result.class), (State::Failed, Some(Class::Internal)));
    assert_ne!(result.verification, Verification::Verified);
    assert!(!world.dir(id).record(2).exists());
    assert_eq!(world.task(id).revision, 1);
}

#[test]
fn a_worker_that_deletes_its_workspace_fails_and_its_commits_are_kept() {
    let world = World::new();
    let repo = world.repo("r");
    let head = repo.head();
    let delete = |kind: &str, how: &str, code: u8| {
        let script = format!("{how}; rm -rf \"$PWD\"; exit {code}");
        world.script(&script).repo(&repo).with("workspace", kind).verify("true").ok()
    };
    let commit = "echo x > x.txt; git add x.txt; git commit -q -m mine";
    let (done, failed) = (delete("worktree", commit, 0), delete("worktree", commit, 3));
    let apart = [delete("clone", commit, 0), delete("copy", "echo x > x.txt", 0)];
    let none = delete("temporary", "true", 0);
    let other = world.script("echo y > y.txt").repo(&repo).ok();
    world.drain();
    for id in [done].into_iter().chain(apart).chain([none]) {
        let result = world.result(id);
        assert_eq!((result.state, result.class), (State::Failed, Some(Class::WorkerFailed)));
        assert_eq!(result.message, "the worker deleted its workspace");
        assert_eq!(result.changed, []);
    }
    let result = world.result(failed);
    assert_eq!((result.class, result.exit_code), (Some(Class::WorkerFailed), Some(3)));
    for id in [done, failed] {
        assert_eq!(repo.rev(&format!("workspool/{id}")), head, "failed work is never on the branch");
        assert_eq!(repo.show(&format!("refs/workspool/kept/{id}/1"), "x.txt"), "x\n");
    }
    world.succeeded(other);
    world.run(&["check"]).ok();
    world.on("retry", done, &[]).ok();
    world.drain();
    assert_eq!(world.result(done).attempt, 2);
    world.run(&["check"]).ok();
}

#[test]
fn a_worker_that_rewrites_its_history_is_found_out() {
    let world = World::new();
    let repo = world.repo("r");
    let forge = |text: &str| {
        let verbs = ["write", "x.txt", "x", "spool-write", "events.jsonl", text];
        world.misbehave(&verbs).repo(&repo).verify("true").ok()
    };
    let cut = "f=$WORKSPOOL_HOME/tasks/$WORKSPOOL_TASK/events.jsonl; sed 1d $f > $f.new; mv $f.new $f; echo x > x.txt";
    let all = [forge("?\n"), forge(""), world.script(cut).repo(&repo).verify("true").ok()];
    world.drain();
    for id in all {
        let result = world.succeeded(id);
        let told = |w: &String| w.starts_with("the task's history was changed (line ");
        assert!(result.warnings.iter().any(told), "{:?}", result.warnings);
        world.on("audit", id, &[]).exits(40);
        world.on("accept", id, &[]).exits(40).says(&["events.jsonl does not match its receipt"]);
    }
}

#[test]
fn the_last_line_of_a_history_is_a_line_or_what_a_power_loss_leaves_of_one() {
    let world = World::new();
    let repo = world.repo("r");
    let id = world.script("echo x > x.txt").repo(&repo).verify("true").ok();
    world.drain();
    world.succeeded(id);
    let path = world.spool().root().join(format!("tasks/{id}/events.jsonl"));
    let whole = fs::read(&path).unwrap();
    let at = whole[..whole.len() - 1].iter().rposition(|b| *b == b'\n').unwrap() + 1;
    let with = |last: &[u8]| fs::write(&path, [&whole[..at], last].concat()).unwrap();

    let length = whole.len() - at;
    for left in
        [&whole[at..at + length / 2], &vec![0; length], &[&whole[at..at + 9], &vec![0; length - 9]].concat()]
    {
        with(left);
        world.on("audit", id, &[]).ok().says(&["was cut short by a crash"]);
    }
    with(&[]);
    world.on("audit", id, &[]).ok();
    with(b"?\n");
    let said = world.on("audit", id, &[]).exits(40);
    assert!(said.text().contains("is not an event"), "{}", said.text());
    // What the receipt knows is not forgiven.
    fs::write(&path, &whole[..at - 9]).unwrap();
    world.on("audit", id, &[]).exits(40);
}
