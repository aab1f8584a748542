//! Metrics: what has ended (counted as it ended) and what is under way (counted from the names of tickets).

use super::heartbeat::{Runner, runner};
use crate::durable::free_space;
use crate::model::HeldReason;
use crate::spool::counters::{self, BOUNDS_MS, Counters};
use crate::spool::{Place, Spool};
use chrono::Utc;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The figures of a spool at one moment.
#[derive(Debug, Serialize)]
pub struct Metrics {
    /// What has ended.
    pub ended: Counters,
    /// Tasks that have not ended: queued, running, and held by reason.
    pub active: Active,
    /// Whether a loop works the spool.
    pub loop_works: bool,
    /// When the loop last made a pass, in seconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_pass: Option<i64>,
    /// Free bytes on the spool's disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub free_bytes: Option<u64>,
}

/// Tasks that have not ended.
#[derive(Debug, Default, Serialize)]
pub struct Active {
    /// Ready to run.
    pub queued: u64,
    /// Under way.
    pub running: u64,
    /// Waiting, by reason.
    pub held: BTreeMap<&'static str, u64>,
    /// Seconds that the oldest queued task has waited; 0 if none waits.
    pub queue_age_seconds: f64,
}

/// Reads the figures. The cost does not grow with the history.
pub fn read(spool: &Spool) -> anyhow::Result<Metrics> {
    let mut active =
        Active { held: HeldReason::ALL.iter().map(|r| (r.as_str(), 0)).collect(), ..Active::default() };
    let now = u64::try_from(Utc::now().timestamp_millis()).unwrap_or(0);
    // What was just submitted counts, too.
    crate::intake::expand(spool)?;
    for found in spool.active()? {
        match found.place {
            Place::Queue => {
                active.queued += 1;
                let age = now.saturating_sub(found.ticket.task.timestamp_ms()) as f64 / 1000.0;
                active.queue_age_seconds = active.queue_age_seconds.max(age);
            }
            Place::Running => active.running += 1,
            Place::Held(reason, _) => *active.held.entry(reason.as_str()).or_default() += 1,
            Place::Done(..) => {}
        }
    }
    let runner = runner(spool)?;
    let last_pass = match &runner {
        Runner::Works(Some(beat)) => Some(beat.last_pass.timestamp()),
        _ => super::heartbeat::last_tick(spool).map(|t| t.last_pass.timestamp()),
    };
    Ok(Metrics {
        ended: counters::read(spool),
        active,
        loop_works: matches!(runner, Runner::Works(_)),
        last_pass,
        free_bytes: free_space(spool.root()).ok().map(|s| s.free),
    })
}

impl Metrics {
    /// The figures in the text format of Prometheus.
    pub fn prometheus(&self) -> String {
        let mut out = Text::default();
        out.family("workspool_tasks", "gauge", "Tasks that have not ended.");
        out.value("workspool_tasks", &[("state", "queued"), ("reason", "")], self.active.queued);
        out.value("workspool_tasks", &[("state", "running"), ("reason", "")], self.active.running);
        for (reason, count) in &self.active.held {
            out.value("workspool_tasks", &[("state", "held"), ("reason", reason)], count);
        }
        out.family("workspool_queue_age_seconds", "gauge", "How long the oldest queued task has waited.");
        out.value("workspool_queue_age_seconds", &[], self.active.queue_age_seconds);
        out.family("workspool_loop_up", "gauge", "Whether a loop works the spool.");
        out.value("workspool_loop_up", &[], u8::from(self.loop_works));
        if let Some(at) = self.last_pass {
            out.family("workspool_last_pass_timestamp_seconds", "gauge", "When a runner last made a pass.");
            out.value("workspool_last_pass_timestamp_seconds", &[], at);
        }
        if let Some(free) = self.free_bytes {
            out.family("workspool_disk_free_bytes", "gauge", "Free bytes on the spool's disk.");
            out.value("workspool_disk_free_bytes", &[], free);
        }
        out.family("workspool_tasks_ended_total", "counter", "Tasks that have ended.");
        for (state, classes) in &self.ended.ended {
            for (class, count) in classes {
                out.value("workspool_tasks_ended_total", &[("state", state), ("class", class)], count);
            }
        }
        self.phases(&mut out);
        self.used(&mut out);
        out.0
    }

