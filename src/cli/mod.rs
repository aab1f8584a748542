//! The command line: a file a verb, arguments in, text or JSON out.

mod artifacts;
mod audit;
mod check;
mod completions;
mod config;
mod demo;
mod diff;
mod doctor;
mod exit;
mod list;
mod logs;
mod man;
mod mcp;
mod metrics;
mod models;
mod notify;
pub mod reference;
mod prune;
mod retain;
mod review;
mod run;
mod salvage;
mod schema;
mod service;
mod setup;
mod show;
mod state;
mod status;
mod submit;
mod term;
mod wait;
mod workers;

use crate::spool::Spool;
use crate::verbs::House;
use clap::{Parser, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;

pub use exit::Exit;

/// A spool of coding tasks on disk, and a runner that works them off
///
/// Tasks are submitted by command line, by dropping a JSON file into a folder, or from Rust. A runner works
/// each off in a git worktree of its own, verifies it, commits it to a branch of its own, and writes a
/// result. Nothing reaches your branch until you accept it.
#[derive(Debug, Parser)]
#[command(
    name = "workspool",
    version,
    max_term_width = 100,
    subcommand_required = true,
    arg_required_else_help = true
)]
pub struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Args)]
struct Global {
    /// The spool's folder [default: ~/.workspool]
    #[arg(long, global = true, value_name = "DIR", env = "WORKSPOOL_HOME", hide_env_values = true)]
    spool: Option<PathBuf>,
    /// Use this value of a key of the configuration (can be repeated)
    #[arg(long, global = true, value_name = "KEY=VALUE")]
    set: Vec<String>,
}

/// The same command line with the one verb that scripts call in loops: making the tree of all verbs takes as
/// long as the submission itself. Whatever it does not understand, the whole tree answers.
#[derive(Debug, Parser)]
#[command(name = "workspool")]
struct Short {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    verb: ShortVerb,
}

#[derive(Debug, Subcommand)]
enum ShortVerb {
    Submit(submit::Args),
}

impl Cli {
    fn read() -> Result<Cli, clap::Error> {
        if std::env::args_os().skip(1).take(3).any(|arg| arg == "submit")
            && let Ok(Short { global, verb: ShortVerb::Submit(args) }) = Short::try_parse()
        {
            return Ok(Cli { global, verb: Verb::Submit(args) });
        }
        Cli::try_parse()
    }
}

#[derive(Debug, Subcommand)]
enum Verb {
    Submit(submit::Args),
    List(list::Args),
    Show(show::Args),
    Logs(logs::Args),
    Diff(diff::Args),
    Artifacts(artifacts::Args),
    Wait(wait::Args),
    Why(state::WhyArgs),
    Cancel(state::CancelArgs),
    Hold(state::IdsArgs),
    Release(state::ReleaseArgs),
    Edit(state::EditArgs),
    Retry(state::RetryArgs),
    Accept(review::AcceptArgs),
    Reject(review::RejectArgs),
    Revise(review::ReviseArgs),
    Workers(workers::Args),
    Audit(audit::Args),
    Check(check::Args),
    Models(models::Args),
    Prune(prune::Args),
    Salvage(salvage::Args),
    Tick(run::TickArgs),
    Run(run::RunArgs),
    Shutdown(run::ShutdownArgs),
    Status(status::Args),
    Service(service::Args),
    Doctor(doctor::Args),
    Config(config::Args),
    Metrics(metrics::Args),
    Completions(completions::Args),
    Man(man::Args),
    #[command(hide = true)]
    Notify(notify::Args),
    #[command(hide = true)]
    Retain(retain::Args),
    Mcp(mcp::Args),
    Setup(setup::Args),
    Schema(schema::Args),
    Demo(demo::Args),
    Agent(crate::worker::agent::Options),
    Vscode(crate::worker::vscode::Options),
}

/// Parses the command line, carries the verb out, and says how it went.
pub fn main() -> ExitCode {
    let cli = match Cli::read() {
        Ok(cli) => cli,
        Err(e) => {
            let _ = e.print();
            return ExitCode::from(if e.use_stderr() { exit::USAGE } else { 0 });
        }
    };
    // SAFETY: this is the first thing that we do; no thread has been started.
    let flags = unsafe { crate::spool::config::set_flags(&cli.global.set) };
    match flags.map_err(Exit::from).and_then(|()| dispatch(cli)) {
        Ok(code) => ExitCode::from(code),
        Err(exit) => {
            term::error(&exit.message);
            ExitCode::from(exit.code)
        }
    }
}

