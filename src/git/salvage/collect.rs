//! Finds what of a tree git does not record by itself: ignored files, and repositories in the tree.

use super::super::bytes;
use super::super::snapshot::{LeftOut, Listing, populated};
use super::super::view::View;
use super::Limits;
use std::collections::{BTreeMap, HashSet};
use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

/// Reading many files takes its time.
pub(super) const DEADLINE: Duration = Duration::from_secs(1800);
/// What `.git` is called inside a salvage, since git takes no such name into a tree.
pub(super) const DOT_GIT: &str = ".workspool-dot-git";
/// More names than this are counted instead.
const NAMED: usize = 200;

/// A file or link that goes into `raw/`.
pub(super) struct Item {
    /// Where it is.
    pub from: PathBuf,
    /// Its path in `raw/`.
    pub to: PathBuf,
    /// Git's mode for it, if it is a file.
    pub mode: &'static str,
    /// Where it points, if it is a link.
    pub link: Option<PathBuf>,
}

/// What a walk found.
#[derive(Default)]
pub(super) struct Collected {
    pub raw: Vec<Item>,
    /// Paths that `add` must not take.
    pub except: Vec<PathBuf>,
    pub missing: Vec<LeftOut>,
    pub left_out: Vec<LeftOut>,
}

/// What a walk is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Taking {
    /// What git does not record.
    Rest,
    /// All of it, since git cannot record it.
    Everything,
}

/// Gives the owner the right to read what is there. What cannot be changed is found missing later.
pub(super) fn make_readable(tree: &Path) {
    let mut folders = vec![tree.to_owned()];
    while let Some(folder) = folders.pop() {
        let Ok(meta) = fs::symlink_metadata(&folder) else { continue };
        permit(&folder, &meta, 0o700);
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for entry in entries.filter_map(Result::ok) {
            match entry.metadata() {
                Ok(meta) if meta.is_dir() => folders.push(entry.path()),
                Ok(meta) if meta.is_file() => permit(&entry.path(), &meta, 0o400),
                _ => {}
            }
        }
    }
}

fn permit(path: &Path, meta: &Metadata, rights: u32) {
    let mode = meta.permissions().mode();
    if mode & rights != rights {
        let _ = fs::set_permissions(path, fs::Permissions::from_mode((mode | rights) & 0o7777));
    }
}

struct Walk<'a> {
    view: &'a View,
    /// By their bytes: to compare paths part by part takes long where there are many.
    recorded: HashSet<&'a OsStr>,
    untracked: HashSet<&'a OsStr>,
    secrets: &'a [PathBuf],
    limits: &'a Limits,
    taking: Taking,
    found: Collected,
    total: u64,
    /// Folders that can be made again, and how many files were passed over in each.
    worthless: BTreeMap<PathBuf, u64>,
    unnamed: u64,
}

/// Walks a tree once.
pub(super) fn walk(
    view: &View,
    listing: &Listing,
    secrets: &[PathBuf],
    limits: &Limits,
    taking: Taking,
) -> Collected {
    let tree = &view.record.tree.path;
    let untracked: HashSet<&OsStr> = listing.untracked.iter().map(|path| path.as_os_str()).collect();
    let recorded =
        listing.tracked.iter().map(|path| path.as_os_str()).chain(untracked.iter().copied()).collect();
    let mut walk = Walk {
        view,
        recorded,
        untracked,
        secrets,
        limits,
        taking,
        found: Collected::default(),
        total: 0,
        worthless: BTreeMap::new(),
        unnamed: 0,
    };
    walk.found.except = listing.repositories.clone();
    walk.found.except.extend(populated(tree, &listing.gitlinks));
    walk.folder(tree, Path::new(""), Path::new(""));
    let Walk { mut found, worthless, unnamed, .. } = walk;
    for (path, files) in worthless {
        let why = format!("can be made again ({files} files)");
        found.left_out.push(LeftOut { path, why });
    }
    if unnamed > 0 {
        let why = format!("{unnamed} more files");
        found.missing.push(LeftOut { path: PathBuf::new(), why });
    }
    found
}

