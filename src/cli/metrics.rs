//! `workspool metrics`.

use super::exit::Exit;
use super::term;
use crate::care::metrics;
use crate::durable;
use crate::verbs::House;
use std::path::PathBuf;

/// Print counts, durations, tokens and costs
///
/// What has ended is counted as it ends, what is under way from the names of tickets: this costs the same
/// with any history.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  workspool metrics
  workspool metrics --prometheus
  workspool metrics --textfile /var/lib/node_exporter/workspool.prom")]
pub struct Args {
    /// Print them in the text format of Prometheus
    #[arg(long, conflicts_with = "json")]
    prometheus: bool,
    /// Write that text to a file in one step, for node_exporter's textfile collector
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "prometheus"])]
    textfile: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Carries the verb out.
pub fn run(house: &House, args: &Args) -> Result<u8, Exit> {
    let metrics = metrics::read(&house.spool)?;
    if args.json {
        term::json(&metrics)?;
        return Ok(0);
    }
    if let Some(path) = &args.textfile {
        use std::os::unix::fs::PermissionsExt as _;
        // The collector is another user, and must never see half a file.
        let tmp = path.with_extension("tmp");
        std::fs::write(&tmp, metrics.prometheus())
            .and_then(|()| std::fs::set_permissions(&tmp, std::fs::Permissions::from_mode(0o644)))
            .and_then(|()| durable::fault::point("rename"))
            .and_then(|()| std::fs::rename(&tmp, path))
            .map_err(|e| Exit::new(super::exit::FAULT, format!("cannot write {}: {e}", path.display())))?;
        return Ok(0);
    }
    if args.prometheus {
        term::write(metrics.prometheus().as_bytes())?;
        return Ok(0);
    }
    table(&metrics)
}

fn table(metrics: &metrics::Metrics) -> Result<u8, Exit> {
    let ended = &metrics.ended;
    let active = &metrics.active;
    let held: u64 = active.held.values().sum();
    term::line(&format!("now      {} queued, {} running, {held} held", active.queued, active.running))?;
    if active.queued > 0 {
        term::line(&format!(
            "oldest   waits for {}",
            term::duration((active.queue_age_seconds * 1000.0) as u64)
        ))?;
    }
    term::line(&format!("counted  since {}", ended.since.format("%Y-%m-%d %H:%M UTC")))?;
    for (state, classes) in &ended.ended {
        for (class, count) in classes {
            let dash = if class.is_empty() { "" } else { ": " };
            term::line(&format!("ended    {count:6}  {state}{dash}{class}"))?;
        }
    }
    for (phase, histogram) in ended.phases.iter().filter(|(_, h)| h.count > 0) {
        let mean = term::duration(histogram.sum_ms / histogram.count);
        term::line(&format!("phase    {phase:10}  {mean} on average, {} times", histogram.count))?;
    }
    for (worker, models) in &ended.used {
        for (model, used) in models {
            let mut text = format!("worker   {worker} {model}  {} tasks", used.tasks);
            for (count, what) in
                [(used.usage.input_tokens, "tokens in"), (used.usage.output_tokens, "tokens out")]
            {
                if let Some(count) = count {
                    text.push_str(&format!(", {count} {what}"));
                }
            }
            if let Some(cost) = used.usage.cost_usd {
                text.push_str(&format!(", ${cost:.2}"));
            }
            term::line(&term::printable(&text))?;
        }
    }
    Ok(0)
}
