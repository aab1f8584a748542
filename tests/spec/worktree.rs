//! Work in git worktrees: a branch and a tree a task, and nothing of the user's is touched (I11).

use crate::support::{Repo, World};
use std::fs;
use workspool::model::{Class, Phase, State, TaskResult, Verification};

fn paths(result: &TaskResult) -> Vec<(&str, &str)> {
    result.changed.iter().map(|c| (c.path.as_str(), c.change.as_str())).collect()
}

#[test]
fn twenty_tasks_make_twenty_branches_and_the_checkout_stays_as_it_is() {
    let world = World::new();
    let repo = world.repo("r");
    // Everything that a user may have lying about.
    repo.write("staged.txt", "staged\n");
    repo.git(&["add", "staged.txt"]);
    repo.write("README.md", "# edited, not staged\n")
        .write("untracked.txt", "u\n")
        .write("build.log", "ignored\n");
    repo.git(&["branch", "other"]);
    repo.git(&["tag", "-a", "v1", "-m", "v1"]);
    let marker = world.root().join("hook-ran");
    for hook in [
        "pre-commit",
        "commit-msg",
        "post-commit",
        "post-checkout",
        "reference-transaction",
        "post-index-change",
    ] {
        repo.hook(hook, &format!("echo {hook} >> {}", marker.display()));
    }
    repo.git(&["config", "commit.gpgSign", "true"]);
    repo.git(&["config", "gpg.program", "false"]);
    let _ = fs::remove_file(&marker);
    let before = repo.fingerprint();
    let head = repo.head();
    let ids: Vec<_> = (0..20)
        .map(|n| {
            world
                .script(&format!("echo {n} > out-{n}.txt"))
                .repo(&repo)
                .verify(&format!("test -f out-{n}.txt"))
                .ok()
        })
        .collect();
    world.drain();
    assert!(!marker.exists(), "hooks of the user ran: {}", fs::read_to_string(&marker).unwrap());
    before.assert_same(&repo.fingerprint());
    assert_eq!(repo.branches("workspool").len(), 20);
    for (n, id) in ids.into_iter().enumerate() {
        let result = world.succeeded(id);
        assert_eq!(result.verification, Verification::Verified);
        assert_eq!(result.branch.as_deref(), Some(format!("workspool/{id}").as_str()));
        assert_eq!(result.base.as_deref(), Some(head.as_str()));
        assert_eq!(paths(&result), [(format!("out-{n}.txt").as_str(), "added")]);
        let commit = result.commit.unwrap();
        assert_eq!(repo.rev(&format!("workspool/{id}")), commit);
        assert_eq!(repo.rev(&format!("{commit}^")), head);
        assert_eq!(repo.rev(&format!("{commit}^{{tree}}")), result.tree.unwrap());
        assert_eq!(repo.show(&commit, &format!("out-{n}.txt")), format!("{n}\n"));
        assert_eq!(repo.git(&["log", "-1", "--format=%an <%ae>", &commit]), "A User <user@example.com>");
    }
}

#[test]
fn the_workspace_is_at_one_stable_path_and_is_clean_afterwards() {
    let world = World::new();
    let repo = world.repo("r");
    let id =
        world.script("pwd > where.txt; git status --short > status.txt; exit ${FAIL:-0}").repo(&repo).ok();
    world.drain();
    let result = world.succeeded(id);
    let workspace = result.workspace.unwrap();
    assert!(
        workspace.starts_with(world.spool_path().join("worktrees")) && workspace.ends_with(id.to_string())
    );
    assert_eq!(fs::read_to_string(workspace.join("where.txt")).unwrap().trim(), workspace.to_str().unwrap());
    assert_eq!(fs::read_to_string(workspace.join("status.txt")).unwrap(), "?? status.txt\n?? where.txt\n");
    let tree = repo.at(&workspace);
    assert_eq!(tree.git(&["status", "--short"]), "");
    assert_eq!(tree.git(&["symbolic-ref", "HEAD"]), format!("refs/heads/workspool/{id}"));
    world.on("retry", id, &[]).ok();
    world.drain();
    assert_eq!(world.succeeded(id).workspace.unwrap(), workspace);
}