impl Walk<'_> {
    /// Visits a folder that is at `at` on disk, at `path` in the tree, and goes to `to` in the salvage.
    fn folder(&mut self, at: &Path, path: &Path, to: &Path) {
        let entries = fs::read_dir(at).and_then(|entries| entries.collect::<Result<Vec<_>, _>>());
        let mut entries = match entries {
            Ok(entries) => entries,
            Err(e) => return self.miss(path, format!("cannot be read: {e}")),
        };
        entries.sort_by_key(std::fs::DirEntry::file_name);
        for entry in entries {
            let name = entry.file_name();
            let (from, path) = (entry.path(), path.join(&name));
            let is_git = name.eq_ignore_ascii_case(".git");
            let to = to.join(if is_git { DOT_GIT.as_ref() } else { name.as_os_str() });
            let meta = match fs::symlink_metadata(&from) {
                Ok(meta) => meta,
                Err(e) => {
                    self.miss(&path, format!("cannot be read: {e}"));
                    continue;
                }
            };
            if is_git && self.is_own(&from, &path, &meta) {
                continue;
            }
            if is_git && meta.is_file() {
                self.linked_repository(&from, &path, &to, &meta);
            } else if meta.is_dir() {
                self.folder(&from, &path, &to);
            } else {
                self.entry(&from, &path, &to, &meta);
            }
        }
    }

    /// Whether this is the tree's own git dir or the link to it.
    fn is_own(&self, from: &Path, path: &Path, meta: &Metadata) -> bool {
        path == Path::new(".git") && (meta.is_file() || from == self.view.record.tree.git_dir)
    }

    /// Takes a submodule's git dir along, which lies in our worktree's and goes with it.
    fn linked_repository(&mut self, from: &Path, path: &Path, to: &Path, meta: &Metadata) {
        let named = fs::read(from).ok().and_then(|line| {
            let line = line.strip_prefix(b"gitdir: ")?.trim_ascii_end().to_vec();
            from.parent()?.join(bytes::to_path(&line)).canonicalize().ok()
        });
        let ours = &self.view.record.tree.git_dir;
        match named {
            Some(dir) if dir.starts_with(ours) && dir != *ours => self.folder(&dir, path, to),
            _ => self.entry(from, path, to, meta),
        }
    }

    fn entry(&mut self, from: &Path, path: &Path, to: &Path, meta: &Metadata) {
        let kind = meta.file_type();
        if kind.is_fifo() || kind.is_socket() || kind.is_char_device() || kind.is_block_device() {
            return; // No content of its own.
        }
        let recorded = self.recorded.contains(path.as_os_str());
        if self.secrets.iter().any(|secret| path.starts_with(secret)) && !self.is_tracked(path) {
            if recorded {
                self.found.except.push(path.to_owned());
            }
            self.found.left_out.push(LeftOut { path: path.to_owned(), why: "was copied in".into() });
            return;
        }
        if recorded && self.taking == Taking::Rest {
            if self.untracked.contains(path.as_os_str()) && meta.len() > self.limits.file {
                self.found.except.push(path.to_owned());
                self.miss(path, format!("too large: {} bytes", meta.len()));
            }
            return;
        }
        if let Some(folder) = self.worthless_folder(path).filter(|_| !recorded) {
            *self.worthless.entry(folder).or_default() += 1;
            return;
        }
        if meta.len() > self.limits.file {
            return self.miss(path, format!("too large: {} bytes", meta.len()));
        }
        if self.total + meta.len() > self.limits.total || self.found.raw.len() >= self.limits.files {
            return self.miss(path, "more than a salvage takes".into());
        }
        let link = if kind.is_symlink() {
            match fs::read_link(from) {
                Ok(target) => Some(target),
                Err(e) => return self.miss(path, format!("cannot be read: {e}")),
            }
        } else {
            if let Err(e) = fs::File::open(from) {
                return self.miss(path, format!("cannot be read: {e}"));
            }
            None
        };
        self.total += meta.len();
        let mode = if meta.permissions().mode() & 0o100 != 0 { "100755" } else { "100644" };
        self.found.raw.push(Item { from: from.to_owned(), to: to.to_owned(), mode, link });
    }

    fn is_tracked(&self, path: &Path) -> bool {
        self.recorded.contains(path.as_os_str()) && !self.untracked.contains(path.as_os_str())
    }

    fn worthless_folder(&self, path: &Path) -> Option<PathBuf> {
        let mut folder = PathBuf::new();
        for part in path.parent()?.components() {
            folder.push(part);
            if let Component::Normal(name) = part
                && self.limits.worthless.iter().any(|w| name == w.as_str())
            {
                return Some(folder);
            }
        }
        None
    }

    fn miss(&mut self, path: &Path, why: String) {
        if self.found.missing.len() < NAMED {
            self.found.missing.push(LeftOut { path: path.to_owned(), why });
        } else {
            self.unnamed += 1;
        }
    }
}
