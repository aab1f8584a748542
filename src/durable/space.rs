//! Free space on the file system that holds a path.

use std::io;
use std::path::Path;

/// What a file system has left for a user without privileges, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// Bytes that can still be written.
    pub free: u64,
    /// Size of the file system.
    pub total: u64,
}

/// Returns the space of the file system that `path` (which must exist) lies on.
pub fn free_space(path: &Path) -> io::Result<Space> {
    super::fault::point("space")?;
    Ok(Space { free: fs2::available_space(path)?, total: fs2::total_space(path)? })
}
