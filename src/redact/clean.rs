//! Removes what a terminal would act on: escape sequences and control characters.
//!
//! This comes before redaction: a token with a colour in the middle is a token again once the colour is
//! gone, and must be masked as one.

use std::borrow::Cow;

/// A control string (`OSC`, `DCS`, …) that never ends stops to hide text after this many bytes.
const STRING_MAX: usize = 8 * 1024;

/// Cleans a text that comes in pieces.
#[derive(Debug, Clone, Default)]
pub(super) struct Clean {
    state: State,
    length: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    #[default]
    Text,
    /// After a carriage return: a line break, whether a line feed follows or not (progress bars).
    Return,
    /// After the first byte of a two-byte control character (U+0080 to U+009F).
    C2,
    Escape,
    /// In `ESC [ …`.
    Sequence,
    /// In a control string, and after an `ESC` in it.
    String,
    StringEscape,
}

impl Clean {
    /// Appends the clean part of `bytes` to `out`.
    pub(super) fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        let mut at = 0;
        while at < bytes.len() {
            if self.state == State::Text {
                let run = bytes[at..].iter().position(|&b| is_special(b)).unwrap_or(bytes.len() - at);
                out.extend_from_slice(&bytes[at..at + run]);
                at += run;
                let Some(&b) = bytes.get(at) else { return };
                self.state = match b {
                    0x1b => State::Escape,
                    b'\r' => State::Return,
                    0xc2 => State::C2,
                    _ => State::Text,
                };
                at += 1;
                continue;
            }
            let b = bytes[at];
            // A line break ends every sequence: a lost end must not hide the lines after it.
            let broken = b == b'\n' && self.state != State::Return && self.state != State::C2;
            let (next, used) = match self.state {
                _ if broken => (State::Text, false),
                State::Text => (State::Text, false),
                State::Return => match b {
                    b'\r' => (State::Return, true),
                    _ => {
                        out.push(b'\n');
                        (State::Text, b == b'\n')
                    }
                },
                State::C2 => {
                    if !(0x80..=0x9f).contains(&b) {
                        out.push(0xc2);
                    }
                    (State::Text, (0x80..=0x9f).contains(&b))
                }
                State::Escape => {
                    self.length = 0;
                    match b {
                        b'[' => (State::Sequence, true),
                        b']' | b'P' | b'X' | b'^' | b'_' => (State::String, true),
                        0x20..=0x2f | 0x1b => (State::Escape, true),
                        0x30..=0x7e => (State::Text, true),
                        _ => (State::Text, false),
                    }
                }
                State::Sequence => match b {
                    0x20..=0x3f if self.length < 64 => (State::Sequence, true),
                    0x40..=0x7e => (State::Text, true),
                    _ => (State::Text, false),
                },
                State::String => match b {
                    0x07 => (State::Text, true),
                    0x1b => (State::StringEscape, true),
                    _ if self.length > STRING_MAX => (State::Text, false),
                    _ => (State::String, true),
                },
                State::StringEscape if b == b'\\' => (State::Text, true),
                // Not the string's end: a new sequence begins.
                State::StringEscape => (State::Escape, false),
            };
            self.length += 1;
            self.state = next;
            at += usize::from(used);
        }
    }

    /// Appends what an ended text still owes.
    pub(super) fn finish(&mut self, out: &mut Vec<u8>) {
        match std::mem::take(self).state {
            State::Return => out.push(b'\n'),
            State::C2 => out.push(0xc2),
            _ => {}
        }
    }
}

/// Removes what a terminal would act on from a whole text: every surface that shows one calls this.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.bytes().any(is_special) {
        return Cow::Borrowed(text);
    }
    let (mut clean, mut out) = (Clean::default(), Vec::with_capacity(text.len()));
    clean.push(text.as_bytes(), &mut out);
    clean.finish(&mut out);
    Cow::Owned(String::from_utf8_lossy(&out).into_owned())
}

fn is_special(b: u8) -> bool {
    b < 0x20 && b != b'\n' && b != b'\t' || b == 0x7f || b == 0xc2
}
