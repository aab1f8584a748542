//! Waiting until many files survive power loss.

use std::io;
use std::path::{Path, PathBuf};

/// Waits for all that was written below `root`: one call for the whole file system, where there is one.
#[cfg(target_os = "linux")]
pub(super) fn below(root: &Path, _paths: impl Iterator<Item = PathBuf>) -> io::Result<()> {
    crate::durable::fault::point("sync-tree")?;
    if cfg!(test) {
        return Ok(()); // It would wait for what everybody else on the machine writes.
    }
    Ok(rustix::fs::syncfs(std::fs::File::open(root)?)?)
}

/// Waits for the files at `paths` below `root`, and for the folders on the way.
#[cfg(not(target_os = "linux"))]
pub(super) fn below(root: &Path, paths: impl Iterator<Item = PathBuf>) -> io::Result<()> {
    let mut folders = std::collections::BTreeSet::new();
    for path in paths {
        let path = root.join(path);
        if std::fs::symlink_metadata(&path).is_ok_and(|m| m.is_file()) {
            crate::durable::sync_file(&path)?;
        }
        folders.extend(path.ancestors().skip(1).take_while(|p| p.starts_with(root)).map(Path::to_owned));
    }
    folders.iter().filter(|f| f.is_dir()).try_for_each(|folder| crate::durable::sync_dir(folder))
}
