//! A user's crontab: one line between two marks, and a script that it runs.
//!
//! The environment is in the script, since a line of a crontab has a length limit and a meaning for `%`.

use super::ask;
use super::{Mode, Plan, Unit};
use anyhow::{Context as _, bail};
use std::fmt::Write as _;
use std::path::PathBuf;

/// The script that the line runs.
pub(super) fn script(plan: &Plan) -> Unit {
    let mut text =
        format!("#!/bin/sh\n# workspool: spool {}. Written by `workspool service install`.\n", plan.mark);
    for (name, value) in &plan.env {
        let _ = writeln!(text, "export {name}={}", quote(value));
    }
    let words: Vec<String> = std::iter::once(&plan.binary).chain(&plan.args()).map(|w| quote(w)).collect();
    let (logs, log) = (quote(&plan.log("")), quote(&plan.log("cron.log")));
    // What goes wrong before we write our own log; cron would send it by mail, to nobody.
    let _ = writeln!(text, "mkdir -p {logs} && exec >>{log} 2>&1");
    let _ = writeln!(text, "if [ \"$(wc -c <{log})\" -gt 1000000 ]; then mv {log} {log}.1; fi");
    let _ = writeln!(text, "cd /\nexec {}", words.join(" "));
    Unit { path: PathBuf::from(&plan.spool).join("service.sh"), text }
}

fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

fn marks(mark: &str) -> (String, String) {
    (format!("# BEGIN workspool {mark}"), format!("# END workspool {mark}"))
}

/// The lines for the crontab.
pub(super) fn block(plan: &Plan) -> anyhow::Result<String> {
    let (begin, end) = marks(&plan.mark);
    // In a crontab a `%` ends the command, in quotes too.
    let script = quote(&script(plan).path.to_string_lossy()).replace('%', "\\%");
    Ok(format!("{begin}\n{} /bin/sh {script}\n{end}\n", schedule(plan)?))
}

fn schedule(plan: &Plan) -> anyhow::Result<String> {
    if plan.mode == Mode::Loop {
        return Ok("* * * * *".into());
    }
    let seconds = plan.every.as_secs();
    let minutes = seconds / 60;
    match minutes {
        _ if !seconds.is_multiple_of(60) || minutes == 0 => {}
        1 => return Ok("* * * * *".into()),
        2..60 if 60 % minutes == 0 => return Ok(format!("*/{minutes} * * * *")),
        60 => return Ok("0 * * * *".into()),
        _ if minutes.is_multiple_of(60) && minutes < 1440 && 24 % (minutes / 60) == 0 => {
            return Ok(format!("0 */{} * * *", minutes / 60));
        }
        _ => {}
    }
    bail!(
        "cron cannot tick every {seconds} s: it counts in minutes that divide an hour, or hours that divide a day\n  hint: --every 60s, or --mode loop"
    )
}

/// The user's crontab; none if there is none.
fn read() -> anyhow::Result<Option<Vec<u8>>> {
    let said = ask::output("crontab", &["-l"], None)?;
    if said.status.success() {
        return Ok(Some(said.out));
    }
    let text = String::from_utf8_lossy(&said.err);
    // Anything else that failed must not be taken for an empty crontab: it would be written over.
    if text.to_lowercase().contains("no crontab") { Ok(None) } else { bail!("crontab -l: {}", text.trim()) }
}

fn write(text: &[u8]) -> anyhow::Result<()> {
    let said = ask::output("crontab", &["-"], Some(text))?;
    if said.status.success() {
        return Ok(());
    }
    bail!("crontab refused the new table: {}", String::from_utf8_lossy(&said.err).trim())
}

/// A crontab without our lines; all else stays byte for byte.
fn without(table: &[u8], mark: &str) -> anyhow::Result<Vec<u8>> {
    let (begin, end) = marks(mark);
    let mut kept = Vec::new();
    let mut inside = false;
    for line in table.split_inclusive(|b| *b == b'\n') {
        let text = line.strip_suffix(b"\n").unwrap_or(line);
        if text == begin.as_bytes() {
            inside = true;
        } else if inside && text == end.as_bytes() {
            inside = false;
        } else if !inside {
            kept.extend_from_slice(line);
        }
    }
    if inside {
        bail!("the crontab has a line {begin:?} without its end\n  hint: put it right by `crontab -e`");
    }
    Ok(kept)
}

