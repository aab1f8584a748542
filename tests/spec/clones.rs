//! Work in clones: a git dir of its own, nothing shared with the user's repository, and nothing lost.

use crate::support::{Repo, World};
use std::os::unix::fs::MetadataExt as _;
use workspool::model::{Class, State, TaskId, Verification};

fn clone_task(world: &World, repo: &Repo, script: &str) -> TaskId {
    world.script(script).repo(repo).with("workspace", "clone").ok()
}

#[test]
fn a_clone_has_a_git_dir_of_its_own_and_its_result_is_a_branch_of_the_users_repository() {
    let world = World::new();
    let repo = world.repo("r");
    repo.git(&["tag", "v1"]);
    repo.git(&["branch", "other"]);
    repo.git(&["remote", "add", "origin", "https://example.invalid/r.git"]);
    repo.write("staged.txt", "s\n").git(&["add", "staged.txt"]);
    repo.write(".env", "A=1\n").write("untracked.txt", "u\n");
    let before = repo.fingerprint();
    let head = repo.head();
    let script = "git rev-parse --absolute-git-dir > where.txt; git remote > remotes.txt; \
        git for-each-ref --format='%(refname)' > refs.txt; git log --format=%s > log.txt; \
        git status --short > status.txt; ls -A > list.txt; cat .env > env.txt; \
        git config user.name > who.txt; git config core.editor mine; \
        printf '#!/bin/sh\\n' > .git/hooks-are-mine; git config core.hooksPath .git/hooks; \
        git checkout -q -b my-own; git checkout -q -";
    let id = world
        .script(script)
        .repo(&repo)
        .with("workspace", "clone")
        .with("copy", ".env")
        .verify("test -f where.txt")
        .ok();
    world.drain();
    before.assert_same(&repo.fingerprint());
    let result = world.succeeded(id);
    assert_eq!(result.verification, Verification::Verified);
    let workspace = result.workspace.clone().unwrap();
    let commit = result.commit.clone().unwrap();
    assert_eq!(repo.rev(&format!("workspool/{id}")), commit);
    assert_eq!((repo.rev(&format!("{commit}^")), result.base.unwrap()), (head.clone(), head));
    let made = |name: &str| repo.show(&commit, name);
    assert_eq!(made("where.txt").trim(), workspace.join(".git").to_str().unwrap());
    assert_eq!(made("remotes.txt"), "");
    assert_eq!(
        made("refs.txt"),
        format!("refs/heads/main\nrefs/heads/other\nrefs/heads/workspool/{id}\nrefs/tags/v1\n")
    );
    assert_eq!((made("log.txt").as_str(), made("who.txt").as_str()), ("first\n", "A User\n"));
    let status = "?? log.txt\n?? refs.txt\n?? remotes.txt\n?? status.txt\n?? where.txt\n";
    assert_eq!(made("status.txt"), status);
    assert_eq!(made("env.txt"), "A=1\n", "ignored files that are asked for come along");
    assert!(!repo.files(&commit).contains(&".env".to_owned()) && !made("list.txt").contains("untracked"));
    assert_eq!(result.tampering, Vec::<String>::new(), "what it did in its own git dir is its own business");
    // No object is one file with the user's.
    for entry in walkdir::WalkDir::new(workspace.join(".git/objects")).into_iter().map(Result::unwrap) {
        if entry.file_type().is_file() {
            assert_eq!(entry.metadata().unwrap().nlink(), 1, "{}", entry.path().display());
        }
    }
    repo.git(&["rm", "-q", "--cached", "staged.txt"]);
    world.on("accept", id, &["--as", "commit"]).ok();
    assert_eq!(repo.rev("HEAD^{tree}"), result.tree.unwrap());
    assert!(!workspace.exists(), "what was accepted needs no workspace");
    assert!(repo.try_git(&["fsck", "--strict", "--no-dangling"]));
    world.run(&["audit", &id.to_string()]).ok();
    world.run(&["check"]).ok();
}

