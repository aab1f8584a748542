//! Hooks that git would run for the user.

use super::named;
use crate::git::{Repo, View};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// Those that belong to what we do in the user's place.
const KNOWN: [&str; 5] = ["pre-commit", "prepare-commit-msg", "commit-msg", "post-commit", "post-checkout"];

pub(super) fn line(repo: &Repo, view: &View) -> Option<String> {
    let tree = view.worktree();
    let own = repo.common.join("hooks");
    let set = view.settings().hooks();
    // What is relative is so to the top of whichever tree git works in.
    let folder = set.as_ref().map_or(own, |set| repo.place().join(set));
    let hooks = in_folder(&folder);
    if hooks.is_empty() {
        return None;
    }
    let more = match &set {
        None if tree.is_clone() => ", and none is in the clone".to_owned(),
        Some(set) if set.is_relative() && !tree.path.join(set).is_dir() => {
            format!(
                ", and the folder {}, where core.hooksPath has them, is not in the workspace",
                named(&[set])
            )
        }
        _ => String::new(),
    };
    Some(format!("hooks did not run on the commit of the result{more}: {}", named(&hooks)))
}

fn in_folder(folder: &Path) -> Vec<PathBuf> {
    let runs = |path: &Path| {
        path.file_name().is_some_and(|n| KNOWN.iter().any(|k| n == *k))
            && path.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
    };
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> =
        entries.filter(|e| runs(&e.path())).map(|e| PathBuf::from(e.file_name())).collect();
    found.sort_unstable();
    found
}
