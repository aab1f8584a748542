//! Worktrees: made by a crowd, left by the dead, broken by workers.

use super::super::*;
use super::support::*;
use crate::durable::Lock;
use std::fs;
use std::os::unix::fs::PermissionsExt;

fn proof(task: &Task) -> Salvaged {
    Salvage::take(&task.view, "t1", 1, &Limits::default(), &[], 1_700_000_000).unwrap()
}

#[test]
fn twenty_four_at_once_under_the_lock_all_succeed() {
    let f = Fixture::new();
    let source = f.top();
    let dir = f.path("");
    git(&dir, ["clone", "-q", source.to_str().unwrap(), "clone"]);
    let repo = Repo::open(&f.path("clone")).unwrap();
    let base = repo.resolve_base(Some("origin/main")).unwrap();
    let lock = Lock::at(f.path("lock"));
    std::thread::scope(|scope| {
        for at in 0..24 {
            let (repo, base, lock, f) = (&repo, &base, &lock, &f);
            scope.spawn(move || {
                let path = f.path("trees").join(format!("t{at}"));
                let held = lock.take().unwrap();
                let tree =
                    worktree::add(repo, &path, &format!("t{at}"), base, OnBranch::New, "test").unwrap();
                drop(held);
                tree.fill(base, 1, &mut || Ok(())).unwrap();
                tree.verify(repo).unwrap();
                assert!(path.join("a.txt").is_file());
            });
        }
    });
    let listed = worktree::list_ours(&repo).unwrap();
    assert_eq!(listed.len(), 24);
    assert!(listed.iter().all(|t| t.locked.as_deref() == Some("test") && !t.gone));
}

#[test]
fn the_users_hooks_and_signing_do_not_fire() {
    let f = Fixture::new();
    let (program, mark) = canary(&f.path(""));
    for hook in ["post-checkout", "reference-transaction", "post-commit", "post-index-change"] {
        fs::create_dir_all(f.top().join(".git/hooks")).unwrap();
        fs::copy(&program, f.top().join(".git/hooks").join(hook)).unwrap();
    }
    let program = program.to_str().unwrap();
    f.git(["config", "commit.gpgSign", "true"]);
    f.git(["config", "gpg.program", program]);
    f.git(["config", "core.fsmonitor", program]);
    fs::remove_file(&mark).unwrap_or_default();
    let task = f.task("t1");
    task.write("new", "x");
    task.finish();
    assert!(!mark.exists());
}

#[test]
fn a_registration_whose_folder_is_gone_is_replaced() {
    let f = Fixture::new();
    let task = f.task("t1");
    fs::remove_dir_all(&task.tree.path).unwrap();
    assert!(worktree::list_ours(&task.repo).unwrap()[0].gone);
    let (path, base) = (&task.tree.path, &task.base);
    let again = worktree::add(&task.repo, path, "t1", base, OnBranch::New, "x");
    assert!(again.is_err(), "the branch is there, and New says that it must not be");
    let again = worktree::add(&task.repo, path, "t1", base, OnBranch::Existing, "x").unwrap();
    again.fill(base, 1, &mut || Ok(())).unwrap();
    assert!(path.join("a.txt").is_file());
    fs::remove_dir_all(path).unwrap();
    worktree::add(&task.repo, path, "t1", base, OnBranch::Reset, "x").unwrap();
}

#[test]
fn a_folder_that_is_not_registered_is_not_taken_for_a_worktree() {
    let f = Fixture::new();
    let task = f.task("t1");
    task.tree.verify(&task.repo).unwrap();
    let plain = f.top().join("plain");
    fs::create_dir(&plain).unwrap();
    assert!(Worktree::at(&task.repo, &plain, "refs/heads/workspool/t1").is_err());
    let other = Fixture::new();
    assert!(task.tree.verify(&other.repo()).is_err());
    fs::remove_file(task.tree.path.join(".git")).unwrap();
    assert!(task.tree.verify(&task.repo).is_err());
}

