//! `doctor`: a check a file. Each finding says what is so, why it matters, and the one command that fixes
//! it. Checks only look; what `--fix` does is a function beside its check.

mod as_service;
mod clock;
mod confinement;
mod configuration;
mod filesystem;
mod git;
mod leases;
mod leftovers;
mod logs;
mod overlay;
mod path;
pub mod places;
mod planners;
mod runner;
mod space;
mod spool;
mod workers;
mod worktrees;

pub use as_service::as_service;

use crate::model::Config;
use crate::spool::Spool;
use serde::Serialize;

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// As it should be.
    Ok,
    /// Worth knowing.
    Note,
    /// Something will not work as well as it could.
    Warning,
    /// Something does not work.
    Error,
}

impl Level {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Level::Ok => "ok",
            Level::Note => "note",
            Level::Warning => "warning",
            Level::Error => "error",
        }
    }
}

/// What a check found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// The check.
    pub check: &'static str,
    /// How bad it is.
    pub level: Level,
    /// What is so.
    pub what: String,
    /// Why it matters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The command that fixes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
    /// Whether `doctor --fix` does it.
    pub fixable: bool,
    /// What `doctor --fix` did about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fixed: Option<String>,
}

impl Finding {
    fn new(level: Level, what: impl Into<String>) -> Self {
        Finding { check: "", level, what: what.into(), why: None, fix: None, fixable: false, fixed: None }
    }

    fn ok(what: impl Into<String>) -> Self {
        Finding::new(Level::Ok, what)
    }

    fn note(what: impl Into<String>) -> Self {
        Finding::new(Level::Note, what)
    }

    fn warning(what: impl Into<String>) -> Self {
        Finding::new(Level::Warning, what)
    }

    fn error(what: impl Into<String>) -> Self {
        Finding::new(Level::Error, what)
    }

    fn why(mut self, why: impl Into<String>) -> Self {
        self.why = Some(why.into());
        self
    }

    fn fix(mut self, command: impl Into<String>) -> Self {
        self.fix = Some(command.into());
        self
    }

    fn fixable(mut self) -> Self {
        self.fixable = true;
        self
    }
}

/// What the checks look at.
#[derive(Debug)]
pub struct Context<'a> {
    /// The spool.
    pub spool: &'a Spool,
    /// Its configuration, or the defaults where it cannot be read.
    pub config: &'a Config,
}

