//! Prune takes away only what it says, only with `--apply`, and never work that is kept nowhere else.

use crate::support::{Repo, World};
use std::fs;
use workspool::model::{State, TaskId};

const NOW: [&str; 3] = ["prune", "--older-than", "0s"];

fn prune(world: &World, flags: &[&str]) -> String {
    let out = world.run(&[&NOW[..], flags].concat()).ok().text();
    world.run(&["check"]).ok();
    out
}

fn branch(repo: &Repo, id: TaskId) -> bool {
    !repo.git(&["for-each-ref", &format!("refs/heads/workspool/{id}")]).trim().is_empty()
}

#[test]
fn nothing_goes_without_apply_and_young_tasks_stay() {
    let world = World::new();
    let repo = world.repo("app");
    let id = world.script("echo 1 > a.txt; exit 3").repo(&repo).ok();
    world.drain();
    assert_eq!(world.run(&["prune", "--apply"]).ok().text(), "", "it is younger than 7 days");
    let out = prune(&world, &[]);
    assert!(out.contains("would go") && out.contains(&id.to_string()), "{out}");
    assert_eq!(world.state(id), State::Failed);
    assert!(world.result(id).workspace.unwrap().is_dir());
}

#[test]
fn a_failed_task_goes_whole_and_its_salvage_stays() {
    let world = World::new();
    let repo = world.repo("app");
    let id = world.script("echo 1 > a.txt; exit 3").repo(&repo).with("idempotency-key", "k").ok();
    world.drain();
    let (workspace, salvage) = {
        let result = world.result(id);
        (result.workspace.unwrap(), result.salvage.unwrap().name)
    };
    let out = prune(&world, &["--apply"]);
    assert!(out.contains("gone"), "{out}");
    assert!(!workspace.exists() && !world.dir(id).path().exists());
    assert_eq!(world.names("keys"), Vec::<String>::new());
    assert!(repo.git(&["for-each-ref"]).contains(&salvage));
    assert!(!branch(&repo, id), "it held nothing but the base");
    // The key may be used again.
    let again = world.script("true").repo(&repo).with("idempotency-key", "k").ok();
    assert_ne!(again, id);
}

#[test]
fn what_nobody_decided_about_loses_its_workspace_and_nothing_else() {
    let world = World::new();
    let repo = world.repo("app");
    let id = world.script("echo 1 > a.txt").repo(&repo).ok();
    world.drain();
    let workspace = world.succeeded(id).workspace.unwrap();
    let out = prune(&world, &["--apply"]);
    assert!(out.contains("workspace"), "{out}");
    assert!(!workspace.exists());
    assert!(branch(&repo, id));
    assert_eq!(world.state(id), State::Succeeded);
    world.on("audit", id, &[]).ok();

    prune(&world, &["--apply", "--include-unreviewed"]);
    assert!(!world.dir(id).path().exists());
    assert!(branch(&repo, id), "the work itself stays");
}

#[test]
fn an_accepted_task_goes_with_its_branch() {
    let world = World::new();
    let repo = world.repo("app");
    let id = world.script("echo 1 > a.txt").repo(&repo).verify("true").ok();
    world.drain();
    world.on("accept", id, &["--as", "commit"]).ok();
    prune(&world, &["--apply"]);
    assert!(!world.dir(id).path().exists() && !branch(&repo, id));
    assert_eq!(repo.git(&["show", "HEAD:a.txt"]), "1");
}

#[test]
fn what_another_task_waits_for_stays() {
    let world = World::new();
    let first = world.script("true").ok();
    world.drain();
    let second = world.script("true").flag("hold").needs(first).ok();
    world.run(&["list"]).ok();
    prune(&world, &["--apply", "--include-unreviewed"]);
    assert_eq!(world.state(first), State::Succeeded);
    world.on("release", second, &[]).ok();
    world.drain();
    world.succeeded(second);
}

