//! `workspool diff`.

use super::exit::{self, Exit};
use super::term;
use crate::verbs::{self, House};
use std::io::IsTerminal as _;

/// Show what a task changed, as a patch
///
/// On a terminal and for other programs, secrets are masked; --raw gives the exact bytes, which
/// `git apply` takes.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  workspool diff 01jdq3m6 --stat
  workspool diff 01jdq3m6 src/main.rs
  workspool diff 01jdq3m6 --raw | git apply")]
pub struct Args {
    /// The task's id, the beginning or end of it, or the name of a dropped file
    task: String,
    /// Only these files
    #[arg(value_name = "PATH")]
    paths: Vec<String>,
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
    let changes = verbs::changes(house, id, &args.paths)?;
    if args.json {
        term::json(&changes.files)?;
        return Ok(0);
    }
    if args.stat {
        let width = changes.files.iter().map(|f| f.path.chars().count()).max().unwrap_or(0).min(80);
        for file in &changes.files {
            let lines = match (file.added, file.removed) {
                (Some(a), Some(r)) => format!("+{a} -{r}"),
                _ => "binary".to_owned(),
            };
            term::line(&term::printable(&format!("{:width$}  {:12}  {lines}", file.path, file.change)))?;
        }
        term::note(&format!("{} files changed", changes.files.len()));
        return Ok(0);
    }
    if changes.file.is_none() {
        let message = house.spool.read_result(id)?.map(|r| r.message).unwrap_or_default();
        return Err(Exit::new(exit::NOT_FOUND, format!("task {id} left no patch: {message}")));
    }
    let patch = changes.patch(args.raw)?;
    if args.raw || !std::io::stdout().is_terminal() {
        term::write(&patch)?;
        return Ok(0);
    }
    for line in String::from_utf8_lossy(&patch).lines() {
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
