//! Confined workers: they write where they may and nowhere else, and the result says whether that held.

use crate::support::World;
use serde_json::json;
use std::fs;
use std::path::Path;
use workspool::model::{Class, Confine, State, Verification};
use workspool::process::confine::support;

const STRICT: &str = "[confine]\nworkers = \"strict\"\n";

/// Tries to write everywhere that is none of its business, and says what went through.
fn hostile(world: &World, repo: &Path) -> String {
    let tries = [
        ("spool", "echo x > \"$WORKSPOOL_HOME/planted\""),
        ("task", "echo x >> \"$WORKSPOOL_HOME/tasks/$WORKSPOOL_TASK/task.json\""),
        ("events", "echo x >> \"$WORKSPOOL_HOME/tasks/$WORKSPOOL_TASK/events.jsonl\""),
        ("result", "echo '{}' > \"$WORKSPOOL_HOME/tasks/$WORKSPOOL_TASK/result.json\""),
        ("view", "echo x > \"$WORKSPOOL_HOME/tasks/$WORKSPOOL_TASK/attempts/1/git/config\""),
        ("ticket", "rm \"$WORKSPOOL_HOME\"/running/*"),
        ("inbox", "echo '{}' > \"$WORKSPOOL_HOME/inbox/x.json\""),
        ("checkout", "echo x > '{repo}/README.md'"),
        ("index", "rm '{repo}/.git/index'"),
        ("config", "git config core.fsmonitor x"),
        ("hook", "echo x > '{repo}/.git/hooks/pre-commit'"),
        ("main", "git branch -f main HEAD~0"),
        ("home", "echo x > \"$HOME/x\""),
        ("move", "mv '{repo}/README.md' stolen"),
        ("link", "ln '{repo}/README.md' linked"),
        ("truncate", ": > '{repo}/src/lib.txt'"),
        ("mkdir", "mkdir '{root}/made'"),
        ("kill", "kill -STOP $PPID"),
    ];
    let mut script = String::from("set +e\n");
    for (name, attempt) in tries {
        let attempt = attempt
            .replace("{repo}", repo.to_str().unwrap())
            .replace("{root}", world.root().to_str().unwrap());
        script.push_str(&format!("if ( {attempt} ) 2> /dev/null; then echo {name} >> through.txt; fi\n"));
    }
    script.push_str("touch through.txt; echo made > made.txt\n");
    script
}

#[test]
fn a_confined_worker_cannot_touch_records_repository_or_home() {
    let world = World::configured(STRICT);
    let repo = world.repo("r");
    let before = repo.fingerprint();
    let script = hostile(&world, repo.path());
    for kind in ["worktree", "clone"] {
        let id = world.script(&script).repo(&repo).with("workspace", kind).verify("test -f made.txt").ok();
        world.drain();
        let result = world.result(id);
        let confined = result.confinement.clone().unwrap();
        assert_eq!(confined.asked, Confine::Strict);
        if !support().full {
            assert!(!confined.held && confined.why_not.is_some());
            return;
        }
        assert!(confined.held && confined.why_not.is_none() && confined.abi >= Some(3), "{confined:?}");
        let result = world.succeeded(id);
        assert_eq!(result.verification, Verification::Verified);
        let through = repo.show(&result.commit.unwrap(), "through.txt");
        // In a clone, settings and branches are its own.
        let own = if kind == "clone" { "config\nmain\n" } else { "" };
        assert_eq!(through, own, "{kind}: went through");
        assert_eq!(result.tampering, Vec::<String>::new());
        before.assert_same(&repo.fingerprint());
        assert!(!world.home().join("x").exists() && !world.root().join("made").exists());
        assert!(world.on("show", id, &[]).ok().text().contains("confined   yes (Landlock"));
        world.run(&["audit", &id.to_string()]).ok();
    }
}

