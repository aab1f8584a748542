//! A walk through a tree, beside the index that it had when it was filled: what of it is still as it was, and
//! what does not belong there.
//!
//! A large tree is walked by several threads, folder by folder: nearly all of the time is the system's, which says of
//! each file when it was last changed.

use super::index::Index;
use super::worktree::delete_tree;
use crate::durable;
use std::fs::{self, DirEntry, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// What git does not record of a folder.
#[derive(PartialEq, Eq)]
pub(super) struct Folder {
    mode: u32,
    attributes: Vec<u8>,
}

impl Folder {
    fn of(path: &Path) -> io::Result<Folder> {
        let mode = mode(&fs::symlink_metadata(path)?);
        Ok(Folder { mode, attributes: attributes(path)? })
    }

    /// What one is like that is made now in this place.
    pub(super) fn made_in(place: &Path) -> io::Result<Folder> {
        let example = place.join(durable::unique_name());
        fs::create_dir(&example)?;
        let folder = Folder::of(&example);
        fs::remove_dir(&example)?;
        folder
    }
}

fn mode(meta: &Metadata) -> u32 {
    meta.permissions().mode() & 0o7777
}

/// The names of extended attributes, access lists among them; those of the kernel's own are passed over.
#[cfg(target_os = "linux")]
fn attributes(path: &Path) -> io::Result<Vec<u8>> {
    let mut names = vec![0; 4096];
    let length = match rustix::fs::llistxattr(path, names.as_mut_slice()) {
        Err(rustix::io::Errno::NOTSUP) => 0,
        other => other?,
    };
    names.truncate(length);
    let own = names.split(|b| *b == 0).filter(|name| !name.starts_with(b"security."));
    Ok(own.collect::<Vec<_>>().join(&0))
}

#[cfg(not(target_os = "linux"))]
fn attributes(_: &Path) -> io::Result<Vec<u8>> {
    Ok(Vec::new())
}

/// How a walk takes what does not belong into a tree.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Manner {
    /// Counts it, but for the link to a git dir.
    Looks,
    /// Counts it.
    LooksAtBare,
    /// Removes it.
    Strips,
}

/// What a walk has found.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Found<'a> {
    /// Files of the index that are not there, or not as they were.
    pub differing: Vec<&'a [u8]>,
    /// How much does not belong there, or is a folder of another kind.
    pub foreign: usize,
}

/// A walk through a tree.
pub(super) struct Walk<'a> {
    index: &'a Index,
    written: (i64, i64),
    folder: Folder,
    manner: Manner,
    /// Which of the index's files are there as they were.
    same: Vec<AtomicBool>,
    foreign: AtomicUsize,
}

/// A folder to go through. `path` is the folder's in the tree, with a slash at its end; empty for the tree itself.
struct Visit {
    at: PathBuf,
    path: Vec<u8>,
    /// Not a submodule's: nothing belongs there.
    ours: bool,
}

/// Trees with fewer files are walked sooner than threads are started.
const MANY: usize = 2_000;
/// More threads only wait for each other in the system.
const MOST_THREADS: usize = 4;

impl<'a> Walk<'a> {
    /// A walk beside `index`, which was written at `written`, of a tree whose folders are all to be like `folder`.
    pub(super) fn new(index: &'a Index, written: (i64, i64), folder: Folder, manner: Manner) -> Self {
        let same = (0..index.len()).map(|_| AtomicBool::new(false)).collect();
        Walk { index, written, folder, manner, same, foreign: AtomicUsize::new(0) }
    }

