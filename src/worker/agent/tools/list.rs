//! `list_directory`.

use super::super::paths::is_git;
use super::{Definition, Root, ToolError, ToolResult};
use serde::Deserialize;
use serde_json::json;
use walkdir::WalkDir;

/// The most entries of an answer.
const MAX_ENTRIES: usize = 1000;

#[derive(Debug, Deserialize)]
pub(super) struct Args {
    #[serde(default)]
    path: String,
    #[serde(default)]
    depth: Option<usize>,
}

pub(super) fn definition() -> Definition {
    Definition {
        name: "list_directory",
        description: format!(
            "Lists a folder: a path a line; folders end in /, links show where they point, files their size. At most {MAX_ENTRIES} entries; .git is left out."
        ),
        schema: json!({
            "type": "object",
            "properties": {
                "path": {"type": "string", "description": "Folder, relative to the workspace; empty for the workspace itself"},
                "depth": {"type": "integer", "minimum": 1, "maximum": 8, "description": "How many levels; 1 if absent"},
            },
        }),
    }
}

pub(super) fn list_directory(root: &Root, args: &Args) -> ToolResult {
    let resolved = root.existing(&args.path)?;
    let top = root.path().join(&resolved);
    if !top.is_dir() {
        return Err(ToolError::Failed(format!("{}: is no folder", args.path)));
    }
    let walk = WalkDir::new(&top)
        .min_depth(1)
        .max_depth(args.depth.unwrap_or(1).clamp(1, 8))
        .follow_links(false)
        .sort_by_file_name()
        .into_iter()
        .filter_entry(|entry| entry.depth() == 0 || !is_git(entry.file_name()));
    let (mut lines, mut more) = (Vec::new(), false);
    for entry in walk {
        if lines.len() == MAX_ENTRIES {
            more = true;
            break;
        }
        let Ok(entry) = entry else { continue };
        let path = entry.path().strip_prefix(&top).unwrap_or(entry.path()).to_string_lossy();
        let kind = entry.file_type();
        lines.push(if kind.is_dir() {
            format!("{path}/")
        } else if kind.is_symlink() {
            let to = std::fs::read_link(entry.path()).unwrap_or_default();
            format!("{path} -> {}", to.display())
        } else {
            format!("{path} ({} bytes)", entry.metadata().map_or(0, |m| m.len()))
        });
    }
    if lines.is_empty() {
        return Ok("[the folder is empty]".to_owned());
    }
    if more {
        lines.push(format!("[the first {MAX_ENTRIES} entries; there are more: list a folder below]"));
    }
    Ok(lines.join("\n"))
}
