//! Filters that attributes ask for, and that do not run.

use crate::git::{Index, View};
use crate::worker::env;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

/// The one filter whose program is known by another name than its own.
const LFS: &str = "lfs";

pub(super) fn lines(view: &View, index: &Index) -> Vec<String> {
    let (asked, settings) = (asked(view, index), view.settings());
    let mut found = Vec::new();
    for (name, patterns) in &asked {
        let files = some(patterns);
        if name == LFS && env::find_executable("git-lfs").is_none() {
            found.push(
                "the repository uses git-lfs, which is not installed: large files are pointers in the workspace"
                    .into(),
            );
        } else if settings.filters_left_out.contains(name) {
            found.push(format!(
                "the filter {name} does not run on the result, since its program lies in the repository: {files} \
                 are recorded as the worker leaves them"
            ));
        } else if !settings.filters.contains(name) {
            found.push(format!("the filter {name} is not set up here: {files} are as the commit holds them"));
        }
    }
    found
}

/// The filters that the attributes name, each with the patterns of its files.
fn asked(view: &View, index: &Index) -> BTreeMap<String, BTreeSet<String>> {
    let mut asked = BTreeMap::new();
    for text in view.attributes() {
        read(&text, "", &mut asked);
    }
    for entry in index.entries().filter(|e| is_attributes(e.name)) {
        if let Ok(text) = fs::read(view.worktree().path.join(entry.path())) {
            let folder = &entry.name[..entry.name.len() - NAME.len()];
            read(&text, &String::from_utf8_lossy(folder), &mut asked);
        }
    }
    asked
}

const NAME: &[u8] = b".gitattributes";

fn is_attributes(name: &[u8]) -> bool {
    name.strip_suffix(NAME).is_some_and(|folder| folder.is_empty() || folder.ends_with(b"/"))
}

/// Reads a file of attributes, which lies in `folder` (with a slash at its end).
fn read(text: &[u8], folder: &str, asked: &mut BTreeMap<String, BTreeSet<String>>) {
    for line in String::from_utf8_lossy(text).lines() {
        let line = line.trim_start();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (pattern, attributes) = match line.strip_prefix('"').and_then(|rest| rest.split_once('"')) {
            Some(parts) => parts,
            None => line.split_once(char::is_whitespace).unwrap_or((line, "")),
        };
        for filter in attributes.split_whitespace().filter_map(|a| a.strip_prefix("filter=")) {
            let pattern = format!("{folder}{}", pattern.trim_start_matches('/'));
            asked.entry(filter.to_owned()).or_default().insert(pattern);
        }
    }
}

fn some(patterns: &BTreeSet<String>) -> String {
    let patterns: Vec<&String> = patterns.iter().collect();
    super::named(&patterns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_read_with_their_patterns() {
        let mut asked = BTreeMap::new();
        let text = b"# *.no filter=no\n*.bin  filter=lfs diff=lfs -text\r\n\n/top filter=x text\n\
                     \"a b.txt\" filter=x\n*.off -filter\n*.txt text=auto eol=crlf\nlone\n";
        read(text, "", &mut asked);
        read(b"*.c filter=x", "src/", &mut asked);
        let patterns = |name: &str| asked[name].iter().map(String::as_str).collect::<Vec<_>>();
        assert_eq!(asked.keys().collect::<Vec<_>>(), ["lfs", "x"]);
        assert_eq!(patterns("lfs"), ["*.bin"]);
        assert_eq!(patterns("x"), ["a b.txt", "src/*.c", "top"]);
    }

    #[test]
    fn attributes_are_known_by_their_name() {
        assert!(is_attributes(b".gitattributes") && is_attributes(b"a/b/.gitattributes"));
        assert!(!is_attributes(b"x.gitattributes") && !is_attributes(b"a/.gitattributes.md"));
    }
}
