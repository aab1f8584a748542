//! Paths that a model names: inside the workspace, or refused.
//!
//! A path is resolved first, links and all, and must then lie inside. It is opened component by component
//! from the workspace's own descriptor, following no link: what was swapped meanwhile is an error.

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

/// Why a path is not used.
#[derive(Debug, thiserror::Error)]
pub(super) enum PathError {
    /// It is, or leads, out of the workspace, or to where nothing may be written.
    #[error("{0}")]
    Refused(String),
    /// It cannot be used.
    #[error("{0}")]
    Unusable(String),
}

/// The workspace.
#[derive(Debug)]
pub(super) struct Root {
    path: PathBuf,
    /// The same as it was given, perhaps by way of links.
    given: PathBuf,
    dir: OwnedFd,
}

/// A place inside, where there may be something or not: its folder is there, or can be made.
#[derive(Debug)]
pub(super) struct Target {
    /// The folder, resolved, relative to the workspace; its last parts may not exist yet.
    folder: PathBuf,
    /// The name in it.
    name: OsString,
}

impl Root {
    /// Opens the workspace.
    pub fn open(path: &Path) -> io::Result<Root> {
        let given = path.to_owned();
        let path = path.canonicalize()?;
        let dir =
            rustix::fs::open(&path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Root { path, given, dir })
    }

    /// Its path, resolved.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Resolves a path to something that is there; relative to the workspace, links resolved.
    pub fn existing(&self, asked: &str) -> Result<PathBuf, PathError> {
        let relative = self.relative(asked)?;
        let full = self.path.join(&relative).canonicalize().map_err(|e| unusable(asked, &e))?;
        self.inside(asked, &full)
    }

    /// Resolves a path to write to.
    pub fn target(&self, asked: &str) -> Result<Target, PathError> {
        let relative = self.relative(asked)?;
        let Some(name) = relative.file_name().map(OsStr::to_owned) else {
            return Err(PathError::Unusable(format!(
                "{asked}: names the workspace itself, not a file in it"
            )));
        };
        let mut there = relative.parent().unwrap_or(Path::new("")).to_owned();
        let mut missing = Vec::new();
        // Resolve what is there of the folder; what is not will be made, and is a plain name.
        let mut folder = loop {
            match self.path.join(&there).canonicalize() {
                Ok(full) => break self.inside(asked, &full)?,
                Err(e) if e.kind() == io::ErrorKind::NotFound && self.is_absent(&there) => {
                    missing.extend(there.file_name().map(OsStr::to_owned));
                    there.pop();
                }
                Err(e) => return Err(unusable(asked, &e)),
            }
        };
        folder.extend(missing.iter().rev());
        if folder.iter().chain([name.as_os_str()]).any(is_git) {
            return Err(PathError::Refused(format!("{asked}: .git is not to be written")));
        }
        Ok(Target { folder, name })
    }