#[test]
fn a_task_starts_from_head_or_from_the_base_that_it_names() {
    let world = World::new();
    let repo = world.repo("r");
    let first = repo.head();
    repo.write("second.txt", "2\n").commit("second");
    repo.git(&["tag", "here"]);
    repo.write("dirty.txt", "not committed\n");
    let at_head = world.script("ls > list.txt").repo(&repo).ok();
    let at_base = world.script("ls > list.txt").repo(&repo).with("base", &first[..10]).ok();
    let at_tag = world.script("ls > list.txt").repo(&repo).with("base", "here").ok();
    world.drain();
    let list = |id| repo.show(&world.succeeded(id).commit.unwrap(), "list.txt");
    assert_eq!(list(at_head), "README.md\nlist.txt\nsecond.txt\nsrc\n");
    assert_eq!(list(at_base), "README.md\nlist.txt\nsrc\n");
    assert_eq!(list(at_tag), list(at_head));
}

#[test]
fn the_repository_says_how_to_work_in_it_as_of_the_base_commit() {
    let world = World::new();
    let repo = world.repo("r");
    let out = world.root().join("teardown");
    let file = format!(
        "setup = [\"echo one > setup.log\", [\"sh\", \"-c\", \"echo two >> setup.log\"]]\n\
         teardown = [\"echo $WORKSPOOL_TASK >> {}\"]\n\
         copy = [\"*.env\", \"local/\"]\n\
         verify = [\"test -f answer.txt\"]\n\
         protected = [\"tests/\"]\n",
        out.display()
    );
    repo.write(".workspool.toml", file).write(".gitignore", "*.log\n*.env\nlocal/\n.cache/\n");
    repo.write(".worktreeinclude", "# caches\n.cache/\n").write("tests/t.txt", "t\n");
    repo.commit("how to work here");
    repo.write("dev.env", "A=1\n")
        .write("local/settings/x", "x\n")
        .write(".cache/deep/y", "y\n")
        .write("other.log", "no\n");
    // What is not committed does not count.
    repo.write(".workspool.toml", "verify = [\"false\"]\n");
    let before = repo.fingerprint();
    let good = world.script("cat setup.log > answer.txt; cat dev.env local/settings/x .cache/deep/y >> answer.txt; ls >> answer.txt").repo(&repo).ok();
    let fails = world.script("true").repo(&repo).ok();
    let own = world.script("true").repo(&repo).verify("true").ok();
    let protected = world.script("echo > answer.txt; echo changed > tests/t.txt").repo(&repo).ok();
    let allowed = world
        .script("echo > answer.txt; echo changed > tests/t.txt")
        .repo(&repo)
        .with("permission", "custom")
        .with("allow", "tests/t.txt")
        .with("allow", "answer.txt")
        .ok();
    world.drain();
    let result = world.succeeded(good);
    assert_eq!(paths(&result), [("answer.txt", "added")], "what is copied in is never committed");
    assert_eq!(result.gate[0].command, "test -f answer.txt");
    let answer = repo.show(&result.commit.unwrap(), "answer.txt");
    assert_eq!(answer, "one\ntwo\nA=1\nx\ny\nREADME.md\nanswer.txt\ndev.env\nlocal\nsetup.log\nsrc\ntests\n");
    assert_eq!(world.result(fails).class, Some(Class::GateFailed));
    assert_eq!(world.succeeded(own).gate[0].command, "true", "a task's own verification takes its place");
    let refused = world.result(protected);
    assert_eq!((refused.class, refused.phase), (Some(Class::Permission), Some(Phase::Working)));
    assert!(refused.message.contains("tests/t.txt: the repository protects it"), "{}", refused.message);
    world.succeeded(allowed);
    // The teardown ran for each, whatever came out.
    let torn: std::collections::BTreeSet<String> =
        fs::read_to_string(out).unwrap().lines().map(str::to_owned).collect();
    assert_eq!(torn, [good, fails, own, protected, allowed].map(|id| id.to_string()).into());
    before.assert_same(&repo.fingerprint());
}

