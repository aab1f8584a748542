//! Logs of runners: a process writes its own by its standard streams, and rotates it between passes.

use crate::durable;
use crate::spool::Spool;
use chrono::{DateTime, TimeDelta, Utc};
use serde::Serialize;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// Where logs of the service lie.
pub fn dir(spool: &Spool) -> PathBuf {
    spool.root().join("logs")
}

/// The log of runners that were started in the background, by a planner say: nobody hears what they say.
pub fn background(spool: &Spool) -> PathBuf {
    dir(spool).join("background.log")
}

/// What went wrong last in a runner that nobody hears.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Trouble {
    /// When.
    pub at: DateTime<Utc>,
    /// What it said.
    pub message: String,
    /// The log that says so.
    pub log: PathBuf,
}

/// How long trouble is told of.
const RECENT: TimeDelta = TimeDelta::days(1);
/// Lines at the end of the log among which trouble is looked for.
const LAST: usize = 50;

/// What went wrong in the background within the last day, if anything did.
pub fn trouble(spool: &Spool) -> Option<Trouble> {
    let log = background(spool);
    let text = tail(&log, LAST).ok()?;
    let lines: Vec<&str> = text.lines().collect();
    let last = lines.iter().rposition(|line| line.contains("error: "))?;
    let (time, message) = lines[last].split_once("error: ")?;
    // An error goes on in lines that are indented.
    let hints = lines[last + 1..].iter().take_while(|line| line.starts_with("  "));
    let message = hints.fold(message.to_owned(), |whole, hint| format!("{whole}\n{hint}"));
    let at = match DateTime::parse_from_rfc3339(time.trim()) {
        Ok(at) => at.to_utc(),
        // Said before the log was begun.
        Err(_) => log.metadata().ok()?.modified().ok()?.into(),
    };
    let message = crate::model::task::cut(&message, 1000);
    (Utc::now() - at < RECENT).then_some(Trouble { at, message, log })
}

/// A log that this process writes.
#[derive(Debug)]
pub struct ServiceLog {
    path: PathBuf,
    most: u64,
}

impl ServiceLog {
    /// Lets standard output and standard error go to `path` from now on.
    pub fn begin(path: &Path, most: u64) -> io::Result<Self> {
        let log = ServiceLog { path: path.to_owned(), most };
        log.open()?;
        log.tend()?;
        Ok(log)
    }

    /// Begins a new file if this one is over its size.
    pub fn tend(&self) -> io::Result<()> {
        match self.path.metadata() {
            Ok(meta) if meta.len() <= self.most => Ok(()),
            // Another process may have rotated it, or somebody removed it: write to the file at the path.
            Ok(_) => rotate(&self.path).and_then(|()| self.open()),
            Err(_) => self.open(),
        }
    }

    fn open(&self) -> io::Result<()> {
        let file = append(&self.path)?;
        rustix::stdio::dup2_stdout(&file)?;
        rustix::stdio::dup2_stderr(&file)?;
        Ok(())
    }
}

