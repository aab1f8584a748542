//! `workspool service`, with managers that only record how they were called.

use super::support::Home;
use std::path::PathBuf;
use std::process::Command;

/// A crontab program that keeps its table in a file.
fn crontab(home: &Home) -> PathBuf {
    let table = home.path().join("table");
    home.recorder(
        "crontab",
        &format!(
            "t='{}'\ncase \"$1\" in\n-l) [ -e \"$t\" ] || {{ echo 'no crontab for you' >&2; exit 1; }}; cat \"$t\" ;;\n\
             -) cat > \"$t\" ;;\n-r) rm \"$t\" ;;\n*) exit 2 ;;\nesac",
            table.display()
        ),
    );
    table
}

#[test]
fn a_crontab_gets_one_line_however_often_and_is_as_before_after_all() {
    let home = Home::new();
    let table = crontab(&home);
    let own = "MAILTO=me\n5 4 * * * backup 100\\% # mine\n";
    std::fs::write(&table, own).unwrap();
    for _ in 0..2 {
        let said = home.run(["service", "install", "--kind", "cron", "--yes"]);
        assert!(said.good().contains("--- crontab"), "it is shown first");
    }
    let text = std::fs::read_to_string(&table).unwrap();
    assert!(text.starts_with(own), "{text}");
    assert_eq!(text.matches("BEGIN workspool").count(), 1, "{text}");
    assert_eq!(home.run(["service", "status"]).code(), 0, "{}", home.run(["service", "status"]).out());

    // What the line runs works, with nothing but what cron gives.
    home.submit("true");
    let line = text.lines().find(|l| l.contains("service.sh")).unwrap();
    let command = line.strip_prefix("* * * * * ").unwrap().replace("\\%", "%");
    let ran =
        Command::new("/bin/sh").arg("-c").arg(&command).env_clear().env("PATH", "/usr/bin:/bin").status();
    assert!(ran.unwrap().success());
    let log = std::fs::read_to_string(home.spool().join("logs/service.log")).unwrap();
    assert_eq!(log, "", "a quiet tick says nothing");
    assert!(home.spool().join("tick.json").exists());

    home.run(["service", "uninstall"]).good();
    assert_eq!(std::fs::read_to_string(&table).unwrap(), own);
    assert!(!home.spool().join("service.sh").exists() && !home.spool().join("service.json").exists());
    assert_eq!(home.run(["service", "uninstall"]).code(), 4);
}

#[test]
fn a_crontab_that_we_made_goes_and_one_that_cannot_be_read_is_not_written() {
    let home = Home::new();
    let table = crontab(&home);
    home.run(["service", "install", "--kind", "cron", "--yes"]).good();
    assert!(table.exists());
    home.run(["service", "uninstall"]).good();
    assert!(!table.exists(), "there was none before");

    home.recorder("crontab", "[ \"$1\" = -l ] && echo 'permission denied' >&2; exit 1");
    let said = home.run(["service", "install", "--kind", "cron", "--yes"]);
    assert_ne!(said.code(), 0);
    assert!(said.err().contains("permission denied"), "{}", said.err());
    assert!(!home.calls("crontab").lines().last().unwrap().contains("- "), "{}", home.calls("crontab"));
    assert!(!home.spool().join("service.json").exists(), "nothing was installed");
}

#[test]
fn systemd_units_are_written_enabled_and_taken_away() {
    let home = Home::new();
    home.recorder("systemctl", "exit 0");
    home.recorder("loginctl", "[ \"$1\" = show-user ] && echo no; exit 0");
    let said = home.run(["service", "install", "--yes", "--every", "90s", "--linger"]);
    let shown = said.good();
    assert!(shown.contains("installed: systemd timer"), "it picks systemd where that answers: {shown}");
    let units = home.path().join(".config/systemd/user");
    let names = |home: &Home| -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(home.path().join(".config/systemd/user"))
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    };
    let [service, timer] = <[String; 2]>::try_from(names(&home)).unwrap();
    assert!(std::fs::read_to_string(units.join(&timer)).unwrap().contains("OnUnitActiveSec=90s"));
    assert!(home.calls("systemctl").contains(&format!("--user enable --quiet {timer}")));
    assert!(home.calls("loginctl").contains("enable-linger somebody"));

    // Another mode takes its place.
    home.run(["service", "install", "--yes", "--mode", "loop", "--kind", "systemd"]).good();
    assert_eq!(names(&home), std::slice::from_ref(&service));
    assert!(home.calls("systemctl").contains(&format!("--user disable --now --quiet {timer}")));
    home.run(["service", "restart"]).good();
    assert!(home.calls("systemctl").contains(&format!("--user restart {service}")));

    home.run(["service", "uninstall"]).good();
    assert_eq!(names(&home), [] as [String; 0]);
    assert!(home.calls("loginctl").contains("disable-linger somebody"), "we had set it");
}

#[test]
fn lingering_that_was_on_stays_on() {
    let home = Home::new();
    home.recorder("systemctl", "exit 0");
    home.recorder("loginctl", "[ \"$1\" = show-user ] && echo yes; exit 0");
    home.run(["service", "install", "--yes", "--kind", "systemd", "--linger"]).good();
    home.run(["service", "uninstall"]).good();
    assert!(!home.calls("loginctl").contains("able-linger"), "{}", home.calls("loginctl"));
}

