//! What macOS says about processes: `proc_pidinfo` and `sysctl`.
//!
//! There is no child subreaper, no pidfd, no parent-death signal: a process that daemonises between
//! two looks and drops its environment escapes. Every census here is a scan and says so.

use super::{Proc, Signal};
use rustix::io::Errno;
use rustix::process::Pid;
use std::ffi::CStr;
use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

/// Returns the id of this boot of the machine.
pub fn boot_id() -> io::Result<String> {
    static ID: OnceLock<String> = OnceLock::new();
    if let Some(id) = ID.get() {
        return Ok(id.clone());
    }
    let mut text = [0u8; 128];
    let mut len = text.len();
    // SAFETY: the name is a C string, `text` has room for `len` bytes.
    let code = unsafe {
        libc::sysctlbyname(
            c"kern.bootsessionuuid".as_ptr(),
            text.as_mut_ptr().cast(),
            &mut len,
            std::ptr::null_mut(),
            0,
        )
    };
    if code != 0 {
        return Err(io::Error::last_os_error());
    }
    let id = CStr::from_bytes_until_nul(&text).map_err(io::Error::other)?;
    Ok(ID.get_or_init(|| id.to_string_lossy().into_owned()).clone())
}

/// There are no pid namespaces.
pub(super) fn pid_namespace() -> io::Result<u64> {
    Ok(0)
}

/// There is no child subreaper: orphans go to launchd.
pub fn become_subreaper() -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Never: there is no child subreaper.
pub fn is_subreaper() -> bool {
    false
}

/// There is no parent-death signal; only checks that the parent is still there. For `pre_exec`.
pub fn die_with_parent(parent: Pid) -> io::Result<()> {
    if rustix::process::getppid() == Some(parent) { Ok(()) } else { Err(Errno::SRCH.into()) }
}

/// Returns what is known of one process, dead but unreaped ones included.
pub(super) fn look(pid: u32) -> io::Result<Option<Proc>> {
    let Ok(raw) = i32::try_from(pid) else { return Ok(None) };
    if raw <= 0 {
        return Ok(None);
    }
    let mut info = MaybeUninit::<libc::proc_bsdinfo>::zeroed();
    let size = size_of::<libc::proc_bsdinfo>() as i32;
    // An argument of 1 asks for zombies too.
    // SAFETY: `info` has room for `size` bytes.
    let got = unsafe { libc::proc_pidinfo(raw, libc::PROC_PIDTBSDINFO, 1, info.as_mut_ptr().cast(), size) };
    if got != size {
        let error = io::Error::last_os_error();
        return match error.raw_os_error() {
            Some(libc::ESRCH) | Some(libc::EPERM) | Some(0) => Ok(None),
            _ => Err(error),
        };
    }
    // SAFETY: filled in by the call, and any bytes are a valid value.
    let info = unsafe { info.assume_init() };
    let session = rustix::process::getsid(Pid::from_raw(raw)).map_or(0, |p| p.as_raw_nonzero().get() as u32);
    let name = info.pbi_comm.iter().map(|c| *c as u8).take_while(|c| *c != 0).collect::<Vec<u8>>();
    Ok(Some(Proc {
        pid,
        parent: info.pbi_ppid,
        session,
        start: info.pbi_start_tvsec * 1_000_000 + info.pbi_start_tvusec,
        dead: info.pbi_status == libc::SZOMB,
        name: String::from_utf8_lossy(&name).into_owned(),
    }))
}

/// Returns all processes that we can see, the dead ones left out.
pub(super) fn all() -> io::Result<Vec<Proc>> {
    let mut pids: Vec<i32> = vec![0; 1024];
    loop {
        let room = (pids.len() * size_of::<i32>()) as i32;
        // SAFETY: `pids` has room for `room` bytes.
        let count = unsafe { libc::proc_listallpids(pids.as_mut_ptr().cast(), room) };
        if count < 0 {
            return Err(io::Error::last_os_error());
        }
        // A full buffer may have been cut.
        if (count as usize) < pids.len() {
            pids.truncate(count as usize);
            break;
        }
        pids.resize(pids.len() * 2, 0);
    }
    let alive = |pid: &i32| look(u32::try_from(*pid).ok()?).ok().flatten().filter(|p| !p.dead);
    Ok(pids.iter().filter_map(alive).collect())
}

