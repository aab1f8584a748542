//! What comes out of a task: commit, diff, deliverables, artifacts, and what the worker reports.

use crate::support::{Ran, World};
use std::fs;
use workspool::model::{Class, Phase, State, TaskResult};
use workspool::spool::events;

fn paths(result: &TaskResult) -> Vec<(&str, &str)> {
    result.changed.iter().map(|c| (c.path.as_str(), c.change.as_str())).collect()
}

#[test]
fn the_patch_applies_byte_for_byte() {
    let world = World::new();
    let repo = world.repo("r");
    let binary: Vec<u8> = (0..=255).cycle().take(4000).collect();
    repo.write("crlf.txt", "one\r\ntwo\r\nthree\r\n")
        .write("picture.bin", &binary)
        .write("gone.txt", "bye\n");
    repo.write("latin.txt", b"caf\xe9\n")
        .write("no-end.txt", "no newline at the end")
        .write("run.sh", "true\n");
    repo.commit("all kinds");
    let script = "printf 'four\\r\\n' >> crlf.txt; printf '\\377\\000\\001' >> picture.bin; rm gone.txt\n\
                  printf 'th\\351\\n' >> latin.txt; printf ', still none' >> no-end.txt; chmod 755 run.sh\n\
                  mv README.md moved.md; printf ' \\t\\n\\n' > spaces.txt; ln -s moved.md link\n\
                  head -c 3000 /dev/zero > zeros.bin";
    let id = world.script(script).repo(&repo).ok();
    world.drain();
    let result = world.succeeded(id);
    let expected = [
        ("README.md", "deleted"),
        ("crlf.txt", "modified"),
        ("gone.txt", "deleted"),
        ("latin.txt", "modified"),
        ("link", "added"),
        ("moved.md", "added"),
        ("no-end.txt", "modified"),
        ("picture.bin", "modified"),
        ("run.sh", "modified"),
        ("spaces.txt", "added"),
        ("zeros.bin", "added"),
    ];
    assert_eq!(paths(&result), expected);
    assert_eq!((result.changed[1].added, result.changed[1].removed), (Some(1), Some(0)));
    assert_eq!(result.changed[7].added, None, "a binary file has no lines");
    // The file, and what the command prints with --raw, are the same bytes.
    let patch = fs::read(world.dir(id).diff()).unwrap();
    let diff = result.diff.unwrap();
    assert_eq!((diff.bytes, diff.sha256), (patch.len() as u64, events::hash(&patch)));
    assert_eq!(world.on("diff", id, &["--raw"]).ok().stdout, patch);
    // Applied to the base it gives the tree that was verified, whatever the user's settings.
    let file = world.root().join("the.patch");
    fs::write(&file, &patch).unwrap();
    repo.git(&["apply", "--index", "--whitespace=nowarn", file.to_str().unwrap()]);
    assert_eq!(repo.git(&["write-tree"]), result.tree.unwrap());
}

#[test]
fn the_patch_does_not_depend_on_the_users_settings() {
    let world = World::new();
    let repo = world.repo("r");
    let settings = [
        ("diff.noprefix", "true"),
        ("diff.mnemonicPrefix", "true"),
        ("diff.external", "false"),
        ("color.ui", "always"),
        ("core.quotePath", "true"),
        ("diff.renames", "copies"),
        ("core.pager", "false"),
        ("diff.context", "0"),
    ];
    for (key, value) in settings {
        repo.git(&["config", key, value]);
    }
    let id = world.script("echo four >> src/lib.txt; mv README.md R.md; echo x > 'ü b.txt'").repo(&repo).ok();
    world.drain();
    world.succeeded(id);
    let patch = String::from_utf8(world.on("diff", id, &[]).ok().stdout).unwrap();
    for part in [
        "diff --git a/src/lib.txt b/src/lib.txt",
        "@@ -1,3 +1,4 @@\n one\n two\n three\n+four\n",
        "deleted file mode 100644",
    ] {
        assert!(patch.contains(part), "the patch lacks {part:?}:\n{patch}");
    }
    assert!(!patch.contains('\x1b'), "{patch}");
    let stat = world.on("diff", id, &["--stat"]).ok().text();
    assert!(stat.contains("src/lib.txt") && stat.contains("+1 -0") && stat.contains("ü b.txt"), "{stat}");
    let one = world.on("diff", id, &["ü b.txt"]).ok().text();
    assert!(one.contains("+x") && !one.contains("four"), "{one}");
    let stat = world.on("diff", id, &["--stat", "src/lib.txt", "R.md"]).ok().text();
    assert_eq!(stat.lines().count(), 2, "{stat}");
    world
        .on("diff", id, &["src/lib.tx"])
        .exits(4)
        .says(&["did not change src/lib.tx", "did you mean src/lib.txt?"]);
}

