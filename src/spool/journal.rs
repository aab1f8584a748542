//! The ends that a supervisor recorded and whose files the disk may not have yet.
//!
//! Of a success some twenty files and folders have to survive a power loss: the records that its receipt names, receipt and
//! result. A supervisor that goes on from task to task puts all of them into one line of a file of its own, waits for
//! that one file, and leaves the others to the system. When it has nothing left to do it waits for those too, and
//! removes its journal. What a restart of the machine left is put back from there before anybody looks.

use super::{Spool, SpoolError, events, names};
use crate::durable::{self, Held, Lock};
use crate::model::TaskId;
use crate::process::boot_id;
use anyhow::Context as _;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

/// How much of one end is kept in a journal, in bytes.
const MOST: usize = 256 << 10;
/// The most ends of which each file is waited for by itself; of more, the whole file system is.
const FEW: usize = 8;

/// An end: the files that it consists of.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Entry {
    task: TaskId,
    attempt: u32,
    at: DateTime<Utc>,
    /// SHA-256 of the receipt, by which the end is known.
    receipt: String,
    files: Vec<Kept>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Kept {
    /// Relative to the task's folder.
    path: PathBuf,
    sha256: String,
    text: String,
}

impl Entry {
    /// The longest file that is kept, in bytes. A longer one is waited for by itself.
    pub const LONGEST: u64 = 64 << 10;

    /// An end of which nothing is kept yet.
    pub fn new(task: TaskId, attempt: u32) -> Entry {
        Entry { task, attempt, at: Utc::now(), receipt: String::new(), files: Vec::new() }
    }

    /// Keeps a file of the task's folder `root`, if it is short enough and text. Says whether it is kept.
    pub fn keep(&mut self, root: &Path, path: &Path, bytes: &[u8], sha256: &str) -> bool {
        let used: usize = self.files.iter().map(|kept| kept.text.len()).sum();
        if bytes.len() as u64 > Entry::LONGEST || used + bytes.len() > MOST {
            return false;
        }
        let (Ok(text), Ok(path)) = (std::str::from_utf8(bytes), path.strip_prefix(root)) else {
            return false;
        };
        // A name that is no text cannot be written there.
        if path.to_str().is_none() {
            return false;
        }
        self.files.push(Kept { path: path.to_owned(), sha256: sha256.to_owned(), text: text.to_owned() });
        true
    }

    /// Keeps the receipt. Says whether that was possible.
    pub fn keep_receipt(&mut self, root: &Path, path: &Path, bytes: &[u8], sha256: &str) -> bool {
        sha256.clone_into(&mut self.receipt);
        self.keep(root, path, bytes, sha256)
    }

    fn paths(&self, spool: &Spool) -> BTreeSet<PathBuf> {
        let root = spool.task(self.task);
        self.files.iter().map(|kept| root.path().join(&kept.path)).collect()
    }

    /// Puts back what still counts of it and is not there as it was. Only under the task's lock (I3): says `false` if somebody
    /// holds it.
    fn restore(&self, spool: &Spool) -> anyhow::Result<bool> {
        let locked = match spool.try_lock_task(self.task) {
            Ok(Some(locked)) => locked,
            Ok(None) => return Ok(false),
            Err(SpoolError::NoTask(_)) => return Ok(true),
            Err(e) => return Err(e.into()),
        };
        let counts = self.counts(spool);
        if counts == Counts::Nothing {
            return Ok(true);
        }
        let root = locked.dir().path();
        for kept in &self.files {
            let is_record = kept.path.starts_with("attempts") || kept.path == Path::new("events.jsonl");
            let counts = counts == Counts::Wholly || is_record;
            if !counts || events::hash(kept.text.as_bytes()) != kept.sha256 {
                continue;
            }
            let Some(path) = own_path(root, &kept.path) else { continue };
            let intact = fs::read(&path).is_ok_and(|bytes| match kept.path == Path::new("events.jsonl") {
                // It has grown since.
                true => bytes.starts_with(kept.text.as_bytes()),
                false => bytes == kept.text.as_bytes(),
            });
            if !intact {
                durable::ensure_dir(path.parent().unwrap_or(root))?;
                durable::replace_unsynced(&path, kept.text.as_bytes())?;
            }
        }
        Ok(true)
    }

