//! What a workspace lacks against the user's checkout is told with the result.

use crate::support::{Repo, World};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, SystemTime};
use workspool::model::{Class, Phase};

/// What a task that does nothing is told to have lacked.
#[track_caller]
fn lacks(world: &World, repo: &Repo, kind: &str) -> Vec<String> {
    let id = world.script("true").repo(repo).with("workspace", kind).ok();
    world.drain();
    world.succeeded(id).lacks
}

/// Makes files older than any index: those of the same tick git would read again.
fn age(repo: &Repo, files: &[&str]) {
    for file in files {
        let file = fs::File::options().write(true).open(repo.path().join(file)).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(60)).unwrap();
    }
}

#[test]
fn nothing_is_lacking_in_a_clean_checkout() {
    let world = World::new();
    let repo = world.repo("r");
    repo.write("empty", "").write(".gitattributes", "*.txt text=auto\n*.png binary\n");
    repo.commit("attributes");
    for kind in ["worktree", "clone"] {
        assert_eq!(lacks(&world, &repo, kind), Vec::<String>::new());
    }
}

#[test]
fn submodules_are_named() {
    let world = World::new();
    let (repo, inner) = (world.repo("r"), world.repo("inner"));
    repo.git(&[
        "-c",
        "protocol.file.allow=always",
        "submodule",
        "add",
        "-q",
        &inner.path().to_string_lossy(),
        "inner",
    ]);
    repo.commit("with a submodule");
    let before = repo.fingerprint();
    let id = world.script("echo x > x.txt").repo(&repo).ok();
    world.drain();
    let result = world.succeeded(id);
    assert_eq!(result.lacks, ["submodules are empty unless a setup command fills them: inner"]);
    before.assert_same(&repo.fingerprint());
}

#[test]
fn what_only_the_checkout_has_is_named() {
    let world = World::new();
    let repo = world.repo("r");
    std::os::unix::fs::symlink("/etc/hosts", repo.path().join("absolute")).unwrap();
    std::os::unix::fs::symlink("../beside", repo.path().join("src/up")).unwrap();
    std::os::unix::fs::symlink("../README.md", repo.path().join("src/inside")).unwrap();
    std::os::unix::fs::symlink("../../beside", repo.path().join("src/out")).unwrap();
    repo.commit("links");
    repo.write("README.md", "# not committed\n").write("new.txt", "n\n").write(".env", "A=1\n");
    repo.write("target/x", "x\n").write("build.log", "l\n");
    repo.at(repo.path().join("nested")).write("x", "x\n");
    repo.at(repo.path().join("nested")).git(&["init", "-q"]);
    repo.hook("pre-commit", "exit 0").hook("pre-push", "exit 0");
    let lacks = |kind: &str| {
        let id = world.script("true").repo(&repo).with("workspace", kind).with("copy", ".env").ok();
        world.drain();
        let shown = world.on("show", id, &[]).ok().text();
        assert!(shown.contains("changes that are not committed: README.md"), "{shown}");
        world.succeeded(id).lacks
    };
    let mut wanted = vec![
        "changes that are not committed: README.md",
        "files that git does not track: new.txt",
        "files that git ignores, unless a setup command makes them or `copy` names them: build.log, target/",
        "repositories inside the checkout: nested/",
        "links that lead out of the tree point elsewhere than in the checkout, or to what is not the workspace's: absolute, src/out",
        "hooks did not run on the commit of the result: pre-commit",
    ];
    assert_eq!(lacks("worktree"), wanted);
    wanted[5] = "hooks did not run on the commit of the result, and none is in the clone: pre-commit";
    assert_eq!(lacks("clone"), wanted);
}

#[test]
fn what_an_attempt_lacked_is_told_of_the_one_that_goes_on_with_it() {
    let world = World::new();
    let repo = world.repo("r");
    repo.write("new.txt", "n\n");
    let id = world.script("echo x >> x.txt").repo(&repo).ok();
    world.drain();
    world.on("revise", id, &["--feedback", "once more"]).ok();
    world.drain();
    let result = world.succeeded(id);
    assert_eq!(
        (result.attempt, result.lacks),
        (2, vec!["files that git does not track: new.txt".to_owned()])
    );
}

#[test]
fn files_that_git_writes_otherwise_than_the_checkout_has_them_are_named() {
    let world = World::new();
    let what = |files: &str| {
        format!("files that the checkout has in another form (line endings, encoding, a filter): {files}")
    };
    // Rules that came after the files. What git takes for unchanged it does not write anew.
    let repo = world.repo("attributes");
    repo.write("a.crlf", "1\n2\n").write("b.enc", "x\n").write("c.id", "$Id$\n").write("d.txt", "d\n");
    age(&repo, &["a.crlf", "b.enc", "c.id"]);
    repo.commit("files");
    repo.write(
        ".gitattributes",
        "*.crlf text eol=crlf\n*.enc text working-tree-encoding=UTF-16LE\n*.id ident\n",
    );
    repo.commit("rules");
    for kind in ["worktree", "clone"] {
        assert_eq!(lacks(&world, &repo, kind), [what("a.crlf, b.enc, c.id")]);
    }
    let repo = world.repo("setting");
    repo.write("a.txt", "1\n2\n").commit("files");
    assert_eq!(lacks(&world, &repo, "worktree"), Vec::<String>::new());
    repo.git(&["config", "core.autocrlf", "true"]);
    let told = lacks(&world, &repo, "worktree");
    assert!(told.len() == 1 && told[0].starts_with(&what("")) && told[0].contains("a.txt"), "{told:?}");
}