#[test]
fn names_that_are_no_text_are_kept_and_shown() {
    let world = World::new();
    let repo = world.repo("r");
    let id = world.misbehave(&["bad-name", "content"]).repo(&repo).ok();
    world.drain();
    let result = world.succeeded(id);
    assert_eq!(paths(&result), [("n\\xe9e.t", "added")]);
    let listed = repo.bytes(&["ls-tree", "-r", "--name-only", "-z", &result.commit.unwrap()]);
    assert!(memchr::memmem::find(&listed, b"n\xe9e.t\0").is_some());
}

#[test]
fn the_workers_own_commits_are_kept_and_leftovers_follow() {
    let world = World::new();
    let repo = world.repo("r");
    let head = repo.head();
    let verbs = [
        "append",
        "src/lib.txt",
        "four",
        "commit",
        "first of mine",
        "write",
        "b.txt",
        "b",
        "commit",
        "second of mine",
    ];
    let clean = world.misbehave(&verbs).repo(&repo).ok();
    let left = world
        .misbehave(&[&verbs[..], &["write", "left.txt", "over"]].concat())
        .repo(&repo)
        .with("title", "the task's name")
        .ok();
    world.drain();
    let log = |id| {
        let commit = world.succeeded(id).commit.unwrap();
        repo.git(&["log", "--format=%s", &format!("{head}..{commit}")])
    };
    assert_eq!(log(clean), "second of mine\nfirst of mine");
    assert_eq!(log(left), "the task's name\nsecond of mine\nfirst of mine");
    let changed = world.result(left);
    assert_eq!(paths(&changed), [("b.txt", "added"), ("left.txt", "added"), ("src/lib.txt", "modified")]);
}

#[test]
fn a_task_that_changes_nothing_makes_no_commit() {
    let world = World::new();
    let repo = world.repo("r");
    let id = world.script("echo nothing to do").repo(&repo).verify("true").ok();
    world.drain();
    let result = world.succeeded(id);
    assert_eq!((result.commit, result.changed.len()), (None, 0));
    assert_eq!(repo.rev(&format!("workspool/{id}")), repo.head());
    assert_eq!(result.diff.unwrap().bytes, 0);
    assert!(result.message.contains("0 files changed"), "{}", result.message);
}

#[test]
fn the_report_at_the_end_of_the_output_is_taken_over() {
    let world = World::new();
    let repo = world.repo("r");
    let script = r#"echo x > x.txt
cat <<'END'
I have done it.
```workspool-report
{"summary": "Did the thing.", "commit_message": "Do the thing\n\nSince it was asked for.", "tests_run": ["cargo test"], "open_questions": ["And the other thing?"], "warnings": ["It is slow."]}
```
END"#;
    let id = world.script(script).repo(&repo).ok();
    world.drain();
    let result = world.succeeded(id);
    assert_eq!(result.summary.as_deref(), Some("Did the thing."));
    assert_eq!(result.tests_claimed, ["cargo test"]);
    assert_eq!(result.open_questions, ["And the other thing?"]);
    assert!(result.warnings.contains(&"It is slow.".to_owned()));
    let message = repo.git(&["log", "-1", "--format=%B", &result.commit.unwrap()]);
    assert_eq!(
        message,
        format!("Do the thing\n\nSince it was asked for.\n\nWorkspool-Task: {id}\nWorkspool-Worker: shell")
    );
}

