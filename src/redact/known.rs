//! Secrets known by value: found as they are and in every form that programs print them in.

use super::scan::{Rank, Span, Until};
use aho_corasick::{AhoCorasick, MatchKind};

/// Encoded forms are found by pieces of this size: `base64` and `xxd` break their output into lines.
const PIECE: usize = 12;
/// A plain value longer than this is found by its pieces too, so that a part of it is masked as well.
const LONG: usize = 256;
const LONG_PIECE: usize = 48;

/// One way in which a known value may be printed.
struct Form {
    bytes: Vec<u8>,
    /// Found by pieces of this size; as a whole where absent.
    piece: Option<usize>,
}

/// The automaton that finds all forms of all known values in one pass.
pub(super) struct Known {
    forms: Vec<Form>,
    /// Which form a pattern is of, and where in it.
    origin: Vec<(usize, usize)>,
    finder: AhoCorasick,
}

impl Known {
    /// Builds the finder; `None` where no value is worth masking.
    pub(super) fn new(values: impl IntoIterator<Item = Vec<u8>>) -> Option<Known> {
        let mut plain: Vec<Vec<u8>> = Vec::new();
        for value in values {
            // A value of several lines is masked line by line: indented, quoted, prefixed by a diff
            // or cut, it is still found.
            let lines = value.split(|&b| b == b'\n').map(<[u8]>::trim_ascii);
            plain.extend(lines.filter(|l| is_worth_masking(l) && *l != value).map(<[u8]>::to_vec));
            plain.push(value);
        }
        plain.retain(|v| is_worth_masking(v));
        plain.sort();
        plain.dedup();
        let mut forms: Vec<Form> = plain.iter().flat_map(|v| forms_of(v)).collect();
        forms.sort_by(|a, b| a.bytes.cmp(&b.bytes).then(a.piece.is_some().cmp(&b.piece.is_some())));
        forms.dedup_by(|a, b| a.bytes == b.bytes);
        let (mut patterns, mut origin) = (Vec::new(), Vec::new());
        for (f, form) in forms.iter().enumerate() {
            let piece = form.piece.unwrap_or(form.bytes.len());
            for at in (0..=form.bytes.len() - piece).step_by(piece) {
                patterns.push(&form.bytes[at..at + piece]);
                origin.push((f, at));
            }
        }
        if patterns.is_empty() {
            return None;
        }
        // Overlapping matches: of two values that share bytes, both are masked to their ends.
        let finder = AhoCorasick::builder().match_kind(MatchKind::Standard).build(&patterns).ok()?;
        Some(Known { forms, origin, finder })
    }

    /// Adds a span for each form of a known value in `text`.
    pub(super) fn find(&self, text: &[u8], spans: &mut Vec<Span>) {
        // How far each form's pieces reached: what was walked once is not walked again (linear).
        let mut done: Vec<usize> = Vec::new();
        for hit in self.finder.find_overlapping_iter(text) {
            let (f, offset) = self.origin[hit.pattern().as_usize()];
            let form = &self.forms[f];
            let (mut start, mut end) = (hit.start(), hit.end());
            if let Some(piece) = form.piece {
                done.resize(self.forms.len(), 0);
                if end <= done[f] {
                    continue;
                }
                start = grow_left(text, start, &form.bytes[..offset]);
                end = grow_right(text, end, &form.bytes[offset + piece..]);
                done[f] = end;
            }
            spans.push(Span { start, end, kind: "known", rank: Rank::Known, until: Until::Nothing });
        }
    }

    /// Returns where a known value may have begun that `text` does not end yet.
    pub(super) fn open_from(&self, text: &[u8]) -> usize {
        let open = |form: &Form| {
            let most = form.bytes.len().min(text.len() + 1);
            (1..most).rev().find(|&n| text.ends_with(&form.bytes[..n])).unwrap_or(0)
        };
        // A form without white space is held as the last word anyway.
        let spaced = self.forms.iter().filter(|f| f.bytes.iter().any(u8::is_ascii_whitespace));
        text.len() - spaced.map(open).max().unwrap_or(0)
    }
}

