//! What a worker may change, by one definition of "changed": base tree against final tree.

use crate::support::World;
use std::fs;
use workspool::model::{Class, Phase, State, TaskResult};

#[track_caller]
fn broke(result: &TaskResult, words: &str) {
    assert_eq!(
        (result.state, result.class, result.phase),
        (State::Failed, Some(Class::Permission), Some(Phase::Working)),
        "{}",
        result.message
    );
    assert!(result.message.contains(words), "expected {words:?} in {}", result.message);
    assert_eq!(result.commit, None);
    assert!(result.gate.is_empty(), "what is not allowed is not worth verifying");
}

#[test]
fn read_only_undoes_and_lists_what_was_written() {
    let world = World::new();
    let repo = world.repo("r");
    let head = repo.head();
    let id = world
        .script("echo reading; echo x > new/x.txt 2>/dev/null || { mkdir new; echo x > new/x.txt; }; echo y >> README.md; rm src/lib.txt")
        .repo(&repo)
        .with("permission", "read_only")
        .verify("test -z \"$(git status --porcelain)\" && test -f src/lib.txt")
        .ok();
    world.drain();
    let result = world.succeeded(id);
    assert_eq!(result.undone, ["README.md", "new/x.txt", "src/lib.txt"]);
    assert_eq!((result.changed.len(), result.commit), (0, None));
    assert_eq!(repo.rev(&format!("workspool/{id}")), head);
    let workspace = result.workspace.unwrap();
    assert!(!workspace.join("new").exists() && workspace.join("src/lib.txt").is_file());
    // It is undone, and yet not lost.
    assert_eq!(repo.show(&result.salvage.unwrap().name, "tree/new/x.txt"), "x\n");
    assert!(result.restrictions.iter().any(|r| r.what == "read_only" && r.enforced_by == "workspool"));
}

#[test]
fn read_only_holds_against_commits_too() {
    let world = World::new();
    let repo = world.repo("r");
    let head = repo.head();
    let id = world
        .misbehave(&["write", "x.txt", "x", "commit", "sneaky"])
        .repo(&repo)
        .with("permission", "readonly")
        .ok();
    world.drain();
    let result = world.succeeded(id);
    assert_eq!(result.undone, ["x.txt"]);
    assert_eq!(repo.rev(&format!("workspool/{id}")), head);
}

#[test]
fn read_only_holds_where_there_is_no_git() {
    let world = World::new();
    let folder = world.root().join("folder");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("a.txt"), "a\n").unwrap();
    let id = world
        .script("echo b > a.txt")
        .with("repo", &folder)
        .with("workspace", "directory")
        .with("permission", "read_only")
        .ok();
    let reads = world
        .script("cat a.txt")
        .with("repo", &folder)
        .with("workspace", "directory")
        .with("permission", "read_only")
        .ok();
    world.drain();
    // It cannot be undone there: then it fails, and is named.
    broke(&world.result(id), "a.txt");
    world.succeeded(reads);
}

#[test]
fn custom_allows_and_forbids_by_pattern() {
    let world = World::new();
    let repo = world.repo("r");
    let submit = |script: &str| {
        world
            .script(script)
            .repo(&repo)
            .with("permission", "custom")
            .with("allow", "src/**")
            .with("forbid", "src/secret*")
            .verify("true")
            .ok()
    };
    let good = submit("echo x > src/x.txt");
    let outside = submit("echo x > src/x.txt; echo x > top.txt");
    let forbidden = submit("echo x > src/secret.txt");
    world.drain();
    world.succeeded(good);
    broke(&world.result(outside), "top.txt: the task does not allow changes to it");
    broke(&world.result(forbidden), "src/secret.txt: the task forbids changes to it");
    world.on("wait", outside, &[]).exits(27);
}

#[test]
fn a_forbidden_file_is_not_renamed_deleted_or_made_executable() {
    let world = World::new();
    let repo = world.repo("r");
    repo.write("locked/a.txt", "a line that is long enough to be found again\n").commit("locked");
    let submit = |verbs: &[&str]| world.misbehave(verbs).repo(&repo).with("forbid", "locked/").ok();
    let tasks = [
        submit(&["rename", "locked/a.txt", "free.txt"]),
        submit(&["delete", "locked/a.txt"]),
        submit(&["chmod", "locked/a.txt", "755"]),
        submit(&["delete", "locked", "symlink", "src", "locked"]),
        // By a commit of its own, which leaves nothing for `status` to see.
        submit(&["write", "locked/a.txt", "changed", "commit", "mine"]),
        // And by taking the rule's file from a branch that it moved.
        submit(&["write", "locked/new.txt", "x"]),
    ];
    world.drain();
    for id in &tasks[..5] {
        broke(&world.result(*id), "locked");
    }
    broke(&world.result(tasks[5]), "locked/new.txt: the task forbids");
}

#[test]
fn what_is_changed_and_put_back_is_not_changed() {
    let world = World::new();
    let repo = world.repo("r");
    let id = world
        .script("echo x > README.md; git checkout -q README.md; echo y > y.txt")
        .repo(&repo)
        .with("forbid", "README.md")
        .ok();
    world.drain();
    assert_eq!(world.succeeded(id).changed.len(), 1);
}

#[test]
fn a_link_out_of_the_workspace_fails_the_task() {
    let world = World::new();
    let repo = world.repo("r");
    let absolute = world.misbehave(&["symlink", "/etc/passwd", "link"]).repo(&repo).ok();
    let relative = world.misbehave(&["symlink", "../../../..", "src/link"]).repo(&repo).ok();
    let inside = world.misbehave(&["symlink", "../README.md", "src/link"]).repo(&repo).ok();
    let full =
        world.misbehave(&["symlink", "/etc/passwd", "link"]).repo(&repo).with("permission", "full").ok();
    world.drain();
    broke(&world.result(absolute), "link: it is a link out of the workspace, to /etc/passwd");
    broke(&world.result(relative), "src/link: it is a link out of the workspace");
    world.succeeded(inside);
    world.succeeded(full);
}

#[test]
fn advice_that_nobody_enforces_is_said_to_be_that() {
    let world = World::new();
    let task = r#"{"objective": "true", "worker": "shell", "no_network": true, "no_shell": true}"#;
    let id = world.submit_file("-").input(task).ok();
    world.drain();
    let by: Vec<_> = world.succeeded(id).restrictions.into_iter().map(|r| (r.what, r.enforced_by)).collect();
    let expected = [("workspace_write", "workspool"), ("no_network", "nobody"), ("no_shell", "nobody")];
    assert_eq!(by, expected.map(|(a, b)| (a.to_owned(), b.to_owned())));
}
