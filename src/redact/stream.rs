//! Redaction of a text that comes in pieces, with the same outcome wherever it is cut.
//!
//! A line is looked at when it is complete. Of a line too long to wait for, and of one that pauses, the
//! part goes out that no secret can begin in or reach into; it stays in memory a while as context for
//! what follows. Private keys, the only secrets of many lines that are found by shape, are followed from
//! line to line.

use super::scan::{Found, Rank, Span, Until};
use super::{Redactor, pem};

/// Bytes of an unfinished line that are held at most.
const HELD_MAX: usize = 64 * 1024;
/// Bytes at the end of an over-long line that may be the beginning of a secret.
const OVERLAP: usize = 8 * 1024;
/// Bytes already out that are kept to tell what follows.
pub(super) const CONTEXT: usize = 8 * 1024;
/// Lines that may be a key's body are held up to this size; no key is larger.
const BODY_MAX: usize = 16 * 1024;

/// Masks secrets in a text that comes in pieces. Holds less than 256 KiB, whatever comes.
#[derive(Debug, Clone)]
pub struct Stream {
    redactor: Redactor,
    /// Context that is out already, then what is held.
    buf: Vec<u8>,
    /// Where in `buf` that begins which is not out.
    out: usize,
    /// Within a private key whose end has not come.
    in_key: bool,
    /// Within a value that was masked before its end came.
    swallow: Option<Swallow>,
}

#[derive(Debug, Clone, Copy)]
struct Swallow {
    until: Until,
    slashes: usize,
}

impl Stream {
    pub(super) fn new(redactor: Redactor) -> Stream {
        Stream { redactor, buf: Vec::new(), out: 0, in_key: false, swallow: None }
    }

