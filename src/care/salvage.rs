//! Salvages: what failed, cancelled and interrupted attempts left, kept under refs of their repositories.

use crate::git::{Repo, Salvage, SalvageEntry};
use crate::model::{EventKind, TaskId, WorkspaceKind};
use crate::spool::{Place, Spool, SpoolError};
use crate::workspace::apart;
use anyhow::Context as _;
use chrono::{DateTime, Utc};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// One salvage, for lists.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Salvaged {
    /// The task.
    pub task: String,
    /// The attempt.
    pub attempt: u32,
    /// Whether the task is in this spool. One that is not belongs to another spool, or was pruned.
    pub known: bool,
    /// The repository.
    pub repository: PathBuf,
    /// The ref.
    pub name: String,
    /// Its commit.
    pub commit: String,
    /// When it was taken.
    pub at: Option<DateTime<Utc>>,
    /// Whether it holds everything; absent if that cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub complete: Option<bool>,
    /// What could not be kept, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
    /// What was left out on purpose, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
    #[serde(skip)]
    entry: SalvageEntry,
}

impl Salvaged {
    fn of(spool: &Spool, repository: &Path, entry: SalvageEntry) -> Self {
        let list = |all: &[crate::git::LeftOut]| {
            all.iter().map(|l| format!("{}: {}", l.path.display(), l.why)).collect()
        };
        let known = entry.id.parse::<TaskId>().is_ok_and(|id| spool.task(id).record(1).is_file());
        Salvaged {
            task: entry.id.clone(),
            attempt: entry.attempt,
            known,
            repository: repository.to_owned(),
            name: entry.refname.clone(),
            commit: entry.commit.to_string(),
            at: DateTime::from_timestamp(entry.seconds, 0),
            complete: entry.about.as_ref().map(|a| a.complete),
            missing: entry.about.as_ref().map(|a| list(&a.missing)).unwrap_or_default(),
            left_out: entry.about.as_ref().map(|a| list(&a.left_out)).unwrap_or_default(),
            entry,
        }
    }
}

/// What a list of salvages came to.
#[derive(Debug, Default, Serialize, JsonSchema)]
pub struct Listing {
    /// The salvages, newest first.
    pub salvages: Vec<Salvaged>,
    /// Repositories that could not be looked at, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<String>,
}

/// Lists the salvages of one repository, or of all that tasks of this spool were about.
pub fn list(spool: &Spool, repository: Option<&Path>) -> anyhow::Result<Listing> {
    let mut places: BTreeSet<PathBuf> = BTreeSet::new();
    match repository {
        Some(path) => {
            let path = path.canonicalize().with_context(|| format!("cannot find {}", path.display()))?;
            places.insert(path);
        }
        None => {
            for name in crate::spool::names(&spool.tasks())? {
                let Some(id) = name.to_str().and_then(|n| n.parse().ok()) else { continue };
                if let Ok(task) = spool.read_task(id)
                    && task.spec.workspace() != WorkspaceKind::Copy
                    && let Some(repo) = apart::repository(spool, &task)
                {
                    places.insert(repo);
                }
            }
            // What was worked on in copies, also for tasks that are gone.
            places.extend(crate::spool::names(&spool.copies())?.iter().map(|name| spool.copies().join(name)));
        }
    }
    let mut listing = Listing::default();
    let mut seen = BTreeSet::new();
    for place in places {
        let entries = Repo::open(&place)
            .map_err(anyhow::Error::from)
            .and_then(|repo| Ok((repo.common.clone(), Salvage::list(&repo)?)));
        match entries {
            // Several folders of one repository.
            Ok((common, _)) if !seen.insert(common.clone()) => {}
            Ok((_, entries)) => {
                listing.salvages.extend(entries.into_iter().map(|e| Salvaged::of(spool, &place, e)));
            }
            Err(e) if repository.is_some() => return Err(e),
            Err(e) => listing.unreadable.push(format!("{}: {e:#}", place.display())),
        }
    }
    listing.salvages.sort_by_key(|s| std::cmp::Reverse((s.entry.seconds, s.name.clone())));
    Ok(listing)
}

/// The salvages of one task, the newest attempt first.
pub fn of_task(spool: &Spool, id: TaskId) -> anyhow::Result<Vec<Salvaged>> {
    let task = spool.read_task(id)?;
    let Some(place) = apart::repository(spool, &task) else { return Ok(Vec::new()) };
    if task.spec.workspace() == WorkspaceKind::Copy && !place.exists() {
        return Ok(Vec::new());
    }
    let repo = Repo::open(&place)?;
    let mut found: Vec<Salvaged> = Salvage::list(&repo)?
        .into_iter()
        .filter(|e| e.id == id.to_string())
        .map(|e| Salvaged::of(spool, &place, e))
        .collect();
    found.sort_by_key(|s| std::cmp::Reverse(s.attempt));
    Ok(found)
}

/// One salvage of a task: of the attempt that is named, or the newest.
pub fn one(spool: &Spool, id: TaskId, attempt: Option<u32>) -> anyhow::Result<Salvaged> {
    let found = of_task(spool, id)?;
    let which = found.into_iter().find(|s| attempt.is_none_or(|n| n == s.attempt));
    which.ok_or_else(|| {
        let message = match attempt {
            Some(n) => format!("task {id} has no salvage of attempt {n}"),
            None => format!("task {id} has no salvage: what succeeds is committed, and nothing is lost"),
        };
        SpoolError::WrongState(message).into()
    })
}

/// Paths that a salvage holds: what git would record, and what it would not.
pub fn files(salvaged: &Salvaged) -> anyhow::Result<Vec<String>> {
    let repo = Repo::open(&salvaged.repository)?;
    let out = repo
        .shared()
        .reads("ls-tree")
        .args(["-r", "-z", "--name-only", "--full-tree", salvaged.commit.as_str()])
        .run()?;
    let shown = |path: &[u8]| crate::workspace::manifest::shown(path);
    let mut paths: Vec<String> = out
        .split(|b| *b == 0)
        .filter_map(|p| match p.strip_prefix(b"tree/") {
            Some(path) => Some(shown(path)),
            None => p
                .strip_prefix(b"raw/")
                .map(|path| format!("{} (ignored, or of another repository)", shown(path))),
        })
        .collect();
    paths.sort_unstable();
    Ok(paths)
}

/// Puts all that a salvage holds into a new folder.
pub fn restore(salvaged: &Salvaged, into: &Path) -> anyhow::Result<()> {
    let repo = Repo::open(&salvaged.repository)?;
    Ok(Salvage::restore(&repo, &salvaged.entry, into)?)
}

/// Lets a salvage of a task of this spool go. One whose task is running stays.
pub fn drop(spool: &Spool, salvaged: &Salvaged) -> anyhow::Result<()> {
    let id: TaskId = salvaged.task.parse()?;
    let locked = spool.try_lock_task(id)?.ok_or(SpoolError::Busy(id))?;
    if locked.ticket()?.is_some_and(|t| t.place == Place::Running) {
        return Err(SpoolError::WrongState(format!("task {id} is running: its salvages stay")).into());
    }
    let repo = Repo::open(&salvaged.repository)?;
    Salvage::drop(&repo, &salvaged.entry)?;
    let message = format!("the salvage {} ({}) was dropped by hand", salvaged.name, salvaged.commit);
    locked.event(Some(salvaged.attempt), EventKind::Warning { message })
}
