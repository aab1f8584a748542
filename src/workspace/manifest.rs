//! What a folder holds: the base for work where there is no git.

use crate::model::result::ChangedFile;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

/// Bytes that are hashed at most; beyond them size and time of change must do.
const HASH_BUDGET: u64 = 2 * 1024 * 1024 * 1024;
/// Entries that are listed at most.
const MAX_ENTRIES: usize = 200_000;

/// All files and links below a folder, by relative path.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    entries: BTreeMap<String, Entry>,
    /// Whether there were more entries than are listed.
    #[serde(default)]
    pub cut: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    mode: u32,
    size: u64,
    /// SHA-256, or the time of change where too much would have to be read.
    content: String,
}

impl Manifest {
    /// Looks at a folder. `.git` folders are passed over; links are not followed.
    pub fn of(root: &Path) -> io::Result<Self> {
        let mut manifest = Manifest::default();
        let mut budget = HASH_BUDGET;
        let walk = walkdir::WalkDir::new(root).min_depth(1).sort_by_file_name();
        for entry in walk.into_iter().filter_entry(|e| e.file_name() != ".git") {
            let entry = entry.map_err(io::Error::from)?;
            if entry.file_type().is_dir() {
                continue;
            }
            if manifest.entries.len() >= MAX_ENTRIES {
                manifest.cut = true;
                break;
            }
            let meta = entry.metadata().map_err(io::Error::from)?;
            let content = if meta.is_symlink() {
                format!("link:{}", shown(fs::read_link(entry.path())?.as_os_str().as_bytes()))
            } else if meta.is_file() && meta.len() <= budget {
                budget -= meta.len();
                hash_file(entry.path())?
            } else {
                format!("time:{}.{:09}", meta.mtime(), meta.mtime_nsec())
            };
            let path = entry.path().strip_prefix(root).unwrap_or(entry.path());
            manifest.entries.insert(
                shown(path.as_os_str().as_bytes()),
                Entry { mode: meta.permissions().mode(), size: meta.len(), content },
            );
        }
        Ok(manifest)
    }

    /// What changed from `before` to this.
    pub fn since(&self, before: &Manifest) -> Vec<ChangedFile> {
        let made = |path: &String, change: &str| ChangedFile {
            path: path.clone(),
            change: change.to_owned(),
            added: None,
            removed: None,
        };
        let mut changed: Vec<ChangedFile> = Vec::new();
        for (path, entry) in &self.entries {
            match before.entries.get(path) {
                None => changed.push(made(path, "added")),
                Some(old) if old != entry => changed.push(made(path, "modified")),
                Some(_) => {}
            }
        }
        changed.extend(
            before.entries.keys().filter(|p| !self.entries.contains_key(*p)).map(|p| made(p, "deleted")),
        );
        changed.sort_by(|a, b| a.path.cmp(&b.path));
        changed
    }
}

/// SHA-256 of a file, read in pieces.
pub fn hash_file(path: &Path) -> io::Result<String> {
    Ok(hash_open(&fs::File::open(path)?)?.1)
}

/// Length and SHA-256 of a file that was just opened.
pub fn hash_open(mut file: &fs::File) -> io::Result<(u64, String)> {
    let mut hash = Sha256::new();
    let mut length = 0;
    // Most are small. One more, so that the end is seen with the first piece.
    let size = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
    let mut piece = vec![0; size.saturating_add(1).clamp(1 << 10, 128 << 10)];
    loop {
        match io::Read::read(&mut file, &mut piece)? {
            0 => return Ok((length, crate::model::hex(&hash.finalize()))),
            n => {
                hash.update(&piece[..n]);
                length += n as u64;
            }
        }
    }
}

/// A path as text: bytes that are not UTF-8 become `\xNN`.
pub fn shown(path: &[u8]) -> String {
    let mut out = String::new();
    for chunk in path.utf8_chunks() {
        out.push_str(chunk.valid());
        for byte in chunk.invalid() {
            out.push_str(&format!("\\x{byte:02x}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_added_changed_and_removed_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir(at("sub")).unwrap();
        for name in ["same", "changed", "gone", "sub/mode"] {
            fs::write(at(name), "one").unwrap();
        }
        let before = Manifest::of(dir.path()).unwrap();
        fs::write(at("changed"), "two").unwrap();
        fs::remove_file(at("gone")).unwrap();
        fs::set_permissions(at("sub/mode"), fs::Permissions::from_mode(0o755)).unwrap();
        std::os::unix::fs::symlink("/etc", at("new")).unwrap();
        let changed = Manifest::of(dir.path()).unwrap().since(&before);
        let list: Vec<_> = changed.iter().map(|c| (c.path.as_str(), c.change.as_str())).collect();
        assert_eq!(
            list,
            [("changed", "modified"), ("gone", "deleted"), ("new", "added"), ("sub/mode", "modified")]
        );
    }

    #[test]
    fn names_that_are_not_utf8_are_shown() {
        assert_eq!(shown(b"a\xffb"), "a\\xffb");
    }
}
