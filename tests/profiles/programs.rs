//! Programs that only seem to be there.

use super::support::World;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// Puts a script where programs are looked for.
pub fn put(folder: &Path, name: &str, script: &str) -> PathBuf {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    // A file that is still open for writing cannot be executed; a fork elsewhere may keep it open for a moment.
    let new = folder.join(format!(".{name}.new"));
    fs::write(&new, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&new, fs::Permissions::from_mode(0o755)).unwrap();
    fs::rename(new, &path).unwrap();
    path
}

/// Lets the world see only git, a shell and what is put into the folder that is returned.
pub fn only(world: &World) -> PathBuf {
    let bin = world.root().join("bin");
    fs::create_dir_all(&bin).unwrap();
    for tool in ["git", "sh"] {
        let found = workspool::worker::env::find_executable(tool).unwrap();
        std::os::unix::fs::symlink(found, bin.join(tool)).unwrap();
    }
    world.set_env("PATH", &bin.to_string_lossy());
    bin
}
