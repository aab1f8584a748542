//! Which rule keeps a task where it is.

use super::House;
use crate::attempt::GaveUp;
use crate::care::log;
use crate::model::{HeldReason, State, TaskId};
use crate::runner::{self, Limit};
use crate::spool::{Needs, Place};
use anyhow::Context as _;

/// Says, in a few lines, why a task is where it is and what would move it on.
pub fn why(house: &House, id: TaskId) -> anyhow::Result<Vec<String>> {
    let spool = &house.spool;
    let task = spool.read_task(id)?;
    let found =
        spool.find_ticket(id)?.with_context(|| format!("task {id} has no ticket: see `workspool check`"))?;
    let mut lines = Vec::new();
    match found.place {
        Place::Queue => {
            let (limit, before) = runner::standing(spool, &house.config, &found.ticket)?;
            let free = limit.is_none();
            lines.push(match limit {
                None => {
                    "queued: nothing keeps it from running but that no runner has claimed it yet".to_owned()
                }
                Some(Limit::Total(n)) => format!("queued: {n} tasks run, which is max_concurrency"),
                Some(Limit::Repository(n)) => {
                    format!("queued: {n} tasks run on its repository, which is repo_concurrency")
                }
                Some(Limit::Directory) => {
                    "queued: another task works in the same folder, which takes one at a time".to_owned()
                }
                Some(Limit::Provider(until)) => format!(
                    "queued: the provider of worker {} refuses requests until {}",
                    task.worker,
                    until.to_rfc3339()
                ),
                Some(Limit::Worker(n)) => {
                    format!("queued: {n} tasks of worker {} run, which is its limit", task.worker)
                }
                Some(Limit::Account(account, n)) => {
                    format!("queued: {n} tasks of workers with the account {account} run, which is its limit")
                }
            });
            if before > 0 {
                lines.push(format!("{before} queued tasks go before it, by priority and age"));
            }
            let disk = &house.config.disk;
            if let Err(full) =
                crate::intake::check_reserve(spool.root(), disk.reserve_bytes, disk.reserve_percent)
            {
                lines.push(format!("nothing is started: {full}"));
            }
            if let Some(trouble) = log::trouble(spool).filter(|_| !runner::is_awake(spool).unwrap_or(true)) {
                let (at, log) = (trouble.at.to_rfc3339(), trouble.log.display());
                lines.push(format!(
                    "the last runner in the background said at {at}: {} ({log})",
                    trouble.message
                ));
            }
            if free {
                lines.push(
                    "start one with `workspool run --drain`, or keep one with `workspool run`".to_owned(),
                );
            }
        }
        Place::Held(reason, until) => {
            let hold = spool.read_hold(id).map(|h| h.message).unwrap_or_default();
            lines.push(format!("held for {reason}: {hold}"));
            match reason {
                HeldReason::Needs => {
                    if let Needs::Waiting(needs) = spool.needs(&task)? {
                        for need in needs {
                            let state =
                                spool.state_of(need).map_or_else(|e| e.to_string(), |s| s.to_string());
                            lines.push(format!("it needs {need}, which is {state}"));
                        }
                    }
                }
                HeldReason::Hand => lines.push(format!("let it go with `workspool release {id}`")),
                HeldReason::Time | HeldReason::Quota => {
                    if let Some(until) = until {
                        lines.push(format!("it will be queued at {}", until.to_rfc3339()));
                    }
                }
                HeldReason::Answer => {}
            }
        }
        Place::Running => {
            lines.push(format!("running: attempt {}", found.ticket.attempt));
            if !spool.task(id).lock().is_held()? {
                lines.push(
                    "its supervisor is gone; its keeper or the next pass of a runner takes over".to_owned(),
                );
                if let Some(GaveUp { times, why, .. }) = GaveUp::read(&spool.task(id)) {
                    let times =
                        if times == 1 { "the last one".to_owned() } else { format!("the last {times}") };
                    lines.push(format!("{times} could not go on: {}", why.trim()));
                }
            }
        }
        Place::Done(_, state) => {
            let result = spool.read_result(id)?.context("the result of an ended task is gone")?;
            lines.push(format!("{state}: {}", result.message));
            if state != State::Succeeded {
                lines.push(format!(
                    "try it again with `workspool retry {id}`; its log is `workspool logs {id}`"
                ));
            }
        }
    }
    Ok(lines)
}
