//! Whether a worker is there and signed in: seen from files and variables, or asked of the program itself,
//! without spending anything.

use super::registry::{executable, program};
use super::{env, invoke, private};
use crate::durable;
use crate::model::{Profile, VERSION};
use crate::process::{self, Asking};
use crate::spool::{Spool, events, read_json};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// How long a program may take to say its version, or whether it is signed in.
const DEADLINE: Duration = Duration::from_secs(30);

/// What is known of a worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Health {
    /// Whether its program is there.
    pub installed: bool,
    /// Where.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub executable: Option<PathBuf>,
    /// What version it says it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Whether it is signed in; absent where that cannot be known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signed_in: Option<bool>,
}

/// Looks at a worker. Its version is asked for once for each executable; whether it is signed in is asked of
/// the program only with `ask`, where files and variables do not say.
pub fn look(spool: &Spool, profile: &Profile, ask: bool) -> Health {
    let executable = executable(profile);
    let installed = executable.is_some();
    let version = if installed { version(spool, profile) } else { None };
    let mut signed_in = sign_in(profile);
    if ask && installed && signed_in.is_none() {
        signed_in = asked_sign_in(spool, profile);
    }
    Health { installed, executable, version, signed_in }
}

/// Whether a worker is signed in, as far as files and variables say. No program is run.
pub fn sign_in(profile: &Profile) -> Option<bool> {
    if invoke::missing_variable(profile).is_some() {
        return Some(false);
    }
    let health = profile.health.as_ref()?;
    let set = |name: &String| std::env::var_os(name).is_some_and(|v| !v.is_empty());
    let there = |file: &String| private::expand(file).is_some_and(|path| path.exists());
    if health.signed_in_env.iter().any(set) || health.signed_in_files.iter().any(there) {
        return Some(true);
    }
    // Where files could say it, a keychain may hold it as well: that none is there means nothing.
    let only_variables = health.signed_in.is_empty() && health.signed_in_files.is_empty();
    (only_variables && !health.signed_in_env.is_empty()).then_some(false)
}

fn asked_sign_in(spool: &Spool, profile: &Profile) -> Option<bool> {
    let argv = &profile.health.as_ref()?.signed_in;
    if argv.is_empty() {
        return None;
    }
    ask(spool, profile, argv).ok().map(|answer| answer.ok)
}

/// What is remembered of an executable's version.
#[derive(Debug, Serialize, Deserialize)]
struct Remembered {
    version: u32,
    stamp: String,
    answer: Option<String>,
}

/// The version that a worker's program says it has. It is asked once; the answer holds for as long as the
/// executable stays what it is.
pub fn version(spool: &Spool, profile: &Profile) -> Option<String> {
    let argv = &profile.health.as_ref()?.version;
    if argv.first().is_some_and(|program| program == "{workspool}") {
        return Some(env!("CARGO_PKG_VERSION").to_owned());
    }
    let stamp = stamp(&env::find_executable(argv.first()?)?)?;
    let file = spool
        .root()
        .join("cache/versions")
        .join(&events::hash(format!("{stamp}\0{}", argv.join("\0")).as_bytes())[..16]);
    if let Ok(Some(known)) = read_json::<Remembered>(&file)
        && known.version == VERSION
        && known.stamp == stamp
    {
        return known.answer;
    }
    let answer = ask(spool, profile, argv).ok().filter(|a| a.ok).and_then(|a| version_in(&a.text));
    let remembered = Remembered { version: VERSION, stamp, answer };
    // What cannot be remembered is asked again.
    if answer_is_worth_keeping(&remembered)
        && let Ok(bytes) = serde_json::to_vec(&remembered)
        && let Some(dir) = file.parent()
    {
        let _ = durable::ensure_dir(dir).and_then(|()| durable::replace_unsynced(&file, &bytes));
    }
    remembered.answer
}

/// A program that did not answer may have been slow: it is asked again next time.
fn answer_is_worth_keeping(remembered: &Remembered) -> bool {
    remembered.answer.is_some()
}

/// What changes when an executable is replaced. Packages set the time of change to the same value for all
/// versions, but nobody can set the time of the last change of the inode.
fn stamp(path: &Path) -> Option<String> {
    let real = fs::canonicalize(path).ok()?;
    let m = fs::metadata(&real).ok()?;
    Some(format!(
        "{}:{}:{}:{}:{}.{}:{}.{}",
        real.display(),
        m.dev(),
        m.ino(),
        m.size(),
        m.mtime(),
        m.mtime_nsec(),
        m.ctime(),
        m.ctime_nsec()
    ))
}

/// The first word that looks like a version.
fn version_in(text: &str) -> Option<String> {
    let version = |word: &&str| {
        let word = word.strip_prefix('v').unwrap_or(word);
        word.starts_with(|c: char| c.is_ascii_digit()) && word.contains('.')
    };
    let word =
        text.split_whitespace().map(|w| w.trim_matches(|c: char| "(),;:".contains(c))).find(version)?;
    Some(word.strip_prefix('v').unwrap_or(word).chars().take(64).collect())
}

struct Answer {
    ok: bool,
    /// What it printed.
    text: String,
    /// The same, and what it said of errors.
    all: String,
}

