//! A keeper that was forked for a step, and stays for the next one (Linux).
//!
//! It is at the other end of a socket. From the supervisor comes a message for each step: its folder and the
//! supervisor's lock, with the step's own lock as an open descriptor. Back goes a byte when that lock is free: whether
//! the keeper stays. It only stays if nothing of the step is left, and it goes when the supervisor does.

use super::entry::{catch_signals, live, read_plan};
use super::plan::StepPlan;
use super::{ERRORS, LOCK};
use crate::durable::{self, Held};
use crate::process::{self, Fork};
use anyhow::Context as _;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::io::{self, IoSlice, IoSliceMut, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, AsRawFd as _, FromRawFd as _, IntoRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The keeper that has no step.
static IDLE: Mutex<Option<Kept>> = Mutex::new(None);

/// What it says of a step that is over.
const STAYS: u8 = b's';
const GOES: u8 = b'g';

/// Two paths, each of at most 4,096 bytes (PATH_MAX of Linux).
const MESSAGE: usize = 2 * 4096;

/// Which step, and the lock that its supervisor holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Order {
    pub(super) step_dir: PathBuf,
    pub(super) supervisor_lock: PathBuf,
}

/// A keeper that is our child.
#[derive(Debug)]
pub struct Kept {
    _fork: Fork,
    line: OwnedFd,
}

impl Kept {
    /// Gives the step to the keeper that has none, or to a new one; `None` where this process cannot be copied.
    pub(super) fn hand(order: &Order, plan: &StepPlan, held: &Held) -> io::Result<Option<Kept>> {
        if let Some(kept) = take() {
            durable::fault::point("hand-step")?;
            // One that died meanwhile is as good as none.
            if order.send(&kept.line, held).is_ok() {
                return Ok(Some(kept));
            }
        }
        let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
        let (line, theirs) = rustix::net::socketpair(AddressFamily::UNIX, kind, flags, None)?;
        durable::fault::point("spawn-keeper")?;
        let fork = process::fork(|| life(order, plan, held, &theirs))?;
        Ok(fork.map(|fork| Kept { _fork: fork, line }))
    }

    /// Waits until the step's lock is free, at most for `most`; says whether it is.
    pub(super) fn is_done_within(&self, most: Duration) -> io::Result<bool> {
        process::stirs_within(&self.line, most)
    }

    /// The keeper, if it stays when its step is done. Waits for that.
    pub(super) fn stays(self) -> Option<Kept> {
        let mut said = [0];
        loop {
            match rustix::net::recv(&self.line, &mut said, RecvFlags::empty()) {
                Ok((_, n)) => return (n == 1 && said[0] == STAYS).then_some(self),
                Err(Errno::INTR) => {}
                // It died.
                Err(_) => return None,
            }
        }
    }

    /// Lets it wait for a step. One is enough.
    pub(super) fn rest(self) {
        IDLE.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(self);
    }
}

