//! Work in overlays: what a worktree gives, over one checkout that stays as it was made.
//!
//! Where the system does not let anybody make overlays, these tests say so and pass.

/// The world of [`world`], or the end of a test that has nothing to test.
macro_rules! overlays {
    () => {
        overlays!("")
    };
    ($config:expr) => {
        match $crate::overlay::world($config) {
            Some(world) => world,
            None => return,
        }
    };
}

mod deaths;

use crate::support::{Repo, World};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use workspool::model::{Class, TaskId, TaskResult, Verification};

/// A world in which overlays can be made; `None`, with a word about it, where they cannot.
fn world(config: &str) -> Option<World> {
    let world = World::configured(config);
    let said = world.run(&["doctor"]).text();
    if said.contains("workspaces can be overlays") {
        return Some(world);
    }
    eprintln!("passed over: no overlays here\n{said}");
    None
}

fn submit(world: &World, repo: &Repo, script: &str) -> TaskId {
    world.script(script).repo(repo).with("workspace", "overlay").ok()
}

fn paths(result: &TaskResult) -> Vec<(&str, &str)> {
    result.changed.iter().map(|c| (c.path.as_str(), c.change.as_str())).collect()
}

fn shared(world: &World) -> PathBuf {
    world.spool_path().join("worktrees/.overlay")
}

/// The checkouts that overlays are laid over.
fn checkouts(world: &World) -> Vec<PathBuf> {
    let all = walkdir::WalkDir::new(shared(world).join("base")).min_depth(2).max_depth(2);
    let mut found: Vec<PathBuf> = all.into_iter().map(|e| e.unwrap().into_path()).collect();
    found.sort();
    found
}

/// All that can be said of what is below a folder, times of changes included.
fn inventory(folder: &Path) -> BTreeMap<PathBuf, (u32, u64, i64, i64, Vec<u8>)> {
    let walk = walkdir::WalkDir::new(folder).into_iter().map(Result::unwrap);
    walk.map(|entry| {
        let meta = entry.metadata().unwrap();
        let content = if meta.is_file() { fs::read(entry.path()).unwrap() } else { Vec::new() };
        (entry.into_path(), (meta.mode(), meta.ino(), meta.ctime(), meta.ctime_nsec(), content))
    })
    .collect()
}

/// Nothing is left of the task's overlay, and git knows of no tree of it.
fn assert_retired(world: &World, repo: &Repo, id: TaskId) {
    let written = shared(world).join("tasks").join(id.to_string());
    world.await_until("what it wrote is gone", || !written.exists());
    let listed = || repo.git(&["worktree", "list"]);
    world.await_until("git knows no tree of it", || !listed().contains(&id.to_string()));
    assert_eq!(world.result(id).workspace, None);
}

/// Work of every kind in one repository: edits, removals, links, modes, renames, a commit of its own.
const WORK: &str = "echo more >> README.md; rm src/lib.txt; mkdir new; echo n > new/n.txt; ln -s n.txt new/l; \
    chmod +x tool.sh; mv moved.txt elsewhere.txt; ln hard.txt hard2.txt; echo changed >> hard2.txt; \
    echo own > own.txt; git add own.txt; git -c user.name=W -c user.email=w@localhost commit -qm own; echo after > after.txt; echo i > x.log";

fn full_repo(world: &World) -> Repo {
    let repo = world.repo("r");
    repo.write("tool.sh", "#!/bin/sh\n").write("moved.txt", "m\n").write("hard.txt", "h\n");
    repo.write("folder/one.txt", "1\n").write("folder/two.txt", "2\n");
    repo.commit("more files");
    repo
}

