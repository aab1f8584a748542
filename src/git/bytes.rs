//! Bytes that are nearly always text, in JSON and back without loss.
//!
//! Paths and git's output need not be UTF-8. Each byte becomes the character of the same number, so
//! that ASCII stays readable and nothing is lost: `#[serde(with = "bytes")]` on a `Vec<u8>`,
//! `#[serde(with = "bytes::path")]` on a `PathBuf`.

use serde::{Deserialize, Deserializer, Serializer, de};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Writes bytes as a string of characters below U+0100.
pub fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&bytes.iter().map(|b| char::from(*b)).collect::<String>())
}

/// Reads back what [`serialize`] wrote.
pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
    String::deserialize(from)?
        .chars()
        .map(|c| u8::try_from(c).map_err(|_| de::Error::custom("a character that stands for no byte")))
        .collect()
}

/// Turns git's bytes into a path.
pub fn to_path(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(bytes))
}

/// Takes git's bytes for a path.
pub fn as_path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

/// Turns a path into git's bytes.
pub fn of_path(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

/// The same for paths.
pub mod path {
    use super::{Deserializer, Path, PathBuf, Serializer};

    /// Writes a path.
    pub fn serialize<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
        super::serialize(super::of_path(path), to)
    }

    /// Reads a path.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
        Ok(super::to_path(&super::deserialize(from)?))
    }
}
