//! Completions are loaded by their shells and complete; manual pages are read by the programs that show them.
//! What is not on the machine is passed over, and said so: bash is on every one.

use super::support::Home;
use std::path::Path;
use std::process::Command;

/// Runs a program in the home; `None` if it is not on this machine.
fn try_run(home: &Home, program: &str, args: &[&str]) -> Option<String> {
    let said = Command::new(program)
        .args(args)
        .current_dir(home.path())
        .env("HOME", home.path())
        .env("XDG_CONFIG_HOME", home.path().join("config"))
        .env("XDG_DATA_HOME", home.path().join("data"))
        .env("LC_ALL", "C.UTF-8")
        .output();
    let Ok(said) = said else {
        eprintln!("{program} is not here: not tried");
        return None;
    };
    let err = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(said.status.success() && err.trim().is_empty(), "{program} {args:?}: {}: {err}", said.status);
    Some(String::from_utf8(said.stdout).unwrap())
}

#[test]
fn completions_are_loaded_and_complete() {
    let home = Home::new();
    for (shell, file) in [("bash", "c.bash"), ("zsh", "functions/_workspool"), ("fish", "c.fish")] {
        home.write(file, &home.run(["completions", shell]).good());
    }
    let asked = ". ./c.bash; COMP_WORDS=(workspool service un); COMP_CWORD=2; \
                 _workspool workspool un service; echo \"${COMPREPLY[@]}\"";
    let said = try_run(&home, "bash", &["--norc", "--noprofile", "-c", asked]).unwrap();
    assert_eq!(said.trim(), "uninstall");

    let asked = "fpath=($PWD/functions $fpath); autoload -U compinit; compinit -D -u; autoload +X _workspool; \
                 print $_comps[workspool]";
    if let Some(said) = try_run(&home, "zsh", &["-fc", asked]) {
        assert_eq!(said.trim(), "_workspool");
    }
    let asked = "source c.fish; complete -C 'workspool service un'";
    if let Some(said) = try_run(&home, "fish", &["--no-config", "-c", asked]) {
        assert!(said.starts_with("uninstall\t"), "{said}");
    }
}

#[test]
fn manual_pages_are_read_without_a_complaint() {
    let home = Home::new();
    let dir = home.path().join("man");
    home.run(["man", "--write", dir.to_str().unwrap()]).good();
    let pages: Vec<_> = std::fs::read_dir(&dir).unwrap().map(|e| e.unwrap().path()).collect();
    assert!(pages.len() > 40, "{}", pages.len());
    let all: Vec<&str> = pages.iter().map(|p| p.to_str().unwrap()).collect();
    let mut args = vec!["-Kutf8", "-man", "-ww", "-Tutf8", "-z"];
    args.extend(&all);
    try_run(&home, "groff", &args);
    if let Ok(said) = Command::new("mandoc").args(["-T", "lint", "-W", "warning"]).args(&all).output() {
        let text = String::from_utf8(said.stdout).unwrap();
        // No page says a date, so that the same program makes the same pages; breaks beside blanks show nothing.
        let known = ["missing date", "br before sp", "br after sp"];
        let bad: Vec<&str> = text.lines().filter(|l| !known.iter().any(|k| l.contains(k))).collect();
        assert!(bad.is_empty(), "{bad:#?}");
    }
    let page = std::fs::read_to_string(Path::new(&dir).join("workspool-service-install.1")).unwrap();
    assert!(page.contains(".SH EXAMPLES\n.nf\nworkspool service install\n"), "{page}");
}
