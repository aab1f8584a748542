//! Who works the spool: one loop at a time, known by its lock; any number of ticks beside it.
//!
//! (A draining loop is none of these: it ends by itself. Whether any runner at all is awake is what
//! `locks/runner` says, see `runner::presence`.)
//!
//! The lock says whether a loop lives, the file beside it says who and how lately it made a pass. Neither
//! is needed for correctness: any number of runners is safe, but two loops only look over each other's
//! shoulder.

use crate::durable::{self, Held};
use crate::model::VERSION;
use crate::process::{Identity, Liveness, Signal};
use crate::spool::Spool;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How often the file is written at most.
const BEAT: Duration = Duration::from_secs(2);
/// How long a loop has to end after it was asked to.
const GRACE: Duration = Duration::from_secs(20);

/// What a loop says of itself: `runner.json`. A tick leaves the same in `tick.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Beat {
    /// Version of this format.
    pub version: u32,
    /// The process.
    pub identity: Identity,
    /// The program's version.
    pub program: String,
    /// Since when it runs.
    pub since: DateTime<Utc>,
    /// When it last finished a pass.
    pub last_pass: DateTime<Utc>,
    /// Longest time between passes, in milliseconds; 0 for a tick.
    pub poll_ms: u64,
}

impl Beat {
    fn now(poll: Duration) -> io::Result<Self> {
        let poll_ms = u64::try_from(poll.as_millis()).unwrap_or(u64::MAX);
        let (now, program) = (Utc::now(), env!("CARGO_PKG_VERSION").to_owned());
        Ok(Beat {
            version: VERSION,
            identity: Identity::current()?,
            program,
            since: now,
            last_pass: now,
            poll_ms,
        })
    }

    /// How long ago the last pass was.
    pub fn age(&self) -> Duration {
        (Utc::now() - self.last_pass).to_std().unwrap_or_default()
    }

    /// Whether passes have not come for so long that the loop hangs, or is stopped.
    pub fn is_late(&self) -> bool {
        self.age() > Duration::from_millis(self.poll_ms.saturating_mul(3)).max(Duration::from_secs(60))
    }
}

/// Which loop works a spool.
#[derive(Debug, Clone, PartialEq)]
pub enum Runner {
    /// None.
    Nobody,
    /// None any more: this one ended without saying so.
    Gone(Beat),
    /// This one, if it could write its file.
    Works(Option<Beat>),
}

/// The right to be the loop of a spool, for as long as this lives.
#[derive(Debug)]
pub struct Heartbeat {
    _lock: Held,
    path: PathBuf,
    beat: Beat,
    written: Option<Instant>,
}

/// Another loop works the spool.
#[derive(Debug, thiserror::Error)]
#[error("another loop works this spool{}\n  hint: `workspool run --restart` takes its place and stops no task; `workspool run --drain` may run beside it", told(.0.as_ref()))]
pub struct AlreadyRunning(pub Option<Beat>);

fn told(beat: Option<&Beat>) -> String {
    beat.map_or_else(String::new, |b| {
        format!(
            ": process {}, since {}, last pass {} s ago",
            b.identity.pid,
            b.since.to_rfc3339(),
            b.age().as_secs()
        )
    })
}

fn file(spool: &Spool) -> PathBuf {
    spool.root().join("runner.json")
}

fn read(path: &std::path::Path) -> Option<Beat> {
    serde_json::from_slice(&std::fs::read(path).ok()?).ok()
}

impl Heartbeat {
    /// Becomes the loop of a spool, unless there is one.
    pub fn take(spool: &Spool, poll: Duration) -> anyhow::Result<Self> {
        let Some(lock) = spool.lock("loop").try_take()? else {
            return Err(AlreadyRunning(read(&file(spool))).into());
        };
        let mut heartbeat =
            Heartbeat { _lock: lock, path: file(spool), beat: Beat::now(poll)?, written: None };
        heartbeat.write();
        Ok(heartbeat)
    }

    /// Says that a pass was made. Writes at most every few seconds: whoever reads allows for that.
    pub fn passed(&mut self) {
        self.beat.last_pass = Utc::now();
        if self.written.is_none_or(|at| at.elapsed() >= BEAT) {
            self.write();
        }
    }

    fn write(&mut self) {
        self.written = Some(Instant::now());
        if let Ok(bytes) = serde_json::to_vec_pretty(&self.beat) {
            // A full disk must not end the loop that would make room.
            let _ = durable::replace_unsynced(&self.path, &bytes);
        }
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        let _ = durable::remove_file(&self.path);
    }
}

/// Leaves a trace of a tick, so that others can see that a timer works.
pub fn ticked(spool: &Spool) {
    if let Ok(beat) = Beat::now(Duration::ZERO)
        && let Ok(bytes) = serde_json::to_vec_pretty(&beat)
    {
        let _ = durable::replace_unsynced(&spool.root().join("tick.json"), &bytes);
    }
}

/// The last tick, if there ever was one.
pub fn last_tick(spool: &Spool) -> Option<Beat> {
    read(&spool.root().join("tick.json"))
}

