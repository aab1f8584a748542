//! Private keys in PEM frames: whole, cut at either end, over lines or with `\n` written out.

use super::scan::{Rank, Span, Until};

pub(super) const BEGIN: &str = "-----BEGIN ";
pub(super) const END: &str = "-----END ";

/// The kind that a mask of a private key names.
pub(super) const KIND: &str = "private-key";

/// A line's `-----BEGIN … PRIVATE KEY…-----` or `-----END …` mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) begins: bool,
}

impl Frame {
    /// Reads the mark at `start`; `None` where it frames something public.
    pub(super) fn at(text: &[u8], start: usize) -> Option<Frame> {
        let begins = text[start..].starts_with(BEGIN.as_bytes());
        let name = start + if begins { BEGIN.len() } else { END.len() };
        let rest = &text[name..text.len().min(name + 64)];
        let dashes = rest.windows(5).position(|w| w == b"-----")?;
        let label = &rest[..dashes];
        let fits = label.iter().all(|b| b.is_ascii_alphanumeric() || *b == b' ');
        let private = label.windows(11).any(|w| w == b"PRIVATE KEY");
        (fits && private).then_some(Frame { start, end: name + dashes + 5, begins })
    }
}

/// Says whether a byte may stand in a key's body written in one line, with its breaks written out.
fn in_body(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b"+/=\\ \t".contains(&b)
}

/// Adds the spans of keys that stand, whole or cut, within one line.
pub(super) fn inline(text: &[u8], frames: &[Frame], spans: &mut Vec<Span>) {
    for (i, frame) in frames.iter().enumerate() {
        let mut span = Span {
            start: frame.start,
            end: frame.end,
            kind: KIND,
            rank: Rank::PrivateKey,
            until: Until::Nothing,
        };
        let line_to =
            |from: usize| text[from..].iter().position(|&b| b == b'\n').map_or(text.len(), |n| from + n);
        if frame.begins {
            match frames
                .get(i + 1)
                .filter(|next| !next.begins && !text[frame.end..next.start].contains(&b'\n'))
            {
                Some(next) => span.end = next.end,
                None => {
                    let end = line_to(frame.end);
                    // Headers of an encrypted key have other characters, so that a body that goes on
                    // after them is looked for as well.
                    let body =
                        text[frame.end..end].iter().take_while(|&&b| in_body(b) || b":-,".contains(&b));
                    span.end = frame.end + body.count();
                    span.until = Until::Token;
                }
            }
        } else {
            let body = text[..frame.start].iter().rev().take(32 * 1024).take_while(|&&b| in_body(b));
            span.start = frame.start - body.count();
        }
        spans.push(span);
    }
}

/// Says whether a line is one of a key's body: base64, behind at most a short prefix (a diff's `+`, a line number,
/// indentation, a quote) and before at most a short end (a written-out `\n`, a quote, a `+`).
pub(super) fn is_body(line: &[u8], short: bool) -> bool {
    let is_base64 = |b: u8| b.is_ascii_alphanumeric() || b"+/=".contains(&b);
    let bare = line.trim_ascii();
    if bare.is_empty() || bare.starts_with(b"Proc-Type:") || bare.starts_with(b"DEK-Info:") {
        return short;
    }
    // The longest run decides; what is around it must be little, and no words.
    let (mut best, mut start) = (0..0, 0);
    for at in 0..=bare.len() {
        if at == bare.len() || !is_base64(bare[at]) {
            if at - start > best.len() {
                best = start..at;
            }
            start = at + 1;
        }
    }
    let (before, after) = (&bare[..best.start], &bare[best.end..]);
    let around_ok = before.len() <= 16
        && after.len() <= 8
        && before.iter().all(|b| !b.is_ascii_alphabetic())
        && (after.is_empty() || !after.iter().any(|b| b.is_ascii_alphabetic()) || after.starts_with(b"\\"));
    around_ok && (best.len() >= 16 || short && !best.is_empty() && best.len() == bare.len())
}

/// Says whether a line may be of the body of a key whose beginning was cut off: full width, and no digest.
pub(super) fn is_full_body_line(line: &[u8]) -> bool {
    let bare = line.trim_ascii();
    let bare = bare.strip_prefix(b"+").filter(|rest| matches!(rest.len(), 64 | 70 | 76)).unwrap_or(bare);
    matches!(bare.len(), 64 | 70 | 76)
        && bare.iter().all(|b| b.is_ascii_alphanumeric() || b"+/=".contains(b))
        && !bare.iter().all(u8::is_ascii_hexdigit)
}