#[test]
fn commits_that_a_worker_makes_in_a_clone_come_over_when_it_has_ended() {
    let world = World::new();
    let repo = world.repo("r");
    let script = "git config user.name W; git config user.email w@localhost; \
        echo 1 > one.txt; git add .; git commit -qm one; echo 2 > two.txt; git add .; git commit -qm two";
    let all = clone_task(&world, &repo, script);
    let rest = clone_task(&world, &repo, &format!("{script}; echo 3 > three.txt"));
    let odd = clone_task(
        &world,
        &repo,
        "git checkout -q --orphan new; git rm -rqf .; git -c user.name=W -c user.email=w commit -q --allow-empty -m alone; git branch -f $(git for-each-ref --format='%(refname:short)' refs/heads/workspool) new; echo x > x.txt",
    );
    world.drain();
    let log =
        |id| repo.git(&["log", "--format=%s", &format!("main..{}", world.succeeded(id).commit.unwrap())]);
    assert_eq!(log(all), "two\none");
    assert!(log(rest).ends_with("\ntwo\none") && log(rest).lines().count() == 3, "{}", log(rest));
    let result = world.succeeded(odd);
    assert!(result.warnings.iter().any(|w| w.contains("do not descend from the base")), "{result:#?}");
    assert_eq!(repo.files(&result.commit.unwrap()), ["x.txt"]);
    assert!(repo.try_git(&["fsck", "--strict", "--no-dangling"]));
}

#[test]
fn failed_work_in_a_clone_is_kept_whole_and_the_clone_can_go() {
    let world = World::new();
    let repo = world.repo("r");
    let script = "git config user.name W; git config user.email w@localhost; \
        echo 1 > committed.txt; git add .; git commit -qm mine; \
        git checkout -q -b side; echo 2 > side.txt; git add .; git commit -qm side; git checkout -q -; \
        echo 3 > stashed.txt; git add .; git stash -q; echo 4 > stashed.txt; git add .; git stash -q; \
        echo 5 > loose.txt; echo 6 > build.log; exit 3";
    let id = clone_task(&world, &repo, script);
    world.drain();
    let result = world.result(id);
    assert_eq!((result.state, result.class), (State::Failed, Some(Class::WorkerFailed)));
    assert_eq!(repo.rev(&format!("workspool/{id}")), repo.head(), "failed work is not on the branch");
    let salvage = result.salvage.unwrap();
    assert!(salvage.complete, "{:?}", salvage.missing);
    let kept = repo.files(&salvage.commit);
    assert!(kept.contains(&"tree/loose.txt".to_owned()) && kept.contains(&"raw/build.log".to_owned()));
    let history = repo.git(&["log", "--all", "--format=%s"]);
    for subject in ["mine", "side"] {
        assert!(history.lines().any(|l| l == subject), "{subject} is not kept:\n{history}");
    }
    assert_eq!(
        history.lines().filter(|l| l.starts_with("On workspool/") || l.starts_with("WIP on")).count(),
        2
    );
    let workspace = result.workspace.unwrap();
    world.run(&["prune", "--apply", "--older-than", "0s", "--keep", "0"]).ok();
    assert!(!workspace.exists());
    assert!(repo.try_git(&["rev-parse", "--verify", "-q", &salvage.name]), "the salvage outlives its task");
    assert!(repo.try_git(&["fsck", "--strict", "--no-dangling"]));
}

#[test]
fn what_a_worker_plants_in_its_git_dir_is_never_run_and_never_believed() {
    let world = World::new();
    let repo = world.repo("r");
    let before = repo.fingerprint();
    let mark = world.root().join("ran");
    let planted = format!(
        "for key in core.fsmonitor core.alternateRefsCommand core.sshCommand filter.x.clean uploadpack.packObjectsHook; do \
           git config $key 'touch {0}; cat'; done; echo '* filter=x' > .gitattributes; \
         mkdir -p .git/hooks; printf '#!/bin/sh\\ntouch {0}\\n' > .git/hooks/post-checkout; chmod +x .git/hooks/*; \
         rm -f {0}; echo made > made.txt",
        mark.display()
    );
    let planted = clone_task(&world, &repo, &planted);
    let gone = clone_task(&world, &repo, "echo made > made.txt; rm -rf .git");
    let swapped = clone_task(
        &world,
        &repo,
        &format!("echo made > made.txt; rm -rf .git; ln -s {} .git", repo.path().join(".git").display()),
    );
    world.drain();
    assert!(!mark.exists(), "something that the worker planted ran");
    before.assert_same(&repo.fingerprint());
    for id in [planted, gone, swapped] {
        let commit = world.succeeded(id).commit.unwrap();
        assert_eq!(repo.show(&commit, "made.txt"), "made\n");
    }
    for id in [gone, swapped] {
        let warnings = world.result(id).warnings;
        assert!(warnings.iter().any(|w| w.starts_with(".git: ")), "{warnings:?}");
    }
    // What cannot be proved to be kept stays somewhere.
    world.on("reject", swapped, &["--reason", "no"]).ok();
    world.run(&["prune", "--apply", "--older-than", "0s", "--keep", "0"]);
    assert!(world.spool_path().join(format!("worktrees/.kept/{swapped}.1")).exists());
    before.assert_same(&repo.fingerprint());
}

