//! What a workspace lacks against the user's checkout: looked up when it is made, and told with the result,
//! so that nobody wonders why a task did not see what is on the screen.
//!
//! What the commit holds is read from the index that was just written; what only the checkout holds is asked
//! of git while the tree is filled. Nothing here is a reason not to work: a look that fails is told, too.

mod attributes;
mod case;
mod checkout;
mod committed;
mod hooks;

pub use checkout::Checkout;

use crate::git::{Index, Repo, View};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Names that a line gives.
const NAMED: usize = 5;

/// Makes a workspace and looks at the checkout at the same time.
pub fn beside<T>(repo: &Repo, make: impl FnOnce() -> T) -> (T, Checkout) {
    std::thread::scope(|scope| {
        let look = std::thread::Builder::new().spawn_scoped(scope, || Checkout::look(repo));
        let made = make();
        let checkout = match look.map(|look| look.join()) {
            Ok(Ok(checkout)) => checkout,
            Ok(Err(_)) => Checkout::unknown("the look at it failed"),
            Err(_) => Checkout::look(repo),
        };
        (made, checkout)
    })
}

/// Says what a fresh tree lacks. `index` is what it was filled with, `copied` came along beside it.
pub fn of_tree(
    repo: &Repo,
    view: &View,
    index: &io::Result<Index>,
    copied: &[PathBuf],
    checkout: &Checkout,
) -> Vec<String> {
    let tree = view.worktree();
    let mut found = checkout.lines(copied);
    match index {
        Ok(index) => {
            found.extend(checkout.other_form(index));
            found.extend(committed::lines(&tree.path, index));
            found.extend(attributes::lines(view, index));
        }
        Err(e) => found.push(format!("the commit could not be looked through: {e}")),
    }
    found.extend(hooks::line(repo, view));
    found.extend(history(repo, view));
    found
}

/// What of the history is not there, or elsewhere.
fn history(repo: &Repo, view: &View) -> Vec<String> {
    let mut found = Vec::new();
    if repo.shallow {
        found.push("the repository is a shallow clone: its history is cut off".to_owned());
    }
    if view.settings().partial {
        found.push(
            "the repository is a partial clone: what it lacks is fetched when something asks for it".into(),
        );
    }
    // A clone has them all.
    let stores = fs::read(repo.common.join("objects/info/alternates")).unwrap_or_default();
    let stores: Vec<PathBuf> = stores
        .split(|b| *b == b'\n')
        .filter(|line| !line.is_empty() && !line.starts_with(b"#"))
        .map(|line| repo.common.join("objects").join(std::ffi::OsStr::from_bytes(line)))
        .map(|store| store.canonicalize().unwrap_or(store))
        .collect();
    if !stores.is_empty() && !view.worktree().is_clone() {
        found.push(format!(
            "the repository borrows objects, which the worker must be able to read: {}",
            named(&stores)
        ));
    }
    found
}

/// A few names, and how many more there are.
fn named<P: AsRef<Path>>(paths: &[P]) -> String {
    let shown = |path: &P| super::manifest::shown(path.as_ref().as_os_str().as_bytes());
    let names: Vec<String> = paths.iter().take(NAMED).map(shown).collect();
    let more = paths.len().saturating_sub(NAMED);
    names.join(", ") + &if more > 0 { format!(" and {more} more") } else { String::new() }
}
