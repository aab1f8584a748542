//! `workspool tick` and `workspool run`.

use super::exit::Exit;
use super::term;
use crate::care::log::ServiceLog;
use crate::care::{self, heartbeat, service};
use crate::model::Ticket;
use crate::process;
use crate::runner::{self, Loop, Pass};
use crate::spool::parsed;
use crate::verbs::House;
use crate::worker::env::own_executable;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Make one pass over the spool, and return without waiting for workers
///
/// A timer (cron, launchd, systemd) that calls this once a minute is a complete installation.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example, for crontab -e:
  * * * * * workspool tick")]
pub struct TickArgs {
    /// Say nothing unless something went wrong
    #[arg(short, long)]
    quiet: bool,
    /// Write what is said into this file, which rotates
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
}

/// Carries `tick` out.
pub fn tick(house: &House, args: &TickArgs) -> Result<u8, Exit> {
    let _log = log(house, args.log.as_deref())?;
    let pass = runner::pass(&house.spool, &house.config);
    heartbeat::ticked(&house.spool);
    if let Some(why) = &pass.blocked {
        term::error(why);
    }
    tell(&pass, args.quiet);
    Ok(u8::from(!pass.faults.is_empty() || pass.blocked.is_some()))
}

/// Work tasks off: wakes at once for new ones
///
/// Runs until it is told to stop. Stopping or killing it stops no task: what runs goes on, and the next
/// runner takes over.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  workspool run
  workspool run --drain
  workspool run --drain --background
  workspool run --restart")]
pub struct RunArgs {
    /// End when nothing is left to do
    #[arg(long)]
    drain: bool,
    /// Look again after this time even if nothing woke it, such as 5s [default: `poll` of the configuration]
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    poll: Option<Duration>,
    /// Go on in the background: outlives the terminal, and whoever started it
    #[arg(long)]
    background: bool,
    /// Do nothing if another loop is awake
    #[arg(long)]
    unless_awake: bool,
    /// Take the place of the loop that works this spool; tasks go on
    #[arg(long, conflicts_with = "drain")]
    restart: bool,
    /// Say nothing unless something went wrong
    #[arg(short, long)]
    quiet: bool,
    /// Write what is said into this file, which rotates [default in the background: logs/background.log in
    /// the spool]
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
}

/// Carries `run` out.
pub fn run(house: &House, args: &RunArgs) -> Result<u8, Exit> {
    if args.restart
        && let Some(old) = heartbeat::end_loop(&house.spool)?
        && !args.quiet
    {
        term::note(&format!("took the place of process {}", old.identity.pid));
    }
    if args.background {
        return background(house, args);
    }
    let log = log(house, args.log.as_deref())?;
    let how = Loop {
        poll: args.poll.unwrap_or(Duration::from_secs(house.config.poll)),
        drain: args.drain,
        unless_awake: args.unless_awake,
        stop: Arc::new(AtomicBool::new(false)),
    };
    let mut blocked = None;
    runner::run(&house.spool, &house.config, &how, |pass| {
        if let Some(log) = &log {
            // A log that cannot rotate is no reason to end.
            let _ = log.tend();
        }
        // Said when it begins, not at every pass.
        if let Some(why) = pass.blocked.as_ref().filter(|_| blocked.is_none() && !args.drain) {
            term::error(why);
        }
        blocked.clone_from(&pass.blocked);
        tell(pass, args.quiet);
    })?;
    Ok(0)
}

/// End the loops that work the spool; running tasks go on
///
/// Nothing is killed: what runs has a supervisor of its own, and ends with its result. What waits stays where
/// it is until a runner is started again, by hand, by a timer, or by a submission that wakes one.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  workspool shutdown
  workspool shutdown --json")]
pub struct ShutdownArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Carries `shutdown` out.
pub fn shutdown(house: &House, args: &ShutdownArgs) -> Result<u8, Exit> {
    let ended = runner::shutdown(&house.spool)?;
    // What was submitted a moment ago waits too.
    crate::intake::expand(&house.spool)?;
    let running = parsed::<Ticket>(&house.spool.running())?.len();
    let queued = parsed::<Ticket>(&house.spool.queue())?.len();
    if args.json {
        term::json(&serde_json::json!({"ended": ended, "running": running, "queued": queued}))?;
        return Ok(0);
    }
    match &ended[..] {
        [] => term::line("no loop works this spool")?,
        pids => {
            for pid in pids {
                term::line(&format!("ended the loop that was process {pid}"))?;
            }
        }
    }
    if running > 0 {
        term::line(&format!("{running} running, which go on"))?;
    }
    if queued > 0 {
        term::line(&format!("{queued} queued, which wait for a runner"))?;
    }
    if matches!(service::status(&house.spool), Ok(Some(_))) {
        term::note("a service is installed that starts one again: `workspool service uninstall` ends that");
    }
    Ok(0)
}

fn log(house: &House, path: Option<&Path>) -> Result<Option<ServiceLog>, Exit> {
    let most = house.config.logs.service_bytes;
    let log = path.map(|path| ServiceLog::begin(path, most)).transpose()?;
    if log.is_some() {
        term::stamp();
    }
    Ok(log)
}

/// Starts the same loop detached, and returns.
fn background(house: &House, args: &RunArgs) -> Result<u8, Exit> {
    let program = own_executable()?;
    let mut command = Command::new(program);
    command.arg("--spool").arg(house.spool.root()).args(["run", "--quiet"]).current_dir("/");
    if args.drain {
        command.arg("--drain");
    }
    if args.unless_awake {
        command.arg("--unless-awake");
    }
    if let Some(poll) = args.poll {
        command.arg("--poll").arg(format!("{}ms", poll.as_millis()));
    }
    // Nobody hears it: what goes wrong must be found later.
    let log = match &args.log {
        Some(log) => std::path::absolute(log)?,
        None => care::log::background(&house.spool),
    };
    command.arg("--log").arg(&log);
    let said = care::log::append(&log)?;
    let child = process::detach(command).stdout(said.try_clone()?).stderr(said).spawn()?;
    if !args.quiet {
        term::note(&format!("runs in the background as process {}", child.id()));
    }
    Ok(0)
}

fn tell(pass: &Pass, quiet: bool) {
    for fault in &pass.faults {
        term::error(&format!("{fault:#}"));
    }
    for name in &pass.admitted.refused {
        term::note(&format!("refused {name}: see rejected/{name}.reason.json"));
    }
    if quiet {
        return;
    }
    for task in &pass.admitted.tasks {
        term::note(&format!("took {}  {}", task.id, task.title));
    }
    if !pass.started.is_empty() {
        term::note(&format!("started {}", pass.started.len()));
    }
}

/// Reads a time such as `5s`.
pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    let expected = || format!("expected a time such as 5s or 500ms: {text:?}");
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let number: u64 = number.parse().map_err(|_| expected())?;
    let time = match unit {
        "" | "s" => Duration::from_secs(number),
        "ms" => Duration::from_millis(number),
        "m" => Duration::from_secs(number.saturating_mul(60)),
        "h" => Duration::from_secs(number.saturating_mul(3600)),
        _ => return Err(expected()),
    };
    if time.is_zero() { Err(expected()) } else { Ok(time) }
}