#[test]
fn an_overlay_gives_the_result_that_a_worktree_gives_and_its_checkout_stays_as_it_was() {
    let world = overlays!();
    let repo = full_repo(&world);
    submit(&world, &repo, "true");
    world.drain();
    let [checkout] = &checkouts(&world)[..] else { panic!("one checkout was to be made") };
    let made = inventory(&checkout.join("tree"));
    assert!(made.len() > 6, "{made:?}");
    let before = repo.fingerprint();
    let task = |kind| {
        let task = world.script(WORK).repo(&repo).with("workspace", kind);
        task.with("copy", ".env").verify("test -x tool.sh && ! test -e src/lib.txt && test -f after.txt").ok()
    };
    let (tree, overlay) = (task("worktree"), task("overlay"));
    world.drain();
    before.assert_same(&repo.fingerprint());
    let (tree, result) = (world.succeeded(tree), world.succeeded(overlay));
    assert_eq!(result.verification, Verification::Verified);
    assert_eq!((&result.tree, paths(&result)), (&tree.tree, paths(&tree)));
    assert_eq!(result.lacks, tree.lacks);
    let patch = |r: &TaskResult| fs::read(world.dir(r.id).path().join("diff.patch")).unwrap();
    assert_eq!(patch(&result), patch(&tree));
    let commit = result.commit.clone().unwrap();
    assert_eq!(repo.rev(&format!("workspool/{overlay}")), commit);
    assert_eq!(repo.git(&["log", "--format=%s", &format!("main..{commit}")]).lines().count(), 2);
    assert_retired(&world, &repo, overlay);
    assert_eq!(checkouts(&world).as_slice(), std::slice::from_ref(checkout));
    assert_eq!(inventory(&checkout.join("tree")), made, "the shared checkout was touched");
    world.run(&["audit", &overlay.to_string()]).ok();
    world.on("accept", overlay, &["--as", "commit"]).ok();
    assert_eq!(repo.rev("HEAD^{tree}"), result.tree.unwrap());
    world.run(&["check"]).ok();
}

#[test]
fn the_tree_is_whole_clean_and_at_its_stable_path_and_what_it_is_made_of_is_hidden() {
    let world = overlays!();
    let repo = full_repo(&world);
    let script = format!(
        "pwd > where.txt; git status --short > status.txt; list=$(ls -A | sort); echo \"$list\" > list.txt; \
         stat -c '%u %g %a' tool.sh > mode.txt; umask > umask.txt; id -u > id.txt; \
         ls -A {0} > hidden.txt; (echo x > {0}/x) 2>/dev/null && echo written > hidden.txt; true",
        shared(&world).display()
    );
    let ids = [submit(&world, &repo, &script), world.script(&script).repo(&repo).ok()];
    world.drain();
    let [overlay, tree] = ids.map(|id| world.succeeded(id).commit.unwrap());
    let shown = |commit: &str, name: &str| repo.show(commit, name);
    let path = world.spool().worktrees().join(world.task(ids[0]).repo.unwrap().name).join(ids[0].to_string());
    assert_eq!(shown(&overlay, "where.txt").trim(), path.to_str().unwrap());
    assert_eq!(shown(&overlay, "hidden.txt"), "");
    for name in ["list.txt", "status.txt", "mode.txt", "umask.txt", "id.txt"] {
        assert_eq!(shown(&overlay, name), shown(&tree, name), "{name}");
    }
}

#[test]
fn rules_gates_and_retries_are_those_of_a_worktree() {
    let world = overlays!("[defaults]\nretry_delay = 0\n");
    let repo = full_repo(&world);
    let base = || world.script("echo x > tool.sh").repo(&repo).with("workspace", "overlay");
    let forbidden = base().with("forbid", "tool.sh").ok();
    let read_only = base().with("permission", "read_only").ok();
    let fails = base().verify("test ! -s tool.sh").ok();
    let clean = world
        .script("echo g > good.txt; echo i > x.log")
        .repo(&repo)
        .with("workspace", "overlay")
        .with("gate", "clean")
        .verify("test -f good.txt && ! test -e x.log")
        .ok();
    let again = world
        .script("test -e left.txt && exit 9; echo l > left.txt; exit 3")
        .repo(&repo)
        .with("workspace", "overlay")
        .with("retries", "1")
        .ok();
    world.drain();
    let class = |id| world.result(id).class;
    assert_eq!(class(forbidden), Some(Class::Permission));
    assert_eq!(class(fails), Some(Class::GateFailed));
    assert_eq!(world.succeeded(clean).verification, Verification::Verified);
    let result = world.succeeded(read_only);
    assert_eq!((result.undone, paths(&world.result(read_only))), (vec!["tool.sh".to_owned()], vec![]));
    // Each attempt begins from the base.
    let result = world.result(again);
    assert_eq!((result.attempts.len(), result.exit_code), (2, Some(3)), "{result:#?}");
    for id in [forbidden, read_only, fails, clean, again] {
        assert_retired(&world, &repo, id);
    }
    let salvage = world.result(fails).salvage.unwrap();
    assert!(salvage.complete && repo.show(&salvage.commit, "tree/tool.sh") == "x\n");
    world.run(&["check"]).ok();
}

