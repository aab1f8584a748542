//! Writing, moving and removing files so that a reader sees the old or the new, never a half.

use super::fault;
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How many files are held open at once, to be synced.
const MANY: usize = 64;

/// How many of them are waited for at once: a disk takes what it is asked for together as one.
const AT_ONCE: usize = 4;

/// A disk that takes longer for one file is waited for by several threads.
const SLOW: Duration = Duration::from_micros(100);

/// Returns a name that no other file of this machine's processes has: for files being written.
pub fn unique_name() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_nanos());
    format!(".{now:x}-{:x}-{:x}.tmp", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Puts `bytes` at `path`, whatever was there, and returns once that survives power loss.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let tmp = write_tmp(path, bytes, true)?;
    rename_or_clean(&tmp, path)?;
    sync_parent(path)
}

/// Puts `bytes` at `path` whole, without waiting for the disk.
pub fn replace_unsynced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let tmp = write_tmp(path, bytes, false)?;
    rename_or_clean(&tmp, path)
}

/// Most bytes that [`overwrite`] takes: what a kernel copies into a file's first page, it copies before it looks
/// whether the writer was killed.
pub const PAGE: usize = 4096;

/// Puts `bytes` over the beginning of the file at `path`, without waiting for the disk. A kill does not cut it
/// short; who reads at the same time may see half of it.
pub fn overwrite(path: &Path, bytes: &[u8]) -> io::Result<()> {
    debug_assert!(bytes.len() <= PAGE);
    fault::point("write")?;
    OpenOptions::new().write(true).open(path)?.write_all(bytes)
}

/// Puts `bytes` at `path` if nothing is there, durably. Says `false`, and changes nothing, if something is.
pub fn create_new(path: &Path, bytes: &[u8]) -> io::Result<bool> {
    let made = create(path, bytes, true)?;
    // The loser must not acknowledge what the winner has not yet synced.
    sync_parent(path)?;
    Ok(made)
}

/// Like [`create_new`], without waiting for the disk.
pub fn create_new_unsynced(path: &Path, bytes: &[u8]) -> io::Result<bool> {
    create(path, bytes, false)
}

fn create(path: &Path, bytes: &[u8], sync: bool) -> io::Result<bool> {
    let tmp = write_tmp(path, bytes, sync)?;
    match rename_noreplace(&tmp, path) {
        Ok(()) => Ok(true),
        Err(e) => {
            let _ = fs::remove_file(&tmp);
            if e.kind() == io::ErrorKind::AlreadyExists { Ok(false) } else { Err(e) }
        }
    }
}

/// Renames `from` to `to` on one file system; fails with `AlreadyExists` rather than replace anything.
///
/// `renameat2(RENAME_NOREPLACE)` on Linux, `renamex_np(RENAME_EXCL)` on macOS: one step, no window.
pub fn rename_noreplace(from: &Path, to: &Path) -> io::Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    fault::point("rename")?;
    Ok(renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE)?)
}

/// Lets two names of one file system change places, in one step: both are there at any time.
///
/// `renameat2(RENAME_EXCHANGE)` on Linux, `renamex_np(RENAME_SWAP)` on macOS; fails where there is no such step.
pub fn exchange(one: &Path, other: &Path) -> io::Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    fault::point("rename")?;
    Ok(renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE)?)
}

/// Moves a file to `to`, which must not exist, also across file systems (copied, synced, then removed).
pub fn move_across(from: &Path, to: &Path) -> io::Result<()> {
    match rename_noreplace(from, to) {
        Err(e) if e.kind() == io::ErrorKind::CrossesDevices => {
            if !create_new(to, &fs::read(from)?)? {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            remove_file(from)
        }
        other => other,
    }
}

/// Appends `bytes` in one write. The file is created private (0600).
pub fn append(path: &Path, bytes: &[u8]) -> io::Result<()> {
    fault::point("append")?;
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)?.write_all(bytes)
}

