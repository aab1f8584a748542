//! Whether the configuration can be read, and whether what it names is there.

use super::{Context, Finding, shell};
use crate::model::input;
use crate::spool::config::{load, unknown_variables};
use crate::worker;
use std::os::unix::fs::PermissionsExt as _;

pub(super) fn look(context: &Context<'_>) -> anyhow::Result<Vec<Finding>> {
    let spool = context.spool;
    let file = spool.config_file();
    let config = match load(spool) {
        Ok(config) => config,
        Err(e) => {
            let finding = Finding::error(e.to_string())
                .why("nothing is started, since what was meant is not known")
                .fix(format!("${{EDITOR:-vi}} {}", shell(&file.to_string_lossy())));
            return Ok(vec![finding]);
        }
    };
    let mut found = Vec::new();
    for (name, near) in unknown_variables() {
        found.push(
            Finding::warning(format!("the variable {name} sets nothing"))
                .why(format!("perhaps {near} was meant"))
                .fix(format!("unset {name}")),
        );
    }
    let workers: Vec<String> = worker::all(spool)?.keys().map(ToString::to_string).collect();
    let named = config.default_worker.iter().map(|w| ("default_worker", w));
    for (key, name) in named.chain(config.worker_concurrency.keys().map(|w| ("worker_concurrency", w))) {
        if name.as_str() != worker::AUTO && !workers.iter().any(|w| w == name.as_str()) {
            let near = input::nearest(name.as_str(), &workers).map(|n| format!("; did you mean {n}?"));
            found.push(
                Finding::warning(format!(
                    "{key} names {name}, and there is no such worker{}",
                    near.unwrap_or_default()
                ))
                .why("tasks that should go to it are refused")
                .fix(format!("workspool workers link {name} --command '[\"PROGRAM\", \"{{prompt}}\"]'")),
            );
        }
    }
    for inbox in &config.inbox {
        for path in std::iter::once(&inbox.path).chain(&inbox.results).filter(|p| !p.is_dir()) {
            found.push(
                Finding::warning(format!("the inbox folder {} is not there", path.display()))
                    .why("what is dropped there is not seen")
                    .fix(format!("mkdir -p {}", shell(&path.to_string_lossy()))),
            );
        }
    }
    found.extend(notify(&config.notify));
    if found.is_empty() {
        let text = if file.exists() {
            format!("{} is right", file.display())
        } else {
            "no file: the defaults hold".into()
        };
        found.push(Finding::ok(text));
    }
    Ok(found)
}

fn notify(notify: &crate::model::config::Notify) -> Vec<Finding> {
    let mut found = Vec::new();
    if let Some(program) = notify.command.first().filter(|p| worker::env::find_executable(p).is_none()) {
        found.push(
            Finding::warning(format!("notify.command names {program}, which is not there or not executable"))
                .why("nobody is told when a task ends")
                .fix(format!("command -v {}", shell(program))),
        );
    }
    let shower = if cfg!(target_os = "macos") { "osascript" } else { "notify-send" };
    if notify.desktop && worker::env::find_executable(shower).is_none() {
        found.push(
            Finding::warning(format!("notify.desktop needs {shower}, which is not on PATH"))
                .why("nothing is shown on the desktop")
                .fix("sudo apt install libnotify-bin"),
        );
    }
    if let Some(path) = &notify.webhook_secret_file {
        match path.metadata() {
            Err(e) => found.push(
                Finding::error(format!("the secret {} cannot be read: {e}", path.display()))
                    .why("what is not signed is not sent")
                    .fix(format!(
                        "head -c 32 /dev/urandom | base64 > {0} && chmod 600 {0}",
                        shell(&path.to_string_lossy())
                    )),
            ),
            Ok(meta) if meta.permissions().mode() & 0o077 != 0 => found.push(
                Finding::warning(format!("others may read the secret {}", path.display()))
                    .why("whoever has it can forge what is sent")
                    .fix(format!("chmod 600 {}", shell(&path.to_string_lossy()))),
            ),
            Ok(_) => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::super::support::{Fixture, worst};
    use super::*;

    #[test]
    fn a_wrong_key_is_an_error_with_its_line() {
        let fixture = Fixture::new();
        std::fs::write(fixture.root().join("config.toml"), "poll = 3\nmax_concurency = 2\n").unwrap();
        let found = look(&fixture.context()).unwrap();
        let bad = worst(&found);
        assert_eq!(bad.level, Level::Error);
        assert!(bad.what.contains("max_concurrency") && bad.what.contains('2'), "{}", bad.what);
        assert!(bad.fix.as_ref().unwrap().contains("config.toml"));
    }

    #[test]
    fn what_it_names_and_is_not_there_is_told() {
        let fixture = Fixture::new();
        let secret = fixture.dir.path().join("secret");
        std::fs::write(&secret, "x").unwrap();
        std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o644)).unwrap();
        let text = format!(
            "default_worker = \"shel\"\n[[inbox]]\npath = \"/no/such/inbox\"\n[notify]\ncommand = [\"/no/such\"]\nwebhook_secret_file = {:?}\n",
            secret.display().to_string()
        );
        std::fs::write(fixture.root().join("config.toml"), text).unwrap();
        let found = look(&fixture.context()).unwrap();
        let all: String = found.iter().map(|f| f.what.clone() + "\n").collect();
        for part in ["did you mean shell?", "/no/such/inbox", "/no/such,", "may read the secret"] {
            assert!(all.contains(part), "{part} in {all}");
        }
    }

    #[test]
    fn no_file_is_right() {
        let fixture = Fixture::new();
        assert_eq!(worst(&look(&fixture.context()).unwrap()).level, Level::Ok);
    }
}
