//! Secrets that only the name before them gives away: assignments, headers, cookies.
//!
//! The value itself may look like anything, so each rule is a judgement: what a program would have to
//! print for the value to be real, against what code, prose and counters look like.

use super::names::{self, Promise};
use super::scan::{Rank, Span, Until};
use super::value::{is_code, is_name, is_number, is_placeholder, is_prose};

/// What names that promise a secret have in them (any case).
pub(super) const NAMES: &[&str] = &["token", "secret", "pass", "pwd", "cred", "key", "auth", "cookie", "jwt"];

/// Names and gaps are read no further than this, so that the time per keyword is bounded.
const NAME_MAX: usize = 64;
/// A value is judged by this much of it; once it counts, it is masked to its end.
const JUDGED: usize = 64;

/// Reads the assignments of one text, each name once.
#[derive(Default)]
pub(super) struct Names {
    last: Option<usize>,
    /// Up to where a value was masked; what a keyword deep within it names is masked as well.
    done: usize,
}

impl Names {
    /// Reads on from the keyword at `start..end`.
    pub(super) fn at(&mut self, text: &[u8], start: usize, end: usize, spans: &mut Vec<Span>) {
        // A name near the end of a masked value may have its own value after that.
        if start + 4 * NAME_MAX < self.done {
            return;
        }
        let in_name = |b: &u8| b.is_ascii_alphanumeric() || b"_-.".contains(b);
        let left = text[..start].iter().rev().take(NAME_MAX).take_while(|b| in_name(b)).count();
        let right = text[end..].iter().take(NAME_MAX).take_while(|b| in_name(b)).count();
        let (mut from, mut to) = (start - left, end + right);
        // What goes on for that long is no name, and nothing is assigned to it.
        if right == NAME_MAX || self.last == Some(from) {
            return;
        }
        self.last = Some(from);
        // The `n` of a written-out line break is no letter of the name.
        if from > 0 && text[from - 1] == b'\\' && from < start && b"nrtbf".contains(&text[from]) {
            from += 1;
        }
        let option = text[from..].starts_with(b"--");
        while from < start && b"-.".contains(&text[from]) {
            from += 1;
        }
        while to > end && b"-.".contains(&text[to - 1]) {
            to -= 1;
        }
        let Some(promise) = names::promise(&text[from..to]) else { return };
        let site = Site { text, name: from..to, promise, option };
        if let Some(span) = site.value() {
            self.done = self.done.max(span.end);
            spans.push(span);
        }
    }
}

/// A name that promises a secret, where it stands.
struct Site<'a> {
    text: &'a [u8],
    name: std::ops::Range<usize>,
    promise: Promise,
    option: bool,
}

/// How a value is written, from the surest sign of a secret to the least.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Style {
    Quoted,
    /// `NAME=value`, `--name value`, `name=value`, `<name>value<`.
    Tight,
    /// `name: value`, `name = value`.
    Spaced,
}

