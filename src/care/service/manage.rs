//! Install, look at, restart and uninstall a service.

use super::plan::{Plan, Unit};
use super::record::{File, Record};
use super::{Kind, Mode, cron, launchd, systemd};
use crate::care::heartbeat;
use crate::durable;
use crate::model::VERSION;
use crate::model::hex;
use crate::spool::Spool;
use anyhow::{Context as _, bail};
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use std::path::Path;

/// What is installed, and whether it works.
#[derive(Debug, Clone, Serialize)]
pub struct Status {
    /// What was recorded.
    pub record: Record,
    /// Whether the manager says that it is active. Absent if it does not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active: Option<bool>,
    /// What is not as it was installed.
    pub problems: Vec<String>,
}

/// Installs a service. What was installed for this spool before is taken away first.
pub fn install(spool: &Spool, plan: &Plan, linger: bool) -> anyhow::Result<Record> {
    let _alone = spool.lock("service").take()?;
    let old = Record::read(spool)?;
    let units = plan.units()?;
    for unit in &units {
        refuse_foreign(unit, plan, old.as_ref())?;
    }
    let set_linger = match &old {
        Some(old) => {
            take_away(spool, old, false)?;
            old.set_linger
        }
        None => false,
    };
    let mut record = Record {
        version: VERSION,
        kind: plan.kind,
        mode: plan.mode,
        every: plan.every.as_secs(),
        name: plan.name.clone(),
        binary: plan.binary.clone().into(),
        env: plan.env.clone(),
        files: units.iter().map(|u| File { path: u.path.clone(), sha256: hash(u.text.as_bytes()) }).collect(),
        active: false,
        made_crontab: old.is_some_and(|o| o.made_crontab),
        set_linger,
        installed_at: chrono::Utc::now(),
    };
    // Before anything is made: whatever a crash leaves can be taken away.
    record.write(spool)?;
    match make(spool, plan, &units, linger, &mut record) {
        Ok(()) => {
            record.active = true;
            record.write(spool)?;
            Ok(record)
        }
        Err(e) => {
            let back = take_away(spool, &record, true).and_then(|_| Record::remove(spool));
            Err(match back {
                Ok(()) => e.context("nothing was installed"),
                Err(back) => e.context(format!("what was made could not be taken away again ({back:#}); `workspool service uninstall` tries again")),
            })
        }
    }
}