/// Walks left while the text goes on as `before` ends, over line breaks.
fn grow_left(text: &[u8], mut at: usize, before: &[u8]) -> usize {
    let mut left = before.len();
    let mut start = at;
    while left > 0 && at > 0 {
        at -= 1;
        if text[at] == before[left - 1] {
            left -= 1;
            start = at;
        } else if !is_break(text[at]) {
            break;
        }
    }
    start
}

fn grow_right(text: &[u8], mut at: usize, after: &[u8]) -> usize {
    let (mut used, mut end) = (0, at);
    while used < after.len() && at < text.len() {
        if text[at] == after[used] {
            used += 1;
            end = at + 1;
        } else if !is_break(text[at]) {
            break;
        }
        at += 1;
    }
    end
}

fn is_break(byte: u8) -> bool {
    byte == b'\n' || byte == b'\r'
}

/// Says whether a value can be masked without masking half of every log with it.
fn is_worth_masking(value: &[u8]) -> bool {
    const COMMON: &[&str] = &[
        "localhost",
        "default",
        "disabled",
        "enabled",
        "production",
        "development",
        "staging",
        "testing",
        "example",
        "unknown",
        "undefined",
        "required",
        "optional",
        "password",
        "secret",
        "changeme",
        "github",
        "gitlab",
        "openai",
        "anthropic",
        "google",
        "string",
        "number",
        "object",
        "server",
        "client",
        "public",
        "private",
        "system",
        "master",
        "000000",
        "127.0.0.1",
        "0.0.0.0",
        "postgres",
        "postgresql",
        "mongodb",
        "rabbitmq",
        "minioadmin",
        "workspool",
        "claude",
        "opencode",
        "gemini",
    ];
    let trimmed = value.trim_ascii();
    if trimmed.len() < 6 || trimmed.iter().all(|b| b.is_ascii_digit()) && trimmed.len() < 10 {
        return false;
    }
    if COMMON.iter().any(|word| trimmed.eq_ignore_ascii_case(word.as_bytes())) {
        return false;
    }
    // One byte repeated, and lines of a PEM frame, which have their own rule.
    if trimmed.iter().all(|b| *b == trimmed[0]) || trimmed.starts_with(b"-----") {
        return false;
    }
    !is_path(trimmed)
}

/// Says whether a value names a file: `GOOGLE_APPLICATION_CREDENTIALS` holds a path, and paths are shown.
fn is_path(value: &[u8]) -> bool {
    const ROOTS: &[&str] = &[
        "/home/",
        "/Users/",
        "/tmp/",
        "/var/",
        "/etc/",
        "/opt/",
        "/usr/",
        "/root/",
        "/run/",
        "/private/",
        "/mnt/",
        "/srv/",
        "~/",
        "./",
        "../",
    ];
    ROOTS.iter().any(|root| value.starts_with(root.as_bytes()))
}

fn forms_of(value: &[u8]) -> Vec<Form> {
    let mut forms = Vec::new();
    let piece = (value.len() > LONG).then_some(LONG_PIECE);
    let mut plain = |bytes: Vec<u8>| forms.push(Form { bytes, piece });
    plain(value.to_vec());
    for ascii in [false, true] {
        for slash in [false, true] {
            for html in [false, true] {
                let once = json_escaped(value, ascii, slash, html);
                // A tool's JSON in a worker's JSON.
                plain(json_escaped(&once, ascii, slash, html));
                plain(once);
            }
        }
    }
    for keep in [&b"-_.~"[..], b"-_.~!*'()", b"-_.~/", b"-_.", b"-_.~!*'();,/?:@&=+$#"] {
        for upper in [true, false] {
            plain(percent_encoded(value, keep, upper, false));
            plain(percent_encoded(value, keep, upper, true));
        }
    }
    plain(replaced(value, b"'", b"'\\''"));
    plain(html_escaped(value));
    let encoded = |bytes: Vec<u8>| {
        (bytes.len() >= 6).then_some(bytes).map(|bytes| {
            let piece = (bytes.len() >= PIECE).then_some(PIECE);
            Form { bytes, piece }
        })
    };
    for lead in 0..3 {
        for url_safe in [false, true] {
            forms.extend(encoded(base64_inner(value, lead, url_safe)));
        }
    }
    for upper in [true, false] {
        forms.extend(encoded(value.iter().flat_map(|&b| hex(b, upper)).collect()));
    }
    forms
}

