//! The `keep` verb: from the arguments to the keeper's last act.

use super::plan::StepPlan;
use super::record::{Cause, Ended, StepExit};
use super::run;
use super::{EXIT, LOCK, PLAN, VERSION};
use crate::durable::{self, Held, Lock};
use crate::process;
use anyhow::{Context as _, bail};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use std::ffi::OsString;
use std::io;
use std::os::fd::{IntoRawFd as _, RawFd};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Runs `keep <step_dir> --lock-fd N --supervisor-lock PATH`; `args` begin after the verb.
///
/// Must be called first thing in `main`: it closes every descriptor but the lock and the standard ones.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    match keep(args.into_iter()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            // Goes to a file in the step's folder.
            eprintln!("keeper: {e:#}");
            ExitCode::FAILURE
        }
    }
}

struct Args {
    step_dir: PathBuf,
    lock_fd: RawFd,
    supervisor_lock: PathBuf,
}

impl Args {
    fn parse(mut args: impl Iterator<Item = OsString>) -> anyhow::Result<Args> {
        let (mut step_dir, mut lock_fd, mut supervisor_lock) = (None, None, None);
        while let Some(arg) = args.next() {
            let mut value = || args.next().with_context(|| format!("{} needs a value", arg.display()));
            match arg.to_str() {
                Some("--lock-fd") => {
                    let value = value()?;
                    let number = value.to_str().and_then(|n| n.parse::<RawFd>().ok());
                    let number = number.filter(|n| *n == 0 || *n > 2);
                    lock_fd = Some(number.with_context(|| format!("not a descriptor: {}", value.display()))?);
                }
                Some("--supervisor-lock") => supervisor_lock = Some(PathBuf::from(value()?)),
                _ if step_dir.is_none() => step_dir = Some(PathBuf::from(arg)),
                _ => bail!("unexpected argument: {}", arg.display()),
            }
        }
        Ok(Args {
            step_dir: step_dir.context("no step folder was given")?,
            lock_fd: lock_fd.context("no --lock-fd was given")?,
            supervisor_lock: supervisor_lock.context("no --supervisor-lock was given")?,
        })
    }
}

fn keep(args: impl Iterator<Item = OsString>) -> anyhow::Result<()> {
    let args = Args::parse(args)?;
    let dir = &args.step_dir;
    process::lead_session();
    let lock_fd = match args.lock_fd {
        0 => process::take_stdin().context("taking over the step's lock")?.into_raw_fd(),
        number => number,
    };
    // SAFETY: nothing has been opened by this process yet.
    unsafe { process::close_all_but(&[lock_fd]) }.context("closing inherited descriptors")?;
    // SAFETY: our parent left it open for us, and only here is it owned.
    let held = unsafe { Held::from_inherited(lock_fd, dir.join(LOCK)) }.context("the step's lock")?;
    let look = catch_signals()?;
    live(dir, &read_plan(dir)?, &look, held, &args.supervisor_lock).map(drop)
}

/// Reads what to run.
pub(super) fn read_plan(dir: &Path) -> anyhow::Result<StepPlan> {
    let plan = std::fs::read(dir.join(PLAN)).context("reading the plan")?;
    let plan: StepPlan = serde_json::from_slice(&plan).context("reading the plan")?;
    if plan.version != VERSION {
        bail!("the plan has version {}, this program reads {VERSION}", plan.version);
    }
    Ok(plan)
}

/// From the start of the command to the keeper's last act. `held` is what tells others that we live. Says whether this
/// process could keep another command: if somebody waited for it, if it has no child left, and if there is nothing that
/// it could not end.
pub(super) fn live(
    dir: &Path,
    plan: &StepPlan,
    look: &Arc<AtomicBool>,
    held: Held,
    supervisor_lock: &Path,
) -> anyhow::Result<bool> {
    look.store(false, Ordering::Relaxed);
    let exit = run::run(dir, plan, Arc::clone(look));
    let clean =
        exit.census.is_empty() && !matches!(exit.cause, Cause::KeeperFault { .. }) && process::has_no_child();
    publish(dir, plan, &exit)?;
    drop(held);
    Ok(!resume(plan, supervisor_lock)? && clean)
}

/// Catches what would end us. Caught, not ignored: that would be inherited by the command.
///
/// Returns what is set when somebody wants us to look for a request now.
pub(super) fn catch_signals() -> anyhow::Result<Arc<AtomicBool>> {
    for signal in [SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR2] {
        signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)))?;
    }
    let look = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGUSR1, Arc::clone(&look))?;
    Ok(look)
}

/// Writes the exit record, again and again while the disk is full: what ran is not run again for that.
fn publish(dir: &Path, plan: &StepPlan, exit: &StepExit) -> anyhow::Result<()> {
    let bytes = serde_json::to_vec(exit)?;
    let begun = Instant::now();
    let ran = !matches!(exit.ended, Ended::NotStarted { .. });
    let patience = if ran { Duration::from_millis(plan.unkillable_ms) } else { Duration::from_secs(10) };
    let mut pause = Duration::from_millis(100);
    loop {
        match durable::replace_unsynced(&dir.join(EXIT), &bytes) {
            Ok(()) => return Ok(()),
            // The folder is gone, so nobody asks any more.
            Err(e) if e.kind() == io::ErrorKind::NotFound || begun.elapsed() >= patience => {
                return Err(e).context("writing the exit record");
            }
            Err(_) => std::thread::sleep(pause),
        }
        pause = (pause * 2).min(Duration::from_secs(10));
    }
}

/// Starts another supervisor if nobody waits for us; says whether it did.
fn resume(plan: &StepPlan, supervisor_lock: &Path) -> anyhow::Result<bool> {
    let Some((program, args)) = plan.resume.split_first() else { return Ok(false) };
    if Lock::at(supervisor_lock).is_held().context("looking for the supervisor")? {
        return Ok(false);
    }
    let mut command = Command::new(program);
    command.args(args).current_dir("/");
    durable::fault::point("spawn-supervisor")?;
    process::detach(command).spawn().context("starting another supervisor")?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<Args, String> {
        Args::parse(args.iter().map(OsString::from)).map_err(|e| e.to_string())
    }

    #[test]
    fn arguments_come_in_any_order_and_none_may_lack() {
        let args = parse(&["--lock-fd", "7", "/s", "--supervisor-lock", "/t/lock"]).unwrap();
        assert_eq!(
            (args.lock_fd, args.step_dir.to_str(), args.supervisor_lock.to_str()),
            (7, Some("/s"), Some("/t/lock"))
        );
        for (args, error) in [
            (&["/s", "--lock-fd", "7"][..], "no --supervisor-lock was given"),
            (&["/s", "--supervisor-lock", "/l"], "no --lock-fd was given"),
            (&["--lock-fd", "7", "--supervisor-lock", "/l"], "no step folder was given"),
            (&["/s", "--lock-fd"], "--lock-fd needs a value"),
            (&["/s", "--lock-fd", "2"], "not a descriptor: 2"),
            (&["/s", "x"], "unexpected argument: x"),
        ] {
            assert_eq!(parse(args).err().as_deref(), Some(error));
        }
    }
}
