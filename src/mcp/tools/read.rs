//! Reading what is large: logs, patches, artifacts. In pages, and only when asked for.

use super::super::clean;
use super::super::tool::{Call, Effect, Fault, Tool, range};
use super::super::view::changed;
use crate::redact::{Redactor, printable};
use crate::verbs::{self, Cursor, DiffQuery, LogQuery};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::io::Read as _;
use std::path::PathBuf;

/// Largest page, in bytes. Clients cut what is much larger.
const LARGEST: u64 = 100_000;
/// Largest artifact that is read as text.
const LARGEST_FILE: u64 = 16 * 1024 * 1024;

pub fn tools() -> Vec<Tool> {
    vec![
        Tool::quick(
            "get_log",
            "Read a task's log",
            Effect::Reads,
            "What a task's commands printed, secrets masked. Without a cursor its end; give the `cursor` of the \
             page before to go on from there, also while the task runs. `from_start` begins at the beginning; \
             `step` narrows to one command, such as work.1 (the worker) or gate.1.1 (a verify command).",
            log,
        ),
        Tool::quick(
            "get_diff",
            "Read what a task changed",
            Effect::Reads,
            "The files that a task changed and the patch, secrets masked. `stat` lists the files only; `paths` \
             narrows to some of them; a large patch comes in pages: give `next` as `offset`. `raw` masks nothing. \
             The exact patch lies in `file`.",
            diff,
        ),
        Tool::quick(
            "get_artifact",
            "Read a file that a task left",
            Effect::Reads,
            "A file that a task left with its result. Without `path`, a list of them. Text comes in pages: give \
             `next` as `offset`. A binary file is described, and lies in `file`.",
            artifact,
        ),
    ]
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Log {
    /// The task's id, or the beginning or end of it.
    task: String,
    /// Only this step.
    #[serde(default)]
    step: Option<String>,
    /// Go on from here.
    #[serde(default)]
    cursor: Option<String>,
    /// Begin at the beginning instead of the end.
    #[serde(default)]
    from_start: bool,
    /// At most about so many bytes.
    #[serde(default = "page")]
    #[schemars(range(min = 200, max = 100_000))]
    max_bytes: u64,
}

fn page() -> u64 {
    12_000
}

#[derive(Debug, Serialize, JsonSchema)]
struct LogOut {
    /// The lines.
    text: String,
    /// Give this to go on from here; absent while there is no log.
    #[serde(skip_serializing_if = "Option::is_none")]
    cursor: Option<String>,
    /// Whether more is there to read now.
    more: bool,
    /// Whether something before this page was passed over.
    begins_later: bool,
    /// The steps that have a log.
    steps: Vec<String>,
}

fn log(call: &Call, args: Log) -> Result<LogOut, Fault> {
    let most = range("max_bytes", args.max_bytes, 200..=LARGEST)?;
    let id = call.task(&args.task)?;
    let cursor: Option<Cursor> =
        args.cursor.map(|c| c.parse()).transpose().map_err(|e| Fault(format!("cursor: {e}")))?;
    let steps: Vec<String> = verbs::log_steps(&call.house, id)?.into_iter().map(|s| s.name).collect();
    if let Some(step) = args.step.as_ref().filter(|s| !steps.contains(s)) {
        return Err(Fault(format!(
            "step: {step:?} is not a step of this task: there are {}",
            steps.join(", ")
        )));
    }
    let query = LogQuery {
        step: args.step,
        cursor,
        from_start: args.from_start,
        max_bytes: usize::try_from(most).unwrap_or(usize::MAX),
    };
    let page = verbs::read_log(&call.house, id, &query)?;
    Ok(LogOut {
        text: page.text,
        cursor: page.cursor.map(|c| c.to_string()),
        more: page.more,
        begins_later: page.begins_later,
        steps,
    })
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Diff {
    /// The task's id, or the beginning or end of it.
    task: String,
    /// Only the list of files.
    #[serde(default)]
    stat: bool,
    /// Only these files.
    #[serde(default)]
    paths: Vec<String>,
    /// Go on here: the `next` of the page before.
    #[serde(default)]
    offset: u64,
    /// At most about so many bytes.
    #[serde(default = "large_page")]
    #[schemars(range(min = 200, max = 100_000))]
    max_bytes: u64,
    /// Mask nothing.
    #[serde(default)]
    raw: bool,
}

fn large_page() -> u64 {
    24_000
}

#[derive(Debug, Serialize, JsonSchema)]
struct DiffOut {
    /// How many files changed.
    files_changed: usize,
    /// The files, each as `modified src/a.rs +3 -1`.
    files: Vec<String>,
    /// The patch, or a page of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<String>,
    /// Where to go on; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<usize>,
    /// The exact patch on this machine's disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<PathBuf>,
    /// Its size.
    bytes: u64,
}

/// Most files that are listed.
const FILES: usize = 300;

fn diff(call: &Call, args: Diff) -> Result<DiffOut, Fault> {
    let most = range("max_bytes", args.max_bytes, 200..=LARGEST)?;
    let id = call.task(&args.task)?;
    let query = DiffQuery {
        paths: args.paths,
        offset: usize::try_from(args.offset).unwrap_or(usize::MAX),
        max_bytes: if args.stat { 0 } else { usize::try_from(most).unwrap_or(usize::MAX) },
        raw: args.raw,
    };
    let page = verbs::read_diff(&call.house, id, &query)?;
    // Later pages do not list the files again.
    let shown = if args.offset > 0 { 0 } else { FILES };
    let mut files: Vec<String> = page.files.iter().take(shown).map(changed).collect();
    if shown > 0 && page.files.len() > shown {
        files.push(format!("… and {} more", page.files.len() - shown));
    }
    Ok(DiffOut {
        files_changed: page.files.len(),
        files,
        patch: (!args.stat).then_some(page.patch),
        next: page.next,
        file: page.file,
        bytes: page.bytes,
    })
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct GetArtifact {
    /// The task's id, or the beginning or end of it.
    task: String,
    /// The artifact's path. Absent: list them.
    #[serde(default)]
    path: Option<String>,
    /// Go on here: the `next` of the page before.
    #[serde(default)]
    offset: u64,
    /// At most about so many bytes.
    #[serde(default = "large_page")]
    #[schemars(range(min = 200, max = 100_000))]
    max_bytes: u64,
    /// Mask nothing.
    #[serde(default)]
    raw: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
struct ArtifactOut {
    /// The artifacts of the task, or the one that was asked for.
    artifacts: Vec<ArtifactView>,
    /// Its text, or a page of it; absent for a binary file.
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    /// Where to go on; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<usize>,
    /// The file on this machine's disk, exact.
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<PathBuf>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct ArtifactView {
    /// Its path.
    path: String,
    /// Its media type.
    mime: String,
    /// Its size.
    bytes: u64,
    /// SHA-256 of it.
    sha256: String,
    /// Whether a copy is kept.
    kept: bool,
}

fn view(a: crate::model::result::Artifact) -> ArtifactView {
    ArtifactView { path: a.path, mime: a.mime, bytes: a.bytes, sha256: a.sha256, kept: a.kept }
}

fn artifact(call: &Call, args: GetArtifact) -> Result<ArtifactOut, Fault> {
    let most = range("max_bytes", args.max_bytes, 200..=LARGEST)?;
    let id = call.task(&args.task)?;
    let Some(path) = args.path else {
        let all = verbs::artifacts(&call.house, id)?;
        return Ok(ArtifactOut {
            artifacts: all.into_iter().map(view).collect(),
            text: None,
            next: None,
            file: None,
        });
    };
    let (artifact, file) = verbs::artifact(&call.house, id, &path)?;
    let mut bytes = Vec::new();
    std::fs::File::open(&file)?.take(LARGEST_FILE + 1).read_to_end(&mut bytes)?;
    let text = (bytes.len() as u64 <= LARGEST_FILE).then(|| String::from_utf8(bytes).ok()).flatten();
    let (text, next) = match text {
        Some(text) if !text.contains('\0') => {
            // Masked before it is cut, so that no secret lies across the border of two pages.
            let shown = if args.raw { text } else { Redactor::new([]).str(&printable(&text)).into_owned() };
            let offset = usize::try_from(args.offset).unwrap_or(usize::MAX);
            let (text, next) = verbs::part(&shown, offset, usize::try_from(most).unwrap_or(usize::MAX));
            (Some(text), next)
        }
        _ => (None, None),
    };
    let text = if args.raw { text } else { text.map(|t| clean::text(&t)) };
    Ok(ArtifactOut { artifacts: vec![view(artifact)], text, next, file: Some(file) })
}