#[test]
fn a_revision_goes_on_from_what_was_committed() {
    let world = overlays!();
    let repo = full_repo(&world);
    let id = submit(
        &world,
        &repo,
        "if test -e first.txt; then echo 2 > second.txt; rm folder/one.txt; else echo 1 > first.txt; fi",
    );
    world.drain();
    let first = world.succeeded(id).commit.unwrap();
    world.on("revise", id, &["--feedback", "and a second one"]).ok();
    world.drain();
    let result = world.succeeded(id);
    let commit = result.commit.unwrap();
    assert_eq!(repo.rev(&format!("{commit}^")), first);
    let files = repo.files(&commit);
    assert!(files.contains(&"second.txt".to_owned()) && files.contains(&"first.txt".to_owned()));
    assert!(!files.contains(&"folder/one.txt".to_owned()));
    assert_retired(&world, &repo, id);
}

#[test]
fn a_hostile_worker_harms_neither_the_checkout_nor_the_next_task() {
    let world = overlays!();
    let repo = full_repo(&world);
    submit(&world, &repo, "true");
    world.drain();
    let [checkout] = &checkouts(&world)[..] else { panic!("one checkout was to be made") };
    let made = inventory(&checkout.join("tree"));
    let marker = world.root().join("ran");
    let scripts = [
        // Its tree, and what says which tree it is.
        "rm -rf .git ./* .gitignore".to_owned(),
        // A folder of the base becomes another one, then a file, then a link.
        "rm -r folder; mkdir folder; echo 9 > folder/nine.txt; rm -r src; ln -s README.md src; rm README.md; mkdir README.md; echo r > README.md/r".to_owned(),
        "mv folder renamed; cp -a renamed folder; ln hard.txt other; : > hard.txt; chmod 000 tool.sh renamed".to_owned(),
        format!(
            "mkdir -p .git-hooks; printf '#!/bin/sh\\ntouch {0}\\n' > .git-hooks/post-checkout; chmod +x .git-hooks/*; \
             git config core.hooksPath \"$PWD/.git-hooks\"; git config filter.x.clean 'touch {0}; cat'; \
             git config core.fsmonitor 'touch {0}'; echo '* filter=x' > .gitattributes",
            marker.display()
        ),
        "touch -d '2001-01-01' README.md; printf '# X\\n' > README.md; touch -r tool.sh README.md".to_owned(),
    ];
    let alone = |script: &String| {
        let id = submit(&world, &repo, script);
        world.drain();
        id
    };
    let ids: Vec<TaskId> = scripts.iter().map(alone).collect();
    let after = submit(
        &world,
        &repo,
        "all=$(find . -path ./.git -prune -o -type f -print0 | sort -z | xargs -0 cat); echo \"$all\" > all.txt",
    );
    world.drain();
    assert!(!marker.exists());
    let results: Vec<TaskResult> = ids.iter().map(|id| world.result(*id)).collect();
    assert_eq!(repo.files(results[0].commit.as_ref().unwrap()), Vec::<String>::new());
    let files = repo.files(results[1].commit.as_ref().unwrap());
    assert!(files.contains(&"folder/nine.txt".to_owned()) && !files.contains(&"folder/one.txt".to_owned()));
    assert!(files.contains(&"src".to_owned()) && files.contains(&"README.md/r".to_owned()), "{files:?}");
    assert!(paths(&results[4]).contains(&("README.md", "modified")), "{:?}", paths(&results[4]));
    assert_eq!(inventory(&checkout.join("tree")), made, "the shared checkout was touched");
    assert_eq!(paths(&world.succeeded(after)), [("all.txt", "added")]);
    for id in ids {
        assert_retired(&world, &repo, id);
    }
    world.run(&["check"]).ok();
}

