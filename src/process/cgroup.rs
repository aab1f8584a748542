//! A control group (cgroup v2) of our own, where the system lets us make one.
//!
//! Most containers and plain logins grant none; then there is no error, only a weaker census.

use rustix::io::Errno;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

/// Groups of ours begin with this, so that no record can point us at another group.
const PREFIX: &str = "workspool-";

/// A group that holds a command and all that it starts; the kernel keeps the list.
#[derive(Debug)]
pub struct Cgroup {
    dir: PathBuf,
}

impl Cgroup {
    /// Chooses where a new group below our own would be, so that it can be recorded before it is made.
    ///
    /// Says `None` where there is no cgroup v2.
    pub fn place(name: &str) -> Option<PathBuf> {
        Some(own_dir()?.join(format!("{PREFIX}{name}")))
    }

    /// Makes a group at a place that [`Cgroup::place`] chose, or says `None` if that is not granted.
    pub fn create(place: &Path) -> Option<Cgroup> {
        fs::create_dir(place).ok()?;
        let group = Cgroup { dir: place.to_owned() };
        // `cgroup.kill` came with Linux 5.14. A group that we cannot enter is of no use either.
        if group.dir.join("cgroup.kill").exists() && group.entrance().is_ok() {
            return Some(group);
        }
        group.remove();
        None
    }

    /// Finds a group again that [`Cgroup::create`] made, if it is still there.
    pub fn find(dir: &Path) -> Option<Cgroup> {
        let ours = dir.file_name()?.to_str()?.starts_with(PREFIX);
        let inside = mount_of_v2().is_some_and(|(mount, _)| dir.starts_with(mount));
        (ours && inside && dir.join("cgroup.kill").exists()).then(|| Cgroup { dir: dir.to_owned() })
    }

    /// Where the group is.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Opens the file to which a process writes `0` to enter the group.
    pub fn entrance(&self) -> io::Result<OwnedFd> {
        Ok(OpenOptions::new().write(true).open(self.dir.join("cgroup.procs"))?.into())
    }

    /// Opens the group's folder, for a process to be born in it.
    pub fn folder(&self) -> io::Result<OwnedFd> {
        Ok(fs::File::open(&self.dir)?.into())
    }

    /// Returns the processes in the group and in groups that were made inside it.
    pub fn pids(&self) -> Vec<u32> {
        let mut found = Vec::new();
        for dir in self.tree() {
            let Ok(text) = fs::read_to_string(dir.join("cgroup.procs")) else { continue };
            // 0 stands for a process that our pid namespace does not see.
            found.extend(text.lines().filter_map(|l| l.parse::<u32>().ok()).filter(|pid| *pid > 0));
        }
        found
    }

    /// Says whether any process, seen or not, is in the group or inside it.
    pub fn is_populated(&self) -> bool {
        match fs::read_to_string(self.dir.join("cgroup.events")) {
            Ok(text) => text.lines().any(|l| l == "populated 1"),
            Err(_) => false,
        }
    }

    /// Kills every process in the group, also those forking right now.
    pub fn kill(&self) -> io::Result<()> {
        crate::durable::fault::point("cgroup-kill")?;
        fs::write(self.dir.join("cgroup.kill"), "1")
    }

    /// Removes the group, if it is empty. One that stays behind does no harm.
    pub fn remove(&self) {
        for dir in self.tree().iter().rev() {
            // The kernel lets go of the last process a moment after it was reaped.
            for _ in 0..20 {
                match fs::remove_dir(dir) {
                    Err(e) if e.raw_os_error() == Some(Errno::BUSY.raw_os_error()) => {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    _ => break,
                }
            }
        }
    }

    /// The group and all inside it, parents first.
    fn tree(&self) -> Vec<PathBuf> {
        let mut dirs = vec![self.dir.clone()];
        let mut at = 0;
        while let Some(dir) = dirs.get(at).cloned() {
            at += 1;
            let entries = fs::read_dir(&dir).into_iter().flatten().filter_map(Result::ok);
            dirs.extend(entries.filter(|e| e.file_type().is_ok_and(|t| t.is_dir())).map(|e| e.path()));
        }
        dirs
    }
}

/// The folder of the group that we are in, looked for once: who is forked from us need not look again.
pub(super) fn own_dir() -> Option<&'static Path> {
    static DIR: OnceLock<Option<PathBuf>> = OnceLock::new();
    let look = || {
        let (mount, root) = mount_of_v2()?;
        let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
        let path = groups.lines().find_map(|l| l.strip_prefix("0::"))?;
        let below = Path::new(path).strip_prefix(&root).ok()?;
        Some(mount.join(below))
    };
    DIR.get_or_init(look).as_deref()
}

/// Where the v2 tree is mounted, and which part of it.
fn mount_of_v2() -> Option<(PathBuf, PathBuf)> {
    parse_mounts(&fs::read_to_string("/proc/self/mountinfo").ok()?)
}

fn parse_mounts(text: &str) -> Option<(PathBuf, PathBuf)> {
    text.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        if after.split(' ').next() != Some("cgroup2") {
            return None;
        }
        let mut fields = before.split(' ').skip(3);
        let (root, mount) = (fields.next()?, fields.next()?);
        Some((PathBuf::from(mount), PathBuf::from(root)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mount_is_found_among_others() {
        let text = "24 30 0:22 / /proc rw - proc proc rw\n\
                    35 24 0:30 /user.slice /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";
        let (mount, root) = parse_mounts(text).unwrap();
        assert_eq!((mount.to_str().unwrap(), root.to_str().unwrap()), ("/sys/fs/cgroup", "/user.slice"));
        assert!(parse_mounts("24 30 0:22 / /proc rw - proc proc rw\n").is_none());
    }

    #[test]
    fn a_group_is_made_found_and_removed_where_that_is_granted() {
        let Some(place) = Cgroup::place(&format!("test-{}", std::process::id())) else { return };
        assert!(Cgroup::find(&place).is_none());
        let Some(group) = Cgroup::create(&place) else { return };
        assert_eq!(Cgroup::find(&place).map(|g| g.dir), Some(place.clone()));
        assert!(Cgroup::create(&place).is_none(), "it is there already");
        assert!(group.pids().is_empty() && !group.is_populated());
        group.remove();
        assert!(!place.exists());
    }

    #[test]
    fn a_group_that_is_not_ours_is_never_found() {
        assert!(Cgroup::find(Path::new("/sys/fs/cgroup")).is_none());
        assert!(Cgroup::find(Path::new("/sys/fs/cgroup/unified/user.slice")).is_none());
        assert!(Cgroup::find(Path::new("/tmp/workspool-x")).is_none());
    }
}
