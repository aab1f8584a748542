//! Processes: who is who, what belongs to a command, and how all of it is ended.
//!
//! Nothing here finds or kills by name. A process is signalled because its recorded [`Identity`] (pid,
//! start time, boot, pid namespace) still holds, or because it is a member of a [`Domain`]: a
//! descendant, in our control group, or a bearer of our environment marker.

#[cfg(target_os = "linux")]
mod born;
mod census;
mod cgroup;
pub mod confine;
mod domain;
mod executable;
#[cfg(target_os = "linux")]
mod fork;
mod identity;
pub mod mounts;
mod probe;
mod unix;

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "macos")]
mod macos;

#[cfg(target_os = "linux")]
use linux as sys;
#[cfg(target_os = "macos")]
use macos as sys;

#[cfg(target_os = "linux")]
pub use born::Birth;
pub use census::{Census, CensusMethod, Survivor};
pub use cgroup::Cgroup;
pub use domain::{Cleared, Domain, MARKER, Marker};
pub use executable::own_executable;
#[cfg(target_os = "linux")]
pub use fork::{Fork, begin_anew, fork, stirs_within};
pub use identity::{Handle, Identity, Liveness};
pub use probe::{Asking, Said, ask};
pub use rustix::process::Signal;
pub use sys::{become_subreaper, boot_id, die_with_parent, is_subreaper, shrink};
pub use unix::{Ending, close_all_but, detach, has_no_child, lead_session, new_session, take_stdin};

/// What the system says about one process at one instant.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Proc {
    pid: u32,
    parent: u32,
    session: u32,
    /// Start time, in a unit that only serves to compare.
    start: u64,
    /// Whether it has ended and only waits to be reaped.
    dead: bool,
    /// The program's short name, for show only.
    name: String,
}