/// Says whether a process's environment held `entry` when its program started.
///
/// Hidden for other users' processes and for programs that the system protects.
pub(super) fn has_env(pid: u32, entry: &[u8]) -> bool {
    let Some(args) = arguments(pid) else { return false };
    // Layout: argc, the program's path, padding NULs, argc arguments, then the environment.
    let Some((argc, rest)) = args.split_first_chunk::<4>() else { return false };
    let argc = usize::try_from(i32::from_ne_bytes(*argc)).unwrap_or(0);
    let Some(path_end) = rest.iter().position(|b| *b == 0) else { return false };
    let after_path = &rest[path_end..];
    let Some(first) = after_path.iter().position(|b| *b != 0) else { return false };
    after_path[first..].split(|b| *b == 0).skip(argc).any(|e| e == entry)
}

fn arguments(pid: u32) -> Option<Vec<u8>> {
    let mut name = [libc::CTL_KERN, libc::KERN_PROCARGS2, i32::try_from(pid).ok()?];
    let mut bytes = vec![0u8; 1 << 20];
    let mut len = bytes.len();
    // SAFETY: `name` has three parts, `bytes` has room for `len` bytes.
    let code = unsafe {
        libc::sysctl(name.as_mut_ptr(), 3, bytes.as_mut_ptr().cast(), &mut len, std::ptr::null_mut(), 0)
    };
    (code == 0).then(|| {
        bytes.truncate(len);
        bytes
    })
}

/// Numbers are given at random here.
pub(super) fn last_number() -> Option<u32> {
    None
}

/// Numbers are given at random here.
pub(super) fn numbers_since(_first: u32) -> Option<std::iter::Empty<u32>> {
    None
}

/// Says whether a process works in `dir` or below it.
pub(super) fn works_in(pid: u32, dir: &Path) -> bool {
    let Ok(raw) = i32::try_from(pid) else { return false };
    let mut info = MaybeUninit::<libc::proc_vnodepathinfo>::zeroed();
    let size = size_of::<libc::proc_vnodepathinfo>() as i32;
    // SAFETY: `info` has room for `size` bytes.
    let got =
        unsafe { libc::proc_pidinfo(raw, libc::PROC_PIDVNODEPATHINFO, 0, info.as_mut_ptr().cast(), size) };
    if got != size {
        return false;
    }
    // SAFETY: filled in by the call; the path is a C string inside its buffer.
    let cwd = unsafe { CStr::from_ptr(info.assume_init_ref().pvi_cdir.vip_path.as_ptr().cast()) };
    Path::new(std::ffi::OsStr::from_bytes(cwd.to_bytes())).starts_with(dir)
}

/// Stands for a descriptor of one process: number and start time, compared just before use.
#[derive(Debug)]
pub(super) struct Pidfd {
    pid: u32,
    start: u64,
}

impl Pidfd {
    pub(super) fn open(pid: u32, start: u64) -> io::Result<Option<Pidfd>> {
        Ok(Some(Pidfd { pid, start }))
    }

    fn is_there(&self) -> io::Result<bool> {
        Ok(look(self.pid)?.is_some_and(|p| p.start == self.start && !p.dead))
    }

    pub(super) fn signal(&self, signal: Signal) -> io::Result<bool> {
        let raw = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        let Some(raw) = raw.filter(|_| self.is_there().unwrap_or(false)) else { return Ok(false) };
        match rustix::process::kill_process(raw, signal) {
            Ok(()) => Ok(true),
            Err(Errno::SRCH) => Ok(false),
            Err(e) => Err(e.into()),
        }
    }

    pub(super) fn wait(&self, timeout: Duration) -> io::Result<bool> {
        super::unix::poll_until(timeout, || Ok(!self.is_there()?))
    }
}
/// Lets go of memory that only the start needed: here the system does so by itself.
pub fn shrink() {}
