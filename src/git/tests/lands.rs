//! Landing in a checkout where somebody works: whole or not at all, and nothing of theirs lost.

use super::super::land::tests_only::at_points;
use super::super::*;
use super::support::*;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

const AT: i64 = 1_700_000_000;

fn paths(names: &[&str]) -> Vec<PathBuf> {
    names.iter().map(PathBuf::from).collect()
}

fn commit(message: &str) -> How {
    How::Commit { message: message.into() }
}

/// A task that changed `a.txt` and added `dir/new`.
fn simple(f: &Fixture) -> (Task, Oid) {
    let task = f.task("t1");
    task.write("a.txt", "one\ntwo\nTHREE\n");
    task.write("dir/new", "new\n");
    let commit = task.finish();
    (task, commit)
}

fn land(f: &Fixture, task: &Task, commit: &Oid, how: How) -> Result<Landed, Refusal> {
    let plan = Landing::plan(&f.repo(), &task.base, commit, how, None)?;
    let record = f.path("intent.json");
    let landed = Landing::apply(&plan, "t1", &record, AT);
    assert!(!record.exists());
    assert_clean(f);
    landed
}

fn assert_clean(f: &Fixture) {
    for entry in fs::read_dir(f.top().join(".git")).unwrap() {
        let name = entry.unwrap().file_name().to_string_lossy().into_owned();
        assert!(!name.contains("workspool-land") && name != "index.lock", "{name} was left");
    }
}

/// Refuses, and leaves the checkout as it was to the byte.
fn refused(f: &Fixture, task: &Task, commit_id: &Oid) -> Refusal {
    let before = fingerprint(&f.top());
    let refusal = land(f, task, commit_id, commit("work")).unwrap_err();
    assert_eq!(fingerprint(&f.top()), before, "{refusal}");
    refusal
}

#[test]
fn applying_stages_the_files_and_leaves_head() {
    let f = Fixture::new();
    let (task, id) = simple(&f);
    let head = f.git(["rev-parse", "HEAD"]);
    let landed = land(&f, &task, &id, How::Apply).unwrap();
    assert!(landed.gated);
    assert_eq!((landed.paths, landed.commit, landed.branch), (2, None, None));
    assert_eq!(f.git(["status", "--porcelain"]), "M  a.txt\nA  dir/new\n");
    assert_eq!(f.git(["rev-parse", "HEAD"]), head);
    assert_eq!(fs::read_to_string(f.top().join("a.txt")).unwrap(), "one\ntwo\nTHREE\n");
}

#[test]
fn committing_moves_the_branch_and_keeps_the_users_edits_elsewhere() {
    let f = Fixture::new();
    f.write("staged", "1\n");
    f.write("unstaged", "1\n");
    f.commit("more");
    let (task, id) = simple(&f);
    f.write("staged", "2\n");
    f.git(["add", "staged"]);
    f.write("unstaged", "2\n");
    f.write("untracked", "x");
    let landed = land(&f, &task, &id, commit("the message\n\nbody")).unwrap();
    let made = landed.commit.unwrap();
    assert_eq!(f.git(["rev-parse", "main"]).trim(), made.as_str());
    assert_eq!(landed.branch.as_deref(), Some("refs/heads/main"));
    assert_eq!(f.git(["log", "-1", "--format=%an %s"]).trim(), "Ada the message");
    assert_eq!(f.git(["rev-parse", "HEAD^{tree}"]).trim(), landed.tree.as_str());
    assert_eq!(f.git(["status", "--porcelain"]), "M  staged\n M unstaged\n?? untracked\n");
}

