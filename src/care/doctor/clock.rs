//! Whether the clock can be believed: order, deadlines and ages hang on it.

use super::{Context, Finding};
use crate::durable;
use chrono::{DateTime, Utc};
use std::time::SystemTime;

const MOST_SECONDS: i64 = 2;
/// 2025-01-01: before this program was written.
const EPOCH: i64 = 1_735_689_600;

pub(super) fn look(context: &Context<'_>) -> anyhow::Result<Vec<Finding>> {
    let probe = context.spool.tmp().join(durable::unique_name());
    let before = SystemTime::now();
    durable::create_new_unsynced(&probe, b"")?;
    let written = probe.metadata().and_then(|m| m.modified());
    durable::remove_file(&probe)?;
    // Tickets of the queue carry the time of their submission.
    let newest = context.spool.active()?.first().map(|f| f.ticket.task.timestamp_ms());
    Ok(judge(before.into(), written?.into(), newest))
}

fn judge(now: DateTime<Utc>, written: DateTime<Utc>, newest_ms: Option<u64>) -> Vec<Finding> {
    let sync = if cfg!(target_os = "macos") {
        "sudo sntp -sS time.apple.com"
    } else {
        "sudo timedatectl set-ntp true"
    };
    let mut found = Vec::new();
    if now.timestamp() < EPOCH {
        found.push(
            Finding::error(format!("the clock says {}", now.format("%Y-%m-%d")))
                .why("certificates look invalid, and tasks sort before all others")
                .fix(sync),
        );
    }
    let apart = (written - now).num_seconds();
    if apart.abs() > MOST_SECONDS {
        found.push(
            Finding::warning(format!("a file written now is dated {apart} s from now"))
                .why("the file system's clock is another one: ages of dropped files and leftovers are judged wrongly")
                .fix(sync),
        );
    }
    let ahead = newest_ms
        .map_or(0, |ms| i64::try_from(ms).unwrap_or(i64::MAX).saturating_sub(now.timestamp_millis()) / 1000);
    if ahead > MOST_SECONDS {
        found.push(
            Finding::warning(format!("a task that waits was submitted {ahead} s in the future"))
                .why("the clock was put back: newer tasks go before older ones until it has caught up")
                .fix(sync),
        );
    }
    if found.is_empty() {
        found.push(Finding::ok("the clock agrees with the file system"));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::super::support::{Fixture, worst};
    use super::*;
    use chrono::TimeDelta;

    #[test]
    fn clocks_that_disagree_are_told() {
        let now = Utc::now();
        let ms = |t: DateTime<Utc>| Some(u64::try_from(t.timestamp_millis()).unwrap());
        assert_eq!(worst(&judge(now, now, ms(now))).level, Level::Ok);
        let found = judge(now, now - TimeDelta::seconds(100), ms(now + TimeDelta::hours(1)));
        assert_eq!(found.len(), 2);
        assert!(found.iter().all(|f| f.level == Level::Warning && f.fix.is_some()));
        let old = DateTime::from_timestamp(0, 0).unwrap();
        assert_eq!(worst(&judge(old, old, None)).level, Level::Error);
    }

    #[test]
    fn this_machine_leaves_no_trace_of_the_trial() {
        let fixture = Fixture::new();
        look(&fixture.context()).unwrap();
        assert_eq!(std::fs::read_dir(fixture.spool.tmp()).unwrap().count(), 0);
    }
}