/// Puts our lines into the crontab. Says whether there was none before.
pub(super) fn install(plan: &Plan) -> anyhow::Result<bool> {
    let before = read().context("cannot read the crontab")?;
    let mut table = without(before.as_deref().unwrap_or_default(), &plan.mark)?;
    if table.last().is_some_and(|b| *b != b'\n') {
        table.push(b'\n');
    }
    table.extend_from_slice(block(plan)?.as_bytes());
    if before.as_deref() != Some(table.as_slice()) {
        write(&table)?;
    }
    Ok(before.is_none())
}

/// Whether our lines are in the crontab.
pub(super) fn is_installed(mark: &str) -> anyhow::Result<bool> {
    let table = read()?.unwrap_or_default();
    Ok(without(&table, mark)? != table)
}

/// Takes our lines out of the crontab; one that we made goes as a whole if nothing else is in it.
pub(super) fn uninstall(mark: &str, made: bool) -> anyhow::Result<()> {
    let Some(before) = read().context("cannot read the crontab")? else { return Ok(()) };
    let table = without(&before, mark)?;
    if table == before {
        return Ok(());
    }
    if table.is_empty() && made {
        ask::run("crontab", &["-r"])?;
        return Ok(());
    }
    write(&table)
}

#[cfg(test)]
mod tests {
    use super::super::Kind;
    use super::super::plan::tests::odd;
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_script_hands_over_every_odd_byte() {
        let dir = tempfile::tempdir().unwrap();
        let mut plan = odd(Kind::Cron, Mode::Timer);
        plan.spool = dir.path().join("sp 'q' %i $ool").to_str().unwrap().to_owned();
        let program = dir.path().join("it's $a program");
        std::fs::write(&program, "#!/bin/sh\nprintf '%s\\n' \"$@\" \"$ODD\" \"$PATH\"\n").unwrap();
        plan.binary = "/bin/sh".into();
        let mut text = script(&plan).text;
        text =
            text.replace("exec '/bin/sh'", &format!("exec '/bin/sh' {}", quote(program.to_str().unwrap())));
        for _ in 0..2 {
            let said =
                std::process::Command::new("/bin/sh").arg("-c").arg(&text).env_clear().output().unwrap();
            assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
        }
        let lines = std::fs::read_to_string(plan.log("cron.log")).unwrap();
        let wanted = plan.args().join("\n") + "\n" + &plan.env["ODD"] + "\n" + &plan.env["PATH"] + "\n";
        assert_eq!(lines, wanted.repeat(2));
    }

    #[test]
    fn times_that_cron_cannot_say_are_refused() {
        let mut plan = odd(Kind::Cron, Mode::Timer);
        let mut at = |seconds| {
            plan.every = Duration::from_secs(seconds);
            schedule(&plan).map_err(|e| e.to_string())
        };
        assert_eq!(at(60).unwrap(), "* * * * *");
        assert_eq!(at(300).unwrap(), "*/5 * * * *");
        assert_eq!(at(3600).unwrap(), "0 * * * *");
        assert_eq!(at(7200).unwrap(), "0 */2 * * *");
        for bad in [0, 30, 90, 420, 5 * 3600, 86_400] {
            assert!(at(bad).unwrap_err().contains("hint"), "{bad}");
        }
    }

    #[test]
    fn the_line_is_one_line_and_hides_its_percent_signs() {
        let text = block(&odd(Kind::Cron, Mode::Loop)).unwrap();
        assert_eq!(text.lines().count(), 3);
        let line = text.lines().nth(1).unwrap();
        assert!(
            line.starts_with("* * * * * /bin/sh '") && line.contains(r"sp \%i $ool/service.sh"),
            "{line}"
        );
        assert!(!line.replace("\\%", "").contains('%'));
    }

    #[test]
    fn other_lines_of_a_crontab_stay_byte_for_byte() {
        let plan = odd(Kind::Cron, Mode::Timer);
        let other =
            b"MAILTO=\"\"\n# BEGIN workspool other\n1 2 3 4 5 x\xff\n# END workspool other\n".to_vec();
        let mut table = other.clone();
        table.extend_from_slice(block(&plan).unwrap().as_bytes());
        table.extend_from_slice(b"@daily y");
        assert_eq!(without(&table, &plan.mark).unwrap(), [&other[..], b"@daily y"].concat());
        assert_eq!(without(&other, &plan.mark).unwrap(), other);
        assert!(
            without(b"# BEGIN workspool 01jdq3m6\nx\n", &plan.mark).is_err(),
            "all after it would be lost"
        );
    }
}
