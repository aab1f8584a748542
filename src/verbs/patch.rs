//! Reading what a task changed: the list of files, and the patch in pages, whole or of single files.

use super::House;
use crate::model::TaskId;
use crate::model::input::nearest;
use crate::model::result::{Artifact, ChangedFile};
use crate::redact::{Redactor, printable};
use crate::spool::SpoolError;
use anyhow::Context as _;
use std::path::PathBuf;

/// Largest patch that is read for a page. A larger one is named, and lies on the disk.
const LARGEST: u64 = 64 * 1024 * 1024;

/// What to read of a patch.
#[derive(Debug, Clone, Default)]
pub struct DiffQuery {
    /// Only these files; empty: all.
    pub paths: Vec<String>,
    /// Go on after so many bytes.
    pub offset: usize,
    /// At most about so many bytes; 0: only the list of files.
    pub max_bytes: usize,
    /// The exact text, with what looks like a secret.
    pub raw: bool,
}

/// What a task changed.
#[derive(Debug, Clone)]
pub struct DiffPage {
    /// The files.
    pub files: Vec<ChangedFile>,
    /// A part of the patch.
    pub patch: String,
    /// Where to go on, if something is left.
    pub next: Option<usize>,
    /// The whole patch on the disk, exact.
    pub file: Option<PathBuf>,
    /// Its size in bytes.
    pub bytes: u64,
}

/// What a task changed, of all files or of some.
#[derive(Debug, Clone)]
pub struct Changes {
    /// The files.
    pub files: Vec<ChangedFile>,
    /// The whole patch on the disk, exact, and its size; absent if there is none.
    pub file: Option<(PathBuf, u64)>,
    /// Which of all files are meant, where not all are.
    chosen: Option<Vec<bool>>,
}

/// Finds out what a task changed; `paths` narrows it to some files.
pub fn changes(house: &House, id: TaskId, paths: &[String]) -> anyhow::Result<Changes> {
    let result = house.spool.read_result(id)?;
    let Some(result) = result else {
        let state = house.spool.state_of(id)?;
        return Err(SpoolError::WrongState(format!("task {id} has no diff yet, it is {state}")).into());
    };
    let mut chosen = None;
    if !paths.is_empty() {
        for path in paths {
            if !result.changed.iter().any(|f| f.path == *path) {
                let names: Vec<&str> = result.changed.iter().map(|f| f.path.as_str()).collect();
                let hint = nearest(path, &names).map(|n| format!(": did you mean {n}?"));
                let text = format!("task {id} did not change {path}{}", hint.unwrap_or_default());
                return Err(SpoolError::NotThere(text).into());
            }
        }
        chosen = Some(result.changed.iter().map(|f| paths.contains(&f.path)).collect::<Vec<_>>());
    }
    let mut files = result.changed;
    retain(&mut files, chosen.as_deref());
    let file = result.diff.map(|diff| (house.spool.task(id).diff(), diff.bytes));
    Ok(Changes { files, file, chosen })
}

impl Changes {
    /// The patch: the exact bytes, or with secrets masked.
    pub fn patch(&self, raw: bool) -> anyhow::Result<Vec<u8>> {
        let Some((file, _)) = &self.file else { return Ok(Vec::new()) };
        let mut bytes = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
        if let Some(chosen) = &self.chosen {
            let mut parts = parts(&bytes);
            // The parts are in the order of the list: both are git's. If not, nothing is left out.
            if parts.len() == chosen.len() {
                retain(&mut parts, Some(chosen));
                bytes = parts.concat();
            }
        }
        Ok(if raw { bytes } else { Redactor::new([]).text(&bytes).into_owned() })
    }
}

fn retain<T>(list: &mut Vec<T>, chosen: Option<&[bool]>) {
    let mut keep = chosen.unwrap_or_default().iter();
    list.retain(|_| keep.next().copied().unwrap_or(true));
}

