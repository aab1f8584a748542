//! What will be installed, as text that can be shown: files, or lines of a crontab.

use super::{Kind, Mode, Resolved, cron, launchd, systemd};
use crate::care::doctor::places;
use crate::spool::Spool;
use anyhow::{Context as _, bail};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What will be installed.
#[derive(Debug, Clone)]
pub struct Plan {
    /// What starts us.
    pub kind: Kind,
    /// How we run.
    pub mode: Mode,
    /// Time between ticks.
    pub every: Duration,
    /// Its name among the user's services.
    pub name: String,
    /// The spool's id: a mark on all that we write.
    pub mark: String,
    /// The spool.
    pub spool: String,
    /// The program.
    pub binary: String,
    /// The environment.
    pub env: BTreeMap<String, String>,
}

/// A file to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unit {
    /// Where.
    pub path: PathBuf,
    /// What.
    pub text: String,
}

impl Plan {
    /// Plans a service, and refuses what could not work.
    pub fn new(
        spool: &Spool,
        resolved: &Resolved,
        kind: Kind,
        mode: Mode,
        every: Duration,
    ) -> anyhow::Result<Plan> {
        let home = std::env::home_dir();
        refuse(spool.root(), &resolved.binary, home.as_deref(), cfg!(target_os = "macos"))?;
        let text = |path: &Path| -> anyhow::Result<String> {
            let text = path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))?;
            if text.contains(['\n', '\r']) {
                bail!("{} has a line break in its name", path.display());
            }
            Ok(text.to_owned())
        };
        let id = spool.id();
        let usual = home.is_some_and(|h| h.join(".workspool") == spool.root());
        // The end of an id is its random part.
        let name = if usual {
            "workspool".to_owned()
        } else {
            format!("workspool-{}", &id[id.len().saturating_sub(8)..])
        };
        let plan = Plan {
            kind,
            mode,
            every,
            name,
            mark: id.to_owned(),
            spool: text(spool.root())?,
            binary: text(&resolved.binary)?,
            env: resolved.env.clone(),
        };
        plan.units()?;
        Ok(plan)
    }

    /// The files.
    pub fn units(&self) -> anyhow::Result<Vec<Unit>> {
        match self.kind {
            Kind::Cron => Ok(vec![cron::script(self)]),
            Kind::Systemd => systemd::units(self),
            Kind::Launchd => launchd::units(self),
        }
    }

    /// The lines of the crontab, where it is cron.
    pub fn crontab(&self) -> anyhow::Result<Option<String>> {
        (self.kind == Kind::Cron).then(|| cron::block(self)).transpose()
    }

    /// The arguments of the program.
    pub(super) fn args(&self) -> Vec<String> {
        let mut args = vec!["--spool".to_owned(), self.spool.clone()];
        match self.mode {
            Mode::Timer => args.push("tick".into()),
            Mode::Loop => args.push("run".into()),
        }
        if self.mode == Mode::Loop && self.kind == Kind::Cron {
            // Started once a minute: the one that runs goes on, the others go quietly.
            args.push("--unless-awake".into());
        }
        args.extend(["--quiet".into(), "--log".into(), self.log("service.log")]);
        args
    }

    /// A log of the service.
    pub(super) fn log(&self, name: &str) -> String {
        format!("{}/logs/{name}", self.spool)
    }

    /// The home folder that the service has.
    pub(super) fn home(&self) -> &str {
        self.env.get("HOME").map_or("/", String::as_str)
    }
}

/// Refuses places where a service would hang, or a spool would break.
fn refuse(spool: &Path, binary: &Path, home: Option<&Path>, mac: bool) -> anyhow::Result<()> {
    let guarded = |path: &Path| places::guarded(path, home).filter(|_| mac);
    for (what, path, bad) in [
        ("the spool", spool, places::synced(spool).or_else(|| guarded(spool))),
        ("the program", binary, guarded(binary)),
    ] {
        if let Some(bad) = bad {
            bail!(
                "{what} ({}) lies {}: {}\n  hint: put it elsewhere, such as {}",
                path.display(),
                bad.what,
                bad.why,
                if what == "the spool" { "~/.workspool" } else { "~/.local/bin" }
            );
        }
    }
    Ok(())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A plan with names that every quoting must get right.
    pub(in super::super) fn odd(kind: Kind, mode: Mode) -> Plan {
        let env = [
            ("HOME", "/home/o'me"),
            ("PATH", "/opt/100%/bin:/usr/bin"),
            ("USER", "me"),
            ("ODD", "a \"b\" $c \\d & <e>"),
        ];
        Plan {
            kind,
            mode,
            every: Duration::from_secs(60),
            name: "workspool-test".into(),
            mark: "01jdq3m6".into(),
            spool: "/home/o'me/sp %i $ool".into(),
            binary: "/opt/my tools/workspool".into(),
            env: env.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect(),
        }
    }

    #[test]
    fn bad_places_are_refused_with_the_reason() {
        let home = Some(Path::new("/Users/me"));
        let refused = |spool: &str, binary: &str, mac| {
            refuse(Path::new(spool), Path::new(binary), home, mac).map_err(|e| e.to_string())
        };
        assert!(refused("/Users/me/.workspool", "/usr/local/bin/workspool", true).is_ok());
        let text = refused("/Users/me/Dropbox/s", "/usr/bin/workspool", false).unwrap_err();
        assert!(text.contains("Dropbox") && text.contains("run twice") && text.contains("hint"), "{text}");
        let text = refused("/Users/me/s", "/Users/me/Documents/workspool", true).unwrap_err();
        assert!(text.contains("the program") && text.contains("guards"), "{text}");
        assert!(
            refused("/Users/me/Documents/s", "/usr/bin/workspool", false).is_ok(),
            "only macOS guards it"
        );
    }
}