impl Site<'_> {
    fn byte(&self, at: usize) -> u8 {
        self.text.get(at).copied().unwrap_or(b'\n')
    }

    fn blanks(&self, at: usize) -> usize {
        self.text[at.min(self.text.len())..]
            .iter()
            .take(16)
            .take_while(|b| **b == b' ' || **b == b'\t')
            .count()
    }

    /// A quote at `at`, with the backslashes that escape it in an outer string.
    fn quote(&self, at: usize) -> Option<(u8, usize)> {
        let slashes = self.text.get(at..)?.iter().take(8).take_while(|b| **b == b'\\').count();
        let quote = self.byte(at + slashes);
        b"\"'`".contains(&quote).then_some((quote, slashes))
    }

    /// Finds the value and judges it.
    fn value(&self) -> Option<Span> {
        let mut at = self.name.end;
        if let Some((_, slashes)) = self.quote(at) {
            at += slashes + 1;
        }
        at += usize::from(self.byte(at) == b']');
        let gap = self.blanks(at);
        at += gap;
        let mut style = if gap == 0 { Style::Tight } else { Style::Spaced };
        let (mut compared, mut element) = (false, false);
        match (self.byte(at), self.byte(at + 1)) {
            (b'=', b'=') | (b'!', b'=') => {
                compared = true;
                at += 2;
                at += usize::from(self.byte(at) == b'=');
            }
            (b'=', b'>') | (b':', b'=') | (b'?', b'=') => at += 2,
            (b':', b':') => return None,
            (b':', _) => {
                style = Style::Spaced;
                at += 1;
            }
            (b'=', _) => at += 1,
            (b'>', _) if self.name.start > 0 && self.text[self.name.start - 1] == b'<' => {
                element = true;
                at += 1;
            }
            // More than one blank after an option are the columns of a help text.
            _ if gap == 1 && (self.option && !self.is_word(at) || self.is_netrc()) => style = Style::Tight,
            _ => return None,
        }
        let gap = self.blanks(at);
        at += gap;
        if gap > 0 && !self.option {
            style = Style::Spaced;
        }
        // A list of one: `"set-cookie": ["…"]`, Go's `Authorization:[Bearer …]`.
        if self.byte(at) == b'[' {
            at += 1 + self.blanks(at + 1);
        }
        match self.promise {
            Promise::Authorization => return self.header(at),
            Promise::Cookie => return self.cookies(at),
            _ => {}
        }
        // `token: str = "…"`: the type first.
        let word = self.text[at.min(self.text.len())..]
            .iter()
            .take(24)
            .take_while(|b| b.is_ascii_alphanumeric())
            .count();
        let after = at + word + self.blanks(at + word);
        if word > 0 && style == Style::Spaced && self.byte(after) == b'=' && self.byte(after + 1) != b'=' {
            at = after + 1 + self.blanks(after + 1);
        }
        // `b"…"`, `r'…'`.
        if b"brfu".contains(&self.byte(at)) && b"\"'".contains(&self.byte(at + 1)) {
            at += 1;
        }
        if let Some((quote, slashes)) = self.quote(at) {
            let start = at + slashes + 1;
            let end = quoted_end(self.text, start, quote, slashes, JUDGED);
            let head = &self.text[start..end];
            return self.counts(head, Style::Quoted).then(|| {
                let end = quoted_end(self.text, end, quote, slashes, usize::MAX);
                self.span(start, end, Until::Quote(quote, slashes))
            });
        }
        if compared {
            return None;
        }
        let tight = style == Style::Tight && self.is_variable();
        let end = self.word_end(at, tight, JUDGED);
        // `<password>` is as often a placeholder.
        if element && self.byte(end) != b'<' {
            return None;
        }
        self.counts(&self.text[at.min(end)..end], style)
            .then(|| self.span(at, self.word_end(end, tight, usize::MAX), Until::Word))
    }

    fn span(&self, start: usize, end: usize, until: Until) -> Span {
        let kind = match self.promise {
            Promise::Password => "password",
            Promise::Token => "token",
            Promise::Key | Promise::VagueKey => "key",
            Promise::Authorization => "authorization",
            Promise::Cookie => "cookie",
        };
        Span { start, end, kind, rank: Rank::Context, until }
    }

    /// Says whether the name is written as environment variables are.
    fn is_variable(&self) -> bool {
        let name = &self.text[self.name.clone()];
        name.iter().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || *b == b'_')
    }

    /// Says whether a plain word stands at `at`: `--password string` is a help text too.
    fn is_word(&self, at: usize) -> bool {
        let end = self.word_end(at, true, JUDGED);
        end - at < 16 && self.text[at.min(end)..end].iter().all(u8::is_ascii_lowercase)
    }

    /// `machine HOST login USER password VALUE`.
    fn is_netrc(&self) -> bool {
        let before = &self.text[self.name.start.saturating_sub(128)..self.name.start];
        let line = before.rsplit(|b| *b == b'\n').next().unwrap_or(before);
        &self.text[self.name.clone()] == b"password" && line.windows(7).any(|w| w == b" login ")
    }

    /// Returns where an unquoted value ends, having looked at `most` bytes.
    fn word_end(&self, from: usize, whole: bool, most: usize) -> usize {
        let from = from.min(self.text.len());
        let text = &self.text[..self.text.len().min(from.saturating_add(most))];
        let ends = |at: &usize| {
            let b = text[*at];
            b.is_ascii_whitespace()
                || b"\"'`".contains(&b)
                || b == b'\\' && text.get(at + 1).is_some_and(|n| b"nrt\"'".contains(n))
                || !whole && b"&,;)}]<>|".contains(&b)
        };
        (from..text.len()).find(ends).unwrap_or(text.len())
    }

    /// Judges a value by (the head of) it.
    fn counts(&self, value: &[u8], style: Style) -> bool {
        // In quotes, `<…` is a placeholder only if it is closed.
        let open = style == Style::Quoted
            && matches!(value, [b'<' | b'{' | b'[' | b'(', .., last] if !b">}])".contains(last));
        if is_placeholder(value) && !open || is_number(value) {
            return false;
        }
        let count = |is: fn(&u8) -> bool| value.iter().filter(|b| is(b)).count();
        let (digits, letters) = (count(u8::is_ascii_digit), count(u8::is_ascii_alphabetic));
        let upper = count(u8::is_ascii_uppercase);
        let marks = value.len() - digits - letters;
        let mixed = digits > 0 && letters > 0;
        let path = value.starts_with(b"/") && marks > 2 && digits < 4
            || value.starts_with(b"./")
            || value.starts_with(b"~/");
        match (style, self.promise) {
            (_, Promise::VagueKey) if style != Style::Tight || !self.is_variable() => false,
            (Style::Quoted, Promise::Password) => value.len() >= 4 && !is_prose(value) && !path,
            (Style::Quoted, _) => {
                value.len() >= 8
                    && !value.contains(&b' ')
                    && !is_name(value)
                    && !path
                    && (digits > 0 || upper > 1 && upper < letters && marks < value.len() / 4)
            }
            (Style::Tight, Promise::Password) => value.len() >= 4 && !is_code(value) && !path,
            (Style::Tight, _) if self.is_variable() || self.option => {
                value.len() >= 6 && !is_code(value) && !path && (mixed || value.len() >= 16)
            }
            (Style::Tight, _) => value.len() >= 8 && mixed && !is_code(value) && !path,
            (Style::Spaced, Promise::Password) => {
                value.len() >= 6 && (mixed || digits > 0 && marks > 0) && !is_code(value) && !path
            }
            (Style::Spaced, _) => {
                value.len() >= 12 && mixed && digits >= 2 && !is_code(value) && !is_name(value) && !path
            }
        }
    }

    /// `Authorization: Bearer …`: the scheme is shown, what follows is not.
    fn header(&self, at: usize) -> Option<Span> {
        let mut start = at;
        let mut quote = self.open_quote();
        if let Some((q, slashes)) = self.quote(start) {
            (quote, start) = (Some((q, slashes)), start + slashes + 1);
        }
        let scheme = self.text[start.min(self.text.len())..]
            .iter()
            .take(24)
            .take_while(|b| b.is_ascii_alphanumeric() || **b == b'-');
        let scheme = scheme.count();
        let gap = self.blanks(start + scheme);
        let listed = [
            &b"bearer"[..],
            b"basic",
            b"token",
            b"digest",
            b"apikey",
            b"negotiate",
            b"aws4-hmac-sha256",
            b"sso-key",
        ];
        let name = &self.text[start.min(self.text.len())..(start + scheme).min(self.text.len())];
        let has_scheme = gap > 0 && listed.iter().any(|s| name.eq_ignore_ascii_case(s));
        let several = name.eq_ignore_ascii_case(b"digest") || name.len() > 10;
        if has_scheme {
            start += scheme + gap;
        }
        let end = |most: usize| match (several, quote) {
            (true, Some((q, slashes))) => quoted_end(self.text, start, q, slashes, most),
            (true, None) => line_end(self.text, start, most),
            (false, _) => self.word_end(start, false, most),
        };
        let head = &self.text[start.min(self.text.len())..end(JUDGED)];
        let digits = head.iter().any(u8::is_ascii_digit);
        let counts = if has_scheme { head.len() >= 4 } else { head.len() >= 12 && digits && !is_code(head) };
        let until =
            if several { quote.map_or(Until::Line, |(q, n)| Until::Quote(q, n)) } else { Until::Word };
        (counts && !is_placeholder(head)).then(|| self.span(start, end(usize::MAX), until))
    }

    fn cookies(&self, at: usize) -> Option<Span> {
        let quote = self.quote(at).or_else(|| self.open_quote());
        let start = at + self.quote(at).map_or(0, |(_, slashes)| slashes + 1);
        let start = start.min(self.text.len());
        let end = |most: usize| match quote {
            Some((q, slashes)) => quoted_end(self.text, start, q, slashes, most),
            None => line_end(self.text, start, most),
        };
        let head = &self.text[start..end(NAME_MAX * 4)];
        let eq = head.iter().position(|&b| b == b'=')?;
        let real = head.len() > eq + 4 && !head[..eq].contains(&b' ') && !is_placeholder(&head[eq + 1..]);
        let until = quote.map_or(Until::Line, |(q, n)| Until::Quote(q, n));
        real.then(|| self.span(start, end(usize::MAX), until))
    }

    /// The quote right before the name, as in `-H 'Cookie: …'`, unless it is closed right after it.
    fn open_quote(&self) -> Option<(u8, usize)> {
        let (&quote, before) = self.text[..self.name.start].split_last()?;
        if !b"\"'`".contains(&quote) || self.byte(self.name.end) == quote {
            return None;
        }
        Some((quote, before.iter().rev().take(8).take_while(|b| **b == b'\\').count()))
    }
}

