//! What a worker shares with the user, before and after.
//!
//! A worktree shares configuration, hooks, attributes and refs with the user's checkout. A guard
//! remembers them before the worker starts and says afterwards what is different. Settings and hooks
//! that can execute are put back; the rest is only named, since the user may have changed it. The
//! guard is data: whoever takes it keeps it, and its [`hash`](Guard::hash), where no worker can write.

use super::bytes;
use super::config::{self, Entry};
use super::refs;
use super::repo::Repo;
use super::runner::{GitError, GitErrorKind};
use crate::durable;
use crate::model::hex;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// One difference in shared state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tampering {
    /// What differs, for a person.
    pub what: String,
    /// Whether git could be made to run something, or to read other settings, by it.
    pub executable: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum Kept {
    File {
        #[serde(with = "bytes")]
        content: Vec<u8>,
        mode: u32,
    },
    Link {
        #[serde(with = "bytes::path")]
        to: PathBuf,
    },
    /// Larger than is kept whole; it can be compared and not put back.
    Hash { sha256: String },
}

/// Shared state as it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guard {
    #[serde(with = "bytes::path")]
    common: PathBuf,
    #[serde(with = "bytes::path")]
    git_dir: PathBuf,
    /// The task's own branch, which may move.
    branch: String,
    /// By absolute path, as text that JSON can hold.
    config: BTreeMap<String, Kept>,
    hooks: BTreeMap<String, Kept>,
    info: BTreeMap<String, Kept>,
    head: Option<Kept>,
    index: Option<Kept>,
    #[serde(with = "bytes")]
    refs: Vec<u8>,
}

/// A hook or configuration file larger than this is compared by hash.
const KEPT_WHOLE: u64 = 4 << 20;

impl Guard {
    /// Remembers the state that a task on `branch` shares with the checkout of `repo`.
    pub fn take(repo: &Repo, branch: &str) -> Result<Guard, GitError> {
        let failed = |e: io::Error| GitError::io("guard", &repo.common.display().to_string(), &e);
        let (common, git_dir) = (&repo.common, &repo.git_dir);
        let mut guard = Guard {
            common: common.clone(),
            git_dir: git_dir.clone(),
            branch: branch.to_owned(),
            config: BTreeMap::new(),
            hooks: BTreeMap::new(),
            info: BTreeMap::new(),
            head: None,
            index: None,
            refs: refs::listing(repo)?,
        };
        guard.read_files().map_err(failed)?;
        Ok(guard)
    }

    fn read_files(&mut self) -> io::Result<()> {
        for path in config_files(&self.common, &self.git_dir) {
            insert(&mut self.config, &path)?;
        }
        for name in ["attributes", "exclude", "grafts", "sparse-checkout"] {
            insert(&mut self.info, &self.common.join("info").join(name))?;
        }
        insert(&mut self.info, &self.common.join("objects/info/alternates"))?;
        let hooks = self.common.join("hooks");
        if fs::symlink_metadata(&hooks).is_ok_and(|m| m.is_symlink()) {
            insert(&mut self.hooks, &hooks)?;
        } else if let Ok(entries) = fs::read_dir(&hooks) {
            for entry in entries {
                insert(&mut self.hooks, &entry?.path())?;
            }
        }
        self.head = read(&self.git_dir.join("HEAD"))?;
        let index = self.git_dir.join("index");
        self.index = match fs::read(&index) {
            Ok(content) => Some(Kept::Hash { sha256: sha256(&content) }),
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            Err(e) => return Err(e),
        };
        Ok(())
    }

    /// Returns a hash of what the guard remembers.
    pub fn hash(&self) -> String {
        sha256(&serde_json::to_vec(self).unwrap_or_default())
    }

