//! The documents say what is true: their commands are run, what they print is compared, and what they point
//! at is there.
//!
//! A block of commands has a line `<!-- test:run -->` before it; one of output that follows it, a line
//! `<!-- test:output -->`. The blocks of a document are one script, run in a home of its own with a repository
//! `~/project`, a program `my-agent`, and the built `workspool`.
#![allow(clippy::unwrap_used, reason = "a test may panic anywhere, also in its helpers")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

const DOCUMENTS: &[&str] = &[
    "README.md",
    "docs/getting-started.md",
    "docs/concepts.md",
    "docs/mock-worker.md",
    "docs/operations.md",
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(document: &str) -> String {
    fs::read_to_string(root().join(document)).unwrap()
}

/// A fenced block, and the comment on the line before it.
#[derive(Debug)]
struct Block {
    mark: Option<String>,
    language: String,
    text: String,
}

fn blocks(document: &str) -> Vec<Block> {
    let text = read(document);
    let mut lines = text.lines();
    let (mut found, mut before) = (Vec::new(), "");
    while let Some(line) = lines.next() {
        if let Some(language) = line.strip_prefix("```") {
            let mark = before.strip_prefix("<!-- ").and_then(|m| m.strip_suffix(" -->"));
            let text = lines.by_ref().take_while(|line| *line != "```").map(|l| format!("{l}\n")).collect();
            found.push(Block { mark: mark.map(str::to_owned), language: language.to_owned(), text });
        }
        before = line;
    }
    found
}

/// A home with a repository, an agent, and the built binary on its path.
fn home() -> TempDir {
    let home = TempDir::new().unwrap();
    let (bin, project) = (home.path().join("bin"), home.path().join("project"));
    fs::create_dir(&bin).unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_workspool"), bin.join("workspool")).unwrap();
    let stand_in = |name: &str, script: &str| {
        fs::write(bin.join(name), format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(bin.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    };
    stand_in("my-agent", "[ \"$1\" = run ] && echo \"By make.\" > BUILD.md");
    // What manages services is the machine's own and not a test's: this crontab is a file, and nobody answers.
    stand_in(
        "crontab",
        "case $1 in -l) cat ~/crontab 2>/dev/null || { echo 'no crontab' >&2; exit 1; } ;; -r) rm ~/crontab ;; -) cat > ~/crontab ;; esac",
    );
    stand_in("systemctl", "exit 1");
    stand_in("launchctl", "exit 1");
    fs::create_dir(&project).unwrap();
    fs::write(project.join("README.md"), "# Project  \n\nText.\t\n").unwrap();
    fs::write(
        home.path().join(".gitconfig"),
        "[user]\nname = Reader\nemail = reader@example.invalid\n[init]\ndefaultBranch = main\n",
    )
    .unwrap();
    let script = "git init -q && git add --all && git commit -qm 'Begin'";
    let (status, said) = sh(home.path(), &project, script);
    assert!(status, "{said}");
    home
}

/// Runs a script; returns whether it succeeded, and all that it printed.
fn sh(home: &Path, at: &Path, script: &str) -> (bool, String) {
    let path = format!("{}:{}", home.join("bin").display(), std::env::var("PATH").unwrap());
    let mut command = Command::new("sh");
    for name in ["WORKSPOOL_HOME", "WORKSPOOL_CONFIG", "WORKSPOOL_WORKER", "GIT_DIR", "GIT_WORK_TREE"] {
        command.env_remove(name);
    }
    let output = command
        .args(["-c", &format!("exec 2>&1\nset -e\n{script}")])
        .current_dir(at)
        .stdin(Stdio::null())
        .env("HOME", home)
        .env("PATH", path)
        .env("GIT_CONFIG_GLOBAL", home.join(".gitconfig"))
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .output()
        .unwrap();
    (output.status.success(), String::from_utf8(output.stdout).unwrap())
}

/// Runs the blocks of a document as one script, and compares what each printed.
fn carry_out(document: &str) -> TempDir {
    const END: &str = "@@@ the end of a block\n";
    let blocks = blocks(document);
    let mut script = String::new();
    for block in blocks.iter().filter(|b| b.mark.as_deref() == Some("test:run")) {
        // Installing would take minutes and the network.
        let lines = block.text.lines().filter(|line| !line.starts_with("cargo "));
        lines.for_each(|line| script.push_str(&format!("{line}\n")));
        script.push_str(&format!("echo '{}'\n", END.trim_end()));
    }
    let home = home();
    let (status, said) = sh(home.path(), home.path(), &script);
    assert!(status, "{document}: a command failed:\n{said}");
    let mut printed = said.split(END);
    let mut last = "";
    for block in &blocks {
        match block.mark.as_deref() {
            Some("test:run") => last = printed.next().unwrap(),
            Some("test:output") => {
                let mut lines = last.lines();
                for want in block.text.lines().filter(|line| !line.trim().is_empty()) {
                    let found = lines.any(|line| fits(line, want));
                    assert!(found, "{document}: {want:?} does not come here in:\n{last}");
                }
            }
            _ => {}
        }
    }
    home
}

/// Whether a line is as it was written down, where `…` stands for anything.
fn fits(line: &str, want: &str) -> bool {
    let mut parts = want.trim_end().split('…');
    let Some(mut rest) = line.trim_end().strip_prefix(parts.next().unwrap()) else { return false };
    let parts: Vec<&str> = parts.collect();
    for (k, part) in parts.iter().enumerate() {
        if k + 1 == parts.len() {
            return rest.ends_with(part);
        }
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.is_empty()
}

#[test]
fn lines_are_compared_with_their_gaps() {
    assert!(fits("a b c", "a … c") && fits("a b c  ", "a b c") && fits("a b", "a…") && fits("a", "…a…"));
    assert!(!fits("a b c", "a … d") && !fits("a b", "a") && !fits("b a", "a…") && !fits("a c", "a…b…c"));
}

#[test]
fn the_readme_can_be_followed() {
    let home = carry_out("README.md");
    let project = home.path().join("project");
    assert_eq!(fs::read_to_string(project.join("README.md")).unwrap(), "# Project\n\nText.\n");
    let (_, log) = sh(home.path(), &project, "git log --format=%s");
    assert_eq!(log.lines().count(), 2, "{log}");
    let (_, list) = sh(home.path(), &project, "workspool list");
    assert_eq!(list.lines().filter(|line| line.contains("  succeeded  ")).count(), 3, "{list}");
}

#[test]
fn the_first_session_can_be_followed() {
    carry_out("docs/getting-started.md");
}

#[test]
fn the_mock_workers_document_can_be_followed() {
    let home = carry_out("docs/mock-worker.md");
    let (_, list) = sh(home.path(), home.path(), "workspool list");
    assert!(list.contains("succeeded"), "{list}");
}

#[test]
fn a_service_can_be_operated_as_described() {
    let home = carry_out("docs/operations.md");
    assert!(!home.path().join("crontab").exists(), "what was made for it is gone");
    let findings = fs::read_to_string(home.path().join("findings.json")).unwrap();
    assert!(
        findings.contains("\"level\": \"ok\"") && !findings.contains("\"level\": \"error\""),
        "{findings}"
    );
}

#[test]
fn every_command_in_the_documents_is_tried_or_known() {
    for document in DOCUMENTS {
        for block in blocks(document) {
            match block.mark.as_deref() {
                Some("ci:demo") => assert_eq!(block.text, "cargo run --release -- demo\n"),
                Some("ci:test") => assert_eq!(block.text, "cargo test\n"),
                Some("test:run") => assert_eq!(block.language, "sh", "{document}: {}", block.text),
                Some("test:output") => assert_eq!(block.language, "text", "{document}: {}", block.text),
                mark => {
                    assert_eq!(mark, None, "{document}: an unknown mark");
                    assert_ne!(block.language, "sh", "{document}: not tried: {}", block.text);
                }
            }
        }
    }
    let marks = |mark: &str| blocks("README.md").iter().filter(|b| b.mark.as_deref() == Some(mark)).count();
    assert_eq!((marks("ci:demo"), marks("ci:test")), (1, 1));
    let by_hand = blocks("README.md").into_iter().find(|b| b.mark.as_deref() == Some("test:run")).unwrap();
    assert_eq!(by_hand.text.lines().next(), Some("cargo install --path ."));
}

#[test]
fn what_the_documents_point_at_is_there() {
    for document in DOCUMENTS {
        let folder = root().join(document).parent().unwrap().to_owned();
        for link in read(document).split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let path = link.split('#').next().unwrap();
            if !path.contains("://") {
                assert!(folder.join(path).exists(), "{document}: there is no {path}");
            }
        }
    }
}

#[test]
fn each_guarantee_names_a_test_that_exists() {
    let readme = read("README.md");
    let (_, section) = readme.split_once("## What is guaranteed").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| ") && line.contains('`'));
    let names: Vec<&str> = rows.map(|row| row.trim_end_matches("` |").rsplit('`').next().unwrap()).collect();
    assert!(names.len() > 5, "{names:?}");
    let sources: Vec<PathBuf> = ["src", "tests"]
        .iter()
        .flat_map(|folder| walkdir::WalkDir::new(root().join(folder)))
        .map(|entry| entry.unwrap().into_path())
        .filter(|path| path.extension().is_some_and(|e| e == "rs"))
        .collect();
    let code: String = sources.iter().map(|path| fs::read_to_string(path).unwrap()).collect();
    for name in names {
        let test = code.match_indices(&format!("fn {name}()")).any(|(at, _)| {
            let before = code[..at].lines().rev().take(4);
            before.take_while(|line| *line != "}").any(|line| line.trim() == "#[test]")
        });
        assert!(test, "there is no test {name}");
    }
}