#[test]
fn build_output_goes_before_the_workspace() {
    let world = World::new();
    let repo = world.repo("app");
    let script = "mkdir target; echo big > target/out; echo 1 > a.txt; echo l > keep.log";
    let id = world.script(script).repo(&repo).ok();
    world.drain();
    let workspace = world.succeeded(id).workspace.unwrap();
    // As if it had ended two days ago: old enough for build output, too young for the rest.
    let path = world.dir(id).result();
    let mut result: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let then = chrono::Utc::now() - chrono::TimeDelta::days(2);
    result["ended_at"] = serde_json::json!(then);
    fs::write(&path, serde_json::to_vec(&result).unwrap()).unwrap();
    let out = world.run(&["prune", "--apply"]).ok().text();
    assert!(out.contains("build output"), "{out}");
    assert!(!workspace.join("target").exists());
    assert!(workspace.join("a.txt").exists() && workspace.join("keep.log").exists());
}

#[test]
fn the_newest_stay_if_so_many_are_to_be_kept() {
    let world = World::new();
    let ids: Vec<TaskId> = (0..3)
        .map(|_| {
            let id = world.script("exit 3").ok();
            world.drain();
            id
        })
        .collect();
    prune(&world, &["--apply", "--keep", "2"]);
    assert!(!world.dir(ids[0]).path().exists());
    assert!(world.dir(ids[1]).path().exists() && world.dir(ids[2]).path().exists());
}

#[test]
fn a_temporary_folder_whose_files_are_kept_nowhere_stays() {
    let world = World::new();
    let id = world.script("echo 1 > a.txt; exit 3").ok();
    world.drain();
    let out = prune(&world, &["--apply"]);
    assert!(out.contains("stays") && out.contains("a.txt"), "{out}");
    assert!(world.dir(id).path().exists());
}

#[test]
fn tasks_that_are_held_for_long_are_cancelled_only_if_asked() {
    let world = World::new();
    let id = world.script("true").flag("hold").ok();
    world.run(&["list"]).ok();
    prune(&world, &["--apply"]);
    assert_eq!(world.state(id), State::Held);
    prune(&world, &["--apply", "--include-held"]);
    assert_eq!(world.state(id), State::Cancelled);
}

#[test]
fn a_workspace_whose_task_is_gone_goes_only_with_proof() {
    let world = World::new();
    let repo = world.repo("app");
    let id = world.script("echo 1 > a.txt; exit 3").repo(&repo).ok();
    world.drain();
    let result = world.result(id);
    let workspace = result.workspace.unwrap();
    fs::remove_dir_all(world.dir(id).path()).unwrap();
    fs::remove_file(world.spool_path().join(result.ticket)).unwrap();
    let out = prune(&world, &["--apply"]);
    assert!(out.contains("orphan"), "{out}");
    assert!(!workspace.exists());
    let kept = repo.git(&["for-each-ref", "--format=%(refname)", "refs/workspool/salvage"]);
    assert!(kept.contains(&id.to_string()), "{kept}");
}

#[test]
fn the_newest_folder_of_ended_tasks_may_go_and_comes_again() {
    let world = World::new();
    let full = world.spool_path().join("done/000001");
    fs::create_dir_all(&full).unwrap();
    for k in 0..1000 {
        fs::write(full.join(format!("x{k}")), "").unwrap();
    }
    let ends = || {
        let id = world.script("exit 3").ok();
        world.drain();
        id
    };
    let (first, second) = (ends(), ends());
    assert_eq!(world.names("done/000002").len(), 2, "the first folder is full");
    world.run(&["prune", "--older-than", "0s", "--apply"]).ok();
    assert_eq!(world.names("done"), ["000001"]);
    let listed = world.run(&["list"]).ok().text();
    assert!(!listed.contains(&first.to_string()) && !listed.contains(&second.to_string()), "{listed}");
    let third = ends();
    assert_eq!(world.names("done/000002").len(), 1);
    assert_eq!(world.state(third), State::Failed);
    let listed = world.run(&["list", "--json"]).ok().text();
    assert!(listed.contains(&third.to_string()), "{listed}");
}
