//! Says who should act on an error, from its HTTP status or its words, and when a limit lifts.

use super::json::{MAX_NOTE, clip};
use crate::model::{ErrorClass, Fact, LimitKind};
use chrono::{DateTime, TimeDelta, Utc};
use regex::bytes::Regex;
use std::sync::LazyLock;

/// Words that tell a class of error, the more telling ones first.
///
/// They are those of the providers; what one program alone says stands in that program's table.
const WORDS: &[(&str, ErrorClass)] = &[
    (
        r"prompt is too long|context (length|window|overflow)|context_length_exceeded|too many tokens|input is too long|request_too_large",
        ErrorClass::ContextFull,
    ),
    (
        r"usage limit|credit balance|insufficient[_ ](quota|funds|credits?|balance)|quota exceeded|exceeded your (current )?quota|payment required|hit your [a-z0-9 -]*limit|(hour|session|weekly|daily|monthly) limit reached|out of (usage|credits)|billing",
        ErrorClass::Quota,
    ),
    (
        r"no conversation found|session not found|no rollout found|no saved session|no previous sessions|invalid session identifier",
        ErrorClass::SessionNotFound,
    ),
    (r"rate[ _-]?limit|too many requests|resource_exhausted", ErrorClass::RateLimited),
    (
        r"not logged in|please run /login|(invalid|incorrect|missing) (x-)?api[ -]?key|missing environment variable|api[_ ]key environment variable|no auth type|unauthenticated|unauthorized|authenticat|invalid auth|oauth token|not signed in",
        ErrorClass::Auth,
    ),
    (
        r"model[^\n]{0,80}not (found|exist|supported)|may not exist or you may not have access|unknown model|model_not_found",
        ErrorClass::ModelNotFound,
    ),
    (
        r"econnrefused|econnreset|enotfound|etimedout|eai_again|timed out|connection (failed|refused|reset|closed|error)|error sending request|stream disconnected|fetch failed|getaddrinfo|unable to connect|waiting for network",
        ErrorClass::Network,
    ),
    (
        r"overloaded|internal server error|server_error|high demand|bad gateway|service unavailable|gateway timeout",
        ErrorClass::Provider,
    ),
    (
        r"maximum (number of |session )?turns|max session turns|maximum budget|budget of [^\n]{0,40}exceeded",
        ErrorClass::OwnLimit,
    ),
    (r"invalid_request_error|invalid_argument|bad request", ErrorClass::InvalidRequest),
    (r"interrupted by user|operation cancelled|request was aborted", ErrorClass::Interrupted),
];

static PATTERNS: LazyLock<Vec<(Regex, ErrorClass)>> = LazyLock::new(|| compile(WORDS));

static STATUS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    regex(
        r#"(?:\bstatus(?:[ _]?code)?|\bAPI Error|\bcode|\bHTTP(?:/[0-9.]+)?)["']?\s*[:=(]*\s*([1-5][0-9][0-9])\b"#,
    )
});

/// How much of a text is searched for words: the reason of an error stands at its beginning.
const MAX_SEARCHED: usize = 16 << 10;

/// Compiles a pattern of ours, without regard to upper and lower case.
fn regex(pattern: &str) -> Option<Regex> {
    let compiled = Regex::new(&format!("(?i-u){pattern}"));
    debug_assert!(compiled.is_ok(), "{compiled:?}");
    compiled.ok()
}

/// Compiles a table of patterns.
pub(super) fn compile(table: &[(&str, ErrorClass)]) -> Vec<(Regex, ErrorClass)> {
    table.iter().filter_map(|(pattern, class)| Some((regex(pattern)?, *class))).collect()
}

/// Returns the class of an HTTP status of a provider.
pub(super) fn of_status(status: u16) -> ErrorClass {
    match status {
        401 | 403 => ErrorClass::Auth,
        402 => ErrorClass::Quota,
        404 => ErrorClass::ModelNotFound,
        408 => ErrorClass::Network,
        413 => ErrorClass::ContextFull,
        429 => ErrorClass::RateLimited,
        400..=499 => ErrorClass::InvalidRequest,
        500..=599 => ErrorClass::Provider,
        _ => ErrorClass::Other,
    }
}

