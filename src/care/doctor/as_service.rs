//! `doctor --as-service`: the same checks from where a service stands, and the proof that a task outlives
//! the tick that started it.
//!
//! systemd and launchd start us for real, as a job of a moment; for cron its environment is made as cron
//! makes it. The task of the proof runs in a spool of its own, which goes with it.

use super::{Context, Finding, command};
use crate::care::service::{self, Kind, Record};
use crate::durable;
use crate::process::{Asking, ask};
use crate::spool::Spool;
use anyhow::{Context as _, bail};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);

/// Where a service stands.
struct Stand {
    kind: Kind,
    binary: PathBuf,
    env: BTreeMap<String, String>,
    /// Whether it is what was installed, or what would be.
    installed: bool,
}

impl Stand {
    fn of(spool: &Spool) -> anyhow::Result<Self> {
        if let Some(record) = Record::read(spool)? {
            return Ok(Stand { kind: record.kind, binary: record.binary, env: record.env, installed: true });
        }
        let resolved = service::resolve(&[])?;
        let kind = Kind::of_this_machine().unwrap_or(Kind::Cron);
        Ok(Stand { kind, binary: resolved.binary, env: resolved.env, installed: false })
    }

    /// Runs this program as the service would, and returns its exit code and what it prints.
    fn run(&self, args: &[&str], scratch: &Path) -> anyhow::Result<(i32, String)> {
        match self.kind {
            Kind::Launchd => service::launchd_once(&self.binary, args, &self.env, scratch, LIMIT),
            Kind::Systemd => {
                let mut command = Command::new("systemd-run");
                command.args([
                    "--user",
                    "--wait",
                    "--pipe",
                    "--collect",
                    "--quiet",
                    "--property=KillMode=process",
                ]);
                for (name, value) in &self.env {
                    command.arg(format!("--setenv={name}={value}"));
                }
                command.arg("--").arg(&self.binary).args(args);
                said(command)
            }
            Kind::Cron => {
                let mut command = Command::new(&self.binary);
                command.args(args).env_clear().envs(&self.env).env("SHELL", "/bin/sh").current_dir("/");
                said(command)
            }
        }
    }
}

fn said(command: Command) -> anyhow::Result<(i32, String)> {
    // What a tick starts lives on, as it would under a manager.
    let asking = Asking { may_leave: true, most: 1024 * 1024, ..Asking::within(LIMIT) };
    let said =
        ask(command, asking)?.with_context(|| format!("it did not end within {} s", LIMIT.as_secs()))?;
    Ok((said.status.code().unwrap_or(-1), said.text()))
}

/// Makes the checks from where the service stands.
pub fn as_service(spool: &Spool) -> anyhow::Result<Vec<Finding>> {
    let config = crate::spool::config::load(spool).unwrap_or_default();
    let context = Context { spool, config: &config };
    let stand = Stand::of(spool)?;
    let scratch = tempfile::Builder::new().prefix("doctor-").tempdir_in(spool.tmp())?;
    let what = if stand.installed { "the installed service" } else { "a service as it would be installed" };
    let mut found = vec![Finding::ok(format!("looked at as {what} ({})", stand.kind))];
    let root = spool.root().to_string_lossy().into_owned();
    match stand
        .run(&["--spool", &root, "doctor", "--json"], scratch.path())
        .and_then(|(_, text)| parse(&text))
    {
        Ok(inside) => found.extend(inside),
        Err(e) => found.push(
            Finding::error(format!("the service cannot be started: {e:#}"))
                .why("nothing would be started in the background")
                .fix(command(&context, "service install")),
        ),
    }
    found.push(match outlives(&stand, scratch.path()) {
        Ok(()) => Finding::ok("a task outlives the tick that started it"),
        Err(e) => Finding::error(format!("a task did not outlive the tick that started it: {e:#}"))
            .why("each tick would end the tasks of the one before")
            .fix(command(&context, "service install")),
    });
    for finding in found.iter_mut().filter(|f| f.check.is_empty()) {
        finding.check = "service";
    }
    Ok(found)
}

/// Reads the findings of a doctor that ran elsewhere.
fn parse(text: &str) -> anyhow::Result<Vec<Finding>> {
    let start = text.find('[').context("it printed no findings")?;
    let mut values = serde_json::Deserializer::from_str(&text[start..]).into_iter::<Vec<serde_json::Value>>();
    let values = values.next().context("it printed no findings")?.with_context(|| super::first_line(text))?;
    values.into_iter().map(finding).collect()
}

fn finding(value: serde_json::Value) -> anyhow::Result<Finding> {
    use super::Level;
    let text = |key: &str| value[key].as_str().map(str::to_owned);
    let level = match value["level"].as_str() {
        Some("ok") => Level::Ok,
        Some("note") => Level::Note,
        Some("warning") => Level::Warning,
        Some("error") => Level::Error,
        _ => bail!("an unknown level"),
    };
    let name = value["check"].as_str().unwrap_or_default();
    let check = super::CHECKS.iter().find(|c| c.name == name).map_or("service", |c| c.name);
    Ok(Finding {
        check,
        why: text("why"),
        fix: text("fix"),
        ..Finding::new(level, text("what").unwrap_or_default())
    })
}

/// Lets the service tick over a spool with one task, and waits until that has ended, after the tick has.
fn outlives(stand: &Stand, scratch: &Path) -> anyhow::Result<()> {
    let dir = scratch.join("spool");
    durable::ensure_dir(&dir)?;
    let spool = dir.to_string_lossy().into_owned();
    let here = |args: &[&str]| -> anyhow::Result<String> {
        let mut command = Command::new(crate::worker::env::own_executable()?);
        // The proof is about the service, not about what the owner has configured.
        command.arg("--spool").arg(&dir).args(args).env("WORKSPOOL_CONFIG", dir.join("none.toml"));
        command.env("WORKSPOOL_DISK_RESERVE_BYTES", "0").env("WORKSPOOL_DISK_RESERVE_PERCENT", "0");
        let asking = Asking { may_leave: true, ..Asking::within(LIMIT) };
        let said = ask(command, asking)?.context("it did not end in time")?;
        let text = said.text();
        if said.status.success() { Ok(text) } else { bail!("{}", super::first_line(&text)) }
    };
    std::fs::write(dir.join("config.toml"), "[disk]\nreserve_bytes = 0\nreserve_percent = 0\n")?;
    here(&["submit", "sleep 2", "--worker", "shell", "--title", "outlive"])?;
    let list = here(&["list", "--json"])?;
    let id = list
        .split('"')
        .find(|w| w.parse::<crate::model::TaskId>().is_ok())
        .context("no task was made")?
        .to_owned();
    let (code, text) = stand.run(&["--spool", &spool, "tick", "--quiet"], scratch)?;
    if code != 0 {
        bail!("the tick ended with {code}: {}", super::first_line(&text));
    }
    here(&["wait", &id, "--timeout", "60"]).map(drop)
}
