//! `workspool salvage`.

use super::exit::Exit;
use super::term;
use crate::care::salvage::{self, Salvaged};
use crate::verbs::House;
use std::path::PathBuf;

/// List, restore or drop what failed attempts left
///
/// Before a workspace is removed or used anew, everything in it is kept under a ref of its repository, ignored
/// files too. A salvage is complete, or it says what it lacks, and then the workspace itself is kept.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  workspool salvage list
  workspool salvage show 01jdq3m6
  workspool salvage restore 01jdq3m6 --into ../saved")]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// List salvages, newest first
    #[command(after_help = "Examples:
  workspool salvage list
  workspool salvage list 01jdq3m6
  workspool salvage list --repo ~/project --json")]
    List {
        /// Only of this task
        task: Option<String>,
        /// All of this repository, also of other spools and of tasks that were pruned
        #[arg(long, value_name = "DIR", conflicts_with = "task")]
        repo: Option<PathBuf>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show what a salvage holds, and what it lacks
    #[command(after_help = "Example:
  workspool salvage show 01jdq3m6")]
    Show {
        #[command(flatten)]
        which: Which,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Put what a salvage holds into a new folder
    #[command(after_help = "Example:
  workspool salvage restore 01jdq3m6 --into ../saved")]
    Restore {
        #[command(flatten)]
        which: Which,
        /// The folder; it must not be there
        #[arg(long, value_name = "DIR")]
        into: PathBuf,
    },
    /// Let a salvage go: what it holds is lost then, unless it is kept elsewhere
    #[command(after_help = "Example:
  workspool salvage drop 01jdq3m6")]
    Drop {
        #[command(flatten)]
        which: Which,
    },
}

#[derive(Debug, clap::Args)]
struct Which {
    /// The task's id, the beginning or end of it, or the name of a dropped file
    task: String,
    /// Of this attempt [default: the newest]
    #[arg(long, value_name = "N")]
    attempt: Option<u32>,
}

impl Which {
    fn find(&self, house: &House) -> Result<Salvaged, Exit> {
        let id = super::resolve(house, &self.task)?;
        Ok(salvage::one(&house.spool, id, self.attempt)?)
    }
}

/// Carries the verb out.
pub fn run(house: &House, args: &Args) -> Result<u8, Exit> {
    match &args.verb {
        Verb::List { task, repo, json } => list(house, task.as_deref(), repo.as_ref(), *json)?,
        Verb::Show { which, json } => show(&which.find(house)?, *json)?,
        Verb::Restore { which, into } => {
            let found = which.find(house)?;
            salvage::restore(&found, into)?;
            term::line(&format!("restored {} to {}", found.name, into.display()))?;
            for missing in &found.missing {
                term::note(&format!("not in it: {missing}"));
            }
        }
        Verb::Drop { which } => {
            let found = which.find(house)?;
            salvage::drop(&house.spool, &found)?;
            term::line(&format!("dropped {}  {}", found.name, found.commit))?;
        }
    }
    Ok(0)
}

fn list(house: &House, task: Option<&str>, repo: Option<&PathBuf>, json: bool) -> Result<(), Exit> {
    let listing = match task {
        Some(task) => {
            let id = super::resolve(house, task)?;
            let salvages = salvage::of_task(&house.spool, id)?;
            salvage::Listing { salvages, unreadable: Vec::new() }
        }
        None => salvage::list(&house.spool, repo.map(PathBuf::as_path))?,
    };
    if json {
        return term::json(&listing);
    }
    if listing.salvages.is_empty() {
        term::note("no salvages");
    }
    for s in &listing.salvages {
        let complete = match s.complete {
            Some(true) => "complete",
            Some(false) => "partial",
            None => "unreadable",
        };
        let known = if s.known { "" } else { "  (not a task of this spool)" };
        let when = s.at.map(term::ago).unwrap_or_default();
        let repo = s.repository.to_string_lossy();
        let repo = term::printable(&repo);
        term::line(&format!("{}  attempt {}  {complete:8}  {when:10}  {repo}{known}", s.task, s.attempt))?;
    }
    for unreadable in &listing.unreadable {
        term::note(&format!("not looked at: {unreadable}"));
    }
    Ok(())
}

fn show(found: &Salvaged, json: bool) -> Result<(), Exit> {
    let files = salvage::files(found)?;
    if json {
        return term::json(&serde_json::json!({ "salvage": found, "files": files }));
    }
    term::line(&format!("{}  {}", found.name, found.commit))?;
    let complete = match found.complete {
        Some(true) => "complete: everything that was in the workspace is in it",
        Some(false) => "partial: the workspace itself was kept, too",
        None => "it does not say whether it is complete",
    };
    term::line(complete)?;
    for missing in &found.missing {
        term::line(&term::printable(&format!("  missing   {missing}")))?;
    }
    for left in &found.left_out {
        term::line(&term::printable(&format!("  left out  {left}")))?;
    }
    for file in &files {
        term::line(&term::printable(&format!("  {file}")))?;
    }
    Ok(())
}
