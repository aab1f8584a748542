//! Reading a worker's tree through the view, whatever the worker did.

use super::super::*;
use super::support::*;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

#[test]
fn commands_that_a_worker_plants_do_not_run_in_ours() {
    let f = Fixture::new();
    let task = f.task("t1");
    let (program, mark) = canary(&f.path(""));
    let program = program.to_str().unwrap();
    // What the worker does, with its own git, to the configuration that it shares.
    for key in ["filter.evil.clean", "filter.evil.smudge", "filter.evil.process", "merge.evil.driver"] {
        git(&task.tree.path, ["config", key, program]);
    }
    for key in ["core.fsmonitor", "diff.evil.textconv", "diff.external", "core.pager", "core.editor"] {
        git(&task.tree.path, ["config", key, program]);
    }
    for hook in ["post-checkout", "reference-transaction", "post-index-change", "pre-commit"] {
        fs::create_dir_all(f.top().join(".git/hooks")).unwrap();
        fs::copy(program, f.top().join(".git/hooks").join(hook)).unwrap();
    }
    task.write(".gitattributes", "* filter=evil merge=evil diff=evil\n");
    fs::write(f.top().join(".git/info/attributes"), "* filter=evil merge=evil diff=evil\n").unwrap();
    task.write("a.txt", "changed\n");
    let _ = fs::remove_file(&mark);
    let commit = task.finish();
    task.view.changed(&task.base, &commit).unwrap();
    task.view.diff(&task.base, &commit, &File::create(f.path("patch")).unwrap()).unwrap();
    task.view.worker_head().unwrap();
    Salvage::take(&task.view, "t1", 1, &Limits::default(), &[], 1).unwrap();
    assert!(!mark.exists());
    let patch = fs::read_to_string(f.path("patch")).unwrap();
    assert!(patch.contains("+changed"), "{patch}");
    // With a git that is not ours they do run: the trap is set.
    let _ = try_git(&task.tree.path, ["add", "-A"]);
    assert!(mark.exists());
}

#[test]
fn a_submodule_s_own_configuration_does_not_run_in_ours() {
    let (f, sub) = (Fixture::new(), Fixture::new());
    let source = sub.top();
    f.git(["-c", "protocol.file.allow=always", "submodule", "add", "-q", source.to_str().unwrap(), "sub"]);
    f.commit("with a submodule");
    let task = f.task("t1");
    git(&task.tree.path, ["-c", "protocol.file.allow=always", "submodule", "update", "-q", "--init"]);
    let (program, mark) = canary(&f.path(""));
    let inside = task.tree.path.join("sub");
    git(&inside, ["config", "filter.evil.clean", program.to_str().unwrap()]);
    write(&inside, ".gitattributes", "* filter=evil\n");
    write(&inside, "a.txt", "touched\n");
    let snapshot = task.view.snapshot(None).unwrap();
    assert!(!mark.exists());
    assert!(task.view.changed(&task.base, &snapshot.tree).unwrap().is_empty());
    assert_eq!(snapshot.nested, [PathBuf::from("sub")]);
}

#[test]
fn the_snapshot_is_right_though_the_worker_deleted_the_git_file() {
    let f = Fixture::new();
    let task = f.task("t1");
    fs::remove_file(task.tree.path.join(".git")).unwrap();
    fs::remove_dir_all(&task.tree.git_dir).unwrap();
    task.write("new", "x");
    fs::remove_file(task.tree.path.join("a.txt")).unwrap();
    assert_eq!(task.changed(), ["a.txt", "new"]);
    let view = View::open(&f.path("views/t1")).unwrap();
    assert_eq!(view.base(), &task.base);
    assert_eq!(view.worktree(), &task.tree);
}