#[test]
fn a_head_that_moved_on_is_merged_and_said_not_to_be_gated() {
    let f = Fixture::new();
    let (task, id) = simple(&f);
    f.write("other", "x");
    f.write("a.txt", "ONE\ntwo\nthree\n");
    let newer = f.commit("the user's");
    let plan = Landing::plan(&f.repo(), &task.base, &id, How::Apply, None).unwrap();
    assert!(!plan.is_gated());
    // What would land can be verified first.
    let merged = task.repo.commit(plan.tree(), &[newer], "merged", &Identity::ours(), AT).unwrap();
    assert_eq!(f.git(["cat-file", "-p", &format!("{merged}:other")]), "x");
    let landed = land(&f, &task, &id, commit("work")).unwrap();
    assert!(!landed.gated);
    assert_eq!(fs::read_to_string(f.top().join("a.txt")).unwrap(), "ONE\ntwo\nTHREE\n");
    assert_eq!(fs::read_to_string(f.top().join("other")).unwrap(), "x");
    assert_eq!(f.git(["status", "--porcelain"]), "");
}

#[test]
fn a_branch_touches_nothing_else_and_never_replaces_one() {
    let f = Fixture::new();
    let (task, id) = simple(&f);
    f.write("a.txt", "an edit at the same path");
    let index = fs::read(f.top().join(".git/index")).unwrap();
    let how = How::Branch { name: "feature/x".into() };
    let landed = land(&f, &task, &id, how.clone()).unwrap();
    assert_eq!(f.git(["rev-parse", "feature/x"]).trim(), id.as_str());
    assert_eq!(landed.branch.as_deref(), Some("refs/heads/feature/x"));
    assert_eq!(fs::read(f.top().join(".git/index")).unwrap(), index);
    assert!(matches!(land(&f, &task, &id, how), Err(Refusal::BranchExists(_))));
    let odd = How::Branch { name: "--force".into() };
    assert!(land(&f, &task, &id, odd).is_err());
}

#[test]
fn a_conflict_is_named_file_by_file() {
    let f = Fixture::new();
    let (task, id) = simple(&f);
    f.write("a.txt", "one\ntwo\nother\n");
    f.commit("the user's");
    let refusal = refused(&f, &task, &id);
    assert!(matches!(&refusal, Refusal::Conflict(p) if *p == paths(&["a.txt"])), "{refusal}");
}

#[test]
fn local_edits_at_the_same_path_refuse_staged_unstaged_deleted_or_hidden() {
    type Edit = fn(&Fixture);
    let edits: [Edit; 6] = [
        |f| f.write("a.txt", "mine"),
        |f| {
            f.write("a.txt", "mine");
            f.git(["add", "a.txt"]);
        },
        |f| fs::remove_file(f.top().join("a.txt")).unwrap(),
        |f| {
            f.git(["update-index", "--assume-unchanged", "a.txt"]);
            f.write("a.txt", "hidden from git");
        },
        |f| {
            f.git(["update-index", "--skip-worktree", "a.txt"]);
            f.write("a.txt", "hidden from git");
        },
        |f| {
            f.git(["rm", "-q", "--cached", "a.txt"]);
        },
    ];
    for (at, edit) in edits.iter().enumerate() {
        let f = Fixture::new();
        let (task, id) = simple(&f);
        edit(&f);
        let refusal = refused(&f, &task, &id);
        assert!(matches!(&refusal, Refusal::LocalChanges(p) if *p == paths(&["a.txt"])), "{at}: {refusal}");
    }
}

#[test]
fn a_file_staged_where_a_new_folder_or_file_would_be_refuses() {
    let f = Fixture::new();
    let (task, id) = simple(&f);
    f.write("dir", "a file where the folder would be");
    f.git(["add", "dir"]);
    fs::remove_file(f.top().join("dir")).unwrap();
    let refusal = refused(&f, &task, &id);
    assert_eq!(refusal.paths(), paths(&["dir"]), "{refusal}");
}

#[test]
fn untracked_and_ignored_files_in_the_way_refuse() {
    let f = Fixture::new();
    let task = f.task("t1");
    task.write("dir/new", "new\n");
    task.write("forced.log", "tracked by the change\n");
    git(&task.tree.path, ["add", "-f", "forced.log"]);
    git(&task.tree.path, ["-c", "user.name=w", "-c", "user.email=w", "commit", "-q", "-m", "w"]);
    let head = task.view.worker_head().unwrap().unwrap();
    let tree = task.view.snapshot(Some(&head)).unwrap().tree;
    let id = task.view.commit(&tree, &[head], "work", &Identity::ours(), AT).unwrap();
    f.write("dir/new", "the user's");
    f.write("forced.log", "the user's, ignored");
    let refusal = refused(&f, &task, &id);
    let expected = paths(&["dir/new", "forced.log"]);
    assert!(matches!(&refusal, Refusal::InTheWay(p) if *p == expected), "{refusal}");
}

