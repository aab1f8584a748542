//! Starting a command inside a control group (Linux).
//!
//! A process that writes itself into a group waits for a grace period of the whole kernel: 5 to 20 ms. One
//! that is born there (`clone3` with `CLONE_INTO_CGROUP`) does not wait, and is a member from its first
//! instruction. The standard library cannot ask for that, so the few calls between birth and `exec` are here.

use super::confine::Hook;
use super::die_with_parent;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Pid;
use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;

/// What a command is started with. Nothing else is inherited.
pub struct Birth<'a> {
    /// Program and arguments; a program without a slash is looked for along the environment's `PATH`.
    pub argv: &'a [String],
    /// The whole environment.
    pub env: Vec<(OsString, OsString)>,
    /// Where it starts.
    pub cwd: &'a Path,
    /// Standard input.
    pub stdin: File,
    /// The group's folder.
    pub group: BorrowedFd<'a>,
    /// What the child does last.
    pub last: Option<Hook>,
}

/// A command that was started: our child, the leader of a new session. It dies with the thread that started it.
#[derive(Debug)]
pub struct Born {
    /// Its number.
    pub pid: u32,
    /// What it prints.
    pub stdout: OwnedFd,
    /// The same for errors.
    pub stderr: OwnedFd,
}

/// `CLONE_INTO_CGROUP`: not in every libc.
const INTO_CGROUP: u64 = 0x2_0000_0000;

/// All that the child needs, made before it is born: it must not allocate.
struct Ready {
    programs: Vec<CString>,
    argv: Vec<*const libc::c_char>,
    env: Vec<*const libc::c_char>,
    cwd: CString,
    parent: Pid,
}

impl Birth<'_> {
    /// Starts the command. An error of the group, of the kernel and of the program look alike: whoever gets one
    /// tries the ordinary way.
    pub fn spawn(mut self) -> io::Result<Born> {
        let c = |bytes: Vec<u8>| CString::new(bytes).map_err(io::Error::from);
        let args: Vec<CString> =
            self.argv.iter().map(|a| c(a.clone().into_bytes())).collect::<io::Result<_>>()?;
        let env: Vec<CString> =
            self.env.iter().map(|(name, value)| c(entry(name, value))).collect::<io::Result<_>>()?;
        let pointers = |texts: &[CString]| -> Vec<*const libc::c_char> {
            texts.iter().map(|t| t.as_ptr()).chain([std::ptr::null()]).collect()
        };
        let ready = Ready {
            programs: self.programs()?,
            argv: pointers(&args),
            env: pointers(&env),
            cwd: c(self.cwd.as_os_str().as_bytes().to_vec())?,
            parent: rustix::process::getpid(),
        };
        let (stdout, out) = pipe_with(PipeFlags::CLOEXEC)?;
        let (stderr, err) = pipe_with(PipeFlags::CLOEXEC)?;
        let (said, say) = pipe_with(PipeFlags::CLOEXEC)?;
        // SAFETY: zeroes are a valid value of this struct of numbers.
        let mut how: libc::clone_args = unsafe { std::mem::zeroed() };
        how.flags = INTO_CGROUP;
        how.exit_signal = libc::SIGCHLD as u64;
        how.cgroup = self.group.as_raw_fd() as u64;
        // SAFETY: without CLONE_VM this is a fork. Nothing is shared, and the child goes straight to `exec`.
        let pid =
            unsafe { libc::syscall(libc::SYS_clone3, &raw mut how, std::mem::size_of::<libc::clone_args>()) };
        match pid {
            0 => {
                let failed = ready.become_it(&self.stdin, &out, &err, self.last.as_mut());
                let code = failed.to_ne_bytes();
                // SAFETY: a write of bytes that live, and the end of this process.
                unsafe {
                    libc::write(say.as_raw_fd(), code.as_ptr().cast(), code.len());
                    libc::_exit(127)
                }
            }
            -1 => Err(io::Error::last_os_error()),
            pid => {
                drop(say);
                let mut code = [0; 4];
                match File::from(said).read_exact(&mut code) {
                    // Closed by `exec`, unsaid.
                    Err(_) => Ok(Born { pid: u32::try_from(pid).unwrap_or(0), stdout, stderr }),
                    Ok(()) => {
                        let child = i32::try_from(pid).ok().and_then(Pid::from_raw);
                        let _ = rustix::process::waitpid(child, rustix::process::WaitOptions::empty());
                        Err(io::Error::from_raw_os_error(i32::from_ne_bytes(code)))
                    }
                }
            }
        }
    }

    /// Where the program may be.
    fn programs(&self) -> io::Result<Vec<CString>> {
        let program = self.argv.first().map(String::as_str).unwrap_or_default();
        if program.contains('/') {
            return Ok(vec![CString::new(program)?]);
        }
        let path = self.env.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value.as_os_str());
        let path = path.unwrap_or(OsStr::new("/bin:/usr/bin"));
        let all = std::env::split_paths(path).map(|dir| dir.join(program).into_os_string().into_vec());
        Ok(all.map(CString::new).collect::<Result<_, _>>()?)
    }
}

