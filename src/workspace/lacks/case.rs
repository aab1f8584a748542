//! Names that differ only in case, where the file system does not.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Whether the file system of a git tree takes two names that differ only in case for one.
pub(super) fn is_folded(tree: &Path) -> bool {
    let place = |name: &str| fs::symlink_metadata(tree.join(name)).ok().map(|m| (m.dev(), m.ino()));
    place(".git").is_some_and(|git| place(".GIT") == Some(git))
}

/// The names, in their order, that such a file system cannot hold beside the ones before: another has the same
/// place, or is where a folder would have to be.
pub(super) fn clashing<'a>(names: &[&'a Path]) -> Vec<&'a Path> {
    let fold = |name: &Path| name.to_string_lossy().to_lowercase();
    let mut seen = HashSet::new();
    let doubles: HashSet<&Path> = names.iter().copied().filter(|name| !seen.insert(fold(name))).collect();
    let is_below_a_file = |name: &Path| name.ancestors().skip(1).any(|folder| seen.contains(&fold(folder)));
    names.iter().copied().filter(|name| doubles.contains(name) || is_below_a_file(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(names: &[&'static str]) -> Vec<String> {
        let names: Vec<&Path> = names.iter().map(Path::new).collect();
        clashing(&names).iter().map(|path| path.display().to_string()).collect()
    }

    #[test]
    fn names_that_differ_only_in_case_clash() {
        assert_eq!(of(&["Makefile", "README", "a/X", "a/x", "makefile"]), ["a/x", "makefile"]);
        assert_eq!(of(&["A/x", "a/x"]), ["a/x"]);
        assert_eq!(of(&["Ärger", "ärger"]), ["ärger"]);
        // A file in the place of a folder.
        assert_eq!(of(&["Docs", "docs/a"]), ["docs/a"]);
    }

    #[test]
    fn folders_that_become_one_lose_nothing() {
        assert_eq!(of(&["Src/a", "src/b", "x"]), [""; 0]);
    }

    #[test]
    fn a_file_system_is_asked_by_the_trees_own_git() {
        let dir = tempfile::tempdir().unwrap();
        assert!(!is_folded(dir.path()));
        fs::write(dir.path().join(".git"), "").unwrap();
        let folds = fs::metadata(dir.path().join(".GIT")).is_ok();
        assert_eq!(is_folded(dir.path()), folds);
    }
}
