//! One pass over a text: literals that announce a secret, and the rule behind each.

use super::known::Known;
use super::rules;
use super::{context, pem, url};
use aho_corasick::automaton::Automaton;
use aho_corasick::{MatchKind, dfa::DFA};
use std::sync::LazyLock;

/// How a span goes on where the text ends before the secret does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Until {
    /// It does not: its length is known.
    Nothing,
    /// As long as characters of a token come.
    Token,
    /// To white space or a quote.
    Word,
    /// To this quote, after at most this number of backslashes.
    Quote(u8, usize),
    /// To the end of the line.
    Line,
}

/// Which name a mask gets where spans overlap: the one that says most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    Context,
    Known,
    Shape,
    PrivateKey,
}

/// A part of a text that must not be shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) kind: &'static str,
    pub(super) rank: Rank,
    pub(super) until: Until,
}

/// What one pass found.
#[derive(Default)]
pub(super) struct Found {
    /// Sorted, and apart from each other.
    pub(super) spans: Vec<Span>,
    /// Where literals that may announce a secret begin.
    pub(super) announced: Vec<usize>,
    /// Where lines say that a private key begins or ends.
    pub(super) frames: Vec<pem::Frame>,
}

/// What a literal announces.
enum Hit {
    Shape(usize),
    Name,
    Url,
    Bearer,
    CurlUser,
    Frame,
}

static PREFILTER: LazyLock<(DFA, Vec<Hit>)> = LazyLock::new(|| {
    let mut literals: Vec<(&str, Hit)> =
        rules::RULES.iter().enumerate().map(|(n, r)| (r.literal, Hit::Shape(n))).collect();
    literals.extend(context::NAMES.iter().map(|name| (*name, Hit::Name)));
    literals.extend(["://", ":\\/\\/"].map(|mark| (mark, Hit::Url)));
    literals.push(("bearer ", Hit::Bearer));
    literals.extend([" -u ", " --user "].map(|mark| (mark, Hit::CurlUser)));
    literals.extend([pem::BEGIN, pem::END].map(|mark| (mark, Hit::Frame)));
    let dfa = DFA::builder()
        .ascii_case_insensitive(true)
        .match_kind(MatchKind::Standard)
        .start_kind(aho_corasick::StartKind::Unanchored)
        .build(literals.iter().map(|(literal, _)| literal))
        .unwrap_or_else(|e| unreachable!("the literals are constants: {e}"));
    (dfa, literals.into_iter().map(|(_, hit)| hit).collect())
});

/// Finds all secrets in `text`, with what the caller needs to know about its end.
pub(super) fn scan(text: &[u8], known: Option<&Known>) -> Found {
    let mut found = Found::default();
    let (dfa, hits) = &*PREFILTER;
    let mut reached: Vec<usize> = Vec::new();
    let mut names = context::Names::default();
    // Overlapping, since `sk-` must not hide what begins within it.
    let matches = dfa.try_find_overlapping_iter(aho_corasick::Input::new(text));
    for at in matches.into_iter().flatten() {
        let (start, end) = (at.start(), at.end());
        let announced = match &hits[at.pattern().as_usize()] {
            Hit::Shape(n) => {
                let rule = &rules::RULES[*n];
                let exact = text[start..end] == *rule.literal.as_bytes();
                // A literal within its own rule's last span is part of that: this keeps chains linear.
                if exact
                    && reached.get(*n).is_none_or(|end| start >= *end)
                    && let Some(span) = rule.at(text, start)
                {
                    reached.resize(rules::RULES.len(), 0);
                    reached[*n] = span.end;
                    found.spans.push(span);
                }
                exact
            }
            Hit::Name => {
                names.at(text, start, end, &mut found.spans);
                true
            }
            Hit::Url => {
                found.spans.extend(url::password(text, start, end));
                true
            }
            Hit::Bearer => {
                found.spans.extend(context::bearer(text, end));
                true
            }
            Hit::CurlUser => {
                found.spans.extend(context::curl_user(text, start, end));
                true
            }
            Hit::Frame => {
                found.frames.extend(pem::Frame::at(text, start));
                true
            }
        };
        if announced {
            found.announced.push(start);
        }
    }
    pem::inline(text, &found.frames, &mut found.spans);
    if let Some(known) = known {
        known.find(text, &mut found.spans);
    }
    merge(&mut found.spans);
    found
}

/// Sorts spans and joins those that overlap.
pub(super) fn merge(spans: &mut Vec<Span>) {
    if spans.len() < 2 {
        return;
    }
    spans.sort_by_key(|s| (s.start, s.end));
    let mut kept = 0;
    for at in 1..spans.len() {
        let (next, last) = (spans[at], &mut spans[kept]);
        if next.start < last.end {
            if next.end > last.end || next.end == last.end && last.until == Until::Nothing {
                (last.end, last.until) = (next.end, next.until);
            }
            // Of one key, the part that is only dropped gets no mask of its own.
            if next.rank > last.rank || next.rank == last.rank && next.kind.is_empty() {
                (last.kind, last.rank) = (next.kind, next.rank);
            }
        } else {
            kept += 1;
            spans[kept] = next;
        }
    }
    spans.truncate(kept + 1);
}
