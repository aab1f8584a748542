//! Sources of every kind, and environments that lie.

use super::super::*;
use super::support::*;
use std::fs;
use std::path::Path;
use std::process::Command;

#[test]
fn a_folder_below_the_top_says_its_prefix() {
    let f = Fixture::new();
    let repo = Repo::open(&f.top().join("src")).unwrap();
    assert_eq!(repo.top.as_deref(), Some(f.top().as_path()));
    assert_eq!(repo.prefix, Path::new("src"));
    assert_eq!(repo.head_ref, Head::Branch("refs/heads/main".into()));
    assert_eq!(repo.common, f.top().join(".git"));
    assert!(!repo.bare && !repo.shallow);
    assert!(repo.key.name.starts_with("repo-"), "{}", repo.key);
}

#[test]
fn a_linked_worktree_is_the_same_repository() {
    let f = Fixture::new();
    let linked = f.path("linked");
    f.git(["worktree", "add", "-q", "-b", "other", linked.to_str().unwrap()]);
    let repo = Repo::open(&linked).unwrap();
    assert_eq!(repo.top.as_deref(), Some(linked.as_path()));
    assert_eq!(repo.key, f.repo().key);
    assert_ne!(repo.git_dir, repo.common);
    let task = f.task_of(repo, "t1");
    task.write("new", "x");
    assert_eq!(task.changed(), ["new"]);
}

#[test]
fn a_submodule_a_bare_and_a_shallow_source_work() {
    let f = Fixture::new();
    f.commit("second");
    let source = format!("file://{}", f.top().display());
    let dir = f.path("");
    git(&dir, ["clone", "-q", "--bare", &source, "bare.git"]);
    git(&dir, ["clone", "-q", "--depth", "1", &source, "shallow"]);
    git(&dir, ["init", "-q", "super"]);
    let above = f.path("super");
    git(&above, ["-c", "protocol.file.allow=always", "submodule", "add", "-q", &source, "sub"]);
    for (at, name) in ["bare.git", "shallow", "super/sub"].iter().enumerate() {
        let repo = Repo::open(&f.path(name)).unwrap();
        assert_eq!(repo.bare, *name == "bare.git");
        assert_eq!(repo.shallow, *name == "shallow");
        assert_eq!(repo.top.is_none(), repo.bare);
        let task = f.task_of(repo, &format!("t{at}"));
        task.write("new", "x");
        fs::remove_file(task.tree.path.join("a.txt")).unwrap();
        assert_eq!(task.changed(), ["a.txt", "new"], "{name}");
        let commit = task.finish();
        assert!(task.repo.is_ancestor(&task.base, &commit).unwrap());
    }
}

#[test]
fn an_empty_repository_and_a_folder_in_none_say_what_they_are() {
    let f = Fixture::empty();
    let error = Repo::open(&f.top()).unwrap_err();
    assert!(matches!(error, RepoError::Empty(_)), "{error}");
    assert!(error.to_string().contains("git commit --allow-empty"));
    let none = f.path("none");
    fs::create_dir(&none).unwrap();
    assert!(matches!(Repo::open(&none).unwrap_err(), RepoError::NotARepository(_)));
    assert!(matches!(Repo::open(&f.path("missing")).unwrap_err(), RepoError::Path { .. }));
}

#[test]
fn a_detached_head_and_a_sha256_repository_work() {
    let f = Fixture::new();
    f.git(["checkout", "-q", "--detach"]);
    assert_eq!(f.repo().head_ref, Head::Detached);
    let dir = f.path("");
    git(&dir, ["init", "-q", "--object-format=sha256", "long"]);
    let long = f.path("long");
    write(&long, "a", "1");
    git(&long, ["add", "-A"]);
    git(&long, ["-c", "user.name=a", "-c", "user.email=b", "commit", "-q", "-m", "1"]);
    let task = f.task_of(Repo::open(&long).unwrap(), "t1");
    assert_eq!(task.repo.format, ObjectFormat::Sha256);
    assert_eq!(*task.view.identity(), Identity::ours());
    task.write("b", "2");
    assert_eq!(task.changed(), ["b"]);
    task.finish();
}