    /// Goes through a tree.
    pub(super) fn through(self, tree: &Path) -> io::Result<Found<'a>> {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        let threads = if self.index.len() < MANY { 1 } else { cores().min(MOST_THREADS) };
        self.by(threads, tree)
    }

    fn by(self, threads: usize, tree: &Path) -> io::Result<Found<'a>> {
        let work = Work::new(Visit { at: tree.to_owned(), path: Vec::new(), ours: true });
        std::thread::scope(|scope| {
            let others: Vec<_> = (1..threads)
                .map(|_| std::thread::Builder::new().spawn_scoped(scope, || self.share(&work)))
                .collect();
            self.share(&work);
            // Waited for one by one: whoever forks next must be alone. One that could not be started is not missed.
            others.into_iter().flatten().for_each(|thread| drop(thread.join()));
        });
        work.outcome()?;
        let index = self.index;
        let not_same = self.same.into_iter().enumerate().filter(|(_, same)| !same.load(Ordering::Relaxed));
        let differing = not_same.filter_map(|(place, _)| index.at(place)).map(|entry| entry.name).collect();
        Ok(Found { differing, foreign: self.foreign.into_inner() })
    }

    /// Goes through folders until there are no more.
    fn share(&self, work: &Work) {
        while let Some(visit) = work.next() {
            let mut busy =
                Busy { work, below: Vec::new(), done: Err(io::Error::other("a walk was cut short")) };
            busy.done = self.go_through(visit, &mut busy.below);
        }
    }

    fn go_through(&self, visit: Visit, below: &mut Vec<Visit>) -> io::Result<()> {
        let Visit { at, mut path, ours } = visit;
        self.look_at_folder(&at)?;
        for entry in fs::read_dir(&at)? {
            let entry = entry?;
            let length = path.len();
            path.extend_from_slice(entry.file_name().as_bytes());
            self.entry(&entry, &mut path, ours, below)?;
            path.truncate(length);
        }
        Ok(())
    }

    fn look_at_folder(&self, at: &Path) -> io::Result<()> {
        let meta = fs::symlink_metadata(at)?;
        if !meta.is_dir() {
            return Err(io::Error::other("not a folder"));
        }
        if mode(&meta) != self.folder.mode {
            self.foreign.fetch_add(1, Ordering::Relaxed);
            if self.manner == Manner::Strips {
                fs::set_permissions(at, fs::Permissions::from_mode(self.folder.mode))?;
            }
        }
        if attributes(at)? != self.folder.attributes {
            let text = format!("{} has an access list or other attributes", at.display());
            return Err(io::Error::other(text));
        }
        Ok(())
    }

    fn entry(
        &self,
        entry: &DirEntry,
        path: &mut Vec<u8>,
        ours: bool,
        below: &mut Vec<Visit>,
    ) -> io::Result<()> {
        let found = entry.file_type()?;
        let place = self.index.place(path);
        let known = self.index.at(place).filter(|known| ours && known.name == path.as_slice());
        match known {
            Some(known) if known.is_module() && found.is_dir() => {
                self.same[place].store(true, Ordering::Relaxed);
                path.push(b'/');
                below.push(Visit { at: entry.path(), path: path.clone(), ours: false });
                return Ok(());
            }
            Some(known) if found.is_symlink() == known.is_link() && !found.is_dir() && !known.is_module() => {
                let meta = entry.metadata()?;
                if found.is_symlink() || found.is_file() {
                    let same = known.is_untouched(&meta, self.written);
                    self.same[place].store(same, Ordering::Relaxed);
                    return Ok(());
                }
            }
            None if ours && found.is_dir() => {
                path.push(b'/');
                let is_known =
                    self.index.at(self.index.place(path)).is_some_and(|e| e.name.starts_with(path));
                if is_known {
                    below.push(Visit { at: entry.path(), path: path.clone(), ours: true });
                    return Ok(());
                }
            }
            _ => {}
        }
        if self.manner == Manner::Looks && path == b".git" {
            return Ok(());
        }
        self.foreign.fetch_add(1, Ordering::Relaxed);
        match (self.manner, found.is_dir()) {
            (Manner::Looks | Manner::LooksAtBare, _) => Ok(()),
            (Manner::Strips, true) => delete_tree(&entry.path()),
            (Manner::Strips, false) => durable::remove_file(&entry.path()),
        }
    }
}

