//! Moving files in and out of a checkout without following a link.

use super::super::flush;
use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags, mkdirat, openat, renameat_with, statat, unlinkat};
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

/// What tells a file from another, and from itself after an edit. Renaming does not change it; the
/// device is not part of it, since its number may be another after a reboot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Print {
    ino: u64,
    size: i64,
    mode: u32,
    mtime: (i64, i64),
}

/// A folder whose content is reached without following links.
pub(super) struct Root {
    fd: OwnedFd,
    path: PathBuf,
}

impl Root {
    pub(super) fn open(path: &Path) -> io::Result<Root> {
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::empty())?;
        Ok(Root { fd, path: path.to_owned() })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the folder that holds `path`. Fails at a link, and at what is no folder.
    fn parent<'p>(&self, path: &'p Path, create: bool) -> io::Result<(OwnedFd, &'p OsStr)> {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let mut fd = self.fd.try_clone()?;
        for part in path.parent().unwrap_or(Path::new("")).components() {
            let Component::Normal(part) = part else { return Err(io::ErrorKind::InvalidInput.into()) };
            let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            fd = match openat(&fd, part, flags, Mode::empty()) {
                Err(rustix::io::Errno::NOENT) if create => {
                    match mkdirat(&fd, part, Mode::from_raw_mode(0o777)) {
                        Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                        Err(e) => return Err(e.into()),
                    }
                    openat(&fd, part, flags, Mode::empty())?
                }
                other => other?,
            };
        }
        Ok((fd, name))
    }

    /// Looks at what is at `path`; `None` if nothing is, or if no folder of ours leads there.
    pub(super) fn print(&self, path: &Path) -> io::Result<Option<Print>> {
        let (parent, name) = match self.parent(path, false) {
            Ok(found) => found,
            Err(e) if leads_nowhere(&e) => return Ok(None),
            Err(e) => return Err(e),
        };
        match statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(print(&stat))),
            Err(rustix::io::Errno::NOENT) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    /// Moves `path` here to `to` in `other`, where nothing may be.
    pub(super) fn move_to(&self, path: &Path, other: &Root, to: &Path) -> io::Result<()> {
        super::pass("land-move")?;
        let (from, name) = self.parent(path, false)?;
        let (into, new_name) = other.parent(to, true)?;
        Ok(renameat_with(from.as_fd(), name, into.as_fd(), new_name, RenameFlags::NOREPLACE)?)
    }

    /// Removes the folders above `path` that are empty, from the lowest up.
    pub(super) fn prune_above(&self, path: &Path) -> io::Result<()> {
        for folder in path.ancestors().skip(1).filter(|p| !p.as_os_str().is_empty()) {
            if !self.remove_empty(folder)? {
                break;
            }
        }
        Ok(())
    }

    /// Removes a folder in which there are only folders.
    pub(super) fn remove_hollow(&self, folder: &Path) -> io::Result<()> {
        let inside = match std::fs::read_dir(self.path.join(folder)) {
            Ok(entries) => entries.collect::<Result<Vec<_>, _>>()?,
            Err(e) if leads_nowhere(&e) => return Ok(()),
            Err(e) => return Err(e),
        };
        for entry in inside {
            if entry.file_type()?.is_dir() {
                self.remove_hollow(&folder.join(entry.file_name()))?;
            }
        }
        self.remove_empty(folder).map(drop)
    }

    fn remove_empty(&self, folder: &Path) -> io::Result<bool> {
        let (parent, name) = match self.parent(folder, false) {
            Ok(found) => found,
            Err(e) if leads_nowhere(&e) => return Ok(false),
            Err(e) => return Err(e),
        };
        match unlinkat(&parent, name, AtFlags::REMOVEDIR) {
            Ok(()) => Ok(true),
            // Gone, no folder, not empty, or not ours to remove: it stays.
            Err(_) => Ok(false),
        }
    }

    /// Waits until what was moved in or out survives power loss.
    pub(super) fn sync(&self, paths: impl Iterator<Item = PathBuf>) -> io::Result<()> {
        super::pass("land-sync")?;
        flush::below(&self.path, paths)
    }
}

/// Whether an error says that there is nothing at a path, or no way to it without a link.
fn leads_nowhere(e: &io::Error) -> bool {
    use rustix::io::Errno;
    let code = e.raw_os_error();
    [Errno::NOENT, Errno::NOTDIR, Errno::LOOP].iter().any(|errno| code == Some(errno.raw_os_error()))
}

// The fields have other types on other systems.
#[allow(clippy::unnecessary_cast, clippy::useless_conversion, clippy::cast_lossless)]
fn print(stat: &rustix::fs::Stat) -> Print {
    Print {
        ino: stat.st_ino as u64,
        size: stat.st_size as i64,
        mode: stat.st_mode as u32,
        mtime: (stat.st_mtime as i64, stat.st_mtime_nsec as i64),
    }
}
