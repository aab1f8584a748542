//! `write_file` and `edit_file`.

use super::{Definition, Root, ToolError, ToolResult, failed};
use memchr::memmem;
use serde::Deserialize;
use serde_json::json;
use std::io::Read as _;

/// The longest file that is edited.
const MAX_EDITED: u64 = 32 << 20;

#[derive(Debug, Deserialize)]
pub(super) struct Write {
    path: String,
    content: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct Edit {
    path: String,
    old_string: String,
    new_string: String,
    #[serde(default)]
    replace_all: bool,
}

pub(super) fn definitions() -> [Definition; 2] {
    let path = json!({"type": "string", "description": "Path, relative to the workspace"});
    [
        Definition {
            name: "write_file",
            description: "Writes a whole file, new or in place of what is there; folders are made as needed.".into(),
            schema: json!({
                "type": "object",
                "properties": {"path": path, "content": {"type": "string"}},
                "required": ["path", "content"],
            }),
        },
        Definition {
            name: "edit_file",
            description: "Replaces text in a file. old_string must be there exactly as given, white space included, and only once unless replace_all is set.".into(),
            schema: json!({
                "type": "object",
                "properties": {
                    "path": path,
                    "old_string": {"type": "string", "description": "The text to replace, with enough around it to be unique"},
                    "new_string": {"type": "string"},
                    "replace_all": {"type": "boolean"},
                },
                "required": ["path", "old_string", "new_string"],
            }),
        },
    ]
}

pub(super) fn write_file(root: &Root, args: &Write) -> ToolResult {
    let target = root.target(&args.path)?;
    root.write(&target, args.content.as_bytes()).map_err(|e| failed(&args.path, &e))?;
    Ok(format!("wrote {} bytes to {}", args.content.len(), target.path().display()))
}

pub(super) fn edit_file(root: &Root, args: &Edit) -> ToolResult {
    if args.old_string.is_empty() {
        return Err(ToolError::Failed("old_string is empty; write_file makes a new file".into()));
    }
    if args.old_string == args.new_string {
        return Err(ToolError::Failed("old_string and new_string are the same".into()));
    }
    let target = root.target(&args.path)?;
    root.existing(&args.path)?;
    let file = root.open_file(&target.path()).map_err(|e| failed(&args.path, &e))?;
    let mut before = Vec::new();
    file.take(MAX_EDITED + 1).read_to_end(&mut before).map_err(|e| failed(&args.path, &e))?;
    if before.len() as u64 > MAX_EDITED {
        return Err(ToolError::Failed(format!("{}: is too long to edit", args.path)));
    }
    let (old, new) = (args.old_string.as_bytes(), args.new_string.as_bytes());
    let found: Vec<usize> = memmem::find_iter(&before, old).collect();
    match found.len() {
        0 => return Err(ToolError::Failed(not_there(args, &before))),
        1 => {}
        _ if args.replace_all => {}
        n => {
            let lines: Vec<String> =
                found.iter().take(10).map(|at| line_of(&before, *at).to_string()).collect();
            return Err(ToolError::Failed(format!(
                "{}: old_string is there {n} times (lines {}): take more of the text around it, or set replace_all",
                args.path,
                lines.join(", ")
            )));
        }
    }
    let mut after = Vec::with_capacity(before.len() + found.len() * new.len());
    let mut from = 0;
    for at in &found {
        after.extend_from_slice(&before[from..*at]);
        after.extend_from_slice(new);
        from = at + old.len();
    }
    after.extend_from_slice(&before[from..]);
    root.write(&target, &after).map_err(|e| failed(&args.path, &e))?;
    let places = if found.len() == 1 { "1 place".to_owned() } else { format!("{} places", found.len()) };
    Ok(format!(
        "replaced {places} in {} (first at line {})",
        target.path().display(),
        line_of(&before, found[0])
    ))
}

fn line_of(text: &[u8], at: usize) -> usize {
    memchr::memchr_iter(b'\n', &text[..at]).count() + 1
}

/// Says why the text may not have been found.
fn not_there(args: &Edit, text: &[u8]) -> String {
    let old = args.old_string.as_bytes();
    let crlf = args.old_string.replace('\n', "\r\n");
    let first = args.old_string.lines().map(str::trim).find(|line| !line.is_empty());
    let hint = if crlf.as_bytes() != old && memmem::find(text, crlf.as_bytes()).is_some() {
        "; its lines end in \\r\\n".to_owned()
    } else if let Some(at) = first.and_then(|line| memmem::find(text, line.as_bytes())) {
        format!("; its first line is at line {}, but what is around it differs", line_of(text, at))
    } else {
        String::new()
    };
    format!("{}: old_string is not there{hint}", args.path)
}
