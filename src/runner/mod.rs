//! The runner: moves tickets on. `tick` is one pass, `run` a loop of them; any number may run at once, and
//! killing one kills no task.

mod claim;
mod exec;
mod pass;
mod presence;
mod watch;

pub use claim::{Limit, provider_limit, standing};
pub use exec::exec;
pub use pass::{Pass, next_due, pass};
pub use presence::{Awake, Woken, awake, is_awake, restart, shutdown, wake};
pub use watch::Watch;

use crate::care::heartbeat::{AlreadyRunning, Heartbeat};
use crate::model::{Config, Ticket, TimedTicket};
use crate::spool::{Spool, SpoolError, is_empty, names, parsed};
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// From a pass that started nothing to the next one at least.
const REST: Duration = Duration::from_millis(5);

/// How a loop runs.
#[derive(Debug, Clone)]
pub struct Loop {
    /// Time between passes that nothing woke.
    pub poll: Duration,
    /// End when nothing is queued, running, or waiting for something that will come by itself.
    pub drain: bool,
    /// Do nothing if another loop is awake.
    pub unless_awake: bool,
    /// Set to end the loop after the pass that is under way. Running tasks go on.
    pub stop: Arc<AtomicBool>,
}

/// Makes passes until told to stop, or with `drain` until nothing is left to do. `report` hears of each.
///
/// One loop a spool: another one is refused with [`AlreadyRunning`].
/// A drain may always run beside: it ends by itself, and any number of runners is safe.
pub fn run(spool: &Spool, config: &Config, how: &Loop, mut report: impl FnMut(&Pass)) -> anyhow::Result<()> {
    let watch = Watch::new(spool, config, true);
    let waker = watch.waker();
    let stop = Arc::clone(&how.stop);
    let _signals = on_stop_signal(move || {
        stop.store(true, Ordering::SeqCst);
        let _ = waker.send(());
    })?;
    let mut children: Vec<Child> = Vec::new();
    let mut held = presence::hold(spool, how.drain)?;
    if held.is_none() && how.unless_awake {
        return Ok(());
    }
    let mut heartbeat = match how.drain {
        true => None,
        false => match Heartbeat::take(spool, how.poll) {
            Err(e) if how.unless_awake && e.is::<AlreadyRunning>() => return Ok(()),
            other => Some(other?),
        },
    };
    // Whether the last wait ended by itself; whether what the last work needed is given back.
    let (mut quiet, mut shrunk) = (false, false);
    while !how.stop.load(Ordering::SeqCst) {
        let begun = Instant::now();
        let mut done = pass(spool, config);
        let idle = done.started.is_empty() && done.due.is_none();
        if let Some(heartbeat) = &mut heartbeat {
            heartbeat.passed();
        }
        report(&done);
        children.append(&mut done.started);
        reap(&mut children);
        if how.drain && done.admitted.waiting == 0 && nothing_left(spool, config)? {
            // Let go first, then look again: see `presence`.
            held = None;
            if nothing_left(spool, config)? {
                // They may still tidy up.
                children.iter_mut().for_each(|child| drop(child.wait()));
                break;
            }
        }
        if held.is_none() {
            held = presence::hold(spool, how.drain)?;
        }
        if let Some(why) = done.blocked.filter(|_| how.drain && children.is_empty()) {
            anyhow::bail!(why);
        }
        if !idle {
            shrunk = false;
        } else if quiet && !shrunk {
            // Once: what an idle pass needs stays.
            crate::process::shrink();
            shrunk = true;
        }
        quiet = !watch.wait(done.due.map_or(how.poll, |due| due.min(how.poll)));
        if idle && !quiet {
            // Supervisors that go on by themselves ring at each end: one look serves several.
            std::thread::sleep(REST.saturating_sub(begun.elapsed()));
        }
    }
    Ok(())
}

/// Takes the exit status of supervisors that have ended.
pub fn reap(children: &mut Vec<Child>) {
    children.retain_mut(|child| !matches!(child.try_wait(), Ok(Some(_)) | Err(_)));
}

/// Whether nothing is queued or running, and no attempt is about to be repeated. A task that waits for a
/// time that somebody chose, for a provider's limit, for an answer or for a hand is not waited for.
fn nothing_left(spool: &Spool, config: &Config) -> anyhow::Result<bool> {
    use crate::model::HeldReason;
    // What is cheap to see is looked for first: a queue may be long.
    let busy = !parsed::<Ticket>(&spool.running())?.is_empty()
        || !only_limited(spool, config)?
        || crate::intake::is_pending(spool)?
        || names(&spool.releases())?.iter().any(|note| is_releasable(spool, note))
        || parsed::<TimedTicket>(&spool.held(HeldReason::Time))?.iter().any(|t| t.ticket.attempt > 1);
    Ok(!busy)
}

/// Whether every queued ticket, if there is one, waits for a provider's limit.
fn only_limited(spool: &Spool, config: &Config) -> anyhow::Result<bool> {
    if is_empty(&spool.queue())? {
        return Ok(true);
    }
    let queued = parsed::<Ticket>(&spool.queue())?;
    Ok(queued.is_empty() || claim::all_limited(spool, config, &queued))
}

/// Whether the note of a task with dependents stands for something to do now. While the task has not ended, it does not;
/// where its records are broken they never are released: `check` tells of it.
fn is_releasable(spool: &Spool, note: &std::ffi::OsStr) -> bool {
    let id = note.to_str().and_then(|n| n.parse().ok());
    id.is_some_and(|id| match spool.state_of(id) {
        Ok(state) => state.is_terminal(),
        Err(e) => !matches!(e, SpoolError::Broken(..)),
    })
}

/// Calls `act` at SIGTERM, SIGINT and SIGHUP instead of dying of them.
fn on_stop_signal(act: impl Fn() + Send + 'static) -> anyhow::Result<signal_hook::iterator::Handle> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let mut signals = signal_hook::iterator::Signals::new([SIGTERM, SIGINT, SIGHUP])?;
    let handle = signals.handle();
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        for _ in signals.forever() {
            act();
        }
    })?;
    Ok(handle)
}