    /// Opens a file that is there, to be read.
    pub fn open_file(&self, resolved: &Path) -> io::Result<File> {
        let Some(name) = resolved.file_name() else { return Err(Errno::ISDIR.into()) };
        let dir = self.open_dir(resolved.parent().unwrap_or(Path::new("")))?;
        // Not blocking: a pipe without a writer must not hold us.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = match rustix::fs::openat(&dir, name, flags, Mode::empty()) {
            Err(Errno::LOOP) => return Err(io::Error::other(LINK)),
            opened => File::from(opened?),
        };
        match file.metadata()? {
            m if m.is_file() => Ok(file),
            m if m.is_dir() => Err(Errno::ISDIR.into()),
            _ => Err(io::Error::other("is no regular file")),
        }
    }

    /// Replaces the file at a target, or makes it, with the folders above it.
    ///
    /// The new content comes by a rename: half of it is never there, and another name of the same file (a
    /// hard link, which may lie outside) keeps the old content.
    pub fn write(&self, target: &Target, bytes: &[u8]) -> io::Result<()> {
        let dir = self.make_dir(&target.folder)?;
        let mode = match rustix::fs::statat(&dir, &target.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => match FileType::from_raw_mode(stat.st_mode) {
                FileType::RegularFile => Some(Mode::from_raw_mode(stat.st_mode)),
                FileType::Symlink => {
                    return Err(io::Error::other(LINK));
                }
                FileType::Directory => return Err(Errno::ISDIR.into()),
                _ => return Err(io::Error::other("is no regular file")),
            },
            Err(Errno::NOENT) => None,
            Err(e) => return Err(e.into()),
        };
        let tmp = crate::durable::unique_name();
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = File::from(rustix::fs::openat(&dir, &tmp, flags, Mode::from_raw_mode(0o666))?);
        let written = (|| {
            io::Write::write_all(&mut file, bytes)?;
            if let Some(mode) = mode {
                rustix::fs::fchmod(&file, mode)?;
            }
            Ok(rustix::fs::renameat(&dir, &tmp, &dir, &target.name)?)
        })();
        if written.is_err() {
            // The first failure is the one to tell.
            let _ = rustix::fs::unlinkat(&dir, &tmp, AtFlags::empty());
        }
        written
    }

    /// The parts of a path as asked: relative, without `..`.
    fn relative(&self, asked: &str) -> Result<PathBuf, PathError> {
        if asked.contains('\0') {
            return Err(PathError::Unusable("a path cannot hold a NUL".into()));
        }
        let path = Path::new(asked.trim_end_matches('/'));
        let path = if asked.starts_with('/') {
            let inside = path.strip_prefix(&self.path).or_else(|_| path.strip_prefix(&self.given));
            inside.map_err(|_| outside(asked))?
        } else {
            path
        };
        let mut relative = PathBuf::new();
        for part in path.components() {
            match part {
                Component::Normal(name) => relative.push(name),
                Component::CurDir => {}
                _ => return Err(PathError::Refused(format!("{asked}: paths with .. are not allowed"))),
            }
        }
        Ok(relative)
    }

    fn inside(&self, asked: &str, full: &Path) -> Result<PathBuf, PathError> {
        full.strip_prefix(&self.path).map(Path::to_owned).map_err(|_| outside(asked))
    }

    /// Whether nothing is there, not even a link to nothing.
    fn is_absent(&self, relative: &Path) -> bool {
        self.path.join(relative).symlink_metadata().is_err_and(|e| e.kind() == io::ErrorKind::NotFound)
    }

    fn open_dir(&self, resolved: &Path) -> io::Result<OwnedFd> {
        let mut dir = rustix::io::fcntl_dupfd_cloexec(&self.dir, 3)?;
        for name in resolved {
            dir = rustix::fs::openat(&dir, name, FOLDER, Mode::empty())?;
        }
        Ok(dir)
    }

    fn make_dir(&self, resolved: &Path) -> io::Result<OwnedFd> {
        let mut dir = rustix::io::fcntl_dupfd_cloexec(&self.dir, 3)?;
        for name in resolved {
            match rustix::fs::mkdirat(&dir, name, Mode::from_raw_mode(0o777)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(e) => return Err(e.into()),
            }
            dir = rustix::fs::openat(&dir, name, FOLDER, Mode::empty())?;
        }
        Ok(dir)
    }
}

/// What is said of a link where none is followed.
const LINK: &str = "is a symbolic link; name the file that it points to";
/// How folders on the way are opened.
const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

impl Target {
    /// The path, resolved, relative to the workspace.
    pub fn path(&self) -> PathBuf {
        self.folder.join(&self.name)
    }
}

/// Whether a name is git's own folder or file, on file systems that fold case, too.
pub(super) fn is_git(name: &OsStr) -> bool {
    name.eq_ignore_ascii_case(".git")
}

fn outside(asked: &str) -> PathError {
    PathError::Refused(format!("{asked}: is outside the workspace"))
}