#[test]
fn a_folder_with_foreign_files_does_not_give_way_to_a_file() {
    let f = Fixture::new();
    let task = f.task("t1");
    fs::remove_dir_all(task.tree.path.join("src")).unwrap();
    task.write("src", "now a file");
    let id = task.finish();
    f.write("src/deep/notes.log", "ignored, the user's");
    let refusal = refused(&f, &task, &id);
    assert!(matches!(&refusal, Refusal::InTheWay(p) if *p == paths(&["src/deep/notes.log"])), "{refusal}");
    fs::remove_file(f.top().join("src/deep/notes.log")).unwrap();
    land(&f, &task, &id, How::Apply).unwrap();
    assert_eq!(fs::read_to_string(f.top().join("src")).unwrap(), "now a file");
}

#[test]
fn a_link_on_the_way_is_not_followed() {
    let f = Fixture::new();
    let (task, id) = simple(&f);
    let outside = f.path("outside");
    fs::create_dir(&outside).unwrap();
    symlink(&outside, f.top().join("dir")).unwrap();
    let refusal = refused(&f, &task, &id);
    assert!(matches!(&refusal, Refusal::SymlinkParent(p) if *p == paths(&["dir"])), "{refusal}");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
}

#[test]
fn a_repository_of_the_users_on_the_way_is_not_written_into() {
    let f = Fixture::new();
    let (task, id) = simple(&f);
    f.git(["init", "-q", "dir"]);
    let refusal = refused(&f, &task, &id);
    assert!(matches!(&refusal, Refusal::InTheWay(p) if *p == paths(&["dir"])), "{refusal}");
}

#[test]
fn the_middle_of_a_merge_and_its_like_refuse() {
    for (sign, folder) in [
        ("MERGE_HEAD", false),
        ("rebase-merge", true),
        ("rebase-apply", true),
        ("CHERRY_PICK_HEAD", false),
        ("REVERT_HEAD", false),
        ("BISECT_LOG", false),
    ] {
        let f = Fixture::new();
        let (task, id) = simple(&f);
        let sign = f.top().join(".git").join(sign);
        if folder {
            fs::create_dir(&sign).unwrap()
        } else {
            fs::write(&sign, "").unwrap()
        }
        assert!(matches!(refused(&f, &task, &id), Refusal::InProgress(_)), "{}", sign.display());
    }
}

#[test]
fn submodule_changes_and_tampered_configuration_refuse() {
    let f = Fixture::new();
    let task = f.task("t1");
    let guard = Guard::take(&task.repo, &task.tree.branch).unwrap();
    let entry = format!("160000 {}\tsub\0", task.base);
    let git = task.view.git();
    git.writes("update-index").args(["--add", "-z", "--index-info"]).stdin(entry).run().unwrap();
    let tree = git.writes("write-tree").oid().unwrap();
    let id = task.view.commit(&tree, std::slice::from_ref(&task.base), "sub", &Identity::ours(), AT).unwrap();
    let refusal = refused(&f, &task, &id);
    assert!(matches!(&refusal, Refusal::Submodule(p) if *p == paths(&["sub"])), "{refusal}");
    f.git(["config", "core.fsmonitor", "evil"]);
    let refusal = Landing::plan(&f.repo(), &task.base, &id, How::Apply, Some(&guard)).unwrap_err();
    assert!(matches!(&refusal, Refusal::Tampered(t) if t.len() == 1), "{refusal}");
}

