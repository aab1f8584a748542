//! Copying files of any size, in pieces, so that whoever has to stop does not wait for the end of one.

use super::fault;
use rustix::fs::OFlags;
use std::fs::{OpenOptions, Permissions};
use std::io::{self, Read as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

/// Between two looks at whether to go on: on any disk a piece takes less than a second. A multiple of every
/// file system's block, so that those that can still share whole blocks between both files.
const PIECE: u64 = 8 * 1024 * 1024;

/// Is asked again and again during what may take long, and stops it by failing.
pub type GoOn<'a> = &'a mut dyn FnMut() -> io::Result<()>;

/// Copies a file with its permissions to a name that is not in use, or was used by an earlier try. Returns
/// the bytes. `go_on` is asked before each piece; what is there of a copy that was stopped is for the caller to
/// remove.
///
/// The kernel copies (`copy_file_range`), where it can without reading: btrfs and XFS share the content.
pub fn copy_file(from: &Path, to: &Path, go_on: GoOn<'_>) -> io::Result<u64> {
    go_on()?;
    // Neither wait at a pipe that has taken the file's place, nor follow a link.
    let hazards = OFlags::NONBLOCK | OFlags::NOFOLLOW;
    let source = OpenOptions::new().read(true).custom_flags(hazards.bits().cast_signed()).open(from)?;
    let meta = source.metadata()?;
    if !meta.is_file() {
        return Err(io::ErrorKind::NotFound.into());
    }
    let mode = meta.permissions().mode() & 0o777;
    #[cfg(target_os = "macos")]
    if rustix::fs::fclonefileat(&source, rustix::fs::CWD, to, rustix::fs::CloneFlags::empty()).is_ok() {
        fault::point("copy")?;
        return Ok(meta.len());
    }
    let mut target = OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(to)?;
    let mut copied = 0;
    loop {
        fault::point("copy")?;
        let piece = io::copy(&mut (&source).take(PIECE), &mut target)?;
        copied += piece;
        if piece < PIECE {
            break;
        }
        go_on()?;
    }
    // As it was: not as the mask for new files has it.
    target.set_permissions(Permissions::from_mode(mode))?;
    Ok(copied)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn big(dir: &Path) -> (std::path::PathBuf, std::path::PathBuf) {
        let from = dir.join("from");
        let bytes: Vec<u8> = (0..PIECE * 2 + 5).map(|k| (k % 251) as u8).collect();
        fs::write(&from, bytes).unwrap();
        (from, dir.join("to"))
    }

    #[test]
    fn pieces_make_the_whole_with_its_permissions() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = big(dir.path());
        fs::set_permissions(&from, Permissions::from_mode(0o4465)).unwrap();
        let mut asked = 0;
        let copied = copy_file(&from, &to, &mut || {
            asked += 1;
            Ok(())
        });
        assert_eq!(copied.unwrap(), PIECE * 2 + 5);
        assert!(fs::read(&from).unwrap() == fs::read(&to).unwrap());
        assert_eq!(fs::metadata(&to).unwrap().permissions().mode() & 0o7777, 0o465);
        if cfg!(not(target_os = "macos")) {
            assert_eq!(asked, 3, "once before each piece");
        }
    }

    #[test]
    fn it_is_stopped_inside_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = big(dir.path());
        // Where it is there already, nothing can be cloned.
        fs::write(&to, "an earlier try").unwrap();
        let mut left = 2;
        let stopped = copy_file(&from, &to, &mut || {
            left -= 1;
            if left < 0 { Err(io::Error::other("stopped")) } else { Ok(()) }
        });
        assert_eq!(stopped.unwrap_err().to_string(), "stopped");
        assert_eq!(fs::metadata(&to).unwrap().len(), PIECE * 2);
    }

    #[test]
    fn what_is_no_file_any_more_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        assert!(std::process::Command::new("mkfifo").arg(&from).status().unwrap().success());
        let pipe = copy_file(&from, &to, &mut || Ok(()));
        assert_eq!(pipe.unwrap_err().kind(), io::ErrorKind::NotFound);
        fs::remove_file(&from).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", &from).unwrap();
        assert!(copy_file(&from, &to, &mut || Ok(())).is_err());
        assert!(!to.exists());
    }

    #[test]
    fn an_empty_file_is_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        fs::write(&from, "").unwrap();
        assert_eq!(copy_file(&from, &to, &mut || Ok(())).unwrap(), 0);
        assert!(to.is_file());
    }
}
