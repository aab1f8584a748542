//! Warm trees: the tree of a task that ended, cleaned, for the next one on its repository.
//!
//! They lie in `worktrees/.warm/<repository>/`, each under a number from 1 to as many as are wanted: a rename that
//! refuses gives a number away, and a rename takes one, so that each tree goes to one task and no lock is
//! needed. What has another name there is being made ready or being taken. All of it may go at any time: whatever
//! a tree held was kept elsewhere before it came here (I7).

use crate::durable::{self, GoOn};
use crate::git::{GitError, Oid, Repo, Salvaged, Stamps, View, Worktree, reuse, worktree};
use crate::model::{Config, TaskId};
use crate::process::boot_id;
use crate::spool::{Spool, names, read_json};
use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// What is being made ready or taken is left alone for this long.
const YOUNG: Duration = Duration::from_secs(600);

/// The warm trees of a repository.
#[derive(Debug, Clone)]
pub struct Pool {
    dir: PathBuf,
    /// How many are wanted.
    most: u32,
}

/// What is known of a warm tree: `warm.json` beside it.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Note {
    /// Whose tree it was.
    task: TaskId,
    /// The commit that it equals.
    commit: Oid,
    /// By which rules its files were written: see [`View::rules`].
    rules: String,
    /// The boot in which that was so: what the disk holds after a power loss, no time of a file tells.
    boot: String,
    /// The repository's git dir.
    common: PathBuf,
    /// The repository's checkout, if it has one.
    top: Option<PathBuf>,
}

/// A warm tree that is taken out of its pool: nobody else gets it.
#[derive(Debug)]
pub struct Taken {
    place: PathBuf,
    note: Note,
}

impl Pool {
    /// The pool of a repository, if its owner wants warm trees of it and it can have them.
    pub fn of(spool: &Spool, config: &Config, repo: &Repo) -> Option<Pool> {
        let most = wanted(config, repo.top.as_deref(), &repo.common);
        if most == 0 {
            return None;
        }
        // Trees with less than all files of a commit, and settings of one tree alone.
        let special = ["info/sparse-checkout", "config.worktree"];
        let is_special =
            special.iter().any(|f| repo.git_dir.join(f).exists() || repo.common.join(f).exists());
        (!is_special).then(|| Pool { dir: folder(spool).join(&repo.key.hash), most })
    }

    /// Whether one more is wanted.
    pub fn has_room(&self) -> bool {
        (1..=self.most).any(|n| fs::symlink_metadata(self.slot(n)).is_err())
    }

    fn slot(&self, n: u32) -> PathBuf {
        self.dir.join(n.to_string())
    }

    /// Takes the tree of a task that ended out of use and makes it ready for another one. `stamps` are of when it was
    /// filled, `now` of when its work was recorded, if the proof says that nothing was touched since.
    ///
    /// Says whether it is wanted now that it is ready. If it cannot be made ready it is removed: the proof says that
    /// nothing is lost by that.
    pub fn keep(
        &self,
        (spool, repo, task): (&Spool, &Repo, TaskId),
        view: &View,
        proof: Salvaged,
        (stamps, now): (&Stamps, Option<&Stamps>),
        go_on: GoOn<'_>,
    ) -> anyhow::Result<bool> {
        let note = Note {
            task,
            commit: stamps.what().clone(),
            rules: view.rules().to_owned(),
            boot: boot_id().context("cannot read the boot's id")?,
            common: repo.common.clone(),
            top: repo.top.clone(),
        };
        let place = self.dir.join(durable::unique_name());
        durable::ensure_dir(&place)?;
        let made = (|| {
            let tree = tree_at(&place);
            let there = {
                let _alone = spool.repo_lock(&repo.key.hash).take().context("cannot lock the repository")?;
                worktree::hand_over(repo, view.worktree(), proof, &tree.path)?
            };
            anyhow::ensure!(there, "{} is gone", view.worktree().path.display());
            reuse::make_ready(view, &tree, stamps, now, go_on)?;
            durable::replace_unsynced(&place.join(NOTE), &serde_json::to_vec_pretty(&note)?)?;
            for n in 1..=self.most {
                match durable::rename_noreplace(&place, &self.slot(n)) {
                    Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                    other => return other.map(|()| true).map_err(anyhow::Error::from),
                }
            }
            Ok(false)
        })();
        if !matches!(made, Ok(true)) {
            worktree::delete_tree(&place).with_context(|| format!("cannot delete {}", place.display()))?;
        }
        made
    }

    /// Takes a warm tree, if there is one: rather one that equals `start`. Those that no task can have are
    /// removed.
    pub fn take(&self, start: &Oid) -> io::Result<Option<Taken>> {
        let mut found: Vec<(PathBuf, Note)> = Vec::new();
        for name in names(&self.dir)? {
            let path = self.dir.join(name);
            if is_number(&path) {
                match read_json::<Note>(&path.join(NOTE)).ok().flatten().filter(is_of_this_boot) {
                    Some(note) => found.push((path, note)),
                    None => discard(&path)?,
                }
            }
        }
        found.sort_by_key(|(_, note)| note.commit != *start);
        for (slot, note) in found {
            if let Some(place) = draw(&slot)? {
                return Ok(Some(Taken { place, note }));
            }
        }
        Ok(None)
    }
}