#[test]
fn filters_that_do_not_run_are_named() {
    let world = World::new();
    let repo = world.repo("r");
    repo.write("up.sh", "#!/bin/sh\ntr a-z A-Z\n");
    fs::set_permissions(repo.path().join("up.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    repo.git(&["config", "filter.fine.clean", "cat"]);
    repo.write("docs/.gitattributes", "*.up filter=up\n");
    repo.write(".gitattributes", "*.sec filter=crypt\n*.ok filter=fine\n");
    repo.write("docs/a.up", "x\n").write("b.sec", "x\n").write("c.ok", "x\n");
    age(&repo, &["docs/a.up"]);
    repo.commit("filters");
    repo.git(&["config", "filter.up.clean", "./up.sh"]);
    let not_set_up = "the filter crypt is not set up here: *.sec are as the commit holds them";
    let in_the_tree = "the filter up does not run on the result, since its program lies in the repository: \
                       docs/*.up are recorded as the worker leaves them";
    assert_eq!(lacks(&world, &repo, "worktree"), [not_set_up, in_the_tree]);
    // And so it is.
    let id = world.script("echo new > docs/a.up").repo(&repo).ok();
    world.drain();
    let commit = world.succeeded(id).commit.unwrap();
    assert_eq!(repo.show(&commit, "docs/a.up"), "new\n");
}

#[test]
fn hooks_are_looked_for_where_the_settings_have_them() {
    let world = World::new();
    let repo = world.repo("r");
    repo.write(".gitignore", ".hooks/\n").commit("ignores");
    repo.write(".hooks/pre-commit", "#!/bin/sh\n").write(".hooks/post-commit", "not executable");
    fs::set_permissions(repo.path().join(".hooks/pre-commit"), fs::Permissions::from_mode(0o755)).unwrap();
    repo.git(&["config", "core.hooksPath", ".hooks"]);
    let ignored =
        "files that git ignores, unless a setup command makes them or `copy` names them: .hooks/".to_owned();
    let relative = "hooks did not run on the commit of the result, and the folder .hooks, where core.hooksPath \
                    has them, is not in the workspace: pre-commit";
    assert_eq!(lacks(&world, &repo, "worktree"), [ignored.clone(), relative.to_owned()]);
    let folder = repo.path().join(".hooks");
    repo.git(&["config", "core.hooksPath", &folder.to_string_lossy()]);
    let absolute = "hooks did not run on the commit of the result: pre-commit".to_owned();
    assert_eq!(lacks(&world, &repo, "worktree"), [ignored, absolute]);
}

#[test]
fn a_sparse_checkout_is_told_of() {
    let world = World::new();
    let repo = world.repo("r");
    repo.write("docs/a.txt", "a\n").commit("docs");
    repo.git(&["sparse-checkout", "set", "src"]);
    let told = "the checkout is sparse: what it leaves out is not in the workspace either";
    for kind in ["worktree", "clone"] {
        assert_eq!(lacks(&world, &repo, kind), [told], "{kind}");
    }
}

#[test]
fn objects_that_are_elsewhere_are_told_of() {
    let world = World::new();
    let repo = world.repo("r");
    repo.git(&["clone", "-q", "--shared", ".", "../shared"]);
    let shared = repo.at(world.root().join("repos/shared"));
    let store = repo.path().join(".git/objects").canonicalize().unwrap();
    let told =
        format!("the repository borrows objects, which the worker must be able to read: {}", store.display());
    assert_eq!(lacks(&world, &shared, "worktree"), [told]);
    assert_eq!(lacks(&world, &shared, "clone"), Vec::<String>::new());
}

#[test]
fn a_partial_clone_is_told_of_and_one_whose_remote_is_gone_fails_with_what_to_do() {
    let world = World::new();
    let origin = world.repo("origin");
    origin.git(&["config", "uploadpack.allowFilter", "true"]);
    let before = origin.head();
    origin.write("README.md", "# another\n").commit("more");
    let url = format!("file://{}", origin.path().display());
    origin.git(&["clone", "-q", "--filter=blob:none", &url, "../partial"]);
    let partial = origin.at(world.root().join("repos/partial"));
    let told = "the repository is a partial clone: what it lacks is fetched when something asks for it";
    assert_eq!(lacks(&world, &partial, "worktree"), [told]);
    fs::rename(origin.path(), world.root().join("repos/gone")).unwrap();
    let id = world.script("true").repo(&partial).with("base", &before).with("retries", "0").ok();
    world.drain();
    let result = world.result(id);
    assert_eq!((result.class, result.phase), (Some(Class::Workspace), Some(Phase::Preparing)));
    assert!(result.message.contains("its remote did not give what is missing"), "{}", result.message);
}
