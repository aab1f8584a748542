//! What Linux says about processes: `/proc`, pidfds, the child subreaper.

use super::{Proc, Signal};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags};
use std::fs;
use std::io::{self, Read as _};
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt as _;
use std::sync::OnceLock;
use std::time::Duration;

/// Environments longer than this are searched in their first part only.
const ENVIRON_CAP: u64 = 4 << 20;

/// How often an environment that seems empty is looked at.
const LOOKS: u32 = 4;

/// Numbers beyond which a walk over all processes is no more work.
const MOST_YOUNG: u32 = 100;

/// Returns the id of this boot of the machine.
pub fn boot_id() -> io::Result<String> {
    static ID: OnceLock<String> = OnceLock::new();
    if let Some(id) = ID.get() {
        return Ok(id.clone());
    }
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    Ok(ID.get_or_init(|| id.trim().to_owned()).clone())
}

/// Returns the inode of our pid namespace: process numbers mean something only inside it.
pub(super) fn pid_namespace() -> io::Result<u64> {
    static NS: OnceLock<u64> = OnceLock::new();
    if let Some(ns) = NS.get() {
        return Ok(*ns);
    }
    let ns = fs::metadata("/proc/self/ns/pid")?.ino();
    Ok(*NS.get_or_init(|| ns))
}

/// Makes orphaned descendants of this process its children, so that none can get lost.
pub fn become_subreaper() -> io::Result<()> {
    Ok(rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?)
}

/// Says whether orphaned descendants come to this process.
pub fn is_subreaper() -> bool {
    rustix::process::child_subreaper().is_ok_and(|set| set.is_some())
}

/// Makes this process die when the thread that started it is gone. For `pre_exec`: allocates nothing.
///
/// `parent` is who should be our parent now: if it is gone already, the call fails.
pub fn die_with_parent(parent: Pid) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    if rustix::process::getppid() == Some(parent) { Ok(()) } else { Err(Errno::SRCH.into()) }
}

/// Closes every descriptor above stderr but those in `keep`, if the system can by ranges (since Linux 5.9; filters
/// of system calls may forbid it).
///
/// # Safety
/// Nothing in this process may own such a descriptor.
pub(super) unsafe fn close_ranges(keep: &[RawFd]) -> bool {
    let mut kept: Vec<u32> =
        keep.iter().filter_map(|fd| u32::try_from(*fd).ok()).filter(|fd| *fd > 2).collect();
    kept.sort_unstable();
    let mut from = 3;
    for end in kept.into_iter().map(|fd| fd - 1).chain([u32::MAX]) {
        // SAFETY: the caller vouches that nobody owns what is closed.
        if from <= end && unsafe { libc::syscall(libc::SYS_close_range, from, end, 0) } != 0 {
            return false;
        }
        from = end.saturating_add(2);
    }
    true
}

/// Reads a file of `/proc`, whose length is not known beforehand, without growing piece by piece.
fn read_at_once(path: &str) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(1 << 10);
    fs::File::open(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Returns what is known of one process, dead but unreaped ones included.
pub(super) fn look(pid: u32) -> io::Result<Option<Proc>> {
    if pid_of(pid).is_none() {
        return Ok(None);
    }
    match read_at_once(&format!("/proc/{pid}/stat")) {
        Ok(stat) => parse_stat(&stat)
            .map(Some)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("/proc/{pid}/stat"))),
        Err(e) if is_gone(&e) => Ok(None),
        Err(e) => Err(e),
    }
}

/// Returns all processes that we can see, the dead ones left out.
pub(super) fn all() -> io::Result<Vec<Proc>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let Ok(entry) = entry else { continue };
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse().ok()) else { continue };
        if let Ok(Some(p)) = look(pid)
            && !p.dead
        {
            found.push(p);
        }
    }
    Ok(found)
}

