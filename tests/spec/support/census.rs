//! Which processes belong to a world: by its path in their command line, environment or folder.

use std::path::Path;
use workspool::process::Identity;

/// A process of a world.
#[derive(Debug)]
pub struct Process {
    pub pid: u32,
    /// What it is, for messages.
    pub what: String,
}

impl Process {
    /// Ends it, if it still is the one that was found.
    pub fn kill(&self) {
        if let Ok(Some(identity)) = Identity::of(self.pid) {
            let _ = identity.signal(rustix::process::Signal::KILL);
        }
    }
}

/// All processes, but this one, that have to do with `root`. Zombies have nothing to do with anything.
#[cfg(target_os = "linux")]
pub fn processes(root: &Path) -> Vec<Process> {
    use std::os::unix::ffi::OsStrExt as _;
    let needle = root.as_os_str().as_bytes();
    let has = |bytes: &[u8]| memchr::memmem::find(bytes, needle).is_some();
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().filter_map(Result::ok) {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse::<u32>().ok()) else { continue };
        if pid == std::process::id() {
            continue;
        }
        let dir = entry.path();
        let command = std::fs::read(dir.join("cmdline")).unwrap_or_default();
        let environment = std::fs::read(dir.join("environ")).unwrap_or_default();
        let folder = std::fs::read_link(dir.join("cwd")).unwrap_or_default();
        if command.is_empty() || !(has(&command) || has(&environment) || folder.starts_with(root)) {
            continue;
        }
        let mut line = String::from_utf8_lossy(&command).replace('\0', " ");
        if std::fs::read(dir.join("comm")).is_ok_and(|name| name == b"workspool-keep\n") {
            // A fork of its supervisor has that one's arguments.
            line = line.replacen(" exec ", " keep ", 1);
        }
        found.push(Process { pid, what: format!("{line}(in {})", folder.display()) });
    }
    found
}

/// All processes, but this one, that have to do with `root`.
#[cfg(not(target_os = "linux"))]
pub fn processes(root: &Path) -> Vec<Process> {
    let out = std::process::Command::new("ps").args(["-axww", "-E", "-o", "pid=,command="]).output().unwrap();
    let needle = root.to_string_lossy().into_owned();
    String::from_utf8_lossy(&out.stdout)
        .lines()
        .filter(|line| line.contains(&needle))
        .filter_map(|line| {
            let (pid, what) = line.trim().split_once(' ')?;
            Some(Process { pid: pid.parse().ok()?, what: what.to_owned() })
        })
        .filter(|p| p.pid != std::process::id())
        .collect()
}

/// Whether a process with this number is there.
pub fn alive(pid: u32) -> bool {
    matches!(Identity::of(pid), Ok(Some(identity)) if identity
        .liveness()
        .is_ok_and(|l| matches!(l, workspool::process::Liveness::Alive)))
}