#[test]
fn a_checkout_that_something_else_wrote_to_is_found_out_and_made_anew() {
    let world = overlays!("[defaults]\nretry_delay = 0\n");
    let repo = full_repo(&world);
    submit(&world, &repo, "true");
    world.drain();
    let first = checkouts(&world);
    let victim = first[0].join("tree/folder/one.txt");
    let times = fs::metadata(&victim).unwrap().modified().unwrap();
    fs::write(&victim, "9\n").unwrap();
    fs::File::options().write(true).open(&victim).unwrap().set_modified(times).unwrap();
    fs::write(first[0].join("tree/added.txt"), "a\n").unwrap();
    let id = world
        .script("cat folder/one.txt > seen.txt; ls > list.txt")
        .repo(&repo)
        .with("workspace", "overlay")
        .with("retries", "1")
        .ok();
    world.drain();
    let result = world.succeeded(id);
    let classes: Vec<_> = result.attempts.iter().map(|a| a.class).collect();
    assert_eq!(classes, [Some(Class::Workspace), None], "{result:#?}");
    assert!(
        result.attempts[0].message.contains("added.txt, folder/one.txt"),
        "{}",
        result.attempts[0].message
    );
    let commit = result.commit.unwrap();
    assert_eq!(repo.show(&commit, "seen.txt"), "1\n");
    assert!(!repo.show(&commit, "list.txt").contains("added"));
    assert_eq!(checkouts(&world).len(), 2);
    world.run(&["prune", "--apply"]).ok();
    let left = checkouts(&world);
    assert!(left.len() == 1 && left != first, "{left:?}");
}

#[test]
fn two_tasks_at_once_share_a_checkout_and_nothing_else() {
    let world = overlays!("max_concurrency = 4\n");
    let repo = full_repo(&world);
    let meet = |own: &str, other: &str| {
        let at = |name: &str| world.root().join(name).display().to_string();
        let script = format!(
            "echo {own} > who.txt; echo {own} >> README.md; touch {}; while [ ! -e {} ]; do sleep 0.05; done; \
             cat who.txt README.md > seen.txt",
            at(own),
            at(other)
        );
        submit(&world, &repo, &script)
    };
    let (a, b) = (meet("a", "b"), meet("b", "a"));
    world.drain();
    for (id, own, other) in [(a, "a", "b"), (b, "b", "a")] {
        let seen = repo.show(&world.succeeded(id).commit.unwrap(), "seen.txt");
        assert!(seen.lines().any(|l| l == own) && !seen.lines().any(|l| l == other), "{seen}");
    }
    assert_eq!(checkouts(&world).len(), 1);
}

#[test]
fn checkouts_go_when_no_task_has_used_them_for_some_time() {
    let world = overlays!();
    let repo = full_repo(&world);
    let go = world.root().join("go");
    let id = submit(
        &world,
        &repo,
        &format!(
            "touch {}; while [ ! -e {} ]; do sleep 0.05; done",
            world.root().join("on").display(),
            go.display()
        ),
    );
    world.tick();
    world.await_until("it works", || world.root().join("on").exists());
    let [checkout] = &checkouts(&world)[..] else { panic!("one checkout was to be made") };
    let old = std::time::SystemTime::now() - std::time::Duration::from_secs(2 * 24 * 3600);
    fs::File::options().write(true).open(checkout.join("used")).unwrap().set_modified(old).unwrap();
    world.run(&["prune", "--apply"]).ok();
    assert!(checkout.exists(), "a task works over it");
    fs::write(&go, "").unwrap();
    world.await_end(id);
    assert_retired(&world, &repo, id);
    let would = world.run(&["prune"]).ok().text();
    assert!(would.contains("checkout") && checkout.exists(), "{would}");
    world.run(&["prune", "--apply"]).ok();
    assert!(!checkout.exists());
    let next = submit(&world, &repo, "true");
    world.drain();
    world.succeeded(next);
    assert_retired(&world, &repo, next);
    world.run(&["prune", "--apply"]).ok();
    assert_eq!(checkouts(&world).len(), 1, "one that was just used stays");
}

