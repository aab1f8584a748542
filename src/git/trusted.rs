//! What a view trusts: copies of what decides content, made before anything foreign runs.

use super::bytes;
use super::config::{self, Entry};
use super::index;
use super::oid::ObjectFormat;
use super::view::{RECORD, Record};
use crate::durable;
use crate::model::hex;
use sha2::{Digest as _, Sha256};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Writes the parts of a view of `record.tree`, whose settings are `entries`.
pub(super) fn write(dir: &Path, record: &mut Record, entries: &[Entry]) -> io::Result<()> {
    let (tree, common) = (&record.tree, &record.common);
    let info = dir.join("info");
    durable::ensure_dir(&info)?;
    durable::ensure_dir(&dir.join("refs"))?;
    let put = |name: &str, bytes: &[u8]| durable::replace_unsynced(&dir.join(name), bytes);
    put("HEAD", format!("{}\n", record.base).as_bytes())?;
    let kept = |from: PathBuf, to: &str| match fs::read(from) {
        Ok(bytes) => put(to, &bytes),
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(()),
        Err(e) => Err(e),
    };
    kept(common.join("info/exclude"), "info/exclude")?;
    kept(common.join("info/attributes"), "info/attributes")?;
    kept(tree.git_dir.join("info/sparse-checkout"), "info/sparse-checkout")?;
    kept(common.join("shallow"), "shallow")?;
    // Copies, too: they may lie where a worker can write.
    for (key, default, name) in
        [("core.excludesfile", "ignore", "excludes"), ("core.attributesfile", "attributes", "attributes")]
    {
        put(name, b"")?;
        if let Some(path) = user_file(entries, &tree.path, key, default) {
            kept(path, name)?;
        }
    }
    put("config", &view_config(dir, record, entries))?;
    index::copy(&tree.git_dir.join("index"), &dir.join("index"))?;
    record.rules = rules(entries, &["attributes", "info/attributes"].map(|name| dir.join(name)))?;
    let record = serde_json::to_vec_pretty(record)?;
    put(RECORD, &record)
}

/// The file that a setting names, or its usual place.
pub(super) fn user_file(entries: &[Entry], tree: &Path, key: &str, default: &str) -> Option<PathBuf> {
    let named = entries.iter().rev().find(|e| e.key == key).and_then(|e| e.value.as_deref());
    match named {
        Some(path) => from_home(path).map(|p| tree.join(p)),
        None => config_home().map(|home| home.join("git").join(default)),
    }
}

/// Hash of what decides, beside a commit, which bytes its files have: settings, and files of attributes and of
/// patterns, as far as they are there.
pub(super) fn rules(entries: &[Entry], files: &[PathBuf]) -> io::Result<String> {
    let mut hash = Sha256::new();
    let mut add = |what: &[u8]| {
        hash.update(what.len().to_le_bytes());
        hash.update(what);
    };
    add(&config::write(&content_entries(entries).0));
    for file in files {
        match fs::read(file) {
            Ok(text) => add(&text),
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => add(b""),
            Err(e) => return Err(e),
        }
    }
    Ok(hex(&hash.finalize()))
}

/// The settings that decide content, and whether there is a remote that a partial clone must fetch from.
/// Other remotes are not among them.
pub(super) fn content_entries(entries: &[Entry]) -> (Vec<Entry>, bool) {
    let is_true = |e: &Entry| e.value.as_deref().is_none_or(|v| v.eq_ignore_ascii_case(b"true"));
    let promisors: Vec<&str> = entries
        .iter()
        .filter_map(|e| match e.parts() {
            ("remote", Some(remote), "promisor") if is_true(e) => Some(remote),
            _ => None,
        })
        .collect();
    let kept = entries
        .iter()
        .filter(|e| config::decides_content(e))
        .filter(|e| match e.parts() {
            ("remote", Some(remote), _) => promisors.contains(&remote),
            _ => true,
        })
        .cloned()
        .collect();
    (kept, !promisors.is_empty())
}

/// Composes the configuration: what decides content, and where our own files are.
fn view_config(dir: &Path, record: &Record, entries: &[Entry]) -> Vec<u8> {
    let (mut kept, partial) = content_entries(entries);
    let mut set = |key: &str, value: &[u8]| kept.push(Entry { key: key.into(), value: Some(value.to_vec()) });
    let extended = record.format == ObjectFormat::Sha256 || partial;
    set("core.repositoryformatversion", if extended { b"1" } else { b"0" });
    set("core.bare", b"false");
    if record.format == ObjectFormat::Sha256 {
        set("extensions.objectformat", b"sha256");
    }
    // git-lfs would keep the content of new files in the view, where accept does not look for it.
    if entries.iter().any(|e| e.key == "filter.lfs.clean") && !entries.iter().any(|e| e.key == "lfs.storage")
    {
        set("lfs.storage", bytes::of_path(&record.common.join("lfs")));
    }
    kept.extend(own_files(dir));
    config::write(&kept)
}

/// The settings that name files of the view itself.
pub(super) fn own_files(dir: &Path) -> [Entry; 2] {
    let entry = |key: &str, name: &str| Entry {
        key: key.into(),
        value: Some(bytes::of_path(&dir.join(name)).to_vec()),
    };
    [entry("core.excludesfile", "excludes"), entry("core.attributesfile", "attributes")]
}

pub(super) fn from_home(path: &[u8]) -> Option<PathBuf> {
    match path.strip_prefix(b"~/") {
        Some(rest) => std::env::home_dir().map(|home| home.join(bytes::to_path(rest))),
        None => Some(bytes::to_path(path)),
    }
}

fn config_home() -> Option<PathBuf> {
    let named = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from).filter(|p| p.is_absolute());
    named.or_else(|| std::env::home_dir().map(|home| home.join(".config")))
}