/// Runs one of the program's own short commands and returns what it printed. It leaves nobody behind.
fn ask(spool: &Spool, profile: &Profile, argv: &[String]) -> io::Result<Answer> {
    let Some((program, args)) = argv.split_first() else { return Err(io::ErrorKind::InvalidInput.into()) };
    let mut command = match program.as_str() {
        "{workspool}" => Command::new(env::own_executable()?),
        program => Command::new(program),
    };
    command.args(args).current_dir(spool.tmp()).env_clear();
    for (new, old) in
        env::BASE.iter().copied().chain(profile.pass_env.iter().map(String::as_str)).map(env::renamed)
    {
        command.envs(std::env::var_os(old).map(|value| (new, value)));
    }
    // Folders of an attempt mean nothing here.
    let fixed = profile.env.iter().filter(|(_, v)| !v.contains("_dir}"));
    command.envs(fixed).env("TERM", "dumb");
    let said = process::ask(command, Asking::within(DEADLINE))?.ok_or(io::ErrorKind::TimedOut)?;
    Ok(Answer {
        ok: said.status.success(),
        text: String::from_utf8_lossy(&said.out).into_owned(),
        all: said.text(),
    })
}

/// Why a worker that is installed does not say its version, in words; nothing where it does, or has none.
pub fn version_fault(spool: &Spool, profile: &Profile) -> Option<String> {
    let argv = &profile.health.as_ref()?.version;
    let shown = argv.join(" ");
    if argv.is_empty() || version(spool, profile).is_some() {
        return None;
    }
    match ask(spool, profile, argv) {
        Ok(answer) if answer.ok => None,
        Ok(answer) => {
            let line = answer.all.lines().map(str::trim).find(|l| !l.is_empty()).unwrap_or_default();
            let line: String = line.chars().filter(|c| !c.is_control()).take(120).collect();
            Some(format!("{shown} failed: {line}"))
        }
        Err(e) if e.kind() == io::ErrorKind::TimedOut => {
            Some(format!("{shown} did not end within {} s", DEADLINE.as_secs()))
        }
        Err(e) => Some(format!("{shown} cannot be started: {e}")),
    }
}

/// What is wrong with a worker, in words, for `workers check`; nothing where it can be used.
pub fn complaint(profile: &Profile, health: &Health) -> Option<String> {
    if !health.installed {
        let hint = profile.install.as_ref().map(|i| format!("\n  hint: {i}")).unwrap_or_default();
        return Some(format!("{} is not installed{hint}", program(profile)));
    }
    if let Some(name) = invoke::missing_variable(profile) {
        return Some(format!("{name} is not set"));
    }
    if health.signed_in == Some(false) {
        let hint = profile.install.as_ref().map(|i| format!("\n  hint: {i}")).unwrap_or_default();
        return Some(format!("{} is not signed in{hint}", profile.name));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_version_is_found_among_words() {
        assert_eq!(version_in("2.1.332 (Claude Code)\n").as_deref(), Some("2.1.332"));
        assert_eq!(version_in("codex-cli 0.171.0").as_deref(), Some("0.171.0"));
        assert_eq!(version_in("aider v0.86.2\n").as_deref(), Some("0.86.2"));
        assert_eq!(version_in("no version"), None);
    }

    #[test]
    fn a_version_is_asked_for_once_and_again_when_the_program_changes() {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::open(&dir.path().join("spool")).unwrap();
        let (program, asked) = (dir.path().join("agent"), dir.path().join("asked"));
        let put = |version: &str| {
            let script = format!("#!/bin/sh\necho x >> '{}'\necho agent {version}\n", asked.display());
            let new = dir.path().join("new");
            fs::write(&new, script).unwrap();
            fs::set_permissions(&new, fs::Permissions::from_mode(0o755)).unwrap();
            fs::rename(&new, &program).unwrap();
        };
        let times = || fs::read_to_string(&asked).unwrap().lines().count();
        let profile: Profile = serde_json::from_value(serde_json::json!({
            "name": "a", "command": [program], "health": { "version": [program, "--version"] }
        }))
        .unwrap();
        put("1.0.0");
        assert_eq!(version(&spool, &profile).as_deref(), Some("1.0.0"));
        assert_eq!(version(&spool, &profile).as_deref(), Some("1.0.0"));
        assert_eq!(times(), 1);
        put("1.0.1");
        assert_eq!(version(&spool, &profile).as_deref(), Some("1.0.1"));
        assert_eq!(times(), 2);
    }

    #[test]
    fn variables_alone_decide_only_where_nothing_else_can() {
        let health = |json: serde_json::Value| {
            let mut p: Profile = serde_json::from_str(r#"{"name": "a", "command": ["a"]}"#).unwrap();
            p.health = Some(serde_json::from_value(json).unwrap());
            sign_in(&p)
        };
        use serde_json::json;
        assert_eq!(health(json!({ "signed_in_env": ["SURELY_UNSET_KEY"] })), Some(false));
        assert_eq!(health(json!({ "signed_in_env": ["PATH"] })), Some(true));
        assert_eq!(
            health(json!({ "signed_in_env": ["SURELY_UNSET_KEY"], "signed_in_files": ["~/no"] })),
            None
        );
        assert_eq!(health(json!({ "signed_in_files": ["$HOME/"] })), Some(true));
        assert_eq!(health(json!({})), None);
    }
}
