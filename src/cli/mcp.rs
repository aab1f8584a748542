//! `workspool mcp`.

use super::exit::{self, Exit};
use crate::mcp;
use std::path::PathBuf;
use std::time::Duration;

/// Serve the Model Context Protocol on standard input and output
///
/// For planners such as Claude Code, Codex or Cursor, which start it themselves: `workspool setup` writes it
/// into their configuration. The server keeps nothing; any number of them work side by side.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  workspool mcp
  workspool mcp --idle 0
  claude mcp add workspool -- workspool mcp")]
pub struct Args {
    /// End when nothing was asked for so long, such as 24h; 0 never ends
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = idle)]
    idle: Idle,
}

#[derive(Debug, Clone, Copy)]
struct Idle(Option<Duration>);

/// Carries the verb out.
pub fn run(spool: Option<PathBuf>, args: &Args) -> Result<u8, Exit> {
    mcp::serve(spool, args.idle.0).map_err(|e| Exit::new(exit::FAULT, format!("{e:#}")))?;
    // On systems where standard input cannot be read without blocking, a thread of the runtime may still
    // be at it.
    std::process::exit(0)
}

fn idle(text: &str) -> Result<Idle, String> {
    let expected = || format!("expected a time such as 30m or 24h: {text:?}");
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let number: u64 = number.parse().map_err(|_| expected())?;
    let factor = match unit {
        "ms" => return Ok(Idle(Some(Duration::from_millis(number)))),
        "" | "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return Err(expected()),
    };
    let seconds = number.checked_mul(factor).ok_or_else(expected)?;
    Ok(Idle((seconds > 0).then(|| Duration::from_secs(seconds))))
}