impl Taken {
    /// Whose tree it was.
    pub fn task(&self) -> TaskId {
        self.note.task
    }

    /// By which rules its files were written.
    pub fn rules(&self) -> &str {
        &self.note.rules
    }

    /// Gives it to a worktree that was just registered and is not filled. Says whether that has it now; if not,
    /// the tree was not what it should have been, and is gone.
    pub fn give(&self, to: &Worktree, start: &Oid, workers: u32, go_on: GoOn<'_>) -> Result<bool, GitError> {
        reuse::take_over(&tree_at(&self.place), &self.note.commit, to, start, workers, go_on)
    }

    /// Removes what is left of it.
    pub fn clear_up(self) -> io::Result<()> {
        worktree::delete_tree(&self.place)
    }
}

/// The file in which a warm tree's note is.
const NOTE: &str = "warm.json";

/// The tree at a place of the pool, with a folder of ours where its git dir would be.
fn tree_at(place: &Path) -> Worktree {
    Worktree { path: place.join("tree"), git_dir: place.to_owned(), branch: String::new() }
}

fn is_number(path: &Path) -> bool {
    path.file_name().and_then(|n| n.to_str()).is_some_and(|n| n.parse::<u32>().is_ok())
}

fn is_of_this_boot(note: &Note) -> bool {
    boot_id().is_ok_and(|boot| boot == note.boot)
}

/// Takes a tree out of its number, if nobody was faster. Returns where it is then.
fn draw(slot: &Path) -> io::Result<Option<PathBuf>> {
    // Whoever looks for what crashes left goes by this time.
    match File::open(slot).and_then(|folder| folder.set_modified(SystemTime::now())) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    }
    let place = slot.with_file_name(durable::unique_name());
    match durable::rename_noreplace(slot, &place) {
        Ok(()) => Ok(Some(place)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

/// Removes a tree of a pool, ready or not, so that nobody gets it half removed.
pub fn discard(path: &Path) -> io::Result<()> {
    match draw(path)? {
        Some(place) => worktree::delete_tree(&place),
        None => Ok(()),
    }
}

/// How many warm trees the owner wants of a repository.
fn wanted(config: &Config, top: Option<&Path>, common: &Path) -> u32 {
    let named = config.warm_trees.iter().find(|(path, _)| {
        let path = match path.strip_prefix("~") {
            Ok(rest) => std::env::home_dir().unwrap_or_default().join(rest),
            Err(_) => path.to_path_buf(),
        };
        path.canonicalize()
            .is_ok_and(|path| Some(path.as_path()) == top || path == common || path.join(".git") == common)
    });
    named.map_or(0, |(_, most)| *most)
}

/// Where the pools are: on the disk of the workspaces.
fn folder(spool: &Spool) -> PathBuf {
    spool.worktrees().join(".warm")
}

/// A tree of a pool.
#[derive(Debug)]
pub struct Warm {
    /// Where it is.
    pub path: PathBuf,
    /// Whether a task may take it.
    pub is_ready: bool,
    /// Why no task will be given it, if that is so.
    pub useless: Option<String>,
    /// For how long it has been there.
    pub age: Duration,
}

/// Lists the trees of all pools.
pub fn list(spool: &Spool, config: &Config) -> io::Result<Vec<Warm>> {
    let mut all = Vec::new();
    for pool in names(&folder(spool))? {
        let dir = folder(spool).join(pool);
        for name in names(&dir)? {
            let path = dir.join(name);
            let Ok(meta) = fs::symlink_metadata(&path) else { continue };
            let age = meta.modified().ok().and_then(|at| at.elapsed().ok()).unwrap_or_default();
            let is_ready = is_number(&path);
            let useless = match is_ready {
                true => useless(&path, config),
                false => {
                    (age >= YOUNG).then(|| "it was being made ready or taken, and that never ended".into())
                }
            };
            all.push(Warm { path, is_ready, useless, age });
        }
    }
    Ok(all)
}

fn useless(path: &Path, config: &Config) -> Option<String> {
    let note = match read_json::<Note>(&path.join(NOTE)) {
        Ok(Some(note)) => note,
        // It is just being taken.
        Ok(None) if fs::symlink_metadata(path).is_err() => return None,
        _ => return Some("nothing tells what it is".into()),
    };
    let number: u32 = path.file_name()?.to_str()?.parse().ok()?;
    if !is_of_this_boot(&note) {
        Some("the machine was restarted since it was made ready".into())
    } else if number > wanted(config, note.top.as_deref(), &note.common) {
        Some("the configuration does not ask for it any more".into())
    } else {
        None
    }
}