    /// What of it still counts, as far as the task's folder tells.
    fn counts(&self, spool: &Spool) -> Counts {
        // One that cannot be read was cut short.
        let Some(result) = spool.read_result(self.task).ok().flatten() else { return Counts::Wholly };
        let receipt = result.receipt.map(|receipt| receipt.sha256);
        match result.attempt.cmp(&self.attempt) {
            Ordering::Less => Counts::Wholly,
            Ordering::Equal if receipt.as_deref() == Some(&self.receipt) => Counts::Wholly,
            // Somebody else recorded the end of this attempt, later.
            Ordering::Equal => Counts::Nothing,
            Ordering::Greater => Counts::Records,
        }
    }
}

/// What of an end still counts.
#[derive(PartialEq, Eq)]
enum Counts {
    Wholly,
    /// The attempt's own: another one has ended since.
    Records,
    Nothing,
}

/// Where a kept file belongs. `None`: outside of the task's folder.
fn own_path(root: &Path, path: &Path) -> Option<PathBuf> {
    let mut own = root.to_owned();
    for part in path.components() {
        let is_link = own.symlink_metadata().is_ok_and(|meta| meta.is_symlink());
        match part {
            Component::Normal(name) if !is_link => own.push(name),
            _ => return None,
        }
    }
    Some(own)
}

/// The journal of this process. It has no file before something is written.
#[derive(Debug)]
pub struct Journal {
    spool: Spool,
    open: RefCell<Option<Open>>,
}

#[derive(Debug)]
struct Open {
    /// The file itself: whoever gets its lock knows that its owner is gone.
    held: Held,
    length: u64,
    /// Their files.
    ends: Vec<BTreeSet<PathBuf>>,
}

impl Journal {
    /// A journal in which nothing is written yet.
    pub fn of(spool: &Spool) -> Journal {
        Journal { spool: spool.clone(), open: RefCell::new(None) }
    }

    /// Writes an end, and returns once that survives power loss.
    pub fn add(&self, entry: &Entry) -> anyhow::Result<()> {
        let mut open = self.open.borrow_mut();
        let open = match &mut *open {
            Some(open) => open,
            none => none.insert(self.begin()?),
        };
        let mut line = serde_json::to_vec(entry)?;
        line.push(b'\n');
        // At the end of what is whole: a line that could not be written is written over by the next.
        open.held.write_at(&line, open.length).with_context(|| cannot_write(open.held.path()))?;
        open.length += line.len() as u64;
        open.ends.push(entry.paths(&self.spool));
        Ok(())
    }

    fn begin(&self) -> anyhow::Result<Open> {
        let folder = self.spool.journal();
        if !folder.is_dir() {
            durable::ensure_dir(&folder).with_context(|| cannot_write(&folder))?;
            durable::sync_dir(self.spool.root())?;
        }
        let boot = boot_id().context("cannot read the boot's id")?;
        let path = folder.join(format!("{boot}{}", durable::unique_name()));
        let held = Lock::at(&path).take().with_context(|| cannot_write(&path))?;
        durable::sync_dir(&folder)?;
        Ok(Open { held, length: 0, ends: Vec::new() })
    }

    /// Waits until the disk has all files of the ends that were written, and removes the journal.
    pub fn settle(&self) -> anyhow::Result<()> {
        let Some(open) = self.open.borrow_mut().take() else { return Ok(()) };
        sync(&self.spool, &open.ends)?;
        Ok(durable::remove_file(open.held.path())?)
    }
}

fn cannot_write(path: &Path) -> String {
    format!("cannot write {}", path.display())
}

/// Waits for the files of some ends.
fn sync(spool: &Spool, ends: &[BTreeSet<PathBuf>]) -> anyhow::Result<()> {
    if ends.len() > FEW && durable::sync_file_system(spool.root()).context("cannot sync the spool")? {
        return Ok(());
    }
    // A task may be pruned meanwhile, or was never restored.
    let files = ends.iter().flatten().filter(|path| path.is_file()).cloned().collect();
    match durable::sync_below(&spool.tasks(), &files, |_, _| Ok(())) {
        // Just now.
        Err(e) if e.kind() == io::ErrorKind::NotFound => sync(spool, ends),
        other => other.context("cannot sync the files of ended tasks"),
    }
}

