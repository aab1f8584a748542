//! Whether anybody works the spool: a loop, or a timer that ticks.

use super::{Context, Finding, command};
use crate::care::heartbeat::{Beat, Runner, last_tick, runner};
use crate::care::service;
use std::time::Duration;

/// A timer that ticks once a minute has missed a few when it is this late.
const LATE: Duration = Duration::from_secs(300);

pub(super) fn look(context: &Context<'_>) -> anyhow::Result<Vec<Finding>> {
    let service = service::Record::read(context.spool)?;
    let waiting = crate::spool::names(&context.spool.queue())?.len();
    let every = service.as_ref().map(|s| Duration::from_secs(s.every));
    Ok(vec![judge(context, runner(context.spool)?, last_tick(context.spool), every, waiting)])
}

fn judge(
    context: &Context<'_>,
    runner: Runner,
    tick: Option<Beat>,
    every: Option<Duration>,
    waiting: usize,
) -> Finding {
    if let Runner::Works(beat) = runner {
        return match beat {
            Some(beat) if beat.is_late() => Finding::error(format!(
                "the loop (process {}) has made no pass for {} s",
                beat.identity.pid,
                beat.age().as_secs()
            ))
            .why("it hangs, or is stopped: nothing new is started")
            .fix(command(context, "run --restart")),
            Some(beat) => Finding::ok(format!("a loop works the spool (process {})", beat.identity.pid)),
            None => Finding::ok("a loop works the spool"),
        };
    }
    let late = every.map_or(LATE, |e| (e * 5).max(LATE));
    if let Some(tick) = tick.as_ref().filter(|t| t.age() <= late) {
        return Finding::ok(format!("ticks come: the last one was {} s ago", tick.age().as_secs()));
    }
    let last = tick.map_or_else(
        || "there was never one".into(),
        |t| format!("the last one was {} s ago", t.age().as_secs()),
    );
    match (every, waiting) {
        (Some(_), _) => Finding::error(format!("a timer is installed, but no tick comes ({last})"))
            .why("nothing is started")
            .fix(command(context, "service restart")),
        (None, 0) => Finding::note("no loop runs, and no timer is installed")
            .why("a task that is submitted waits until somebody runs one")
            .fix(command(context, "service install")),
        (None, n) => Finding::warning(format!("tasks wait ({n}), no loop runs, and no tick comes ({last})"))
            .why("nothing is started")
            .fix(command(context, "service install")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::super::support::Fixture;
    use super::*;
    use crate::care::heartbeat::{Heartbeat, ticked};

    #[test]
    fn a_loop_a_tick_or_neither() {
        let fixture = Fixture::new();
        let context = fixture.context();
        let level = || look(&context).unwrap()[0].level;
        assert_eq!(level(), Level::Note);
        std::fs::write(fixture.spool.queue().join("x"), "").unwrap();
        assert_eq!(level(), Level::Warning, "a task waits");
        let heartbeat = Heartbeat::take(&fixture.spool, Duration::from_secs(5)).unwrap();
        assert_eq!(level(), Level::Ok);
        drop(heartbeat);
        ticked(&fixture.spool);
        assert_eq!(level(), Level::Ok);
        let mut old = last_tick(&fixture.spool).unwrap();
        old.last_pass -= chrono::TimeDelta::hours(1);
        let found = judge(&context, Runner::Nobody, Some(old.clone()), Some(Duration::from_secs(60)), 0);
        assert_eq!(found.level, Level::Error, "a timer that does not tick");
        old.poll_ms = 5000;
        let found = judge(&context, Runner::Works(Some(old)), None, None, 0);
        assert!(found.level == Level::Error && found.fix.unwrap().ends_with("run --restart"));
    }
}
