//! Units of a user's systemd manager.

use super::ask;
use super::{Mode, Plan, Unit};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Whether a user's manager answers here.
pub(super) fn answers() -> bool {
    ask::output("systemctl", &["--user", "show-environment"], None).is_ok_and(|o| o.status.success())
}

/// Where the user's units lie.
fn folder(plan: &Plan) -> PathBuf {
    let config = plan.env.get("XDG_CONFIG_HOME").filter(|c| c.starts_with('/'));
    let config = config.map_or_else(|| Path::new(plan.home()).join(".config"), PathBuf::from);
    config.join("systemd/user")
}

/// The units: a service, and for a timer the timer.
pub(super) fn units(plan: &Plan) -> anyhow::Result<Vec<Unit>> {
    let mut units =
        vec![Unit { path: folder(plan).join(format!("{}.service", plan.name)), text: service(plan) }];
    if plan.mode == Mode::Timer {
        units.push(Unit { path: folder(plan).join(format!("{}.timer", plan.name)), text: timer(plan) });
    }
    Ok(units)
}

fn head(plan: &Plan) -> String {
    format!(
        "# workspool: spool {}. Written by `workspool service install`.\n[Unit]\nDescription=workspool: works off the tasks in {}\nDocumentation=man:workspool(1)\n",
        plan.mark,
        specifiers(&plan.spool)
    )
}

fn service(plan: &Plan) -> String {
    let mut text = head(plan);
    if plan.mode == Mode::Loop {
        // Another loop may stand in the way for hours: go on trying.
        text.push_str("StartLimitIntervalSec=0\n");
    }
    text.push_str("\n[Service]\n");
    text.push_str(if plan.mode == Mode::Timer { "Type=oneshot\n" } else { "Type=exec\n" });
    let command: Vec<String> = std::iter::once(quote(&plan.binary, false))
        .chain(plan.args().iter().map(|a| quote(a, true)))
        .collect();
    let _ = writeln!(text, "ExecStart={}", command.join(" "));
    for (name, value) in &plan.env {
        let _ = writeln!(text, "Environment={}", quote(&format!("{name}={value}"), false));
    }
    // Only our own process ends with the unit: tasks that it started go on.
    text.push_str("KillMode=process\n");
    match plan.mode {
        // A oneshot service has no limit for its start anyway; a pass over a large inbox may take its time.
        Mode::Timer => text.push_str("TimeoutStartSec=infinity\n"),
        Mode::Loop => text.push_str("Restart=always\nRestartSec=10\n\n[Install]\nWantedBy=default.target\n"),
    }
    text
}

fn timer(plan: &Plan) -> String {
    // OnActiveSec beside OnUnitActiveSec: a timer that is installed in the middle of a session must begin.
    let every = plan.every.as_secs();
    format!(
        "{}\n[Timer]\nOnActiveSec=1s\nOnUnitActiveSec={every}s\nAccuracySec=1s\nUnit={}.service\n\n[Install]\nWantedBy=timers.target\n",
        head(plan),
        plan.name
    )
}

fn specifiers(text: &str) -> String {
    text.replace('%', "%%")
}

/// A text as one word of a unit file. In arguments of a command `$` has a meaning, elsewhere it has none.
fn quote(text: &str, argument: bool) -> String {
    let mut out = specifiers(&text.replace('\\', "\\\\").replace('"', "\\\""));
    if argument {
        out = out.replace('$', "$$");
    }
    format!("\"{out}\"")
}

/// The unit that is started and stopped.
pub(super) fn main_unit(name: &str, mode: Mode) -> String {
    match mode {
        Mode::Timer => format!("{name}.timer"),
        Mode::Loop => format!("{name}.service"),
    }
}

pub(super) fn activate(name: &str, mode: Mode) -> anyhow::Result<()> {
    let unit = main_unit(name, mode);
    ask::run("systemctl", &["--user", "daemon-reload"])?;
    ask::run("systemctl", &["--user", "enable", "--quiet", &unit])?;
    ask::run("systemctl", &["--user", "restart", &unit]).map(drop)
}

pub(super) fn deactivate(name: &str, mode: Mode) -> anyhow::Result<()> {
    ask::run("systemctl", &["--user", "disable", "--now", "--quiet", &main_unit(name, mode)]).map(drop)
}

pub(super) fn forget() -> anyhow::Result<()> {
    ask::run("systemctl", &["--user", "daemon-reload"]).map(drop)
}

pub(super) fn restart(name: &str, mode: Mode) -> anyhow::Result<()> {
    ask::run("systemctl", &["--user", "restart", &main_unit(name, mode)]).map(drop)
}

pub(super) fn is_active(name: &str, mode: Mode) -> anyhow::Result<bool> {
    let said = ask::output("systemctl", &["--user", "is-active", "--quiet", &main_unit(name, mode)], None)?;
    Ok(said.status.success())
}

/// Whether the user's manager goes on after logout.
pub(super) fn lingers(user: &str) -> Option<bool> {
    let said = ask::run("loginctl", &["show-user", user, "--property=Linger", "--value"]).ok()?;
    match said.trim() {
        "yes" => Some(true),
        "no" => Some(false),
        _ => None,
    }
}

pub(super) fn set_linger(user: &str, on: bool) -> anyhow::Result<()> {
    ask::run("loginctl", &[if on { "enable-linger" } else { "disable-linger" }, user]).map(drop)
}

#[cfg(test)]
mod tests {
    use super::super::Kind;
    use super::super::plan::tests::odd;
    use super::*;

    #[test]
    fn odd_names_are_quoted_as_systemd_reads_them() {
        let units = units(&odd(Kind::Systemd, Mode::Timer)).unwrap();
        assert_eq!(units.len(), 2);
        let service = &units[0].text;
        assert!(
            service.contains(
                r#"ExecStart="/opt/my tools/workspool" "--spool" "/home/o'me/sp %%i $$ool" "tick""#
            ),
            "{service}"
        );
        assert!(service.contains(r#"Environment="ODD=a \"b\" $c \\d & <e>""#), "{service}");
        assert!(service.contains("KillMode=process") && service.contains("Type=oneshot"));
        let timer = &units[1].text;
        assert!(timer.contains("OnActiveSec=1s") && timer.contains("OnUnitActiveSec=60s"), "{timer}");
    }

    #[test]
    fn a_loop_is_kept_alive_and_has_no_timer() {
        let units = units(&odd(Kind::Systemd, Mode::Loop)).unwrap();
        assert_eq!(units.len(), 1);
        let text = &units[0].text;
        assert!(
            text.contains("Restart=always") && text.contains("KillMode=process") && text.contains("\"run\"")
        );
    }
}