fn dispatch(cli: Cli) -> Result<u8, Exit> {
    // These open no spool, or open it themselves.
    let verb = match cli.verb {
        Verb::Schema(args) => return schema::run(&args),
        Verb::Demo(args) => return demo::run(&args),
        Verb::Agent(options) => return Ok(crate::worker::agent::run(&options)),
        Verb::Vscode(options) => return Ok(crate::worker::vscode::run(&options)),
        Verb::Mcp(args) => return mcp::run(cli.global.spool, &args),
        Verb::Completions(args) => return completions::run(&args),
        Verb::Man(args) => return man::run(&args),
        // These two are for when the configuration is wrong.
        Verb::Config(args) => return config::run(&any_spool(cli.global.spool)?, &args),
        Verb::Doctor(args) => return doctor::run(&any_spool(cli.global.spool)?, &args),
        Verb::Setup(args) => return setup::run(cli.global.spool, &args),
        verb => verb,
    };
    let house = House::open(cli.global.spool)?;
    match verb {
        Verb::Submit(args) => submit::run(&house, args),
        Verb::List(args) => list::run(&house, &args),
        Verb::Show(args) => show::run(&house, &args),
        Verb::Logs(args) => logs::run(&house, &args),
        Verb::Diff(args) => diff::run(&house, &args),
        Verb::Artifacts(args) => artifacts::run(&house, &args),
        Verb::Wait(args) => wait::run(&house, &args),
        Verb::Why(args) => state::why(&house, &args),
        Verb::Cancel(args) => state::cancel(&house, &args),
        Verb::Hold(args) => state::hold(&house, &args),
        Verb::Release(args) => state::release(&house, &args),
        Verb::Edit(args) => state::edit(&house, args),
        Verb::Retry(args) => state::retry(&house, &args),
        Verb::Accept(args) => review::accept(&house, args),
        Verb::Reject(args) => review::reject(&house, &args),
        Verb::Revise(args) => review::revise(&house, &args),
        Verb::Workers(args) => workers::run(&house, &args),
        Verb::Audit(args) => audit::run(&house, &args),
        Verb::Prune(args) => prune::run(&house, &args),
        Verb::Salvage(args) => salvage::run(&house, &args),
        Verb::Check(args) => check::run(&house, &args),
        Verb::Models(args) => models::run(&house, &args),
        Verb::Tick(args) => run::tick(&house, &args),
        Verb::Run(args) => run::run(&house, &args),
        Verb::Shutdown(args) => run::shutdown(&house, &args),
        Verb::Status(args) => status::run(&house, &args),
        Verb::Service(args) => service::run(&house, &args),
        Verb::Metrics(args) => metrics::run(&house, &args),
        Verb::Notify(args) => notify::run(&house, &args),
        Verb::Retain(args) => retain::run(&house, &args),
        Verb::Schema(_)
        | Verb::Demo(_)
        | Verb::Agent(_)
        | Verb::Vscode(_)
        | Verb::Mcp(_)
        | Verb::Setup(_) => Ok(0),
        Verb::Completions(_) | Verb::Man(_) | Verb::Config(_) | Verb::Doctor(_) => Ok(0),
    }
}

/// Opens a spool whose configuration may be wrong.
fn any_spool(explicit: Option<PathBuf>) -> Result<Spool, Exit> {
    let spool = Spool::open(&Spool::locate(explicit)?)?;
    Ok(match crate::spool::config::load(&spool).ok().and_then(|c| c.worktrees) {
        Some(path) => spool.with_worktrees(path),
        None => spool,
    })
}

/// Resolves what a user typed for a task, expanding what was just submitted first.
fn resolve(house: &House, text: &str) -> Result<crate::model::TaskId, Exit> {
    let expanded = crate::intake::expand(&house.spool);
    match house.spool.resolve(text) {
        Ok(id) => Ok(id),
        // It may be the very submission that cannot be expanded.
        Err(e) => expanded.map_err(Exit::from).and(Err(e.into())),
    }
}
