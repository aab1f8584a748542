//! The gate in a clean second worktree: nothing that the worker left beside its change can help it.

use crate::support::World;
use workspool::model::{Class, State, Verification};

fn world() -> (World, crate::support::Repo) {
    let world = World::new();
    let repo = world.repo("r");
    repo.write(".gitignore", "build/\n").write("check.sh", "test -f a.txt\n").commit("base");
    (world, repo)
}

#[test]
fn what_is_committed_is_what_is_verified() {
    let (world, repo) = world();
    let id = world.script("echo 1 > a.txt").repo(&repo).verify("sh check.sh").with("gate", "clean").ok();
    world.drain();
    let result = world.succeeded(id);
    assert_eq!(result.verification, Verification::Verified);
    assert_eq!(
        repo.git(&["worktree", "list", "--porcelain"]).matches("worktree ").count(),
        2,
        "the clean tree is gone"
    );
}

#[test]
fn an_ignored_file_that_the_check_depends_on_does_not_count() {
    let (world, repo) = world();
    let script = "mkdir build; echo 1 > build/made; echo 1 > a.txt";
    let id = world.script(script).repo(&repo).verify("test -f build/made").with("gate", "clean").ok();
    world.drain();
    let result = world.result(id);
    assert_eq!((result.state, result.class), (State::Failed, Some(Class::GateEnv)));
    assert!(result.message.contains("passes in the workspace"), "{}", result.message);
}

#[test]
fn a_gate_that_fails_everywhere_is_the_works_fault() {
    let (world, repo) = world();
    let id = world.script("echo 1 > b.txt").repo(&repo).verify("sh check.sh").with("gate", "clean").ok();
    world.drain();
    assert_eq!(world.result(id).class, Some(Class::GateFailed));
}

#[test]
fn a_protected_path_that_may_change_is_as_in_the_base_while_verifying() {
    let (world, repo) = world();
    repo.write(
        ".workspool.toml",
        "protected = [\"check.sh\"]\ngate = \"clean\"\nverify = [\"sh check.sh\"]\n",
    )
    .commit("protect");
    let cheat = "echo 'exit 0' > check.sh";
    let refused = world.script(cheat).repo(&repo).ok();
    let allowed = world.script(cheat).repo(&repo).with("permission", "custom").with("allow", "check.sh").ok();
    world.drain();
    assert_eq!(world.result(refused).class, Some(Class::Permission));
    assert_eq!(
        world.result(allowed).class,
        Some(Class::GateEnv),
        "its own script says yes, the base's says no"
    );
}

#[test]
fn setup_runs_in_the_clean_tree_and_the_workers_installation_does_not_count() {
    let (world, repo) = world();
    repo.write(".workspool.toml", "setup = [\"mkdir -p build && echo base > build/dep\"]\n").commit("setup");
    let id = world
        .script("echo cheat > build/dep; echo 1 > a.txt")
        .repo(&repo)
        .verify("grep -q base build/dep")
        .with("gate", "clean")
        .ok();
    world.drain();
    world.succeeded(id);
}