fn unusable(asked: &str, error: &io::Error) -> PathError {
    PathError::Unusable(match error.kind() {
        io::ErrorKind::NotFound => format!("{asked}: there is no such file or folder"),
        _ => format!("{asked}: {error}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    /// A workspace, and a folder beside it with a secret.
    fn workspace() -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().unwrap();
        let work = dir.path().join("work");
        fs::create_dir_all(work.join("src")).unwrap();
        fs::create_dir_all(work.join(".git")).unwrap();
        fs::create_dir(dir.path().join("out")).unwrap();
        fs::write(dir.path().join("out/secret"), "s").unwrap();
        fs::write(work.join("src/a.rs"), "a").unwrap();
        symlink("../out", work.join("exit")).unwrap();
        symlink("../out/secret", work.join("peek")).unwrap();
        symlink("../out/new", work.join("dangling")).unwrap();
        symlink("src", work.join("inner")).unwrap();
        symlink(".git", work.join("innocent")).unwrap();
        let root = Root::open(&work).unwrap();
        (dir, root)
    }

    #[test]
    fn reading_stays_inside() {
        let (dir, root) = workspace();
        assert_eq!(root.existing("inner/a.rs").unwrap(), Path::new("src/a.rs"));
        assert_eq!(root.existing("./src//a.rs/").unwrap(), Path::new("src/a.rs"));
        assert_eq!(root.existing("").unwrap(), Path::new(""));
        let absolute = root.path().join("src/a.rs");
        assert_eq!(root.existing(absolute.to_str().unwrap()).unwrap(), Path::new("src/a.rs"));
        let secret = dir.path().join("out/secret");
        for bad in [
            "../out/secret",
            "src/../../out/secret",
            "exit/secret",
            "peek",
            "/etc/passwd",
            secret.to_str().unwrap(),
        ] {
            assert!(matches!(root.existing(bad), Err(PathError::Refused(_))), "{bad}");
        }
        let twin = format!("{}-twin", root.path().display());
        assert!(matches!(root.existing(&twin), Err(PathError::Refused(_))));
        assert!(matches!(root.existing("no/such"), Err(PathError::Unusable(_))));
        assert!(matches!(root.existing("a\0b"), Err(PathError::Unusable(_))));
    }

    #[test]
    fn writing_stays_inside_and_out_of_git() {
        let (dir, root) = workspace();
        for bad in [
            "../x",
            "exit/new",
            "/tmp/x",
            ".git/config",
            ".GIT/hooks/x",
            "src/.git/x",
            "innocent/config",
            "x/.git",
        ] {
            assert!(matches!(root.target(bad), Err(PathError::Refused(_))), "{bad}");
        }
        for bad in ["", ".", "dangling/x", "src/a.rs/x"] {
            let made = root.target(bad).map(|t| root.write(&t, b"x"));
            assert!(matches!(made, Err(PathError::Unusable(_)) | Ok(Err(_))), "{bad}: {made:?}");
        }
        // A link as the last part is not followed, wherever it leads.
        for link in ["peek", "dangling", "inner"] {
            assert!(root.write(&root.target(link).unwrap(), b"x").is_err(), "{link}");
        }
        assert_eq!(fs::read(dir.path().join("out/secret")).unwrap(), b"s");
        assert!(!dir.path().join("out/new").exists());
        root.write(&root.target("inner/deep/er/b.rs").unwrap(), b"b").unwrap();
        assert_eq!(fs::read(root.path().join("src/deep/er/b.rs")).unwrap(), b"b");
    }

    #[test]
    fn a_folder_swapped_for_a_link_is_not_followed() {
        let (dir, root) = workspace();
        let target = root.target("src/b.rs").unwrap();
        let resolved = root.existing("src/a.rs").unwrap();
        fs::rename(root.path().join("src"), root.path().join("moved")).unwrap();
        symlink("../out", root.path().join("src")).unwrap();
        fs::write(dir.path().join("out/a.rs"), "other").unwrap();
        assert!(root.write(&target, b"x").is_err());
        assert!(root.open_file(&resolved).is_err());
        assert!(!dir.path().join("out/b.rs").exists());
    }

    #[test]
    fn a_rewritten_file_keeps_its_mode_and_leaves_its_other_names_alone() {
        let (dir, root) = workspace();
        let file = root.path().join("run.sh");
        fs::write(&file, "old").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        fs::hard_link(&file, dir.path().join("out/twin")).unwrap();
        root.write(&root.target("run.sh").unwrap(), b"new").unwrap();
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o755);
        assert_eq!(fs::read(dir.path().join("out/twin")).unwrap(), b"old");
        assert_eq!(
            fs::read_dir(root.path()).unwrap().filter(|e| e.as_ref().unwrap().file_name().len() > 20).count(),
            0
        );
    }
}
