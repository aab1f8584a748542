//! `workspool setup`.

use super::exit::{self, Exit};
use super::term;
use crate::model::input::nearest;
use crate::setup::{self, Change, Client};
use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};

/// Register the MCP server with a planner, or undo it
///
/// Shows what will change in the planner's own configuration and asks before it does so. Where the planner
/// has a command for it, and is installed, that command is used. Without a planner's name, lists them.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  workspool setup
  workspool setup claude
  workspool setup codex --yes
  workspool setup cursor --remove
  workspool setup vscode --print")]
pub struct Args {
    /// claude, claude-desktop, codex, opencode, gemini, cursor, vscode, windsurf, cline or continue
    client: Option<String>,
    /// Take the server out of the configuration again
    #[arg(long)]
    remove: bool,
    /// Print what to put into the configuration by hand, and change nothing
    #[arg(long, conflicts_with = "remove")]
    print: bool,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
}

/// Carries the verb out.
pub fn run(spool: Option<PathBuf>, args: &Args) -> Result<u8, Exit> {
    let home = std::env::home_dir()
        .filter(|h| h.is_absolute())
        .ok_or_else(|| Exit::new(exit::USAGE, "there is no home folder: set HOME"))?;
    let Some(name) = &args.client else {
        if args.remove || args.yes {
            return Err(Exit::new(exit::USAGE, "a planner's name is needed: `workspool setup` lists them"));
        }
        return if args.print { print(spool.as_deref(), "claude-desktop") } else { list(&home) };
    };
    let Some(client) = Client::named(name) else {
        let names: Vec<&str> = setup::ALL.iter().map(|c| c.name).collect();
        let hint = match nearest(name, &names) {
            Some(near) => format!("did you mean {near}?"),
            None => format!("known are {}; others take what --print shows", names.join(", ")),
        };
        return Err(Exit::new(exit::NOT_FOUND, format!("there is no planner {name}\n  hint: {hint}")));
    };
    if args.print {
        return print(spool.as_deref(), name);
    }
    let start = if args.remove { None } else { Some(setup::start(spool.as_deref())?) };
    let change = setup::plan(client, &home, start.as_ref())?;
    if change.is_nothing() {
        let how = if args.remove { "is not registered" } else { "is registered already" };
        term::line(&format!("workspool {how} with {} ({})", client.title, change.file.display()))?;
        return Ok(0);
    }
    show(&change)?;
    if !args.yes && !agreed()? {
        return Err(Exit::new(exit::STATE, "nothing was changed"));
    }
    setup::apply(&change)?;
    if args.remove {
        term::line(&format!("workspool is no longer registered with {}", client.title))?;
    } else {
        term::line(&format!("workspool is registered with {}: {}", client.title, client.then))?;
    }
    Ok(0)
}

fn show(change: &Change) -> Result<(), Exit> {
    if change.commands.is_empty() {
        let verb = match (&change.old, &change.new) {
            (None, _) => "make",
            (_, None) => "remove",
            _ => "change",
        };
        term::line(&format!("{verb} {}", change.file.display()))?;
        for line in change.lines() {
            let code = if line.starts_with('+') { "32" } else { "31" };
            let line = term::printable(&line).into_owned();
            term::line(&if term::colour() {
                format!("\x1b[{code}m  {line}\x1b[0m")
            } else {
                format!("  {line}")
            })?;
        }
    } else {
        for line in &change.commands {
            term::line(&format!("run  {}", term::printable(&setup::words(line))))?;
        }
        term::line(&format!("which changes {}", change.file.display()))?;
    }
    Ok(())
}

/// Asks on a terminal; elsewhere nobody can answer.
fn agreed() -> Result<bool, Exit> {
    if !std::io::stdin().is_terminal() {
        return Err(Exit::new(
            exit::USAGE,
            "nothing was changed: nobody can be asked here\n  hint: say --yes",
        ));
    }
    eprint!("do it? [y/N] ");
    std::io::stderr().flush()?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

fn print(spool: Option<&Path>, name: &str) -> Result<u8, Exit> {
    if let Some(client) = Client::named(name) {
        term::write(setup::snippet(client, &setup::start(spool)?)?.as_bytes())?;
    }
    Ok(0)
}

fn list(home: &Path) -> Result<u8, Exit> {
    for client in setup::ALL {
        let state = match (setup::is_registered(client, home), setup::is_there(client, home)) {
            (true, _) => "registered",
            (false, true) => "not registered",
            (false, false) => "not found",
        };
        term::line(&format!("{:16}  {:16}  {state}", client.name, client.title))?;
    }
    Ok(0)
}
