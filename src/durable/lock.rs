//! Kernel locks on files that are never replaced while somebody may hold them.
//!
//! A lock is `flock` on an open file: the kernel frees it when the last process that has the
//! descriptor is gone, so there is no stale lock and nothing to clean up. A lock can be handed to a
//! child by letting it inherit the descriptor; the parent then only closes its copy, since unlocking
//! would free the child's lock too.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A lock file's place; nothing is held yet.
#[derive(Debug, Clone)]
pub struct Lock {
    path: PathBuf,
}

/// A lock that this process holds. Dropping it closes the descriptor.
#[derive(Debug)]
pub struct Held {
    file: File,
    path: PathBuf,
}

impl Lock {
    /// Names the lock file; it is created when it is first taken.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Lock { path: path.into() }
    }

    /// Takes the lock, waiting as long as it takes.
    ///
    /// Fails with `NotFound` if the lock's folder is not there (for a task: it was pruned).
    pub fn take(&self) -> io::Result<Held> {
        loop {
            let file = self.open()?;
            file.lock()?;
            if same_file(&file, &self.path)? {
                return Ok(Held { file, path: self.path.clone() });
            }
        }
    }

    /// Takes the lock if nobody holds it.
    pub fn try_take(&self) -> io::Result<Option<Held>> {
        loop {
            let file = self.open()?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(e)) => return Err(e),
            }
            if same_file(&file, &self.path)? {
                return Ok(Some(Held { file, path: self.path.clone() }));
            }
        }
    }

    /// Says whether somebody holds the lock now. A lock file that is not there is not held.
    pub fn is_held(&self) -> io::Result<bool> {
        let file = match OpenOptions::new().read(true).write(true).open(&self.path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(e) => return Err(e),
        };
        match file.try_lock_shared() {
            Ok(()) => Ok(false),
            Err(TryLockError::WouldBlock) => Ok(true),
            Err(TryLockError::Error(e)) => Err(e),
        }
    }

    fn open(&self) -> io::Result<File> {
        super::fault::point("lock-open")?;
        OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&self.path)
    }
}

impl Held {
    /// Takes over a locked descriptor that the parent process left open for us.
    ///
    /// # Safety
    /// `fd` must be an open descriptor that nothing else in this process owns.
    pub unsafe fn from_inherited(fd: RawFd, path: impl Into<PathBuf>) -> io::Result<Self> {
        // SAFETY: the caller vouches for it.
        let owned = unsafe { OwnedFd::from_raw_fd(fd) };
        let held = Held { file: File::from(owned), path: path.into() };
        rustix::io::fcntl_setfd(&held.file, rustix::io::FdFlags::CLOEXEC)?;
        if !same_file(&held.file, &held.path)? {
            return Err(io::Error::new(
                io::ErrorKind::NotFound,
                "the inherited lock is not the file at its path",
            ));
        }
        // The same open file may lock again; a descriptor that was never locked takes the lock here.
        match held.file.try_lock() {
            Ok(()) => Ok(held),
            Err(TryLockError::WouldBlock) => {
                Err(io::Error::new(io::ErrorKind::WouldBlock, "the lock is held elsewhere"))
            }
            Err(TryLockError::Error(e)) => Err(e),
        }
    }

    /// Writes `bytes` at `offset` into the lock file itself, and returns once that survives power loss.
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        super::fault::point("append")?;
        self.file.write_all_at(bytes, offset)?;
        super::fault::point("sync")?;
        self.file.sync_data()
    }

    /// The path of the lock file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl AsFd for Held {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// A lock on a file that was unlinked or replaced meanwhile guards nothing.
fn same_file(file: &File, path: &Path) -> io::Result<bool> {
    let ours = file.metadata()?;
    match std::fs::symlink_metadata(path) {
        Ok(theirs) => Ok(ours.dev() == theirs.dev() && ours.ino() == theirs.ino()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e),
    }
}
