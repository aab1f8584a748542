//! `workspool artifacts`.

use super::exit::{self, Exit};
use super::term;
use crate::model::check::is_inside;
use crate::verbs::House;
use std::path::Path;

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
    let Some(result) = house.spool.read_result(id)? else {
        let state = house.spool.state_of(id)?;
        return Err(Exit::new(exit::STATE, format!("task {id} has no artifacts yet, it is {state}")));
    };
    if let Some(path) = &args.path {
        let known = result.artifacts.iter().find(|a| a.path == *path);
        let Some(artifact) = known.filter(|a| is_inside(Path::new(&a.path))) else {
            let names: Vec<&str> = result.artifacts.iter().map(|a| a.path.as_str()).collect();
            let near =
                crate::model::input::nearest(path, &names).map(|n| format!("\n  hint: did you mean {n}?"));
            return Err(Exit::new(
                exit::NOT_FOUND,
                format!("task {id} has no artifact {path}{}", near.unwrap_or_default()),
            ));
        };
        if !artifact.kept {
            let text =
                format!("{path} is {} bytes, which was over the cap: no copy was kept", artifact.bytes);
            return Err(Exit::new(exit::NOT_FOUND, text));
        }
        term::write(&std::fs::read(house.spool.task(id).artifacts().join(path))?)?;
        return Ok(0);
    }
    if args.json {
        term::json(&result.artifacts)?;
        return Ok(0);
    }
    for artifact in &result.artifacts {
        let kept = if artifact.kept { "" } else { "  (not kept: over the cap)" };
        term::line(&term::printable(&format!(
            "{:>10}  {:24}  {}{kept}",
            artifact.bytes, artifact.mime, artifact.path
        )))?;
    }
    if result.artifacts.is_empty() {
        term::note("no artifacts");
    }
    Ok(0)
}