    /// Says what is different now.
    pub fn check(&self, repo: &Repo) -> Result<Vec<Tampering>, GitError> {
        let repo = Repo { common: self.common.clone(), git_dir: self.git_dir.clone(), ..repo.clone() };
        let now = Guard::take(&repo, &self.branch)?;
        let mut found = Vec::new();
        for (path, old, new) in differing(&self.config, &now.config) {
            self.config_differs(&repo, path, old, new, &mut found)?;
        }
        let mut say = |what: String, executable| found.push(Tampering { what, executable });
        for (path, _, new) in differing(&self.hooks, &now.hooks) {
            // A hook that was removed is put back too: a check of the user's would be gone.
            let word = if new.is_some() { "changed or added" } else { "removed" };
            say(format!("hook {} was {word}", shown(path).display()), true);
        }
        for (path, _, _) in differing(&self.info, &now.info) {
            say(format!("{} was changed", shown(path).display()), false);
        }
        if self.head != now.head {
            say("HEAD of the checkout was changed".into(), false);
        }
        if self.index != now.index {
            say("the index of the checkout was changed".into(), false);
        }
        let refs = (ref_map(&self.refs, &self.branch), ref_map(&now.refs, &self.branch));
        for (name, _, _) in differing(&refs.0, &refs.1) {
            say(format!("{} was changed", String::from_utf8_lossy(name)), false);
        }
        Ok(found)
    }

    fn config_differs(
        &self,
        repo: &Repo,
        path: &str,
        old: Option<&Kept>,
        new: Option<&Kept>,
        found: &mut Vec<Tampering>,
    ) -> Result<(), GitError> {
        let place = shown(path);
        let (Some(old), Some(new)) = (entries(repo, old)?, entries(repo, new)?) else {
            found.push(Tampering { what: format!("{} was changed", place.display()), executable: true });
            return Ok(());
        };
        let before = found.len();
        for entry in old.iter().filter(|e| !new.contains(e)).chain(new.iter().filter(|e| !old.contains(e))) {
            let what = format!("{} in {} was changed", entry.key, place.display());
            let tampering = Tampering { what, executable: config::can_execute(entry) };
            if !found.contains(&tampering) {
                found.push(tampering);
            }
        }
        if found.len() == before {
            found.push(Tampering { what: format!("{} was rewritten", place.display()), executable: false });
        }
        Ok(())
    }

    /// Puts back configuration and hooks if something in them that can execute was changed.
    ///
    /// What is replaced is first copied into `keep`, so that a change of the user's is not lost.
    /// Returns what was put back.
    pub fn revert_executable(&self, repo: &Repo, keep: &Path) -> Result<Vec<Tampering>, GitError> {
        let found: Vec<Tampering> =
            self.check(repo)?.into_iter().filter(|tampering| tampering.executable).collect();
        if found.is_empty() {
            return Ok(found);
        }
        let repo = Repo { common: self.common.clone(), git_dir: self.git_dir.clone(), ..repo.clone() };
        let now = Guard::take(&repo, &self.branch)?;
        let named = |path: &str| found.iter().any(|t| t.what.contains(&*shown(path).to_string_lossy()));
        let failed = |e: io::Error| GitError::io("guard", &repo.common.display().to_string(), &e);
        let all = differing(&self.config, &now.config).into_iter().chain(differing(&self.hooks, &now.hooks));
        for (path, old, new) in all.filter(|(path, _, _)| named(path)) {
            put_back(&shown(path), old, new.is_some(), keep).map_err(failed)?;
        }
        Ok(found)
    }
}

fn config_files(common: &Path, git_dir: &Path) -> Vec<PathBuf> {
    let mut files = vec![common.join("config"), common.join("config.worktree")];
    if git_dir != common {
        files.push(git_dir.join("config.worktree"));
    }
    files
}

/// Lists the settings in a configuration file as it was, includes named and not followed.
fn entries(repo: &Repo, kept: Option<&Kept>) -> Result<Option<Vec<Entry>>, GitError> {
    let content = match kept {
        None => return Ok(Some(Vec::new())),
        Some(Kept::File { content, .. }) => content.clone(),
        Some(_) => return Ok(None),
    };
    let listed = repo
        .shared()
        .reads("config")
        .args(["--file", "-", "--no-includes", "--list", "-z"])
        .stdin(content)
        .run();
    match listed {
        Ok(out) => Ok(Some(out.split(|b| *b == 0).filter(|e| !e.is_empty()).map(config::parse).collect())),
        Err(e) if e.kind == GitErrorKind::Other && e.status.is_some() => Ok(None),
        Err(e) => Err(e),
    }
}

