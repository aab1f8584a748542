//! `workspool check`.

use super::exit::Exit;
use super::{exit, term};
use crate::care::check::{self, Finding, Outcome, Severity};
use crate::verbs::House;

/// Check that everything in the spool is as it must be
///
/// Looks at tickets, records, histories, results, notes and workspaces, and at whether all work is kept.
/// Says nothing and ends with 0 if all is well; leftovers of crashes alone are listed and end with 0, too.
/// May be run at any time, also while tasks run.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  workspool check
  workspool check --repair")]
pub struct Args {
    /// Make good what can be; each finding says what that is
    #[arg(long)]
    repair: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Carries the verb out.
pub fn run(house: &House, args: &Args) -> Result<u8, Exit> {
    let report = check::check(&house.spool, args.repair)?;
    let problems = report.problems().count();
    if args.json {
        term::json(&report)?;
        return Ok(if problems > 0 { exit::PROBLEMS } else { 0 });
    }
    for finding in &report.findings {
        term::line(&shown(house, finding))?;
    }
    if !report.busy.is_empty() {
        term::note(&format!("{} tasks are being worked on and were only looked at", report.busy.len()));
    }
    let leftovers = report.findings.iter().filter(|f| f.severity == Severity::Leftover).count();
    term::note(&format!("{} tasks, {problems} problems, {leftovers} leftovers", report.tasks));
    let repairable = report.findings.iter().any(|f| f.repair.is_some() && f.outcome.is_none());
    if repairable {
        term::note("hint: `workspool check --repair` makes good what can be");
    }
    Ok(if problems > 0 { exit::PROBLEMS } else { 0 })
}

fn shown(house: &House, finding: &Finding) -> String {
    let path = finding.path.strip_prefix(house.spool.root()).unwrap_or(&finding.path);
    let what = match finding.severity {
        Severity::Problem => "problem",
        Severity::Leftover => "leftover",
    };
    let invariant = finding.invariant.map(|i| format!(" ({i})")).unwrap_or_default();
    let mut text = format!("{what}{invariant}: {}\n  {}", path.display(), finding.message);
    match (&finding.repair, &finding.outcome) {
        (Some(repair), Some(Outcome::Repaired)) => text.push_str(&format!("\n  repaired: {repair}")),
        (Some(repair), Some(Outcome::Failed(why))) => {
            text.push_str(&format!("\n  not repaired ({repair}): {why}"));
        }
        (Some(repair), None) => text.push_str(&format!("\n  --repair: {repair}")),
        (None, _) => {}
    }
    term::printable(&text).into_owned()
}
