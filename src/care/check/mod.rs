//! Is everything true that must be? The invariants of a spool, looked at from its files alone.
//!
//! A look takes no lock. What it finds about a task is looked at again under the task's lock before it
//! is believed, since a ticket that is just moving is in no folder, or was seen in two. A task whose lock
//! somebody holds is in good hands: only what its owner cannot be about to change is reported.
//!
//! Two severities: a *problem* breaks an invariant, a *leftover* is what a crash leaves and breaks none.
//! Repairs are made under the lock, after a fresh look, and are only called done when the finding is gone.

mod finding;
mod live;
mod record;
mod repair;
mod scan;
mod spoolwide;
mod ticket;
mod work;

pub use finding::{Finding, Kind, Outcome, Severity};

use crate::model::TaskId;
use crate::spool::{Spool, SpoolError};
use scan::{OneTask, Scan};
use schemars::JsonSchema;
use serde::Serialize;
use work::Repositories;

/// What a check came to.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Report {
    /// Number of tasks that were looked at.
    pub tasks: usize,
    /// Tasks that somebody was working on, so that not everything about them could be looked at.
    pub busy: Vec<TaskId>,
    /// Everything that was found, problems first.
    pub findings: Vec<Finding>,
}

impl Report {
    /// Findings that break an invariant and were not repaired.
    pub fn problems(&self) -> impl Iterator<Item = &Finding> {
        self.findings
            .iter()
            .filter(|f| f.severity == Severity::Problem && f.outcome != Some(Outcome::Repaired))
    }
}

/// Checks a spool; with `repair`, makes good what can be.
pub fn check(spool: &Spool, repair: bool) -> Result<Report, SpoolError> {
    let mut repos = Repositories::default();
    let scan = Scan::of(spool)?;
    let mut report = Report { tasks: scan.tasks.len(), busy: Vec::new(), findings: Vec::new() };
    for one in scan.each() {
        if look(spool, &one, &mut repos)?.is_empty() {
            continue;
        }
        check_locked(spool, one.id, repair, &mut repos, &mut report)?;
    }
    let mut rest = spoolwide::look(spool, &scan, &mut repos)?;
    if repair {
        for finding in &mut rest {
            repair::spoolwide(spool, finding);
        }
    }
    report.findings.append(&mut rest);
    report.findings.sort_by(|a, b| (a.severity, a.task, &a.path).cmp(&(b.severity, b.task, &b.path)));
    Ok(report)
}

/// What is left over in a spool, of no single task; with `apply`, takes away what can go.
pub fn leftovers(spool: &Spool, apply: bool) -> Result<Vec<Finding>, SpoolError> {
    let scan = Scan::of(spool)?;
    let mut found = spoolwide::look(spool, &scan, &mut Repositories::default())?;
    found.retain(|f| f.severity == Severity::Leftover);
    if apply {
        found.iter_mut().for_each(|finding| repair::spoolwide(spool, finding));
    }
    Ok(found)
}

/// Looks at a task once more, with its lock held, and repairs what can be.
fn check_locked(
    spool: &Spool,
    id: TaskId,
    repair: bool,
    repos: &mut Repositories,
    report: &mut Report,
) -> Result<(), SpoolError> {
    let locked = match spool.try_lock_task(id) {
        Ok(Some(locked)) => locked,
        Ok(None) => {
            report.busy.push(id);
            return Ok(());
        }
        // It was pruned meanwhile, or there never was a folder: there is no lock to take then.
        Err(SpoolError::NoTask(_)) => {
            let mut findings = look(spool, &OneTask::of(spool, id)?, repos)?;
            if repair {
                findings.iter_mut().for_each(|finding| repair::spoolwide(spool, finding));
            }
            report.findings.append(&mut findings);
            return Ok(());
        }
        Err(e) => return Err(e),
    };
    let one = OneTask::of(spool, id)?;
    let mut findings = look(spool, &one, repos)?;
    if repair {
        for finding in &mut findings {
            repair::of_task(&locked, finding);
        }
        repos.forget();
        let one = OneTask::of(spool, id)?;
        let left = look(spool, &one, repos)?;
        for finding in &mut findings {
            if left.iter().any(|l| l.kind == finding.kind && l.path == finding.path) {
                if finding.outcome == Some(Outcome::Repaired) {
                    finding.outcome = Some(Outcome::Failed("it is still so".into()));
                }
            } else {
                finding.outcome = Some(Outcome::Repaired);
            }
        }
        findings.extend(
            left.into_iter()
                .filter(|l| !findings.iter().any(|f| f.kind == l.kind && f.path == l.path))
                .collect::<Vec<_>>(),
        );
    }
    report.findings.append(&mut findings);
    Ok(())
}

/// Everything about one task.
fn look(spool: &Spool, one: &OneTask, repos: &mut Repositories) -> Result<Vec<Finding>, SpoolError> {
    let mut found = Vec::new();
    let Some(task) = record::look(spool, one, &mut found)? else { return Ok(found) };
    ticket::look(spool, one, &task, &mut found)?;
    live::look(spool, one, &mut found)?;
    work::look(spool, one, &task, repos, &mut found)?;
    Ok(found)
}
