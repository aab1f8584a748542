//! Dropped files: `cp task.json inbox/` is an interface.
//!
//! A file is first renamed to a name of ours in the same folder, so that a newer file of the same name is
//! another file; then taken, answered, and removed. A crash anywhere in between is made good by the next
//! pass: the key derived from name, time and content makes the second submission the first one.

use super::quiet;
use super::{Accepted, Refused, submit_with_key};
use crate::durable;
use crate::model::config::Inbox;
use crate::model::input::{self, Submission};
use crate::model::task::SubmittedBy;
use crate::model::{Config, Door, Problem, ProblemKind, Rejection, VERSION};
use crate::spool::{Spool, dropped_name, events, names};
use anyhow::Context as _;
use chrono::Utc;
use serde::Serialize;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A file in our hands: the prefix of its name until it is answered.
const TAKING: &str = ".taking-";
/// How long a file of lines must have been still: a part of it reads like the whole.
const STILL: Duration = Duration::from_secs(2);
/// How long a file that cannot be read is left alone, since it may still be arriving.
const PATIENCE: Duration = Duration::from_secs(10);
/// Largest dropped file.
const MAX_BYTES: u64 = 64 * 1024 * 1024;

/// What became of the dropped files that were looked at.
#[derive(Debug, Default)]
pub struct Admitted {
    /// Tasks that came in.
    pub tasks: Vec<Accepted>,
    /// Names of files that were refused.
    pub refused: Vec<String>,
    /// Files that are perhaps still being written.
    pub waiting: usize,
    /// What went wrong with single files or inboxes.
    pub faults: Vec<anyhow::Error>,
}

/// The answer to a dropped file that was taken: `taken/NAME.json`.
#[derive(Debug, Serialize)]
struct Taken<'a> {
    version: u32,
    file: &'a str,
    at: chrono::DateTime<Utc>,
    tasks: &'a [Accepted],
}

/// Takes what lies in the inboxes. One bad file, or one bad inbox, never stops the others.
pub fn admit_inboxes(spool: &Spool, config: &Config) -> Admitted {
    let own = Inbox { path: spool.inbox(), results: None };
    let mut admitted = Admitted::default();
    for inbox in std::iter::once(&own).chain(&config.inbox) {
        if let Err(e) = admit_inbox(spool, config, inbox, &mut admitted) {
            admitted.faults.push(e.context(format!("inbox {}", inbox.path.display())));
        }
    }
    admitted
}

fn admit_inbox(spool: &Spool, config: &Config, inbox: &Inbox, admitted: &mut Admitted) -> anyhow::Result<()> {
    let changed = quiet::changed(&inbox.path);
    if quiet::is_empty(&inbox.path, changed) {
        return Ok(());
    }
    let candidates = candidates(&inbox.path)?;
    if candidates.is_empty() {
        quiet::saw_empty(&inbox.path, changed);
        return Ok(());
    }
    let lock = spool.lock("inbox");
    let _one_at_a_time = lock.take()?;
    for name in candidates {
        if let Err(e) = admit_file(spool, config, inbox, &name, admitted) {
            admitted.faults.push(e.context(format!("{}", inbox.path.join(&name).display())));
        }
    }
    Ok(())
}

/// Names that may be tasks, and files that an earlier pass did not get to answer.
fn candidates(dir: &Path) -> anyhow::Result<Vec<std::ffi::OsString>> {
    let mut found = names(dir)?;
    found.retain(|name| {
        let bytes = name.as_encoded_bytes();
        let hidden = bytes.first().is_some_and(|b| *b == b'.') && !bytes.starts_with(TAKING.as_bytes());
        !hidden && (bytes.ends_with(b".json") || bytes.ends_with(b".jsonl"))
    });
    found.sort_unstable();
    Ok(found)
}

