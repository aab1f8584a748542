//! What is published: the definitions of packages fit the program, and the release script packs it the same
//! way each time.

use std::path::{Path, PathBuf};
use std::process::Command;

const VERSION: &str = env!("CARGO_PKG_VERSION");

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

#[test]
fn packages_have_the_version_of_the_program_and_name_files_that_are_there() {
    let changelog = read("scripts/packaging/debian/changelog");
    assert!(changelog.starts_with(&format!("workspool ({VERSION}-")), "{changelog}");
    let formula = read("scripts/packaging/homebrew/workspool.rb");
    for mark in ["@URL@", "@VERSION@", "@SHA256@", "@HOMEPAGE@"] {
        assert_eq!(formula.matches(mark).count(), 1, "{mark}");
    }
    let minimum = env!("CARGO_PKG_RUST_VERSION");
    assert!(read("scripts/packaging/debian/control").contains(&format!("rustc (>= {minimum})")));
    let rules = read("scripts/packaging/debian/rules");
    let installed = rules.lines().filter_map(|l| l.trim().strip_prefix("dh_install")?.split_once(' '));
    let documented = formula.lines().filter_map(|l| l.trim().strip_prefix("doc.install "));
    let mut files: Vec<&str> = installed.flat_map(|(_, files)| files.split_whitespace()).collect();
    files.extend(documented.flat_map(|l| l.split(", ").map(|f| f.trim_matches('"'))));
    assert!(files.len() >= 9, "{files:?}");
    for file in files {
        assert!(root().join(file).exists(), "there is no {file} to install");
    }
    for line in
        [r#"system "cargo", "install""#, "generate_completions_from_executable", r#""man", "--write""#]
    {
        assert!(formula.contains(line), "{line}");
    }
}

#[test]
fn the_definitions_can_be_read_by_what_will_read_them() {
    let checks: [(&str, &[&str]); 4] = [
        ("bash", &["-n", "scripts/release"]),
        ("bash", &["-n", "scripts/packaging/third-party"]),
        ("ruby", &["-c", "scripts/packaging/homebrew/workspool.rb"]),
        ("dpkg-parsechangelog", &["-l", "scripts/packaging/debian/changelog"]),
    ];
    for (program, args) in checks {
        // Not every machine has all of them.
        let Ok(said) = Command::new(program).args(args).current_dir(root()).output() else { continue };
        assert!(said.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&said.stderr));
    }
}

/// Packs the built program; returns the folder with what came out.
#[cfg(target_os = "linux")]
fn pack(into: &Path) -> PathBuf {
    use std::os::unix::fs::PermissionsExt as _;
    // Small, so that packing is quick; what it prints is what the program prints.
    let binary = into.join("workspool");
    let script = format!("#!/bin/sh\nexec '{}' \"$@\"\n", env!("CARGO_BIN_EXE_workspool"));
    std::fs::write(&binary, script).unwrap();
    std::fs::set_permissions(&binary, std::fs::Permissions::from_mode(0o755)).unwrap();
    let out = into.join("out");
    let mut command = Command::new("bash");
    command.args(["scripts/release", "--target", "x86_64-unknown-linux-gnu", "--binary"]).arg(&binary);
    command.arg("--out").arg(&out).current_dir(root()).env("SOURCE_DATE_EPOCH", "1700000000");
    let said = command.output().unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    out
}

#[test]
#[cfg(target_os = "linux")]
fn a_release_has_all_its_parts_and_the_same_bytes_each_time() {
    let dir = tempfile::tempdir().unwrap();
    let out = pack(dir.path());
    let archive = format!("workspool-{VERSION}-x86_64-unknown-linux-gnu");
    let list = |file: &Path| -> Vec<String> {
        let said = Command::new("tar").arg("-tzf").arg(file).output().unwrap();
        String::from_utf8(said.stdout).unwrap().lines().map(str::to_owned).collect()
    };
    let files = list(&out.join(format!("{archive}.tar.gz")));
    for wanted in [
        "workspool",
        "LICENSE",
        "README.md",
        "CHANGELOG.md",
        "THIRD-PARTY.txt",
        "man/man1/workspool.1",
        "man/man1/workspool-service-install.1",
        "completions/workspool.bash",
        "completions/_workspool",
        "completions/workspool.fish",
        "docs/getting-started.md",
        "queue-schema/task.schema.json",
        "scripts/systemd/timer/workspool.timer",
    ] {
        assert!(files.contains(&format!("{archive}/{wanted}")), "no {wanted} in {files:#?}");
    }
    let sources = list(&out.join(format!("workspool-{VERSION}.tar.gz")));
    for wanted in ["Cargo.toml", "Cargo.lock", "src/main.rs", "scripts/release", "tests/ops/packaging.rs"] {
        assert!(sources.contains(&format!("workspool-{VERSION}/{wanted}")), "no {wanted} in the sources");
    }
    assert!(!sources.iter().any(|f| f.contains("/target/") || f.contains("/.git/")));
    let formula = std::fs::read_to_string(out.join("workspool.rb")).unwrap();
    let sums = std::fs::read_to_string(out.join("SHA256SUMS")).unwrap();
    let sum = sums.lines().find(|l| l.ends_with(&format!("workspool-{VERSION}.tar.gz"))).unwrap();
    assert!(
        formula.contains(&format!("sha256 \"{}\"", sum.split(' ').next().unwrap())) && !formula.contains('@')
    );

    // Packed again, from another place: the sums are the same.
    let again = tempfile::tempdir().unwrap();
    let again = std::fs::read_to_string(pack(again.path()).join("SHA256SUMS")).unwrap();
    assert_eq!(again, sums);
}
