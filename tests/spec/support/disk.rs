//! A world with a small disk in it, which can really be filled.

use super::World;
use std::fs;
use std::path::Path;
use std::process::Command;

impl World {
    /// A world in which `folder` is a disk of its own with so many MiB. `None`, and a word about it, where
    /// that takes rights which this process does not have.
    ///
    /// It is mounted for this thread and what it starts, and for nobody else: no test that dies leaves it.
    pub fn with_small_disk(folder: &str, mib: u32, config: &str) -> Option<World> {
        if let Err(why) = own_mounts() {
            eprintln!("skipped: a disk of its own cannot be mounted here ({why}); it takes root on Linux");
            return None;
        }
        Some(World::made(config, |root| {
            let at = root.join(folder);
            fs::create_dir_all(&at).unwrap();
            let size = format!("size={mib}m,mode=700");
            run(Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(&at)).unwrap();
        }))
    }
}

/// Gives this thread mounts of its own.
#[cfg(target_os = "linux")]
fn own_mounts() -> Result<(), String> {
    // SAFETY: nothing else than what this thread mounts from now on is changed.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) }
        .map_err(|e| e.to_string())?;
    run(Command::new("mount").args(["--make-rprivate", "/"]))
}

#[cfg(not(target_os = "linux"))]
fn own_mounts() -> Result<(), String> {
    Err("not Linux".into())
}

fn run(command: &mut Command) -> Result<(), String> {
    let out = command.output().map_err(|e| e.to_string())?;
    if out.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&out.stderr).into_owned()) }
}

/// Unmounts what was mounted in a world.
pub(super) fn unmount_below(root: &Path) {
    for line in fs::read_to_string("/proc/thread-self/mounts").unwrap_or_default().lines() {
        if let Some(at) = line.split(' ').nth(1).filter(|at| Path::new(at).starts_with(root)) {
            let _ = run(Command::new("umount").args(["-l", at]));
        }
    }
}