#[test]
fn a_sparse_source_gives_a_sparse_tree_without_phantom_deletions() {
    let f = Fixture::new();
    f.write("far/away.txt", "x");
    f.commit("more");
    f.git(["sparse-checkout", "set", "--cone", "src"]);
    let task = f.task("t1");
    assert!(!task.tree.path.join("far").exists());
    assert!(task.changed().is_empty());
    task.write("src/new.rs", "1");
    task.write("far/new.txt", "outside the cone");
    assert_eq!(task.changed(), ["far/new.txt", "src/new.rs"]);
}

#[test]
fn a_revision_never_becomes_an_option() {
    let f = Fixture::new();
    let repo = f.repo();
    assert_eq!(repo.resolve_base(Some("main")).unwrap(), repo.head);
    for rev in ["--all", "-x", "", "no-such", "main\nmain", "HEAD:a.txt", "--git-dir"] {
        let error = repo.resolve_base(Some(rev)).unwrap_err();
        assert!(matches!(error, RepoError::BadRevision { .. }), "{rev}: {error}");
    }
}

#[test]
fn a_branch_name_that_git_would_misread_is_refused() {
    let f = Fixture::new();
    let repo = f.repo();
    for id in ["a..b", "a b", "a~1", "-x", ".x", "x.lock", "a@{b", "x/", "", "a\nb", "a*"] {
        let path = f.path("trees/x");
        let made = worktree::add(&repo, &path, id, &repo.head, OnBranch::New, "");
        assert_eq!(made.unwrap_err().kind, GitErrorKind::BadRevision, "{id:?}");
        let (ok, _) = try_git(&f.top(), ["check-ref-format", &format!("refs/heads/workspool/{id}")]);
        assert!(!ok || id == "-x", "{id:?}: stricter than git for no reason");
    }
}

/// Run as a child of the next test, in an environment that points elsewhere.
#[test]
fn child_opens_the_named_repository() {
    let Some(wanted) = std::env::var_os("WORKSPOOL_TEST_REPO") else { return };
    let repo = Repo::open(Path::new(&wanted)).unwrap();
    assert_eq!(repo.top.as_deref(), Some(Path::new(&wanted)));
    let entries = repo.shared().reads("rev-parse").arg("--git-dir").run().unwrap();
    assert_eq!(bytes::to_path(entries.trim_ascii()), repo.common);
    println!("opened");
}

#[test]
fn an_inherited_git_dir_does_not_redirect_us() {
    let (f, other) = (Fixture::new(), Fixture::new());
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture", "git::tests::repos::child_opens_the_named_repository"])
        .env("WORKSPOOL_TEST_REPO", f.top())
        .env("GIT_DIR", other.top().join(".git"))
        .env("GIT_WORK_TREE", other.top())
        .env("GIT_INDEX_FILE", "/nowhere")
        .env("GIT_CONFIG_PARAMETERS", "'core.bare'='true'")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success() && text.contains("opened"), "{text}");
}

#[test]
fn a_lock_of_somebody_else_is_waited_for_and_not_deleted() {
    let f = Fixture::new();
    let repo = f.repo();
    let lock = f.top().join(".git/refs/heads/workspool/x.lock");
    write(&f.top(), ".git/refs/heads/workspool/x.lock", "");
    let waiter = std::thread::spawn({
        let (repo, head) = (repo.clone(), repo.head.clone());
        move || repo.set_ref("refs/heads/workspool/x", &head, None, "test")
    });
    let begun = calls();
    while calls() < begun + 2 {
        std::thread::yield_now();
    }
    assert!(lock.exists());
    fs::remove_file(&lock).unwrap();
    waiter.join().unwrap().unwrap();
    assert_eq!(repo.read_ref("refs/heads/workspool/x").unwrap(), Some(repo.head));
}

