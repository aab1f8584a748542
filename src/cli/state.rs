//! `workspool why`, `cancel`, `hold`, `release`, `edit`, `retry`.

use super::exit::{self, Exit};
use super::{submit, term};
use crate::model::{State, TaskId, WorkerName};
use crate::verbs::{self, Cancelled, House};
use std::time::Duration;

/// Does something to each of several tasks, which must all be there. One that cannot take it does not keep
/// it from the others; the exit code is that of the first that could not.
pub(super) fn each(
    house: &House,
    tasks: &[String],
    mut act: impl FnMut(TaskId) -> Result<(), Exit>,
) -> Result<u8, Exit> {
    let ids = tasks.iter().map(|t| super::resolve(house, t)).collect::<Result<Vec<_>, _>>()?;
    let mut code = 0;
    for id in ids {
        if let Err(e) = act(id) {
            term::error(&e.message);
            code = if code == 0 { e.code } else { code };
        }
    }
    Ok(code)
}

/// Say which rule keeps a task where it is
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  workspool why 01jdq3m6")]
pub struct WhyArgs {
    /// The task's id, the beginning or end of it, or the name of a dropped file
    task: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Carries `why` out.
pub fn why(house: &House, args: &WhyArgs) -> Result<u8, Exit> {
    let lines = verbs::why(house, super::resolve(house, &args.task)?)?;
    if args.json {
        term::json(&lines)?;
    } else {
        for line in lines {
            term::line(&term::printable(&line))?;
        }
    }
    Ok(0)
}

/// Cancel tasks; a running one is ended with all its processes
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  workspool cancel 01jdq3m6 --reason 'no longer needed' --wait")]
pub struct CancelArgs {
    /// Ids of tasks, or beginnings of ids
    #[arg(required = true, value_name = "TASK")]
    tasks: Vec<String>,
    /// Why, for the record
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Wait until they have ended
    #[arg(long)]
    wait: bool,
}

/// Carries `cancel` out.
pub fn cancel(house: &House, args: &CancelArgs) -> Result<u8, Exit> {
    let mut asked = Vec::new();
    let code = each(house, &args.tasks, |id| {
        match verbs::cancel(house, id, args.reason.as_deref())? {
            Cancelled::Now => term::line(&format!("{id}  cancelled"))?,
            Cancelled::Requested => {
                asked.push(id);
                term::line(&format!("{id}  cancel requested: it ends within moments"))?;
            }
        }
        Ok(())
    })?;
    if args.wait {
        let waited = verbs::wait(house, &asked, false, Some(Duration::from_secs(120)), |_, _| {})?;
        if waited.timed_out && code == 0 {
            return Ok(exit::WAIT_OVER);
        }
    }
    Ok(code)
}

/// Keep waiting tasks from starting until they are released
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  workspool hold 01jdq3m6")]
pub struct IdsArgs {
    /// Ids of tasks, or beginnings of ids
    #[arg(required = true, value_name = "TASK")]
    tasks: Vec<String>,
}

/// Carries `hold` out.
pub fn hold(house: &House, args: &IdsArgs) -> Result<u8, Exit> {
    each(house, &args.tasks, |id| {
        verbs::hold(house, id)?;
        term::line(&format!("{id}  held"))
    })
}

/// Let held tasks go
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  workspool release 01jdq3m6")]
pub struct ReleaseArgs {
    /// Ids of tasks, or beginnings of ids
    #[arg(required = true, value_name = "TASK")]
    tasks: Vec<String>,
}

/// Carries `release` out.
pub fn release(house: &House, args: &ReleaseArgs) -> Result<u8, Exit> {
    each(house, &args.tasks, |id| {
        let state = verbs::release(house, id)?;
        term::line(&format!("{id}  {state}"))
    })
}

/// Change the request of a task that has not started; the old one is kept
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  workspool edit 01jdq3m6 --priority 90 --verify 'cargo test'")]
pub struct EditArgs {
    /// The task's id, or the beginning of it
    task: String,
    /// A new objective
    #[arg(long, value_name = "TEXT")]
    objective: Option<String>,
    #[command(flatten)]
    spec: submit::SpecArgs,
}

/// Carries `edit` out.
pub fn edit(house: &House, args: EditArgs) -> Result<u8, Exit> {
    let id = super::resolve(house, &args.task)?;
    let mut failed = None;
    let revision = verbs::edit(house, id, |spec| {
        if let Some(objective) = args.objective {
            spec.objective = objective;
        }
        failed = args.spec.apply(spec).err();
    })?;
    if let Some(e) = failed {
        return Err(e);
    }
    term::line(&format!("{id}  revision {revision}"))?;
    Ok(0)
}

/// Try tasks again that have ended, perhaps with another worker
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  workspool retry 01jdq3m6 --worker codex")]
pub struct RetryArgs {
    /// Ids of tasks, or beginnings of ids
    #[arg(required = true, value_name = "TASK")]
    tasks: Vec<String>,
    /// Let this worker do it
    #[arg(long, short, value_name = "NAME")]
    worker: Option<WorkerName>,
}

/// Carries `retry` out.
pub fn retry(house: &House, args: &RetryArgs) -> Result<u8, Exit> {
    let mut skipped = 0;
    let code = each(house, &args.tasks, |id| {
        let state = verbs::retry(house, id, args.worker.clone())?;
        if state == State::Skipped {
            skipped = exit::STATE;
        }
        term::line(&format!("{id}  {state}"))
    })?;
    Ok(if code == 0 { skipped } else { code })
}
