//! Clones: a tree with a git dir and an object store of its own, which shares nothing with the user's
//! repository, so that nothing that a worker does in it can reach that.
//!
//! Git's own `clone` would leave a remote that a worker can push to, and hard links to the user's objects
//! that it can write through. So the objects are copied (a file system that can share content does), the
//! user's branches and tags are written down as they are, and no hook and no remote comes along, but the
//! one that a partial clone must fetch from.
//!
//! What a worker commits stays in the clone until it has ended. Then [`bring`] reads its refs as text and
//! takes the objects over: none of the clone's settings count, and every object is checked.

use super::BRANCHES;
use super::bytes;
use super::config;
use super::oid::{ObjectFormat, Oid};
use super::repo::Repo;
use super::runner::{Git, GitError};
use super::snapshot::LeftOut;
use super::trusted::content_entries;
use super::view::View;
use super::worktree::{self, Worktree};
use crate::durable::{self, GoOn};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Seek as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often a store that is repacked while it is copied is read again.
const AGAIN: u32 = 5;
/// More refs and lines of reflogs than this are not read.
pub(super) const MOST_TIPS: usize = 100_000;
/// Largest file of refs or reflogs that is read.
const MOST_BYTES: u64 = 64 << 20;
/// Taking over what a worker committed.
const BRING_DEADLINE: Duration = Duration::from_secs(1800);

/// Bytes that the objects of a repository take, and so a clone of it.
pub fn size(repo: &Repo) -> io::Result<u64> {
    let mut bytes = 0;
    for store in stores(&repo.common.join("objects"))? {
        for entry in walkdir::WalkDir::new(store).into_iter().flatten().filter(|e| e.file_type().is_file()) {
            bytes += entry.metadata().map_or(0, |m| m.len());
        }
    }
    Ok(bytes)
}

/// Makes a clone at `path`, where nothing may be, on a branch of task `id` at `start`, and fills it.
pub fn make(
    repo: &Repo,
    path: &Path,
    id: &str,
    start: &Oid,
    workers: u32,
    go_on: GoOn<'_>,
) -> Result<Worktree, GitError> {
    let failed = |e: io::Error| GitError::io("clone", &path.display().to_string(), &e);
    let tree =
        Worktree { path: path.to_owned(), git_dir: path.join(".git"), branch: format!("{BRANCHES}{id}") };
    let refs = repo
        .shared()
        .reads("for-each-ref")
        .args(["--format=%(objectname) %(refname) %(symref)", "refs/heads", "refs/tags", "refs/remotes"])
        .run()?;
    let entries = config::list(&Git::at(&repo.git_dir))?;
    write_git_dir(repo, &tree, start, &refs, &entries).map_err(failed)?;
    copy_objects(&repo.common.join("objects"), &tree.git_dir.join("objects"), go_on).map_err(failed)?;
    // The user's settings and filters decide what the files look like; the objects are the clone's own, so
    // that what is missing there is found now.
    let git = Git::at(&repo.git_dir)
        .work_tree(path)
        .index(tree.git_dir.join("index"))
        .objects(tree.git_dir.join("objects"));
    worktree::fill(&git, start, workers, go_on)?;
    Ok(tree)
}