#[test]
fn a_manager_that_refuses_leaves_nothing_behind() {
    let home = Home::new();
    home.recorder(
        "systemctl",
        "case \"$*\" in *restart*|*disable*|*is-active*) echo broken >&2; exit 3 ;; esac",
    );
    let said = home.run(["service", "install", "--yes", "--kind", "systemd"]);
    assert_ne!(said.code(), 0);
    assert!(said.err().contains("nothing was installed") && said.err().contains("broken"), "{}", said.err());
    assert_eq!(std::fs::read_dir(home.path().join(".config/systemd/user")).unwrap().count(), 0);
    assert!(!home.spool().join("service.json").exists());
}

#[test]
fn files_of_others_are_not_written_over_and_changed_ones_stay() {
    let home = Home::new();
    home.recorder("systemctl", "exit 0");
    home.program("loginctl", "echo no");
    let said = home.run(["service", "install", "--kind", "systemd", "--print"]).good();
    let path = PathBuf::from(said.lines().next().unwrap().strip_prefix("--- ").unwrap());
    assert!(!path.exists(), "it is only shown");
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, "[Service]\nExecStart=/bin/mine\n").unwrap();
    let said = home.run(["service", "install", "--kind", "systemd", "--yes"]);
    assert!(said.err().contains("not ours"), "{}", said.err());
    std::fs::remove_file(&path).unwrap();
    home.run(["service", "install", "--kind", "systemd", "--yes"]).good();
    let text = std::fs::read_to_string(&path).unwrap() + "Nice=10\n";
    std::fs::write(&path, &text).unwrap();
    assert_eq!(home.run(["service", "status"]).code(), 1);
    let said = home.run(["service", "uninstall"]);
    said.good();
    assert!(said.err().contains("was changed"), "{}", said.err());
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
}

#[test]
fn nobody_is_asked_where_nobody_is() {
    let home = Home::new();
    crontab(&home);
    let said = home.run(["service", "install", "--kind", "cron"]);
    assert_eq!(said.code(), 2);
    assert!(said.err().contains("--yes"), "{}", said.err());
    assert!(!home.spool().join("service.json").exists());
}

#[test]
fn a_synced_folder_is_refused_with_the_reason() {
    let home = Home::new();
    let spool = home.path().join("Dropbox/spool");
    std::fs::create_dir_all(spool.parent().unwrap()).unwrap();
    let said =
        home.run(["--spool", spool.to_str().unwrap(), "service", "install", "--kind", "cron", "--yes"]);
    assert_ne!(said.code(), 0);
    assert!(said.err().contains("Dropbox") && said.err().contains("twice"), "{}", said.err());
}

#[test]
fn launchd_is_called_and_its_list_is_one_that_a_parser_reads() {
    let home = Home::new();
    home.recorder("launchctl", "case \"$1\" in bootout) exit 3 ;; esac");
    home.run(["service", "install", "--kind", "launchd", "--mode", "loop", "--yes"]).good();
    let plist =
        std::fs::read_dir(home.path().join("Library/LaunchAgents")).unwrap().next().unwrap().unwrap().path();
    assert!(home.calls("launchctl").contains("bootstrap gui/"), "{}", home.calls("launchctl"));
    let parsed = Command::new("python3")
        .args(["-c", "import json,plistlib,sys; print(json.dumps(plistlib.load(open(sys.argv[1],'rb'))))"])
        .arg(&plist)
        .output();
    if let Some(parsed) = parsed.ok().filter(|p| p.status.success()) {
        let list: serde_json::Value = serde_json::from_slice(&parsed.stdout).unwrap();
        assert_eq!((&list["AbandonProcessGroup"], &list["KeepAlive"]), (&true.into(), &true.into()));
        assert_eq!(list["EnvironmentVariables"]["USER"], "somebody");
        assert_eq!(list["ProgramArguments"][3], "run");
    }
    home.run(["service", "restart"]).good();
    assert!(home.calls("launchctl").contains("kickstart -k gui/"));
    // Nothing is loaded under this fake: it says so, and the file may go.
    home.recorder("launchctl", "exit 3");
    home.run(["service", "uninstall"]).good();
    assert!(!plist.exists());
}

/// Checks the units with systemd's own reader, where it is.
#[test]
fn systemd_itself_finds_nothing_wrong_with_the_units() {
    let home = Home::new();
    home.recorder("systemctl", "exit 0");
    home.program("loginctl", "echo no");
    let odd = home.path().join("sp %i $ool");
    for mode in ["timer", "loop"] {
        let args = [
            "--spool",
            odd.to_str().unwrap(),
            "service",
            "install",
            "--kind",
            "systemd",
            "--mode",
            mode,
            "--yes",
        ];
        home.run(args).good();
        let units: Vec<PathBuf> = std::fs::read_dir(home.path().join(".config/systemd/user"))
            .unwrap()
            .map(|e| e.unwrap().path())
            .collect();
        let Ok(said) = Command::new("systemd-analyze")
            .args(["verify", "--user", "--man=no"])
            .args(&units)
            .env("XDG_RUNTIME_DIR", home.path())
            .output()
        else {
            eprintln!("systemd-analyze is not here: not checked");
            return;
        };
        let text = String::from_utf8_lossy(&said.stderr).into_owned();
        let ours: Vec<&str> = text.lines().filter(|l| l.contains("workspool")).collect();
        assert!(said.status.success() && ours.is_empty(), "{mode}: {text}");
    }
}
