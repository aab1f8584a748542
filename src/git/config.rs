//! Git configuration as data: listing it, and writing the part that a trusted view keeps.

use super::runner::{Git, GitError};
use std::collections::BTreeSet;

/// One setting, from one scope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// `section.name` or `section.sub.name`; section and name in lower case.
    pub key: String,
    /// `None`: a bare name, which means true.
    pub value: Option<Vec<u8>>,
}

impl Entry {
    /// Section, subsection and name. A subsection may hold dots.
    pub fn parts(&self) -> (&str, Option<&str>, &str) {
        let (section, rest) = self.key.split_once('.').unwrap_or((&self.key, ""));
        match rest.rsplit_once('.') {
            Some((sub, name)) => (section, Some(sub), name),
            None => (section, None, rest),
        }
    }
}

/// Lists all that holds for a git dir, includes followed, later entries over earlier ones.
pub(super) fn list(git: &Git) -> Result<Vec<Entry>, GitError> {
    let out = git.reads("config").args(["--list", "--includes", "--show-scope", "-z"]).run()?;
    let mut words = out.split(|b| *b == 0);
    let mut entries = Vec::new();
    while let (Some(scope), Some(entry)) = (words.next(), words.next()) {
        // Our own overrides come back as the command's.
        if scope != b"command" {
            entries.push(parse(entry));
        }
    }
    Ok(entries)
}

/// Reads one entry of a `-z` listing.
pub(super) fn parse(entry: &[u8]) -> Entry {
    let (key, value) = match entry.iter().position(|b| *b == b'\n') {
        Some(at) => (&entry[..at], Some(entry[at + 1..].to_vec())),
        None => (entry, None),
    };
    Entry { key: String::from_utf8_lossy(key).into_owned(), value }
}

/// Writes entries as a configuration file.
pub(super) fn write<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> Vec<u8> {
    let mut text = Vec::new();
    for entry in entries {
        let (section, sub, name) = entry.parts();
        text.extend_from_slice(b"[");
        text.extend_from_slice(section.as_bytes());
        if let Some(sub) = sub {
            text.extend_from_slice(b" \"");
            text.extend_from_slice(sub.replace('\\', "\\\\").replace('"', "\\\"").as_bytes());
            text.push(b'"');
        }
        text.extend_from_slice(b"]\n\t");
        text.extend_from_slice(name.as_bytes());
        if let Some(value) = &entry.value {
            text.extend_from_slice(b" = \"");
            for byte in value {
                match byte {
                    b'\\' => text.extend_from_slice(b"\\\\"),
                    b'"' => text.extend_from_slice(b"\\\""),
                    b'\n' => text.extend_from_slice(b"\\n"),
                    b'\t' => text.extend_from_slice(b"\\t"),
                    other => text.push(*other),
                }
            }
            text.push(b'"');
        }
        text.push(b'\n');
    }
    text
}

/// Whether a view keeps this setting: those that decide what the content of a tree is, nothing else.
///
/// Filters are the one kind of command among them. They are as they were before the worker started.
pub(super) fn decides_content(entry: &Entry) -> bool {
    const CORE: &[&str] = &[
        "autocrlf",
        "eol",
        "filemode",
        "symlinks",
        "ignorecase",
        "precomposeunicode",
        "protecthfs",
        "protectntfs",
        "sparsecheckout",
        "sparsecheckoutcone",
        "checkroundtripencoding",
    ];
    match entry.parts() {
        ("core", None, name) => CORE.contains(&name),
        ("filter", Some(_), name) => {
            matches!(name, "clean" | "smudge" | "process" | "required") && !runs_from_the_tree(entry, name)
        }
        ("user" | "author" | "committer", None, name) => matches!(name, "name" | "email"),
        ("lfs", None, "storage") | ("extensions", None, "partialclone") => true,
        ("remote", Some(_), name) => matches!(name, "url" | "promisor" | "partialclonefilter"),
        _ => false,
    }
}

