//! Registering the server with each client, in a home of the test's own.

use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;
use workspool::setup::{ALL, Client, Format, NAME};

/// A home, and a `PATH` on which no client is.
struct Home {
    dir: TempDir,
}

impl Home {
    fn new() -> Home {
        let home = Home { dir: tempfile::Builder::new().prefix("workspool-setup-").tempdir().unwrap() };
        std::fs::create_dir(home.path().join("bin")).unwrap();
        home
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn file(&self, client: &Client) -> PathBuf {
        client.file(self.path(), |_| None)
    }

    fn write(&self, client: &Client, text: &str) -> PathBuf {
        let file = self.file(client);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, text).unwrap();
        file
    }

    /// Puts a program on the `PATH`: a stand-in for a client's own.
    fn program(&self, name: &str, script: &str) {
        let path = self.path().join("bin").join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn setup(&self, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_workspool"));
        command.env_clear().env("HOME", self.path()).env("PATH", self.path().join("bin"));
        command.arg("setup").args(args).stdin(Stdio::null()).output().unwrap()
    }

    fn ok(&self, args: &[&str]) -> String {
        let out = self.setup(args);
        assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap()
    }
}

/// The entry in a client's file.
fn entry(client: &Client, file: &Path) -> Value {
    let text = std::fs::read_to_string(file).unwrap();
    let whole: Value = match client.format {
        Format::Json => serde_json::from_str(&text).unwrap(),
        Format::Toml => serde_json::to_value(toml::from_str::<toml::Table>(&text).unwrap()).unwrap(),
    };
    client.path.iter().fold(whole, |value, name| value[name].clone())[NAME].clone()
}

#[test]
fn every_client_is_set_up_once_and_undone_to_the_byte() {
    for client in ALL {
        let home = Home::new();
        let theirs = match client.format {
            Format::Json => "{\n    \"theirs\": {\"a\": [1, 2]},\n    \"last\": true\n}\n",
            Format::Toml => "# theirs\nmodel = \"x\"\n\n[mcp_servers.other]\ncommand = \"y\"\n",
        };
        let file = home.write(client, theirs);
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();
        let shown = home.ok(&[client.name, "--yes"]);
        assert!(shown.contains(&file.display().to_string()) && shown.contains("workspool"), "{shown}");
        assert!(shown.contains(client.then), "{shown}");
        let with = entry(client, &file);
        let program = env!("CARGO_BIN_EXE_workspool");
        let started = if with["command"].is_array() {
            with["command"].clone()
        } else {
            json!([with["command"], with["args"][0]])
        };
        assert_eq!(started, json!([program, "mcp"]), "{}", client.name);
        assert_eq!(with["env"]["PATH"].is_string(), client.bare, "{}", client.name);
        let once = std::fs::read(&file).unwrap();
        assert!(home.ok(&[client.name, "--yes"]).contains("is registered already"));
        assert_eq!(std::fs::read(&file).unwrap(), once, "{} twice is once", client.name);
        assert!(home.ok(&[]).lines().any(|l| l.starts_with(client.name) && l.ends_with("  registered")));
        home.ok(&[client.name, "--remove", "--yes"]);
        assert_eq!(std::fs::read_to_string(&file).unwrap(), theirs, "{}", client.name);
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o640, "{}", client.name);
        assert!(home.ok(&[client.name, "--remove", "--yes"]).contains("is not registered"));
    }
}

#[test]
fn a_file_that_was_not_there_is_made_and_goes_away_again() {
    for client in ALL {
        let home = Home::new();
        home.ok(&[client.name, "--yes"]);
        assert!(entry(client, &home.file(client)).is_object(), "{}", client.name);
        home.ok(&[client.name, "--remove", "--yes"]);
        assert!(!home.file(client).exists(), "{}", client.name);
    }
}

#[test]
fn nothing_is_changed_without_a_word_and_print_never_does() {
    let home = Home::new();
    for client in ALL {
        let out = home.setup(&[client.name]);
        assert!(!out.status.success());
        let (shown, err) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        assert!(shown.contains("make ") && shown.contains("+ "), "{shown}");
        assert!(err.contains("--yes"), "{err}");
        assert!(home.ok(&[client.name, "--print"]).contains("mcp"));
        assert!(!home.file(client).exists(), "{}", client.name);
    }
    assert!(home.ok(&["--print"]).contains("mcpServers"));
    let err = home.setup(&["claud"]);
    assert!(String::from_utf8_lossy(&err.stderr).contains("did you mean claude?"));
}