fn admit_file(
    spool: &Spool,
    config: &Config,
    inbox: &Inbox,
    name: &OsStr,
    admitted: &mut Admitted,
) -> anyhow::Result<()> {
    let path = inbox.path.join(name);
    let shown = name.to_string_lossy().into_owned();
    let taking = shown.starts_with(TAKING);
    let original = dropped_name(shown.strip_prefix(TAKING).unwrap_or(&shown));

    let Some(meta) = stat(&path)? else { return Ok(()) };
    if !meta.is_file() {
        if meta.is_symlink() && path.is_file() {
            return refuse(
                inbox,
                spool,
                &path,
                &original,
                vec![malformed("a symbolic link is not taken: copy the file")],
                admitted,
            );
        }
        return Ok(());
    }
    if meta.len() > MAX_BYTES {
        return refuse(
            inbox,
            spool,
            &path,
            &original,
            vec![malformed(&format!("larger than {MAX_BYTES} bytes"))],
            admitted,
        );
    }
    let bytes = match fs::read(&path) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(e.into()),
    };
    let read = input::submission(&bytes);
    let old_enough = |patience| age(&inbox.path, &path).is_none_or(|age| age >= patience);
    match &read {
        // A whole JSON object cannot be half a file; a file of lines can.
        Ok(Submission::Many(_)) if !taking && is_lines(&bytes) && !old_enough(STILL) => {
            admitted.waiting += 1;
            return Ok(());
        }
        Err(_) if !taking && !is_json(&bytes) && !old_enough(PATIENCE) => {
            admitted.waiting += 1;
            return Ok(());
        }
        _ => {}
    }
    let submission = match read {
        Ok(submission) => submission,
        Err(problem) => return refuse(inbox, spool, &path, &original, vec![problem], admitted),
    };

    let held = if taking { path.clone() } else { inbox.path.join(format!("{TAKING}{original}")) };
    if !taking {
        match durable::rename_noreplace(&path, &held) {
            Ok(()) => {}
            // An earlier file of this name is not answered yet: it goes first, this one waits.
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {
                admitted.waiting += 1;
                return Ok(());
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(e.into()),
        }
        if fs::read(&held)? != bytes {
            // Written to between our look and our hold: look again in the next pass.
            durable::rename_noreplace(&held, &path)?;
            admitted.waiting += 1;
            return Ok(());
        }
    }
    let key = match &submission {
        Submission::One(spec) => spec.idempotency_key.clone(),
        Submission::Many(batch) => batch.idempotency_key.clone(),
    };
    let key = key.unwrap_or_else(|| {
        format!("inbox:{original}:{}.{:09}:{}", meta.mtime(), meta.mtime_nsec(), events::hash(&bytes))
    });
    let by = SubmittedBy {
        door: Door::Inbox,
        client: client_of(&submission),
        file: Some(original.clone()),
        results: inbox.results.clone(),
    };
    match submit_with_key(spool, config, submission, by, Some(key)) {
        Ok(tasks) => {
            let answer = Taken { version: VERSION, file: &original, at: Utc::now(), tasks: &tasks };
            answer_file(
                spool,
                inbox,
                &format!("{}.json", stem(&original)),
                &serde_json::to_vec_pretty(&answer)?,
                false,
            )?;
            durable::remove_file(&held)?;
            admitted.tasks.extend(tasks);
            Ok(())
        }
        Err(Refused::Problems(problems)) => refuse(inbox, spool, &held, &original, problems, admitted),
        // Not the file's fault: it stays, and the next pass tries again.
        Err(Refused::Disk(message)) => Err(anyhow::anyhow!(message)),
        Err(Refused::Fault(e)) => Err(e),
    }
}

/// Puts a refused file and the reason into `rejected/`.
fn refuse(
    inbox: &Inbox,
    spool: &Spool,
    path: &Path,
    original: &str,
    problems: Vec<Problem>,
    admitted: &mut Admitted,
) -> anyhow::Result<()> {
    let dir = spool.rejected();
    let rejection = Rejection { version: VERSION, file: original.to_owned(), at: Utc::now(), problems };
    let bytes = serde_json::to_vec_pretty(&rejection)?;
    // Told before the file is away: after a crash it is refused once more, and told again.
    answer_file(spool, inbox, &format!("{original}.reason.json"), &bytes, true)?;
    for n in 1.. {
        let name = if n == 1 { original.to_owned() } else { format!("{original}.{n}") };
        let reason = dir.join(format!("{name}.reason.json"));
        if stat(&dir.join(&name))?.is_some() {
            continue;
        }
        // One that is there without its file is of a refusal that a crash cut short, or the file was taken back.
        durable::replace(&reason, &bytes)?;
        match durable::move_across(path, &dir.join(&name)) {
            Ok(()) => break,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(durable::remove_file(&reason)?),
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => durable::remove_file(&reason)?,
            Err(e) => return Err(e).context("cannot move it to rejected/"),
        }
    }
    admitted.refused.push(original.to_owned());
    Ok(())
}

/// Writes an answer where its client can read it.
fn answer_file(
    spool: &Spool,
    inbox: &Inbox,
    name: &str,
    bytes: &[u8],
    only_results: bool,
) -> anyhow::Result<()> {
    if !only_results {
        durable::replace(&spool.taken().join(name), bytes)?;
    }
    if let Some(results) = &inbox.results {
        let path = results.join(name);
        durable::replace(&path, bytes).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// `task.json` is answered by `taken/task.json`, `tasks.jsonl` by `taken/tasks.jsonl.json`.
fn stem(name: &str) -> &str {
    name.strip_suffix(".json").unwrap_or(name)
}

fn client_of(submission: &Submission) -> Option<String> {
    match submission {
        Submission::One(spec) => spec.client.clone(),
        Submission::Many(batch) => batch.tasks.first()?.client.clone(),
    }
}

fn malformed(message: &str) -> Problem {
    Problem::new(ProblemKind::Malformed, message)
}

fn is_json(bytes: &[u8]) -> bool {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    serde_json::from_slice::<serde::de::IgnoredAny>(bytes).is_ok()
}

fn is_lines(bytes: &[u8]) -> bool {
    !is_json(bytes)
}

fn stat(path: &Path) -> std::io::Result<Option<fs::Metadata>> {
    match fs::symlink_metadata(path) {
        Ok(meta) => Ok(Some(meta)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

/// How long ago a file was last changed, by the clock of its own file system: a client's or a server's
/// clock may be hours off. `None` if that cannot be found out.
fn age(dir: &Path, path: &Path) -> Option<Duration> {
    let probe: PathBuf = dir.join(durable::unique_name());
    let made = fs::OpenOptions::new().write(true).create_new(true).open(&probe).and_then(|f| f.metadata());
    let _ = fs::remove_file(&probe);
    let now = made.ok()?;
    let file = fs::symlink_metadata(path).ok()?;
    let nanos = |m: &fs::Metadata| i128::from(m.ctime()) * 1_000_000_000 + i128::from(m.ctime_nsec());
    Some(Duration::from_nanos(u64::try_from(nanos(&now) - nanos(&file)).unwrap_or(0)))
}