struct Check {
    name: &'static str,
    look: fn(&Context<'_>) -> anyhow::Result<Vec<Finding>>,
    /// Mends what it can, and says what it did.
    mend: Option<fn(&Context<'_>) -> anyhow::Result<String>>,
}

const CHECKS: &[Check] = &[
    Check { name: "configuration", look: configuration::look, mend: None },
    Check { name: "spool", look: spool::look, mend: Some(spool::mend) },
    Check { name: "file system", look: filesystem::look, mend: None },
    Check { name: "place", look: places::look, mend: None },
    Check { name: "space", look: space::look, mend: None },
    Check { name: "clock", look: clock::look, mend: None },
    Check { name: "git", look: git::look, mend: None },
    Check { name: "worktrees", look: worktrees::look, mend: Some(worktrees::mend) },
    Check { name: "leftovers", look: leftovers::look, mend: Some(leftovers::mend) },
    Check { name: "leases", look: leases::look, mend: Some(leases::mend) },
    Check { name: "runner", look: runner::look, mend: None },
    Check { name: "workers", look: workers::look, mend: None },
    Check { name: "confinement", look: confinement::look, mend: None },
    Check { name: "overlay", look: overlay::look, mend: None },
    Check { name: "path", look: path::look, mend: None },
    Check { name: "mcp", look: planners::look, mend: None },
    Check { name: "logs", look: logs::look, mend: Some(logs::mend) },
];

/// Makes all checks. With `fix`, mends what it can and looks again.
pub fn examine(context: &Context<'_>, fix: bool) -> Vec<Finding> {
    CHECKS.iter().flat_map(|check| examine_one(check, context, fix)).collect()
}

fn examine_one(check: &Check, context: &Context<'_>, fix: bool) -> Vec<Finding> {
    let findings = look(check, context);
    let Some(mend) = check.mend.filter(|_| fix && findings.iter().any(|f| f.fixable)) else {
        return findings;
    };
    let did = mend(context);
    let mut after = look(check, context);
    match did {
        Ok(did) => {
            let mut fixed = Finding { check: check.name, ..Finding::ok("mended") };
            fixed.fixed = Some(did);
            after.push(fixed);
        }
        Err(e) => {
            after.push(Finding { check: check.name, ..Finding::error(format!("it cannot be mended: {e:#}")) })
        }
    }
    after
}

fn look(check: &Check, context: &Context<'_>) -> Vec<Finding> {
    // A check that cannot be made does not stop the others.
    let mut findings = (check.look)(context)
        .unwrap_or_else(|e| vec![Finding::warning(format!("this cannot be looked at: {e:#}"))]);
    findings.iter_mut().for_each(|f| f.check = check.name);
    findings
}

/// Checks the configuration alone.
pub fn configuration(spool: &Spool) -> Vec<Finding> {
    let config = crate::spool::config::load(spool).unwrap_or_default();
    look(&CHECKS[0], &Context { spool, config: &config })
}

/// The command line of `verb` for a spool that may not be the usual one.
fn command(context: &Context<'_>, verb: &str) -> String {
    let usual = std::env::home_dir().map(|h| h.join(".workspool"));
    if usual.as_deref() == Some(context.spool.root()) {
        format!("workspool {verb}")
    } else {
        format!("workspool --spool {} {verb}", shell(&context.spool.root().to_string_lossy()))
    }
}

/// A text as one word for a shell, to be shown and copied.
fn shell(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:@,".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

/// The first line that says something.
fn first_line(text: &str) -> String {
    text.lines().map(str::trim).find(|l| !l.is_empty()).unwrap_or_default().chars().take(200).collect()
}

/// A number of bytes for people.
fn bytes(n: u64) -> String {
    match n {
        0..1024 => format!("{n} bytes"),
        1024..1_048_576 => format!("{} KiB", n / 1024),
        1_048_576..1_073_741_824 => format!("{} MiB", n / 1_048_576),
        _ => format!("{:.1} GiB", n as f64 / 1_073_741_824.0),
    }
}

#[cfg(test)]
mod support {
    use super::*;
    use std::path::Path;

    /// A fresh spool in a folder of its own.
    pub(super) struct Fixture {
        pub(super) dir: tempfile::TempDir,
        pub(super) spool: Spool,
        pub(super) config: Config,
    }

    impl Fixture {
        pub(super) fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let spool = Spool::open(&dir.path().join("spool")).unwrap();
            Fixture { dir, spool, config: Config::default() }
        }

        pub(super) fn context(&self) -> Context<'_> {
            Context { spool: &self.spool, config: &self.config }
        }

        pub(super) fn root(&self) -> &Path {
            self.spool.root()
        }
    }

    /// The worst finding.
    pub(super) fn worst(findings: &[Finding]) -> &Finding {
        findings.iter().max_by_key(|f| f.level).unwrap()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_says_why_and_what_to_do_and_is_mended_once() {
        use std::os::unix::fs::PermissionsExt as _;
        let fixture = support::Fixture::new();
        std::fs::set_permissions(fixture.root(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let check = CHECKS.iter().find(|c| c.name == "spool").unwrap();
        let before = examine_one(check, &fixture.context(), false);
        let bad = support::worst(&before);
        assert_eq!(bad.level, Level::Error);
        assert!(bad.why.is_some() && bad.fix.is_some() && bad.fixable);
        let after = examine_one(check, &fixture.context(), true);
        assert_eq!(support::worst(&after).level, Level::Ok, "{after:?}");
        assert!(after.iter().any(|f| f.fixed.is_some()));
    }

    #[test]
    fn a_check_that_fails_is_a_finding() {
        let fixture = support::Fixture::new();
        let check = Check { name: "x", look: |_| anyhow::bail!("no"), mend: None };
        let findings = examine_one(&check, &fixture.context(), true);
        assert_eq!((findings[0].level, findings[0].check), (Level::Warning, "x"));
    }

    #[test]
    fn shown_commands_can_be_copied() {
        assert_eq!(shell("/a/b-c.d"), "/a/b-c.d");
        assert_eq!(shell("/a b/it's"), r"'/a b/it'\''s'");
        assert_eq!(shell(""), "''");
    }
}
