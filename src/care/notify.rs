//! Telling somebody that a task ended or asks something: on the desktop, by a command, by a webhook.
//!
//! A process of its own does it (`workspool notify`), so that no task waits. What fails is tried again with
//! growing pauses, by the next pass of any runner, until it was tried as often as the configuration says.

mod webhook;

use crate::model::config::Notify;
use crate::model::{Config, NoticeKind};
use crate::process::{Asking, Said, ask};
use crate::spool::notices::Notice;
use crate::spool::{Spool, SpoolError};
use anyhow::{Context as _, bail};
use chrono::{TimeDelta, Utc};
use serde::Serialize;
use std::ffi::OsString;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);
const FIRST_PAUSE: i64 = 10;
const LONGEST_PAUSE: i64 = 3600;

/// What is told: JSON for commands and webhooks.
#[derive(Debug, Clone, Serialize)]
pub struct Details {
    /// Version of this format.
    pub version: u32,
    /// The same for each try: whoever receives it twice can tell.
    pub delivery: String,
    /// `done`, `failed` or `question`.
    pub event: NoticeKind,
    /// The task.
    pub task: String,
    /// Its title.
    pub title: String,
    /// Its state.
    pub state: String,
    /// Who should act, where it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// What happened, in a line.
    pub message: String,
    /// The attempt.
    pub attempt: u32,
    /// The worker.
    pub worker: String,
    /// The repository's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repository: Option<String>,
    /// The branch with the work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// The commit with the work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// What the gate says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verification: Option<String>,
    /// The spool.
    pub spool: String,
    /// When it happened.
    pub at: String,
}

/// Fulfils all wishes that are due. Returns at once if another process is about to.
pub fn deliver(spool: &Spool, config: &Config) -> anyhow::Result<()> {
    loop {
        let Some(alone) = spool.lock("notify").try_take()? else { return Ok(()) };
        for notice in spool.all_notices()?.into_iter().filter(Notice::is_due) {
            if let Err(e) = fulfil(spool, &config.notify, notice) {
                log(spool, &format!("{e:#}"));
            }
        }
        drop(alone);
        // One that was posted after we looked and before we let go found the lock held.
        if !spool.all_notices()?.iter().any(|n| n.is_due() && n.tries == 0 && is_settled(spool, n)) {
            return Ok(());
        }
    }
}

/// Whether what a notice tells of has come to pass: it is written just before.
fn is_settled(spool: &Spool, notice: &Notice) -> bool {
    match (spool.state_of(notice.task), notice.kind) {
        (Ok(state), NoticeKind::Done | NoticeKind::Failed) => state.is_terminal(),
        (Ok(state), NoticeKind::Question) => state != crate::model::State::Running,
        // A task that was removed: there is nothing more to wait for.
        (Err(SpoolError::NoTask(_)), _) => true,
        (Err(_), _) => false,
    }
}

type Tell<'a> = dyn Fn() -> anyhow::Result<()> + 'a;

