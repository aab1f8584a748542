//! Reading a task's log in pages: the end first, then on from a cursor.

use super::{House, Step, log_steps};
use crate::model::TaskId;
use crate::model::task::cut;
use crate::redact::{LogEntry, printable};
use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::str::FromStr;

/// Bytes of a log that are read at once; no entry is as large.
const WINDOW: u64 = 512 * 1024;
/// Longest line that is shown whole, in characters.
const LINE: usize = 2000;

/// A place in the log of a task: everything before it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor {
    /// The attempt.
    pub attempt: u32,
    /// The step.
    pub step: String,
    /// Bytes of the step's log that were read.
    pub offset: u64,
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.attempt, self.step, self.offset)
    }
}

impl FromStr for Cursor {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        let read = || {
            let (attempt, rest) = s.split_once(':')?;
            let (step, offset) = rest.rsplit_once(':')?;
            Some(Cursor { attempt: attempt.parse().ok()?, step: step.into(), offset: offset.parse().ok()? })
        };
        read().ok_or_else(|| format!("{s:?} is not a cursor: expected one that was given with a page before"))
    }
}

/// What to read of a log.
#[derive(Debug, Clone, Default)]
pub struct LogQuery {
    /// Only this step, such as `work.1`.
    pub step: Option<String>,
    /// Go on from here. Absent: the end of the log, or with `from_start` its beginning.
    pub cursor: Option<Cursor>,
    /// Begin at the beginning.
    pub from_start: bool,
    /// At most about so many bytes of text.
    pub max_bytes: usize,
}

/// A page of a log.
#[derive(Debug, Clone)]
pub struct LogPage {
    /// The lines, with a heading where a step begins.
    pub text: String,
    /// Where to go on; absent if there is no log at all.
    pub cursor: Option<Cursor>,
    /// Whether more is there to read now.
    pub more: bool,
    /// Whether something before this page was passed over.
    pub begins_later: bool,
}

/// Reads a page of a task's log.
pub fn read_log(house: &House, id: TaskId, query: &LogQuery) -> anyhow::Result<LogPage> {
    let mut steps = log_steps(house, id)?;
    steps.retain(|s| query.step.as_ref().is_none_or(|name| *name == s.name) && s.log.is_file());
    let mut page =
        LogPage { text: String::new(), cursor: query.cursor.clone(), more: false, begins_later: false };
    if steps.is_empty() {
        return Ok(page);
    }
    let (first, mut offset) = match &query.cursor {
        Some(cursor) => match steps.iter().position(|s| s.attempt == cursor.attempt && s.name == cursor.step)
        {
            Some(at) => (at, cursor.offset),
            None => anyhow::bail!("{cursor} is not a place in this log: leave the cursor out"),
        },
        None if query.from_start => (0, 0),
        None => from_the_end(&steps, query.max_bytes)?,
    };
    page.begins_later = query.cursor.is_none() && (first > 0 || offset > 0);
    let mut used = 0;
    for (k, step) in steps.iter().enumerate().skip(first) {
        let (lines, read) = lines(step, offset, query.max_bytes.saturating_sub(used))?;
        used += lines.len();
        if !lines.is_empty() {
            if !(query.cursor.is_some() && k == first) {
                page.text.push_str(&format!("== attempt {}, {} ==\n", step.attempt, step.name));
            }
            page.text.push_str(&lines);
        }
        page.cursor = Some(Cursor { attempt: step.attempt, step: step.name.clone(), offset: read.offset });
        if read.more {
            page.more = true;
            break;
        }
        offset = 0;
    }
    Ok(page)
}

struct ReadTo {
    offset: u64,
    more: bool,
}

