//! The checkouts that overlays are laid over: made when the first task wants one, shared by all that come after it.

use super::{Overlay, root};
use crate::durable::{self, GoOn};
use crate::git::{Oid, Repo, Worktree, pristine, worktree};
use crate::model::hex;
use crate::spool::{Spool, names};
use anyhow::Context as _;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Somebody wrote to a checkout.
pub(super) const SPOILED: &str = "spoiled";
/// Its time is when a checkout was last taken; it names the boot that made it.
const USED: &str = "used";

impl Overlay {
    /// Finds or makes the checkout of `commit`, and records that this task uses it.
    pub(super) fn take_base(
        &self,
        spool: &Spool,
        repo: &Repo,
        tree: &Worktree,
        commit: &Oid,
        go_on: GoOn<'_>,
    ) -> anyhow::Result<PathBuf> {
        let what = what(repo, tree, commit)?;
        let place = bases(&self.root).join(&repo.key.hash);
        durable::ensure_dir(&place)?;
        let lock = lock(spool, &repo.key.hash);
        let _alone = loop {
            match lock.try_take()? {
                Some(held) => break held,
                None => std::thread::sleep(Duration::from_millis(5)),
            }
            go_on()?;
        };
        let numbers = numbers(&place, &what)?;
        let fit = numbers.last().map(|n| place.join(format!("{what}.{n}")));
        let base = match fit.filter(|base| !base.join(SPOILED).exists()) {
            Some(base) => base,
            None => {
                let base = place.join(format!("{what}.{}", numbers.last().map_or(0, |n| n + 1)));
                make(&base, tree, commit, go_on)?;
                base
            }
        };
        durable::replace_unsynced(&base.join(USED), crate::process::boot_id()?.as_bytes())?;
        durable::ensure_dir(&self.folder)?;
        let name = base.file_name().unwrap_or_default().to_string_lossy();
        let record = format!("{}/{name}", repo.key.hash);
        durable::replace_unsynced(&self.folder.join("base"), record.as_bytes())?;
        Ok(base)
    }
}

pub(super) fn bases(root: &Path) -> PathBuf {
    root.join("base")
}

fn lock(spool: &Spool, repository: &str) -> durable::Lock {
    spool.lock(&format!("base-{repository}"))
}

/// The name of a checkout: what decides its bytes, and the boot that it was made in.
fn what(repo: &Repo, tree: &Worktree, commit: &Oid) -> anyhow::Result<String> {
    let settings = pristine::settings(repo, tree)?;
    let mut hash = Sha256::new();
    hash.update(format!("{commit}\0{settings}\0{}", crate::process::boot_id()?));
    Ok(hex(&hash.finalize()[..16]))
}

/// The numbers of the checkouts of one content, in order.
fn numbers(place: &Path, what: &str) -> io::Result<Vec<u32>> {
    let number = |name: &std::ffi::OsString| {
        let (head, n) = name.to_str()?.rsplit_once('.')?;
        if head == what { n.parse().ok() } else { None }
    };
    let mut found: Vec<u32> = names(place)?.iter().filter_map(number).collect();
    found.sort_unstable();
    Ok(found)
}

/// Makes a checkout aside and renames it when it is whole.
fn make(base: &Path, tree: &Worktree, commit: &Oid, go_on: GoOn<'_>) -> anyhow::Result<()> {
    let building = base.with_file_name(durable::unique_name());
    let (folder, index) = (building.join("tree"), building.join("index"));
    durable::ensure_dir(&folder)?;
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
    let made = pristine::fill(tree, commit, (&folder, &index), cores.max(4), go_on)
        .map_err(anyhow::Error::from)
        .and_then(|()| Ok(durable::rename_noreplace(&building, base)?));
    if made.is_err() {
        let _ = worktree::delete_tree(&building);
    }
    made.with_context(|| format!("cannot make the checkout {}", base.display()))
}

/// A checkout that no task uses.
#[derive(Debug)]
pub struct Checkout {
    /// Where it is.
    pub path: PathBuf,
    /// Why it may go.
    pub why: &'static str,
    repository: String,
}

/// Checkouts that no task uses and that none will, or that none has taken for as long as `idle`.
pub fn unused(spool: &Spool, idle: Duration) -> anyhow::Result<Vec<Checkout>> {
    let root = root(spool);
    let mut found = Vec::new();
    for repository in names(&bases(&root))? {
        let Some(repository) = repository.to_str() else { continue };
        for name in names(&bases(&root).join(repository))? {
            let path = bases(&root).join(repository).join(&name);
            if let Some(why) = why_unused(&root, &path, idle)? {
                found.push(Checkout { path, why, repository: repository.to_owned() });
            }
        }
    }
    Ok(found)
}

/// Takes a checkout away, if still no task uses it. Says whether it is gone.
pub fn prune(spool: &Spool, checkout: &Checkout, idle: Duration) -> anyhow::Result<bool> {
    // While somebody makes one, nothing is known of it.
    let Some(_alone) = lock(spool, &checkout.repository).try_take()? else { return Ok(false) };
    if why_unused(&root(spool), &checkout.path, idle)?.is_none() {
        return Ok(false);
    }
    let trash = crate::workspace::trash(spool);
    durable::ensure_dir(&trash)?;
    let aside = trash.join(durable::unique_name());
    match durable::rename_noreplace(&checkout.path, &aside) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(true),
        other => other?,
    }
    worktree::delete_tree(&aside).with_context(|| format!("cannot delete {}", aside.display()))?;
    Ok(true)
}

fn why_unused(root: &Path, path: &Path, idle: Duration) -> anyhow::Result<Option<&'static str>> {
    let Some(name) = path.file_name().and_then(|n| n.to_str()) else { return Ok(None) };
    let repository = path.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy();
    if used(root)?.contains(&format!("{repository}/{name}")) {
        return Ok(None);
    }
    let mark = path.join(USED);
    let boot = match fs::read_to_string(&mark) {
        Ok(boot) => boot,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Some("it was never finished")),
        Err(e) => return Err(e).with_context(|| format!("cannot read {}", mark.display())),
    };
    if path.join(SPOILED).exists() {
        return Ok(Some("somebody wrote to it"));
    }
    if boot != crate::process::boot_id()? {
        return Ok(Some("it is of an earlier start of the machine"));
    }
    let age = SystemTime::now().duration_since(fs::metadata(&mark)?.modified()?).unwrap_or_default();
    Ok((age >= idle).then_some("no task has used it for some time"))
}

/// The checkouts that tasks use, as they name them.
fn used(root: &Path) -> io::Result<BTreeSet<String>> {
    let tasks = root.join("tasks");
    let mut found = BTreeSet::new();
    for id in names(&tasks)? {
        match fs::read_to_string(tasks.join(id).join("base")) {
            Ok(name) => drop(found.insert(name)),
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(found)
}
