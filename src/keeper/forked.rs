//! The keeper in a process that was just forked for it (Linux).

use super::entry::{catch_signals, live};
use super::plan::StepPlan;
use super::{ERRORS, LOCK};
use crate::durable::{self, Held};
use crate::process;
use anyhow::Context as _;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::fd::{AsFd as _, AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Lives up to the exit code. What it complains of goes to the same file as that of a keeper that was started.
pub(super) fn life(dir: &Path, plan: &StepPlan, lock: &Held, open: &OwnedFd, supervisor_lock: &Path) -> u8 {
    let errors = dir.join(ERRORS);
    let complain = move |what: &dyn std::fmt::Display| {
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(&errors);
        let _ = file.and_then(|mut file| writeln!(file, "keeper: {what}"));
    };
    let panicked = complain.clone();
    std::panic::set_hook(Box::new(move |info| panicked(info)));
    let begin = || -> anyhow::Result<((Held, OwnedFd), Arc<AtomicBool>)> {
        process::begin_anew(c"workspool-keep").context("beginning")?;
        durable::fault::forked(&["keep", &dir.to_string_lossy()]);
        let (lock_fd, open_fd) = (lock.as_fd().as_raw_fd(), open.as_raw_fd());
        // SAFETY: what has other descriptors is our parent's memory, which this process never looks at again.
        unsafe { process::close_all_but(&[lock_fd, open_fd]) }.context("closing inherited descriptors")?;
        // SAFETY: our parent's copy of its owner is never dropped here.
        let held = unsafe { Held::from_inherited(lock_fd, dir.join(LOCK)) }.context("the step's lock")?;
        // SAFETY: the same.
        let open = unsafe { OwnedFd::from_raw_fd(open_fd) };
        Ok(((held, open), catch_signals()?))
    };
    let lived = begin().and_then(|(held, look)| live(dir, plan, look, held, supervisor_lock));
    lived.map_or_else(
        |e| {
            complain(&format_args!("{e:#}"));
            1
        },
        |()| 0,
    )
}
