//! What a worker finds on the disk when it starts: folders of its own, with the user's sign-in linked into
//! them by path, and files made from the profile's templates.

use super::fill;
use super::invoke::Values;
use crate::durable;
use crate::model::Profile;
use crate::model::profile::PrivateDir;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

/// The variables that name the private folders of a worker.
pub fn variables(profile: &Profile, values: &Values) -> BTreeMap<String, String> {
    let path = |variable: &String| values.private_dir.join(variable).to_string_lossy().into_owned();
    profile.private_dirs.keys().map(|variable| (variable.clone(), path(variable))).collect()
}

/// Makes the private folders and the files of a worker.
///
/// A task keeps its private folders over all its attempts, since sessions lie in them. Nothing of the user's
/// is read or copied: what is to be shared is a link.
pub fn prepare(profile: &Profile, values: &Values) -> io::Result<()> {
    if uses_private_dir(profile) {
        durable::ensure_dir(&values.private_dir)?;
    }
    for (variable, dir) in &profile.private_dirs {
        let path = values.private_dir.join(variable);
        durable::ensure_dir(&path)?;
        link_all(variable, dir, &path)?;
    }
    if !profile.files.is_empty() {
        let root = values.files_dir();
        for (name, template) in &profile.files {
            let path = root.join(name);
            durable::ensure_dir(path.parent().unwrap_or(&root))?;
            let text = fill::fill_all(std::slice::from_ref(template), profile, values)?.concat();
            durable::replace_unsynced(&path, text.as_bytes())?;
        }
    }
    Ok(())
}

/// Whether a profile has anything in a private folder.
pub fn uses_private_dir(profile: &Profile) -> bool {
    let named = |text: &String| text.contains("{private_dir}");
    !profile.private_dirs.is_empty() || profile.env.values().any(named) || profile.command.iter().any(named)
}

fn link_all(variable: &str, dir: &PrivateDir, path: &Path) -> io::Result<()> {
    let theirs = std::env::var_os(variable).filter(|v| !v.is_empty()).map(PathBuf::from);
    let Some(from) = theirs.or_else(|| dir.from.as_deref().and_then(expand)) else { return Ok(()) };
    for name in &dir.link {
        link(&from.join(name), &path.join(name))?;
    }
    Ok(())
}

/// Puts a link to `target` at `path`. One that leads elsewhere is replaced; a file that the program itself
/// has put there stays.
fn link(target: &Path, path: &Path) -> io::Result<()> {
    match path.symlink_metadata() {
        Ok(meta) if !meta.is_symlink() => return Ok(()),
        Ok(_) if fs::read_link(path)? == *target && target.exists() => return Ok(()),
        Ok(_) => durable::remove_file(path)?,
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(e),
    }
    if !target.exists() {
        // A program that finds a link without an end takes it for a broken sign-in.
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        durable::ensure_dir(parent)?;
    }
    durable::fault::point("symlink")?;
    std::os::unix::fs::symlink(target, path)
}

/// The path that a profile means: absolute, or beginning with `~/` or `$NAME/`. `None` where the variable is
/// not set, or there is no home.
pub fn expand(text: &str) -> Option<PathBuf> {
    let (first, rest) = text.split_once('/').unwrap_or((text, ""));
    let root = match first.strip_prefix('$') {
        Some(name) => std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from)?,
        None if first == "~" => std::env::home_dir().filter(|h| !h.as_os_str().is_empty())?,
        None => return text.starts_with('/').then(|| PathBuf::from(text)),
    };
    Some(root.join(rest))
}

/// Whether a path is relative and stays where it is put.
pub(super) fn is_plain(path: &str) -> bool {
    !path.is_empty() && Path::new(path).components().all(|c| matches!(c, Component::Normal(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(json: serde_json::Value) -> Profile {
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn files_are_made_from_templates_and_values_cannot_break_out_of_json() {
        let dir = tempfile::tempdir().unwrap();
        let p = profile(serde_json::json!({
            "name": "a", "command": ["agent"],
            "files": { "conf/model.json": "{\"model\": {model:json}, \"from\": \"{probe}\"}" }
        }));
        let values = Values {
            attempt_dir: dir.path().to_owned(),
            model: Some("x\", \"evil\": \"{probe}".into()),
            probe: Some("here".into()),
            ..Values::default()
        };
        prepare(&p, &values).unwrap();
        assert!(variables(&p, &values).is_empty());
        let text = fs::read_to_string(dir.path().join("files/conf/model.json")).unwrap();
        let read: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(read, serde_json::json!({ "model": "x\", \"evil\": \"{probe}", "from": "here" }));
    }

    #[test]
    fn a_sign_in_is_linked_and_what_the_program_wrote_itself_stays() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().join("home");
        fs::create_dir_all(home.join("sub")).unwrap();
        fs::write(home.join("auth.json"), "secret").unwrap();
        let p = profile(serde_json::json!({
            "name": "a", "command": ["agent"],
            "private_dirs": { "SURELY_UNSET_HOME": { "from": home, "link": ["auth.json", "sub/none.json"] } }
        }));
        let values = Values { private_dir: dir.path().join("private"), ..Values::default() };
        prepare(&p, &values).unwrap();
        let own = PathBuf::from(&variables(&p, &values)["SURELY_UNSET_HOME"]);
        assert_eq!(own, dir.path().join("private/SURELY_UNSET_HOME"));
        assert_eq!(fs::read_link(own.join("auth.json")).unwrap(), home.join("auth.json"));
        assert!(own.join("sub/none.json").symlink_metadata().is_err(), "no link without an end");

        // A later attempt finds what the first one left, and a sign-in that came meanwhile.
        fs::write(own.join("session"), "1").unwrap();
        fs::write(home.join("sub/none.json"), "2").unwrap();
        prepare(&p, &values).unwrap();
        assert_eq!(fs::read_to_string(own.join("session")).unwrap(), "1");
        assert!(own.join("sub/none.json").is_symlink());

        fs::remove_file(own.join("auth.json")).unwrap();
        fs::write(own.join("auth.json"), "renewed").unwrap();
        fs::remove_file(home.join("sub/none.json")).unwrap();
        prepare(&p, &values).unwrap();
        assert_eq!(fs::read_to_string(own.join("auth.json")).unwrap(), "renewed");
        assert_eq!(fs::read_to_string(home.join("auth.json")).unwrap(), "secret");
        assert!(own.join("sub/none.json").symlink_metadata().is_err(), "signed out");
    }

    #[test]
    fn paths_are_expanded_by_home_and_by_variables() {
        let home = std::env::home_dir().unwrap();
        assert_eq!(expand("~/.x/y"), Some(home.join(".x/y")));
        assert_eq!(expand("$HOME/.x"), Some(home.join(".x")));
        assert_eq!(expand("/etc/x"), Some("/etc/x".into()));
        assert_eq!(expand("$SURELY_UNSET_HOME/x"), None);
        assert_eq!(expand("relative"), None);
        assert!(is_plain("a/b") && !is_plain("../a") && !is_plain("/a") && !is_plain(""));
    }
}
