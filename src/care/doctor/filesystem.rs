//! Whether the file system keeps its promises: locks that exclude, renames that never replace. Both are
//! tried, not believed; its type only tells of trouble that a trial cannot show.

use super::{Context, Finding, shell};
use crate::durable::{self, Lock};
use std::io;
use std::path::Path;

/// File systems that other machines write to, too.
const NETWORK: &[&str] =
    &["nfs", "nfs4", "cifs", "smb2", "smbfs", "9p", "afs", "afpfs", "webdav", "ceph", "lustre", "virtiofs"];

pub(super) fn look(context: &Context<'_>) -> anyhow::Result<Vec<Finding>> {
    let root = context.spool.root();
    let mut found = trials(&context.spool.tmp());
    for (what, path) in [("the spool", root), ("the workspaces", context.spool.worktrees())] {
        let Ok(kind) = kind(path) else { continue };
        if NETWORK.contains(&kind.as_str()) {
            found.push(
                Finding::warning(format!("{what} ({}) lies on {kind}", path.display()))
                    .why("locks and file times of a network file system fail in ways that no trial shows, and git is slow there")
                    .fix(if path == root { moved(path) } else { "export WORKSPOOL_WORKTREES=$HOME/.cache/workspool".to_owned() }),
            );
        } else if kind.starts_with("fuse") {
            found.push(
                Finding::note(format!("{what} ({}) lies on a {kind} file system", path.display()))
                    .why("some of these neither lock nor tell of changes; what was tried works"),
            );
        } else if path == root && (kind == "tmpfs" || kind == "ramfs") {
            found.push(
                Finding::warning(format!("the spool lies in memory ({kind})"))
                    .why("tasks and results are gone when the machine restarts")
                    .fix(moved(path)),
            );
        }
    }
    if found.is_empty() {
        found.push(Finding::ok(format!(
            "{} locks and renames as it must",
            kind(root).unwrap_or_else(|_| "the file system".into())
        )));
    }
    Ok(found)
}

fn moved(path: &Path) -> String {
    format!("mv {} /a/local/folder && export WORKSPOOL_HOME=/a/local/folder", shell(&path.to_string_lossy()))
}

fn trials(dir: &Path) -> Vec<Finding> {
    let mut found = Vec::new();
    let name = dir.join(durable::unique_name());
    if let Err(e) = lock_trial(&name) {
        found.push(
            Finding::error(format!("locks do not work in {}: {e}", dir.display()))
                .why("two runners could run one task twice")
                .fix(moved(dir.parent().unwrap_or(dir))),
        );
    }
    if let Err(e) = rename_trial(&name) {
        found.push(
            Finding::error(format!("renames that never replace do not work in {}: {e}", dir.display()))
                .why("every change of a task's state is such a rename")
                .fix(moved(dir.parent().unwrap_or(dir))),
        );
    }
    found
}

fn lock_trial(path: &Path) -> io::Result<()> {
    let lock = Lock::at(path);
    let outcome = (|| {
        let held = lock.try_take()?.ok_or_else(|| io::Error::other("a new lock is held already"))?;
        if !lock.is_held()? {
            return Err(io::Error::other("a second holder is let in"));
        }
        drop(held);
        if lock.is_held()? { Err(io::Error::other("it stays held")) } else { Ok(()) }
    })();
    durable::remove_file(path)?;
    outcome
}

fn rename_trial(base: &Path) -> io::Result<()> {
    let (a, b) = (base.with_extension("a.tmp"), base.with_extension("b.tmp"));
    let outcome = (|| {
        durable::create_new_unsynced(&a, b"a")?;
        durable::create_new_unsynced(&b, b"b")?;
        match durable::rename_noreplace(&a, &b) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(e) => Err(e),
            Ok(()) => Err(io::Error::other("a file was replaced")),
        }
    })();
    durable::remove_file(&a)?;
    durable::remove_file(&b)?;
    outcome
}

/// The name of the file system that a path lies on.
#[cfg(target_os = "linux")]
fn kind(path: &Path) -> io::Result<String> {
    let table = std::fs::read_to_string("/proc/self/mountinfo")?;
    let path = path.canonicalize()?;
    Ok(kind_in(&table, &path).unwrap_or_else(|| "unknown".into()))
}

/// The last mount whose place is the longest beginning of `path` is the one that counts.
#[cfg(target_os = "linux")]
fn kind_in(table: &str, path: &Path) -> Option<String> {
    let mut best: Option<(usize, &str)> = None;
    for line in table.lines() {
        let (left, right) = line.split_once(" - ")?;
        let place = unescape(left.split(' ').nth(4)?);
        let kind = right.split(' ').next()?;
        let length = place.len();
        if path.starts_with(Path::new(&place)) && best.is_none_or(|(most, _)| length >= most) {
            best = Some((length, kind));
        }
    }
    best.map(|(_, kind)| kind.to_owned())
}

/// Undoes the octal escapes of blanks in mount tables.
#[cfg(target_os = "linux")]
fn unescape(text: &str) -> String {
    text.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
}

/// The name of the file system that a path lies on.
#[cfg(target_os = "macos")]
fn kind(path: &Path) -> io::Result<String> {
    let stat = rustix::fs::statfs(path)?;
    let name: Vec<u8> = stat.f_fstypename.iter().map(|c| *c as u8).take_while(|c| *c != 0).collect();
    Ok(String::from_utf8_lossy(&name).into_owned())
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::super::support::Fixture;
    use super::*;

    #[test]
    fn a_good_file_system_passes_its_trials_and_keeps_nothing_of_them() {
        let fixture = Fixture::new();
        assert_eq!(trials(&fixture.spool.tmp()), Vec::new());
        assert_eq!(std::fs::read_dir(fixture.spool.tmp()).unwrap().count(), 0);
    }

    #[test]
    fn a_folder_that_takes_no_files_fails_both_trials() {
        let found = trials(Path::new("/proc/self"));
        assert_eq!(found.len(), 2);
        assert!(found.iter().all(|f| f.level == Level::Error && f.why.is_some() && f.fix.is_some()));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_mount_that_counts_is_the_deepest_and_last() {
        let table = "21 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
                     30 21 0:40 / /home/me/My\\040Drive rw shared:1 - fuse.rclone r rw\n\
                     31 21 0:41 / /net rw - nfs4 host:/x rw\n\
                     32 21 0:42 / /net rw - cifs //host/x rw\n";
        let kind = |p: &str| kind_in(table, Path::new(p)).unwrap();
        assert_eq!(kind("/home/me/spool"), "ext4");
        assert_eq!(kind("/home/me/My Drive/spool"), "fuse.rclone");
        assert_eq!(kind("/net/spool"), "cifs");
        assert_eq!(kind("/network"), "ext4");
    }
}
