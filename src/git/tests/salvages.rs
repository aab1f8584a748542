//! Nothing in a tree is lost.

use super::super::*;
use super::support::*;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

fn take(task: &Task, limits: &Limits, secrets: &[PathBuf]) -> Salvaged {
    Salvage::take(&task.view, "t1", 1, limits, secrets, 1_700_000_000).unwrap()
}

fn restore(f: &Fixture, task: &Task) -> PathBuf {
    let entries = Salvage::list(&task.repo).unwrap();
    assert_eq!((entries.len(), entries[0].id.as_str(), entries[0].attempt), (1, "t1", 1));
    let into = f.path("back");
    Salvage::restore(&task.repo, &entries[0], &into).unwrap();
    into
}

fn read(dir: &Path, name: &str) -> Vec<u8> {
    fs::read(dir.join(name)).unwrap()
}

#[test]
fn edits_untracked_ignored_unreadable_and_nested_all_come_back() {
    let f = Fixture::new();
    let task = f.task("t1");
    let tree = task.tree.path.clone();
    task.write("a.txt", "edited\n");
    fs::remove_file(tree.join("src/lib.rs")).unwrap();
    task.write("untracked", "x");
    task.write("debug.log", "ignored\r\nbytes\n");
    task.write("closed/secret.log", "unreadable");
    task.write("closed/plain", "unreadable, not ignored");
    symlink("nowhere", tree.join("dangling.log")).unwrap();
    git(&tree, ["init", "-q", "inner"]);
    write(&tree, "inner/committed", "1");
    git(&tree.join("inner"), ["add", "-A"]);
    git(&tree.join("inner"), ["-c", "user.name=a", "-c", "user.email=b", "commit", "-q", "-m", "kept"]);
    write(&tree, "inner/dirty", "2");
    task.write("with\nnewline.log", "x");
    let exec = tree.join("run.log");
    fs::write(&exec, "#!/bin/sh\n").unwrap();
    fs::set_permissions(&exec, fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(tree.join("closed/plain"), fs::Permissions::from_mode(0o000)).unwrap();
    fs::set_permissions(tree.join("closed"), fs::Permissions::from_mode(0o000)).unwrap();

    let index = fs::read(f.path("views/t1/index")).unwrap();
    let proof = take(&task, &Limits::default(), &[]);
    assert!(proof.is_complete(), "{:?}", proof.missing());
    assert_eq!(fs::read(f.path("views/t1/index")).unwrap(), index, "the view's index is not touched");
    let back = restore(&f, &task);
    assert_eq!(read(&back, "a.txt"), b"edited\n");
    assert!(!back.join("src/lib.rs").exists());
    assert_eq!(read(&back, "untracked"), b"x");
    assert_eq!(read(&back, "debug.log"), b"ignored\r\nbytes\n");
    assert_eq!(read(&back, "closed/secret.log"), b"unreadable");
    assert_eq!(read(&back, "closed/plain"), b"unreadable, not ignored");
    assert_eq!(read(&back, "with\nnewline.log"), b"x");
    assert_eq!(fs::read_link(back.join("dangling.log")).unwrap(), Path::new("nowhere"));
    assert_ne!(fs::metadata(back.join("run.log")).unwrap().permissions().mode() & 0o100, 0);
    assert_eq!(read(&back, "inner/dirty"), b"2");
    assert_eq!(git(&back.join("inner"), ["log", "--format=%s"]).trim(), "kept");
    assert_eq!(git(&back.join("inner"), ["status", "--porcelain"]).trim(), "?? dirty");
}

#[test]
fn copied_in_secrets_are_left_out_and_named() {
    let f = Fixture::new();
    let task = f.task("t1");
    task.write(".env", "TOKEN=hunter2");
    task.write("conf/key.pem", "hunter2, not ignored");
    let proof = take(&task, &Limits::default(), &[PathBuf::from(".env"), PathBuf::from("conf")]);
    assert!(proof.is_complete());
    let out: Vec<_> = proof.left_out().iter().map(|l| l.path.to_str().unwrap()).collect();
    assert_eq!(out, [".env", "conf/key.pem"]);
    let grep = f.git(["ls-tree", "-r", "--name-only", proof.commit().as_str()]);
    assert!(!grep.contains(".env") && !grep.contains("key.pem"), "{grep}");
}

#[test]
fn what_is_over_a_cap_makes_it_partial_and_keeps_the_tree() {
    let f = Fixture::new();
    let task = f.task("t1");
    task.write("big.log", vec![b'x'; 2000]);
    task.write("big-untracked", vec![b'x'; 2000]);
    task.write("small.log", "x");
    let limits = Limits { file: 1000, ..Limits::default() };
    let proof = take(&task, &limits, &[]);
    assert!(!proof.is_complete());
    let missing: Vec<_> = proof.missing().iter().map(|l| l.path.to_str().unwrap()).collect();
    assert_eq!(missing, ["big-untracked", "big.log"]);
    let entries = Salvage::list(&task.repo).unwrap();
    let about = entries[0].about.as_ref().unwrap();
    assert!(!about.complete && about.missing.len() == 2);
    assert!(worktree::dispose(&task.repo, &task.tree, proof, &f.path("trees/.trash")).is_err());
    assert!(task.tree.path.join("big.log").exists());
    let many = Limits { files: 0, ..Limits::default() };
    assert!(!take(&task, &many, &[]).is_complete());
}

#[test]
fn folders_that_can_be_made_again_are_passed_over_only_where_ignored() {
    let f = Fixture::new();
    let task = f.task("t1");
    task.write("node_modules/x/index.js", "x");
    task.write("target/not-ignored", "x");
    let proof = take(&task, &Limits::default(), &[]);
    assert!(proof.is_complete());
    assert_eq!(proof.left_out()[0].path, Path::new("node_modules"));
    let back = restore(&f, &task);
    assert_eq!(read(&back, "target/not-ignored"), b"x");
}

#[test]
fn a_filter_that_fails_does_not_stop_a_salvage() {
    let f = Fixture::new();
    f.git(["config", "filter.broken.clean", "false"]);
    f.git(["config", "filter.broken.required", "true"]);
    let task = f.task("t1");
    task.write(".gitattributes", "*.lfs filter=broken\n");
    task.write("a.lfs", "content");
    task.write("a.txt", "edited\n");
    assert!(task.view.snapshot(None).is_err());
    let proof = take(&task, &Limits::default(), &[]);
    assert!(proof.is_complete(), "{:?}", proof.missing());
    let back = restore(&f, &task);
    assert_eq!(read(&back, "a.lfs"), b"content");
    assert_eq!(read(&back, "a.txt"), b"edited\n");
}

#[test]
fn an_earlier_salvage_and_the_workers_commits_stay_reachable() {
    let f = Fixture::new();
    let task = f.task("t1");
    task.write("first", "x");
    let first = take(&task, &Limits::default(), &[]).commit().clone();
    git(&task.tree.path, ["add", "-A"]);
    git(&task.tree.path, ["-c", "user.name=w", "-c", "user.email=w", "commit", "-q", "-m", "w"]);
    let head = task.view.worker_head().unwrap().unwrap();
    fs::remove_file(task.tree.path.join("first")).unwrap();
    let second = take(&task, &Limits::default(), &[]).commit().clone();
    assert!(task.repo.is_ancestor(&first, &second).unwrap());
    assert!(task.repo.is_ancestor(&head, &second).unwrap());
    let entry = Salvage::list(&task.repo).unwrap().remove(0);
    Salvage::drop(&task.repo, &entry).unwrap();
    assert!(Salvage::list(&task.repo).unwrap().is_empty());
}

#[test]
fn a_proof_by_commit_is_given_only_for_a_tree_that_holds_no_more() {
    let f = Fixture::new();
    let task = f.task("t1");
    task.write("new", "x");
    task.write(".env", "copied");
    task.write("node_modules/x", "x");
    let commit = task.finish();
    let proof = |declared: &[PathBuf]| {
        Salvaged::committed(&task.view, &commit, declared, &Limits::default()).unwrap()
    };
    assert!(proof(&[]).is_none(), "an ignored file that nobody declared");
    assert!(proof(&[PathBuf::from(".env")]).unwrap().is_complete());
    task.write("later", "x");
    assert!(proof(&[PathBuf::from(".env")]).is_none());
}

#[test]
fn a_restore_never_writes_over_anything() {
    let f = Fixture::new();
    let task = f.task("t1");
    take(&task, &Limits::default(), &[]);
    let entry = Salvage::list(&task.repo).unwrap().remove(0);
    fs::create_dir(f.path("there")).unwrap();
    assert!(Salvage::restore(&task.repo, &entry, &f.path("there")).is_err());
    assert_eq!(fs::read_dir(f.path("there")).unwrap().count(), 0);
}