#[test]
fn a_broken_repository_file_and_a_failing_setup_fail_the_task_and_say_why() {
    let world = World::new();
    let broken = world.repo("broken");
    broken.write(".workspool.toml", "verify = 5\n").commit("broken");
    let setup = world.repo("setup");
    setup.write(".workspool.toml", "setup = [\"echo no compiler >&2; exit 4\"]\n").commit("setup");
    let (a, b) = (world.script("true").repo(&broken).ok(), world.script("touch never").repo(&setup).ok());
    world.drain();
    let a = world.result(a);
    assert_eq!((a.class, a.phase), (Some(Class::Workspace), Some(Phase::Preparing)));
    assert!(a.message.contains(".workspool.toml") && a.message.contains("verify"), "{}", a.message);
    let b = world.result(b);
    assert_eq!((b.class, b.phase), (Some(Class::Workspace), Some(Phase::Setup)));
    assert!(b.message.contains("setup command failed (exit code 4)"), "{}", b.message);
    assert_eq!(b.stderr_tail.as_deref().map(str::trim), Some("no compiler"));
}

#[test]
fn a_task_can_copy_files_and_work_in_a_folder_below() {
    let world = World::new();
    let repo = world.repo("r");
    repo.write(".env", "TOKEN=a1b2c3d4e5f6g7h8\n").write("src/deep/x.txt", "x\n");
    repo.commit("deep");
    let id = world
        .script("cat ../../.env; pwd; echo y > y.txt")
        .repo(&repo)
        .with("copy", ".env")
        .with("subdir", "src/deep")
        .ok();
    let out = world.script("true").repo(&repo).with("subdir", "no/such").ok();
    world.drain();
    let result = world.succeeded(id);
    assert_eq!(paths(&result), [("src/deep/y.txt", "added")]);
    let log = world.log(id, "work.1");
    assert!(log.contains("/src/deep"), "{log}");
    // The copied file's secret is masked by its value.
    assert!(!log.contains("a1b2c3d4e5f6g7h8"), "{log}");
    let out = world.result(out);
    assert_eq!(out.state, State::Failed);
    assert!(out.message.contains("there is no folder no/such in the workspace"), "{}", out.message);
}

#[test]
fn the_source_may_be_any_kind_of_checkout() {
    let world = World::new();
    let repo = world.repo("r");
    let head = repo.head();
    let works = |source: &Repo, base: &str| {
        let before = source.fingerprint();
        let id =
            world.script("echo new > new.txt; ls README.md").repo(source).verify("test -f README.md").ok();
        world.drain();
        let result = world.succeeded(id);
        assert_eq!(result.base.as_deref(), Some(base));
        assert_eq!(result.verification, Verification::Verified);
        assert_eq!(source.rev(&format!("workspool/{id}")), result.commit.unwrap());
        before.assert_same(&source.fingerprint());
    };
    // A linked worktree, which starts from its own HEAD.
    repo.git(&["worktree", "add", "-q", "-b", "topic", "../linked"]);
    let linked = repo.at(world.root().join("repos/linked"));
    let topic = linked.write("topic.txt", "t\n").commit("topic");
    works(&linked, &topic);
    // A detached HEAD.
    repo.git(&["checkout", "-q", "--detach"]);
    works(&repo, &head);
    // A bare repository.
    repo.git(&["clone", "-q", "--bare", ".", "../bare.git"]);
    works(&repo.at(world.root().join("repos/bare.git")), &head);
    // A shallow clone says that it is one.
    repo.write("more.txt", "m\n").commit("more");
    repo.git(&["clone", "-q", "--depth=1", &format!("file://{}", repo.path().display()), "../shallow"]);
    let shallow = repo.at(world.root().join("repos/shallow"));
    let id = world.script("true").repo(&shallow).ok();
    world.drain();
    assert!(world.succeeded(id).lacks.iter().any(|w| w.contains("shallow clone")));
    // A sparse checkout.
    shallow.git(&["sparse-checkout", "set", "src"]);
    works(&shallow, &shallow.head());
}

