//! Where there is nothing of the kind.

use super::Overlay;
use std::io;
use std::path::Path;

fn unsupported() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "this system has no overlay file system")
}

pub(super) fn enter() -> io::Result<()> {
    Err(unsupported())
}

pub(super) fn overlay(_: &Overlay<'_>, _: &Path) -> io::Result<()> {
    Err(unsupported())
}

pub(super) fn hide(_: &Path) -> io::Result<()> {
    Err(unsupported())
}

pub(super) fn unmount(_: &Path) -> io::Result<()> {
    Err(unsupported())
}

pub(super) fn is_mounted(_: &Path) -> io::Result<bool> {
    Ok(false)
}

pub(super) fn elsewhere(_: &Path) -> io::Result<Vec<u32>> {
    Ok(Vec::new())
}

pub(super) fn give_up_right() {}
