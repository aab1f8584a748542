//! A copy of a folder: looked at in full first, so that what is too much is refused before a byte is
//! written, then written. The source is only read.

use crate::durable::{self, GoOn};
use crate::git;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Component, Path, PathBuf};

/// How often a file that is written while it is copied is copied again.
const AGAIN: u32 = 3;
/// More names than this are counted instead.
const NAMED: usize = 20;

/// What a copy may take.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    /// Bytes.
    pub bytes: u64,
    /// Files and links.
    pub files: u64,
}

/// Why a folder is not copied.
#[derive(Debug, thiserror::Error)]
pub enum NotCopied {
    /// It is too much.
    #[error("{} holds {what} than a copy takes ({most}), caches left out\n  hint: name a smaller folder, use a worktree, or raise `{key}` in config.toml", .folder.display())]
    TooMuch {
        /// The folder.
        folder: PathBuf,
        /// More of what.
        what: &'static str,
        /// The limit.
        most: u64,
        /// The key that says so.
        key: &'static str,
    },
    /// It cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// What.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Folders that are made again by a build or an installation: they are not copied.
pub fn caches() -> Vec<String> {
    git::Limits::default().worthless
}

/// What is in a folder.
#[derive(Debug, Default)]
pub struct Found {
    folders: Vec<(PathBuf, u32)>,
    files: Vec<PathBuf>,
    links: Vec<(PathBuf, PathBuf)>,
    /// Bytes of all files.
    pub bytes: u64,
    /// What the copy lacks.
    pub left_out: LeftOut,
}

/// What is not copied, by reason.
#[derive(Debug, Default)]
pub struct LeftOut {
    reasons: Vec<(&'static str, Vec<PathBuf>, usize)>,
}

impl LeftOut {
    fn add(&mut self, path: &Path, why: &'static str) {
        let at = match self.reasons.iter().position(|(known, ..)| *known == why) {
            Some(at) => at,
            None => {
                self.reasons.push((why, Vec::new(), 0));
                self.reasons.len() - 1
            }
        };
        let (_, named, more) = &mut self.reasons[at];
        if named.len() < NAMED { named.push(path.to_owned()) } else { *more += 1 }
    }