#[test]
fn a_folder_of_a_repository_stands_for_the_repository_and_the_worker_starts_there() {
    let world = World::new();
    let repo = world.repo("r");
    let folder = repo.path().join("src");
    repo.write(".workspool.toml", "setup = [\"test -f src/lib.txt\"]\n").commit("setup");
    let script = "test -f lib.txt && pwd && echo x > made-here.txt";
    let at_top = world.script("test -f src/lib.txt").repo(&repo).ok();
    for kind in ["worktree", "clone"] {
        let id = world
            .script(script)
            .with("repo", &folder)
            .with("workspace", kind)
            // What is declared is in relation to the repository.
            .verify("test -f src/made-here.txt")
            .with("deliverable", "src/made-here.txt")
            .ok();
        world.drain();
        let result = world.succeeded(id);
        assert_eq!(paths(&result), [("src/made-here.txt", "added")]);
        assert!(result.deliverables.iter().all(|d| d.found), "{:?}", result.deliverables);
        assert!(world.log(id, "work.1").contains("/src"));
        assert_eq!(world.task(id).repo.unwrap().key, world.task(at_top).repo.unwrap().key);
    }
    // Another folder that is named counts from the top, as ever.
    let second = world.repo("s");
    second.write("other/x", "x\n").commit("other");
    let named = world
        .script("test -f x")
        .with("repo", second.path().join("src"))
        .with("subdir", "other")
        .verify("test -f x")
        .ok();
    // A folder that no commit has.
    fs::create_dir(repo.path().join("new")).unwrap();
    let new = world.script("true").with("repo", repo.path().join("new")).with("retries", "0").ok();
    world.drain();
    world.succeeded(named);
    world.succeeded(at_top);
    let result = world.result(new);
    assert_eq!((result.class, result.phase), (Some(Class::Workspace), Some(Phase::Preparing)));
    let words = ["there is no folder new in the workspace", &repo.head()];
    assert!(words.iter().all(|w| result.message.contains(w)), "{}", result.message);
}

#[test]
fn a_dropped_task_may_name_a_folder_of_a_repository() {
    let world = World::new();
    let repo = world.repo("r");
    let task = serde_json::json!({
        "objective": "echo x > made-here.txt", "worker": "shell", "repository": repo.path().join("src"),
    });
    world.drop_file("spool/inbox", "below.json", task.to_string());
    world.drain();
    let answer = fs::read(world.spool_path().join("taken/below.json")).unwrap();
    let answer: serde_json::Value = serde_json::from_slice(&answer).unwrap();
    let id = answer["tasks"][0]["id"].as_str().unwrap().parse().unwrap();
    assert_eq!(paths(&world.succeeded(id)), [("src/made-here.txt", "added")]);
}

#[test]
fn a_repository_that_is_gone_fails_its_task_and_no_other() {
    let world = World::new();
    let (gone, there) = (world.repo("gone"), world.repo("there"));
    let lost = world.script("true").repo(&gone).ok();
    let fine = world.script("true").repo(&there).ok();
    fs::remove_dir_all(gone.path()).unwrap();
    world.drain();
    let result = world.result(lost);
    assert_eq!(
        (result.state, result.class, result.phase),
        (State::Failed, Some(Class::Workspace), Some(Phase::Preparing))
    );
    world.succeeded(fine);
}

#[test]
fn odd_names_do_no_harm() {
    let world = World::new();
    let repo = world.empty_repo("a b $(touch pwned) 'q' ü");
    repo.write("x", "x\n").commit("first");
    repo.git(&["branch", "a$(id)b"]);
    let id = world.script("echo $PWD > y").repo(&repo).with("base", "a$(id)b").ok();
    world.drain();
    assert_eq!(paths(&world.succeeded(id)), [("y", "added")]);
    assert!(!world.root().join("pwned").exists() && !repo.path().join("pwned").exists());
}

#[test]
fn an_inherited_git_dir_leads_nowhere() {
    let world = World::new();
    let (repo, other) = (world.repo("r"), world.repo("other"));
    for (name, value) in [("GIT_DIR", ".git"), ("GIT_INDEX_FILE", ".git/index"), ("GIT_WORK_TREE", ".")] {
        world.set_env(name, &other.path().join(value).to_string_lossy());
    }
    let before = other.fingerprint();
    let id = world.script("echo x > x.txt").repo(&repo).ok();
    world.drain();
    assert_eq!(paths(&world.succeeded(id)), [("x.txt", "added")]);
    assert_eq!(repo.branches("workspool").len(), 1);
    before.assert_same(&other.fingerprint());
    assert_eq!(other.branches("workspool").len(), 0);
}
