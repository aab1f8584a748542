//! `workspool doctor`.

use super::exit::Exit;
use super::term;
use crate::care::doctor::{self, Context, Finding, Level};
use crate::spool::{Spool, config};

/// Look for what is wrong, say why it matters, and how to put it right
///
/// Looks at the spool, its file system, free space, the clock, git, workspaces, leases, the runner, each
/// worker, and the PATH that a service has. Nothing is changed without --fix. Ends with exit code 1 if
/// something does not work.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  workspool doctor
  workspool doctor --fix
  workspool doctor --as-service")]
pub struct Args {
    /// Mend what can be mended without losing anything
    #[arg(long)]
    fix: bool,
    /// Look from where the service stands: its environment, its manager; and prove that a task outlives its
    /// tick
    #[arg(long, conflicts_with = "fix")]
    as_service: bool,
    /// Show only what is not as it should be
    #[arg(short, long)]
    quiet: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Carries the verb out. A configuration that cannot be read is a finding here, not an end.
pub fn run(spool: &Spool, args: &Args) -> Result<u8, Exit> {
    let mut findings = if args.as_service {
        doctor::as_service(spool)?
    } else {
        let config = config::load(spool).unwrap_or_default();
        doctor::examine(&Context { spool, config: &config }, args.fix)
    };
    if args.quiet {
        findings.retain(|f| f.level != Level::Ok || f.fixed.is_some());
    }
    if args.json {
        term::json(&findings)?;
    } else {
        print(&findings)?;
    }
    Ok(u8::from(findings.iter().any(|f| f.level == Level::Error)))
}

/// Prints findings for people.
pub(super) fn print(findings: &[Finding]) -> Result<(), Exit> {
    let width = findings.iter().map(|f| f.check.len()).max().unwrap_or(0);
    for finding in findings {
        let level = colour(finding.level);
        let indent = " ".repeat(width + 11);
        let mut text = format!(
            "{level}  {:width$}  {}",
            finding.check,
            finding.what.replace('\n', &format!("\n{indent}"))
        );
        if let Some(why) = &finding.why {
            text.push_str(&format!("\n{indent}why: {why}"));
        }
        if let Some(fix) = &finding.fix {
            text.push_str(&format!("\n{indent}fix: {fix}"));
        }
        if let Some(fixed) = &finding.fixed {
            text.push_str(&format!("\n{indent}{fixed}"));
        }
        term::line(&term::printable_keeping_colour(&text))?;
    }
    Ok(())
}

fn colour(level: Level) -> String {
    let text = format!("{:7}", level.as_str());
    let code = match level {
        Level::Ok => "32",
        Level::Note => "2",
        Level::Warning => "33",
        Level::Error => "31",
    };
    if term::colour() { format!("\x1b[{code}m{text}\x1b[0m") } else { text }
}