    /// In words, a line for each reason.
    pub fn lines(&self) -> Vec<String> {
        let line = |(why, named, more): &(&str, Vec<PathBuf>, usize)| {
            let names: Vec<String> = named.iter().map(|p| p.display().to_string()).collect();
            let more = if *more > 0 { format!(" and {more} more") } else { String::new() };
            format!("not copied, {why}: {}{more}", names.join(", "))
        };
        self.reasons.iter().map(line).collect()
    }
}

/// Looks at a folder. What lies in one of `but` (absolute paths) is passed over.
pub fn look(from: &Path, but: &[&Path], budget: Budget, go_on: GoOn<'_>) -> Result<Found, NotCopied> {
    let unreadable = |path: &Path, source| NotCopied::Read { path: path.to_owned(), source };
    let root = from.canonicalize().map_err(|e| unreadable(from, e))?;
    let caches = caches();
    let mut found = Found::default();
    let mut walk = walkdir::WalkDir::new(&root).min_depth(1).sort_by_file_name().into_iter();
    while let Some(entry) = walk.next() {
        go_on().map_err(|e| unreadable(&root, e))?;
        let entry = match entry {
            Ok(entry) => entry,
            Err(e) => {
                let path = e.path().unwrap_or(&root).to_owned();
                if path == root {
                    return Err(unreadable(&path, e.into()));
                }
                if e.io_error().is_none_or(|e| e.kind() != io::ErrorKind::NotFound) {
                    found.left_out.add(relative(&root, &path), "cannot be read");
                }
                continue;
            }
        };
        let path = entry.path();
        let kind = entry.file_type();
        let name = entry.file_name();
        let inside = relative(&root, path);
        if name.eq_ignore_ascii_case(".git") {
            if kind.is_dir() {
                walk.skip_current_dir();
            }
        } else if kind.is_dir() {
            let why = if but.contains(&path) {
                Some("belongs to the spool")
            } else if caches.iter().any(|c| name == c.as_str()) {
                Some("can be made again")
            } else if fs::symlink_metadata(path.join(".git")).is_ok() {
                Some("a repository of its own")
            } else {
                None
            };
            match why {
                Some(why) => {
                    found.left_out.add(inside, why);
                    walk.skip_current_dir();
                }
                None => {
                    let mode = entry.metadata().map_or(0o700, |m| m.permissions().mode());
                    found.folders.push((inside.to_owned(), mode));
                }
            }
        } else if kind.is_symlink() {
            match fs::read_link(path) {
                Ok(target) if stays_inside(&root, path, &target) => {
                    found.links.push((inside.to_owned(), target));
                }
                Ok(_) => found.left_out.add(inside, "a link that leads out"),
                Err(_) => found.left_out.add(inside, "cannot be read"),
            }
        } else if kind.is_file() {
            found.bytes += entry.metadata().map_or(0, |m| m.len());
            found.files.push(inside.to_owned());
        } else {
            found.left_out.add(inside, "neither a file nor a folder");
        }
        let too_much = |what, most, key| NotCopied::TooMuch { folder: from.to_owned(), what, most, key };
        if (found.files.len() + found.links.len()) as u64 > budget.files {
            return Err(too_much("more files", budget.files, "disk.copy_files"));
        }
        if found.bytes > budget.bytes {
            return Err(too_much("more bytes", budget.bytes, "disk.copy_bytes"));
        }
    }
    Ok(found)
}

/// Writes what was found into `to`, where nothing may be. `go_on` is asked again and again, also inside a large file, and
/// stops it by failing. What cannot be read is added to what is left out.
pub fn write(found: &mut Found, from: &Path, to: &Path, go_on: GoOn<'_>) -> io::Result<()> {
    durable::ensure_dir(to)?;
    for (path, _) in &found.folders {
        fs::create_dir(to.join(path))?;
    }
    for path in &found.files {
        match copy_file(&from.join(path), &to.join(path), go_on) {
            // It was removed since.
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
                found.left_out.add(path, "cannot be read");
            }
            Err(e) => return Err(e),
            Ok(true) => {}
            Ok(false) => found.left_out.add(path, "whole, since it was being written"),
        }
    }
    for (path, target) in &found.links {
        std::os::unix::fs::symlink(target, to.join(path))?;
    }
    for (path, mode) in &found.folders {
        // A worker must be able to work there.
        fs::set_permissions(to.join(path), fs::Permissions::from_mode(mode & 0o777 | 0o700))?;
    }
    Ok(())
}

/// Copies a file with its permissions and time. `false`: it changed each time that it was copied.
fn copy_file(from: &Path, to: &Path, go_on: GoOn<'_>) -> io::Result<bool> {
    let mut whole = false;
    for _ in 0..AGAIN {
        let before = fs::symlink_metadata(from)?;
        if !before.is_file() {
            return Err(io::ErrorKind::NotFound.into());
        }
        let copied = durable::copy_file(from, to, go_on);
        if copied.is_err() {
            let _ = fs::remove_file(to);
        }
        copied?;
        let mode = before.permissions().mode();
        if mode & 0o7000 != 0 || mode & 0o600 != 0o600 {
            fs::set_permissions(to, fs::Permissions::from_mode(mode & 0o777 | 0o600))?;
        }
        let after = fs::symlink_metadata(from)?;
        whole = after.modified()? == before.modified()? && after.len() == before.len();
        if whole {
            File::options().write(true).open(to)?.set_modified(before.modified()?)?;
            fs::set_permissions(to, fs::Permissions::from_mode(mode & 0o777))?;
            break;
        }
    }
    Ok(whole)
}

/// Whether a link leads nowhere but into the folder: as it is written, and as it stands.
fn stays_inside(root: &Path, link: &Path, target: &Path) -> bool {
    let depth = relative(root, link).components().count().saturating_sub(1);
    let mut up = 0;
    let mut down = false;
    for part in target.components() {
        match part {
            // Only at the start: behind a name it could leave through another link.
            Component::ParentDir if !down => up += 1,
            Component::Normal(_) => down = true,
            Component::CurDir => {}
            _ => return false,
        }
    }
    let stands = link.parent().map(|p| p.join(target).canonicalize());
    up <= depth && stands.is_none_or(|real| real.map_or(true, |real| real.starts_with(root)))
}

fn relative<'p>(root: &Path, path: &'p Path) -> &'p Path {
    path.strip_prefix(root).unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLENTY: Budget = Budget { bytes: 1 << 20, files: 100 };

    fn source() -> tempfile::TempDir {
        let from = tempfile::tempdir().unwrap();
        let at = |name: &str| from.path().join(name);
        for folder in ["src/deep", "node_modules/x", "vendor/own/.git", "empty", ".git"] {
            fs::create_dir_all(at(folder)).unwrap();
        }
        for (name, text) in [
            ("src/a", "a"),
            ("src/deep/b", "bb"),
            ("run.sh", "#!/bin/sh\n"),
            ("node_modules/x/y", "y"),
            ("vendor/own/z", "z"),
            (".git/config", "c"),
        ] {
            fs::write(at(name), text).unwrap();
        }
        fs::set_permissions(at("run.sh"), fs::Permissions::from_mode(0o4555)).unwrap();
        for (target, link) in [
            ("deep/b", "src/good"),
            ("../run.sh", "src/up"),
            ("gone", "dangling"),
            ("/etc/passwd", "absolute"),
            ("../../etc", "src/out"),
            ("deep/../../../x", "src/round"),
        ] {
            std::os::unix::fs::symlink(target, at(link)).unwrap();
        }
        let made = std::process::Command::new("mkfifo").arg(at("pipe")).status().unwrap();
        assert!(made.success());
        from
    }

    #[test]
    fn a_copy_has_files_links_and_permissions_and_says_what_it_lacks() {
        let (from, to) = (source(), tempfile::tempdir().unwrap());
        let to = to.path().join("copy");
        let mut found = look(from.path(), &[], PLENTY, &mut || Ok(())).unwrap();
        write(&mut found, from.path(), &to, &mut || Ok(())).unwrap();
        let mut names: Vec<String> = walkdir::WalkDir::new(&to)
            .min_depth(1)
            .into_iter()
            .map(|e| e.unwrap().path().strip_prefix(&to).unwrap().display().to_string())
            .collect();
        names.sort_unstable();
        assert_eq!(
            names,
            [
                "dangling",
                "empty",
                "run.sh",
                "src",
                "src/a",
                "src/deep",
                "src/deep/b",
                "src/good",
                "src/up",
                "vendor"
            ]
        );
        assert_eq!(fs::read_to_string(to.join("src/good")).unwrap(), "bb");
        // The right to run it stays, the right to run it as somebody else does not.
        assert_eq!(fs::metadata(to.join("run.sh")).unwrap().permissions().mode() & 0o7777, 0o555);
        assert_eq!(
            found.left_out.lines(),
            [
                "not copied, a link that leads out: absolute, src/out, src/round",
                "not copied, can be made again: node_modules",
                "not copied, neither a file nor a folder: pipe",
                "not copied, a repository of its own: vendor/own",
            ]
        );
    }

    #[test]
    fn what_is_too_much_is_refused_before_anything_is_written() {
        let from = source();
        let files = look(from.path(), &[], Budget { files: 3, ..PLENTY }, &mut || Ok(())).unwrap_err();
        assert!(matches!(files, NotCopied::TooMuch { key: "disk.copy_files", .. }), "{files}");
        let bytes = look(from.path(), &[], Budget { bytes: 5, ..PLENTY }, &mut || Ok(())).unwrap_err();
        assert!(
            bytes.to_string().contains("holds more bytes than a copy takes (5), caches left out"),
            "{bytes}"
        );
    }

    #[test]
    fn it_can_be_stopped_between_files() {
        let (from, to) = (source(), tempfile::tempdir().unwrap());
        let mut found = look(from.path(), &[], PLENTY, &mut || Ok(())).unwrap();
        let mut left = 1;
        let stopped = write(&mut found, from.path(), &to.path().join("copy"), &mut || {
            left -= 1;
            if left < 0 { Err(io::ErrorKind::Interrupted.into()) } else { Ok(()) }
        });
        assert!(stopped.is_err());
    }
}