#[test]
fn disposing_moves_the_tree_and_follows_no_link() {
    let f = Fixture::new();
    let task = f.task("t1");
    let outside = f.path("outside");
    write(&outside, "precious", "x");
    link(&task.tree.path, "away", outside.to_str().unwrap());
    write(&task.tree.path, "locked/deep/file", "x");
    fs::set_permissions(task.tree.path.join("locked/deep"), fs::Permissions::from_mode(0o555)).unwrap();
    let proof = proof(&task);
    assert!(proof.is_complete());
    let aside = worktree::dispose(&task.repo, &task.tree, proof, &f.path("trees/.trash")).unwrap().unwrap();
    assert!(!task.tree.path.exists() && !task.tree.git_dir.exists());
    assert!(aside.join("a.txt").exists());
    fs::set_permissions(aside.join("locked/deep"), fs::Permissions::from_mode(0o500)).unwrap();
    worktree::delete_tree(&aside).unwrap();
    assert!(!aside.exists() && outside.join("precious").exists());
    assert!(worktree::list_ours(&task.repo).unwrap().is_empty());
}

#[test]
fn a_worker_that_broke_the_registration_does_not_stop_the_disposal() {
    let f = Fixture::new();
    let task = f.task("t1");
    let proof = proof(&task);
    fs::remove_file(task.tree.path.join(".git")).unwrap();
    fs::write(task.tree.git_dir.join("gitdir"), "/etc/.git\n").unwrap();
    worktree::dispose(&task.repo, &task.tree, proof, &f.path("trees/.trash")).unwrap();
    assert!(worktree::list_ours(&task.repo).unwrap().is_empty());
}

#[test]
fn a_tree_with_submodules_can_be_disposed_of() {
    let f = Fixture::new();
    let sub = Fixture::new();
    let source = sub.top();
    f.git(["-c", "protocol.file.allow=always", "submodule", "add", "-q", source.to_str().unwrap(), "sub"]);
    f.commit("with a submodule");
    let task = f.task("t1");
    assert!(task.tree.path.join("sub").read_dir().unwrap().next().is_none(), "submodules start empty");
    git(&task.tree.path, ["-c", "protocol.file.allow=always", "submodule", "update", "-q", "--init"]);
    write(&task.tree.path, "sub/new", "only here");
    let snapshot = task.view.snapshot(None).unwrap();
    assert_eq!(snapshot.nested, [std::path::PathBuf::from("sub")]);
    let proof = proof(&task);
    assert!(proof.is_complete(), "{:?}", proof.missing());
    worktree::dispose(&task.repo, &task.tree, proof, &f.path("trees/.trash")).unwrap();
    let entry = &Salvage::list(&task.repo).unwrap()[0];
    Salvage::restore(&task.repo, entry, &f.path("back")).unwrap();
    assert_eq!(fs::read_to_string(f.path("back/sub/new")).unwrap(), "only here");
    assert!(f.path("back/sub/.git/HEAD").is_file());
}

#[test]
fn an_index_cannot_be_reached_without_naming_it() {
    let f = Fixture::new();
    let before = fs::read(f.top().join(".git/index")).unwrap();
    let repo = f.repo();
    assert!(repo.shared().writes("read-tree").arg("--empty").run().is_err());
    assert_eq!(fs::read(f.top().join(".git/index")).unwrap(), before);
}

#[test]
fn a_scratch_tree_holds_the_commit_and_runs_nothing_that_a_worker_planted() {
    let f = Fixture::new();
    let task = f.task("t1");
    let (program, mark) = canary(&f.path(""));
    git(&task.tree.path, ["config", "filter.evil.smudge", program.to_str().unwrap()]);
    task.write(".gitattributes", "* filter=evil\n");
    task.write("new", "x");
    task.write("ignored.log", "must not be there");
    let commit = task.finish();
    let path = f.path("trees/t1-gate");
    let scratch = Scratch::add(&task.repo, &path, &commit).unwrap();
    scratch.fill(&task.view, &commit, 1, &mut || Ok(())).unwrap();
    assert!(!mark.exists());
    assert!(path.join("new").is_file() && !path.join("ignored.log").exists());
    assert_eq!(worktree::list_ours(&task.repo).unwrap().len(), 2);
    drop(scratch);
    assert!(Scratch::at(&task.repo, &task.tree.path).is_err(), "a task's tree is none");
    let scratch = Scratch::at(&task.repo, &path).unwrap();
    let aside = scratch.discard(&task.repo, &f.path("trees/.trash")).unwrap().unwrap();
    worktree::delete_tree(&aside).unwrap();
    assert_eq!(worktree::list_ours(&task.repo).unwrap().len(), 1);
}
