//! Work in copies of a folder, with git or without: what lies there comes along, the folder is only read,
//! and a change lands in it whole or not at all.

use crate::support::{Repo, World};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use workspool::model::{Class, State, TaskId, TaskResult, Verification};

const REFUSED: i32 = 17;

/// A folder without git.
fn folder(world: &World) -> PathBuf {
    let path = world.root().join("repos/plain");
    for (name, text) in [
        ("notes.txt", "one\ntwo\nthree\nfour\nfive\n"),
        ("crlf.txt", "a\r\nb\r\n"),
        ("run.sh", "#!/bin/sh\necho ran\n"),
        ("deep/er/x", "x\n"),
        (".gitattributes", "* text=auto eol=lf filter=none\n"),
        (".gitignore", "*.log\n.env\n"),
        (".env", "TOKEN=abcdef0123456789\n"),
        ("old.log", "l\n"),
        ("node_modules/m/index.js", "m\n"),
        ("target/debug/out", "o\n"),
        ("vendor/.git/config", "c\n"),
        ("vendor/v.txt", "v\n"),
    ] {
        fs::create_dir_all(path.join(name).parent().unwrap()).unwrap();
        fs::write(path.join(name), text).unwrap();
    }
    fs::set_permissions(path.join("run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    std::os::unix::fs::symlink("deep/er/x", path.join("link")).unwrap();
    std::os::unix::fs::symlink(world.root(), path.join("out")).unwrap();
    path
}

fn copy_task(world: &World, folder: &Path, script: &str) -> TaskId {
    world.script(script).with("repo", folder).with("workspace", "copy").ok()
}

fn everything(folder: &Path) -> Vec<(String, String)> {
    let walk = walkdir::WalkDir::new(folder).sort_by_file_name();
    let told = walk.into_iter().map(Result::unwrap).map(|e| {
        let meta = e.path().symlink_metadata().unwrap();
        let content = if meta.is_file() { fs::read(e.path()).unwrap() } else { Vec::new() };
        (
            e.path().display().to_string(),
            format!("{:?} {:?} {content:?}", meta.permissions(), meta.modified()),
        )
    });
    told.collect()
}

fn paths(result: &TaskResult) -> Vec<(&str, &str)> {
    result.changed.iter().map(|c| (c.path.as_str(), c.change.as_str())).collect()
}

#[test]
fn a_copy_of_a_folder_without_git_is_worked_on_verified_and_applied() {
    let world = World::new();
    let folder = folder(&world);
    let before = everything(&folder);
    let script = "ls -A > list.txt; ./run.sh > ran.txt; cat link .env > /dev/null || exit 9; \
        ls -A node_modules vendor > /dev/null 2>&1 && exit 8; echo more > old.log; \
        printf 'a\\r\\nB\\r\\n' > crlf.txt; rm deep/er/x; sed -i.bak s/two/TWO/ notes.txt; rm notes.txt.bak; \
        chmod 600 run.sh; mkdir new; echo n > new/n.txt";
    let id = world
        .script(script)
        .with("repo", &folder)
        .with("workspace", "copy")
        .verify("test -f new/n.txt && test ! -e deep/er/x")
        .ok();
    world.drain();
    assert_eq!(everything(&folder), before, "the folder is only read (I11)");
    let result = world.succeeded(id);
    assert_eq!(result.verification, Verification::Verified);
    assert_eq!(
        paths(&result),
        [
            ("crlf.txt", "modified"),
            ("deep/er/x", "deleted"),
            ("list.txt", "added"),
            ("new/n.txt", "added"),
            ("notes.txt", "modified"),
            ("ran.txt", "added"),
            ("run.sh", "modified")
        ]
    );
    assert_eq!(
        result.lacks,
        [
            "not copied, can be made again: node_modules, target",
            "not copied, a link that leads out: out",
            "not copied, a repository of its own: vendor"
        ]
    );
    assert_eq!(result.branch, None);
    let shown = world.on("show", id, &[]).ok().text();
    assert!(shown.contains("not copied, a link that leads out: out"), "{shown}");
    world.run(&["audit", &id.to_string(), "--replay"]).ok();
    world.run(&["check"]).ok();
    world.on("accept", id, &["--as", "commit"]).exits(6).says(&["can only be applied"]);
    world.on("accept", id, &[]).ok();
    let now = |name: &str| fs::read(folder.join(name)).unwrap();
    assert_eq!(now("crlf.txt"), b"a\r\nB\r\n", "byte for byte, whatever the attributes say");
    assert_eq!(now("notes.txt"), b"one\nTWO\nthree\nfour\nfive\n");
    assert_eq!(now("new/n.txt"), b"n\n");
    assert!(!folder.join("deep").exists(), "a folder that is empty now is gone");
    assert_eq!(now("old.log"), b"l\n", "what is ignored is no part of the result");
    assert_eq!(fs::metadata(folder.join("run.sh")).unwrap().permissions().mode() & 0o111, 0);
    for kept in ["node_modules/m/index.js", "target/debug/out", "vendor/v.txt", ".env", "out"] {
        assert!(folder.join(kept).exists(), "{kept}");
    }
    assert!(!result.workspace.unwrap().exists());
    world.run(&["check"]).ok();
}

#[test]
fn uncommitted_work_comes_along_and_the_users_repository_is_left_alone() {
    let world = World::new();
    let repo = world.repo("r");
    repo.write("src/lib.txt", "one\nTWO, not committed\nthree\n").write("untracked.txt", "u\n");
    repo.write(".workspool.toml", "verify = [\"grep -q mine src/lib.txt\"]\n");
    let before = repo.fingerprint();
    let id = world
        .script("git status && exit 9; echo mine >> src/lib.txt; cat untracked.txt > seen.txt")
        .repo(&repo)
        .with("workspace", "copy")
        .ok();
    world.drain();
    before.assert_same(&repo.fingerprint());
    assert_eq!(repo.branches("workspool"), Vec::<String>::new());
    let result = world.succeeded(id);
    assert_eq!(paths(&result), [("seen.txt", "added"), ("src/lib.txt", "modified")]);
    assert_eq!(result.verification, Verification::Verified, "what the folder says counts");
    let index = repo.git(&["ls-files", "--stage"]);
    world.on("accept", id, &[]).ok();
    assert_eq!(
        fs::read_to_string(repo.path().join("src/lib.txt")).unwrap(),
        "one\nTWO, not committed\nthree\nmine\n"
    );
    assert_eq!(repo.git(&["ls-files", "--stage"]), index, "its index is not ours");
}

#[test]
fn a_change_is_merged_with_what_the_user_did_meanwhile_or_refused_whole() {
    let world = World::new();
    let folder = folder(&world);
    let script = "sed -i.bak s/one/ONE/ notes.txt; rm *.bak; echo w > made.txt; echo w > other.log";
    let (good, bad) = (copy_task(&world, &folder, script), copy_task(&world, &folder, script));
    world.drain();
    fs::write(folder.join("notes.txt"), "one\ntwo\nthree\nfour\nFIVE\n").unwrap();
    world.on("accept", good, &["--unverified"]).ok();
    assert_eq!(fs::read_to_string(folder.join("notes.txt")).unwrap(), "ONE\ntwo\nthree\nfour\nFIVE\n");
    fs::write(folder.join("notes.txt"), "1\ntwo\nthree\nfour\nFIVE\n").unwrap();
    fs::write(folder.join("made.txt"), "the user's\n").unwrap();
    let before = everything(&folder);
    world.on("accept", bad, &["--unverified"]).exits(REFUSED).says(&["notes.txt", "nothing was touched"]);
    assert_eq!(everything(&folder), before);
    fs::write(folder.join("notes.txt"), "one\ntwo\nthree\nfour\nFIVE\n").unwrap();
    world.on("accept", bad, &["--unverified"]).exits(REFUSED).says(&["made.txt"]);
    fs::remove_file(folder.join("made.txt")).unwrap();
    world.on("accept", bad, &["--unverified"]).ok();
    assert_eq!(fs::read_to_string(folder.join("notes.txt")).unwrap(), "ONE\ntwo\nthree\nfour\nFIVE\n");
}

#[test]
fn what_is_too_much_is_not_copied() {
    let world = World::configured("[disk]\ncopy_files = 5\n");
    let folder = folder(&world);
    let id = copy_task(&world, &folder, "true");
    world.drain();
    let result = world.result(id);
    assert_eq!((result.state, result.class), (State::Failed, Some(Class::Workspace)));
    assert!(result.message.contains("more files than a copy takes (5)"), "{}", result.message);
    assert!(result.message.contains("disk.copy_files"), "{}", result.message);
    for place in world.names("worktrees") {
        assert_eq!(world.names(&format!("worktrees/{place}")), Vec::<String>::new(), "{place}");
    }
    world.configure("[disk]\ncopy_bytes = 20\n");
    world.on("retry", id, &[]).ok();
    world.drain();
    assert!(world.result(id).message.contains("more bytes than a copy takes (20)"));
    world.configure("[disk]\ncopy_reserve_bytes = 9000000000000000\n");
    world.script("true").with("repo", &folder).with("workspace", "copy").refused(7, &["must be left"]);
}

#[test]
fn what_does_not_fit_a_copy_is_refused() {
    let world = World::new();
    let folder = folder(&world);
    let submit = || world.script("true").with("repo", &folder).with("workspace", "copy");
    submit().with("base", "main").refused(3, &["base", "no base commit"]);
    submit().with("copy", ".env").refused(3, &["copy", "has all files"]);
    world
        .script("true")
        .with("repo", world.spool_path())
        .with("workspace", "copy")
        .refused(5, &["inside the spool"]);
}

#[test]
fn failed_work_in_a_copy_is_kept_and_the_copy_can_go() {
    let world = World::new();
    let folder = folder(&world);
    let before = everything(&folder);
    let id = copy_task(&world, &folder, "echo half > half.txt; echo l > new.log; echo B=2 >> .env; exit 3");
    world.drain();
    let result = world.result(id);
    assert_eq!(result.class, Some(Class::WorkerFailed));
    let salvage = result.salvage.unwrap();
    assert!(salvage.complete, "{:?}", salvage.missing);
    let workspace = result.workspace.unwrap();
    world.run(&["prune", "--apply", "--older-than", "0s", "--keep", "0"]).ok();
    assert!(!workspace.exists());
    assert_eq!(everything(&folder), before);
    let listed: serde_json::Value = world.run(&["salvage", "list", "--json"]).ok().json();
    assert_eq!(listed["salvages"][0]["task"], id.to_string(), "{listed}");
    let home = world.spool_path().join("copies").join(id.to_string());
    let kept = Repo::files(&Repo::at(&world.repo("r"), home), &salvage.commit);
    assert!(
        kept.contains(&"tree/half.txt".to_owned()) && kept.contains(&"raw/new.log".to_owned()),
        "{kept:?}"
    );
    assert!(!kept.iter().any(|p| p.contains(".env")), "secrets are named, and not kept: {kept:?}");
}

#[test]
fn a_revision_goes_on_in_the_copy_and_a_retry_copies_anew() {
    let world = World::new();
    let folder = folder(&world);
    let id = copy_task(&world, &folder, "echo x >> x.txt; cat notes.txt > seen.txt");
    world.drain();
    fs::write(folder.join("notes.txt"), "changed\n").unwrap();
    world.on("revise", id, &["--feedback", "once more"]).ok();
    world.drain();
    let patch = fs::read_to_string(world.dir(id).diff()).unwrap();
    assert!(patch.contains("+x\n+x\n") && patch.contains("+three"), "{patch}");
    let again = copy_task(&world, &folder, "cat notes.txt > seen.txt");
    world.drain();
    fs::write(folder.join("notes.txt"), "changed again\n").unwrap();
    world.on("retry", again, &[]).ok();
    world.drain();
    assert!(fs::read_to_string(world.dir(again).diff()).unwrap().contains("+changed again"));
    world.on("accept", again, &["--unverified"]).ok();
    assert_eq!(fs::read_to_string(folder.join("seen.txt")).unwrap(), "changed again\n");
}

#[test]
fn a_copy_is_verified_in_a_clean_tree_as_well_and_a_read_only_task_leaves_it_as_it_was() {
    let world = World::new();
    let folder = folder(&world);
    let clean = |verify: &str| {
        let task = world.script("echo made > made.txt; echo left > build.log").with("repo", &folder);
        task.with("workspace", "copy").with("gate", "clean").verify(verify).ok()
    };
    let (good, bad) = (clean("test -f made.txt"), clean("test -f build.log"));
    let reader = world
        .script("echo no > notes.txt; rm crlf.txt; echo y > new.txt")
        .with("repo", &folder)
        .with("workspace", "copy")
        .with("permission", "read_only")
        .ok();
    world.drain();
    assert_eq!(world.succeeded(good).verification, Verification::Verified);
    assert_eq!(world.result(bad).class, Some(Class::GateEnv));
    let result = world.succeeded(reader);
    assert_eq!(result.undone, ["crlf.txt", "new.txt", "notes.txt"]);
    let workspace = result.workspace.unwrap();
    assert_eq!(fs::read(workspace.join("crlf.txt")).unwrap(), b"a\r\nb\r\n");
    assert!(!workspace.join("new.txt").exists());
}
