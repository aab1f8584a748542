//! The identity of one process for its whole life, safe against reuse of its number.

use super::{Signal, sys};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::io;
use std::time::Duration;

/// Names one process so that no other process, before or after, has the same name.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Hash, Debug, JsonSchema)]
pub struct Identity {
    /// The process id, as seen in the pid namespace below.
    pub pid: u32,
    /// The start time, in the system's unit (Linux: clock ticks since boot, macOS: microseconds).
    pub start: u64,
    /// The id of the boot that the start time belongs to.
    pub boot: String,
    /// The inode of the pid namespace in which the number means something; 0 where there are none.
    pub pidns: u64,
}

/// Whether a recorded process still runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Liveness {
    /// It runs.
    Alive,
    /// It ended (perhaps not reaped yet), or another process has its number.
    Dead,
    /// It ran before the machine was started again, so it is dead.
    OtherBoot,
    /// It was recorded in another pid namespace, where we cannot look.
    Unknown,
}

impl Identity {
    /// Returns the identity of a running process, or `None` if there is none with this number.
    pub fn of(pid: u32) -> io::Result<Option<Identity>> {
        match sys::look(pid)? {
            Some(p) if !p.dead => Ok(Some(Identity::from_parts(pid, p.start)?)),
            _ => Ok(None),
        }
    }

    /// Returns the identity of a child that we have not reaped: it may have ended already.
    pub fn of_child(pid: u32) -> io::Result<Identity> {
        match sys::look(pid)? {
            Some(p) => Identity::from_parts(pid, p.start),
            None => Err(io::Error::new(io::ErrorKind::NotFound, format!("no process {pid}"))),
        }
    }

    /// Returns the identity of this process.
    pub fn current() -> io::Result<Identity> {
        Identity::of_child(std::process::id())
    }

    fn from_parts(pid: u32, start: u64) -> io::Result<Identity> {
        Ok(Identity { pid, start, boot: sys::boot_id()?, pidns: sys::pid_namespace()? })
    }

    /// Says whether the process still runs.
    pub fn liveness(&self) -> io::Result<Liveness> {
        if self.boot != sys::boot_id()? {
            return Ok(Liveness::OtherBoot);
        }
        if self.pidns != sys::pid_namespace()? {
            return Ok(Liveness::Unknown);
        }
        Ok(match sys::look(self.pid)? {
            Some(p) if p.start == self.start && !p.dead => Liveness::Alive,
            _ => Liveness::Dead,
        })
    }

    /// Opens a handle on the process, or says `None` if it no longer runs (or we cannot know).
    pub fn open(&self) -> io::Result<Option<Handle>> {
        // The handle first, then the comparison: a number that is reused in between is noticed.
        let Some(handle) = sys::Pidfd::open(self.pid, self.start)? else { return Ok(None) };
        Ok((self.liveness()? == Liveness::Alive).then_some(Handle { inner: handle }))
    }

    /// Sends a signal to this process and no other; says `false` if it no longer runs.
    pub fn signal(&self, signal: Signal) -> io::Result<bool> {
        match self.open()? {
            Some(handle) => handle.signal(signal),
            None => Ok(false),
        }
    }
}

/// An open handle on one process: it cannot come to mean another one.
#[derive(Debug)]
pub struct Handle {
    inner: sys::Pidfd,
}

impl Handle {
    /// Opens a handle on the process `pid` that started at `start` in this boot and namespace.
    pub(super) fn open(pid: u32, start: u64) -> io::Result<Option<Handle>> {
        let Some(inner) = sys::Pidfd::open(pid, start)? else { return Ok(None) };
        Ok(sys::look(pid)?.is_some_and(|p| p.start == start && !p.dead).then_some(Handle { inner }))
    }

    /// Sends a signal; says `false` if the process has ended.
    pub fn signal(&self, signal: Signal) -> io::Result<bool> {
        crate::durable::fault::point("signal")?;
        self.inner.signal(signal)
    }

    /// Waits until the process has ended, at most `timeout`; says whether it has.
    pub fn wait(&self, timeout: Duration) -> io::Result<bool> {
        self.inner.wait(timeout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command, Stdio};

    fn sleeper() -> Child {
        Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().unwrap()
    }

    fn end(mut child: Child) {
        let _ = child.kill();
        child.wait().unwrap();
    }

    #[test]
    fn a_running_process_is_alive_and_a_zombie_is_dead() {
        let mut child = sleeper();
        let id = Identity::of(child.id()).unwrap().unwrap();
        assert_eq!(id.liveness().unwrap(), Liveness::Alive);
        let handle = id.open().unwrap().unwrap();
        assert!(!handle.wait(Duration::ZERO).unwrap());
        assert!(id.signal(Signal::KILL).unwrap());
        assert!(handle.wait(Duration::from_secs(10)).unwrap(), "the handle wakes when it ends");
        // Not reaped yet: a zombie, which is dead and has no identity to give, except to its parent.
        assert_eq!(id.liveness().unwrap(), Liveness::Dead);
        assert_eq!(Identity::of(child.id()).unwrap(), None);
        assert_eq!(Identity::of_child(child.id()).unwrap(), id);
        assert!(!id.signal(Signal::KILL).unwrap());
        child.wait().unwrap();
        assert_eq!(id.liveness().unwrap(), Liveness::Dead);
    }

    #[test]
    fn a_reused_number_is_never_signalled() {
        let child = sleeper();
        let real = Identity::of(child.id()).unwrap().unwrap();
        let stale = Identity { start: real.start - 1, ..real.clone() };
        assert_eq!(stale.liveness().unwrap(), Liveness::Dead);
        assert!(!stale.signal(Signal::KILL).unwrap());
        let other_boot = Identity { boot: "another".into(), ..real.clone() };
        assert_eq!(other_boot.liveness().unwrap(), Liveness::OtherBoot);
        assert!(!other_boot.signal(Signal::KILL).unwrap());
        assert!(other_boot.open().unwrap().is_none());
        let other_ns = Identity { pidns: real.pidns + 1, ..real.clone() };
        assert_eq!(other_ns.liveness().unwrap(), Liveness::Unknown);
        assert!(!other_ns.signal(Signal::KILL).unwrap());
        assert_eq!(real.liveness().unwrap(), Liveness::Alive);
        end(child);
    }

    #[test]
    fn this_process_has_one_identity_that_survives_json() {
        let id = Identity::current().unwrap();
        let text = serde_json::to_string(&id).unwrap();
        assert_eq!(serde_json::from_str::<Identity>(&text).unwrap(), id);
        assert_eq!(id, Identity::current().unwrap());
        assert_eq!(id.liveness().unwrap(), Liveness::Alive);
    }

    #[test]
    fn number_zero_and_numbers_out_of_range_are_nobody() {
        for pid in [0, u32::MAX] {
            assert_eq!(Identity::of(pid).unwrap(), None);
            let id = Identity { pid, ..Identity::current().unwrap() };
            assert!(!id.signal(Signal::CONT).unwrap());
        }
    }
}