fn write_git_dir(
    repo: &Repo,
    tree: &Worktree,
    start: &Oid,
    refs: &[u8],
    entries: &[config::Entry],
) -> io::Result<()> {
    let dir = &tree.git_dir;
    for folder in ["objects/pack", "objects/info", "refs/heads", "refs/tags", "info"] {
        durable::ensure_dir(&dir.join(folder))?;
    }
    let put = |name: &str, bytes: &[u8]| durable::replace_unsynced(&dir.join(name), bytes);
    put("HEAD", format!("ref: {}\n", tree.branch).as_bytes())?;
    let mut packed = b"# pack-refs with: sorted \n".to_vec();
    for line in refs.split(|b| *b == b'\n').filter(|line| !line.is_empty()) {
        let mut words = line.splitn(3, |b| *b == b' ');
        let (oid, name, symref) = (words.next(), words.next(), words.next());
        let (Some(oid), Some(name), true) = (oid, name, symref.unwrap_or_default().is_empty()) else {
            continue;
        };
        if !name.starts_with(BRANCHES.as_bytes()) {
            packed.extend([oid, b" ", name, b"\n"].concat());
        }
    }
    put("packed-refs", &packed)?;
    let branch = dir.join(&tree.branch);
    durable::ensure_dir(branch.parent().unwrap_or(dir))?;
    durable::replace_unsynced(&branch, format!("{start}\n").as_bytes())?;
    put("config", &settings(repo.format, entries))?;
    for (from, name) in [
        (&repo.common, "info/exclude"),
        (&repo.common, "info/attributes"),
        (&repo.common, "shallow"),
        (&repo.git_dir, "info/sparse-checkout"),
    ] {
        match fs::read(from.join(name)) {
            Ok(bytes) => put(name, &bytes)?,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// The clone's own configuration: what decides content, and who commits are by.
fn settings(format: ObjectFormat, entries: &[config::Entry]) -> Vec<u8> {
    let (mut kept, partial) = content_entries(entries);
    let mut set = |key: &str, value: &[u8]| {
        kept.push(config::Entry { key: key.into(), value: Some(value.to_vec()) });
    };
    let extended = format == ObjectFormat::Sha256 || partial;
    set("core.repositoryformatversion", if extended { b"1" } else { b"0" });
    set("core.bare", b"false");
    set("core.logallrefupdates", b"true");
    if format == ObjectFormat::Sha256 {
        set("extensions.objectformat", b"sha256");
    }
    config::write(&kept)
}

/// Copies every object of a store and of those that it borrows from.
fn copy_objects(from: &Path, to: &Path, go_on: GoOn<'_>) -> io::Result<()> {
    let all = stores(from)?;
    // Loose ones first: a repack that goes on meanwhile moves them into packs, never back.
    for store in &all {
        copy_below(store, to, &|path| !path.starts_with("pack"), true, go_on)?;
    }
    for store in &all {
        let mut tries = 0;
        loop {
            match copy_below(store, to, &|path| path.starts_with("pack"), false, go_on) {
                // It went into another pack.
                Err(e) if e.kind() == io::ErrorKind::NotFound && tries < AGAIN => tries += 1,
                other => break other?,
            }
        }
    }
    Ok(())
}

/// Copies the files of a store that are wanted and not there yet.
fn copy_below(
    store: &Path,
    to: &Path,
    wanted: &dyn Fn(&Path) -> bool,
    may_go: bool,
    go_on: GoOn<'_>,
) -> io::Result<()> {
    for entry in walkdir::WalkDir::new(store).min_depth(1).sort_by_file_name() {
        let entry = match entry.map_err(io::Error::from) {
            Err(e) if e.kind() == io::ErrorKind::NotFound && may_go => continue,
            other => other?,
        };
        let path = entry.path().strip_prefix(store).unwrap_or(entry.path());
        let name = entry.file_name().as_encoded_bytes();
        let unfinished = name.starts_with(b"tmp_") || name.ends_with(b".lock") || name.ends_with(b".keep");
        if !entry.file_type().is_file() || !wanted(path) || unfinished || path == Path::new("info/alternates")
        {
            continue;
        }
        let target = to.join(path);
        if fs::symlink_metadata(&target).is_ok() {
            continue;
        }
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent)?;
        }
        match durable::copy_file(entry.path(), &target, go_on) {
            Err(e) if e.kind() == io::ErrorKind::NotFound && may_go => {}
            other => drop(other?),
        }
    }
    Ok(())
}

/// An object store and those that it borrows from.
fn stores(first: &Path) -> io::Result<Vec<PathBuf>> {
    let mut all = vec![first.canonicalize()?];
    let mut at = 0;
    while let Some(store) = all.get(at).cloned() {
        let text = fs::read(store.join("info/alternates")).unwrap_or_default();
        for line in text.split(|b| *b == b'\n').filter(|l| !l.is_empty() && !l.starts_with(b"#")) {
            // One that is gone is git's to complain of.
            if let Ok(path) = store.join(bytes::to_path(line)).canonicalize()
                && !all.contains(&path)
            {
                all.push(path);
            }
        }
        at += 1;
    }
    Ok(all)
}

/// What of a clone was taken over.
#[derive(Debug, Default)]
pub(super) struct Brought {
    /// Where the worker left the task's branch.
    pub head: Option<Oid>,
    /// Every commit at a ref or in a reflog of the clone that no ref of the repository holds.
    pub tips: Vec<Oid>,
    /// What could not be taken over.
    pub missing: Vec<LeftOut>,
}

/// Takes over all commits of a clone that the repository lacks. No process may still write there.
///
/// They are held by no ref of the repository: that is the caller's next step.
pub(super) fn bring(view: &View) -> Result<Brought, GitError> {
    let tree = view.worktree();
    let objects = tree.git_dir.join("objects");
    let mut brought = Brought::default();
    let mut lost = |why: &str| {
        let why = why.to_owned();
        brought.missing.push(LeftOut { path: PathBuf::from(".git"), why });
    };
    let is_dir = |path: &Path| fs::symlink_metadata(path).is_ok_and(|m| m.is_dir());
    if fs::symlink_metadata(&tree.git_dir).is_err() {
        lost("is gone, and with it what was only there");
        return Ok(brought);
    }
    if !is_dir(&tree.git_dir) || !is_dir(&objects) || tree.git_dir.join("reftable").exists() {
        lost("is not as it was made, so its commits cannot be read");
        return Ok(brought);
    }
    let tips = match Tips::read(&tree.git_dir) {
        Ok(tips) => tips,
        Err(e) => {
            lost(&format!("its refs cannot be read: {e}"));
            return Ok(brought);
        }
    };
    let theirs = Git::at(&view.dir).objects(&objects);
    let mut names = String::new();
    for tip in &tips.all {
        names.push_str(&format!("{tip}^{{commit}}\n"));
    }
    let out = theirs
        .reads("cat-file")
        .args(["--batch-check=%(objecttype) %(objectname)"])
        .env("GIT_NO_LAZY_FETCH", "1")
        .stdin(names)
        .run()?;
    let known: Vec<Option<Oid>> =
        out.split(|b| *b == b'\n').map(|line| line.strip_prefix(b"commit ").and_then(Oid::parse)).collect();
    let peeled: BTreeMap<&Oid, &Oid> =
        tips.all.iter().zip(&known).filter_map(|(tip, commit)| Some((tip, commit.as_ref()?))).collect();
    for (name, tip) in tips.refs.iter().filter(|(_, tip)| !peeled.contains_key(tip)) {
        let why = format!("{} is at {tip}, which is not there", String::from_utf8_lossy(name));
        brought.missing.push(LeftOut { path: PathBuf::from(".git"), why });
    }
    let head =
        tips.refs.get(tree.branch.as_bytes()).and_then(|tip| peeled.get(tip)).map(|oid| (*oid).clone());
    let commits: BTreeSet<&Oid> = peeled.values().copied().collect();
    let (new, edge) = new_commits(view, &objects, commits.iter().copied())?;
    let tips: Vec<Oid> = commits.into_iter().filter(|oid| new.contains(*oid)).cloned().collect();
    if !tips.is_empty() {
        match take_over(view, &objects, &tips, &edge) {
            Ok(()) => {}
            Err(e) if e.is_of_the_machine() => return Err(e),
            Err(e) => {
                let why = format!("its commits cannot be taken over: {e}");
                brought.missing.push(LeftOut { path: PathBuf::from(".git"), why });
                // What is the repository's own is there all the same.
                return Ok(Brought { head: head.filter(|oid| !new.contains(oid)), ..brought });
            }
        }
    }
    Ok(Brought { head, tips, ..brought })
}

/// Lists the commits that these have and no ref of the repository has, and those that they stand on.
fn new_commits<'a>(
    view: &View,
    objects: &Path,
    commits: impl Iterator<Item = &'a Oid>,
) -> Result<(BTreeSet<Oid>, Vec<Oid>), GitError> {
    let list: String = commits.map(|oid| format!("{oid}\n")).collect();
    let out = both(view, objects)
        .reads("rev-list")
        .args(["--boundary", "--stdin", "--not", "--all"])
        .env("GIT_ALTERNATE_OBJECT_DIRECTORIES", alternate(&view.record.common.join("objects")))
        .env("GIT_NO_LAZY_FETCH", "1")
        .stdin(list)
        .deadline(BRING_DEADLINE)
        .run()?;
    let (mut new, mut edge) = (BTreeSet::new(), Vec::new());
    for line in out.split(|b| *b == b'\n') {
        match line.strip_prefix(b"-") {
            Some(oid) => edge.extend(Oid::parse(oid)),
            None => new.extend(Oid::parse(line)),
        }
    }
    Ok((new, edge))
}

