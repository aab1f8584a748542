//! Copies of index files.

use crate::durable;
use std::fs::{self, File};
use std::io;
use std::path::Path;

/// Copies an index with its time and mode.
///
/// An edit that keeps a file's size and falls into the same tick of the clock as the writing of the
/// index is found by git only because the file is not older than the index; a copy with a newer time
/// would hide it for good.
pub(super) fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let meta = fs::metadata(from)?;
    durable::replace_unsynced(to, &fs::read(from)?)?;
    fs::set_permissions(to, meta.permissions())?;
    File::options().write(true).open(to)?.set_modified(meta.modified()?)
}
