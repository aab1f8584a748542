//! Mount namespaces of Linux.

use super::Overlay;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags, open, statx};
use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_change, unmount as take_off,
};
use rustix::process::{getegid, geteuid};
use rustix::thread::{
    CapabilitySet, UnshareFlags, capabilities, configure_capability_in_ambient_set, set_capabilities,
    unshare_unsafe,
};
use std::fs;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// `STATX_ATTR_MOUNT_ROOT`.
const MOUNT_ROOT: u64 = 0x2000;

pub(super) fn enter() -> io::Result<()> {
    // SAFETY: only the mount namespace is left; descriptors stay as they are.
    match unsafe { unshare_unsafe(UnshareFlags::NEWNS) } {
        Ok(()) => {}
        Err(Errno::PERM) => enter_as_user()?,
        Err(e) => return Err(e.into()),
    }
    // What is mounted here must not be seen outside.
    Ok(mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?)
}

/// A user namespace in which our user and group are who they are, and nobody else is anybody.
fn enter_as_user() -> io::Result<()> {
    let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
    // SAFETY: as above.
    unsafe { unshare_unsafe(UnshareFlags::NEWUSER | UnshareFlags::NEWNS) }?;
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{uid} {uid} 1"))?;
    fs::write("/proc/self/gid_map", format!("{gid} {gid} 1"))?;
    let mut sets = capabilities(None)?;
    sets.inheritable |= CapabilitySet::SYS_ADMIN;
    set_capabilities(None, sets)?;
    Ok(configure_capability_in_ambient_set(CapabilitySet::SYS_ADMIN, true)?)
}

pub(super) fn overlay(parts: &Overlay<'_>, at: &Path) -> io::Result<()> {
    // By descriptor: in the options a comma or a colon of a path would mean something.
    let folder = |path: &Path| -> io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(open(path, flags, Mode::empty())?)
    };
    let (lower, upper, work) = (folder(parts.lower)?, folder(parts.upper)?, folder(parts.work)?);
    let options = format!(
        "lowerdir=/proc/self/fd/{},upperdir=/proc/self/fd/{},workdir=/proc/self/fd/{},userxattr",
        lower.as_raw_fd(),
        upper.as_raw_fd(),
        work.as_raw_fd()
    );
    let options = std::ffi::CString::new(options)?;
    Ok(mount("workspool", at, "overlay", MountFlags::empty(), Some(options.as_c_str()))?)
}

pub(super) fn hide(path: &Path) -> io::Result<()> {
    let flags = MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    Ok(mount("workspool", path, "tmpfs", flags, Some(c"size=4k,mode=555"))?)
}

pub(super) fn unmount(path: &Path) -> io::Result<()> {
    match take_off(path, UnmountFlags::NOFOLLOW) {
        // Somebody looks into it.
        Err(Errno::BUSY) => Ok(take_off(path, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH)?),
        other => Ok(other?),
    }
}

pub(super) fn is_mounted(path: &Path) -> io::Result<bool> {
    match statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::TYPE) {
        Ok(found) => Ok(found.stx_attributes.bits() & MOUNT_ROOT != 0),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

pub(super) fn elsewhere(path: &Path) -> io::Result<Vec<u32>> {
    let own = fs::read_link("/proc/self/ns/mnt")?;
    let mut known: Vec<(PathBuf, bool)> = vec![(own, false)];
    let mut found = Vec::new();
    for process in super::super::linux::all()? {
        let at = PathBuf::from(format!("/proc/{}", process.pid));
        // One that we may not look at is not ours.
        let Ok(space) = fs::read_link(at.join("ns/mnt")) else { continue };
        let has = match known.iter().find(|(seen, _)| *seen == space) {
            Some((_, has)) => *has,
            None => {
                let Ok(mounts) = fs::read(at.join("mountinfo")) else { continue };
                let has = mounts.split(|b| *b == b'\n').any(|line| is_at(line, path));
                known.push((space, has));
                has
            }
        };
        if has {
            found.push(process.pid);
        }
    }
    Ok(found)
}

/// Whether a line of `mountinfo` is of a mount at `path`.
fn is_at(line: &[u8], path: &Path) -> bool {
    let Some(shown) = line.split(|b| *b == b' ').nth(4) else { return false };
    let mut plain = Vec::with_capacity(shown.len());
    let mut rest = shown;
    while let Some((first, more)) = rest.split_first() {
        let octal = |d: &u8| (b'0'..b'8').contains(d);
        match (first, more.get(..3)) {
            (b'\\', Some(digits)) if digits.iter().all(octal) => {
                plain.push(digits.iter().fold(0u8, |sum, d| sum.wrapping_mul(8).wrapping_add(d - b'0')));
                rest = &more[3..];
            }
            _ => {
                plain.push(*first);
                rest = more;
            }
        }
    }
    plain == path.as_os_str().as_bytes()
}

pub(super) fn give_up_right() {
    // A kernel without such rights has none to give up.
    let _ = configure_capability_in_ambient_set(CapabilitySet::SYS_ADMIN, false);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_found_by_their_path_whatever_is_in_it() {
        let line = br"36 35 98:0 / /tmp/a\040b\134c rw,noatime - overlay workspool rw";
        assert!(is_at(line, Path::new("/tmp/a b\\c")));
        assert!(!is_at(line, Path::new("/tmp/a")));
        assert!(!is_at(b"", Path::new("/")));
    }

    #[test]
    fn a_folder_is_no_mount_and_the_root_is_one() {
        let dir = tempfile::tempdir().unwrap();
        assert!(!is_mounted(dir.path()).unwrap());
        assert!(!is_mounted(&dir.path().join("missing")).unwrap());
        assert!(is_mounted(Path::new("/proc")).unwrap());
        assert!(elsewhere(dir.path()).unwrap().is_empty());
    }
}