#[test]
fn a_bare_repository_takes_only_a_branch() {
    let f = Fixture::new();
    let source = f.top();
    git(&f.path(""), ["clone", "-q", "--bare", source.to_str().unwrap(), "bare.git"]);
    let task = f.task_of(Repo::open(&f.path("bare.git")).unwrap(), "t1");
    task.write("new", "x");
    let id = task.finish();
    let plan = |how| Landing::plan(&task.repo, &task.base, &id, how, None);
    assert!(matches!(plan(How::Apply).unwrap_err(), Refusal::NoCheckout));
    let plan = plan(How::Branch { name: "x".into() }).unwrap();
    Landing::apply(&plan, "t1", &f.path("intent.json"), AT).unwrap();
}

#[test]
fn line_ends_and_filters_of_the_user_shape_the_files() {
    let f = Fixture::new();
    f.git(["config", "filter.rot.clean", "tr a-m n-z"]);
    f.git(["config", "filter.rot.smudge", "tr n-z a-m"]);
    let task = f.task("t1");
    task.write(".gitattributes", "*.txt eol=crlf\n*.rot filter=rot\n");
    task.write("win.txt", "a\r\nb\r\n");
    task.write("x.rot", "abc\n");
    let id = task.finish();
    assert_eq!(f.git(["cat-file", "-p", &format!("{id}:x.rot")]), "nop\n");
    land(&f, &task, &id, commit("work")).unwrap();
    assert_eq!(fs::read(f.top().join("win.txt")).unwrap(), b"a\r\nb\r\n");
    assert_eq!(fs::read(f.top().join("x.rot")).unwrap(), b"abc\n");
    assert_eq!(f.git(["status", "--porcelain", "win.txt", "x.rot"]), "");
}

#[test]
fn a_sparse_checkout_stays_sparse() {
    let f = Fixture::new();
    f.write("far/away.txt", "x\n");
    f.commit("more");
    let task = f.task("t1");
    task.write("far/away.txt", "y\n");
    task.write("src/lib.rs", "changed\n");
    let id = task.finish();
    f.git(["sparse-checkout", "set", "--cone", "src"]);
    land(&f, &task, &id, commit("work")).unwrap();
    assert!(!f.top().join("far").exists());
    assert_eq!(f.git(["status", "--porcelain"]), "");
    assert_eq!(f.git(["show", "HEAD:far/away.txt"]), "y\n");
}

#[test]
fn a_linked_worktree_and_a_detached_head_can_be_landed_in() {
    let f = Fixture::new();
    let linked = f.path("linked");
    f.git(["worktree", "add", "-q", "--detach", linked.to_str().unwrap()]);
    let main = fingerprint(&f.top());
    let repo = Repo::open(&linked).unwrap();
    let task = f.task_of(repo.clone(), "t1");
    task.write("new", "x");
    let id = task.finish();
    let plan = Landing::plan(&repo, &task.base, &id, commit("work"), None).unwrap();
    let landed = Landing::apply(&plan, "t1", &f.path("intent.json"), AT).unwrap();
    assert_eq!(git(&linked, ["rev-parse", "HEAD"]).trim(), landed.commit.unwrap().as_str());
    assert_eq!(git(&linked, ["status", "--porcelain"]), "");
    assert_eq!(landed.branch, None);
    assert_eq!(fingerprint(&f.top()), main, "the other checkout is not touched");
}

#[test]
fn a_thousand_files_land_with_as_many_git_processes_as_one() {
    let cost = |files: usize| {
        let f = Fixture::new();
        let task = f.task("t1");
        for at in 0..files {
            task.write(&format!("d{}/f{at}", at % 10), "x\n");
        }
        let id = task.finish();
        let before = runner::calls_of_this_thread();
        land(&f, &task, &id, commit("work")).unwrap();
        let spent = runner::calls_of_this_thread() - before;
        assert_eq!(f.git(["status", "--porcelain"]), "");
        spent
    };
    assert_eq!(cost(1), cost(1000));
}

