//! Index files: copies of them, and what they list, read without a process.

use super::bytes;
use super::oid::ObjectFormat;
use crate::durable;
use std::fs::{self, File, Metadata};
use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::SystemTime;

/// Copies an index with its time and mode.
///
/// An edit that keeps a file's size and falls into the same tick of the clock as the writing of the
/// index is found by git only because the file is not older than the index; a copy with a newer time
/// would hide it for good.
pub(super) fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let meta = fs::metadata(from)?;
    put(to, &fs::read(from)?, meta.modified()?)?;
    fs::set_permissions(to, meta.permissions())
}

/// Writes an index that was read before, with the time that it had then.
pub(super) fn put(to: &Path, bytes: &[u8], modified: SystemTime) -> io::Result<()> {
    durable::replace_unsynced(to, bytes)?;
    File::options().write(true).open(to)?.set_modified(modified)
}

/// What an index lists. It says no more than whoever wrote it: a worker can write its own.
#[derive(Debug)]
pub struct Index {
    bytes: Vec<u8>,
    names: Vec<u8>,
    rows: Vec<Row>,
    /// Bytes of an object's name.
    oid: usize,
}

#[derive(Debug)]
struct Row {
    at: usize,
    name: Range<usize>,
    stage: u16,
    left_out: bool,
}

/// A file that an index lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Its name, from the top of the tree.
    pub name: &'a [u8],
    /// Its mode, as git has it.
    pub mode: u32,
    /// The size of the file in the tree when git last looked; 0 if that is not known.
    pub size: u32,
    /// The name of its object, raw.
    pub oid: &'a [u8],
    /// Whether a sparse tree leaves it out.
    pub left_out: bool,
    /// What git noted of the file: times, device, inode, mode, owner, size.
    noted: &'a [u8],
}

impl<'a> Entry<'a> {
    /// Whether a file is the one that git saw when it last looked, and was not touched since. `written` is when
    /// the index was written: of what was written in that very moment, or later, nothing is known.
    ///
    /// Of the times that are compared, no program can set that of the last change.
    pub(super) fn is_untouched(&self, meta: &Metadata, written: (i64, i64)) -> bool {
        let noted = |at: usize| number(self.noted, at).unwrap_or(0);
        let now = [meta.ctime(), meta.ctime_nsec(), meta.mtime(), meta.mtime_nsec()].map(|n| n as u32);
        now == [noted(0), noted(4), noted(8), noted(12)]
            && meta.ino() as u32 == noted(20)
            && meta.size() as u32 == noted(36)
            && (meta.ctime(), meta.ctime_nsec()).max((meta.mtime(), meta.mtime_nsec())) < written
    }

    /// Whether another index noted the same of the file, which was not touched between the two then. A submodule has
    /// nothing to note.
    pub(super) fn is_noted_as(&self, other: &Entry<'_>, written: (i64, i64)) -> bool {
        let parts =
            [0..16, 20..24, 36..40].into_iter().all(|part| self.noted[part.clone()] == other.noted[part]);
        let time = |at: usize| {
            let of = |at| number(self.noted, at).unwrap_or(u32::MAX);
            (i64::from(of(at)), i64::from(of(at + 4)))
        };
        let was_before = time(0).max(time(8)) < written;
        self.mode == other.mode && (self.is_module() || parts && was_before)
    }

    /// Its name as a path.
    pub fn path(&self) -> &'a Path {
        bytes::as_path(self.name)
    }

    /// Whether it is the commit of a submodule.
    pub fn is_module(&self) -> bool {
        self.mode == 0o160_000
    }

    /// Whether it is a symbolic link.
    pub fn is_link(&self) -> bool {
        self.mode == 0o120_000
    }
}

impl Index {
    /// Reads an index of a repository with this object format.
    ///
    /// Not every index: the parts of one that is split, and the folders of a sparse one, are git's to put
    /// together.
    pub fn read(file: &Path, format: ObjectFormat) -> io::Result<Index> {
        Index::of(fs::read(file)?, format)
    }

    /// The same from the bytes of an index.
    pub(super) fn of(bytes: Vec<u8>, format: ObjectFormat) -> io::Result<Index> {
        let oid = match format {
            ObjectFormat::Sha1 => 20,
            ObjectFormat::Sha256 => 32,
        };
        let unknown = || io::Error::new(io::ErrorKind::InvalidData, "an index of a form that is not known");
        Index::parse(bytes, oid).ok_or_else(unknown)
    }

