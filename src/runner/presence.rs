//! Whether a loop is awake, and waking one that outlives whoever asked.
//!
//! A loop holds `locks/runner` while it makes passes. It is no licence: any number of loops may run. It
//! answers one question for doors that have just submitted something: must somebody be woken? A draining
//! loop lets go *before* its last look, so that what came while it held the lock is seen by it, and what
//! came after finds the lock free.

use crate::care::heartbeat;
use crate::durable::{self, Held};
use crate::process::Identity;
use crate::spool::Spool;
use crate::worker::env;
use anyhow::{Context as _, bail};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long the next loop is waited for that becomes the one that is awake.
const NEXT: Duration = Duration::from_millis(500);

/// Who holds the lock: `locks/runner.json`. Only to be believed while the lock is held.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Awake {
    /// Version of this format.
    pub version: u32,
    /// The process.
    pub process: Identity,
    /// Whether it ends when nothing is left to do.
    pub drain: bool,
    /// Since when.
    pub since: DateTime<Utc>,
}

/// What waking came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Woken {
    /// A loop was awake already.
    Already,
    /// One was started, in the background.
    Started,
}

/// Holds the lock for as long as a loop makes passes; `None` if another loop does.
pub(super) fn hold(spool: &Spool, drain: bool) -> anyhow::Result<Option<Held>> {
    let Some(held) = spool.lock("runner").try_take().context("cannot lock for the loop")? else {
        return Ok(None);
    };
    let awake =
        Awake { version: crate::model::VERSION, process: Identity::current()?, drain, since: Utc::now() };
    durable::replace_unsynced(&record(spool), &serde_json::to_vec(&awake)?)
        .context("cannot say who runs the loop")?;
    Ok(Some(held))
}

fn record(spool: &Spool) -> PathBuf {
    spool.lock_path("runner.json")
}

/// Whether a loop is awake.
pub fn is_awake(spool: &Spool) -> std::io::Result<bool> {
    spool.lock("runner").is_held()
}

/// Who runs the loop, if one is awake and has said so.
pub fn awake(spool: &Spool) -> std::io::Result<Option<Awake>> {
    if !is_awake(spool)? {
        return Ok(None);
    }
    Ok(std::fs::read(record(spool)).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()))
}

/// Makes sure that a loop is awake: starts a draining one in the background if none is.
pub fn wake(spool: &Spool) -> anyhow::Result<Woken> {
    if is_awake(spool)? {
        return Ok(Woken::Already);
    }
    start(spool)?;
    Ok(Woken::Started)
}

/// Stops the loop that is awake, if one is, and starts a draining one. Tasks go on meanwhile.
pub fn restart(spool: &Spool) -> anyhow::Result<Option<Awake>> {
    let old = stop_awake(spool)?;
    start(spool)?;
    Ok(old)
}

/// Ends every loop that works the spool, and says which processes they were. Tasks go on: each has a
/// supervisor of its own. What waits goes on waiting, until somebody starts a runner again.
pub fn shutdown(spool: &Spool) -> anyhow::Result<Vec<u32>> {
    let mut ended: Vec<u32> = heartbeat::end_loop(spool)?.iter().map(|beat| beat.identity.pid).collect();
    loop {
        // Loops beside the one that is awake (drains) become it in turn: the bell hastens that.
        spool.ring();
        let next = Instant::now() + NEXT;
        while !is_awake(spool)? {
            if Instant::now() >= next {
                return Ok(ended);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let pid = stop_awake(spool)?.map(|old| old.process.pid);
        ended.extend(pid.filter(|pid| !ended.contains(pid)));
    }
}

/// Stops the loop that is awake, if one is.
fn stop_awake(spool: &Spool) -> anyhow::Result<Option<Awake>> {
    let old = awake(spool)?;
    if let Some(old) = &old {
        heartbeat::end_holder(&spool.lock("runner"), Some(&old.process))
            .context("cannot end the loop that runs")?;
    }
    Ok(old)
}

/// Starts a draining loop through a process in between that ends at once: the loop is then nobody's child,
/// so that killing a client with its whole tree does not reach it.
fn start(spool: &Spool) -> anyhow::Result<()> {
    let program = env::own_executable().context("cannot find this program")?;
    let out = Command::new(program)
        .arg("--spool")
        .arg(spool.root())
        .args(["run", "--drain", "--quiet", "--unless-awake", "--background"])
        .current_dir("/")
        .stdin(Stdio::null())
        .output()
        .context("cannot start a runner")?;
    if !out.status.success() {
        let said = String::from_utf8_lossy(&out.stderr);
        let said = said.trim().trim_start_matches("error: ");
        bail!("a runner could not be started ({}): {said}\n  hint: try `workspool run --drain`", out.status);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_loop_is_awake_at_a_time_and_says_who_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::open(dir.path()).unwrap();
        assert!(!is_awake(&spool).unwrap());
        let held = hold(&spool, true).unwrap().unwrap();
        assert!(hold(&spool, false).unwrap().is_none(), "the second one only goes on");
        let awake = awake(&spool).unwrap().unwrap();
        assert_eq!((awake.process, awake.drain), (Identity::current().unwrap(), true));
        assert_eq!(wake(&spool).unwrap(), Woken::Already);
        drop(held);
        assert!(!is_awake(&spool).unwrap());
    }
}
