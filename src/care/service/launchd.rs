//! A property list for a user's launchd.

use super::ask;
use super::{Mode, Plan, Unit};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

/// The name that launchd knows us by.
pub(super) fn label(name: &str) -> String {
    format!("org.workspool.{name}")
}

pub(super) fn units(plan: &Plan) -> anyhow::Result<Vec<Unit>> {
    let label = label(&plan.name);
    let path = Path::new(plan.home()).join("Library/LaunchAgents").join(format!("{label}.plist"));
    let mut text = head();
    let _ =
        writeln!(text, "  <!-- workspool: spool {}. Written by `workspool service install`. -->", plan.mark);
    string(&mut text, "Label", &label);
    let words: Vec<String> = std::iter::once(plan.binary.clone()).chain(plan.args()).collect();
    arguments(&mut text, &words);
    environment(&mut text, &plan.env);
    match plan.mode {
        Mode::Timer => {
            let _ =
                writeln!(text, "  <key>StartInterval</key>\n  <integer>{}</integer>", plan.every.as_secs());
        }
        Mode::Loop => text.push_str("  <key>KeepAlive</key>\n  <true/>\n"),
    }
    text.push_str("  <key>RunAtLoad</key>\n  <true/>\n");
    // Only our own process ends with the job: tasks that it started go on.
    text.push_str("  <key>AbandonProcessGroup</key>\n  <true/>\n");
    string(&mut text, "WorkingDirectory", "/");
    string(&mut text, "StandardOutPath", &plan.log("launchd.log"));
    string(&mut text, "StandardErrorPath", &plan.log("launchd.log"));
    text.push_str("</dict>\n</plist>\n");
    Ok(vec![Unit { path, text }])
}

fn head() -> String {
    "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
     <!DOCTYPE plist PUBLIC \"-//Apple//DTD PLIST 1.0//EN\" \"http://www.apple.com/DTDs/PropertyList-1.0.dtd\">\n\
     <plist version=\"1.0\">\n<dict>\n"
        .to_owned()
}

fn arguments(text: &mut String, words: &[String]) {
    text.push_str("  <key>ProgramArguments</key>\n  <array>\n");
    for word in words {
        let _ = writeln!(text, "    <string>{}</string>", escape(word));
    }
    text.push_str("  </array>\n");
}

fn environment(text: &mut String, env: &BTreeMap<String, String>) {
    text.push_str("  <key>EnvironmentVariables</key>\n  <dict>\n");
    for (name, value) in env {
        let _ = writeln!(text, "    <key>{}</key>\n    <string>{}</string>", escape(name), escape(value));
    }
    text.push_str("  </dict>\n");
}

fn string(text: &mut String, key: &str, value: &str) {
    let _ = writeln!(text, "  <key>{key}</key>\n  <string>{}</string>", escape(value));
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn user() -> u32 {
    rustix::process::getuid().as_raw()
}

/// The user's domain: that of the desktop, or without one that of the user.
fn domains() -> [String; 2] {
    [format!("gui/{}", user()), format!("user/{}", user())]
}

pub(super) fn activate(name: &str, plist: &Path) -> anyhow::Result<()> {
    let plist = plist.to_string_lossy();
    // One that is loaded is not loaded again.
    let _ = deactivate(name);
    let [gui, user] = domains();
    match ask::run("launchctl", &["bootstrap", &gui, &plist]) {
        Ok(_) => Ok(()),
        Err(first) => ask::run("launchctl", &["bootstrap", &user, &plist]).map(drop).map_err(|_| first),
    }
}

pub(super) fn deactivate(name: &str) -> anyhow::Result<()> {
    let [gui, user] = domains().map(|d| format!("{d}/{}", label(name)));
    match ask::run("launchctl", &["bootout", &gui]) {
        Ok(_) => Ok(()),
        Err(first) => ask::run("launchctl", &["bootout", &user]).map(drop).map_err(|_| first),
    }
}

pub(super) fn restart(name: &str) -> anyhow::Result<()> {
    let [gui, user] = domains().map(|d| format!("{d}/{}", label(name)));
    match ask::run("launchctl", &["kickstart", "-k", &gui]) {
        Ok(_) => Ok(()),
        Err(first) => ask::run("launchctl", &["kickstart", "-k", &user]).map(drop).map_err(|_| first),
    }
}

pub(super) fn is_active(name: &str) -> anyhow::Result<bool> {
    for domain in domains() {
        if ask::output("launchctl", &["print", &format!("{domain}/{}", label(name))], None)?.status.success()
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Runs a program once as a job of launchd, and returns its exit code and what it prints.
pub(in super::super) fn once(
    binary: &Path,
    args: &[&str],
    env: &BTreeMap<String, String>,
    scratch: &Path,
    limit: Duration,
) -> anyhow::Result<(i32, String)> {
    let name = format!("doctor-{}", std::process::id());
    let (out, end) = (scratch.join("out"), scratch.join("end"));
    let _ = std::fs::remove_file(&end);
    // A shell that says when it is over: launchd tells nobody.
    let script =
        "out=$1; end=$2; shift 2; \"$@\" >\"$out\" 2>&1; echo $? >\"$end.tmp\"; mv \"$end.tmp\" \"$end\"";
    let mut words = vec!["/bin/sh".to_owned(), "-c".into(), script.into(), "sh".into()];
    words.extend([&out, &end, &binary.to_owned()].map(|p| p.to_string_lossy().into_owned()));
    words.extend(args.iter().map(|a| (*a).to_owned()));
    let mut text = head();
    string(&mut text, "Label", &label(&name));
    arguments(&mut text, &words);
    environment(&mut text, env);
    text.push_str(
        "  <key>RunAtLoad</key>\n  <true/>\n  <key>AbandonProcessGroup</key>\n  <true/>\n</dict>\n</plist>\n",
    );
    let plist = scratch.join("doctor.plist");
    std::fs::write(&plist, text)?;
    activate(&name, &plist)?;
    let until = Instant::now() + limit;
    while !end.exists() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(50));
    }
    let ended = end.exists();
    let _ = deactivate(&name);
    anyhow::ensure!(ended, "it did not end within {} s", limit.as_secs());
    let code = std::fs::read_to_string(&end)?.trim().parse().unwrap_or(-1);
    Ok((code, String::from_utf8_lossy(&std::fs::read(&out)?).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::super::Kind;
    use super::super::plan::tests::odd;
    use super::*;

    #[test]
    fn the_list_says_all_that_a_task_needs_to_outlive_its_tick() {
        let unit = units(&odd(Kind::Launchd, Mode::Timer)).unwrap().remove(0);
        assert_eq!(
            unit.path,
            Path::new("/home/o'me/Library/LaunchAgents/org.workspool.workspool-test.plist")
        );
        for part in [
            "<key>AbandonProcessGroup</key>\n  <true/>",
            "<key>StartInterval</key>\n  <integer>60</integer>",
            "<string>a \"b\" $c \\d &amp; &lt;e&gt;</string>",
            "<string>/opt/my tools/workspool</string>",
        ] {
            assert!(unit.text.contains(part), "{part} in {}", unit.text);
        }
        let text = units(&odd(Kind::Launchd, Mode::Loop)).unwrap().remove(0).text;
        assert!(text.contains("<key>KeepAlive</key>") && !text.contains("StartInterval"));
    }
}
