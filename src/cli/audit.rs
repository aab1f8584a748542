//! `workspool audit`.

use super::exit::Exit;
use super::{exit, term};
use crate::gate::audit;
use crate::verbs::House;

/// Recompute a task's receipt from the spool and the repository
///
/// Names the first thing that does not match, and ends with exit code 40 then.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  workspool audit 01jdq3m6
  workspool audit 01jdq3m6 --replay")]
pub struct Args {
    /// The task's id, the beginning or end of it, or the name of a dropped file
    task: String,
    /// Run setup and verify commands again, on a clean copy of the commit
    #[arg(long)]
    replay: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Carries the verb out.
pub fn run(house: &House, args: &Args) -> Result<u8, Exit> {
    let id = super::resolve(house, &args.task)?;
    let audit = audit::audit(&house.spool, id, args.replay, &mut term::note)?;
    let code = if audit.first().is_some() { exit::PROBLEMS } else { 0 };
    if args.json {
        term::json(&audit)?;
        return Ok(code);
    }
    match audit.first() {
        None => {
            let what = if args.replay { " and verified again" } else { "" };
            term::line(&format!(
                "{id}  attempt {}: all {} parts match{what}  receipt sha256:{}",
                audit.attempt,
                audit.checked.len(),
                audit.receipt_sha256
            ))?;
        }
        Some(first) => {
            let why = first.differs.as_deref().unwrap_or_default();
            term::line(&term::printable(&format!("{id}  does not match: {}: {why}", first.what)))?;
        }
    }
    for note in &audit.notes {
        term::note(note);
    }
    Ok(code)
}