/// Returns the HTTP status that a text names.
pub(super) fn status_in(text: &str) -> Option<u16> {
    let found = STATUS.as_ref()?.captures(clip(text, MAX_SEARCHED).as_bytes())?;
    std::str::from_utf8(&found[1]).ok()?.parse().ok()
}

/// Returns the class of an error from its words alone, if they tell one.
pub(super) fn of_words(text: &str) -> Option<ErrorClass> {
    let text = clip(text, MAX_SEARCHED).as_bytes();
    PATTERNS.iter().find(|(pattern, _)| pattern.is_match(text)).map(|(_, class)| *class)
}

/// Returns the class of an error.
///
/// A full context and a used-up quota come under statuses that mean something else (400, 429), so
/// the words for them count more than the status.
pub(super) fn of(status: Option<u16>, text: &str) -> ErrorClass {
    let words = of_words(text);
    if let Some(class @ (ErrorClass::ContextFull | ErrorClass::Quota)) = words {
        return class;
    }
    match status.or_else(|| status_in(text)) {
        Some(status) => of_status(status),
        None => words.unwrap_or(ErrorClass::Other),
    }
}

/// Adds the facts of a failure: the limit, if it is one, and the error.
pub(super) fn fail(facts: &mut Vec<Fact>, class: ErrorClass, message: &str) {
    fail_until(facts, class, message, lifts(message, Utc::now()));
}

/// Adds the facts of a failure of which the end of the limit is known otherwise.
pub(super) fn fail_until(
    facts: &mut Vec<Fact>,
    class: ErrorClass,
    message: &str,
    until: Option<DateTime<Utc>>,
) {
    let kind = match class {
        ErrorClass::RateLimited => Some(LimitKind::Rate),
        ErrorClass::Quota => Some(LimitKind::Quota),
        _ => None,
    };
    if let Some(kind) = kind {
        facts.push(Fact::Limit { kind, until, rejected: true });
    }
    facts.push(Fact::Error { class, message: clip(message, MAX_NOTE).to_owned() });
}

/// Returns the moment of a Unix time in seconds or milliseconds.
pub(super) fn moment(epoch: u64) -> Option<DateTime<Utc>> {
    let seconds = if epoch > 100_000_000_000 { epoch / 1_000 } else { epoch };
    DateTime::from_timestamp(i64::try_from(seconds).ok()?, 0)
}

