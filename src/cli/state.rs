//! `workspool why`, `cancel`, `hold`, `release`, `edit`, `retry`.

use super::exit::{self, Exit};
use super::{submit, term};
use crate::model::{State, WorkerName};
use crate::verbs::{self, Cancelled, House};
use std::time::Duration;

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
    let ids = args.tasks.iter().map(|t| super::resolve(house, t)).collect::<Result<Vec<_>, _>>()?;
    for id in &ids {
        match verbs::cancel(house, *id, args.reason.as_deref())? {
            Cancelled::Now => term::line(&format!("{id}  cancelled"))?,
            Cancelled::Requested => term::line(&format!("{id}  cancel requested: it ends within moments"))?,
        }
    }
    if args.wait {
        verbs::wait(house, &ids, false, Some(Duration::from_secs(120)), |_, _| {})?;
    }
    Ok(0)
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
    for task in &args.tasks {
        let id = super::resolve(house, task)?;
        verbs::hold(house, id)?;
        term::line(&format!("{id}  held"))?;
    }
    Ok(0)
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
    for task in &args.tasks {
        let id = super::resolve(house, task)?;
        let state = verbs::release(house, id)?;
        term::line(&format!("{id}  {state}"))?;
    }
    Ok(0)
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
    let mut code = 0;
    for task in &args.tasks {
        let id = super::resolve(house, task)?;
        let state = verbs::retry(house, id, args.worker.clone())?;
        if state == State::Skipped {
            code = exit::STATE;
        }
        term::line(&format!("{id}  {state}"))?;
    }
    Ok(code)
}