    fn phases(&self, out: &mut Text) {
        const NAME: &str = "workspool_phase_duration_seconds";
        out.family(NAME, "histogram", "Time of the last attempts by phase.");
        for (phase, histogram) in &self.ended.phases {
            let mut sum = 0;
            for (k, bound) in BOUNDS_MS.iter().enumerate() {
                sum += histogram.buckets.get(k).copied().unwrap_or(0);
                let bound = (*bound as f64 / 1000.0).to_string();
                out.value(&format!("{NAME}_bucket"), &[("phase", phase), ("le", &bound)], sum);
            }
            out.value(&format!("{NAME}_bucket"), &[("phase", phase), ("le", "+Inf")], histogram.count);
            out.value(&format!("{NAME}_sum"), &[("phase", phase)], histogram.sum_ms as f64 / 1000.0);
            out.value(&format!("{NAME}_count"), &[("phase", phase)], histogram.count);
        }
    }

    fn used(&self, out: &mut Text) {
        let each = |f: &mut dyn FnMut(&str, &str, &counters::Used)| {
            for (worker, models) in &self.ended.used {
                models.iter().for_each(|(model, used)| f(worker, model, used));
            }
        };
        out.family("workspool_worker_tasks_total", "counter", "Ended tasks by worker and model.");
        each(&mut |worker, model, used| {
            out.value("workspool_worker_tasks_total", &[("worker", worker), ("model", model)], used.tasks);
        });
        out.family("workspool_tokens_total", "counter", "Tokens as the workers reported them.");
        each(&mut |worker, model, used| {
            let usage = &used.usage;
            for (kind, tokens) in [
                ("input", usage.input_tokens),
                ("output", usage.output_tokens),
                ("cached", usage.cached_tokens),
            ] {
                if let Some(tokens) = tokens {
                    out.value(
                        "workspool_tokens_total",
                        &[("worker", worker), ("model", model), ("kind", kind)],
                        tokens,
                    );
                }
            }
        });
        out.family("workspool_cost_usd_total", "counter", "US dollars as the workers reported them.");
        each(&mut |worker, model, used| {
            if let Some(cost) = used.usage.cost_usd {
                out.value("workspool_cost_usd_total", &[("worker", worker), ("model", model)], cost);
            }
        });
    }
}

#[derive(Default)]
struct Text(String);

impl Text {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn value(&mut self, name: &str, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        self.0.push_str(name);
        for (k, (label, text)) in labels.iter().enumerate() {
            let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _ = write!(self.0, "{}{label}=\"{text}\"", if k == 0 { '{' } else { ',' });
        }
        let _ = writeln!(self.0, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_has_a_type_for_each_family_and_buckets_that_add_up() {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::open(&dir.path().join("s")).unwrap();
        let mut metrics = read(&spool).unwrap();
        let histogram = counters::Histogram { buckets: (1..=15).collect(), count: 120, sum_ms: 1500 };
        metrics.ended.phases.insert("working".into(), histogram);
        metrics.ended.ended.entry("failed".into()).or_default().insert("gate_failed".into(), 3);
        let mut used = counters::Used { tasks: 2, ..counters::Used::default() };
        used.usage.input_tokens = Some(7);
        metrics.ended.used.entry("w".into()).or_default().insert("odd\"\\\nmodel".into(), used);
        let text = metrics.prometheus();
        for line in [
            "workspool_tasks{state=\"queued\",reason=\"\"} 0",
            "workspool_tasks_ended_total{state=\"failed\",class=\"gate_failed\"} 3",
            "workspool_phase_duration_seconds_bucket{phase=\"working\",le=\"0.3\"} 3",
            "workspool_phase_duration_seconds_bucket{phase=\"working\",le=\"+Inf\"} 120",
            "workspool_phase_duration_seconds_sum{phase=\"working\"} 1.5",
            "workspool_tokens_total{worker=\"w\",model=\"odd\\\"\\\\\\nmodel\",kind=\"input\"} 7",
            "workspool_loop_up 0",
        ] {
            assert!(text.lines().any(|l| l == line), "{line}\n{text}");
        }
        for line in text.lines().filter(|l| !l.starts_with('#')) {
            let name = line.split(['{', ' ']).next().unwrap();
            let family = name.trim_end_matches("_bucket").trim_end_matches("_sum").trim_end_matches("_count");
            assert!(text.contains(&format!("# TYPE {family} ")), "{name} has no type");
        }
    }
}