fn take() -> Option<Kept> {
    IDLE.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// Sends the keeper away that has no step: the next one shall be a copy of what this process is then.
pub fn dismiss() {
    drop(take());
}

impl Order {
    fn send(&self, line: &OwnedFd, held: &Held) -> io::Result<()> {
        let paths = [self.step_dir.as_os_str(), self.supervisor_lock.as_os_str()].map(OsStr::as_bytes);
        let message = paths.join(&0);
        if message.len() > MESSAGE {
            return Err(Errno::NAMETOOLONG.into());
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut beside = SendAncillaryBuffer::new(&mut space);
        let lock = [held.as_fd()];
        beside.push(SendAncillaryMessage::ScmRights(&lock));
        rustix::net::sendmsg(line, &[IoSlice::new(&message)], &mut beside, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Waits for the next one; `None` when the supervisor is gone, or wants no more.
    fn receive(line: &OwnedFd) -> anyhow::Result<Option<(Order, OwnedFd)>> {
        let mut message = vec![0; MESSAGE];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let (n, lock) = loop {
            let mut beside = RecvAncillaryBuffer::new(&mut space);
            let mut into = [IoSliceMut::new(&mut message)];
            match rustix::net::recvmsg(line, &mut into, &mut beside, RecvFlags::CMSG_CLOEXEC) {
                Ok(got) => {
                    let fds = beside.drain().filter_map(|message| match message {
                        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
                        _ => None,
                    });
                    break (got.bytes, fds.flatten().next());
                }
                Err(Errno::INTR) => {}
                Err(Errno::CONNRESET) => return Ok(None),
                Err(e) => return Err(e).context("waiting for a step"),
            }
        };
        if n == 0 {
            return Ok(None);
        }
        let mut paths = message[..n].split(|b| *b == 0).map(|path| PathBuf::from(OsStr::from_bytes(path)));
        let (Some(step_dir), Some(supervisor_lock), Some(lock)) = (paths.next(), paths.next(), lock) else {
            anyhow::bail!("a step without a folder or a lock");
        };
        Ok(Some((Order { step_dir, supervisor_lock }, lock)))
    }
}

/// Lives up to the exit code. What it complains of goes to the same file as that of a keeper that was started.
fn life(first: &Order, plan: &StepPlan, lock: &Held, line: &OwnedFd) -> u8 {
    let at: Arc<Mutex<PathBuf>> = Arc::new(Mutex::new(first.step_dir.clone()));
    let errors = Arc::clone(&at);
    let complain = move |what: &dyn std::fmt::Display| {
        let path = errors.lock().unwrap_or_else(PoisonError::into_inner).join(ERRORS);
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(path);
        let _ = file.and_then(|mut file| writeln!(file, "keeper: {what}"));
    };
    let panicked = complain.clone();
    std::panic::set_hook(Box::new(move |info| panicked(info)));
    let lived = keep_all(first, plan, lock, line, |dir| {
        dir.clone_into(&mut at.lock().unwrap_or_else(PoisonError::into_inner));
    });
    lived.map_or_else(
        |e| {
            complain(&format_args!("{e:#}"));
            1
        },
        |()| 0,
    )
}

fn keep_all(
    first: &Order,
    plan: &StepPlan,
    lock: &Held,
    line: &OwnedFd,
    mut move_to: impl FnMut(&Path),
) -> anyhow::Result<()> {
    process::begin_anew(c"workspool-keep").context("beginning")?;
    durable::fault::forked(&["keep", &first.step_dir.to_string_lossy()]);
    let (lock_fd, line_fd) = (lock.as_fd().as_raw_fd(), line.as_raw_fd());
    // SAFETY: what has other descriptors is our parent's memory, which this process never looks at again.
    unsafe { process::close_all_but(&[lock_fd, line_fd]) }.context("closing inherited descriptors")?;
    // SAFETY: our parent's copy of its owner is never dropped here.
    let line = unsafe { OwnedFd::from_raw_fd(line_fd) };
    let look = catch_signals()?;
    // SAFETY: the same.
    let held = unsafe { Held::from_inherited(lock_fd, first.step_dir.join(LOCK)) };
    let one = |order: &Order, plan: &StepPlan, held: io::Result<Held>| {
        let held = held.context("the step's lock")?;
        let stays = live(&order.step_dir, plan, &look, held, &order.supervisor_lock)?;
        // Whoever does not hear it is gone.
        let _ = rustix::net::send(&line, &[if stays { STAYS } else { GOES }], SendFlags::NOSIGNAL);
        anyhow::Ok(stays)
    };
    if !one(first, plan, held)? {
        return Ok(());
    }
    loop {
        durable::fault::point("await-step")?;
        let Some((order, lock)) = Order::receive(&line)? else { break };
        move_to(&order.step_dir);
        durable::fault::forked(&["keep", &order.step_dir.to_string_lossy()]);
        // SAFETY: it was sent to us, and is owned here alone.
        let held = unsafe { Held::from_inherited(lock.into_raw_fd(), order.step_dir.join(LOCK)) };
        if !one(&order, &read_plan(&order.step_dir)?, held)? {
            break;
        }
    }
    Ok(())
}
