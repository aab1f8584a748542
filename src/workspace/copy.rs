//! Bringing ignored files that a project needs (`.env`, local settings) from the user's checkout into a
//! workspace: by the task's patterns, the repository's, and `.worktreeinclude`.

use super::rules;
use crate::durable::{self, GoOn};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Most files that are copied.
const MAX_FILES: usize = 50_000;
/// Most bytes that are copied.
const MAX_BYTES: u64 = 2 * 1024 * 1024 * 1024;

/// What was copied.
#[derive(Debug, Default)]
pub struct Copied {
    /// Paths of the files, relative to the workspace.
    pub files: Vec<PathBuf>,
    /// What was not copied, and why.
    pub warnings: Vec<String>,
}

/// Copies files of `from` that match a pattern and are not in `to` yet. Links are copied as links if they
/// stay inside; nothing that is there is replaced. `go_on` is asked again and again, also inside a large file,
/// and stops it by failing.
pub fn copy(from: &Path, to: &Path, patterns: &[String], go_on: GoOn<'_>) -> io::Result<Copied> {
    let mut copied = Copied::default();
    if patterns.is_empty() {
        return Ok(copied);
    }
    let set = rules::set(patterns).map_err(io::Error::other)?;
    let mut bytes = 0;
    let walk = walkdir::WalkDir::new(from).min_depth(1);
    for entry in walk.into_iter().filter_entry(|e| e.file_name() != ".git") {
        let Ok(entry) = entry else { continue };
        let relative = entry.path().strip_prefix(from).unwrap_or(entry.path()).to_owned();
        let kind = entry.file_type();
        // Reading a pipe would wait for whoever writes to it.
        if !(kind.is_file() || kind.is_symlink()) || !set.is_match(&relative) {
            continue;
        }
        let target = to.join(&relative);
        if fs::symlink_metadata(&target).is_ok() {
            continue;
        }
        let size = entry.metadata().map(|m| m.len()).unwrap_or(0);
        if copied.files.len() >= MAX_FILES || bytes + size > MAX_BYTES {
            copied.warnings.push(format!("more than {MAX_FILES} files or {MAX_BYTES} bytes match the copy patterns: the rest was not copied"));
            break;
        }
        go_on()?;
        match copy_one(entry.path(), &target, to, go_on) {
            Ok(true) => {
                bytes += size;
                copied.files.push(relative);
            }
            Ok(false) => {
                copied.warnings.push(format!("{} was not copied: a link that leads out", relative.display()))
            }
            Err(e) if is_full(&e) => return Err(e),
            Err(e) => {
                let _ = fs::remove_file(&target);
                // Was it we who stopped?
                go_on()?;
                copied.warnings.push(format!("{} was not copied: {e}", relative.display()));
            }
        }
    }
    copied.files.sort_unstable();
    Ok(copied)
}

/// Copies the files of `from` that are named, as far as they are there; the others are told as warnings.
pub fn copy_listed(from: &Path, to: &Path, files: &[PathBuf]) -> io::Result<Copied> {
    let mut copied = Copied::default();
    for relative in files {
        let (source, target) = (from.join(relative), to.join(relative));
        if fs::symlink_metadata(&target).is_ok() {
            continue;
        }
        match copy_one(&source, &target, to, &mut || Ok(())) {
            Ok(true) => copied.files.push(relative.clone()),
            Ok(false) => {
                copied.warnings.push(format!("{} was not copied: a link that leads out", relative.display()))
            }
            Err(e) if is_full(&e) => return Err(e),
            Err(e) => copied.warnings.push(format!("{} was not copied: {e}", relative.display())),
        }
    }
    Ok(copied)
}

fn is_full(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

fn copy_one(from: &Path, to: &Path, root: &Path, go_on: GoOn<'_>) -> io::Result<bool> {
    if let Some(parent) = to.parent() {
        fs::create_dir_all(parent)?;
        // A tracked link could lead the copy out of the workspace.
        if !parent.canonicalize()?.starts_with(root.canonicalize()?) {
            return Ok(false);
        }
    }
    if from.is_symlink() {
        let target = fs::read_link(from)?;
        if target.is_absolute() || target.components().any(|c| c == std::path::Component::ParentDir) {
            return Ok(false);
        }
        std::os::unix::fs::symlink(target, to)?;
    } else {
        durable::copy_file(from, to, go_on)?;
    }
    Ok(true)
}

/// Reads the text of a `.worktreeinclude`: one pattern a line, `#` comments, `!` not supported. Returns
/// patterns and warnings.
pub fn worktree_include(text: &str) -> (Vec<String>, Vec<String>) {
    let (mut patterns, mut warnings) = (Vec::new(), Vec::new());
    for line in text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#')) {
        if line.starts_with('!') {
            warnings.push(format!(".worktreeinclude: {line:?} is passed over: exceptions are not supported"));
            continue;
        }
        // As in .gitignore: a pattern without a slash matches at any depth.
        let rooted = line.trim_end_matches('/').contains('/');
        let plain = line.trim_start_matches('/').to_owned();
        if globset::Glob::new(&plain).is_err() || plain.split('/').any(|part| part == "..") {
            warnings.push(format!(".worktreeinclude: {line:?} is not a pattern"));
            continue;
        }
        patterns.push(if rooted { plain } else { format!("**/{plain}") });
    }
    (patterns, warnings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_files_come_along_and_nothing_is_replaced() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::create_dir_all(from.path().join("config/local")).unwrap();
        for (path, text) in [(".env", "A=1"), ("config/local/x.toml", "x"), ("other", "o")] {
            fs::write(from.path().join(path), text).unwrap();
        }
        fs::write(to.path().join(".env"), "kept").unwrap();
        std::os::unix::fs::symlink("/etc/passwd", from.path().join("config/local/out")).unwrap();
        let copied = copy(from.path(), to.path(), &[".env".into(), "config/local".into()], &mut || Ok(()));
        let copied = copied.unwrap();
        assert_eq!(copied.files, [PathBuf::from("config/local/x.toml")]);
        assert_eq!(copied.warnings.len(), 1);
        assert_eq!(fs::read_to_string(to.path().join(".env")).unwrap(), "kept");
        assert!(!to.path().join("other").exists());
    }

    #[test]
    fn a_pipe_is_passed_over() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(from.path().join(".env"), "A=1").unwrap();
        let made = std::process::Command::new("mkfifo").arg(from.path().join(".env.pipe")).status().unwrap();
        assert!(made.success());
        let copied = copy(from.path(), to.path(), &[".env*".into()], &mut || Ok(())).unwrap();
        assert_eq!(copied.files, [PathBuf::from(".env")]);
    }

    #[test]
    fn worktreeinclude_reads_like_gitignore() {
        let (patterns, warnings) = worktree_include("# c\n.env\n/local/\nconfig/*.toml\n!no\n");
        assert_eq!(patterns, ["**/.env", "local/", "config/*.toml"]);
        assert_eq!(warnings.len(), 1);
    }
}
