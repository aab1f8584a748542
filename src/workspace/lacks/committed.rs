//! What is in the commit and is not in the workspace as a person may expect it.

use super::super::rules::leaves;
use super::{case, named};
use crate::git::Index;
use std::fs;
use std::path::Path;

pub(super) fn lines(tree: &Path, index: &Index) -> Vec<String> {
    let (mut modules, mut links, mut sparse) = (Vec::new(), Vec::new(), false);
    for entry in index.entries() {
        let path = entry.path();
        sparse |= entry.left_out;
        if entry.is_module() {
            modules.push(path);
        } else if entry.is_link() && fs::read_link(tree.join(path)).is_ok_and(|target| leaves(path, &target))
        {
            links.push(path);
        }
    }
    let mut found = Vec::new();
    if !modules.is_empty() {
        found.push(format!("submodules are empty unless a setup command fills them: {}", named(&modules)));
    }
    if !links.is_empty() {
        found.push(format!("links that lead out of the tree point elsewhere than in the checkout, or to what is not the workspace's: {}", named(&links)));
    }
    if sparse {
        found.push("the checkout is sparse: what it leaves out is not in the workspace either".into());
    }
    if case::is_folded(tree) {
        let names: Vec<&Path> = index.entries().map(|entry| entry.path()).collect();
        let clashing = case::clashing(&names);
        if !clashing.is_empty() {
            found.push(format!(
                "files whose names differ from others only in case, which the file system here does not tell \
                 apart: {}",
                named(&clashing)
            ));
        }
    }
    found
}