fn make(spool: &Spool, plan: &Plan, units: &[Unit], linger: bool, record: &mut Record) -> anyhow::Result<()> {
    durable::ensure_dir(&crate::care::log::dir(spool))?;
    for unit in units {
        if let Some(folder) = unit.path.parent() {
            durable::ensure_dir(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        }
        durable::replace(&unit.path, unit.text.as_bytes())
            .with_context(|| format!("cannot write {}", unit.path.display()))?;
    }
    match plan.kind {
        Kind::Cron => {
            let was_none = cron::install(plan)?;
            if was_none {
                record.made_crontab = true;
                record.write(spool)?;
            }
        }
        Kind::Systemd => {
            systemd::activate(&plan.name, plan.mode)?;
            if let Some(user) = plan.env.get("USER").filter(|u| linger && systemd::lingers(u) != Some(true)) {
                record.set_linger = true;
                record.write(spool)?;
                systemd::set_linger(user, true).context("lingering could not be switched on")?;
            }
        }
        Kind::Launchd => launchd::activate(&plan.name, &units[0].path)?,
    }
    Ok(())
}

/// Refuses to write over a file that is not ours.
fn refuse_foreign(unit: &Unit, plan: &Plan, old: Option<&Record>) -> anyhow::Result<()> {
    let Ok(text) = std::fs::read(&unit.path) else { return Ok(()) };
    let recorded = old.is_some_and(|o| o.files.iter().any(|f| f.path == unit.path));
    let marked = String::from_utf8_lossy(&text).contains(&format!("workspool: spool {}.", plan.mark));
    if recorded || marked {
        return Ok(());
    }
    bail!("{} is there already, and is not ours: it is not written over", unit.path.display())
}

/// Takes away what was installed. Returns what was left, and why.
pub fn uninstall(spool: &Spool) -> anyhow::Result<Option<Vec<String>>> {
    let _alone = spool.lock("service").take()?;
    let Some(record) = Record::read(spool)? else { return Ok(None) };
    let left = take_away(spool, &record, true)?;
    Record::remove(spool)?;
    Ok(Some(left))
}

fn take_away(spool: &Spool, record: &Record, for_good: bool) -> anyhow::Result<Vec<String>> {
    let mut left = Vec::new();
    let stopped = match record.kind {
        Kind::Cron => cron::uninstall(spool.id(), record.made_crontab),
        Kind::Systemd => systemd::deactivate(&record.name, record.mode),
        Kind::Launchd => launchd::deactivate(&record.name),
    };
    if let Err(e) = stopped {
        let active = is_active(spool, record);
        // What is not loaded cannot be stopped; what is, must be.
        if record.active && (record.kind == Kind::Cron || active != Some(false)) {
            return Err(e);
        }
    }
    for file in &record.files {
        match std::fs::read(&file.path) {
            Ok(text) if hash(&text) == file.sha256 => durable::remove_file(&file.path)?,
            Ok(_) => {
                left.push(format!("{} was changed after it was installed: it stays", file.path.display()))
            }
            Err(_) => {}
        }
    }
    if record.kind == Kind::Systemd {
        let _ = systemd::forget();
    }
    if for_good
        && record.set_linger
        && let Some(Err(e)) = record.env.get("USER").map(|user| systemd::set_linger(user, false))
    {
        left.push(format!("lingering stays on: {e:#}"));
    }
    if record.kind == Kind::Cron && record.mode == Mode::Loop && for_good {
        // Nobody else would end it.
        if let Err(e) = heartbeat::end_loop(spool) {
            left.push(format!("the loop goes on: {e:#}"));
        }
    }
    Ok(left)
}

fn is_active(spool: &Spool, record: &Record) -> Option<bool> {
    match record.kind {
        Kind::Cron => cron::is_installed(spool.id()),
        Kind::Systemd => systemd::is_active(&record.name, record.mode),
        Kind::Launchd => launchd::is_active(&record.name),
    }
    .ok()
}

/// Says what is installed; none if nothing is.
pub fn status(spool: &Spool) -> anyhow::Result<Option<Status>> {
    let Some(record) = Record::read(spool)? else { return Ok(None) };
    let mut problems = Vec::new();
    for file in &record.files {
        match std::fs::read(&file.path) {
            Ok(text) if hash(&text) == file.sha256 => {}
            Ok(_) => problems.push(format!("{} was changed", file.path.display())),
            Err(e) => problems.push(format!("{}: {e}", file.path.display())),
        }
    }
    if !is_executable(&record.binary) {
        problems.push(format!("the program {} is not there", record.binary.display()));
    }
    if record.kind == Kind::Systemd
        && let Some(user) = record.env.get("USER")
        && systemd::lingers(user) == Some(false)
    {
        problems.push("it ends when you log out: `workspool service install --linger` lets it go on".into());
    }
    let active = is_active(spool, &record);
    Ok(Some(Status { record, active, problems }))
}

fn is_executable(path: &Path) -> bool {
    crate::worker::env::find_executable(&path.to_string_lossy()).is_some()
}

/// Starts the service anew. No task is touched. Says what was done.
pub fn restart(spool: &Spool) -> anyhow::Result<&'static str> {
    let record = Record::read(spool)?
        .context("no service is installed for this spool\n  hint: `workspool service install`")?;
    match (record.kind, record.mode) {
        (Kind::Systemd, _) => systemd::restart(&record.name, record.mode).map(|()| "restarted"),
        (Kind::Launchd, _) => launchd::restart(&record.name).map(|()| "restarted"),
        (Kind::Cron, Mode::Timer) => Ok("nothing to restart: each tick starts anew"),
        (Kind::Cron, Mode::Loop) => match heartbeat::end_loop(spool)? {
            Some(_) => Ok("the loop has ended; cron starts another one within a minute"),
            None => Ok("no loop runs; cron starts one within a minute"),
        },
    }
}

fn hash(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}