#[test]
fn a_file_is_read_as_a_commit_has_it() {
    let f = Fixture::new();
    let repo = f.repo();
    f.write("src/lib.rs", "edited, not committed");
    let read = |path: &str| repo.read_file(&repo.head, Path::new(path)).unwrap();
    assert_eq!(read("src/lib.rs").unwrap(), b"fn main() {}\n");
    assert_eq!(read("src"), None);
    assert_eq!(read("missing"), None);
    assert_eq!(read("a\nb"), None);
}

#[test]
fn trees_are_merged_from_the_base_that_is_named_and_by_no_driver() {
    let f = Fixture::new();
    let (program, mark) = canary(&f.path(""));
    f.git(["config", "merge.evil.driver", program.to_str().unwrap()]);
    f.write(".gitattributes", "* merge=evil\n");
    let base = f.commit("base");
    f.write("left", "x");
    f.write("a.txt", "ONE\ntwo\nthree\n");
    let left = f.commit("left");
    f.git(["reset", "-q", "--hard", base.as_str()]);
    f.write("right", "x");
    f.write("a.txt", "one\ntwo\nTHREE\n");
    let right = f.commit("right");
    let repo = f.repo();
    let tree = |commit: &Oid| repo.tree_of(commit).unwrap();
    let merged = repo.merge_trees(&tree(&base), &tree(&left), &tree(&right)).unwrap();
    let Merged::Tree(merged) = merged else { panic!("{merged:?}") };
    assert_eq!(f.git(["cat-file", "-p", &format!("{merged}:a.txt")]), "ONE\ntwo\nTHREE\n");
    f.write("a.txt", "1\n2\n3\n");
    let other = f.commit("other");
    let clash = repo.merge_trees(&tree(&base), &tree(&left), &tree(&other)).unwrap();
    assert_eq!(clash, Merged::Conflict(vec!["a.txt".into()]));
    assert!(!mark.exists());
}

#[test]
fn partial_clones_alternates_and_reftables_work() {
    let f = Fixture::new();
    f.git(["config", "uploadpack.allowFilter", "true"]);
    f.write("old", "a blob that no checkout has");
    f.commit("second");
    fs::remove_file(f.top().join("old")).unwrap();
    f.commit("third");
    let source = format!("file://{}", f.top().display());
    let dir = f.path("");
    git(&dir, ["clone", "-q", "--filter=blob:none", &source, "partial"]);
    git(&dir, ["clone", "-q", "--shared", f.top().to_str().unwrap(), "shared"]);
    let mut names = vec!["partial", "shared"];
    // Git has had it since 2.45.
    if try_git(&dir, ["clone", "-q", "--ref-format=reftable", &source, "reftable"]).0 {
        names.push("reftable");
    }
    for name in names {
        let top = f.path(name);
        let task = f.task_of(Repo::open(&top).unwrap(), &format!("of-{name}"));
        let guard = Guard::take(&task.repo, &task.tree.branch).unwrap();
        task.write("new", "x");
        fs::remove_file(task.tree.path.join("a.txt")).unwrap();
        assert_eq!(task.changed(), ["a.txt", "new"], "{name}");
        let commit = task.finish();
        assert_eq!(guard.check(&task.repo).unwrap(), [], "{name}");
        let how = How::Commit { message: "landed".into() };
        let plan = Landing::plan(&task.repo, &task.base, &commit, how, Some(&guard)).unwrap();
        let landed = Landing::apply(&plan, "t1", &f.path("intent"), 1).unwrap();
        assert_eq!(git(&top, ["rev-parse", "HEAD"]).trim(), landed.commit.unwrap().as_str(), "{name}");
        assert_eq!(git(&top, ["status", "--porcelain"]), "", "{name}");
    }
}