/// Returns where a quoted value ends: at the line's end at the latest.
fn quoted_end(text: &[u8], from: usize, quote: u8, slashes: usize, most: usize) -> usize {
    let from = from.min(text.len());
    let stop = text.len().min(from.saturating_add(most));
    let mut run = 0;
    for (at, &b) in text[..stop].iter().enumerate().skip(from) {
        match b {
            b'\\' => run += 1,
            b'\n' => return at,
            // One with more backslashes is a quote within the value.
            _ if b == quote && run <= slashes => return at - run,
            _ => run = 0,
        }
    }
    stop
}

/// Returns where a header's line ends: really, or as written out in a string, which may end first.
fn line_end(text: &[u8], from: usize, most: usize) -> usize {
    let from = from.min(text.len());
    let text = &text[..text.len().min(from.saturating_add(most))];
    let mut inner = false;
    for at in from..text.len() {
        match text[at] {
            b'\n' => return at,
            b'\\' if text.get(at + 1).is_some_and(|b| b"nr".contains(b)) => return at,
            b'"' | b'\'' if inner || at > from && text[at - 1] == b'=' => inner = !inner,
            b'"' | b'\'' => return at,
            _ => {}
        }
    }
    text.len()
}

/// Finds the password after a `-u ` of curl that ends at `end`: `-u user:password`.
pub(super) fn curl_user(text: &[u8], start: usize, end: usize) -> Option<Span> {
    let before = &text[start.saturating_sub(256)..start];
    let line = before.rsplit(|b| *b == b'\n').next().unwrap_or(before);
    if !line.windows(4).any(|w| w == b"curl") {
        return None;
    }
    let end = end + usize::from(text.get(end).is_some_and(|b| b"\"'".contains(b)));
    let head = &text[end..text.len().min(end + 128)];
    let colon = head.iter().position(|b| b.is_ascii_whitespace() || b":\"'\\".contains(b))?;
    let from = end + colon + 1;
    let stop = |b: &u8| b.is_ascii_whitespace() || b"\"'\\".contains(b);
    let to = from + text[from..].iter().take_while(|b| !stop(b)).count();
    let value = &text[from..to];
    let counts =
        head[colon] == b':' && colon > 0 && !value.is_empty() && !is_placeholder(value) && !is_number(value);
    counts.then_some(Span { start: from, end: to, kind: "password", rank: Rank::Context, until: Until::Word })
}

/// Finds the token after a `Bearer ` that ends at `end`, wherever it stands.
pub(super) fn bearer(text: &[u8], end: usize) -> Option<Span> {
    let class = |b: &u8| b.is_ascii_alphanumeric() || b"-._~+/=".contains(b);
    let head = text[end..].iter().take(16).take_while(|b| class(b));
    let (count, digits) = head.fold((0, 0), |(n, d), b| (n + 1, d + usize::from(b.is_ascii_digit())));
    (count == 16 && digits > 0).then(|| {
        let end_of = end + text[end..].iter().take_while(|b| class(b)).count();
        Span { start: end, end: end_of, kind: "token", rank: Rank::Context, until: Until::Word }
    })
}