/// Reads whole entries from an offset on, for at most about `room` bytes of text and at least one line.
fn lines(step: &Step, offset: u64, room: usize) -> anyhow::Result<(String, ReadTo)> {
    // Entries are larger than their text: time, stream, escapes. What is read and not used is read again.
    let window = (room as u64).saturating_mul(2).saturating_add(WINDOW);
    let mut text = String::new();
    let read = entries(step, offset, window, |entry| {
        let line = show(&entry);
        if text.len() + line.len() > room && (!text.is_empty() || room == 0) {
            return ControlFlow::Break(());
        }
        text.push_str(&line);
        ControlFlow::Continue(())
    })?;
    Ok((text, read))
}

/// Hands over the whole entries of a window of a step's log, until one is not taken. One that is still being
/// written is left for the next look, and one that was torn is passed over.
fn entries(
    step: &Step,
    offset: u64,
    window: u64,
    mut take: impl FnMut(LogEntry) -> ControlFlow<()>,
) -> anyhow::Result<ReadTo> {
    let mut file = File::open(&step.log)?;
    file.seek(SeekFrom::Start(offset))?;
    let mut bytes = Vec::new();
    file.take(window).read_to_end(&mut bytes)?;
    let mut at = 0;
    while let Some(end) = memchr::memchr(b'\n', &bytes[at..]) {
        if let Some(entry) = LogEntry::read(&bytes[at..at + end])
            && take(entry).is_break()
        {
            return Ok(ReadTo { offset: offset + at as u64, more: true });
        }
        at += end + 1;
    }
    let more = bytes.len() as u64 == window && at > 0;
    Ok(ReadTo { offset: offset + at as u64, more })
}

/// Reads what is added to a task's log, from its beginning on.
#[derive(Debug)]
pub struct LogReader {
    step: Option<String>,
    offsets: HashMap<PathBuf, u64>,
}

impl LogReader {
    /// Begins at the beginning; of one step only, such as `work.1`, or of all.
    pub fn new(step: Option<String>) -> Self {
        LogReader { step, offsets: HashMap::new() }
    }

    /// Hands over every entry that came since the last look.
    pub fn more(
        &mut self,
        house: &House,
        id: TaskId,
        mut take: impl FnMut(&Step, LogEntry),
    ) -> anyhow::Result<()> {
        let wanted = |step: &Step| self.step.as_ref().is_none_or(|name| *name == step.name);
        for step in log_steps(house, id)?.into_iter().filter(wanted) {
            if !step.log.is_file() {
                continue;
            }
            let offset = self.offsets.entry(step.log.clone()).or_default();
            loop {
                let read = entries(&step, *offset, WINDOW, |entry| {
                    take(&step, entry);
                    ControlFlow::Continue(())
                })?;
                *offset = read.offset;
                if !read.more {
                    break;
                }
            }
        }
        Ok(())
    }
}

fn show(entry: &LogEntry) -> String {
    let mut out = String::new();
    if let Some(cut) = entry.cut_bytes {
        out.push_str(&format!("… {cut} bytes were not logged\n"));
    }
    if let Some(text) = &entry.text {
        out.push_str(&cut(&printable(text), LINE));
        out.push('\n');
    }
    out
}

