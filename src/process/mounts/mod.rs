//! Mounts that only one process and all that it starts can see.
//!
//! [`enter`] gives the calling process a mount namespace of its own; what is mounted afterwards is gone when the
//! last process in there is. Who may mount for the whole system gets no more than that. Everybody else
//! gets a user namespace too, in which only its own user and group exist.
//!
//! In a user namespace the right to mount would end with `exec`. It is kept on purpose for this program's own
//! processes, and given up by each command that is not ours: see [`give_up_right`].

#[cfg(target_os = "linux")]
mod linux;
#[cfg(not(target_os = "linux"))]
mod elsewhere;

#[cfg(not(target_os = "linux"))]
use elsewhere as sys;
#[cfg(target_os = "linux")]
use linux as sys;

use std::io;
use std::path::Path;

/// The parts of an overlay.
#[derive(Debug, Clone, Copy)]
pub struct Overlay<'a> {
    /// What is shown where nothing else is: never written to.
    pub lower: &'a Path,
    /// Where all that is written goes.
    pub upper: &'a Path,
    /// An empty folder beside it, which the kernel needs.
    pub work: &'a Path,
}

/// Gives this process a mount namespace of its own. It must have one thread only.
pub fn enter() -> io::Result<()> {
    sys::enter()
}

/// Mounts an overlay at `at`.
pub fn overlay(parts: &Overlay<'_>, at: &Path) -> io::Result<()> {
    sys::overlay(parts, at)
}

/// Lays an empty folder that cannot be written to over `path`.
pub fn hide(path: &Path) -> io::Result<()> {
    sys::hide(path)
}

/// Takes away what is mounted at `path`.
pub fn unmount(path: &Path) -> io::Result<()> {
    sys::unmount(path)
}

/// Says whether something is mounted at `path`, as this process sees it.
pub fn is_mounted(path: &Path) -> io::Result<bool> {
    sys::is_mounted(path)
}

/// Processes in other mount namespaces in which something is mounted at `path`.
pub fn elsewhere(path: &Path) -> io::Result<Vec<u32>> {
    sys::elsewhere(path)
}

/// In a child, before `exec`: a command that is not ours must not mount. One system call; allocates nothing.
pub fn give_up_right() {
    sys::give_up_right();
}
