//! `workspool diff`.

use super::exit::{self, Exit};
use super::term;
use crate::redact::Redactor;
use crate::verbs::House;
use std::io::IsTerminal as _;

/// Show what a task changed, as a patch
///
/// On a terminal and for other programs, secrets are masked; --raw gives the exact bytes, which
/// `git apply` takes.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  workspool diff 01jdq3m6 --stat
  workspool diff 01jdq3m6 --raw | git apply")]
pub struct Args {
    /// The task's id, the beginning or end of it, or the name of a dropped file
    task: String,
    /// Only a line a file
    #[arg(long)]
    stat: bool,
    /// The exact bytes of the patch
    #[arg(long)]
    raw: bool,
    /// Print JSON: the changed files
    #[arg(long)]
    json: bool,
}

/// Carries the verb out.
pub fn run(house: &House, args: &Args) -> Result<u8, Exit> {
    let id = super::resolve(house, &args.task)?;
    let Some(result) = house.spool.read_result(id)? else {
        let state = house.spool.state_of(id)?;
        return Err(Exit::new(exit::STATE, format!("task {id} has no diff yet, it is {state}")));
    };
    if args.json {
        term::json(&result.changed)?;
        return Ok(0);
    }
    if args.stat {
        let width = result.changed.iter().map(|f| f.path.chars().count()).max().unwrap_or(0).min(80);
        for file in &result.changed {
            let lines = match (file.added, file.removed) {
                (Some(a), Some(r)) => format!("+{a} -{r}"),
                _ => "binary".to_owned(),
            };
            term::line(&term::printable(&format!("{:width$}  {:12}  {lines}", file.path, file.change)))?;
        }
        term::note(&format!("{} files changed", result.changed.len()));
        return Ok(0);
    }
    if result.diff.is_none() {
        return Err(Exit::new(exit::NOT_FOUND, format!("task {id} left no patch: {}", result.message)));
    }
    let bytes = std::fs::read(house.spool.task(id).diff())?;
    if args.raw {
        term::write(&bytes)?;
        return Ok(0);
    }
    let masked = Redactor::new([]).text(&bytes).into_owned();
    if !std::io::stdout().is_terminal() {
        term::write(&masked)?;
        return Ok(0);
    }
    for line in String::from_utf8_lossy(&masked).lines() {
        let code = match line.as_bytes().first() {
            _ if line.starts_with("diff ") || line.starts_with("index ") => "1",
            Some(b'+') => "32",
            Some(b'-') => "31",
            Some(b'@') => "36",
            _ => "0",
        };
        let line = term::printable(line);
        term::line(&if term::colour() { format!("\x1b[{code}m{line}\x1b[0m") } else { line.into_owned() })?;
    }
    Ok(0)
}