/// What the settings tell about the filters of a tree, by their names.
#[derive(Debug, Default)]
pub(super) struct Filters {
    /// Those that run whenever a tree is filled or read.
    pub kept: BTreeSet<String>,
    /// Those that a view does not run, all or in part.
    pub left_out: BTreeSet<String>,
}

/// Which filters are set.
pub(super) fn filters(entries: &[Entry]) -> Filters {
    let mut filters = Filters::default();
    for entry in entries {
        if let ("filter", Some(filter), name @ ("clean" | "smudge" | "process")) = entry.parts() {
            let to = if runs_from_the_tree(entry, name) { &mut filters.left_out } else { &mut filters.kept };
            to.insert(filter.to_owned());
        }
    }
    filters.kept.retain(|name| !filters.left_out.contains(name));
    filters
}

/// Whether a filter's program lies in the tree, where a worker can write it.
fn runs_from_the_tree(entry: &Entry, name: &str) -> bool {
    let Some(command) = entry.value.as_deref().filter(|_| name != "required") else { return false };
    let mut words = command.split(|b| b.is_ascii_whitespace() || *b == b'"' || *b == b'\'');
    words.any(|word| {
        word.contains(&b'/') && !word.starts_with(b"/") && !word.starts_with(b"~/") && !word.starts_with(b"-")
    })
}

/// Whether a setting can make git run something, or read settings from elsewhere.
pub(super) fn can_execute(entry: &Entry) -> bool {
    let (section, sub, name) = entry.parts();
    match (section, sub) {
        ("core", None) => matches!(
            name,
            "fsmonitor"
                | "hookspath"
                | "sshcommand"
                | "gitproxy"
                | "editor"
                | "pager"
                | "askpass"
                | "worktree"
                | "alternaterefscommand"
                | "attributesfile"
                | "excludesfile"
        ),
        ("filter" | "credential" | "gpg" | "include" | "includeif" | "alias" | "pager" | "url", _) => true,
        ("hook" | "difftool" | "mergetool" | "browser" | "man" | "trailer" | "protocol" | "tar", _) => true,
        ("merge", Some(_)) => true,
        ("diff", Some(_)) => matches!(name, "textconv" | "command"),
        ("diff", None) => name == "external",
        ("remote", Some(_)) => {
            matches!(name, "url" | "pushurl" | "uploadpack" | "receivepack" | "vcs" | "proxy")
        }
        ("submodule", Some(_)) => name == "update",
        ("sequence" | "interactive" | "uploadpack" | "sendemail" | "init" | "extensions" | "lfs", _) => true,
        _ => false,
    }
}

#[cfg(test)]
mod unit {
    use super::*;

    fn entry(key: &str, value: &str) -> Entry {
        Entry { key: key.into(), value: Some(value.into()) }
    }

    #[test]
    fn a_subsection_may_hold_dots() {
        assert_eq!(entry("remote.a.b.url", "").parts(), ("remote", Some("a.b"), "url"));
        assert_eq!(entry("core.eol", "").parts(), ("core", None, "eol"));
    }

    #[test]
    fn a_filter_whose_program_lies_in_the_tree_is_not_kept() {
        assert!(decides_content(&entry("filter.lfs.clean", "git-lfs clean -- %f")));
        assert!(decides_content(&entry("filter.x.clean", "/usr/bin/tidy -q")));
        assert!(!decides_content(&entry("filter.x.clean", "./tools/clean.sh")));
        assert!(!decides_content(&entry("filter.x.clean", "python tools/clean.py")));
        assert!(!decides_content(&entry("core.fsmonitor", "x")));
        assert!(!decides_content(&entry("merge.x.driver", "x")));
        let set = [
            entry("filter.lfs.clean", "git-lfs clean -- %f"),
            entry("filter.x.clean", "/usr/bin/tidy -q"),
            entry("filter.x.smudge", "./tools/smudge.sh"),
        ];
        let found = filters(&set);
        assert!(found.kept.iter().eq(["lfs"]) && found.left_out.iter().eq(["x"]), "{found:?}");
    }
}
