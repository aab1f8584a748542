//! Warm trees: the next task gets the tree of one that ended, and nothing that was in it (I7, I14).

use crate::support::{Repo, World};
use std::fs;
use std::path::PathBuf;
use workspool::model::{EventKind, TaskId};

/// A world whose repository `r` keeps so many trees.
fn warm(trees: u32) -> (World, Repo) {
    let world = World::configured(&format!("[warm_trees]\n'{{root}}/repos/r' = {trees}\n"));
    let repo = world.repo("r");
    (world, repo)
}

/// Writes all that a worker can see of its tree, and of its git dir, to a file.
const LOOK: &str = "{ find . -path ./.git -prune -o -printf '%P %y %m %n %l\\n' | grep -v '^ ' | sort; stat -c %a .; \
    git status --porcelain --ignored; git ls-files -v; \
    git ls-files | while read -r f; do echo \"$f $(cat \"$f\")\"; done; \
    cd \"$(git rev-parse --git-dir)\"; find . | sort; } > ";

impl World {
    /// The warm trees that are ready.
    fn warm_trees(&self) -> Vec<PathBuf> {
        let pools = self.names("worktrees/.warm");
        let all = pools.iter().flat_map(|pool| {
            let dir = self.spool_path().join("worktrees/.warm").join(pool);
            self.names(&format!("worktrees/.warm/{pool}")).into_iter().map(move |name| dir.join(name))
        });
        all.collect()
    }

    /// Runs a task; its supervisor has ended, too, when this returns.
    fn does(&self, repo: &Repo, script: &str) -> TaskId {
        let id = self.script(script).repo(repo).with("permission", "full").ok();
        self.drain();
        id
    }

    /// What the next task sees of its tree, and whose it was.
    fn seen(&self, repo: &Repo) -> (String, Option<TaskId>) {
        let file = self.root().join("seen");
        let id = self.does(repo, &format!("{LOOK}{}", file.display()));
        (fs::read_to_string(file).unwrap(), self.succeeded(id).tree_from)
    }

    fn is_kept(&self, id: TaskId) -> bool {
        self.events(id).iter().any(|e| matches!(e, EventKind::TreeKept { .. }))
    }

    fn warnings(&self, id: TaskId) -> Vec<String> {
        let warnings = self.events(id).into_iter().filter_map(|e| match e {
            EventKind::Warning { message } => Some(message),
            _ => None,
        });
        warnings.collect()
    }
}

/// What a task sees in a tree that was made anew.
fn seen_anew() -> String {
    let world = World::new();
    let repo = world.repo("r");
    world.seen(&repo).0
}

#[test]
fn the_next_task_gets_the_tree_and_the_result_is_the_same() {
    let (world, repo) = warm(1);
    let before = repo.fingerprint();
    let first = world.does(&repo, "echo new > new.txt; echo two >> src/lib.txt");
    let result = world.succeeded(first);
    assert!(world.is_kept(first), "{}", world.tell());
    assert_eq!(
        (result.tree_from, result.workspace),
        (None, None),
        "nobody is told of a workspace that is gone"
    );
    assert_eq!(repo.show(&result.commit.unwrap(), "new.txt"), "new\n");
    assert_eq!(world.warm_trees().len(), 1);
    assert_eq!(world.seen(&repo), (seen_anew(), Some(first)));
    // Whatever is in the way of another commit goes, too.
    let again = world.does(&repo, "test ! -e new.txt && cat src/lib.txt > copy.txt");
    let result = world.succeeded(again);
    let told = world.on("show", again, &[]).ok().text();
    assert!(told.contains(&format!("a warm one, of task {}", result.tree_from.unwrap())), "{told}");
    let commit = result.commit.unwrap();
    assert_eq!(repo.show(&commit, "copy.txt"), "one\ntwo\nthree\n");
    assert_eq!(world.warm_trees().len(), 1);
    before.assert_same(&repo.fingerprint());
    world.run(&["check"]).ok();
}

#[test]
fn without_the_setting_trees_stay_where_they_are() {
    let world = World::configured("[warm_trees]\n'{root}/repos/other' = 2\n'{root}/repos/r' = 0\n");
    let repo = world.repo("r");
    let id = world.does(&repo, "true");
    assert!(world.succeeded(id).workspace.unwrap().is_dir());
    assert_eq!(world.seen(&repo).1, None);
    assert!(world.names("worktrees").iter().all(|n| n != ".warm"));
}