#[test]
fn names_modes_links_line_ends_and_binaries_go_byte_exact_through_diff_and_apply() {
    let f = Fixture::new();
    f.write("crlf.txt", "a\r\nb\r\n");
    f.write("data.bin", [0u8, 1, 2, 255]);
    f.write("gone.txt", "bye\n");
    f.write("tool.sh", "#!/bin/sh\n");
    f.commit("more");
    let task = f.task("t1");
    let tree = &task.tree.path;
    fs::write(tree.join("crlf.txt"), "a\r\nc\r\nno newline").unwrap();
    fs::write(tree.join("data.bin"), [9u8, 0, 255, 254, 10, 13]).unwrap();
    fs::remove_file(tree.join("gone.txt")).unwrap();
    fs::set_permissions(tree.join("tool.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    symlink("a.txt", tree.join("li nk")).unwrap();
    let odd = OsStr::from_bytes(b"caf\xe9\n\t\"x\\.txt");
    if fs::write(tree.join(odd), "odd\n").is_err() {
        return; // This file system takes only UTF-8.
    }
    let snapshot = task.view.snapshot(None).unwrap();
    let changes = task.view.changed(&task.base, &snapshot.tree).unwrap();
    let of = |name: &OsStr| changes.iter().find(|c| c.path == name).unwrap();
    assert_eq!(changes.len(), 6);
    assert_eq!((of(odd).status, of(odd).added), (ChangeStatus::Added, Some(1)));
    assert_eq!((of("data.bin".as_ref()).added, of("data.bin".as_ref()).deleted), (None, None));
    let tool = of("tool.sh".as_ref());
    assert_eq!((tool.old_mode, tool.new_mode, tool.added), (0o100_644, 0o100_755, Some(0)));
    assert_eq!(of("gone.txt".as_ref()).status, ChangeStatus::Deleted);
    let crlf = of("crlf.txt".as_ref());
    assert_eq!((crlf.added, crlf.deleted), (Some(2), Some(1)));
    let json = serde_json::to_string(&changes).unwrap();
    assert_eq!(serde_json::from_str::<Vec<Change>>(&json).unwrap(), changes);

    let patch = f.path("patch");
    task.view.diff(&task.base, &snapshot.tree, &File::create(&patch).unwrap()).unwrap();
    f.git(["apply", "--index", patch.to_str().unwrap()]);
    assert_eq!(f.git(["write-tree"]).trim(), snapshot.tree.as_str());
    assert_eq!(fs::read(f.top().join(odd)).unwrap(), b"odd\n");
}

#[test]
fn a_users_diff_settings_do_not_change_the_patch() {
    let f = Fixture::new();
    for (key, value) in [
        ("diff.noprefix", "true"),
        ("diff.mnemonicPrefix", "true"),
        ("diff.renames", "copies"),
        ("diff.algorithm", "patience"),
        ("diff.context", "0"),
        ("color.ui", "always"),
        ("core.quotePath", "true"),
        ("core.abbrev", "4"),
    ] {
        f.git(["config", key, value]);
    }
    let task = f.task("t1");
    fs::rename(task.tree.path.join("a.txt"), task.tree.path.join("b.txt")).unwrap();
    assert_eq!(task.changed(), ["a.txt", "b.txt"], "a rename is a deletion and an addition");
    task.write(".gitattributes", "*.txt -diff\n");
    let snapshot = task.view.snapshot(None).unwrap();
    let patch = f.path("patch");
    task.view.diff(&task.base, &snapshot.tree, &File::create(&patch).unwrap()).unwrap();
    let text = fs::read_to_string(&patch).unwrap();
    assert!(text.contains("--- a/a.txt\n+++ /dev/null\n@@ -1,3 +0,0 @@"), "{text}");
    assert!(text.contains("+one"), "an attribute of the worker's does not hide its lines: {text}");
}

#[test]
fn a_thousand_changed_files_cost_as_many_git_processes_as_one() {
    let cost = |files: usize| {
        let f = Fixture::new();
        let task = f.task("t1");
        for at in 0..files {
            task.write(&format!("d{}/f{at}", at % 10), "x\n");
        }
        // Other tests count into the same number, so ours are counted by what is asked of git here.
        let view = &task.view;
        let before = count_here();
        let snapshot = view.snapshot(None).unwrap();
        assert_eq!(view.changed(&task.base, &snapshot.tree).unwrap().len(), files);
        view.diff(&task.base, &snapshot.tree, &File::create(f.path("patch")).unwrap()).unwrap();
        let commit = task.finish();
        view.update_branch(&commit, &task.base).unwrap();
        count_here() - before
    };
    assert_eq!(cost(1), cost(1000));
}

fn count_here() -> u64 {
    runner::calls_of_this_thread()
}

#[test]
fn a_link_at_an_ignored_folder_and_ignored_files_stay_out() {
    let f = Fixture::new();
    f.write("web/.gitignore", "dist/\n!keep/\n");
    f.commit("rules");
    let task = f.task("t1");
    let tree = &task.tree.path;
    symlink("/tmp", tree.join("node_modules")).unwrap();
    symlink("/tmp", tree.join("web/node_modules")).unwrap();
    symlink("..", tree.join("web/dist")).unwrap();
    symlink("..", tree.join("web/keep")).unwrap();
    symlink("a.txt", tree.join("plain")).unwrap();
    task.write("x.log", "ignored");
    let snapshot = task.view.snapshot(None).unwrap();
    let out: Vec<_> = snapshot.left_out.iter().map(|l| l.path.to_str().unwrap()).collect();
    assert_eq!(out, ["node_modules", "web/dist", "web/node_modules"]);
    assert_eq!(task.changed(), ["plain", "web/keep"]);
}

#[test]
fn a_repository_in_the_tree_neither_vanishes_nor_becomes_a_link() {
    let f = Fixture::new();
    let task = f.task("t1");
    let tree = &task.tree.path;
    git(tree, ["init", "-q", "unborn"]);
    write(tree, "unborn/file", "x");
    git(tree, ["init", "-q", "deep/born"]);
    write(tree, "deep/born/file", "x");
    git(&tree.join("deep/born"), ["add", "-A"]);
    git(&tree.join("deep/born"), ["-c", "user.name=a", "-c", "user.email=b", "commit", "-q", "-m", "1"]);
    task.write("deep/beside", "x");
    let snapshot = task.view.snapshot(None).unwrap();
    assert_eq!(snapshot.nested, [PathBuf::from("deep/born"), PathBuf::from("unborn")]);
    assert_eq!(task.changed(), ["deep/beside"]);
    let changes = task.view.changed(&task.base, &snapshot.tree).unwrap();
    assert!(!changes.iter().any(Change::is_submodule));
}

#[test]
fn what_stands_in_the_place_of_a_ref_is_read_only_if_it_is_a_file() {
    let f = Fixture::new();
    let task = f.task("t1");
    assert_eq!(task.view.worker_head().unwrap().as_ref(), Some(&task.base));
    let (pipe, endless) = (f.path("pipe"), f.path("endless"));
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    std::os::unix::fs::symlink("/dev/zero", &endless).unwrap();
    for path in [&pipe, &endless, &f.path("none"), &task.tree.path] {
        assert_eq!(clone::read(path).unwrap(), b"", "{}", path.display());
    }
}

#[test]
fn what_the_worker_committed_itself_is_kept_though_ignored() {
    let f = Fixture::new();
    let task = f.task("t1");
    let tree = &task.tree.path;
    task.write("forced.log", "ignored, but committed\n");
    git(tree, ["add", "-f", "forced.log"]);
    git(tree, ["-c", "user.name=w", "-c", "user.email=w", "commit", "-q", "-m", "by the worker"]);
    task.write("left-over", "x");
    let head = task.view.worker_head().unwrap().unwrap();
    assert!(task.view.is_ancestor(&task.base, &head).unwrap());
    let snapshot = task.view.snapshot(Some(&head)).unwrap();
    let paths: Vec<_> = task.view.changed(&task.base, &snapshot.tree).unwrap();
    let paths: Vec<_> = paths.iter().map(|c| c.path.to_str().unwrap()).collect();
    assert_eq!(paths, ["forced.log", "left-over"]);
}

#[test]
fn the_same_inputs_make_the_same_commit_and_a_lost_branch_is_noticed() {
    let f = Fixture::new();
    let task = f.task("t1");
    task.write("new", "x");
    let commit = task.finish();
    assert_eq!(task.finish(), commit, "repeated after a crash");
    assert_eq!(task.view.identity(), &Identity { name: "Ada".into(), email: "ada@example.org".into() });
    let log = f.git(["log", "-1", "--format=%an <%ae> %at %cn %s", commit.as_str()]);
    assert_eq!(log.trim(), "Ada <ada@example.org> 1700000000 Ada work");
    let other = f.commit("elsewhere");
    let error = task.view.update_branch(&other, &task.base).unwrap_err();
    assert_eq!(error.kind, GitErrorKind::RefMoved);
}

#[test]
fn the_users_checkout_is_the_same_before_and_after_a_task() {
    let f = Fixture::new();
    f.write("a.txt", "an edit of the user's\n");
    f.write("staged", "x");
    f.git(["add", "staged"]);
    f.write("untracked", "x");
    let before = fingerprint(&f.top());
    let task = f.task("t1");
    task.write("a.txt", "x");
    task.finish();
    Salvage::take(&task.view, "t1", 1, &Limits::default(), &[], 1).unwrap();
    assert_eq!(fingerprint(&f.top()), before);
}

#[test]
fn the_view_keeps_the_users_filters_line_ends_and_excludes() {
    let f = Fixture::new();
    f.git(["config", "filter.up.clean", "tr a-z A-Z"]);
    f.git(["config", "core.autocrlf", "input"]);
    f.write(".gitattributes", "*.up filter=up\n");
    fs::write(f.top().join(".git/info/exclude"), "private/\n").unwrap();
    f.commit("rules");
    let task = f.task("t1");
    // The worker's changes to the same settings count for nothing.
    git(&task.tree.path, ["config", "filter.up.clean", "false"]);
    fs::write(f.top().join(".git/info/exclude"), "*\n").unwrap();
    task.write("x.up", "loud\n");
    task.write("win.txt", "a\r\n");
    task.write("private/key", "x");
    let snapshot = task.view.snapshot(None).unwrap();
    assert_eq!(task.changed(), ["win.txt", "x.up"]);
    assert_eq!(f.git(["cat-file", "-p", &format!("{}:x.up", snapshot.tree)]), "LOUD\n");
    assert_eq!(f.git(["cat-file", "-p", &format!("{}:win.txt", snapshot.tree)]), "a\n");
}

#[test]
fn the_fingerprint_tells_a_view_that_was_tampered_with() {
    let f = Fixture::new();
    let task = f.task("t1");
    let before = task.view.fingerprint().unwrap();
    task.write("new", "x");
    task.view.snapshot(None).unwrap();
    assert_eq!(task.view.fingerprint().unwrap(), before, "a snapshot changes only the index");
    fs::write(f.path("views/t1/info/exclude"), "*\n").unwrap();
    assert_ne!(task.view.fingerprint().unwrap(), before);
}

#[test]
fn a_forged_index_hides_nothing_once_it_is_forgotten() {
    let f = Fixture::new();
    let task = f.task("t1");
    task.write("a.txt", "changed\n");
    let index = f.path("views/t1/index");
    let forger = Git::at(f.top().join(".git")).work_tree(&task.tree.path).index(&index);
    forger.writes("update-index").args(["--assume-unchanged", "a.txt"]).run().unwrap();
    assert!(task.changed().is_empty());
    task.view.forget_index().unwrap();
    assert_eq!(task.changed(), ["a.txt"]);
}

#[test]
fn the_worker_sees_our_commit_as_clean_after_publishing() {
    let f = Fixture::new();
    let task = f.task("t1");
    task.write("new", "x");
    task.finish();
    task.view.publish_index().unwrap();
    assert_eq!(git(&task.tree.path, ["status", "--porcelain"]), "");
}

#[test]
fn a_later_attempt_does_not_believe_what_an_earlier_worker_changed() {
    let f = Fixture::new();
    let task = f.task("t1");
    fs::write(f.top().join(".git/info/exclude"), "*\n").unwrap();
    git(&task.tree.path, ["config", "core.autocrlf", "input"]);
    task.write("first", "x");
    let commit = task.finish();
    let later = task.view.renew(&f.path("views/t1-2"), &commit).unwrap();
    task.write("second", "a\r\n");
    let snapshot = later.snapshot(None).unwrap();
    let changes = later.changed(&commit, &snapshot.tree).unwrap();
    assert_eq!(changes.iter().map(|c| c.path.as_path()).collect::<Vec<_>>(), [Path::new("second")]);
    assert_eq!(f.git(["cat-file", "-p", &format!("{}:second", snapshot.tree)]), "a\r\n");
    assert_eq!(View::open(&f.path("views/t1-2")).unwrap().base(), &commit);
    // Its own files, and not those of the earlier view, which may be pruned.
    fs::remove_dir_all(f.path("views/t1")).unwrap();
    later.snapshot(None).unwrap();
}

#[test]
fn protected_paths_are_put_back_in_a_tree_of_their_own() {
    let f = Fixture::new();
    let task = f.task("t1");
    task.write("a.txt", "the worker's\n");
    task.write("src/lib.rs", "allowed\n");
    task.write("added", "not allowed");
    let snapshot = task.view.snapshot(None).unwrap();
    let changes = task.view.changed(&task.base, &snapshot.tree).unwrap();
    let undone: Vec<Change> = changes.into_iter().filter(|c| !c.path.starts_with("src")).collect();
    let gated = task.view.without(&snapshot.tree, &undone).unwrap();
    let left = task.view.changed(&task.base, &gated).unwrap();
    assert_eq!(left.iter().map(|c| c.path.as_path()).collect::<Vec<_>>(), [Path::new("src/lib.rs")]);
    assert_eq!(task.view.without(&snapshot.tree, &[]).unwrap(), snapshot.tree);
}

#[test]
fn the_number_of_git_processes_is_the_documented_one() {
    let f = Fixture::new();
    f.repo();
    let count = |what: &mut dyn FnMut()| {
        let before = count_here();
        what();
        count_here() - before
    };
    let (mut repo, mut tree, mut view, mut snapshot) = (None, None, None, None);
    assert_eq!(count(&mut || repo = Some(f.repo())), 1);
    let repo = repo.unwrap();
    let base = repo.head.clone();
    let path = f.path("trees/t1");
    let made = || {
        let tree = worktree::add(&repo, &path, "t1", &base, OnBranch::New, "").unwrap();
        tree.fill(&base, 1, &mut || Ok(())).unwrap();
        tree
    };
    assert_eq!(count(&mut || tree = Some(made())), 2);
    let tree = tree.unwrap();
    assert_eq!(count(&mut || view = View::create(&f.path("view"), &repo, &tree, &base).ok()), 1);
    let view = view.unwrap();
    write(&tree.path, "new", "x");
    write(&tree.path, "ignored.log", "x");
    assert_eq!(count(&mut || snapshot = view.snapshot(None).ok()), 3);
    link(&tree.path, "link", "new");
    assert_eq!(count(&mut || drop(view.snapshot(Some(&base)).unwrap())), 5);
    let snapshot = snapshot.unwrap();
    assert_eq!(count(&mut || drop(view.changed(&base, &snapshot.tree).unwrap())), 1);
    assert_eq!(count(&mut || drop(Guard::take(&repo, &tree.branch).unwrap())), 0);
    let mut proof = None;
    let limits = Limits::default();
    assert_eq!(count(&mut || proof = Salvage::take(&view, "t1", 1, &limits, &[], 1).ok()), 10);
    let by = Identity::ours();
    let commit = view.commit(&snapshot.tree, std::slice::from_ref(&base), "m", &by, 1).unwrap();
    let mut plan = None;
    assert_eq!(count(&mut || plan = Landing::plan(&repo, &base, &commit, How::Apply, None).ok()), 4);
    let apply = || drop(Landing::apply(&plan.take().unwrap(), "t1", &f.path("intent"), 1).unwrap());
    assert_eq!(count(&mut { apply }), 5);
    let dispose = || drop(worktree::dispose(&repo, &tree, proof.take().unwrap(), &f.path("trash")).unwrap());
    assert_eq!(count(&mut { dispose }), 1);
}

#[test]
fn a_worker_may_commit_changes_of_files_that_were_there() {
    let f = Fixture::new();
    let task = f.task("t1");
    task.write("src/lib.rs", "fn main() { changed() }\n");
    git(&task.tree.path, ["commit", "-q", "-a", "-m", "mine"]);
    let head = task.view.worker_head().unwrap().unwrap();
    let snapshot = task.view.snapshot(Some(&head)).unwrap();
    let changed = task.view.changed(&task.base, &snapshot.tree).unwrap();
    assert_eq!(changed.iter().map(|c| c.path.clone()).collect::<Vec<_>>(), [PathBuf::from("src/lib.rs")]);
    assert!(task.view.changed(&head, &snapshot.tree).unwrap().is_empty());
}
