//! `workspool man`.

use super::exit::Exit;
use super::term;
use clap::{Command, CommandFactory as _};
use clap_mangen::Man;
use std::io::Write as _;
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
    let name = command.get_name().to_owned();
    let examples = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let has_verbs = command.has_subcommands();
    let man = Man::new(command);
    let mut out = Vec::new();
    writeln!(
        out,
        ".TH \"{}\" \"1\" \"\" \"workspool {}\" \"Manual of workspool\"",
        roff(&name.to_uppercase()),
        env!("CARGO_PKG_VERSION")
    )?;
    man.render_name_section(&mut out)?;
    man.render_synopsis_section(&mut out)?;
    man.render_description_section(&mut out)?;
    man.render_options_section(&mut out)?;
    if has_verbs {
        man.render_subcommands_section(&mut out)?;
    }
    if !examples.is_empty() {
        // Not as a paragraph: its lines are to be copied.
        writeln!(out, ".SH EXAMPLES\n.nf")?;
        for line in examples.lines().skip(1) {
            writeln!(out, "{}", roff(line.strip_prefix("  ").unwrap_or(line)))?;
        }
        writeln!(out, ".fi")?;
    }
    let above = name.rsplit_once('-').map_or("workspool-doctor", |(above, _)| above);
    writeln!(out, ".SH \"SEE ALSO\"\n.BR {} (1)", roff(above))?;
    Ok(out)
}

/// A line of text that means itself in a manual page.
fn roff(line: &str) -> String {
    let text = line.replace('\\', "\\e").replace('-', "\\-").replace('\'', "\\(aq");
    if text.starts_with('.') { format!("\\&{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_means_itself_in_a_page() {
        assert_eq!(roff(".it's -x \\"), "\\&.it\\(aqs \\-x \\e");
    }

    #[test]
    fn every_verb_has_a_page_with_its_examples() {
        let mut root = super::super::Cli::command();
        root.build();
        let pages = pages(root, "").unwrap();
        assert!(pages.len() > 40);
        for (name, text) in pages {
            let text = String::from_utf8(text).unwrap();
            assert!(text.starts_with(".TH ") && text.contains(".SH NAME"), "{name}");
            assert!(text.contains(".SH EXAMPLES") || name == "workspool", "{name}");
        }
    }
}