/// Packs what is new and unpacks it into the repository, which checks every object.
fn take_over(view: &View, objects: &Path, tips: &[Oid], edge: &[Oid]) -> Result<(), GitError> {
    let path = view.dir.join(durable::unique_name());
    let io = |e: io::Error| GitError::io("pack-objects", &path.display().to_string(), &e);
    let mut file = File::options().read(true).write(true).create_new(true).open(&path).map_err(io)?;
    // Nobody needs its name any more, also after a crash.
    durable::remove_file(&path).map_err(io)?;
    let mut wanted = String::new();
    tips.iter().for_each(|oid| wanted.push_str(&format!("{oid}\n")));
    edge.iter().for_each(|oid| wanted.push_str(&format!("^{oid}\n")));
    both(view, objects)
        .reads("pack-objects")
        .args(["--revs", "--stdout", "-q"])
        .env("GIT_ALTERNATE_OBJECT_DIRECTORIES", alternate(&view.record.common.join("objects")))
        .env("GIT_NO_LAZY_FETCH", "1")
        .stdin(wanted)
        .deadline(BRING_DEADLINE)
        .run_to(&file)?;
    file.rewind().map_err(io)?;
    view.shared()
        .writes("index-pack")
        .args(["--stdin", "--strict"])
        .stdin_from(file)
        .deadline(BRING_DEADLINE)
        .run()
        .map(drop)
}

