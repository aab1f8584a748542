//! Making good what can be made good, under the task's lock.

use super::finding::{Finding, Fix, Outcome};
use crate::durable;
use crate::git::{Repo, worktree};
use crate::model::HeldReason;
use crate::spool::{LockedTask, Spool};
use crate::workspace::warm;
use anyhow::Context as _;

/// Repairs what was found about a task whose lock we hold.
pub(super) fn of_task(locked: &LockedTask, finding: &mut Finding) {
    let Some(fix) = finding.fix.clone() else { return };
    finding.outcome = Some(match task_fix(locked, &fix) {
        Ok(()) => Outcome::Repaired,
        Err(e) => Outcome::Failed(format!("{e:#}")),
    });
}

/// Repairs what belongs to no single task.
pub(super) fn spoolwide(spool: &Spool, finding: &mut Finding) {
    let Some(fix) = finding.fix.clone() else { return };
    finding.outcome = Some(match spool_fix(spool, &fix) {
        Ok(()) => Outcome::Repaired,
        Err(e) => Outcome::Failed(format!("{e:#}")),
    });
}

fn task_fix(locked: &LockedTask, fix: &Fix) -> anyhow::Result<()> {
    let spool = locked.spool();
    match fix {
        Fix::RemoveTickets(others) => {
            for other in others {
                durable::remove_file(&spool.ticket_path(other.place, &other.ticket))?;
            }
        }
        Fix::PutTicket(place, ticket) => {
            if let Some(folder) = spool.ticket_path(*place, ticket).parent() {
                durable::ensure_dir(folder)?;
            }
            locked.put_ticket(*place, ticket)?;
        }
        Fix::PutHeld(ticket) => {
            let message = "its ticket was lost: `workspool release` lets another attempt start";
            let place = locked.write_hold(HeldReason::Hand, None, message)?;
            locked.put_ticket(place, ticket)?;
        }
        Fix::MoveTicket(from, to, ticket) => {
            locked.move_ticket(*from, *to, *ticket)?;
        }
        Fix::WriteResult(result) => {
            durable::replace(&locked.dir().result(), &serde_json::to_vec_pretty(result)?)?;
        }
        Fix::EndAsResult(found) => {
            let result = spool.read_result(locked.id())?.context("the result is gone")?;
            locked.end(*found, result)?;
        }
        Fix::Register(need) => {
            let dependents = spool.task(*need).dependents();
            durable::ensure_dir(&dependents)?;
            durable::create_new(&dependents.join(locked.id().to_string()), b"")?;
        }
        Fix::Settle(found) => {
            locked.settle(*found)?;
        }
        other => spool_fix(spool, other)?,
    }
    Ok(())
}

fn spool_fix(spool: &Spool, fix: &Fix) -> anyhow::Result<()> {
    match fix {
        Fix::RemoveFile(path) => durable::remove_file(path)?,
        Fix::RemoveTree(path) => worktree::delete_tree(path)?,
        Fix::Discard(path) => warm::discard(path)?,
        Fix::Expand => crate::intake::expand(spool)?,
        Fix::Unregister(repo, path) => {
            let repo = Repo::open(repo)?;
            let _alone = spool.repo_lock(&repo.key.hash).take()?;
            anyhow::ensure!(!path.exists(), "{} is there again", path.display());
            worktree::unregister(&repo, path)?;
        }
        other => anyhow::bail!("not a repair without a task: {other:?}"),
    }
    Ok(())
}