#[test]
fn a_confined_worker_can_do_its_work() {
    let world = World::configured(&format!("{STRICT}gate = true\nwritable = [\"{{root}}/named\"]\n"));
    fs::create_dir(world.root().join("named")).unwrap();
    fs::create_dir_all(world.home().join(".cache")).unwrap();
    let repo = world.repo("r");
    let out = world.root().join("named/out");
    let script = format!(
        "echo a > a.txt; mkdir d; mv a.txt d/; git add .; git -c user.name=W -c user.email=w@w commit -qm mine; \
         git status --short > status.txt; mktemp > where.txt; echo x > \"$(mktemp)\"; echo x > /dev/null; \
         echo x > ~/.cache/x; echo x > {}; (echo late > late.txt) & wait; sh -c 'echo deep > deep.txt'",
        out.display()
    );
    let verify = "git status > status.log && echo v > left.log && ! echo x > \"$HOME/gate\"";
    for (kind, gate) in
        [("worktree", "in_place"), ("worktree", "clean"), ("clone", "clean"), ("copy", "clean")]
    {
        // There is no git in a copy.
        let (script, verify) = match kind {
            "copy" => ("echo deep > deep.txt; echo late > late.txt", "test -f deep.txt"),
            _ => (script.as_str(), verify),
        };
        let task = world.script(script).repo(&repo).with("workspace", kind).with("gate", gate);
        let id = task.verify(verify).ok();
        world.drain();
        let result = world.result(id);
        assert_eq!(result.state, State::Succeeded, "{kind}, {gate}: {result:#?}\n{}", world.tell());
        let changed: Vec<&str> = result.changed.iter().map(|c| c.path.as_str()).collect();
        assert!(changed.contains(&"deep.txt") && changed.contains(&"late.txt"), "{kind}: {changed:?}");
        if kind != "copy" {
            assert!(changed.contains(&"d/a.txt"));
            assert!(out.exists() && world.home().join(".cache/x").exists());
        }
        if support().full {
            assert!(!world.home().join("gate").exists(), "{kind}, {gate}: the gate is confined, too");
        }
    }
}

#[test]
fn it_is_off_unless_it_is_asked_for_by_the_owner_or_the_profile() {
    let world = World::new();
    let repo = world.repo("r");
    let free = world.script("echo x > \"$HOME/free\"").repo(&repo).ok();
    world.drain();
    assert_eq!(world.succeeded(free).confinement, None);
    assert!(world.home().join("free").exists());
    let profile = json!({
        "version": 1, "name": "tight", "extends": "shell", "confine": "strict", "writable": ["~/mine"],
    });
    fs::create_dir(world.home().join("mine")).unwrap();
    fs::write(world.spool_path().join("workers/tight.json"), profile.to_string()).unwrap();
    let tight = world.submit("echo x > ~/mine/x; echo x > ~/not").worker("tight").repo(&repo).ok();
    world.drain();
    let result = world.result(tight);
    assert!(world.home().join("mine/x").exists());
    if support().full {
        assert_eq!(result.class, Some(Class::WorkerFailed));
        assert!(!world.home().join("not").exists());
    }
    world.configure("[confine]\nworkers = \"off\"\n");
    let off = world.submit("echo x > ~/not").worker("tight").repo(&repo).ok();
    world.drain();
    assert_eq!(world.succeeded(off).confinement, None);
}

#[test]
fn what_would_undo_it_is_said() {
    let world = World::configured(&format!("{STRICT}writable = [\"{{root}}\"]\n"));
    let id = world.script("true").ok();
    let wrapped = json!({ "version": 1, "name": "wrapped", "extends": "shell", "wrap": ["env"] });
    fs::write(world.spool_path().join("workers/wrapped.json"), wrapped.to_string()).unwrap();
    let wrapped = world.submit("echo x > \"$HOME/wrapped\"").worker("wrapped").ok();
    world.drain();
    let result = world.succeeded(id);
    let confined = result.confinement.unwrap();
    assert!(
        !confined.held && confined.why_not.unwrap().contains("the spool lies in"),
        "{:?}",
        result.warnings
    );
    assert!(result.warnings.iter().any(|w| w.starts_with("the worker could write outside its workspace")));
    let confined = world.succeeded(wrapped).confinement.unwrap();
    assert!(!confined.held && confined.why_not.unwrap().contains("wrapped"));
    assert!(world.home().join("wrapped").exists());
    let bad = format!("{STRICT}writable = [\"relative\"]\n");
    fs::write(world.spool_path().join("config.toml"), bad).unwrap();
    world.run(&["list"]).says(&["confine.writable", "absolute"]);
}
