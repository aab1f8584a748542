//! What a service would find: its PATH is not the one of a shell.

use super::{Context, Finding, command};
use crate::care::service;
use crate::worker;
use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt as _;

/// What cron and launchd give at most.
const BARE: &str = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin";

pub(super) fn look(context: &Context<'_>) -> anyhow::Result<Vec<Finding>> {
    let record = service::Record::read(context.spool)?;
    let path = record.as_ref().and_then(|r| r.env.get("PATH").cloned());
    let installed = path.is_some();
    let path = path.unwrap_or_else(|| BARE.to_owned());
    let mut missing = Vec::new();
    let mut programs = vec![("git".to_owned(), "git".to_owned())];
    for (name, (_, profile)) in worker::all(context.spool)? {
        let Ok(profile) = profile else { continue };
        let program = profile.wrap.first().unwrap_or(&profile.command[0]).clone();
        // What the shell does not find either is told by another check.
        if !program.starts_with('{') && worker::env::find_executable(&program).is_some() {
            programs.push((name.to_string(), program));
        }
    }
    for (name, program) in programs {
        if !program.contains('/') && !is_on(&program, path.as_ref()) {
            missing.push(if name == program { name } else { format!("{program} (worker {name})") });
        }
    }
    Ok(vec![judge(context, &missing, installed)])
}

fn judge(context: &Context<'_>, missing: &[String], installed: bool) -> Finding {
    if missing.is_empty() {
        let whose = if installed { "the service's PATH" } else { "even the bare PATH of a service" };
        return Finding::ok(format!("git and the workers are on {whose}"));
    }
    let list = missing.join(", ");
    if installed {
        Finding::error(format!("the service does not find {list}"))
            .why("it works in your shell and fails in the background")
            .fix(command(context, "service install --yes"))
    } else {
        Finding::note(format!("a service with a bare PATH would not find {list}"))
            .why("`service install` writes your present PATH into the unit; a crontab line of your own must set it")
            .fix(command(context, "service install"))
    }
}

fn is_on(program: &str, path: &OsStr) -> bool {
    std::env::split_paths(path)
        .map(|dir| dir.join(program))
        .any(|p| p.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0))
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::super::support::Fixture;
    use super::*;

    #[test]
    fn what_only_a_shell_finds_is_told() {
        let fixture = Fixture::new();
        let bin = fixture.dir.path().join("bin");
        std::fs::create_dir(&bin).unwrap();
        let tool = bin.join("tool");
        std::fs::write(&tool, "").unwrap();
        assert!(!is_on("tool", bin.as_os_str()), "not executable");
        std::fs::set_permissions(&tool, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert!(is_on("tool", bin.as_os_str()) && !is_on("tool", OsStr::new(BARE)));
        let missing = ["tool (worker x)".to_owned()];
        assert_eq!(judge(&fixture.context(), &missing, true).level, Level::Error);
        assert_eq!(judge(&fixture.context(), &missing, false).level, Level::Note);
        assert_eq!(judge(&fixture.context(), &[], true).level, Level::Ok);
    }
}
