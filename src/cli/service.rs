//! `workspool service`.

use super::exit::{self, Exit};
use super::run::seconds;
use super::term;
use crate::care::log;
use crate::care::service::{self, Kind, Mode, Plan};
use crate::spool::Spool;
use crate::verbs::House;
use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::time::Duration;

/// Install, look at, restart and uninstall what starts workspool by itself
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  workspool service install
  workspool service install --kind systemd --mode loop --linger --yes
  workspool service status
  workspool service logs -f
  workspool service uninstall")]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Install a timer or a loop, after showing what will be written
    #[command(after_help = "Examples:
  workspool service install
  workspool service install --kind cron --every 5m
  workspool service install --mode loop --linger --env ANTHROPIC_API_KEY --yes
  workspool service install --kind launchd --print")]
    Install(InstallArgs),
    /// Say what is installed, and whether it works
    #[command(after_help = "Examples:
  workspool service status
  workspool service status --json")]
    Status {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Start the service anew; no task is touched
    #[command(after_help = "Example:
  workspool service restart")]
    Restart,
    /// Show the service's log
    #[command(after_help = "Examples:
  workspool service logs
  workspool service logs -n 200 --follow")]
    Logs {
        /// How many lines
        #[arg(short = 'n', long, value_name = "N", default_value_t = 50)]
        lines: usize,
        /// Go on with what is written from now on
        #[arg(short, long)]
        follow: bool,
    },
    /// Take away what was installed, and nothing else
    #[command(after_help = "Example:
  workspool service uninstall")]
    Uninstall,
}

#[derive(Debug, clap::Args)]
struct InstallArgs {
    /// What starts it: cron, systemd or launchd [default: what fits this machine]
    #[arg(long)]
    kind: Option<Kind>,
    /// A tick from time to time (timer), or one process that wakes at once for new tasks (loop)
    #[arg(long, default_value = "timer")]
    mode: Mode,
    /// Time between ticks
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = seconds)]
    every: Duration,
    /// Write this variable of the present environment into the unit, too (can be repeated)
    #[arg(long, value_name = "NAME")]
    env: Vec<String>,
    /// Let it go on when you are logged out (systemd)
    #[arg(long)]
    linger: bool,
    /// Show what would be written, and write nothing
    #[arg(long)]
    print: bool,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
}

/// Carries the verb out.
pub fn run(house: &House, args: &Args) -> Result<u8, Exit> {
    match &args.verb {
        Verb::Install(args) => install(&house.spool, args),
        Verb::Status { json } => status(&house.spool, *json),
        Verb::Restart => {
            term::line(service::restart(&house.spool)?)?;
            Ok(0)
        }
        Verb::Logs { lines, follow } => logs(&house.spool, *lines, *follow),
        Verb::Uninstall => uninstall(&house.spool),
    }
}

fn install(spool: &Spool, args: &InstallArgs) -> Result<u8, Exit> {
    let kind = match args.kind {
        Some(kind) => kind,
        None => Kind::of_this_machine()?,
    };
    let resolved = service::resolve(&args.env)?;
    let plan = Plan::new(spool, &resolved, kind, args.mode, args.every)?;
    for unit in plan.units()? {
        term::line(&format!("--- {}", unit.path.display()))?;
        term::write(unit.text.as_bytes())?;
    }
    if let Some(lines) = plan.crontab()? {
        term::line("--- crontab")?;
        term::write(lines.as_bytes())?;
    }
    for left in &resolved.left_out {
        term::note(&format!("left out: {left}"));
    }
    if args.print {
        return Ok(0);
    }
    if !args.yes && !agreed()? {
        return Err(Exit::new(exit::USAGE, "nothing was installed"));
    }
    service::install(spool, &plan, args.linger)?;
    term::line(&format!("installed: {} {}", plan.kind, plan.mode))?;
    if kind == Kind::Systemd && !args.linger {
        term::note("it ends when you log out, unless lingering is on: --linger lets it go on");
    }
    Ok(0)
}

fn agreed() -> Result<bool, Exit> {
    if !std::io::stdin().is_terminal() {
        return Err(Exit::new(
            exit::USAGE,
            "nobody is there to be asked\n  hint: --yes installs what was shown",
        ));
    }
    eprint!("Install this? [y/N] ");
    std::io::stderr().flush()?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

fn status(spool: &Spool, json: bool) -> Result<u8, Exit> {
    let Some(status) = service::status(spool)? else {
        if json {
            term::line("null")?;
        } else {
            term::line("nothing is installed for this spool")?;
        }
        return Ok(exit::NOT_FOUND);
    };
    let bad = status.active != Some(true) || !status.problems.is_empty();
    if json {
        term::json(&status)?;
        return Ok(u8::from(bad));
    }
    let active = match status.active {
        Some(true) => "active",
        Some(false) => "not active",
        None => "its manager does not answer",
    };
    let record = &status.record;
    term::line(&format!(
        "{}  {} {}, {active}, installed {}",
        record.name,
        record.kind,
        record.mode,
        term::ago(record.installed_at)
    ))?;
    for file in &record.files {
        term::line(&format!("  {}", term::printable(&file.path.to_string_lossy())))?;
    }
    for problem in &status.problems {
        term::line(&format!("  problem: {}", term::printable(problem)))?;
    }
    Ok(u8::from(bad))
}

fn logs(spool: &Spool, lines: usize, follow: bool) -> Result<u8, Exit> {
    let path = log::dir(spool).join("service.log");
    term::write(term::printable(&log::tail(&path, lines)?).as_bytes())?;
    if !follow {
        return Ok(0);
    }
    let mut follower = log::Follower::at_end(&path);
    loop {
        term::write(term::printable(&String::from_utf8_lossy(&follower.more()?)).as_bytes())?;
        std::thread::sleep(Duration::from_millis(300));
    }
}

fn uninstall(spool: &Spool) -> Result<u8, Exit> {
    match service::uninstall(spool)? {
        None => Err(Exit::new(exit::NOT_FOUND, "nothing is installed for this spool")),
        Some(left) => {
            for left in left {
                term::note(&left);
            }
            term::line("uninstalled")?;
            Ok(0)
        }
    }
}
