//! The end from outside: a signal ends the run at once, and everything that it started.

use crate::process::{Domain, Marker};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Held while a process is being started, and for ever by whoever ends the run: nothing starts after that.
static STARTING: Mutex<()> = Mutex::new(());

/// How long a process may take to die of a KILL before we leave it to our keeper.
const LIMIT: Duration = Duration::from_secs(5);

/// Keeps the run from being ended while a process is being started. Hold it for that long only.
pub(super) fn starting() -> MutexGuard<'static, ()> {
    STARTING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for the end of the run if it is being ended, else returns at once.
///
/// For whoever sees a process end: if that was our end's doing, nothing may be made of it.
pub(super) fn check() {
    drop(starting());
}

/// All processes below this one. Nobody else bears the marker: descent is what counts.
pub(super) fn descendants() -> Domain {
    Domain::of_descendants(Marker::new("agent", &std::process::id().to_string(), 0, "tool"))
}

/// Ends the run on TERM, INT or HUP: first what it started, then itself, by that signal.
pub(super) fn on_signals() -> std::io::Result<()> {
    let mut signals = signal_hook::iterator::Signals::new([SIGTERM, SIGINT, SIGHUP])?;
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        let Some(signal) = signals.forever().next() else { return };
        let guard = starting();
        // Nobody is left to tell of a failure; what survives is our keeper's to find.
        let _ = descendants().end(Duration::ZERO, LIMIT);
        let _ = signal_hook::low_level::emulate_default_handler(signal);
        drop(guard);
    })?;
    Ok(())
}

/// Keeps the key that our environment holds from commands of the same user: on Linux they can then neither
/// read `/proc/<us>/environ` nor attach to us. macOS has no such switch.
pub(super) fn hide_environment() {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{DumpableBehavior, set_dumpable_behavior};
        // Only a second door: commands do not get the variable in the first place.
        let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    }
}
