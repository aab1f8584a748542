//! Removing by itself what has been kept for long enough, where the owner has switched that on.
//!
//! A pass starts a process of its own for it, at most every few hours, so that no task waits. What goes and
//! what stays is decided as for `workspool prune --apply`, and written down in `logs/retention.log`; the
//! time of that file is the time of the last look.

use super::log;
use super::prune::{self, Done, Policy};
use crate::model::Config;
use crate::process::{detach, own_executable};
use crate::spool::Spool;
use std::process::Command;
use std::time::Duration;

/// Looking through what has ended costs with the history.
const EVERY: Duration = Duration::from_secs(6 * 3600);
const LOG: &str = "retention.log";
const DAY: u64 = 24 * 3600;

/// Whether it is switched on, and the last look is long enough ago. One failed system call where it is off.
pub fn is_due(spool: &Spool, config: &Config) -> bool {
    config.retention.days.is_some() && !looked_lately(spool)
}

fn looked_lately(spool: &Spool) -> bool {
    let written = log::dir(spool).join(LOG).metadata().and_then(|m| m.modified());
    // A time in the future is of a clock that was put back: looking too soon does no harm.
    written.is_ok_and(|at| at.elapsed().is_ok_and(|age| age < EVERY))
}

/// Starts a process that removes what may go, and does not wait for it.
pub fn start(spool: &Spool) {
    let Ok(program) = own_executable() else { return };
    let mut command = Command::new(program);
    command.arg("--spool").arg(spool.root()).arg("retain").current_dir("/");
    if let Ok(mut child) = detach(command).spawn() {
        // A runner lives long: what it started must not stay as a zombie.
        let _ = std::thread::Builder::new().name("retain".into()).spawn(move || child.wait());
    }
}

/// Removes what may go, unless another process is at it or was lately.
pub fn run(spool: &Spool, config: &Config) -> anyhow::Result<()> {
    let Some(days) = config.retention.days else { return Ok(()) };
    let Some(_alone) = spool.lock("retention").try_take()? else { return Ok(()) };
    if looked_lately(spool) {
        return Ok(());
    }
    let note = |text: &str| log::note(spool, LOG, text);
    // Written first: what fails is not tried again at every pass.
    note(&format!("looking for what ended more than {days} days ago"));
    let policy = Policy {
        older_than: Duration::from_secs(u64::from(days) * DAY),
        keep: config.retention.keep,
        max_bytes: config.retention.max_bytes,
        include_held: false,
        include_unreviewed: false,
    };
    let report = prune::prune(spool, &policy, true).inspect_err(|e| note(&format!("failed: {e:#}")))?;
    for item in &report.items {
        let path = item.path.strip_prefix(spool.root()).unwrap_or(&item.path).display();
        match &item.outcome {
            Some(Done::Removed) => note(&format!("removed {path} ({} bytes): {}", item.bytes, item.why)),
            Some(Done::Kept(why)) => note(&format!("{path} stays: {why}")),
            None => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_off_unless_switched_on_and_then_rare() {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::open(&dir.path().join("s")).unwrap();
        let mut config = Config::default();
        assert!(!is_due(&spool, &config));
        run(&spool, &config).unwrap();
        let file = log::dir(&spool).join(LOG);
        assert!(!file.exists(), "it did nothing");
        config.retention.days = Some(30);
        assert!(is_due(&spool, &config));
        run(&spool, &config).unwrap();
        assert!(!is_due(&spool, &config), "it was looked just now");
        run(&spool, &config).unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap().lines().count(), 1);
        let old = std::time::SystemTime::now() - EVERY;
        std::fs::File::options().write(true).open(&file).unwrap().set_modified(old).unwrap();
        assert!(is_due(&spool, &config));
    }
}
