//! Names of git objects.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The name of a git object: 40 (SHA-1) or 64 (SHA-256) lower-case hex digits.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Oid(String);

impl Oid {
    /// Reads a full object name; surrounding white space is passed over.
    pub fn parse(text: &[u8]) -> Option<Oid> {
        let text = text.trim_ascii();
        let hex = text.iter().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(b));
        let full = text.len() == 40 || text.len() == 64;
        (hex && full).then(|| Oid(text.iter().map(|b| char::from(*b)).collect()))
    }

    /// The hex digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The format of the repository that it is of.
    pub fn format(&self) -> ObjectFormat {
        match self.0.len() {
            64 => ObjectFormat::Sha256,
            _ => ObjectFormat::Sha1,
        }
    }

    /// Whether this is git's word for "no object".
    pub fn is_null(&self) -> bool {
        self.0.bytes().all(|b| b == b'0')
    }

    /// The word for "no object" of this length.
    pub(crate) fn null(&self) -> Oid {
        Oid("0".repeat(self.0.len()))
    }
}

impl fmt::Display for Oid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Oid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for Oid {
    type Error = String;

    fn try_from(text: String) -> Result<Oid, String> {
        Oid::parse(text.as_bytes()).ok_or_else(|| format!("not a full object name: {text:?}"))
    }
}

impl From<Oid> for String {
    fn from(oid: Oid) -> String {
        oid.0
    }
}

/// Which hash names the objects of a repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ObjectFormat {
    /// SHA-1, 40 digits.
    Sha1,
    /// SHA-256, 64 digits.
    Sha256,
}

impl ObjectFormat {
    /// Git's word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            ObjectFormat::Sha1 => "sha1",
            ObjectFormat::Sha256 => "sha256",
        }
    }

    /// The tree with nothing in it, which git knows without having it.
    pub fn empty_tree(self) -> &'static str {
        match self {
            ObjectFormat::Sha1 => "4b825dc642cb6eb9a060e54bf8d69288fbee4904",
            ObjectFormat::Sha256 => "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321",
        }
    }
}
