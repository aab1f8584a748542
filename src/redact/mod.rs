//! Secrets to masks, and the one writer through which a foreign command's output reaches the disk.
//!
//! Three kinds of secrets are masked: values that are known (from the worker's environment and copied
//! `.env` files) in every form a program may print them in; tokens with a shape of their own; and
//! values that their surroundings give away. All of it is one pass in time proportional to the input,
//! and none of it depends on how the output was cut into writes.
//!
//! A mask is `[redacted:kind]`: safe within JSON, plain to a shell.

mod clean;
mod context;
mod entry;
mod known;
mod log;
mod names;
mod pem;
mod rules;
mod scan;
mod stream;
mod url;
mod value;
#[cfg(test)]
mod tests;

pub use clean::printable;
pub use entry::LogEntry;
pub use log::{Caps, LogStats, LogWriter, StreamKind};
pub use names::{env_name_is_secret, env_secrets, known_from_env_file};
pub use stream::Stream;

use std::borrow::Cow;
use std::sync::Arc;

/// Masks secrets. Cheap to clone.
#[derive(Clone, Default)]
pub struct Redactor {
    known: Option<Arc<known::Known>>,
}

impl Redactor {
    /// Makes a redactor that also masks these values, plain, base64, hex, URL-encoded and JSON-escaped.
    ///
    /// Values that are too short or too common to be secret (`true`, `localhost`, a port, a path) are left out;
    /// a value of several lines is masked line by line.
    pub fn new(known: impl IntoIterator<Item = Vec<u8>>) -> Redactor {
        Redactor { known: known::Known::new(known).map(Arc::new) }
    }

    /// Masks the secrets of a whole text.
    pub fn text<'a>(&self, input: &'a [u8]) -> Cow<'a, [u8]> {
        let mut stream = self.stream();
        let mut out = stream.push(input);
        out.extend(stream.finish());
        if out == input { Cow::Borrowed(input) } else { Cow::Owned(out) }
    }

    /// Masks the secrets of a whole string.
    pub fn str<'a>(&self, input: &'a str) -> Cow<'a, str> {
        match self.text(input.as_bytes()) {
            Cow::Borrowed(_) => Cow::Borrowed(input),
            // Masks begin and end at ASCII characters or at the ends of known values, so that this is the text.
            Cow::Owned(bytes) => Cow::Owned(String::from_utf8_lossy(&bytes).into_owned()),
        }
    }

    /// Starts to mask a text that comes in pieces. Escape sequences are not removed: [`printable`] does that, first.
    pub fn stream(&self) -> Stream {
        Stream::new(self.clone())
    }

    fn scan(&self, text: &[u8]) -> scan::Found {
        scan::scan(text, self.known.as_deref())
    }
}

impl std::fmt::Debug for Redactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Redactor")
    }
}