/// What is left to go through, shared by all threads of a walk.
struct Work {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    left: Vec<Visit>,
    /// How many threads go through a folder, and may find more.
    busy: usize,
    failed: Option<io::Error>,
}

impl Work {
    fn new(first: Visit) -> Work {
        let state = State { left: vec![first], busy: 0, failed: None };
        Work { state: Mutex::new(state), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next folder, once there is one; `None` when all is done, or one of us has failed.
    fn next(&self) -> Option<Visit> {
        let mut state = self.lock();
        loop {
            if state.failed.is_some() {
                return None;
            }
            if let Some(visit) = state.left.pop() {
                state.busy += 1;
                return Some(visit);
            }
            if state.busy == 0 {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn outcome(self) -> io::Result<()> {
        let state = self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        state.failed.map_or(Ok(()), Err)
    }
}

/// A thread that goes through a folder. When it is done, however it ends, the others hear of it.
struct Busy<'a> {
    work: &'a Work,
    below: Vec<Visit>,
    done: io::Result<()>,
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        let mut state = self.work.lock();
        state.busy -= 1;
        state.left.append(&mut self.below);
        if let Err(e) = std::mem::replace(&mut self.done, Ok(())) {
            state.failed.get_or_insert(e);
        }
        drop(state);
        self.work.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::git::oid::ObjectFormat;
    use std::time::SystemTime;

    const FILES: usize = 300;

    /// A repository of some folders, and what its index says.
    fn tree() -> (tempfile::TempDir, Index) {
        let dir = tempfile::tempdir().unwrap();
        let git = |args: &[&str]| {
            let done = std::process::Command::new("git").arg("-C").arg(dir.path()).args(args).status();
            assert!(done.unwrap().success());
        };
        git(&["init", "-q"]);
        for n in 0..FILES {
            let folder = dir.path().join(format!("a{}/b{}", n % 7, n % 11));
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join(n.to_string()), "x").unwrap();
        }
        git(&["add", "-A"]);
        let index = Index::read(&dir.path().join(".git/index"), ObjectFormat::Sha1).unwrap();
        // Like a worktree of git's, which has a link there; and not with the mode of a temporary folder.
        fs::remove_dir_all(dir.path().join(".git")).unwrap();
        fs::write(dir.path().join(".git"), "gitdir: x").unwrap();
        fs::set_permissions(dir.path(), fs::metadata(dir.path().join("a0")).unwrap().permissions()).unwrap();
        (dir, index)
    }

    fn later() -> (i64, i64) {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        (now.as_secs().cast_signed() + 10, 0)
    }

    #[test]
    fn several_threads_find_what_one_finds() {
        let (dir, index) = tree();
        let path = dir.path();
        let look = |threads| {
            let folder = Folder::made_in(path.parent().unwrap()).unwrap();
            Walk::new(&index, later(), folder, Manner::Looks).by(threads, path).unwrap()
        };
        assert_eq!(look(1), Found { differing: Vec::new(), foreign: 0 });
        assert_eq!(look(4), look(1));
        fs::remove_file(path.join("a1/b1/1")).unwrap();
        fs::write(path.join("a2/b2/2"), "yy").unwrap();
        fs::create_dir(path.join("a3/empty")).unwrap();
        fs::write(path.join("a4/extra"), "").unwrap();
        let one = look(1);
        assert_eq!((one.differing.as_slice(), one.foreign), (&[&b"a1/b1/1"[..], b"a2/b2/2"][..], 2));
        for threads in [2, 3, 8, 64] {
            assert_eq!(look(threads), one);
        }
    }

    #[test]
    fn a_fault_in_one_folder_ends_the_walk_of_all() {
        let (dir, index) = tree();
        let folder = Folder { mode: 0o700, attributes: b"none has this".to_vec() };
        let walk = Walk::new(&index, later(), folder, Manner::Looks);
        let told = walk.by(4, dir.path()).unwrap_err().to_string();
        assert!(told.ends_with("has an access list or other attributes"), "{told}");
    }
}
