//! The environment of a service, resolved when it is installed: cron, launchd and systemd have a bare PATH,
//! perhaps no USER (without which the macOS keychain does not open), and another locale.

use crate::worker::env::{BASE, find_executable, own_executable};
use anyhow::{Context as _, bail};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What a service will have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolved {
    /// The program, by a path that survives its updates.
    pub binary: PathBuf,
    /// The environment.
    pub env: BTreeMap<String, String>,
    /// What was left out, and why.
    pub left_out: Vec<String>,
}

/// Resolves it from the present environment; `extra` names further variables to write down.
pub fn resolve(extra: &[String]) -> anyhow::Result<Resolved> {
    let mut resolved = Resolved { binary: binary()?, env: BTreeMap::new(), left_out: Vec::new() };
    // What belongs to this very session means nothing in another one.
    let names = BASE.iter().copied().filter(|n| *n != "XDG_RUNTIME_DIR");
    for name in names {
        let Ok(value) = std::env::var(name) else { continue };
        if value.contains(['\n', '\r', '\0']) {
            resolved.left_out.push(format!("{name}: it has a line break"));
        } else if value.contains("://") && value.contains('@') {
            resolved.left_out.push(format!("{name}: it holds a password (--env {name} writes it down)"));
        } else if !value.is_empty() {
            resolved.env.insert(name.to_owned(), value);
        }
    }
    for name in extra {
        let value = std::env::var(name).with_context(|| format!("the variable {name} is not set"))?;
        if value.contains(['\n', '\r', '\0']) || !is_name(name) {
            bail!("the variable {name} cannot be written down: it has a line break, or its name is odd");
        }
        resolved.env.insert(name.clone(), value);
    }
    let path = path(resolved.env.get("PATH").map_or("", String::as_str));
    resolved.env.insert("PATH".into(), path);
    let home = std::env::home_dir().filter(|h| h.is_absolute()).context("there is no home folder")?;
    let home = home.into_os_string().into_string().ok().context("the home folder's name is not UTF-8")?;
    resolved.env.insert("HOME".into(), home);
    let user = user()?;
    for name in ["USER", "LOGNAME"] {
        resolved.env.entry(name.into()).or_insert_with(|| user.clone());
    }
    if !resolved.env.contains_key("LANG") && !resolved.env.contains_key("LC_ALL") {
        let lang = if cfg!(target_os = "macos") { "en_US.UTF-8" } else { "C.UTF-8" };
        resolved.env.insert("LANG".into(), lang.into());
    }
    Ok(resolved)
}

fn is_name(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// The folders of PATH that are there and mean the same everywhere, each once, and the system's own at the end.
fn path(path: &str) -> String {
    let mut folders: Vec<&str> = Vec::new();
    let system = ["/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin"];
    let given = path.split(':').filter(|f| f.starts_with('/') && Path::new(f).is_dir());
    for folder in given.chain(system) {
        if !folders.contains(&folder) {
            folders.push(folder);
        }
    }
    folders.join(":")
}

fn user() -> anyhow::Result<String> {
    let named = ["USER", "LOGNAME"].iter().find_map(|n| std::env::var(n).ok().filter(|v| !v.is_empty()));
    if let Some(name) = named {
        return Ok(name);
    }
    let said = Command::new("id").arg("-un").output().context("cannot ask who you are")?;
    let name = String::from_utf8(said.stdout).unwrap_or_default().trim().to_owned();
    if name.is_empty() { bail!("nobody says who you are: set USER") } else { Ok(name) }
}

/// This program, where its updates will be too: a link on PATH rather than what it points at.
fn binary() -> anyhow::Result<PathBuf> {
    let own = own_executable().context("cannot find this program")?;
    let found = find_executable("workspool").filter(|p| p.is_absolute());
    let same = found.filter(|p| p.canonicalize().ok() == own.canonicalize().ok());
    Ok(same.unwrap_or(own))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_keeps_what_is_there_once_and_ends_in_the_systems() {
        let dir = tempfile::tempdir().unwrap();
        let own = dir.path().to_str().unwrap();
        let made = path(&format!("{own}:relative:.:/no/such/folder:{own}:/usr/bin"));
        assert_eq!(made, format!("{own}:/usr/bin:/usr/local/bin:/bin:/usr/sbin:/sbin"));
    }

    #[test]
    fn who_and_where_are_always_there_and_odd_names_are_refused() {
        let resolved = resolve(&[]).unwrap();
        for name in ["PATH", "HOME", "USER", "LOGNAME"] {
            assert!(!resolved.env[name].is_empty(), "{name}");
        }
        assert!(resolved.env.contains_key("LANG") || resolved.env.contains_key("LC_ALL"));
        assert!(resolve(&["NO_SUCH_VARIABLE_HERE".into()]).is_err());
        assert!(is_name("A_1") && !is_name("1A") && !is_name("A B") && !is_name(""));
    }
}