#[test]
fn an_old_entry_is_renewed_and_what_the_user_added_to_it_stays() {
    let home = Home::new();
    let cline = Client::named("cline").unwrap();
    let file = home.write(
        cline,
        r#"{"mcpServers": {"workspool": {"command": "/old/workspool", "args": ["mcp"], "autoApprove": ["get_task"]}, "o": {}}}"#,
    );
    home.ok(&["cline", "--yes"]);
    let entry = entry(cline, &file);
    assert_eq!(entry["command"], env!("CARGO_BIN_EXE_workspool"));
    assert_eq!(entry["autoApprove"], json!(["get_task"]));
}

#[test]
fn a_file_with_comments_keeps_them_and_a_broken_one_is_left_alone() {
    let home = Home::new();
    let vscode = Client::named("vscode").unwrap();
    let text =
        "{\n\t// my servers\n\t\"servers\": {\n\t\t\"other\": { \"command\": \"x\" }, // that one\n\t},\n}\n";
    let file = home.write(vscode, text);
    home.ok(&["vscode", "--yes"]);
    let with = std::fs::read_to_string(&file).unwrap();
    assert!(with.contains("// my servers") && with.contains("// that one\n\t\t\"workspool\": {"), "{with}");
    home.ok(&["vscode", "--remove", "--yes"]);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
    std::fs::write(&file, "{ \"servers\": ").unwrap();
    let out = home.setup(&["vscode", "--yes"]);
    let err = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(!out.status.success() && err.contains("line 1") && err.contains("--print"), "{err}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "{ \"servers\": ");
}

#[test]
fn a_link_into_dotfiles_stays_one() {
    let home = Home::new();
    let cursor = Client::named("cursor").unwrap();
    let file = home.file(cursor);
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    let real = home.path().join("dotfiles.json");
    std::fs::write(&real, "{}\n").unwrap();
    std::os::unix::fs::symlink(&real, &file).unwrap();
    home.ok(&["cursor", "--yes"]);
    assert!(std::fs::symlink_metadata(&file).unwrap().is_symlink());
    assert!(std::fs::read_to_string(&real).unwrap().contains("workspool"));
}

#[test]
fn a_clients_own_command_is_used_where_it_is_there() {
    let home = Home::new();
    let claude = Client::named("claude").unwrap();
    let (file, log) = (home.file(claude), home.path().join("log"));
    home.program(
        "claude",
        &format!(
            "echo \"$*\" >> {log}\ncase $2 in\nadd) printf '{{\"mcpServers\":{{\"workspool\":{{\"type\":\"stdio\",\"command\":\"%s\",\"args\":[\"mcp\"],\"env\":{{}}}}}}}}' \"$7\" > {file};;\nremove) printf '{{}}' > {file};;\nesac",
            log = log.display(),
            file = file.display()
        ),
    );
    let shown = home.ok(&["claude", "--yes"]);
    let program = env!("CARGO_BIN_EXE_workspool");
    let add = format!("mcp add workspool -s user -- {program} mcp");
    assert!(shown.contains(&format!("run  claude {add}")), "{shown}");
    assert!(home.ok(&["claude", "--yes"]).contains("is registered already"), "idempotent");
    // Another entry of ours is taken out first: the command refuses to replace one.
    std::fs::write(
        &file,
        r#"{"mcpServers":{"workspool":{"type":"stdio","command":"/old","args":["mcp"],"env":{}}}}"#,
    )
    .unwrap();
    home.ok(&["claude", "--yes"]);
    home.ok(&["claude", "--remove", "--yes"]);
    let remove = "mcp remove workspool -s user";
    let ran = std::fs::read_to_string(log).unwrap();
    assert_eq!(ran.lines().collect::<Vec<_>>(), [add.as_str(), remove, add.as_str(), remove]);

    home.program("claude", "echo 'no such scope' >&2; exit 3");
    let out = home.setup(&["claude", "--yes"]);
    let err = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(!out.status.success() && err.contains("no such scope"), "{err}");
    home.program("claude", "exit 0");
    let err = String::from_utf8_lossy(&home.setup(&["claude", "--yes"]).stderr).into_owned();
    assert!(err.contains("does not show it"), "{err}");
}

#[test]
fn another_spool_is_named_in_the_entry() {
    let home = Home::new();
    let spool = home.path().join("elsewhere");
    home.ok(&["cursor", "--yes", "--spool", spool.to_str().unwrap()]);
    let entry = entry(Client::named("cursor").unwrap(), &home.path().join(".cursor/mcp.json"));
    assert_eq!(entry["args"], json!(["--spool", spool, "mcp"]));
}
