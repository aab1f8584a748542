//! Points at which a test can make the world fail.
//!
//! Each operation on files, git or processes passes one point. With the `faults` feature the
//! environment variable `WORKSPOOL_FAULT=<k>:<what>` makes the k-th point of this process kill it
//! (`kill`), or fail with `enospc`, `eio` or `eacces`; `WORKSPOOL_FAULT_LOG=<file>` appends the name of
//! every point passed. Without the feature a point is nothing at all.

use std::io;

/// Passes one point; fails or dies here if the test said so.
#[cfg(not(feature = "faults"))]
#[inline(always)]
pub fn point(_name: &'static str) -> io::Result<()> {
    Ok(())
}

/// Passes one point; fails or dies here if the test said so.
#[cfg(feature = "faults")]
pub fn point(name: &'static str) -> io::Result<()> {
    use std::io::Write as _;
    use std::sync::atomic::{AtomicU64, Ordering};
    static PASSED: AtomicU64 = AtomicU64::new(0);

    let k = PASSED.fetch_add(1, Ordering::SeqCst) + 1;
    if let Some(path) = std::env::var_os("WORKSPOOL_FAULT_LOG")
        && let Ok(mut log) = std::fs::OpenOptions::new().append(true).create(true).open(path)
    {
        let _ = writeln!(log, "{} {k} {name}", std::process::id());
    }
    let Some(order) = std::env::var("WORKSPOOL_FAULT").ok() else { return Ok(()) };
    let Some((at, what)) = order.split_once(':') else { return Ok(()) };
    let hit = at.parse::<u64>().map_or(at == name, |at| at == k);
    if !hit {
        return Ok(());
    }
    match what {
        "kill" => {
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL)?;
            loop {
                std::thread::park();
            }
        }
        "enospc" => Err(rustix::io::Errno::NOSPC.into()),
        "eio" => Err(rustix::io::Errno::IO.into()),
        "eacces" => Err(rustix::io::Errno::ACCESS.into()),
        _ => Ok(()),
    }
}