/// The place from which about `room` bytes of text are left.
fn from_the_end(steps: &[Step], room: usize) -> anyhow::Result<(usize, u64)> {
    let mut left = room;
    for (k, step) in steps.iter().enumerate().rev() {
        let length = step.log.metadata()?.len();
        let window = (left as u64).saturating_mul(2).saturating_add(64 * 1024).min(length);
        let mut file = File::open(&step.log)?;
        file.seek(SeekFrom::Start(length - window))?;
        let mut bytes = Vec::new();
        file.take(window).read_to_end(&mut bytes)?;
        let mut end = memchr::memrchr(b'\n', &bytes).map_or(0, |at| at + 1);
        while end > 0 {
            let start = memchr::memrchr(b'\n', &bytes[..end - 1]).map_or(0, |at| at + 1);
            if start == 0 && window < length {
                // It may begin before the window.
                return Ok((k, length - window + end as u64));
            }
            let size = LogEntry::read(&bytes[start..end - 1]).map_or(0, |e| show(&e).len());
            if size > left {
                return Ok((k, length - window + end as u64));
            }
            left -= size;
            end = start;
        }
    }
    Ok((0, 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redact::StreamKind;
    use crate::spool::Spool;
    use std::path::Path;

    fn house(root: &Path) -> House {
        House { spool: Spool::open(root).unwrap(), config: crate::model::Config::default() }
    }

    fn write(house: &House, id: TaskId, step: &str, lines: std::ops::Range<usize>) {
        let folder = house.spool.task(id).attempt(1).step(step);
        std::fs::create_dir_all(&folder).unwrap();
        let mut log = String::new();
        for k in lines {
            let entry = LogEntry {
                // One time for all: entries that are written again have the length that they had.
                at: chrono::DateTime::UNIX_EPOCH,
                stream: StreamKind::Stdout,
                text: Some(format!("line {k}")),
                part: false,
                tail: false,
                cut_bytes: None,
            };
            log.push_str(&serde_json::to_string(&entry).unwrap());
            log.push('\n');
        }
        log.push_str("{\"half");
        std::fs::write(folder.join("log.jsonl"), log).unwrap();
    }

    fn numbers(text: &str) -> Vec<usize> {
        text.lines().filter_map(|l| l.strip_prefix("line ")?.parse().ok()).collect()
    }

    #[test]
    fn pages_from_the_start_hold_every_line_once() {
        let dir = tempfile::tempdir().unwrap();
        let (house, id) = (house(dir.path()), TaskId::generate());
        write(&house, id, "work.1", 0..40);
        write(&house, id, "gate.1.1", 40..60);
        let mut query = LogQuery { from_start: true, max_bytes: 100, ..LogQuery::default() };
        let (mut seen, mut pages) = (Vec::new(), 0);
        loop {
            let page = read_log(&house, id, &query).unwrap();
            assert!(page.text.len() < 200);
            seen.extend(numbers(&page.text));
            query.cursor = page.cursor;
            pages += 1;
            if !page.more {
                break;
            }
        }
        assert_eq!(seen, (0..60).collect::<Vec<_>>());
        assert!(pages > 3);
        let again = read_log(&house, id, &query).unwrap();
        assert_eq!((again.text.as_str(), again.cursor), ("", query.cursor.clone()));
        // What comes later is read from the same place.
        write(&house, id, "gate.1.1", 40..62);
        assert_eq!(numbers(&read_log(&house, id, &query).unwrap().text), [60, 61]);
    }

    #[test]
    fn without_a_cursor_the_end_is_shown_over_the_border_of_steps() {
        let dir = tempfile::tempdir().unwrap();
        let (house, id) = (house(dir.path()), TaskId::generate());
        write(&house, id, "work.1", 0..40);
        write(&house, id, "gate.1.1", 40..45);
        let query = LogQuery { max_bytes: 80, ..LogQuery::default() };
        let page = read_log(&house, id, &query).unwrap();
        assert_eq!(numbers(&page.text), (35..45).collect::<Vec<_>>());
        assert!(page.begins_later && !page.more);
        let only = LogQuery { step: Some("work.1".into()), max_bytes: 1 << 20, ..LogQuery::default() };
        let page = read_log(&house, id, &only).unwrap();
        assert_eq!(numbers(&page.text), (0..40).collect::<Vec<_>>());
        assert!(!page.begins_later);
    }

    #[test]
    fn a_cursor_reads_back_and_a_foreign_one_is_refused() {
        let cursor = Cursor { attempt: 2, step: "gate.1.1".into(), offset: 77 };
        assert_eq!(cursor.to_string().parse::<Cursor>().unwrap(), cursor);
        assert!("nonsense".parse::<Cursor>().is_err());
        let dir = tempfile::tempdir().unwrap();
        let (house, id) = (house(dir.path()), TaskId::generate());
        write(&house, id, "work.1", 0..1);
        let query = LogQuery { cursor: Some(cursor), max_bytes: 10, ..LogQuery::default() };
        assert!(read_log(&house, id, &query).is_err());
    }
}