/// Takes a journal whose owner is gone, and reads it. `None`: it has one, or was written to in the last `rest`.
fn take_over(path: &Path, of_this_boot: bool, rest: Duration) -> io::Result<Option<(Held, Vec<u8>)>> {
    let age = path.metadata().ok().and_then(|meta| meta.modified().ok()?.elapsed().ok());
    let held = match of_this_boot {
        true if age.is_some_and(|age| age < rest) => None,
        true => Lock::at(path).try_take()?,
        // Whoever has it is putting back what it holds: nobody is to look before that is done.
        false => Some(Lock::at(path).take()?),
    };
    held.map(|held| Ok((held, fs::read(path)?))).transpose()
}

impl Spool {
    /// Journals of supervisors.
    pub fn journal(&self) -> PathBuf {
        self.root().join("journal")
    }

    /// Puts back what a restart of the machine took from ends that were recorded, if it did.
    pub(super) fn restore_after_restart(&self) -> anyhow::Result<()> {
        let all = names(&self.journal())?;
        if all.is_empty() {
            return Ok(());
        }
        let boot = boot_id().context("cannot read the boot's id")?;
        match all.iter().all(|name| name.as_encoded_bytes().starts_with(boot.as_bytes())) {
            true => Ok(()),
            false => self.settle_journals(Duration::ZERO),
        }
    }