fn put_back(path: &Path, old: Option<&Kept>, is_there: bool, keep: &Path) -> io::Result<()> {
    if is_there {
        durable::ensure_dir(keep)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let aside = keep.join(format!("{name}.{}", durable::unique_name().trim_matches('.')));
        match fs::symlink_metadata(path)? {
            meta if meta.is_file() => durable::replace(&aside, &fs::read(path)?)?,
            meta if meta.is_symlink() => std::os::unix::fs::symlink(fs::read_link(path)?, &aside)?,
            _ => durable::rename_noreplace(path, &aside)?,
        }
    }
    match old {
        None => durable::remove_file(path),
        Some(Kept::File { content, mode }) => {
            durable::replace(path, content)?;
            fs::set_permissions(path, fs::Permissions::from_mode(*mode))
        }
        Some(Kept::Link { to }) => {
            durable::remove_file(path)?;
            std::os::unix::fs::symlink(to, path)
        }
        Some(Kept::Hash { .. }) => Err(io::Error::other(format!("{} was too large to keep", path.display()))),
    }
}

fn insert(map: &mut BTreeMap<String, Kept>, path: &Path) -> io::Result<()> {
    if let Some(kept) = read(path)? {
        map.insert(bytes::of_path(path).iter().map(|b| char::from(*b)).collect(), kept);
    }
    Ok(())
}

/// Turns a key of a map back into the path that it stands for.
fn shown(key: &str) -> PathBuf {
    let path: Vec<u8> = key.chars().filter_map(|c| u8::try_from(c).ok()).collect();
    bytes::to_path(&path)
}

fn read(path: &Path) -> io::Result<Option<Kept>> {
    let meta = match fs::symlink_metadata(path) {
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        other => other?,
    };
    if meta.is_symlink() {
        return Ok(Some(Kept::Link { to: fs::read_link(path)? }));
    }
    if !meta.is_file() {
        return Ok(Some(Kept::Hash { sha256: format!("not a file: {:?}", meta.file_type()) }));
    }
    let content = fs::read(path)?;
    if meta.len() > KEPT_WHOLE {
        return Ok(Some(Kept::Hash { sha256: sha256(&content) }));
    }
    Ok(Some(Kept::File { content, mode: meta.permissions().mode() & 0o7777 }))
}

fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// The refs that a task must not move: all but those of ours.
fn ref_map(listing: &[u8], branch: &str) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut refs = BTreeMap::new();
    for line in listing.split(|b| *b == b'\n') {
        let mut words = line.splitn(3, |b| *b == b' ');
        let (Some(oid), Some(name)) = (words.next(), words.next()) else { continue };
        let ours = name.starts_with(super::REFS.as_bytes())
            || name.starts_with(super::BRANCHES.as_bytes())
            || name == branch.as_bytes();
        if !ours {
            let symref = words.next().unwrap_or_default();
            refs.insert(name.to_vec(), [oid, b" ", symref].concat());
        }
    }
    refs
}

type Differing<'a, K, V> = Vec<(&'a K, Option<&'a V>, Option<&'a V>)>;

fn differing<'a, K: Ord, V: PartialEq>(
    old: &'a BTreeMap<K, V>,
    new: &'a BTreeMap<K, V>,
) -> Differing<'a, K, V> {
    let mut found = Vec::new();
    for (key, value) in old {
        if new.get(key) != Some(value) {
            found.push((key, Some(value), new.get(key)));
        }
    }
    found.extend(new.iter().filter(|(key, _)| !old.contains_key(*key)).map(|(k, v)| (k, None, Some(v))));
    found
}
