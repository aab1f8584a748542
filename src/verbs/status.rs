//! Who works the spool, how much waits, what is due. Reads names only: the same cost with any history.

use super::House;
use crate::care::heartbeat::{self, Beat, Runner};
use crate::care::log::{self, Trouble};
use crate::care::service::Record;
use crate::model::{HeldReason, State};
use crate::runner::next_due;
use crate::spool::Place;
use chrono::{DateTime, Utc};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The state of a spool in short.
#[derive(Debug, Serialize)]
pub struct Status {
    /// Where it is.
    pub spool: PathBuf,
    /// The loop.
    pub runner: RunnerStatus,
    /// When a timer last made a pass.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_tick: Option<DateTime<Utc>>,
    /// What is installed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceStatus>,
    /// How many tasks have not ended.
    pub counts: Counts,
    /// How long the oldest queued task has waited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oldest_queued_ms: Option<u64>,
    /// When a held task is due, or a waiting one expires.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_due: Option<DateTime<Utc>>,
    /// What went wrong last in a runner in the background, within a day.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trouble: Option<Trouble>,
}

/// The loop that works a spool.
#[derive(Debug, Serialize)]
pub struct RunnerStatus {
    /// Whether one does.
    pub works: bool,
    /// Whether it has made no pass for too long.
    pub late: bool,
    /// What it says of itself; of one that died, what it said last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process: Option<Beat>,
}

/// An installed service.
#[derive(Debug, Serialize)]
pub struct ServiceStatus {
    /// What starts us.
    pub kind: crate::care::service::Kind,
    /// How we run.
    pub mode: crate::care::service::Mode,
    /// Since when.
    pub installed_at: DateTime<Utc>,
}

/// Numbers of tasks that have not ended.
#[derive(Debug, Default, Serialize)]
pub struct Counts {
    /// Ready to run.
    pub queued: usize,
    /// Under way.
    pub running: usize,
    /// Waiting, by what they wait for.
    pub held: BTreeMap<&'static str, usize>,
}

/// Says how a spool stands.
pub fn status(house: &House) -> anyhow::Result<Status> {
    let spool = &house.spool;
    let runner = match heartbeat::runner(spool)? {
        Runner::Nobody => RunnerStatus { works: false, late: false, process: None },
        Runner::Gone(beat) => RunnerStatus { works: false, late: false, process: Some(beat) },
        Runner::Works(beat) => {
            RunnerStatus { works: true, late: beat.as_ref().is_some_and(Beat::is_late), process: beat }
        }
    };
    // What was just submitted counts, too.
    crate::intake::expand(spool)?;
    let active = spool.active()?;
    let mut counts =
        Counts { held: HeldReason::ALL.iter().map(|r| (r.as_str(), 0)).collect(), ..Counts::default() };
    let mut oldest: Option<u64> = None;
    for found in &active {
        match found.place {
            Place::Queue => {
                counts.queued += 1;
                let ms = found.ticket.task.timestamp_ms();
                oldest = Some(oldest.map_or(ms, |o| o.min(ms)));
            }
            Place::Held(reason, _) => *counts.held.entry(reason.as_str()).or_default() += 1,
            place if place.state() == State::Running => counts.running += 1,
            _ => {}
        }
    }
    let now = u64::try_from(Utc::now().timestamp_millis()).unwrap_or(0);
    Ok(Status {
        spool: spool.root().to_owned(),
        runner,
        last_tick: heartbeat::last_tick(spool).map(|t| t.last_pass),
        service: Record::read(spool)?.map(|r| ServiceStatus {
            kind: r.kind,
            mode: r.mode,
            installed_at: r.installed_at,
        }),
        counts,
        oldest_queued_ms: oldest.map(|ms| now.saturating_sub(ms)),
        next_due: next_due(spool, false)
            .and_then(|d| Utc::now().checked_add_signed(chrono::TimeDelta::from_std(d).ok()?)),
        trouble: log::trouble(spool),
    })
}
