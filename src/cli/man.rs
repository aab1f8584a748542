//! `workspool man`.

use super::exit::Exit;
use super::term;
use clap::{Command, CommandFactory as _};
use clap_mangen::Man;
use std::path::PathBuf;

/// Print the manual page, or write one for each verb
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  workspool man | man -l -
  workspool man --write ~/.local/share/man/man1")]
pub struct Args {
    /// Write a page for each verb into this folder
    #[arg(long, value_name = "DIR")]
    write: Option<PathBuf>,
}

/// Carries the verb out.
pub fn run(args: &Args) -> Result<u8, Exit> {
    let mut root = super::Cli::command();
    root.build();
    let Some(dir) = &args.write else {
        term::write(&page(root)?)?;
        return Ok(0);
    };
    std::fs::create_dir_all(dir)?;
    for (name, text) in pages(root, "")? {
        std::fs::write(dir.join(format!("{name}.1")), text)?;
    }
    Ok(0)
}

/// The page of a command, and of each that is under it, by file name.
fn pages(command: Command, above: &str) -> std::io::Result<Vec<(String, Vec<u8>)>> {
    let name = if above.is_empty() {
        command.get_name().to_owned()
    } else {
        format!("{above}-{}", command.get_name())
    };
    let mut all = Vec::new();
    for verb in command.get_subcommands().filter(|v| !v.is_hide_set() && v.get_name() != "help") {
        all.extend(pages(verb.clone(), &name)?);
    }
    // Clap wants a name that lives as long as the program; a page is made once, and then we end.
    let command = command.name(&*Box::leak(name.clone().into_boxed_str()));
    all.push((name, page(command)?));
    Ok(all)
}

fn page(command: Command) -> std::io::Result<Vec<u8>> {
    let mut out = Vec::new();
    Man::new(command).render(&mut out)?;
    Ok(out)
}
