//! What is written in `docs/` and `scripts/` is what the program says.

use std::path::{Path, PathBuf};
use std::time::Duration;
use workspool::care::service::{Kind, Mode, Plan};
use workspool::model::config_keys;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

#[test]
fn the_list_of_keys_is_the_one_of_the_types() {
    let path = root().join("docs/configuration.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let begin = text.find("<!-- keys:").and_then(|at| text[at..].find('\n').map(|n| at + n + 1)).unwrap();
    let end = text.find("<!-- end of keys -->").unwrap();
    let wanted = format!("{}\n{}\n{}", &text[..begin], config_keys::reference(), &text[end..]);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &wanted).unwrap();
    }
    assert!(
        std::fs::read_to_string(&path).unwrap() == wanted,
        "docs/configuration.md differs from the types: run `UPDATE_DOCS=1 cargo test --test ops`"
    );
}

/// A plan for somebody who copies files by hand.
fn plain(kind: Kind, mode: Mode) -> Plan {
    let env = [
        ("HOME", "/home/YOU"),
        ("USER", "YOU"),
        ("LOGNAME", "YOU"),
        ("LANG", "C.UTF-8"),
        ("PATH", "/home/YOU/.local/bin:/home/YOU/.cargo/bin:/usr/local/bin:/usr/bin:/bin"),
    ];
    Plan {
        kind,
        mode,
        every: Duration::from_secs(60),
        name: "workspool".into(),
        mark: "of your own".into(),
        spool: "/home/YOU/.workspool".into(),
        binary: "/home/YOU/.local/bin/workspool".into(),
        env: env.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect(),
    }
}

#[test]
fn the_files_to_copy_are_those_that_would_be_installed() {
    let mut files: Vec<(&str, String)> = Vec::new();
    let text = |kind, mode, k: usize| plain(kind, mode).units().unwrap().remove(k).text;
    files.push(("cron/service.sh", text(Kind::Cron, Mode::Timer, 0)));
    files.push(("cron/crontab", plain(Kind::Cron, Mode::Timer).crontab().unwrap().unwrap()));
    files.push(("systemd/timer/workspool.service", text(Kind::Systemd, Mode::Timer, 0)));
    files.push(("systemd/timer/workspool.timer", text(Kind::Systemd, Mode::Timer, 1)));
    files.push(("systemd/loop/workspool.service", text(Kind::Systemd, Mode::Loop, 0)));
    for (name, mode) in [("launchd/timer", Mode::Timer), ("launchd/loop", Mode::Loop)] {
        let text = text(Kind::Launchd, mode, 0).replace("/home/YOU", "/Users/YOU");
        files.push((name, text));
    }
    for (name, text) in files {
        let name = if name.starts_with("launchd") {
            format!("{name}/org.workspool.workspool.plist")
        } else {
            name.into()
        };
        let path = root().join("scripts").join(&name);
        let written = "Written by `workspool service install`.";
        assert!(name.ends_with("crontab") || text.contains(written), "{name}");
        let text = text.replace(written, "See scripts/README.md.");
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, &text).unwrap();
        }
        assert!(
            std::fs::read_to_string(&path).unwrap_or_default() == text,
            "scripts/{name} differs: run `UPDATE_DOCS=1 cargo test --test ops`"
        );
    }
}