    /// Takes over the journals of supervisors that are gone: restores their ends if they are of an earlier boot, and waits
    /// for the disk. One that was written to in the last `rest` is left alone.
    pub fn settle_journals(&self, rest: Duration) -> anyhow::Result<()> {
        let boot = boot_id().context("cannot read the boot's id")?;
        let (mut left, mut failed) = (Vec::new(), None);
        for name in names(&self.journal())? {
            let of_this_boot = name.as_encoded_bytes().starts_with(boot.as_bytes());
            let path = self.journal().join(name);
            match take_over(&path, of_this_boot, rest) {
                Ok(Some((held, bytes))) => left.push((path, of_this_boot, held, bytes)),
                Ok(None) => {}
                // One that cannot be read does not stop the others (I10).
                Err(e) => {
                    failed = Some(anyhow::Error::new(e).context(format!("cannot read {}", path.display())))
                }
            }
        }
        let mut entries = BTreeMap::new();
        for (_, of_this_boot, _, bytes) in &left {
            // A line that was cut short was never relied on.
            for entry in bytes.split(|b| *b == b'\n').flat_map(serde_json::from_slice::<Entry>) {
                let known =
                    entries.entry((entry.task, entry.attempt)).or_insert((entry.clone(), of_this_boot));
                if known.0.at <= entry.at {
                    *known = (entry, of_this_boot);
                }
            }
        }
        let mut busy = false;
        for (entry, _) in entries.values().filter(|(_, of_this_boot)| !*of_this_boot) {
            match entry.restore(self).with_context(|| format!("task {}", entry.task)) {
                Ok(restored) => busy |= !restored,
                Err(e) => failed = Some(e),
            }
        }
        sync(self, &entries.values().map(|(entry, _)| entry.paths(self)).collect::<Vec<_>>())?;
        if let Some(e) = failed {
            return Err(e.context("what a restart took from an end could not be put back"));
        }
        if !busy {
            for (path, _, _held, _) in left {
                durable::remove_file(&path)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::bare_result_of;
    use super::*;
    use crate::model::State;
    use crate::model::result::FileRef;
    use std::os::unix::ffi::OsStrExt as _;

    struct Bench {
        dir: tempfile::TempDir,
        spool: Spool,
        task: TaskId,
    }

    impl Bench {
        fn new() -> Bench {
            let dir = tempfile::tempdir().unwrap();
            let spool = Spool::open(dir.path()).unwrap();
            let task = TaskId::generate();
            let bench = Bench { dir, spool, task };
            for (path, text) in [("attempts/1/steps/a.json", "a"), ("events.jsonl", "first\n")] {
                bench.write(path, text);
            }
            bench.write("receipt.json", "receipt");
            bench.write("result.json", &bench.result(1, "receipt"));
            bench
        }

        fn path(&self, name: &str) -> PathBuf {
            self.spool.task(self.task).path().join(name)
        }

        fn write(&self, name: &str, text: &str) {
            fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
            fs::write(self.path(name), text).unwrap();
        }

        fn read(&self, name: &str) -> String {
            fs::read_to_string(self.path(name)).unwrap_or_default()
        }

        fn result(&self, attempt: u32, receipt: &str) -> String {
            let worker = "shell".parse().unwrap();
            let mut result = bare_result_of(self.task, worker, State::Succeeded, None, String::new());
            result.attempt = attempt;
            let sha256 = events::hash(receipt.as_bytes());
            result.receipt = Some(FileRef { path: "receipt.json".into(), bytes: 7, sha256 });
            serde_json::to_string(&result).unwrap()
        }

        /// The end as it is now.
        fn entry(&self) -> Entry {
            let mut entry = Entry::new(self.task, 1);
            let root = self.spool.task(self.task).path().to_owned();
            let keep = |entry: &mut Entry, name: &str| {
                let bytes = fs::read(root.join(name)).unwrap();
                assert!(entry.keep(&root, &root.join(name), &bytes, &events::hash(&bytes)));
            };
            keep(&mut entry, "attempts/1/steps/a.json");
            keep(&mut entry, "events.jsonl");
            let receipt = root.join("receipt.json");
            assert!(entry.keep_receipt(&root, &receipt, b"receipt", &events::hash(b"receipt")));
            keep(&mut entry, "result.json");
            entry
        }

        /// A journal whose owner is gone.
        fn journal(&self) -> PathBuf {
            let journal = Journal::of(&self.spool);
            journal.add(&self.entry()).unwrap();
            drop(journal);
            let all = names(&self.spool.journal()).unwrap();
            self.spool.journal().join(&all[0])
        }

        /// A restart of the machine.
        fn restart(&self) {
            for name in names(&self.spool.journal()).unwrap() {
                let of_before = format!("another-boot{}", name.to_str().unwrap());
                fs::rename(self.spool.journal().join(name), self.spool.journal().join(of_before)).unwrap();
            }
            Spool::open(self.dir.path()).unwrap();
        }

        fn is_settled(&self) -> bool {
            names(&self.spool.journal()).unwrap().is_empty()
        }
    }

    #[test]
    fn what_a_restart_took_is_put_back_and_what_has_grown_stays() {
        let bench = Bench::new();
        let result = bench.read("result.json");
        bench.journal();
        fs::remove_dir_all(bench.path("attempts")).unwrap();
        bench.write("receipt.json", "");
        bench.write("result.json", "{\"vers");
        bench.write("events.jsonl", "first\nsecond\n");
        bench.restart();
        assert_eq!(bench.read("attempts/1/steps/a.json"), "a");
        assert_eq!(bench.read("receipt.json"), "receipt");
        assert_eq!(bench.read("result.json"), result);
        assert_eq!(bench.read("events.jsonl"), "first\nsecond\n");
        assert!(bench.is_settled());
    }

    #[test]
    fn another_end_that_was_recorded_later_stays() {
        let bench = Bench::new();
        bench.journal();
        bench.write("attempts/1/steps/a.json", "b");
        bench.write("receipt.json", "other");
        bench.write("result.json", &bench.result(1, "other"));
        bench.restart();
        assert_eq!(bench.read("attempts/1/steps/a.json"), "b");
        assert_eq!(bench.read("receipt.json"), "other");
        assert!(bench.is_settled());
    }

    #[test]
    fn of_two_journals_the_later_end_counts() {
        let bench = Bench::new();
        bench.journal();
        bench.write("attempts/1/steps/a.json", "b");
        bench.journal();
        bench.write("attempts/1/steps/a.json", "");
        bench.restart();
        assert_eq!(bench.read("attempts/1/steps/a.json"), "b");
        assert!(bench.is_settled());
    }

    #[test]
    fn of_an_attempt_after_which_another_ended_the_records_are_put_back() {
        let bench = Bench::new();
        bench.journal();
        bench.write("attempts/1/steps/a.json", "");
        fs::remove_file(bench.path("receipt.json")).unwrap();
        bench.write("result.json", &bench.result(2, "of the second"));
        bench.restart();
        assert_eq!(bench.read("attempts/1/steps/a.json"), "a");
        assert_eq!(bench.read("receipt.json"), "");
        assert!(bench.is_settled());
    }

    /// I10.
    #[test]
    fn one_journal_that_cannot_be_read_does_not_stop_the_others() {
        let bench = Bench::new();
        bench.journal();
        bench.write("receipt.json", "");
        fs::create_dir(bench.spool.journal().join("a-folder")).unwrap();
        bench.restart();
        assert_eq!(bench.read("receipt.json"), "receipt");
        let told = bench.spool.settle_journals(Duration::ZERO).unwrap_err();
        assert!(format!("{told:#}").contains("a-folder"), "{told:#}");
    }

    #[test]
    fn a_task_that_is_gone_stays_so() {
        let bench = Bench::new();
        bench.journal();
        fs::remove_dir_all(bench.path("")).unwrap();
        bench.restart();
        assert!(!bench.path("").exists() && bench.is_settled());
    }

    #[test]
    fn nothing_is_written_outside_of_the_task() {
        let bench = Bench::new();
        let path = bench.journal();
        let text = fs::read_to_string(&path).unwrap();
        let outside = bench.dir.path().join("outside");
        fs::create_dir(&outside).unwrap();
        for to in ["../../outside/x", "/outside/x", "attempts/1/link/x"] {
            fs::write(&path, text.replace("attempts/1/steps/a.json", to)).unwrap();
            fs::create_dir_all(bench.path("attempts/1")).unwrap();
            let _ = std::os::unix::fs::symlink(&outside, bench.path("attempts/1/link"));
            bench.write("receipt.json", "");
            let name = path.file_name().unwrap().to_owned();
            bench.restart();
            assert_eq!(bench.read("receipt.json"), "receipt", "the others are put back");
            assert_eq!(names(&outside).unwrap().len(), 0, "{to}");
            assert!(bench.is_settled(), "{name:?}");
        }
    }

    #[test]
    fn a_line_that_was_cut_short_or_spoiled_says_nothing() {
        let bench = Bench::new();
        let path = bench.journal();
        let text = fs::read_to_string(&path).unwrap();
        let spoiled = text.replace("\"text\":\"a\"", "\"text\":\"c\"");
        assert_ne!(spoiled, text);
        fs::write(&path, format!("{}\n{spoiled}", &text[..text.len() / 2])).unwrap();
        bench.write("attempts/1/steps/a.json", "b");
        bench.write("receipt.json", "");
        bench.restart();
        assert_eq!(bench.read("attempts/1/steps/a.json"), "b", "its hash is another");
        assert_eq!(bench.read("receipt.json"), "receipt");
        assert!(bench.is_settled());
    }

    #[test]
    fn a_journal_of_this_boot_is_left_to_its_owner_and_then_to_a_pass() {
        let bench = Bench::new();
        let journal = Journal::of(&bench.spool);
        journal.settle().unwrap();
        journal.add(&bench.entry()).unwrap();
        bench.write("attempts/1/steps/a.json", "b");
        bench.spool.settle_journals(Duration::ZERO).unwrap();
        assert!(!bench.is_settled(), "its owner lives");
        drop(journal);
        bench.spool.settle_journals(Duration::from_secs(60)).unwrap();
        assert!(!bench.is_settled(), "most that are new have an owner");
        bench.spool.settle_journals(Duration::ZERO).unwrap();
        assert_eq!(bench.read("attempts/1/steps/a.json"), "b", "nothing is lost without a restart");
        assert!(bench.is_settled());

        let journal = Journal::of(&bench.spool);
        journal.add(&bench.entry()).unwrap();
        journal.settle().unwrap();
        assert!(bench.is_settled());
    }

    #[test]
    fn what_is_long_or_no_text_is_not_kept() {
        let bench = Bench::new();
        let root = bench.path("");
        let mut entry = Entry::new(bench.task, 1);
        assert!(!entry.keep(&root, &root.join("a"), &[0xff], "x"));
        let name = std::ffi::OsStr::from_bytes(b"a\xff");
        assert!(!entry.keep(&root, &root.join(name), b"a", "x"), "a name that is no text");
        assert!(!entry.keep(&root, &root.join("a"), &vec![b'a'; 64 << 10 | 1], "x"));
        let kept = (0..9).filter(|_| entry.keep(&root, &root.join("a"), &vec![b'a'; 64 << 10], "x")).count();
        assert_eq!(kept, 4);
    }
}