#[test]
fn a_plan_for_a_checkout_that_changed_since_is_refused() {
    type Edit = fn(&Fixture);
    let edits: [Edit; 3] = [
        |f| drop(f.commit("the user's")),
        |f| f.write("a.txt", "edited after the plan"),
        |f| f.write("dir/new", "made after the plan"),
    ];
    for edit in edits {
        let f = Fixture::new();
        let (task, id) = simple(&f);
        let plan = Landing::plan(&f.repo(), &task.base, &id, commit("work"), None).unwrap();
        edit(&f);
        let before = fingerprint(&f.top());
        let refusal = Landing::apply(&plan, "t1", &f.path("intent.json"), AT).unwrap_err();
        assert!(matches!(refusal, Refusal::Changed(_)), "{refusal}");
        assert_eq!(fingerprint(&f.top()), before);
        assert_clean(&f);
    }
}

#[test]
fn the_lock_of_another_git_refuses_and_is_not_deleted() {
    let f = Fixture::new();
    let (task, id) = simple(&f);
    let plan = Landing::plan(&f.repo(), &task.base, &id, How::Apply, None).unwrap();
    let lock = f.top().join(".git/index.lock");
    fs::write(&lock, "").unwrap();
    let refusal = Landing::apply(&plan, "t1", &f.path("intent.json"), AT).unwrap_err();
    assert!(matches!(refusal, Refusal::Locked(_)), "{refusal}");
    assert!(lock.exists() && !f.path("intent.json").exists());
}

#[test]
fn a_branch_that_moves_at_the_last_moment_rolls_everything_back() {
    let f = Fixture::new();
    f.write("elsewhere", "staged by the user");
    f.git(["add", "elsewhere"]);
    let (task, id) = simple(&f);
    let plan = Landing::plan(&f.repo(), &task.base, &id, commit("work"), None).unwrap();
    let tree = f.git(["write-tree"]);
    let other = f.git(["commit-tree", "-p", "HEAD", "-m", "other", tree.trim()]);
    let top = f.top();
    at_points(Some(Box::new(move |name| {
        if name == "land-ref" {
            git(&top, ["update-ref", "refs/heads/main", other.trim()]);
        }
    })));
    let refusal = Landing::apply(&plan, "t1", &f.path("intent.json"), AT).unwrap_err();
    at_points(None);
    assert!(matches!(refusal, Refusal::Changed(_)), "{refusal}");
    assert_eq!(fs::read_to_string(f.top().join("a.txt")).unwrap(), "one\ntwo\nthree\n");
    assert!(!f.top().join("dir").exists());
    assert_eq!(f.git(["write-tree"]), tree, "the index is the user's again");
    assert!(!f.path("intent.json").exists());
    assert_clean(&f);
}

#[test]
fn an_edit_in_the_middle_of_the_moves_is_kept_and_the_rest_goes_back() {
    let f = Fixture::new();
    f.write("z.txt", "last\n");
    f.commit("more");
    let task = f.task("t1");
    task.write("a.txt", "changed\n");
    task.write("z.txt", "changed\n");
    let id = task.finish();
    let plan = Landing::plan(&f.repo(), &task.base, &id, commit("work"), None).unwrap();
    let top = f.top();
    let mut moves = 0;
    at_points(Some(Box::new(move |name| {
        moves += u32::from(name == "land-move");
        if moves == 3 {
            // The look was before this, the move comes after.
            fs::write(top.join("z.txt"), "the user's, just now").unwrap();
        }
    })));
    let refusal = Landing::apply(&plan, "t1", &f.path("intent.json"), AT).unwrap_err();
    at_points(None);
    assert!(matches!(refusal, Refusal::Changed(_)), "{refusal}");
    assert_eq!(fs::read_to_string(f.top().join("a.txt")).unwrap(), "one\ntwo\nthree\n");
    assert_eq!(fs::read_to_string(f.top().join("z.txt")).unwrap(), "the user's, just now");
    assert_clean(&f);
}