#[test]
fn nothing_that_a_worker_leaves_reaches_the_next_one() {
    let anew = seen_anew();
    let (world, repo) = warm(1);
    let out = world.root().join("out");
    fs::create_dir(&out).unwrap();
    let out = out.display();
    let own = "d=$(git rev-parse --git-dir)";
    let scripts = [
        // Beside the files of the commit.
        "echo x > a.log; mkdir -p target/deep; echo y > target/deep/z; mkfifo target/pipe".to_owned(),
        "mkdir -p empty/deeper src/empty; ln -s /etc/passwd target".to_owned(),
        "git init -q inner; echo x > inner/f; git init -q src/inner; echo x > src/inner/f; git init -q target/x".into(),
        "mkdir -p target/locked/below; echo x > target/locked/below/f; chmod 0 target/locked/below target/locked".into(),
        // In place of them.
        "rm -r src; ln -s /etc src".into(),
        format!("mv src {out}/src; ln -s {out}/src src"),
        format!("mv README.md {out}/r; ln -s {out}/r README.md"),
        "rm -r src README.md; echo > src; mkdir README.md; echo > README.md/x".into(),
        "rm -rf src README.md .gitignore".into(),
        format!("ln README.md {out}/hard; ln README.md src/hard"),
        "chmod 755 README.md; chmod 700 src; chmod 2777 .; chmod 400 src/lib.txt".into(),
        // As if nothing were different.
        "git update-index --assume-unchanged README.md; git update-index --skip-worktree src/lib.txt; \
         echo evil > README.md; echo evil > src/lib.txt"
            .into(),
        format!(
            "cp -p README.md {out}/then; printf '# A PROJECT\\n' > README.md; touch -r {out}/then README.md; \
             git update-index --refresh; git add -A"
        ),
        format!("cp -p README.md {out}/then; printf '# A PROJECT\\n' > x; touch -r {out}/then x; mv x README.md"),
        // In git's own folder for the tree.
        format!("{own}; mkdir -p $d/hooks $d/info; printf '#!/bin/sh\\n' > $d/hooks/post-checkout; echo /src > $d/info/sparse-checkout"),
        format!("{own}; printf '[core]\\nsparseCheckout = true\\nautocrlf = true\\n' > $d/config.worktree; git config extensions.worktreeConfig true"),
        "echo '*.txt eol=crlf' > .gitattributes; mkdir -p src; echo '* ident' > src/.gitattributes".into(),
        "rm .git; mkdir .git; echo x > .git/HEAD".into(),
        "git -c user.name=w -c user.email=w@w commit -q --allow-empty -m own; git checkout -q --detach; echo x > y".into(),
    ];
    for script in scripts {
        let id = world.does(&repo, &script);
        assert!(world.is_kept(id), "{script}: {}", world.tell());
        let (seen, from) = world.seen(&repo);
        assert_eq!(from, Some(id), "{script}: {}", world.tell());
        assert_eq!(seen, anew, "{script}");
        assert!(!repo.path().join(".git/config.worktree").exists());
    }
}

#[test]
fn what_was_in_the_tree_is_kept_before_it_is_given_on() {
    let (world, repo) = warm(1);
    let failed = world.does(&repo, "echo half > half.txt; echo note > a.log; exit 3");
    let salvage = world.result(failed).salvage.unwrap();
    assert!(world.is_kept(failed), "{}", world.tell());
    assert_eq!(repo.show(&salvage.name, "tree/half.txt"), "half\n");
    assert_eq!(repo.show(&salvage.name, "raw/a.log"), "note\n");
    // Of a success all but what is ignored is in the commit.
    let id = world.does(&repo, "echo whole > whole.txt; echo note > b.log");
    assert_eq!(world.succeeded(id).tree_from, Some(failed));
    assert_eq!(repo.show(&format!("refs/workspool/salvage/{id}/1"), "raw/b.log"), "note\n");
    world.run(&["check"]).ok();
}

#[test]
fn a_tree_that_cannot_be_kept_whole_otherwise_stays_where_it_is() {
    let (world, repo) = warm(1);
    // Larger than what a salvage takes of a file.
    let id = world.does(&repo, "truncate -s 65M big.log");
    world.succeeded(id);
    assert!(!world.is_kept(id));
    let place =
        world.spool_path().join("worktrees").join(world.task(id).repo.unwrap().name).join(id.to_string());
    assert!(place.join("big.log").is_file());
    let told = world.warnings(id).join("\n");
    assert!(told.contains("big.log") && told.contains(place.to_str().unwrap()), "{told}");
    assert_eq!(world.warm_trees().len(), 0);
}