#[test]
fn a_clone_can_be_made_of_every_kind_of_repository() {
    let world = World::new();
    let repo = world.repo("r");
    repo.write("more.txt", "m\n").commit("second");
    let path = repo.path().to_str().unwrap();
    let beside = |name: &str| world.root().join("repos").join(name);
    let at = |name: &str| repo.at(beside(name));
    repo.git(&["clone", "-q", "--shared", path, beside("borrowing").to_str().unwrap()]);
    repo.git(&[
        "clone",
        "-q",
        "--depth",
        "1",
        &format!("file://{path}"),
        beside("shallow").to_str().unwrap(),
    ]);
    repo.git(&["clone", "-q", "--bare", path, beside("bare").to_str().unwrap()]);
    repo.git(&["worktree", "add", "-q", "--detach", beside("linked").to_str().unwrap()]);
    repo.git(&["gc", "-q"]);
    let kinds = ["borrowing", "shallow", "bare", "linked"];
    let script = "echo x > x.txt; git add .; git -c user.name=W -c user.email=w commit -qm mine; git fsck";
    let ids = kinds.map(|kind| clone_task(&world, &at(kind), script));
    let below = world
        .script("pwd > here.txt")
        .repo(&repo.at(repo.path().join("src")))
        .with("workspace", "clone")
        .ok();
    world.drain();
    for (kind, id) in kinds.into_iter().zip(ids) {
        let result = world.succeeded(id);
        let repo = at(kind);
        assert_eq!(repo.show(&result.commit.unwrap(), "x.txt"), "x\n", "{kind}");
        let alternates = result.workspace.unwrap().join(".git/objects/info/alternates");
        assert!(!alternates.exists(), "{kind}: the clone stands by itself");
    }
    world.succeeded(below);
}

#[test]
fn a_revision_goes_on_from_the_commit_in_a_new_clone() {
    let world = World::new();
    let repo = world.repo("r");
    let id = clone_task(&world, &repo, "echo x >> x.txt; cat x.txt > seen.$(wc -l < x.txt)");
    world.drain();
    let first = world.succeeded(id).commit.unwrap();
    world.on("revise", id, &["--feedback", "once more"]).ok();
    world.drain();
    let second = world.succeeded(id).commit.unwrap();
    assert_eq!(repo.rev(&format!("{second}^")), first);
    assert_eq!(repo.show(&second, "x.txt"), "x\nx\n");
    let again = clone_task(&world, &repo, "echo y > y.txt");
    world.drain();
    let done = world.succeeded(again).commit.unwrap();
    world.on("retry", again, &[]).ok();
    world.drain();
    assert_eq!(world.succeeded(again).attempt, 2);
    assert!(repo.git(&["for-each-ref", "refs/workspool/kept"]).contains(&done), "an earlier result is kept");
}

#[test]
fn a_clone_is_verified_in_a_clean_tree_as_well() {
    let world = World::new();
    let repo = world.repo("r");
    let script = "echo made > made.txt; echo left > build.log";
    let submit = |verify: &str| {
        world.script(script).repo(&repo).with("workspace", "clone").with("gate", "clean").verify(verify).ok()
    };
    let (good, bad) = (submit("test -f made.txt"), submit("test -f build.log"));
    world.drain();
    assert_eq!(world.succeeded(good).verification, Verification::Verified);
    assert_eq!(world.result(bad).class, Some(Class::GateEnv));
}

#[test]
fn there_must_be_room_for_a_clone() {
    let world = World::configured("[disk]\ncopy_reserve_bytes = 9000000000000000\n");
    let repo = world.repo("r");
    world.script("true").repo(&repo).with("workspace", "clone").refused(7, &["must be left", "[disk]"]);
    let id = world.script("true").repo(&repo).ok();
    world.drain();
    world.succeeded(id);
}
