//! `workspool prune`.

use super::exit::Exit;
use super::term;
use crate::care::prune::{self, Done, Policy, What};
use crate::verbs::House;
use std::time::Duration;

/// Take away what is no longer needed: old tasks, their workspaces, build output, leftovers of crashes
///
/// Says only what it would do, unless --apply is given. A workspace goes only if everything in it is in a
/// commit or a salvage; branches of results that nobody accepted, and salvages, always stay.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  workspool prune
  workspool prune --older-than 30d --keep 50 --apply")]
pub struct Args {
    /// Do it
    #[arg(long)]
    apply: bool,
    /// Tasks that ended longer ago than this, such as 12h or 7d
    #[arg(long, value_name = "TIME", default_value = "7d", value_parser = time)]
    older_than: Duration,
    /// Keep this many of the newest ended tasks, however old
    #[arg(long, value_name = "N", default_value_t = 0)]
    keep: usize,
    /// Also younger ones, the oldest first, until ended tasks take no more than this, such as 500M or 20G
    #[arg(long, value_name = "SIZE", value_parser = size)]
    max_size: Option<u64>,
    /// Cancel tasks that have been held by hand or for an answer for as long
    #[arg(long)]
    include_held: bool,
    /// Also the records of succeeded tasks that nobody accepted or rejected; their branches stay
    #[arg(long)]
    include_unreviewed: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Carries the verb out.
pub fn run(house: &House, args: &Args) -> Result<u8, Exit> {
    let policy = Policy {
        older_than: args.older_than,
        keep: args.keep,
        max_bytes: args.max_size,
        include_held: args.include_held,
        include_unreviewed: args.include_unreviewed,
    };
    let report = prune::prune(&house.spool, &policy, args.apply)?;
    if args.json {
        term::json(&report)?;
        return Ok(0);
    }
    for item in &report.items {
        let what = match item.what {
            What::Cancel => "cancel",
            What::BuildOutput => "build output",
            What::Workspace => "workspace",
            What::Task => "task",
            What::Orphan => "orphan",
            What::WarmTree => "warm tree",
            What::Leftover => "leftover",
            What::Checkout => "checkout",
        };
        let path = item.path.strip_prefix(house.spool.root()).unwrap_or(&item.path);
        let (word, more) = match &item.outcome {
            None => ("would go", format!(": {}", item.why)),
            Some(Done::Removed) => ("gone", String::new()),
            Some(Done::Kept(why)) => ("stays", format!(": {why}")),
        };
        let bytes = if item.bytes > 0 { format!(" ({})", bytes(item.bytes)) } else { String::new() };
        term::line(&term::printable(&format!("{word:8}  {what:12}  {}{bytes}{more}", path.display())))?;
    }
    for kept in &report.kept {
        term::note(&format!("stays: {kept}"));
    }
    let counts = |item: &&prune::Item| !matches!(item.outcome, Some(Done::Kept(_)));
    let sum: u64 = report.items.iter().filter(counts).map(|i| i.bytes).sum();
    let n = report.items.iter().filter(counts).count();
    if args.apply {
        term::note(&format!("{n} taken away, {} free again", bytes(sum)));
    } else {
        term::note(&format!("{n} would be taken away ({}); nothing was: add --apply", bytes(sum)));
    }
    Ok(0)
}

fn bytes(n: u64) -> String {
    match n {
        0..1024 => format!("{n} B"),
        1024..1_048_576 => format!("{:.1} KiB", n as f64 / 1024.0),
        1_048_576..1_073_741_824 => format!("{:.1} MiB", n as f64 / 1_048_576.0),
        _ => format!("{:.1} GiB", n as f64 / 1_073_741_824.0),
    }
}

fn split(text: &str) -> Result<(u64, &str), String> {
    let at = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number = text[..at].parse().map_err(|_| format!("{text:?} does not begin with a number"))?;
    Ok((number, &text[at..]))
}

fn time(text: &str) -> Result<Duration, String> {
    let (number, unit) = split(text)?;
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        "w" => 604_800,
        _ => return Err(format!("{text:?}: expected a time such as 90m, 12h, 7d or 4w")),
    };
    number.checked_mul(seconds).map(Duration::from_secs).ok_or_else(|| format!("{text:?} is too long"))
}

fn size(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text)?;
    let factor: u64 = match unit {
        "" | "B" => 1,
        "K" | "KiB" => 1 << 10,
        "M" | "MiB" => 1 << 20,
        "G" | "GiB" => 1 << 30,
        "T" | "TiB" => 1 << 40,
        _ => return Err(format!("{text:?}: expected a size such as 500M or 20G")),
    };
    number.checked_mul(factor).ok_or_else(|| format!("{text:?} is too much"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_sizes_have_units() {
        assert_eq!(time("7d"), Ok(Duration::from_secs(604_800)));
        assert_eq!(time("90m"), Ok(Duration::from_secs(5400)));
        assert!(time("7").is_err() && time("d").is_err() && time("99999999999999999999d").is_err());
        assert_eq!(size("2G"), Ok(2 << 30));
        assert!(size("2X").is_err());
    }
}
