//! This program's own executable.

use std::path::PathBuf;

/// Returns this program's own executable, also after an update took its place.
pub fn own_executable() -> std::io::Result<PathBuf> {
    let path = std::env::current_exe()?;
    if path.exists() {
        return Ok(path);
    }
    // Linux names a replaced executable "<path> (deleted)"; the new one lies at the old path.
    let text = path.to_string_lossy();
    match text.strip_suffix(" (deleted)").map(PathBuf::from) {
        Some(path) if path.exists() => Ok(path),
        _ => Ok(path),
    }
}
