//! Inboxes in which nothing happens: one that held no task, and that was not changed since, is not read again. Reading
//! a folder wakes whoever watches it, and that is the reader.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// A change may be followed by another one within the same tick of a file system's clock: such a time tells nothing.
const TICK: Duration = Duration::from_secs(5);

/// Folders that held no task, and when they had been changed.
static EMPTY: Mutex<BTreeMap<PathBuf, SystemTime>> = Mutex::new(BTreeMap::new());

/// When a folder was changed, if that is long enough ago to tell later changes from it.
pub(super) fn changed(dir: &Path) -> Option<SystemTime> {
    let at = dir.metadata().ok()?.modified().ok()?;
    at.elapsed().is_ok_and(|age| age >= TICK).then_some(at)
}

/// Whether a folder that was changed then has been seen to hold no task.
pub(super) fn is_empty(dir: &Path, changed: Option<SystemTime>) -> bool {
    let seen = EMPTY.lock().unwrap_or_else(PoisonError::into_inner);
    changed.is_some_and(|at| seen.get(dir) == Some(&at))
}

/// Keeps that a folder, which was changed then, holds no task.
pub(super) fn saw_empty(dir: &Path, changed: Option<SystemTime>) {
    let mut seen = EMPTY.lock().unwrap_or_else(PoisonError::into_inner);
    match changed {
        Some(at) => drop(seen.insert(dir.to_owned(), at)),
        None => drop(seen.remove(dir)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_was_changed_since_is_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        let old = |age: u64| {
            let at = SystemTime::now() - Duration::from_secs(age);
            std::fs::File::open(dir).unwrap().set_modified(at).unwrap();
            changed(dir)
        };
        assert_eq!(changed(dir), None, "it was made just now");
        let before = old(60);
        assert!(before.is_some() && !is_empty(dir, before));
        saw_empty(dir, before);
        assert!(is_empty(dir, changed(dir)));
        std::fs::write(dir.join("task.json"), "").unwrap();
        assert!(!is_empty(dir, changed(dir)), "a file came");
        assert!(!is_empty(dir, old(30)), "and is there still");
    }
}
