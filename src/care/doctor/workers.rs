//! Whether each worker is installed, which version it is, and whether it is signed in; nothing is spent.

use super::{Context, Finding, Level, command};
use crate::model::{Profile, WorkerName};
use crate::worker::{self, health};

pub(super) fn look(context: &Context<'_>) -> anyhow::Result<Vec<Finding>> {
    let wanted = context.config.default_worker.as_ref();
    let all = worker::all(context.spool)?;
    // Each may take seconds to say its version.
    let mut found: Vec<Finding> = std::thread::scope(|scope| {
        let asked: Vec<_> = all
            .iter()
            .map(|(name, (_, profile))| (name, scope.spawn(move || one(context, name, profile))))
            .collect();
        asked
            .into_iter()
            .map(|(name, thread)| {
                let mut finding =
                    thread.join().unwrap_or_else(|_| Finding::warning(format!("{name} cannot be looked at")));
                // Nobody has to have every worker that we know.
                if wanted == Some(name) && finding.level == Level::Note {
                    finding.level = Level::Error;
                }
                finding
            })
            .collect()
    });
    found.sort_by_key(|f| std::cmp::Reverse(f.level));
    Ok(found)
}

fn one(context: &Context<'_>, name: &WorkerName, profile: &Result<Profile, String>) -> Finding {
    let profile = match profile {
        Ok(profile) => profile,
        Err(e) => {
            return Finding::error(e.clone())
                .why("tasks for this worker are refused")
                .fix(command(context, &format!("workers unlink {name}")));
        }
    };
    let program = profile.wrap.first().unwrap_or(&profile.command[0]);
    if program.starts_with('{') {
        return Finding::ok(format!("{name}: part of workspool"));
    }
    let health = health::look(context.spool, profile, true);
    if !health.installed {
        let how = profile.install.clone().unwrap_or_else(|| format!("command -v {program}"));
        return Finding::note(format!("{name}: {program} is not installed"))
            .why("tasks for this worker would fail with not_found")
            .fix(how);
    }
    if health.version.is_none()
        && let Some(fault) = health::version_fault(context.spool, profile)
    {
        return Finding::error(format!("{name}: {fault}"))
            .why("it is installed and does not start")
            .fix(command(context, &format!("workers check {name}")));
    }
    let version = health.version.map_or_else(String::new, |v| format!(" ({v})"));
    match health.signed_in {
        Some(false) => {
            let how = profile.install.clone().unwrap_or_else(|| format!("{program} login"));
            let bad = Finding::warning(format!("{name}: installed{version}, not signed in"));
            bad.why("tasks for this worker would fail with auth").fix(how)
        }
        Some(true) => Finding::ok(format!("{name}: installed{version}, signed in")),
        None => Finding::ok(format!("{name}: installed{version}")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::support::Fixture;
    use super::*;

    fn link(fixture: &Fixture, name: &str, extra: serde_json::Value) {
        let mut profile = serde_json::json!({ "name": name, "command": ["sh", "-c", "true"] });
        let map = profile.as_object_mut().unwrap();
        map.extend(extra.as_object().unwrap().clone());
        std::fs::write(fixture.spool.workers().join(format!("{name}.json")), profile.to_string()).unwrap();
    }

    fn of<'a>(found: &'a [Finding], name: &str) -> &'a Finding {
        found.iter().find(|f| f.what.starts_with(name)).unwrap_or_else(|| panic!("{name} in {found:?}"))
    }

    #[test]
    fn each_worker_is_installed_signed_in_or_neither() {
        let mut fixture = Fixture::new();
        let file = fixture.dir.path().join("auth.json");
        std::fs::write(&file, "").unwrap();
        link(&fixture, "gone", serde_json::json!({ "command": ["/no/such/program"], "install": "get it" }));
        link(
            &fixture,
            "good",
            serde_json::json!({ "health": { "version": ["sh", "-c", "echo 1.2.3"], "signed_in_files": [file] } }),
        );
        link(&fixture, "out", serde_json::json!({ "health": { "signed_in": ["false"] } }));
        link(
            &fixture,
            "sick",
            serde_json::json!({ "health": { "version": ["sh", "-c", "echo oh >&2; exit 1"] } }),
        );
        std::fs::write(fixture.spool.workers().join("odd.json"), "{").unwrap();
        let found = look(&fixture.context()).unwrap();
        assert_eq!(of(&found, "gone").level, Level::Note);
        assert_eq!(of(&found, "gone").fix.as_deref(), Some("get it"));
        assert!(of(&found, "good").what.contains("1.2.3") && of(&found, "good").what.contains(", signed in"));
        assert_eq!(of(&found, "out").level, Level::Warning);
        assert_eq!(of(&found, "sick").level, Level::Error);
        assert!(found.iter().any(|f| f.level == Level::Error && f.what.contains("odd.json")));
        fixture.config.default_worker = Some("gone".parse().unwrap());
        assert_eq!(of(&look(&fixture.context()).unwrap(), "gone").level, Level::Error, "it is the default");
    }
}
