//! What our reader finds in an index is what git lists of it.

use super::super::*;
use super::support::*;
use std::fs;

/// The files of an index as git lists them, less the middle of a merge: tag, mode, object, name.
fn listed(f: &Fixture) -> Vec<String> {
    let out = f.git(["-c", "core.quotePath=false", "ls-files", "-t", "--stage", "-z"]);
    let lines = out.split_terminator('\0').filter(|line| line.split('\t').next().unwrap().ends_with(" 0"));
    lines.map(str::to_owned).collect()
}

fn read(f: &Fixture) -> Vec<String> {
    let index = f.repo().index().unwrap().unwrap();
    let line = |entry: index::Entry<'_>| {
        let oid: String = entry.oid.iter().map(|b| format!("{b:02x}")).collect();
        let tag = if entry.left_out { 'S' } else { 'H' };
        format!("{tag} {:06o} {oid} 0\t{}", entry.mode, entry.path().display())
    };
    for entry in index.entries() {
        assert_eq!(index.find(entry.name), Some(entry));
    }
    assert_eq!(index.find(b"not there"), None);
    index.entries().map(line).collect()
}

fn filled(f: &Fixture) {
    for k in 0..40 {
        f.write(&format!("a/{}/{}.txt", "deep".repeat(k % 7), "n".repeat(k)), "x");
    }
    f.write(&format!("{}/{}", "d".repeat(200), "f".repeat(250)), "a long name");
    link(&f.top(), "link", "a.txt");
    f.commit("many");
}

#[test]
fn an_index_of_each_version_is_read() {
    let f = Fixture::new();
    filled(&f);
    for version in ["2", "3", "4"] {
        f.git(["update-index", "--index-version", version]);
        // A flag that only later versions know.
        f.git(["update-index", "--skip-worktree", "a.txt"]);
        assert_eq!(read(&f), listed(&f), "version {version}");
        f.git(["update-index", "--no-skip-worktree", "a.txt"]);
        assert_eq!(read(&f), listed(&f), "version {version}");
    }
    let size = f.repo().index().unwrap().unwrap().find(b"a.txt").unwrap().size;
    assert_eq!(u64::from(size), fs::metadata(f.top().join("a.txt")).unwrap().len());
}

#[test]
fn longer_names_of_objects_and_a_merge_are_read() {
    let f = Fixture::empty();
    fs::remove_dir_all(f.top().join(".git")).unwrap();
    f.git(["init", "-q", "-b", "main", "--object-format=sha256"]);
    f.git(["config", "user.name", "Ada"]);
    f.git(["config", "user.email", "ada@example.org"]);
    filled(&f);
    f.write("clash", "1");
    f.commit("one");
    f.git(["checkout", "-q", "-b", "other", "HEAD~"]);
    f.write("clash", "2");
    f.commit("two");
    assert_eq!(read(&f), listed(&f));
    assert!(!try_git(&f.top(), ["merge", "main"]).0);
    let listed = listed(&f);
    assert_eq!(read(&f), listed);
    assert!(!listed.iter().any(|line| line.ends_with("clash")), "{listed:?}");
}

#[test]
fn an_index_that_is_not_whole_by_itself_is_not_read() {
    let f = Fixture::new();
    f.git(["update-index", "--split-index"]);
    assert!(f.repo().index().unwrap().is_err());
    f.git(["update-index", "--no-split-index"]);
    assert_eq!(read(&f), listed(&f));
    // Neither is one that was cut, or is none at all; nothing falls over.
    let file = f.top().join(".git/index");
    let whole = fs::read(&file).unwrap();
    for len in 0..whole.len() - 20 {
        fs::write(&file, &whole[..len]).unwrap();
        let _ = f.repo().index().unwrap();
    }
    fs::write(&file, b"DIRC\0\0\0\x02\xff\xff\xff\xff").unwrap();
    assert!(f.repo().index().unwrap().is_err());
}