    /// Takes the next piece, and returns what may be shown by now.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut shown = Vec::with_capacity(bytes.len() + 64);
        for mut chunk in bytes.chunks(HELD_MAX) {
            if let Some(swallow) = &mut self.swallow {
                let rest = swallow.skip(chunk);
                if chunk.len() == rest {
                    continue;
                }
                chunk = &chunk[rest..];
                self.swallow = None;
            }
            let before = self.buf.len();
            self.buf.extend_from_slice(chunk);
            if let Some(at) = chunk.iter().rposition(|&b| b == b'\n') {
                self.lines(before + at + 1, &mut shown);
            }
            while self.held() > HELD_MAX {
                self.overlong(&mut shown);
            }
        }
        shown
    }

    /// Returns what may be shown of an unfinished line, since nothing more has come for a while.
    pub fn idle(&mut self) -> Vec<u8> {
        let mut shown = Vec::new();
        if self.in_key || self.swallow.is_some() || self.buf[self.out..].contains(&b'\n') || self.held() == 0
        {
            return shown;
        }
        let found = self.redactor.scan(&self.buf);
        // Held are the last word, what a keyword announced, and the beginning of a known value.
        let blank = self.buf.iter().rposition(|b| b.is_ascii_whitespace()).map_or(0, |at| at + 1);
        let mut cut = blank.min(self.redactor.known.as_ref().map_or(blank, |k| k.open_from(&self.buf)));
        cut =
            found.announced.iter().copied().filter(|at| *at >= self.out).min().map_or(cut, |at| at.min(cut));
        // A keyword may stand in the middle of a name, which belongs to it.
        if cut < self.buf.len() {
            let name = self.buf[..cut].iter().rev().take_while(|b| !b.is_ascii_whitespace()).count();
            cut -= name;
        }
        if let Some(span) = found.spans.iter().find(|s| s.start < cut && cut < s.end) {
            cut = span.start;
        }
        if cut > self.out {
            self.emit(cut, found, &mut shown);
            self.trim();
        }
        shown
    }

    /// Returns the rest; the text ends here.
    pub fn finish(mut self) -> Vec<u8> {
        let mut shown = Vec::new();
        if self.held() > 0 {
            let found = self.redactor.scan(&self.buf);
            self.emit(self.buf.len(), found, &mut shown);
        }
        shown
    }

    /// Returns how many bytes are held.
    pub fn held(&self) -> usize {
        self.buf.len() - self.out
    }

    /// Lets what is held go unseen, as context of what follows.
    pub(super) fn skip_held(&mut self) {
        self.out = self.buf.len();
        self.trim();
    }

    /// Shows the complete lines, which end at `complete`.
    fn lines(&mut self, complete: usize, shown: &mut Vec<u8>) {
        let cut = self.body_from(complete);
        if cut > self.out {
            let found = self.redactor.scan(&self.buf[..cut]);
            self.emit(cut, found, shown);
            self.buf.drain(..cut);
            self.out = 0;
        }
    }

    /// Returns where the last lines begin that may be the body of a key whose beginning was cut off.
    fn body_from(&self, complete: usize) -> usize {
        let mut from = complete;
        let mut short = None;
        while from > self.out {
            let start = self.buf[self.out..from - 1]
                .iter()
                .rposition(|&b| b == b'\n')
                .map_or(self.out, |n| self.out + n + 1);
            let line = &self.buf[start..from];
            if pem::is_full_body_line(line) {
                short = None;
            } else if from == complete
                && line.len() < 80
                && pem::is_body(line, true)
                && !line.trim_ascii().is_empty()
            {
                // The last line of a body is shorter, and counts only after full ones.
                short = Some(from);
            } else {
                break;
            }
            if complete - start > BODY_MAX {
                return complete;
            }
            from = start;
        }
        short.unwrap_or(from)
    }

    /// Shows the safe part of a line that is too long to wait for.
    fn overlong(&mut self, shown: &mut Vec<u8>) {
        let found = self.redactor.scan(&self.buf);
        let len = self.buf.len();
        let mut cut = len - OVERLAP;
        while cut > self.out && self.buf[cut] & 0xc0 == 0x80 && cut > len - OVERLAP - 4 {
            cut -= 1;
        }
        if let Some(span) = found.spans.iter().find(|s| s.start < cut && cut < s.end).copied() {
            let open = span.end == len && span.until != Until::Nothing;
            cut = match open {
                false => span.end,
                true if span.start > self.out => span.start,
                true => {
                    // The whole buffer is one secret: its mask goes out, and the rest is dropped as it comes.
                    let slashes = self.buf.iter().rev().take_while(|b| **b == b'\\').count();
                    self.swallow = Some(Swallow { until: span.until, slashes });
                    len
                }
            };
        }
        self.emit(cut, found, shown);
        self.trim();
    }

    fn trim(&mut self) {
        if self.out > 2 * CONTEXT {
            self.buf.drain(..self.out - CONTEXT);
            self.out = CONTEXT;
        }
    }

    /// Shows what is held up to `cut`, masked.
    fn emit(&mut self, cut: usize, mut found: Found, shown: &mut Vec<u8>) {
        if self.in_key || !found.frames.is_empty() {
            self.follow_keys(cut, &mut found);
        }
        let mut at = self.out;
        for span in found.spans.iter().filter(|s| s.end > self.out && s.start < cut) {
            shown.extend_from_slice(&self.buf[at..span.start.max(at)]);
            if !span.kind.is_empty() {
                shown.extend_from_slice(b"[redacted:");
                shown.extend_from_slice(span.kind.as_bytes());
                shown.push(b']');
            }
            at = span.end.min(cut);
        }
        shown.extend_from_slice(&self.buf[at..cut]);
        self.out = cut;
    }

    /// Adds the spans of keys that stand over several lines. Their lines are dropped: one mask is enough.
    fn follow_keys(&mut self, cut: usize, found: &mut Found) {
        let dropped =
            |start, end| Span { start, end, kind: "", rank: Rank::PrivateKey, until: Until::Nothing };
        let mut start = self.out;
        let mut body_from = None;
        let mut frames = found.frames.iter().filter(|f| f.start >= self.out).peekable();
        while start < cut {
            let end = self.buf[start..cut].iter().position(|&b| b == b'\n').map_or(cut, |n| start + n + 1);
            let line = &self.buf[start..end];
            let mut first = true;
            let mut framed = None;
            while let Some(frame) = frames.next_if(|f| f.start < end) {
                if first && !frame.begins {
                    let blank = self.buf[frame.end..end].trim_ascii().is_empty();
                    match (self.in_key, body_from) {
                        (true, _) => found.spans.push(dropped(start, if blank { end } else { frame.end })),
                        (false, Some(from)) => found.spans.push(dropped(from, start)),
                        _ => {}
                    }
                }
                first = false;
                framed = Some(frame);
            }
            match framed {
                Some(frame) => {
                    self.in_key = frame.begins && pem_goes_on(&self.buf[frame.end..end]);
                    body_from = None;
                }
                None if self.in_key => {
                    self.in_key = pem::is_body(line, true);
                    if self.in_key {
                        found.spans.push(dropped(start, end));
                    }
                }
                None if pem::is_full_body_line(line) => body_from = body_from.or(Some(start)),
                None if body_from.is_some() && pem::is_body(line, true) => {}
                None => body_from = None,
            }
            start = end;
        }
        super::scan::merge(&mut found.spans);
    }
}

/// Says whether a key goes on after its first line: nothing but body and the ends of a string follow the mark.
fn pem_goes_on(rest: &[u8]) -> bool {
    rest.iter().all(|b| b.is_ascii_alphanumeric() || b.is_ascii_whitespace() || b"+/=\\\"'`,;.()".contains(b))
}

impl Swallow {
    /// Returns how many bytes of `chunk` still belong to the value.
    fn skip(&mut self, chunk: &[u8]) -> usize {
        let mut at = 0;
        while at < chunk.len() {
            let b = chunk[at];
            let ends = b == b'\n'
                || match self.until {
                    Until::Nothing => true,
                    Until::Line => false,
                    Until::Token => !(b.is_ascii_alphanumeric() || b"_-+/=.%~\\".contains(&b)),
                    Until::Word => b.is_ascii_whitespace() || b"\"'`".contains(&b),
                    Until::Quote(quote, slashes) => b == quote && self.slashes <= slashes,
                };
            if ends {
                return at;
            }
            self.slashes = if b == b'\\' { self.slashes + 1 } else { 0 };
            at += 1;
        }
        at
    }
}