fn hex(byte: u8, upper: bool) -> [u8; 2] {
    let digits: &[u8; 16] = if upper { b"0123456789ABCDEF" } else { b"0123456789abcdef" };
    [digits[usize::from(byte >> 4)], digits[usize::from(byte & 15)]]
}

/// Encodes `value` as it stands in the base64 of a longer text that has `lead` bytes (mod 3) before it:
/// only the characters that its own bytes decide.
fn base64_inner(value: &[u8], lead: usize, url_safe: bool) -> Vec<u8> {
    let digit = |n: u32| match (n & 63) as u8 {
        n @ 0..=25 => b'A' + n,
        n @ 26..=51 => b'a' + n - 26,
        n @ 52..=61 => b'0' + n - 52,
        62 => {
            if url_safe {
                b'-'
            } else {
                b'+'
            }
        }
        _ => {
            if url_safe {
                b'_'
            } else {
                b'/'
            }
        }
    };
    let bits = (lead + value.len()) * 8;
    let byte = |at: usize| u32::from(at.checked_sub(lead).and_then(|i| value.get(i)).copied().unwrap_or(0));
    // Characters that lie wholly within the value's bits.
    ((lead * 8).div_ceil(6)..bits / 6)
        .map(|c| {
            let (at, shift) = (c * 6 / 8, c * 6 % 8);
            let pair = byte(at) << 8 | byte(at + 1);
            digit(pair >> (10 - shift))
        })
        .collect()
}

fn percent_encoded(value: &[u8], keep: &[u8], upper: bool, plus: bool) -> Vec<u8> {
    let mut out = Vec::with_capacity(value.len() * 3);
    for &b in value {
        if b.is_ascii_alphanumeric() || keep.contains(&b) {
            out.push(b);
        } else if b == b' ' && plus {
            out.push(b'+');
        } else {
            out.push(b'%');
            out.extend(hex(b, upper));
        }
    }
    out
}

fn json_escaped(value: &[u8], ascii: bool, slash: bool, html: bool) -> Vec<u8> {
    let mut out = Vec::with_capacity(value.len() + 8);
    for chunk in value.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '"' => out.extend(b"\\\""),
                '\\' => out.extend(b"\\\\"),
                '\n' => out.extend(b"\\n"),
                '\r' => out.extend(b"\\r"),
                '\t' => out.extend(b"\\t"),
                '/' if slash => out.extend(b"\\/"),
                '<' | '>' | '&' | '\'' if html => out.extend(format!("\\u{:04x}", u32::from(c)).bytes()),
                c if u32::from(c) < 0x20 || ascii && !c.is_ascii() => {
                    let mut units = [0; 2];
                    for unit in c.encode_utf16(&mut units) {
                        out.extend(format!("\\u{unit:04x}").bytes());
                    }
                }
                c => out.extend(c.encode_utf8(&mut [0; 4]).bytes()),
            }
        }
        out.extend(chunk.invalid());
    }
    out
}

fn html_escaped(value: &[u8]) -> Vec<u8> {
    let steps: [(&[u8], &[u8]); 4] = [(b"&", b"&amp;"), (b"<", b"&lt;"), (b">", b"&gt;"), (b"\"", b"&quot;")];
    steps.iter().fold(value.to_vec(), |text, (from, to)| replaced(&text, from, to))
}

fn replaced(text: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    text.iter().flat_map(|b| if from[0] == *b { to.to_vec() } else { vec![*b] }).collect()
}
