//! `workspool schema`.

use super::exit::{self, Exit};
use super::term;
use crate::model::schema;
use std::path::PathBuf;

/// Print the JSON Schema of a file format, or write them all
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  workspool schema task
  workspool schema --write queue-schema")]
pub struct Args {
    /// Which: task, batch, result, review, event, request, rejection, worker-profile, …; none: list them
    name: Option<String>,
    /// Write all of them into this folder
    #[arg(long, value_name = "DIR", conflicts_with = "name")]
    write: Option<PathBuf>,
}

/// Carries the verb out.
pub fn run(args: &Args) -> Result<u8, Exit> {
    let all = schema::all();
    let word = |file: &'static str| file.trim_end_matches(".schema.json");
    if let Some(dir) = &args.write {
        std::fs::create_dir_all(dir)?;
        for (file, schema) in &all {
            std::fs::write(dir.join(file), schema::to_text(schema))?;
        }
        return Ok(0);
    }
    let Some(name) = &args.name else {
        for (file, _) in &all {
            term::line(word(file))?;
        }
        return Ok(0);
    };
    match all.iter().find(|(file, _)| word(file) == name) {
        Some((_, schema)) => {
            term::write(schema::to_text(schema).as_bytes())?;
            Ok(0)
        }
        None => {
            let names: Vec<&str> = all.iter().map(|(file, _)| word(file)).collect();
            let hint =
                crate::model::input::nearest(name, &names).map(|n| format!("\n  hint: did you mean {n}?"));
            let text = format!("there is no schema {name}: expected one of {}", names.join(", "));
            Err(Exit::new(exit::USAGE, text + &hint.unwrap_or_default()))
        }
    }
}