/// Says whether a process's environment held `entry` (`NAME=value`) when its program started.
///
/// A process whose environment we may not read is not ours.
pub(super) fn has_env(pid: u32, entry: &[u8]) -> bool {
    for _ in 0..LOOKS {
        let mut bytes = Vec::with_capacity(8 << 10);
        let read = fs::File::open(format!("/proc/{pid}/environ"))
            .and_then(|f| f.take(ENVIRON_CAP).read_to_end(&mut bytes));
        if read.is_err() || !bytes.is_empty() {
            return bytes.split(|b| *b == 0).any(|e| e == entry);
        }
        // A process in the middle of `exec` shows no environment for a moment. A thread of the kernel never
        // has one, and no program either.
        if fs::read_link(format!("/proc/{pid}/exe")).is_err() {
            return false;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    false
}

/// Returns the number that was given last to a process or thread.
pub(super) fn last_number() -> Option<u32> {
    let load = fs::read_to_string("/proc/loadavg").ok()?;
    load.split_ascii_whitespace().next_back()?.parse().ok()
}

/// Returns the numbers that were given to processes and threads after `first`, if they are few and did not
/// begin anew in between.
pub(super) fn numbers_since(first: u32) -> Option<impl Iterator<Item = u32>> {
    let last = last_number()?;
    let many = last.checked_sub(first)? > MOST_YOUNG;
    (!many).then_some(first + 1..=last)
}

/// Says whether a process works in `dir` or below it.
pub(super) fn works_in(pid: u32, dir: &std::path::Path) -> bool {
    fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd.starts_with(dir))
}

/// The fields of `/proc/PID/stat`; the name may hold anything, `) ` too, so it is cut at the last `)`.
fn parse_stat(stat: &[u8]) -> Option<Proc> {
    let text = String::from_utf8_lossy(stat);
    let (open, close) = (text.find('(')?, text.rfind(')')?);
    let fields: Vec<&str> = text.get(close + 2..)?.split_ascii_whitespace().collect();
    let field = |number: usize| fields.get(number - 3).copied();
    let threads: u32 = field(20)?.parse().ok()?;
    Some(Proc {
        pid: text.get(..open)?.trim().parse().ok()?,
        name: text.get(open + 1..close)?.to_owned(),
        // A first thread that ended shows as a zombie while other threads run on.
        dead: matches!(field(3)?, "Z" | "X" | "x") && threads <= 1,
        parent: field(4)?.parse().ok()?,
        session: field(6)?.parse().ok()?,
        start: field(22)?.parse().ok()?,
    })
}

fn pid_of(pid: u32) -> Option<Pid> {
    i32::try_from(pid).ok().and_then(Pid::from_raw)
}

fn is_gone(e: &io::Error) -> bool {
    e.kind() == io::ErrorKind::NotFound || e.raw_os_error() == Some(Errno::SRCH.raw_os_error())
}

/// A descriptor of one process. Where the kernel or a sandbox has none, only number and start time.
#[derive(Debug)]
pub(super) enum Pidfd {
    Fd(OwnedFd),
    Number { pid: u32, start: u64 },
}

impl Pidfd {
    /// Opens a descriptor; the caller compares the start time afterwards.
    pub(super) fn open(pid: u32, start: u64) -> io::Result<Option<Pidfd>> {
        let Some(raw) = pid_of(pid) else { return Ok(None) };
        match rustix::process::pidfd_open(raw, PidfdFlags::empty()) {
            Ok(fd) => Ok(Some(Pidfd::Fd(fd))),
            Err(Errno::SRCH) => Ok(None),
            Err(Errno::NOSYS | Errno::PERM) => Ok(Some(Pidfd::Number { pid, start })),
            Err(e) => Err(e.into()),
        }
    }

    pub(super) fn signal(&self, signal: Signal) -> io::Result<bool> {
        let sent = match self {
            Pidfd::Fd(fd) => rustix::process::pidfd_send_signal(fd, signal),
            Pidfd::Number { pid, start } => match (look(*pid)?, pid_of(*pid)) {
                (Some(p), Some(raw)) if p.start == *start && !p.dead => {
                    rustix::process::kill_process(raw, signal)
                }
                _ => return Ok(false),
            },
        };
        match sent {
            Ok(()) => Ok(true),
            Err(Errno::SRCH) => Ok(false),
            Err(e) => Err(e.into()),
        }
    }

    pub(super) fn wait(&self, timeout: Duration) -> io::Result<bool> {
        let fd = match self {
            Pidfd::Fd(fd) => fd,
            Pidfd::Number { pid, start } => {
                let gone = || Ok(look(*pid)?.is_none_or(|p| p.start != *start || p.dead));
                return super::unix::poll_until(timeout, gone);
            }
        };
        let until = std::time::Instant::now() + timeout;
        loop {
            let left = until.saturating_duration_since(std::time::Instant::now());
            let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
            match poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&left)) {
                Ok(n) => return Ok(n > 0),
                Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }
}

/// Lets go of the pages of the program's text: those that are needed again are still in the system's memory, and those
/// that only the start needed no longer count as ours.
///
/// For who waits for long: it costs a fault for each page that is touched next.
pub fn shrink() {
    unsafe extern "C" {
        // Defined by every linker of this system: the bounds of what is mapped for reading and execution only.
        static __executable_start: u8;
        static etext: u8;
    }
    let page = rustix::param::page_size();
    let (start, end) = (&raw const __executable_start as usize, &raw const etext as usize);
    let start = start.next_multiple_of(page);
    let length = (end & !(page - 1)).saturating_sub(start);
    // SAFETY: nothing writes to these pages, so that they are read from the file again, as they were.
    let _ = unsafe {
        rustix::mm::madvise(start as *mut std::ffi::c_void, length, rustix::mm::Advice::LinuxDontNeed)
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(name: &str, state: &str, threads: u32) -> Vec<u8> {
        format!("42 ({name}) {state} 7 42 40 0 -1 0 0 0 0 0 0 0 0 0 20 0 {threads} 0 9876 0 0 0").into_bytes()
    }

    #[test]
    fn a_name_with_brackets_and_bytes_does_not_shift_the_fields() {
        let mut line = stat("a) Z 1 (b", "S", 1);
        let at = line.iter().position(|b| *b == b'b').unwrap();
        line[at] = 0xff;
        let p = parse_stat(&line).unwrap();
        assert_eq!((p.pid, p.parent, p.session, p.start, p.dead), (42, 7, 40, 9876, false));
    }

    #[test]
    fn a_zombie_is_dead_unless_a_thread_of_it_lives() {
        assert!(parse_stat(&stat("x", "Z", 1)).unwrap().dead);
        assert!(!parse_stat(&stat("x", "Z", 2)).unwrap().dead);
        assert!(parse_stat(b"42 (x").is_none());
    }

    #[test]
    fn an_environment_entry_is_matched_whole() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .env_clear()
            .env("WORKSPOOL_T", "abc/1")
            .stdin(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let pid = child.id();
        let full = has_env(pid, b"WORKSPOOL_T=abc/1");
        let others = [&b"WORKSPOOL_T=abc/"[..], b"WORKSPOOL_T=abc/12", b"T=abc/1"].map(|e| has_env(pid, e));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(full);
        assert_eq!(others, [false; 3]);
    }
}