/// Returns when a limit lifts, as an error's text says it.
///
/// Understood are a Unix time (`limit reached|1788000000`, `"resets_at":1788000000`), an RFC 3339 time, and
/// a wait (`try again in 3 days 4 hours`, `retry in 34.07s`, `"resets_in_seconds":90`). A clock time
/// ("resets 3pm (Europe/Berlin)") is not: it would need the time zones of the world.
pub(super) fn lifts(text: &str, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
    static EPOCH: LazyLock<Option<Regex>> =
        LazyLock::new(|| regex(r#"(?:limit reached\||resets?_?at["']?\s*[:=]\s*)([0-9]{10,13})\b"#));
    static STAMP: LazyLock<Option<Regex>> = LazyLock::new(|| {
        regex(
            r#"(?:resets?|again|until|retry)[^\n]{0,20}?([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+(?:Z|[+-][0-9:]{5}))"#,
        )
    });
    static WAIT: LazyLock<Option<Regex>> = LazyLock::new(|| {
        regex(
            r#"(?:again|retry|resets?|wait|retryDelay)(?: in| after)?["']?\s*[:=]?\s*["']?((?:[0-9]+(?:\.[0-9]+)?\s*(?:days?|hours?|hrs?|minutes?|mins?|seconds?|secs?|ms|[dhms])\b[ ,]*(?:and )?)+)"#,
        )
    });
    static SECONDS: LazyLock<Option<Regex>> =
        LazyLock::new(|| regex(r#"(?:resets_in_seconds|retry[-_]after)["']?\s*[:=]\s*["']?([0-9]{1,9})\b"#));
    static PART: LazyLock<Option<Regex>> = LazyLock::new(|| regex(r"([0-9]+(?:\.[0-9]+)?)\s*(ms|d|h|m|s)?"));

    let utf8 = |bytes: &[u8]| std::str::from_utf8(bytes).ok().map(str::to_owned);
    let bytes = clip(text, MAX_SEARCHED).as_bytes();
    if let Some(found) = EPOCH.as_ref()?.captures(bytes) {
        return moment(utf8(&found[1])?.parse().ok()?);
    }
    if let Some(found) = STAMP.as_ref()?.captures(bytes) {
        return DateTime::parse_from_rfc3339(&utf8(&found[1])?).ok().map(|time| time.to_utc());
    }
    let mut seconds = 0.0;
    if let Some(found) = SECONDS.as_ref()?.captures(bytes) {
        seconds = utf8(&found[1])?.parse().ok()?;
    } else {
        let found = WAIT.as_ref()?.captures(bytes)?;
        for part in PART.as_ref()?.captures_iter(&found[1]) {
            let number: f64 = utf8(&part[1])?.parse().ok()?;
            seconds += number
                * match part.get(2).map(|unit| unit.as_bytes().to_ascii_lowercase()).as_deref() {
                    Some(b"d") => 86_400.0,
                    Some(b"h") => 3_600.0,
                    Some(b"m") => 60.0,
                    Some(b"ms") => 0.001,
                    _ => 1.0,
                };
        }
    }
    // More than a year is no wait that anybody meant.
    if !(0.0..=31_536_000.0).contains(&seconds) {
        return None;
    }
    now.checked_add_signed(TimeDelta::milliseconds((seconds * 1_000.0) as i64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_patterns_compile() {
        assert_eq!(PATTERNS.len(), WORDS.len());
        assert!(STATUS.is_some());
    }

    #[test]
    fn words_beat_a_status_only_where_they_say_more() {
        use ErrorClass::*;
        for (status, text, class) in [
            (Some(400), "prompt is too long: 250000 tokens > 200000 maximum", ContextFull),
            (Some(400), "bad request from stub", InvalidRequest),
            (Some(429), "You exceeded your current quota, please check your plan", Quota),
            (Some(429), "model not found, rate limited", RateLimited),
            (None, "[API Error: 401 invalid x-api-key (stub)]", Auth),
            (None, "exceeded retry limit, last status: 429 Too Many Requests", RateLimited),
            (None, "unexpected status 529 <unknown status code>: Overloaded", Provider),
            (None, r#"{"error":{"code":403,"message":"forbidden"}}"#, Auth),
            (None, "model: not found (stub)", ModelNotFound),
            (None, "You've hit your session limit · resets 9am (Europe/Berlin)", Quota),
            (None, "5-hour limit reached ∙ resets 3pm", Quota),
            (None, "HTTP/1.1 503 Service Unavailable", Provider),
            (None, "something else", Other),
        ] {
            assert_eq!(of(status, text), class, "{text}");
        }
    }

    #[test]
    fn the_end_of_a_limit_is_read_from_its_words() {
        let now = DateTime::from_timestamp(1_700_000_000, 0).unwrap();
        let wait = |text: &str| lifts(text, now).map(|until| (until - now).num_seconds());
        assert_eq!(wait("or try again in 3 days 4 hours 5 minutes."), Some(3 * 86_400 + 4 * 3_600 + 300));
        assert_eq!(wait("Please retry in 34.07s."), Some(34));
        assert_eq!(wait("Please retry after 1h 30m"), Some(5_400));
        assert_eq!(wait(r#"{"type":"usage_limit_reached","resets_in_seconds":90}"#), Some(90));
        assert_eq!(wait("Claude AI usage limit reached|1700003600"), Some(3_600));
        assert_eq!(wait(r#""resetsAt": 1700003600000"#), Some(3_600));
        assert_eq!(wait("try again at 2023-11-14T22:15:20Z"), Some(120));
        assert_eq!(wait("try again in 2 seconds"), Some(2));
        for unclear in [
            "resets 3pm (Europe/Berlin)",
            "try again at 3:28 PM",
            "try again later",
            "resets at 9:30",
            "wait 99999 days",
            "retry 9999999999999999999999999999999",
        ] {
            assert_eq!(wait(unclear), None, "{unclear}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics(text in ".{0,200}", status in proptest::option::of(0u16..1000)) {
            let _ = of(status, &text);
            let _ = lifts(&text, Utc::now());
        }
    }
}