/// The repository's refs, with the clone's objects.
fn both(view: &View, objects: &Path) -> Git {
    view.shared().objects(objects)
}

/// A path as the list of alternates takes it: quoted, since a colon parts it.
fn alternate(path: &Path) -> std::ffi::OsString {
    let mut quoted = b"\"".to_vec();
    for byte in bytes::of_path(path) {
        if b"\"\\".contains(byte) {
            quoted.push(b'\\');
        }
        quoted.push(*byte);
    }
    quoted.push(b'"');
    bytes::to_path(&quoted).into_os_string()
}

/// Where the refs of a clone are, and where they have been.
struct Tips {
    refs: BTreeMap<Vec<u8>, Oid>,
    all: BTreeSet<Oid>,
}

impl Tips {
    /// Reads them as text, following no link.
    fn read(git_dir: &Path) -> io::Result<Tips> {
        let mut tips = Tips { refs: BTreeMap::new(), all: BTreeSet::new() };
        for line in read(&git_dir.join("packed-refs"))?.split(|b| *b == b'\n') {
            if let Some(at) = line.iter().position(|b| *b == b' ')
                && let Some(oid) = Oid::parse(&line[..at])
            {
                tips.refs.insert(line[at + 1..].to_vec(), oid);
            }
        }
        for path in files(&git_dir.join("refs"))?.into_iter().chain([git_dir.join("HEAD")]) {
            if let Some(oid) = Oid::parse(&read(&path)?) {
                let name = path.strip_prefix(git_dir).unwrap_or(&path);
                tips.refs.insert(bytes::of_path(name).to_vec(), oid);
            }
        }
        tips.all.extend(tips.refs.values().cloned());
        // A stash is a stack of which the ref names the top alone; and what was amended was work, too.
        for path in files(&git_dir.join("logs"))? {
            for line in read(&path)?.split(|b| *b == b'\n') {
                tips.all.extend(line.split(|b| *b == b' ').nth(1).and_then(Oid::parse));
            }
        }
        tips.all.retain(|oid| !oid.is_null());
        if tips.all.len() > MOST_TIPS {
            return Err(io::Error::other(format!("there are more than {MOST_TIPS}")));
        }
        Ok(tips)
    }
}

fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    if !fs::symlink_metadata(folder).is_ok_and(|m| m.is_dir()) {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    for entry in walkdir::WalkDir::new(folder).min_depth(1) {
        let entry = entry.map_err(io::Error::from)?;
        if entry.file_type().is_file() {
            found.push(entry.into_path());
        }
        if found.len() > MOST_TIPS {
            return Err(io::Error::other(format!("there are more than {MOST_TIPS}")));
        }
    }
    Ok(found)
}

/// Reads a file where a worker can write. What is none (a link, a pipe that nobody writes to) is as if it were empty.
pub(super) fn read(path: &Path) -> io::Result<Vec<u8>> {
    match fs::symlink_metadata(path) {
        Ok(meta) if meta.is_file() && meta.len() <= MOST_BYTES => fs::read(path),
        Ok(meta) if meta.is_file() => Err(io::Error::other(format!("{} is too large", path.display()))),
        _ => Ok(Vec::new()),
    }
}