/// A change of every kind, in a checkout with edits of every kind.
fn everything() -> (Fixture, Task, Oid) {
    let f = Fixture::new();
    f.write("folder/x", "x\n");
    f.write("folder/y", "y\n");
    f.write("file", "f\n");
    f.write("gone/deep/z", "z\n");
    f.write("tool", "#!/bin/sh\n");
    f.write("staged", "1\n");
    f.write("unstaged", "1\n");
    link(&f.top(), "pointer", "a.txt");
    f.commit("more");
    let task = f.task("t1");
    let tree = &task.tree.path;
    task.write("a.txt", "changed\n");
    fs::remove_dir_all(tree.join("folder")).unwrap();
    task.write("folder", "now a file\n");
    fs::remove_file(tree.join("file")).unwrap();
    task.write("file/now/a/folder", "x\n");
    fs::remove_dir_all(tree.join("gone")).unwrap();
    fs::set_permissions(tree.join("tool"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::remove_file(tree.join("pointer")).unwrap();
    symlink("src", tree.join("pointer")).unwrap();
    task.write("new/one", "1\n");
    let id = task.finish();
    f.write("staged", "2\n");
    f.git(["add", "staged"]);
    f.write("unstaged", "2\n");
    f.write("untracked", "x");
    (f, task, id)
}

fn assert_landed(f: &Fixture, at: u32) {
    let read = |name: &str| fs::read_to_string(f.top().join(name)).unwrap();
    assert_eq!(read("a.txt"), "changed\n", "{at}");
    assert_eq!(read("folder"), "now a file\n");
    assert_eq!(read("file/now/a/folder"), "x\n");
    assert!(!f.top().join("gone").exists());
    assert_eq!(fs::read_link(f.top().join("pointer")).unwrap(), Path::new("src"));
    assert_eq!(f.git(["status", "--porcelain"]), "M  staged\n M unstaged\n?? untracked\n", "{at}");
    assert_eq!(f.git(["log", "--format=%s"]).lines().next(), Some("work"));
}

#[test]
fn death_at_any_point_is_recovered_to_all_old_or_all_new() {
    let mut undone = 0;
    let mut landed = 0;
    let (template, task, id) = everything();
    for at in 0.. {
        let f = template.copied();
        let before = fingerprint(&f.top());
        let plan = Landing::plan(&f.repo(), &task.base, &id, commit("work"), None).unwrap();
        let record = f.path("intent.json");
        let mut left = at;
        at_points(Some(Box::new(move |name| {
            if left == 0 {
                std::panic::panic_any(format!("died at {name}"));
            }
            left -= 1;
        })));
        let ended = catch_unwind(AssertUnwindSafe(|| Landing::apply(&plan, "t1", &record, AT)));
        at_points(None);
        if let Ok(done) = ended {
            done.unwrap();
            assert_landed(&f, at);
            assert!(at > 20, "only {at} points");
            break;
        }
        // A second death, in the recovery, at the same distance or where it has that many points.
        let mut left = at / 3;
        at_points(Some(Box::new(move |name| {
            if left == 0 {
                std::panic::panic_any(format!("died again at {name}"));
            }
            left -= 1;
        })));
        let _ = catch_unwind(AssertUnwindSafe(|| Landing::recover(&record)));
        at_points(None);
        match Landing::recover(&record).unwrap() {
            Recovered::Landed(_) => {
                landed += 1;
                assert_landed(&f, at);
            }
            Recovered::Nothing if f.git(["log", "-1", "--format=%s"]).trim() == "work" => {
                assert_landed(&f, at);
            }
            Recovered::Undone | Recovered::Nothing => {
                undone += 1;
                assert_eq!(fingerprint(&f.top()), before, "{at}");
            }
        }
        assert!(!record.exists());
        assert_clean(&f);
    }
    assert!(undone > 1 && landed > 10, "{undone} undone, {landed} landed");
}

#[test]
fn a_recovery_after_somebody_removed_our_lock_keeps_what_they_staged() {
    let (f, task, id) = everything();
    let plan = Landing::plan(&f.repo(), &task.base, &id, commit("work"), None).unwrap();
    let record = f.path("intent.json");
    at_points(Some(Box::new(|name| {
        if name == "land-index" {
            std::panic::panic_any("died");
        }
    })));
    assert!(catch_unwind(AssertUnwindSafe(|| Landing::apply(&plan, "t1", &record, AT))).is_err());
    at_points(None);
    assert!(matches!(Landing::apply(&plan, "t1", &record, AT), Err(Refusal::Unfinished(_))));
    fs::remove_file(f.top().join(".git/index.lock")).unwrap();
    f.git(["add", "unstaged"]);
    assert!(matches!(Landing::recover(&record).unwrap(), Recovered::Landed(_)));
    assert_eq!(f.git(["status", "--porcelain"]), "M  staged\nM  unstaged\n?? untracked\n");
    assert_eq!(Landing::recover(&record).unwrap(), Recovered::Nothing);
}

#[test]
fn a_checkout_on_another_file_system_than_its_git_dir_can_be_landed_in() {
    let Ok(other) = tempfile::tempdir_in("/dev/shm") else { return };
    let f = Fixture::empty_in(tempfile::tempdir().unwrap());
    f.write("a.txt", "x");
    f.commit("first");
    let linked = other.path().canonicalize().unwrap().join("linked");
    f.git(["worktree", "add", "-q", "-b", "elsewhere", linked.to_str().unwrap()]);
    let repo = Repo::open(&linked).unwrap();
    let task = f.task_of(repo.clone(), "t1");
    task.write("a.txt", "changed\n");
    task.write("dir/new", "x");
    let id = task.finish();
    let plan = Landing::plan(&repo, &task.base, &id, commit("work"), None).unwrap();
    Landing::apply(&plan, "t1", &f.path("intent.json"), AT).unwrap();
    assert_eq!(git(&linked, ["status", "--porcelain"]), "");
    assert_eq!(fs::read_to_string(linked.join("a.txt")).unwrap(), "changed\n");
    assert!(
        fs::read_dir(&linked).unwrap().all(|e| !e.unwrap().file_name().to_string_lossy().contains("land"))
    );
}

#[test]
fn landing_what_head_has_already_does_nothing() {
    let f = Fixture::new();
    let (task, id) = simple(&f);
    land(&f, &task, &id, commit("work")).unwrap();
    let before = fingerprint(&f.top());
    let again = land(&f, &task, &id, commit("work")).unwrap();
    assert_eq!((again.paths, again.commit), (0, None));
    assert_eq!(fingerprint(&f.top()), before);
}

#[test]
fn death_while_everything_goes_back_loses_nothing() {
    let (template, task, id) = everything();
    for at in 0.. {
        let f = template.copied();
        let before = f.git(["write-tree"]);
        let other = f.git(["commit-tree", "-p", "HEAD", "-m", "other", "HEAD^{tree}"]);
        let plan = Landing::plan(&f.repo(), &task.base, &id, commit("work"), None).unwrap();
        let record = f.path("intent.json");
        let (top, mut left, mut moved) = (f.top(), at, false);
        at_points(Some(Box::new(move |name| {
            if moved && left == 0 {
                std::panic::panic_any(format!("died at {name}"));
            }
            left -= u32::from(moved);
            if name == "land-ref" && !moved {
                moved = true;
                git(&top, ["update-ref", "refs/heads/main", other.trim()]);
            }
        })));
        let ended = catch_unwind(AssertUnwindSafe(|| Landing::apply(&plan, "t1", &record, AT)));
        at_points(None);
        if ended.is_err() {
            match Landing::recover(&record) {
                Ok(Recovered::Undone | Recovered::Nothing) | Err(Refusal::Changed(_)) => {}
                other => panic!("{at}: {other:?}"),
            }
        }
        assert!(!record.exists());
        assert_clean(&f);
        assert_eq!(f.git(["write-tree"]), before, "{at}");
        assert_eq!(f.git(["status", "--porcelain"]), "M  staged\n M unstaged\n?? untracked\n", "{at}");
        if ended.is_ok() {
            assert!(at > 10, "only {at} points");
            break;
        }
    }
}