/// Reads a page of what a task changed.
pub fn read_diff(house: &House, id: TaskId, query: &DiffQuery) -> anyhow::Result<DiffPage> {
    let changes = changes(house, id, &query.paths)?;
    let mut page = DiffPage { files: Vec::new(), patch: String::new(), next: None, file: None, bytes: 0 };
    if let Some((file, bytes)) = &changes.file {
        if query.max_bytes > 0 && *bytes <= LARGEST {
            let patch = changes.patch(query.raw)?;
            let text = String::from_utf8_lossy(&patch);
            let text = if query.raw { text } else { printable(&text).into_owned().into() };
            (page.patch, page.next) = part(&text, query.offset, query.max_bytes);
        }
        (page.file, page.bytes) = (Some(file.clone()), *bytes);
    }
    page.files = changes.files;
    Ok(page)
}

/// Splits a patch into one part a file.
fn parts(patch: &[u8]) -> Vec<&[u8]> {
    let starts: Vec<usize> = memchr::memmem::find_iter(patch, b"diff --git ")
        .filter(|at| *at == 0 || patch[at - 1] == b'\n')
        .collect();
    let ends = starts.iter().skip(1).copied().chain([patch.len()]);
    starts.iter().zip(ends).map(|(from, to)| &patch[*from..to]).collect()
}

/// A part of a text from an offset on, ending at the end of a line where it can. And where to go on.
pub fn part(text: &str, offset: usize, most: usize) -> (String, Option<usize>) {
    let from =
        (offset.min(text.len())..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
    let rest = &text[from..];
    if rest.len() <= most {
        return (rest.to_owned(), None);
    }
    let mut to = (0..=most).rev().find(|at| rest.is_char_boundary(*at)).unwrap_or(0);
    if let Some(line) = rest[..to].rfind('\n') {
        to = line + 1;
    }
    if to == 0 {
        to = rest.chars().next().map_or(0, char::len_utf8);
    }
    (rest[..to].to_owned(), Some(from + to))
}

/// Reads a file that a task left with its result: what it is, and where it lies on the disk.
pub fn artifact(house: &House, id: TaskId, path: &str) -> anyhow::Result<(Artifact, PathBuf)> {
    let artifacts = artifacts(house, id)?;
    let known = artifacts.iter().find(|a| a.path == path);
    let inside = |a: &&Artifact| crate::model::check::is_inside(std::path::Path::new(&a.path));
    let Some(artifact) = known.filter(inside) else {
        let names: Vec<&str> = artifacts.iter().map(|a| a.path.as_str()).collect();
        let hint = nearest(path, &names).map(|n| format!("\n  hint: did you mean {n}?"));
        let text = format!("task {id} has no artifact {path}{}", hint.unwrap_or_default());
        return Err(SpoolError::NotThere(text).into());
    };
    if !artifact.kept {
        let text = format!("{path} is {} bytes, which was over the cap: no copy was kept", artifact.bytes);
        return Err(SpoolError::NotThere(text).into());
    }
    Ok((artifact.clone(), house.spool.task(id).artifacts().join(path)))
}

/// The files that a task left with its result.
pub fn artifacts(house: &House, id: TaskId) -> anyhow::Result<Vec<Artifact>> {
    match house.spool.read_result(id)? {
        Some(result) => Ok(result.artifacts),
        None => {
            let state = house.spool.state_of(id)?;
            Err(SpoolError::WrongState(format!("task {id} has no artifacts yet, it is {state}")).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_falls_into_files_and_content_that_looks_like_one_does_not_split_it() {
        let patch = b"diff --git a/x b/x\n@@ -1 +1 @@\n+diff --git a/y b/y\ndiff --git a/z b/z\n+z\n";
        let parts = parts(patch);
        assert_eq!(parts.len(), 2);
        assert!(parts[0].ends_with(b"+diff --git a/y b/y\n"));
        assert_eq!(parts.concat(), patch);
    }

    #[test]
    fn pages_end_at_lines_and_hold_everything_once() {
        let text = "first\nsecond line\nthird ü line that is longer than a page\nend";
        let (mut offset, mut all) = (0, String::new());
        loop {
            let (page, next) = part(text, offset, 16);
            assert!(page.len() <= 16 && !page.is_empty());
            all.push_str(&page);
            match next {
                Some(next) => offset = next,
                None => break,
            }
        }
        assert_eq!(all, text);
        assert_eq!(part("a\nb\n", 99, 10), (String::new(), None));
    }
}