/// Opens a log to add to it.
pub fn append(path: &Path) -> io::Result<File> {
    if let Some(dir) = path.parent() {
        durable::ensure_dir(dir)?;
    }
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

/// Puts a log aside as `.1`; what was there goes.
pub fn rotate(path: &Path) -> io::Result<()> {
    let mut old = path.as_os_str().to_owned();
    old.push(".1");
    durable::fault::point("rename")?;
    match std::fs::rename(path, old) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

/// Adds a line with its time to a log of the spool, which rotates. A log that cannot be written is no reason
/// to end: the line goes to standard error then.
pub fn note(spool: &Spool, name: &str, text: &str) {
    const MOST: u64 = 1024 * 1024;
    let dir = dir(spool);
    let path = dir.join(name);
    let line = format!("{} {}\n", Utc::now().to_rfc3339(), text.replace(['\n', '\r'], " "));
    let written = durable::ensure_dir(&dir)
        .and_then(|()| match path.metadata() {
            Ok(meta) if meta.len() > MOST => rotate(&path),
            _ => Ok(()),
        })
        .and_then(|()| durable::append(&path, line.as_bytes()));
    if written.is_err() {
        let _ = io::stderr().write_all(line.as_bytes());
    }
}

/// The last lines of a log, from the file before it too if it is short.
pub fn tail(path: &Path, lines: usize) -> io::Result<String> {
    const WINDOW: u64 = 1024 * 1024;
    let mut text = String::new();
    let mut old = path.as_os_str().to_owned();
    old.push(".1");
    for path in [PathBuf::from(old), path.to_owned()] {
        use std::io::{Read as _, Seek as _, SeekFrom};
        let mut file = match File::open(&path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            Err(e) => return Err(e),
        };
        let size = file.metadata()?.len();
        file.seek(SeekFrom::Start(size.saturating_sub(WINDOW)))?;
        let mut bytes = Vec::new();
        file.take(WINDOW).read_to_end(&mut bytes)?;
        text.push_str(&String::from_utf8_lossy(&bytes));
    }
    let all: Vec<&str> = text.lines().collect();
    let mut out = String::new();
    for line in &all[all.len().saturating_sub(lines)..] {
        out.push_str(line);
        out.push('\n');
    }
    Ok(out)
}

/// Reads what is added to a log, over its rotations.
#[derive(Debug)]
pub struct Follower {
    path: PathBuf,
    file: Option<File>,
}

impl Follower {
    /// Begins after what is there now.
    pub fn at_end(path: &Path) -> Self {
        use std::io::{Seek as _, SeekFrom};
        let mut file = File::open(path).ok();
        if let Some(file) = &mut file {
            let _ = file.seek(SeekFrom::End(0));
        }
        Follower { path: path.to_owned(), file }
    }

    /// What was added since the last look.
    pub fn more(&mut self) -> io::Result<Vec<u8>> {
        use std::io::Read as _;
        use std::os::unix::fs::MetadataExt as _;
        let mut bytes = Vec::new();
        if let Some(file) = &mut self.file {
            file.read_to_end(&mut bytes)?;
        }
        let here = self.file.as_ref().and_then(|f| f.metadata().ok()).map(|m| (m.dev(), m.ino()));
        let there = self.path.metadata().ok().map(|m| (m.dev(), m.ino()));
        if there.is_some() && here != there {
            let mut file = File::open(&self.path)?;
            file.read_to_end(&mut bytes)?;
            self.file = Some(file);
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_rotates_once_and_its_tail_reaches_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("service.log");
        rotate(&path).unwrap();
        assert_eq!(tail(&path, 5).unwrap(), "");
        std::fs::write(&path, "1\n2\n").unwrap();
        rotate(&path).unwrap();
        std::fs::write(&path, "3\n").unwrap();
        assert_eq!(tail(&path, 2).unwrap(), "2\n3\n");
        rotate(&path).unwrap();
        assert_eq!(tail(&path, 9).unwrap(), "3\n");
    }

    #[test]
    fn the_last_trouble_is_found_with_its_hint_and_forgotten_after_a_day() {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::open(dir.path()).unwrap();
        assert_eq!(trouble(&spool), None);
        std::fs::create_dir_all(super::dir(&spool)).unwrap();
        let line =
            |ago: i64, text: &str| format!("{} {text}\n", (Utc::now() - TimeDelta::hours(ago)).to_rfc3339());
        let old = line(30, "error: the disk is full");
        std::fs::write(background(&spool), &old).unwrap();
        assert_eq!(trouble(&spool), None);
        let new =
            line(2, "error: cannot start a supervisor") + "  hint: do this\n" + &line(1, "refused x.json");
        std::fs::write(background(&spool), old + &new).unwrap();
        assert_eq!(trouble(&spool).unwrap().message, "cannot start a supervisor\n  hint: do this");
    }

    #[test]
    fn a_follower_goes_on_in_the_new_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("service.log");
        let mut early = Follower::at_end(&path);
        std::fs::write(&path, "1\n").unwrap();
        let mut late = Follower::at_end(&path);
        assert_eq!((early.more().unwrap(), late.more().unwrap()), (b"1\n".to_vec(), Vec::new()));
        durable::append(&path, b"2\n").unwrap();
        rotate(&path).unwrap();
        std::fs::write(&path, "3\n").unwrap();
        assert_eq!(early.more().unwrap(), b"2\n3\n");
        assert_eq!(early.more().unwrap(), b"");
    }
}