#[test]
fn a_broken_report_is_a_warning_and_a_line_can_name_the_message() {
    let world = World::new();
    let repo = world.repo("r");
    let broken = world
        .script("echo x > x; printf '%s\\n' '```workspool-report' '{\"summary\": ' '```'")
        .repo(&repo)
        .ok();
    let line = world.script("echo x > x; echo 'suggested_commit_message: Just this line'").repo(&repo).ok();
    world.drain();
    let broken = world.succeeded(broken);
    assert!(broken.warnings.iter().any(|w| w.contains("no valid JSON")), "{:?}", broken.warnings);
    let line = world.succeeded(line).commit.unwrap();
    assert_eq!(repo.git(&["log", "-1", "--format=%s", &line]), "Just this line");
}

#[test]
fn deliverables_are_looked_for_and_kept() {
    let world = World::new();
    let repo = world.repo("r");
    let id = world
        .script("mkdir out; echo '# Report' > out/report.md")
        .repo(&repo)
        .with("deliverable", "out/report.md")
        .with("deliverable", "out/missing.md")
        .ok();
    let task = r#"{"objective": "true", "worker": "shell", "deliverables": ["must.md"], "deliverables_required": true}"#;
    let required = world.submit_file("-").input(task).ok();
    world.drain();
    let result = world.succeeded(id);
    let found: Vec<_> = result.deliverables.iter().map(|d| (d.path.as_str(), d.found, d.bytes)).collect();
    assert_eq!(found, [("out/report.md", true, Some(9)), ("out/missing.md", false, None)]);
    assert!(result.warnings.contains(&"missing deliverables: out/missing.md".to_owned()));
    assert_eq!(world.on("artifacts", id, &["out/report.md"]).ok().text(), "# Report\n");
    let required = world.result(required);
    assert_eq!(
        (required.state, required.class, required.phase),
        (State::Failed, Some(Class::DeliverablesMissing), Some(Phase::Finishing))
    );
    world.on("wait", required.id, &[]).exits(28);
}

#[test]
fn a_deliverable_is_never_read_from_outside() {
    let world = World::new();
    let repo = world.repo("r");
    fs::write(world.root().join("secret.txt"), "not yours").unwrap();
    let target = world.root().join("secret.txt");
    let id = world
        .script(&format!("ln -s {} out.txt; ln -s {} dir", target.display(), world.root().display()))
        .repo(&repo)
        .with("permission", "full")
        .with("deliverable", "out.txt")
        .with("deliverable", "dir/secret.txt")
        .with("artifact", "**/*.txt")
        .ok();
    world.drain();
    let result = world.succeeded(id);
    assert!(result.deliverables.iter().all(|d| !d.found), "{:?}", result.deliverables);
    assert_eq!(world.find_in_spool("not yours", |_| false), Vec::<std::path::PathBuf>::new());
}

#[test]
fn artifacts_are_byte_exact_copies_even_of_ignored_files() {
    let world = World::new();
    let repo = world.repo("r");
    let id = world
        .script(
            "mkdir -p target; printf 'a\\000b\\377' > target/app.bin; echo log > build.log; echo x > x.txt",
        )
        .repo(&repo)
        .with("artifact", "target/*.bin")
        .with("artifact", "*.log")
        .ok();
    world.drain();
    let result = world.succeeded(id);
    let kept: Vec<_> =
        result.artifacts.iter().map(|a| (a.path.as_str(), a.mime.as_str(), a.bytes, a.kept)).collect();
    assert_eq!(
        kept,
        [("build.log", "text/plain", 4, true), ("target/app.bin", "application/octet-stream", 4, true)]
    );
    assert_eq!(world.on("artifacts", id, &["target/app.bin"]).ok().stdout, b"a\0b\xff");
    assert_eq!(result.artifacts[1].sha256, events::hash(b"a\0b\xff"));
    world
        .on("artifacts", id, &["target/ap.bin"])
        .exits(4)
        .says(&["has no artifact target/ap.bin", "did you mean target/app.bin?"]);
    world.on("artifacts", id, &["../result.json"]).exits(4);
}