/// I7: a partial salvage keeps what was written.
#[test]
fn what_cannot_be_kept_whole_stays_as_plain_files() {
    let world = overlays!();
    let repo = full_repo(&world);
    let id = submit(&world, &repo, "echo c > changed.txt; head -c 70000000 /dev/zero > big.log");
    world.drain();
    let result = world.succeeded(id);
    let kept = world.spool().worktrees().join(format!(".kept/{id}.1"));
    assert!(result.warnings.iter().any(|w| w.contains(kept.to_str().unwrap())), "{:?}", result.warnings);
    world.await_until("it is put aside", || kept.exists());
    assert_eq!(fs::metadata(kept.join("big.log")).unwrap().len(), 70_000_000);
    assert_eq!(fs::read_to_string(kept.join("changed.txt")).unwrap(), "c\n");
    assert_retired(&world, &repo, id);
}

#[test]
fn a_confined_worker_in_an_overlay_is_confined() {
    let world = overlays!("[confine]\nworkers = \"strict\"\n");
    let repo = full_repo(&world);
    let script = format!(
        "(echo x > {}) 2>/dev/null && echo out >> through.txt; (echo x >> {}/README.md) 2>/dev/null && echo repo >> through.txt; \
         echo in > in.txt; git -c user.name=W -c user.email=w@x commit -qam c --allow-empty; touch through.txt",
        world.root().join("planted").display(),
        repo.path().display()
    );
    let id = submit(&world, &repo, &script);
    world.drain();
    let result = world.succeeded(id);
    let confined = result.confinement.clone().unwrap();
    if confined.held {
        let commit = result.commit.unwrap();
        assert_eq!(
            (repo.show(&commit, "through.txt").as_str(), repo.show(&commit, "in.txt").as_str()),
            ("", "in\n")
        );
    }
}

#[test]
fn a_supervisor_that_works_in_an_overlay_goes_on_to_nothing_else() {
    let world = overlays!();
    let repo = full_repo(&world);
    let look = "readlink /proc/self/ns/mnt > ns.txt";
    let task = |kind: &str| world.script(look).repo(&repo).with("workspace", kind).ok();
    let ids = ["worktree", "overlay", "worktree", "overlay", "worktree"].map(task);
    world.drain();
    let seen = ids.map(|id| repo.show(&world.succeeded(id).commit.unwrap(), "ns.txt"));
    assert!(seen[0] == seen[2] && seen[2] == seen[4], "{seen:?}");
    assert!(seen[1] != seen[0] && seen[3] != seen[0] && seen[1] != seen[3], "{seen:?}");
}

#[test]
fn where_overlays_cannot_be_made_the_task_is_refused_with_the_reason() {
    let world = World::new();
    let repo = world.repo("r");
    let submit = world.script("true").repo(&repo).with("workspace", "overlay").command();
    let mut command = Command::new("unshare");
    let none = "echo 0 > /proc/sys/user/max_mnt_namespaces || exit 99; exec \"$0\" \"$@\"";
    command.args(["--user", "--map-root-user", "sh", "-c", none]).arg(submit.get_program());
    command.args(submit.get_args()).env_clear();
    command.envs(submit.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let Ok(ran) = command.output() else { return eprintln!("passed over: no unshare") };
    let said = String::from_utf8_lossy(&ran.stderr);
    if ran.status.code() == Some(99) || said.starts_with("unshare") {
        return eprintln!("passed over: {said}");
    }
    assert_eq!(ran.status.code(), Some(3), "{said}");
    for word in ["overlays cannot be made here", "namespace", "max_mnt_namespaces", "`worktree`"] {
        assert!(said.contains(word), "{word}: {said}");
    }
    assert_eq!(world.task_count(), 0);
}

#[test]
fn folders_without_rights_are_kept_and_go() {
    let world = overlays!();
    let repo = full_repo(&world);
    let id = submit(&world, &repo, "mkdir locked; echo x > locked/x.txt; chmod 000 locked; exit 3");
    world.drain();
    let result = world.result(id);
    assert_eq!(repo.show(&result.salvage.unwrap().commit, "tree/locked/x.txt"), "x\n");
    assert_retired(&world, &repo, id);
}