fn fulfil(spool: &Spool, notify: &Notify, mut notice: Notice) -> anyhow::Result<()> {
    if !is_settled(spool, &notice) {
        // A crash came between; whoever finishes the task lets it settle, or the attempt is repeated.
        if Utc::now() - notice.at > TimeDelta::days(1) {
            spool.drop_notice(&notice)?;
        }
        return Ok(());
    }
    let Some(details) = details(spool, &notice)? else {
        return Ok(spool.drop_notice(&notice)?);
    };
    let mut failed = Vec::new();
    let ways: [(&str, bool, &Tell<'_>); 3] = [
        ("desktop", notify.desktop, &|| desktop(&details)),
        ("command", !notify.command.is_empty(), &|| command(spool, &notify.command, &details)),
        ("webhook", notify.webhook.is_some(), &|| webhook::post(notify, &details)),
    ];
    for (way, wanted, tell) in ways {
        if !wanted || notice.told.contains(way) {
            continue;
        }
        match tell() {
            Ok(()) => {}
            // A desktop that is not there now is of no use to somebody later.
            Err(e) if way == "desktop" => log(spool, &format!("{way}: {e:#}")),
            Err(e) if e.is::<webhook::Refused>() => {
                log(spool, &format!("{}: {way}: {e:#}; given up", notice.name()))
            }
            Err(e) => {
                failed.push(format!("{way}: {e:#}"));
                continue;
            }
        }
        notice.told.insert(way.to_owned());
    }
    notice.tries += 1;
    if failed.is_empty() {
        return Ok(spool.drop_notice(&notice)?);
    }
    let failed = failed.join("; ");
    if notice.tries >= notify.attempts {
        spool.drop_notice(&notice)?;
        bail!("{}: {failed}; given up after {} tries", notice.name(), notice.tries);
    }
    let pause = pause(notice.tries);
    notice.not_before = Some(Utc::now() + pause);
    spool.put_notice(&notice)?;
    bail!("{}: {failed}; next try in {} s", notice.name(), pause.num_seconds())
}

/// Doubles with each try, up to an hour.
fn pause(tries: u32) -> TimeDelta {
    TimeDelta::seconds((FIRST_PAUSE << tries.saturating_sub(1).min(16)).min(LONGEST_PAUSE))
}

fn details(spool: &Spool, notice: &Notice) -> anyhow::Result<Option<Details>> {
    let task = match spool.read_task(notice.task) {
        Ok(task) => task,
        Err(SpoolError::NoTask(_)) => return Ok(None),
        Err(e) => return Err(e.into()),
    };
    let result = spool.read_result(notice.task)?.filter(|_| notice.kind != NoticeKind::Question);
    let hold = spool.read_hold(notice.task).map(|h| h.message);
    let message = result.as_ref().map(|r| r.message.clone()).or(hold).unwrap_or_default();
    Ok(Some(Details {
        version: crate::model::VERSION,
        delivery: notice.name(),
        event: notice.kind,
        task: notice.task.to_string(),
        title: line(&task.spec.display_title()),
        state: result.as_ref().map_or_else(|| "held".to_owned(), |r| r.state.to_string()),
        class: result.as_ref().and_then(|r| r.class).map(|c| c.to_string()),
        message: line(&message),
        attempt: notice.attempt,
        worker: task.worker.to_string(),
        repository: task.repo.as_ref().map(|r| r.name.clone()),
        branch: result.as_ref().and_then(|r| r.branch.clone()),
        commit: result.as_ref().and_then(|r| r.commit.clone()),
        verification: result.as_ref().map(|r| r.verification.to_string()),
        spool: spool.root().to_string_lossy().into_owned(),
        at: notice.at.to_rfc3339(),
    }))
}

/// A text as one line without control characters.
fn line(text: &str) -> String {
    let flat: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    flat.chars().take(500).collect()
}

fn heading(details: &Details) -> String {
    let what = match details.event {
        NoticeKind::Done => "done",
        NoticeKind::Failed => details.state.as_str(),
        NoticeKind::Question => "asks something",
    };
    format!("workspool: {what}")
}

fn desktop(details: &Details) -> anyhow::Result<()> {
    let body = format!("{}\n{}", details.title, details.message);
    let mut command;
    if cfg!(target_os = "macos") {
        // The texts are arguments of the script, not part of it.
        command = Command::new("osascript");
        command.args([
            "-e",
            "on run argv",
            "-e",
            "display notification (item 2 of argv) with title (item 1 of argv)",
        ]);
        command.args(["-e", "end run", "--"]).arg(heading(details)).arg(body);
    } else {
        // The body is markup there.
        let body = body.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        command = Command::new("notify-send");
        command.args(["--app-name=workspool", "--"]).arg(heading(details)).arg(body);
        let bus = format!("/run/user/{}/bus", rustix::process::getuid().as_raw());
        if std::env::var_os("DBUS_SESSION_BUS_ADDRESS").is_none() && std::path::Path::new(&bus).exists() {
            command.env("DBUS_SESSION_BUS_ADDRESS", format!("unix:path={bus}"));
        }
    }
    ended(ask(command, Asking { may_leave: true, ..Asking::within(LIMIT) })?)
}

fn command(spool: &Spool, argv: &[String], details: &Details) -> anyhow::Result<()> {
    let (program, args) = argv.split_first().context("the command is empty")?;
    let mut command = Command::new(program);
    command.args(args.iter().map(|a| fill(a, details))).current_dir(spool.root());
    let input = Some(serde_json::to_vec(details)?);
    ended(ask(command, Asking { input, may_leave: true, ..Asking::within(LIMIT) })?)
}

fn ended(said: Option<Said>) -> anyhow::Result<()> {
    match said {
        None => bail!("it did not end within {} s", LIMIT.as_secs()),
        Some(said) if said.status.success() => Ok(()),
        Some(said) => bail!("{}: {}", said.status, line(said.text().trim())),
    }
}

/// Fills the placeholders of one argument. A value that would make the argument look like an option gets a
/// blank before it.
fn fill(template: &str, details: &Details) -> OsString {
    let mut out = String::new();
    let mut rest = template;
    while let Some(open) = rest.find('{') {
        out.push_str(&rest[..open]);
        rest = &rest[open..];
        let value = rest.find('}').and_then(|close| {
            let value = match &rest[1..close] {
                "event" => details.event.as_str(),
                "task" => &details.task,
                "title" => &details.title,
                "state" => &details.state,
                "message" => &details.message,
                "spool" => &details.spool,
                _ => return None,
            };
            Some((value, close + 1))
        });
        let (value, taken) = value.unwrap_or(("{", 1));
        if out.is_empty() && value.starts_with('-') {
            out.push(' ');
        }
        out.push_str(value);
        rest = &rest[taken..];
    }
    out.push_str(rest);
    out.into()
}

fn log(spool: &Spool, text: &str) {
    super::log::note(spool, "notify.log", &line(text));
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(super) fn details() -> Details {
        Details {
            version: 1,
            delivery: "d.1.done".into(),
            event: NoticeKind::Done,
            task: "01jdq".into(),
            title: "-rf {task} $(x) `y`".into(),
            state: "succeeded".into(),
            class: None,
            message: "m".into(),
            attempt: 1,
            worker: "shell".into(),
            repository: None,
            branch: None,
            commit: None,
            verification: None,
            spool: "/s".into(),
            at: "now".into(),
        }
    }

    #[test]
    fn placeholders_are_filled_once_and_each_in_its_own_argument() {
        let d = details();
        assert_eq!(fill("{event}: {task} {unknown} {", &d), "done: 01jdq {unknown} {");
        assert_eq!(fill("{title}", &d), " -rf {task} $(x) `y`", "no option, and not filled again");
        assert_eq!(fill("--title={title}", &d), "--title=-rf {task} $(x) `y`");
        assert_eq!(fill("plain", &d), "plain");
    }

    #[test]
    fn pauses_double_up_to_an_hour() {
        let pauses: Vec<i64> = [1, 2, 3, 9, 10, 400].map(|t| pause(t).num_seconds()).to_vec();
        assert_eq!(pauses, [10, 20, 40, 2560, 3600, 3600]);
    }

    #[test]
    fn a_text_is_one_line() {
        assert_eq!(line("a\nb\x1b[31m"), "a b [31m");
        assert_eq!(line(&"x".repeat(1000)).len(), 500);
    }
}