#[test]
fn a_moved_base_is_followed() {
    let (world, repo) = warm(1);
    let first = world.does(&repo, "true");
    fs::remove_dir_all(repo.path().join("src")).unwrap();
    repo.write("README.md", "# Changed\n").write("deep/er/new.txt", "n\n").write("src", "a file now\n");
    repo.commit("second");
    let (seen, from) = world.seen(&repo);
    assert_eq!(from, Some(first));
    for line in ["README.md # Changed", "deep/er/new.txt n", "src a file now"] {
        assert!(seen.lines().any(|l| l == line), "{line:?} in {seen}");
    }
    assert!(!seen.contains("src/lib.txt"), "{seen}");
}

#[test]
fn files_that_would_be_written_differently_now_are_written_anew() {
    let (world, repo) = warm(1);
    let first = world.does(&repo, "true");
    assert!(world.is_kept(first));
    // A setting of the user's, and an attribute of another commit: no file has changed by either.
    repo.git(&["config", "core.autocrlf", "true"]);
    let id = world.does(&repo, "grep -c \"$(printf '\\r')\" src/lib.txt > count.txt");
    let result = world.succeeded(id);
    assert_eq!(result.tree_from, None, "made anew in place");
    assert_eq!(repo.show(&result.commit.unwrap(), "count.txt").trim(), "3");
    repo.git(&["config", "--unset", "core.autocrlf"]);
    let plain = world.does(&repo, "grep -c \"$(printf '\\r')\" src/lib.txt > count.txt || true");
    assert_eq!(repo.show(&world.succeeded(plain).commit.unwrap(), "count.txt").trim(), "0");
    repo.write("src/.gitattributes", "*.txt eol=crlf\n").commit("attributes");
    let id = world.does(&repo, "grep -c \"$(printf '\\r')\" src/lib.txt > count.txt");
    let result = world.succeeded(id);
    assert_eq!(result.tree_from, None);
    assert_eq!(repo.show(&result.commit.unwrap(), "count.txt").trim(), "3");
}

#[test]
fn no_more_trees_are_kept_than_are_wanted_and_none_goes_to_two_tasks() {
    let world = World::configured("max_concurrency = 3\n[warm_trees]\n'{root}/repos/r' = 2\n");
    let repo = world.repo("r");
    // So that there is one to take from the start; how many more there are in time depends on who is faster.
    let mut ids = vec![world.does(&repo, "echo first > out.txt")];
    assert!(world.is_kept(ids[0]), "{}", world.tell());
    ids.extend((0..9).map(|n| {
        let script = format!("test ! -e mine.log; echo {n} > mine.log; echo {n} > out.txt");
        world.script(&script).repo(&repo).ok()
    }));
    world.drain();
    let left = world.warm_trees().len();
    assert!(left <= 2, "{:?}", world.warm_trees());
    let mut given = Vec::new();
    for (id, out) in ids.iter().zip(["first", "0", "1", "2", "3", "4", "5", "6", "7", "8"]) {
        let result = world.succeeded(*id);
        assert_eq!(repo.show(&result.commit.unwrap(), "out.txt"), format!("{out}\n"));
        given.extend(result.tree_from);
    }
    let all = given.len();
    given.sort();
    given.dedup();
    assert!(all >= 1 && given.len() == all, "{given:?}");
    let kept = ids.iter().filter(|id| world.is_kept(**id)).count();
    assert_eq!(kept, all + left, "each is with a task or in the pool: {}", world.tell());
    world.run(&["check"]).ok();
}

#[test]
fn a_tree_that_somebody_touched_meanwhile_is_put_right_or_not_given() {
    let (world, repo) = warm(1);
    let anew = seen_anew();
    world.does(&repo, "true");
    let tree = world.warm_trees()[0].join("tree");
    fs::write(tree.join("extra"), "x").unwrap();
    assert_eq!(world.seen(&repo), (anew.clone(), None));
    let tree = world.warm_trees()[0].join("tree");
    fs::write(tree.join("README.md"), "# A PROJECT\n").unwrap();
    assert_eq!(world.seen(&repo), (anew.clone(), None));
    // Of before a restart.
    let note = world.warm_trees()[0].join("warm.json");
    let text = fs::read_to_string(&note).unwrap();
    let boot = serde_json::from_str::<serde_json::Value>(&text).unwrap()["boot"].as_str().unwrap().to_owned();
    fs::write(&note, text.replace(&boot, "another")).unwrap();
    let told = world.run(&["check"]).ok().text();
    assert!(told.contains("the machine was restarted"), "{told}");
    assert_eq!(world.seen(&repo), (anew, None));
}

