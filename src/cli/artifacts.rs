//! `workspool artifacts`.

use super::exit::Exit;
use super::term;
use crate::verbs::{self, House};

/// List the files that a task left with its result, or print one
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  workspool artifacts 01jdq3m6
  workspool artifacts 01jdq3m6 report.md > report.md")]
pub struct Args {
    /// The task's id, the beginning or end of it, or the name of a dropped file
    task: String,
    /// Print this file, byte for byte
    path: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Carries the verb out.
pub fn run(house: &House, args: &Args) -> Result<u8, Exit> {
    let id = super::resolve(house, &args.task)?;
    if let Some(path) = &args.path {
        let (_, file) = verbs::artifact(house, id, path)?;
        term::write(&std::fs::read(file)?)?;
        return Ok(0);
    }
    let artifacts = verbs::artifacts(house, id)?;
    if args.json {
        term::json(&artifacts)?;
        return Ok(0);
    }
    for artifact in &artifacts {
        let kept = if artifact.kept { "" } else { "  (not kept: over the cap)" };
        term::line(&term::printable(&format!(
            "{:>10}  {:24}  {}{kept}",
            artifact.bytes, artifact.mime, artifact.path
        )))?;
    }
    if artifacts.is_empty() {
        term::note("no artifacts");
    }
    Ok(0)
}
