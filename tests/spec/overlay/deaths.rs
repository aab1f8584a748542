//! Who may die while a worker works in an overlay: supervisor, keeper, both.

use super::{assert_retired, full_repo, paths};
use crate::support::{Repo, World};
use std::fs;
use workspool::model::{State, TaskId};

fn waiting(world: &World, code: i32) -> String {
    let at = |name: &str| world.root().join(name).display().to_string();
    format!(
        "echo begun > begun.txt; echo $$ > {}; while [ ! -e {} ]; do sleep 0.05; done; echo done > done.txt; exit {code}",
        at("pid"),
        at("go")
    )
}

fn kill(world: &World, word: &str) {
    let found: Vec<_> = world.processes().into_iter().filter(|p| p.what.contains(word)).collect();
    assert!(!found.is_empty(), "there is no {word}");
    found.iter().for_each(|p| p.kill());
    let here = || world.processes().into_iter().map(|p| p.pid).collect::<Vec<_>>();
    world.await_until("they are dead", || found.iter().all(|p| !here().contains(&p.pid)));
}

fn begun(world: &World, repo: &Repo, code: i32, retries: &str) -> TaskId {
    let script = waiting(world, code);
    let id = world.script(&script).repo(repo).with("workspace", "overlay").with("retries", retries).ok();
    world.tick();
    world.await_file(world.root().join("pid"));
    id
}

#[test]
fn a_dead_supervisor_costs_nothing() {
    let world = overlays!();
    let repo = full_repo(&world);
    for (code, state) in [(7, State::Failed), (0, State::Succeeded)] {
        let id = begun(&world, &repo, code, "0");
        kill(&world, " exec ");
        fs::write(world.root().join("go"), "").unwrap();
        let result = world.await_end(id);
        assert_eq!((result.state, result.exit_code), (state, Some(code)), "{result:#?}");
        assert_eq!(paths(&result), [("begun.txt", "added"), ("done.txt", "added")]);
        assert_eq!(world.starts(id), 1);
        assert_retired(&world, &repo, id);
        fs::remove_file(world.root().join("go")).unwrap();
        fs::remove_file(world.root().join("pid")).unwrap();
    }
    world.run(&["check"]).ok();
}

#[test]
fn a_dead_keeper_interrupts_the_attempt_and_its_work_is_kept() {
    let world = overlays!();
    let repo = full_repo(&world);
    let id = begun(&world, &repo, 0, "0");
    kill(&world, " keep ");
    let result = world.await_end(id);
    assert_eq!(result.state, State::Interrupted, "{result:#?}");
    let salvage = result.salvage.unwrap();
    assert_eq!(repo.show(&salvage.commit, "tree/begun.txt"), "begun\n");
    world.assert_gone(&world.root().join("pid"));
    assert_retired(&world, &repo, id);
}

/// I7: the tree is mounted again for its salvage, and goes only with that.
#[test]
fn where_both_die_the_overlay_is_mounted_again_and_its_work_is_kept() {
    let world = overlays!();
    let repo = full_repo(&world);
    let id = begun(&world, &repo, 0, "0");
    kill(&world, " exec ");
    kill(&world, " keep ");
    world.drain();
    let result = world.await_end(id);
    assert_eq!(result.state, State::Interrupted, "{result:#?}");
    assert!(result.message.contains("was killed"), "{}", result.message);
    let salvage = result.salvage.unwrap();
    assert_eq!(repo.show(&salvage.commit, "tree/begun.txt"), "begun\n");
    assert_eq!(repo.show(&salvage.commit, "tree/folder/one.txt"), "1\n");
    world.assert_gone(&world.root().join("pid"));
    assert_eq!(world.starts(id), 1);
    assert_retired(&world, &repo, id);
    world.run(&["check"]).ok();
}

#[test]
fn a_cancelled_task_leaves_its_work_in_a_salvage() {
    let world = overlays!();
    let repo = full_repo(&world);
    let id = begun(&world, &repo, 0, "0");
    world.on("cancel", id, &[]).ok();
    let result = world.await_end(id);
    assert_eq!(result.state, State::Cancelled);
    assert_eq!(repo.show(&result.salvage.unwrap().commit, "tree/begun.txt"), "begun\n");
    world.assert_gone(&world.root().join("pid"));
    assert_retired(&world, &repo, id);
}
