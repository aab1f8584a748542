//! `workspool completions`.

use super::exit::Exit;
use super::term;
use clap::CommandFactory as _;
use clap_complete::Shell;

/// Print a script that lets a shell complete verbs and flags
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  workspool completions bash > ~/.local/share/bash-completion/completions/workspool
  workspool completions zsh > ~/.zfunc/_workspool
  workspool completions fish > ~/.config/fish/completions/workspool.fish")]
pub struct Args {
    /// The shell
    shell: Shell,
}

/// Carries the verb out.
pub fn run(args: &Args) -> Result<u8, Exit> {
    let mut out = Vec::new();
    clap_complete::generate(args.shell, &mut super::Cli::command(), "workspool", &mut out);
    term::write(&out)?;
    Ok(0)
}