    fn parse(bytes: Vec<u8>, oid: usize) -> Option<Index> {
        let version = number(&bytes, 4)?;
        if !bytes.starts_with(b"DIRC") || !(2..=4).contains(&version) {
            return None;
        }
        let count = number(&bytes, 8)? as usize;
        // The smallest entry has its numbers, an object, its flags, a letter and an end.
        let mut rows: Vec<Row> = Vec::with_capacity(count.min(bytes.len() / (NUMBERS + oid + 4)));
        let mut names: Vec<u8> = Vec::with_capacity(bytes.len() / 2);
        let mut at = 12;
        for _ in 0..count {
            let flags = short(&bytes, at + NUMBERS + oid)?;
            let mut next = at + NUMBERS + oid + 2;
            let mut more = 0;
            if flags & EXTENDED != 0 {
                more = short(&bytes, next)?;
                next += 2;
            }
            let begin = names.len();
            if version == 4 {
                // Only the end of the name, after so many bytes less of the one before.
                let less = varint(&bytes, &mut next)?;
                let before = rows.last().map_or(0..0, |row| row.name.clone());
                let kept = before.len().checked_sub(less)?;
                names.extend_from_within(before.start..before.start + kept);
            }
            let rest = bytes.get(next..)?;
            let len = memchr::memchr(0, rest)?;
            names.extend_from_slice(rest.get(..len)?);
            let end = next + len;
            let row = Row {
                at,
                name: begin..names.len(),
                stage: flags & STAGE,
                left_out: more & SKIP_WORKTREE != 0,
            };
            rows.push(row);
            at = match version {
                4 => end + 1,
                // Padded to eight bytes, with one zero at least.
                _ => at + ((end - at + 8) & !7),
            };
        }
        // An extension in small letters changes what the entries mean.
        while let Some(name) = bytes.get(at..at + 4).filter(|_| at + 8 + oid <= bytes.len()) {
            if name.first().is_some_and(u8::is_ascii_lowercase) {
                return None;
            }
            at += 8 + number(&bytes, at + 4)? as usize;
        }
        Some(Index { bytes, names, rows, oid })
    }

    /// All files, in the order of their names' bytes; those in the middle of a merge are not among them.
    pub fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
        self.rows.iter().filter(|row| row.stage == 0).map(|row| self.entry(row))
    }

    /// The file of this name.
    pub fn find(&self, name: &[u8]) -> Option<Entry<'_>> {
        self.rows.get(self.place(name)).map(|row| self.entry(row)).filter(|entry| entry.name == name)
    }

    /// How many names there are.
    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Where a name is among all, or would be.
    pub(super) fn place(&self, name: &[u8]) -> usize {
        self.rows.partition_point(|row| &self.names[row.name.clone()] < name)
    }

    /// What is at a place, in the order of the names' bytes.
    pub(super) fn at(&self, place: usize) -> Option<Entry<'_>> {
        self.rows.get(place).map(|row| self.entry(row))
    }

    fn entry(&self, row: &Row) -> Entry<'_> {
        let oid = row.at + NUMBERS;
        Entry {
            name: &self.names[row.name.clone()],
            mode: number(&self.bytes, row.at + 24).unwrap_or(0),
            size: number(&self.bytes, row.at + 36).unwrap_or(0),
            oid: &self.bytes[oid..oid + self.oid],
            left_out: row.left_out,
            noted: &self.bytes[row.at..row.at + NUMBERS],
        }
    }
}

/// Bytes of the numbers with which an entry begins: times, device, inode, mode, owner, size.
const NUMBERS: usize = 40;
const EXTENDED: u16 = 0x4000;
const STAGE: u16 = 0x3000;
/// Among the further flags of an entry that has them.
const SKIP_WORKTREE: u16 = 0x4000;

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_be_bytes)
}

fn short(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2)?.try_into().ok().map(u16::from_be_bytes)
}

/// Reads a number as git writes one of any length: seven bits a byte, each further byte adding one.
fn varint(bytes: &[u8], at: &mut usize) -> Option<usize> {
    let mut value: usize = 0;
    loop {
        let byte = *bytes.get(*at)?;
        *at += 1;
        value = value.checked_mul(128)?.checked_add(usize::from(byte & 127))?;
        if byte & 128 == 0 {
            return Some(value);
        }
        value = value.checked_add(1)?;
    }
}
