//! `read_file`.

use super::{Definition, Root, ToolError, ToolResult, failed};
use serde::Deserialize;
use serde_json::json;
use std::io::{BufRead as _, BufReader, Read as _};

/// The most bytes of an answer, less room for its last line.
const MAX_BYTES: usize = super::MAX_ANSWER - 256;
/// The most lines of an answer.
const MAX_LINES: usize = 2000;
/// How far into a file we look.
const MAX_SCAN: u64 = 256 << 20;

#[derive(Debug, Deserialize)]
pub(super) struct Args {
    path: String,
    #[serde(default)]
    offset: Option<usize>,
    #[serde(default)]
    limit: Option<usize>,
}

pub(super) fn definition() -> Definition {
    Definition {
        name: "read_file",
        description: format!(
            "Reads a text file, exactly as it is: at most {MAX_LINES} lines or {} KiB at once; a last line in brackets says if there is more.",
            super::MAX_ANSWER >> 10
        ),
        schema: json!({
            "type": "object",
            "properties": {
                "path": {"type": "string", "description": "Path, relative to the workspace"},
                "offset": {"type": "integer", "minimum": 1, "description": "First line to read, from 1"},
                "limit": {"type": "integer", "minimum": 1, "description": "How many lines"},
            },
            "required": ["path"],
        }),
    }
}

pub(super) fn read_file(root: &Root, args: &Args) -> ToolResult {
    let resolved = root.existing(&args.path)?;
    let file = root.open_file(&resolved).map_err(|e| failed(&args.path, &e))?;
    let size = file.metadata().map_err(|e| failed(&args.path, &e))?.len();
    let mut reader = BufReader::with_capacity(64 << 10, file.take(MAX_SCAN));
    let head = reader.fill_buf().map_err(|e| failed(&args.path, &e))?;
    if head.iter().take(8192).any(|b| *b == 0) {
        return Err(ToolError::Failed(format!("{}: is a binary file of {size} bytes", args.path)));
    }
    let first = args.offset.unwrap_or(1).max(1);
    let most = args.limit.unwrap_or(MAX_LINES).clamp(1, MAX_LINES);
    let (mut text, mut line, mut taken) = (Vec::new(), 0, 0);
    let mut cut = None;
    loop {
        let skipping = line + 1 < first;
        let room = MAX_BYTES - text.len();
        let before = text.len();
        // A skipped line is read in pieces too: one line may be as long as the file.
        let read = next_line(&mut reader, if skipping { None } else { Some((&mut text, room)) })
            .map_err(|e| failed(&args.path, &e))?;
        let Some(whole) = read else { break };
        line += 1;
        if skipping {
            continue;
        }
        taken += 1;
        if !whole {
            if taken > 1 {
                // The whole line comes with the next read.
                text.truncate(before);
                (line, taken) = (line - 1, taken - 1);
                cut = Some(format!(
                    "line {} and what follows did not fit; go on with offset {}",
                    line + 1,
                    line + 1
                ));
            } else {
                cut = Some(format!("line {line} is cut off; search can find what is further on in it"));
            }
            break;
        }
        if taken == most {
            if !reader.fill_buf().map_err(|e| failed(&args.path, &e))?.is_empty() {
                cut =
                    Some(format!("lines {first} to {line}; there are more: go on with offset {}", line + 1));
            }
            break;
        }
    }
    if taken == 0 && first > 1 {
        return Err(ToolError::Failed(format!("{}: has only {line} lines", args.path)));
    }
    if size == 0 {
        return Ok("[the file is empty]".to_owned());
    }
    let mut text = String::from_utf8_lossy(&text).into_owned();
    if let Some(cut) = cut {
        if !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(&format!("[{cut}]"));
    }
    Ok(text)
}

/// Reads one line, its end included, into `into` as far as there is room. Says whether all of it fitted;
/// `None` at the end.
fn next_line(
    reader: &mut impl std::io::BufRead,
    mut into: Option<(&mut Vec<u8>, usize)>,
) -> std::io::Result<Option<bool>> {
    let (mut any, mut whole) = (false, true);
    loop {
        let buffer = reader.fill_buf()?;
        if buffer.is_empty() {
            return Ok(any.then_some(whole));
        }
        any = true;
        let end = memchr::memchr(b'\n', buffer);
        let piece = &buffer[..end.map_or(buffer.len(), |e| e + 1)];
        if let Some((text, room)) = &mut into {
            let fits = piece.len().min(*room);
            text.extend_from_slice(&piece[..fits]);
            *room -= fits;
            whole &= fits == piece.len();
        }
        let used = piece.len();
        reader.consume(used);
        if end.is_some() || !whole {
            return Ok(Some(whole));
        }
    }
}