#[test]
fn artifacts_over_the_cap_are_named_and_not_kept() {
    let world = World::configured("[defaults]\nartifact_cap = 1000");
    let id = world.script("head -c 600 /dev/zero > a; head -c 600 /dev/zero > b; echo small > c").ok();
    world.drain();
    let result = world.succeeded(id);
    let kept: Vec<_> = result.artifacts.iter().map(|a| (a.path.as_str(), a.kept)).collect();
    assert_eq!(kept, [("a", true), ("b", false), ("c", true)]);
    world.on("artifacts", id, &["b"]).exits(4).says(&["over the cap"]);
}

#[test]
fn a_task_without_a_repository_leaves_its_files_as_artifacts() {
    let world = World::new();
    let id = world.script("mkdir sub; echo a > sub/a.txt; pwd").ok();
    world.drain();
    let result = world.succeeded(id);
    assert_eq!(paths(&result), [("sub/a.txt", "added")]);
    assert_eq!((result.commit, result.branch, result.diff), (None, None, None));
    assert_eq!(world.on("artifacts", id, &["sub/a.txt"]).ok().text(), "a\n");
    world.on("diff", id, &[]).exits(4).says(&["left no patch"]);
}

#[test]
fn results_of_needed_tasks_reach_the_prompt() {
    let world = World::new();
    let command = world.misbehave_command(&["stdin", "seen.md"]);
    world.run(&["workers", "link", "reader", "--command", &command]).ok();
    let first = world
        .script("echo '```workspool-report'; echo '{\"summary\": \"The answer is 42.\"}'")
        .with("title", "find the answer")
        .ok();
    let second = world.submit("use the answer").worker("reader").needs(first).ok();
    world.drain();
    world.succeeded(second);
    let seen = world.on("artifacts", second, &["seen.md"]).ok().text();
    assert!(seen.contains("The answer is 42.") && seen.contains("find the answer"), "{seen}");
}

#[test]
fn a_result_says_where_the_time_went_and_that_nothing_is_left() {
    let world = World::new();
    let repo = world.repo("r");
    let id = world.script("sleep 0.2; exit 0").repo(&repo).verify("true").ok();
    world.drain();
    let result = world.succeeded(id);
    assert!(result.durations.working_ms.unwrap() >= 200, "{:?}", result.durations);
    assert!(result.durations.verifying_ms.is_some() && result.durations.preparing_ms.is_some());
    assert_eq!((result.exit_code, result.signal), (Some(0), None));
    assert!(result.census.is_some());
    assert_eq!((result.survivors, result.left_over), (vec![], vec![]));
    assert!(result.usage.is_empty(), "what was not reported is absent");
    assert_eq!(result.worker.name.as_str(), "shell");
}

#[test]
fn a_patch_that_holds_a_secret_is_masked_where_it_is_shown() {
    let world = World::new();
    let repo = world.repo("r");
    let secret = ["ghp_", "Q7wE9rT2yU4iO6pA8sD1fG3hJ5kL0zXcVbNm"].concat();
    let id = world.script("cat > config.txt").repo(&repo);
    drop(id);
    let id = world.script(&format!("echo 'token = {secret}' > config.txt")).repo(&repo).ok();
    world.drain();
    world.succeeded(id);
    let shown = world.on("diff", id, &[]).ok().text();
    assert!(!shown.contains(&secret) && shown.contains("token = "), "{shown}");
    let exact: Ran = world.on("diff", id, &["--raw"]).ok();
    assert!(exact.text().contains(&secret), "the patch itself stays exact");
}
