//! `search`.

use super::super::super::json::clip;
use super::super::paths::is_git;
use super::{Definition, Root, ToolError, ToolResult};
use globset::{GlobBuilder, GlobMatcher};
use regex::bytes::{Regex, RegexBuilder};
use serde::Deserialize;
use serde_json::json;
use std::io::Read as _;
use std::path::Path;
use std::time::{Duration, Instant};
use walkdir::{DirEntry, WalkDir};

/// The most matches of an answer.
const MAX_MATCHES: usize = 200;
/// The most bytes of an answer.
const MAX_BYTES: usize = 32 << 10;
/// The most of one line that is shown.
const MAX_LINE: usize = 300;
/// The longest file that is searched.
const MAX_FILE: u64 = 8 << 20;
/// The longest that a search takes.
const MAX_TIME: Duration = Duration::from_secs(30);

#[derive(Debug, Deserialize)]
pub(super) struct Args {
    pattern: String,
    #[serde(default)]
    path: String,
    #[serde(default)]
    glob: Option<String>,
    #[serde(default)]
    ignore_case: bool,
}

pub(super) fn definition() -> Definition {
    Definition {
        name: "search",
        description: format!(
            "Searches files, line by line, for a regular expression (no look-around, no back-references). Answers with path:line: text, at most {MAX_MATCHES} matches. Left out are .git, binary files, files over {} MiB, and, unless path names them, node_modules and caches of build tools.",
            MAX_FILE >> 20
        ),
        schema: json!({
            "type": "object",
            "properties": {
                "pattern": {"type": "string"},
                "path": {"type": "string", "description": "File or folder, relative to the workspace; empty for all of it"},
                "glob": {"type": "string", "description": "Only files that match, such as *.rs or src/**/*.ts"},
                "ignore_case": {"type": "boolean"},
            },
            "required": ["pattern"],
        }),
    }
}

pub(super) fn search(root: &Root, args: &Args) -> ToolResult {
    let pattern = RegexBuilder::new(&args.pattern)
        .unicode(false)
        .case_insensitive(args.ignore_case)
        .size_limit(4 << 20)
        .build()
        .map_err(|e| ToolError::Failed(format!("the pattern cannot be used: {e}")))?;
    let glob = args.glob.as_deref().filter(|g| !g.is_empty()).map(glob).transpose()?;
    let top = root.path().join(root.existing(&args.path)?);
    let mut found = Found { lines: Vec::new(), bytes: 0, stop: None };
    let until = Instant::now() + MAX_TIME;
    let walk = WalkDir::new(&top).follow_links(false).sort_by_file_name().into_iter().filter_entry(wanted);
    for entry in walk.flatten().filter(|e| e.file_type().is_file()) {
        let relative = entry.path().strip_prefix(root.path()).unwrap_or(entry.path());
        if glob.as_ref().is_none_or(|glob| matches(glob, relative)) {
            // A file that cannot be read is no reason to find nothing.
            let _ = found.file(root, relative, &pattern);
        }
        if Instant::now() > until {
            found.stop.get_or_insert("the time for a search is over");
        }
        if found.stop.is_some() {
            break;
        }
    }
    match (found.lines.is_empty(), found.stop) {
        (true, None) => return Ok("[no match]".to_owned()),
        (_, Some(stop)) => found.lines.push(format!("[{stop}; there may be more: narrow the search]")),
        (false, None) => {}
    }
    Ok(found.lines.join("\n"))
}

struct Found {
    lines: Vec<String>,
    bytes: usize,
    /// Why the search ends here.
    stop: Option<&'static str>,
}

impl Found {
    fn file(&mut self, root: &Root, path: &Path, pattern: &Regex) -> std::io::Result<()> {
        let mut file = root.open_file(path)?;
        if file.metadata()?.len() > MAX_FILE {
            return Ok(());
        }
        let mut bytes = Vec::new();
        file.by_ref().take(MAX_FILE).read_to_end(&mut bytes)?;
        // One look at all of it, before any at its lines.
        if bytes.iter().take(8192).any(|b| *b == 0) {
            return Ok(());
        }
        for (k, line) in bytes.split(|b| *b == b'\n').enumerate() {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if !pattern.is_match(line) {
                continue;
            }
            let text = String::from_utf8_lossy(&line[..line.len().min(4 * MAX_LINE)]);
            let shown = clip(text.trim_end(), MAX_LINE);
            let more = if shown.len() < line.len() { " […]" } else { "" };
            let found = format!("{}:{}: {shown}{more}", path.display(), k + 1);
            self.bytes += found.len() + 1;
            self.lines.push(found);
            if self.lines.len() == MAX_MATCHES {
                self.stop = Some("the first matches");
            } else if self.bytes > MAX_BYTES {
                self.stop = Some("the answer is full");
            }
            if self.stop.is_some() {
                break;
            }
        }
        Ok(())
    }
}

/// Whether to look at an entry, and below it. What was asked for by name is always wanted.
fn wanted(entry: &DirEntry) -> bool {
    if entry.depth() == 0 || !entry.file_type().is_dir() {
        return entry.depth() == 0 || !is_git(entry.file_name());
    }
    !is_git(entry.file_name())
        && entry.file_name() != "node_modules"
        && !entry.path().join("CACHEDIR.TAG").exists()
}

fn glob(text: &str) -> Result<GlobMatcher, ToolError> {
    let built = GlobBuilder::new(text).literal_separator(true).build();
    built.map(|g| g.compile_matcher()).map_err(|e| ToolError::Failed(format!("the glob cannot be used: {e}")))
}

/// A glob without a slash is for names, another for paths.
fn matches(glob: &GlobMatcher, path: &Path) -> bool {
    let whole = glob.glob().glob().contains('/');
    if whole { glob.is_match(path) } else { path.file_name().is_some_and(|name| glob.is_match(name)) }
}