/// Says which loop works a spool.
pub fn runner(spool: &Spool) -> io::Result<Runner> {
    let beat = read(&file(spool));
    if spool.lock("loop").is_held()? {
        // The file of one that died stays until the next one writes its own.
        let dead = |b: &Beat| matches!(b.identity.liveness(), Ok(Liveness::Dead | Liveness::OtherBoot));
        return Ok(Runner::Works(beat.filter(|b| !dead(b))));
    }
    match beat {
        // Where locks reach no further than one machine or container, its identity tells.
        Some(beat) if beat.identity.liveness()? == Liveness::Alive => Ok(Runner::Works(Some(beat))),
        Some(beat) => Ok(Runner::Gone(beat)),
        None => Ok(Runner::Nobody),
    }
}

/// Ends the loop of a spool, if there is one. Tasks go on: a loop holds nothing that they need.
///
/// Says which one it was.
pub fn end_loop(spool: &Spool) -> anyhow::Result<Option<Beat>> {
    let lock = spool.lock("loop");
    if !lock.is_held()? {
        return Ok(None);
    }
    let beat = read(&file(spool));
    end_holder(&lock, beat.as_ref().map(|b| &b.identity))?;
    Ok(beat)
}

/// Ends the loop that holds a lock: asks it to end, and kills it if it does not.
pub fn end_holder(lock: &durable::Lock, holder: Option<&Identity>) -> anyhow::Result<()> {
    let Some(process) = holder.map(Identity::open).transpose()?.flatten() else {
        // The lock is held, and we cannot see by whom: in another container, perhaps, or it is about to end.
        if is_free_within(lock, Duration::from_secs(2))? {
            return Ok(());
        }
        anyhow::bail!(
            "a loop holds this spool's lock, but it cannot be seen from here: end it where it was started"
        );
    };
    for signal in [Signal::TERM, Signal::KILL] {
        process.signal(signal)?;
        if process.wait(GRACE)? {
            // A service may have started the next one already: that one is not ours to wait for.
            is_free_within(lock, Duration::from_secs(2))?;
            return Ok(());
        }
    }
    anyhow::bail!("the loop does not end")
}

fn is_free_within(lock: &durable::Lock, time: Duration) -> io::Result<bool> {
    let until = Instant::now() + time;
    while lock.is_held()? {
        if Instant::now() >= until {
            return Ok(false);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spool() -> (tempfile::TempDir, Spool) {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::open(&dir.path().join("s")).unwrap();
        (dir, spool)
    }

    #[test]
    fn one_loop_at_a_time_and_the_second_hears_of_the_first() {
        let (_dir, spool) = spool();
        assert_eq!(runner(&spool).unwrap(), Runner::Nobody);
        let first = Heartbeat::take(&spool, Duration::from_secs(5)).unwrap();
        let refused = Heartbeat::take(&spool, Duration::from_secs(5)).unwrap_err();
        let AlreadyRunning(beat) = refused.downcast_ref::<AlreadyRunning>().unwrap();
        assert_eq!(beat.as_ref().unwrap().identity, Identity::current().unwrap());
        assert!(refused.to_string().contains(&format!("process {}", std::process::id())), "{refused}");
        assert!(matches!(runner(&spool).unwrap(), Runner::Works(Some(_))));
        drop(first);
        assert_eq!(runner(&spool).unwrap(), Runner::Nobody);
        Heartbeat::take(&spool, Duration::from_secs(5)).unwrap();
    }

    #[test]
    fn a_loop_that_died_is_told_by_its_identity() {
        let (_dir, spool) = spool();
        let mut beat = Beat::now(Duration::from_secs(5)).unwrap();
        beat.identity.start += 1;
        std::fs::write(file(&spool), serde_json::to_vec(&beat).unwrap()).unwrap();
        assert_eq!(runner(&spool).unwrap(), Runner::Gone(beat));
        assert!(end_loop(&spool).unwrap().is_none(), "there is none to end");
        std::fs::write(file(&spool), "{").unwrap();
        assert_eq!(runner(&spool).unwrap(), Runner::Nobody, "half a file says nothing");
    }

    #[test]
    fn passes_that_do_not_come_are_late() {
        let mut beat = Beat::now(Duration::from_secs(5)).unwrap();
        assert!(!beat.is_late());
        beat.last_pass = Utc::now() - chrono::TimeDelta::seconds(61);
        assert!(beat.is_late());
        beat.poll_ms = 60_000;
        assert!(!beat.is_late(), "three slow polls are allowed");
        beat.last_pass = Utc::now() + chrono::TimeDelta::seconds(600);
        assert!(!beat.is_late(), "a clock that was put back");
    }

    #[test]
    fn a_tick_leaves_a_trace() {
        let (_dir, spool) = spool();
        assert!(last_tick(&spool).is_none());
        ticked(&spool);
        assert!(last_tick(&spool).unwrap().age() < Duration::from_secs(60));
    }
}