impl Ready {
    /// In the child: becomes the command, or returns why not. System calls only.
    fn become_it(&self, stdin: &File, out: &OwnedFd, err: &OwnedFd, last: Option<&mut Hook>) -> i32 {
        let prepare = || -> io::Result<()> {
            rustix::stdio::dup2_stdin(stdin)?;
            rustix::stdio::dup2_stdout(out)?;
            rustix::stdio::dup2_stderr(err)?;
            rustix::process::setsid()?;
            die_with_parent(self.parent)?;
            super::mounts::give_up_right();
            rustix::process::chdir(&*self.cwd)?;
            last.map_or(Ok(()), |last| last())
        };
        if let Err(e) = prepare() {
            return e.raw_os_error().unwrap_or(libc::EINVAL);
        }
        // SAFETY: our runtime ignores SIGPIPE, and what is ignored would stay so.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
        let mut failed = libc::ENOENT;
        for program in &self.programs {
            // SAFETY: the vectors end with null, and all they point to lives.
            unsafe { libc::execve(program.as_ptr(), self.argv.as_ptr(), self.env.as_ptr()) };
            let errno = io::Error::last_os_error().raw_os_error().unwrap_or(libc::ENOENT);
            // As a shell does: the next folder may have it, and a refusal is told if none has.
            if !matches!(errno, libc::ENOENT | libc::ENOTDIR | libc::EACCES) {
                return errno;
            }
            if errno == libc::EACCES {
                failed = errno;
            }
        }
        failed
    }
}

fn entry(name: &OsStr, value: &OsStr) -> Vec<u8> {
    [name.as_bytes(), b"=", value.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::super::Cgroup;
    use super::*;
    use std::os::fd::AsFd as _;

    fn birth<'a>(argv: &'a [String], group: &'a OwnedFd) -> Birth<'a> {
        Birth {
            argv,
            env: vec![("PATH".into(), "/nowhere:/bin:/usr/bin".into()), ("X".into(), "1".into())],
            cwd: Path::new("/"),
            stdin: File::open("/dev/null").unwrap(),
            group: group.as_fd(),
            last: None,
        }
    }

    #[test]
    fn a_command_is_born_in_its_group_or_says_why_not() {
        let Some(place) = Cgroup::place(&format!("born-{}", std::process::id())) else { return };
        let Some(group) = Cgroup::create(&place) else { return };
        let folder = group.folder().unwrap();
        let argv = ["sh", "-c", "cat /proc/self/cgroup; env; exit 3"].map(str::to_owned);
        let Ok(born) = birth(&argv, &folder).spawn() else { return };
        let mut said = String::new();
        File::from(born.stdout).read_to_string(&mut said).unwrap();
        let pid = Pid::from_raw(born.pid.cast_signed());
        let ended = rustix::process::waitpid(pid, rustix::process::WaitOptions::empty()).unwrap().unwrap();
        assert_eq!(ended.1.exit_status(), Some(3));
        assert!(said.contains("workspool-born-") && said.contains("X=1"), "{said}");
        assert!(!said.contains("CARGO"), "{said}");
        let argv = ["no-such-program".to_owned()];
        let missing = birth(&argv, &folder).spawn().unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        group.remove();
        assert!(!place.exists());
    }
}