#[test]
fn a_task_whose_tree_is_gone_can_be_tried_again_and_revised() {
    let (world, repo) = warm(1);
    let id = world.does(&repo, "printf x >> n.txt; echo > left.log");
    assert!(world.is_kept(id));
    world.on("revise", id, &["--feedback", "more"]).ok();
    world.drain();
    let revised = world.succeeded(id);
    assert_eq!((revised.attempt, revised.tree_from), (2, Some(id)));
    assert_eq!(repo.show(&revised.commit.unwrap(), "n.txt"), "xx");
    world.on("retry", id, &[]).ok();
    world.drain();
    assert_eq!(repo.show(&world.succeeded(id).commit.unwrap(), "n.txt"), "xxx");
    world.on("accept", id, &["--as", "commit", "--unverified"]).ok();
    assert_eq!(repo.show("HEAD", "n.txt"), "xxx");
    world.run(&["check"]).ok();
}

#[test]
fn other_kinds_of_workspaces_and_attempts_in_one_tree_are_not_kept() {
    let (world, repo) = warm(1);
    let clone = world.script("true").repo(&repo).with("workspace", "clone").ok();
    let copy = world.script("true").repo(&repo).with("workspace", "copy").ok();
    world.drain();
    assert!([clone, copy].iter().all(|id| world.succeeded(*id).workspace.unwrap().is_dir()));
    repo.git(&["sparse-checkout", "set", "src"]);
    let sparse = world.does(&repo, "true");
    assert!(world.succeeded(sparse).workspace.unwrap().is_dir());
    assert_eq!(world.warm_trees().len(), 0);
}

#[test]
fn prune_takes_warm_trees_that_no_task_comes_for() {
    let (world, repo) = warm(1);
    world.does(&repo, "true");
    let half = world.warm_trees()[0].with_file_name(".1-2-3.tmp");
    fs::create_dir(&half).unwrap();
    world.run(&["prune", "--apply"]).ok();
    assert_eq!(world.warm_trees().len(), 2, "nothing is old");
    let old = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
    fs::File::open(&half).unwrap().set_modified(old).unwrap();
    world.run(&["prune", "--apply"]).ok();
    assert!(!half.exists() && world.warm_trees().len() == 1);
    let told = world.run(&["prune", "--older-than", "0s", "--apply"]).ok().text();
    assert!(told.contains("warm tree"), "{told}");
    assert_eq!(world.warm_trees().len(), 0);
    // One that the owner no longer asks for is left over.
    world.does(&repo, "true");
    world.configure("");
    let told = world.run(&["check", "--repair"]).ok().text();
    assert!(told.contains("does not ask for it"), "{told}");
    assert_eq!(world.warm_trees().len(), 0);
}

#[test]
fn a_wrong_setting_is_named() {
    let world = World::new();
    for (config, words) in [
        ("[warm_trees]\n'repos/r' = 1\n", "absolute"),
        ("[warm_trees]\n'/r' = 1000\n", "at most 100"),
        ("[warm_trees]\n'/r' = -1\n", "warm_trees"),
    ] {
        world.configure(config);
        world.run(&["status"]).exits(8).says(&[words]);
    }
}

#[test]
fn a_tree_is_only_given_on_after_an_empty_and_complete_census() {
    for (from, to) in [
        (r#""survivors": *\[\]"#, r#""survivors":[{"pid":4999999,"start":1,"command":"x"}]"#),
        (r#""method": *"[a-z]*""#, r#""method":"scan""#),
    ] {
        let (world, repo) = warm(1);
        // As if the keeper had found it so: nothing looks at the record between teardown and end.
        let exit = "$WORKSPOOL_HOME/tasks/$WORKSPOOL_TASK/attempts/1/steps/work.1/exit.json";
        let teardown = format!("teardown = ['''sed -i 's/{from}/{to}/' {exit}''']\n");
        repo.write(".workspool.toml", teardown).commit("teardown");
        let id = world.does(&repo, "true");
        let exit = world.dir(id).attempt(1).step("work.1").join("exit.json");
        let text = fs::read_to_string(exit).unwrap();
        assert!(text.contains("4999999") || text.contains("scan"), "{text}");
        assert!(world.succeeded(id).workspace.unwrap().is_dir());
        assert_eq!(world.warm_trees().len(), 0);
    }
}
