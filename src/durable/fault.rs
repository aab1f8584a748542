//! Points at which a test can make the world fail.
//!
//! Each operation on files, git or processes passes one point. With the `faults` feature the
//! environment variable `WORKSPOOL_FAULT=<k>:<what>` makes the k-th point of this process (or those of a name,
//! or `each`) kill it (`kill`), stop it until it is told to go on (`stop`), or fail with `enospc`, `eio` or
//! `eacces`; `WORKSPOOL_FAULT_LOG=<file>` appends the name of every point passed. Without the feature a point
//! is nothing at all.
//!
//! Both variables are inherited by the processes that a process starts. `WORKSPOOL_FAULT_PROCESS=<verb>` or
//! `<verb>:<text>` limits points to processes with this first argument, and with an argument that ends with
//! the text; `WORKSPOOL_FAULT_ONCE=<file>` lets only one process be hit: the one that could make the file.

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
    use std::sync::atomic::Ordering;

    if !is_meant() {
        return Ok(());
    }
    let _one_at_a_time = PASSING.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let k = PASSED.fetch_add(1, Ordering::SeqCst) + 1;
    if let Some(path) = std::env::var_os("WORKSPOOL_FAULT_LOG")
        && let Ok(mut log) = std::fs::OpenOptions::new().append(true).create(true).open(path)
    {
        // In one piece: others write there, too.
        let _ = log.write_all(format!("{} {k} {name}\n", std::process::id()).as_bytes());
    }
    let Some(order) = std::env::var("WORKSPOOL_FAULT").ok() else { return Ok(()) };
    let Some((at, what)) = order.split_once(':') else { return Ok(()) };
    let hit = at.parse::<u64>().map_or(at == name || at == "each", |at| at == k);
    if !hit || !is_first() {
        return Ok(());
    }
    match what {
        "kill" => {
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL)?;
            loop {
                std::thread::park();
            }
        }
        // This thread is the one that stops, and stops here: no other passes a point before all go on.
        "stop" => signal_hook::low_level::raise(rustix::process::Signal::STOP.as_raw()),
        "enospc" => Err(rustix::io::Errno::NOSPC.into()),
        "eio" => Err(rustix::io::Errno::IO.into()),
        "eacces" => Err(rustix::io::Errno::ACCESS.into()),
        _ => Ok(()),
    }
}

/// How many points this process has passed.
#[cfg(feature = "faults")]
static PASSED: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);

/// Held by the thread that passes a point: two that stop at once would be told once to go on.
#[cfg(feature = "faults")]
static PASSING: std::sync::Mutex<()> = std::sync::Mutex::new(());

/// Whether this is the process that the test means, once that is known.
#[cfg(feature = "faults")]
static MEANT: std::sync::Mutex<Option<bool>> = std::sync::Mutex::new(None);

#[cfg(feature = "faults")]
fn is_meant() -> bool {
    let args = || std::env::args_os().skip(1).map(|a| a.to_string_lossy().into_owned());
    *MEANT.lock().unwrap_or_else(std::sync::PoisonError::into_inner).get_or_insert_with(|| means(args()))
}

/// Whether the test means a process with these arguments.
#[cfg(feature = "faults")]
fn means(args: impl Iterator<Item = String>) -> bool {
    let Ok(which) = std::env::var("WORKSPOOL_FAULT_PROCESS") else { return true };
    let (verb, text) = which.split_once(':').unwrap_or((&which, ""));
    let args: Vec<String> = args.collect();
    args.first().is_some_and(|a| a == verb) && args.iter().any(|a| a.ends_with(text))
}

/// Says that this process was forked to do what one with these arguments does.
#[cfg(feature = "faults")]
pub fn forked(args: &[&str]) {
    PASSED.store(0, std::sync::atomic::Ordering::SeqCst);
    let meant = means(args.iter().map(|a| (*a).to_owned()));
    *MEANT.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(meant);
}

/// Says that this process was forked to do what one with these arguments does.
#[cfg(not(feature = "faults"))]
#[inline(always)]
pub fn forked(_args: &[&str]) {}

/// Whether no other process was hit before.
#[cfg(feature = "faults")]
fn is_first() -> bool {
    let Some(path) = std::env::var_os("WORKSPOOL_FAULT_ONCE") else { return true };
    std::fs::OpenOptions::new().write(true).create_new(true).open(path).is_ok()
}
