//! A disk that is really full: while a workspace is made, while a worker works, and where the records are.
//! Each ends with its class, nothing is lost, and it goes on when there is room.

use crate::support::World;
use std::fs;
use workspool::model::{Class, Phase, State, TaskId};

/// The task has ended for want of room, before its worker began, and its repository is as it was. With room
/// it succeeds.
fn wants_room(world: &World, id: TaskId, more_room: impl FnOnce()) {
    world.drain();
    let result = world.result(id);
    assert_eq!(
        (result.state, result.class, result.phase),
        (State::Failed, Some(Class::Disk), Some(Phase::Preparing)),
        "{}",
        result.message
    );
    assert!(result.message.contains("No space left"), "{}", result.message);
    world.on("wait", id, &[]).exits(30);
    more_room();
    world.on("retry", id, &[]).ok();
    world.drain();
    assert_eq!(world.succeeded(id).changed.len(), 1);
    world.run(&["check"]).ok();
}

fn trees(config: &str) -> Option<World> {
    World::with_small_disk("trees", 16, &format!("worktrees = \"{{root}}/trees\"\n{config}"))
}

/// Makes the disk of the workspaces larger.
fn enlarge(world: &World) {
    let mut mount = std::process::Command::new("mount");
    mount.args(["-o", "remount,size=256m"]).arg(world.root().join("trees"));
    assert!(mount.status().unwrap().success());
}

#[test]
fn a_worktree_or_clone_that_does_not_fit_is_tried_again_with_more_room() {
    for kind in ["worktree", "clone"] {
        let Some(world) = trees("") else { return };
        let repo = world.repo("r");
        // More than the small disk takes, and nearly nothing in a pack.
        fs::write(repo.path().join("big.txt"), "all the same\n".repeat(3 << 20)).unwrap();
        repo.commit("big");
        let before = repo.fingerprint();
        let id = world.script("echo x > x.txt").repo(&repo).with("workspace", kind).with("retries", "0").ok();
        wants_room(&world, id, || {
            before.assert_same(&repo.fingerprint());
            enlarge(&world);
        });
    }
}

#[test]
fn a_copy_that_takes_more_than_its_bytes_is_tried_again_with_more_room() {
    let Some(world) = trees("") else { return };
    let folder = world.root().join("repos/many");
    fs::create_dir(&folder).unwrap();
    // A byte each, for which the disk gives a block.
    for k in 0..6000 {
        fs::write(folder.join(k.to_string()), "x").unwrap();
    }
    let id = world
        .script("echo x > x.txt")
        .with("repo", &folder)
        .with("workspace", "copy")
        .with("retries", "0")
        .ok();
    wants_room(&world, id, || {
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 6000);
        enlarge(&world);
    });
}

#[test]
fn a_worker_that_fills_the_disk_of_its_workspace_loses_nothing() {
    for code in [0, 3] {
        let Some(world) = trees("") else { return };
        let repo = world.repo("r");
        let fill = "echo kept > kept.txt; cat /dev/zero > fill.bin 2> /dev/null || true";
        let id = world.script(&format!("{fill}; exit {code}")).repo(&repo).with("retries", "0").ok();
        world.drain();
        let result = world.result(id);
        assert_eq!(result.exit_code, Some(code), "{}", result.message);
        // That the disk was full is the worker's own business.
        let kept = match code {
            0 => format!("{}:kept.txt", result.commit.unwrap()),
            _ => format!("{}:tree/kept.txt", result.salvage.unwrap().name),
        };
        assert_eq!(repo.git(&["show", &kept]), "kept");
        world.run(&["check"]).ok();
    }
}

#[test]
fn a_worker_that_fills_the_disk_of_the_records_ends_when_there_is_room() {
    let Some(world) = World::with_small_disk("spool", 16, "") else { return };
    let repo = world.repo("r");
    let ballast = world.spool_path().join("tmp/ballast");
    fs::create_dir_all(ballast.parent().unwrap()).unwrap();
    fs::write(&ballast, vec![1; 2 << 20]).unwrap();
    let full = world.root().join("full");
    let script = format!(
        "echo kept > kept.txt; cat /dev/zero > fill.bin 2> /dev/null || true; echo x > {}; exit 3",
        full.display()
    );
    let id = world.script(&script).repo(&repo).with("retries", "0").ok();
    world.tick();
    world.await_file(&full);
    world.await_until("the worker has ended", || {
        world.processes().iter().all(|p| !p.what.contains("/dev/zero"))
    });
    // Nothing can be written of its end, so it has none, and is not begun anew.
    world.tick();
    assert_eq!(world.state(id), State::Running);
    fs::remove_file(&ballast).unwrap();
    world.drain();
    let result = world.result(id);
    // What was observed while nothing could be written is what is told.
    assert_eq!((result.class, result.exit_code), (Some(Class::WorkerFailed), Some(3)), "{}", result.message);
    let salvage = result.salvage.unwrap();
    assert!(salvage.complete, "{:?}", salvage.missing);
    assert_eq!(repo.show(&salvage.name, "tree/kept.txt"), "kept\n");
    assert_eq!((world.starts(id), result.attempts.len()), (1, 1));
    world.run(&["check"]).ok();
}

#[test]
fn work_that_no_repository_has_room_for_stays_where_it_is() {
    let Some(world) = World::with_small_disk("repos", 16, "") else { return };
    let repo = world.repo("r");
    let before = repo.fingerprint();
    let ballast = world.root().join("repos/ballast");
    let script = format!(
        "echo kept > kept.txt; head -c 2000000 /dev/urandom > big.bin; \
         test -e {0}.was || {{ touch {0}.was; cat /dev/zero > {0} 2> /dev/null || true; }}",
        ballast.display()
    );
    let id = world.script(&script).repo(&repo).with("retries", "0").ok();
    world.drain();
    let result = world.result(id);
    assert_eq!((result.state, result.class), (State::Failed, Some(Class::Disk)), "{}", result.message);
    assert_eq!((result.commit, result.salvage), (None, None));
    let kept = result.workspace.unwrap().join("kept.txt");
    assert_eq!(fs::read_to_string(&kept).unwrap(), "kept\n");
    let told = world.run(&["prune", "--older-than", "0s", "--apply"]).ok().text();
    assert!(kept.exists(), "there is no proof that it is kept elsewhere: {told}");
    fs::remove_file(&ballast).unwrap();
    before.assert_same(&repo.fingerprint());
    world.on("retry", id, &[]).ok();
    world.drain();
    assert_eq!(world.succeeded(id).attempt, 2);
    assert_eq!(repo.show(&format!("refs/workspool/salvage/{id}/1"), "tree/kept.txt"), "kept\n");
    world.run(&["check"]).ok();
}