/// Makes sure that a private (0700) folder is there, with its parents.
pub fn ensure_dir(path: &Path) -> io::Result<()> {
    fault::point("mkdir")?;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Removes a file; one that is gone already is as good.
pub fn remove_file(path: &Path) -> io::Result<()> {
    fault::point("unlink")?;
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

/// Removes a folder of ours and all in it; one that is gone already is as good. Links are not followed.
pub fn remove_dir_all(path: &Path) -> io::Result<()> {
    fault::point("rmtree")?;
    match fs::remove_dir_all(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

/// Waits until the entries of a folder (creations, renames, removals) survive power loss.
pub fn sync_dir(dir: &Path) -> io::Result<()> {
    fault::point("sync-dir")?;
    File::open(dir)?.sync_all()
}

/// Waits until the content of a file survives power loss.
pub fn sync_file(path: &Path) -> io::Result<()> {
    fault::point("sync-file")?;
    File::open(path)?.sync_data()
}

/// Waits until all that was written to the file system that a folder is on survives power loss, whoever wrote it. Says
/// `false`, and does nothing, where there is no such call.
pub fn sync_file_system(_dir: &Path) -> io::Result<bool> {
    #[cfg(target_os = "linux")]
    {
        fault::point("sync-fs")?;
        rustix::fs::syncfs(File::open(_dir)?)?;
        Ok(true)
    }
    #[cfg(not(target_os = "linux"))]
    Ok(false)
}

/// Waits until files, and the folders between them and `root`, survive power loss. `root` itself is not waited
/// for.
///
/// The disk is told of many before any is waited for, and several are waited for at once. `look` is called with each
/// file meanwhile, in order.
pub fn sync_below(
    root: &Path,
    files: &BTreeSet<PathBuf>,
    mut look: impl FnMut(&Path, &File) -> io::Result<()>,
) -> io::Result<()> {
    let between = |path: &PathBuf| -> Vec<PathBuf> {
        let folders = path.ancestors().skip(1).take_while(|dir| dir.starts_with(root) && *dir != root);
        folders.map(Path::to_owned).collect()
    };
    let folders: BTreeSet<PathBuf> = files.iter().flat_map(between).collect();
    let all: Vec<(&PathBuf, bool)> =
        files.iter().map(|f| (f, false)).chain(folders.iter().map(|f| (f, true))).collect();
    for some in all.chunks(MANY) {
        let mut open = Vec::with_capacity(some.len());
        for (path, is_folder) in some {
            fault::point(if *is_folder { "sync-dir" } else { "sync-file" })?;
            let file = File::open(path)?;
            start_writing(&file);
            open.push((file, *is_folder));
        }
        for ((path, is_folder), (file, _)) in some.iter().zip(&open) {
            if !is_folder {
                look(path, file)?;
            }
        }
        wait_for(&open)?;
    }
    Ok(())
}

/// Syncs what is open. Where the first takes its time, the others are shared among threads; where it does not, as in
/// memory, the threads would cost more than they save.
fn wait_for(open: &[(File, bool)]) -> io::Result<()> {
    let sync = |some: &[(File, bool)]| {
        some.iter().try_for_each(|(file, whole)| if *whole { file.sync_all() } else { file.sync_data() })
    };
    let (first, rest) = open.split_at(1.min(open.len()));
    let began = Instant::now();
    sync(first)?;
    if began.elapsed() < SLOW {
        return sync(rest);
    }
    let (own, others) = rest.split_at(rest.len().div_ceil(AT_ONCE));
    std::thread::scope(|scope| {
        let beside: Vec<_> = others
            .chunks(own.len().max(1))
            .map(|some| (some, std::thread::Builder::new().spawn_scoped(scope, move || sync(some))))
            .collect();
        let mut done = sync(own);
        for (some, thread) in beside {
            // Where there are no more threads, it is done here.
            let one =
                thread.map_or_else(|_| sync(some), |thread| thread.join().unwrap_or_else(|_| sync(some)));
            done = done.and(one);
        }
        done
    })
}

/// Begins to write to the disk what the system still holds back. Only that it is sooner: nothing relies on it.
fn start_writing(_file: &File) {
    #[cfg(target_os = "linux")]
    {
        use std::os::fd::AsRawFd as _;
        // SAFETY: the descriptor is open for as long as the call takes.
        unsafe { libc::sync_file_range(_file.as_raw_fd(), 0, 0, libc::SYNC_FILE_RANGE_WRITE) };
    }
}

fn sync_parent(path: &Path) -> io::Result<()> {
    sync_dir(parent(path))
}

fn parent(path: &Path) -> &Path {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn write_tmp(path: &Path, bytes: &[u8], sync: bool) -> io::Result<PathBuf> {
    let tmp = parent(path).join(unique_name());
    let written = (|| {
        fault::point("create")?;
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&tmp)?;
        fault::point("write")?;
        file.write_all(bytes)?;
        if sync {
            fault::point("sync")?;
            file.sync_data()?;
        }
        Ok(())
    })();
    match written {
        Ok(()) => Ok(tmp),
        Err(e) => {
            let _ = fs::remove_file(&tmp);
            Err(e)
        }
    }
}

fn rename_or_clean(tmp: &Path, path: &Path) -> io::Result<()> {
    let moved = fault::point("rename").and_then(|()| fs::rename(tmp, path));
    if moved.is_err() {
        let _ = fs::remove_file(tmp);
    }
    moved
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dir() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    #[test]
    fn replace_puts_the_whole_file_and_leaves_no_other() {
        let dir = dir();
        let path = dir.path().join("a");
        replace(&path, b"one").unwrap();
        replace(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn replace_does_not_follow_a_symlink() {
        let dir = dir();
        let (target, link) = (dir.path().join("target"), dir.path().join("link"));
        fs::write(&target, "kept").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        replace(&link, b"new").unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"kept");
        assert!(fs::symlink_metadata(&link).unwrap().is_file());
    }

    #[test]
    fn create_new_says_who_won_and_keeps_the_first() {
        let dir = dir();
        let path = dir.path().join("a");
        assert!(create_new(&path, b"one").unwrap());
        assert!(!create_new(&path, b"two").unwrap());
        assert_eq!(fs::read(&path).unwrap(), b"one");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn rename_never_replaces() {
        let dir = dir();
        let (a, b) = (dir.path().join("a"), dir.path().join("b"));
        fs::write(&a, "a").unwrap();
        fs::write(&b, "b").unwrap();
        assert_eq!(rename_noreplace(&a, &b).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&b).unwrap(), b"b");
    }

    #[test]
    fn two_folders_change_places() {
        let dir = dir();
        let (a, b) = (dir.path().join("a"), dir.path().join("b"));
        fs::create_dir(&a).unwrap();
        fs::write(a.join("of-a"), "").unwrap();
        fs::create_dir(&b).unwrap();
        exchange(&a, &b).unwrap();
        assert!(b.join("of-a").exists() && !a.join("of-a").exists());
        assert!(exchange(&a, &dir.path().join("none")).is_err());
    }

    #[test]
    fn a_failed_write_leaves_nothing() {
        let dir = dir();
        assert!(replace(&dir.path().join("no/such/folder/a"), b"x").is_err());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_lock_excludes_and_is_freed_on_drop() {
        let dir = dir();
        let lock = super::super::Lock::at(dir.path().join("lock"));
        assert!(!lock.is_held().unwrap());
        let held = lock.take().unwrap();
        assert!(lock.is_held().unwrap());
        assert!(lock.try_take().unwrap().is_none());
        drop(held);
        assert!(lock.try_take().unwrap().is_some());
    }

    #[test]
    fn a_lock_file_that_was_replaced_guards_nothing() {
        let dir = dir();
        let path = dir.path().join("lock");
        let lock = super::super::Lock::at(&path);
        let _old = lock.take().unwrap();
        fs::remove_file(&path).unwrap();
        assert!(lock.try_take().unwrap().is_some(), "the new file at the path is the lock");
    }
}
