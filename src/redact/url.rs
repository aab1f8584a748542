//! Passwords in URLs: `scheme://user:password@host`.

use super::scan::{Rank, Span, Until};
use super::value::is_upper_name;

/// Finds the password of the URL whose `://` is at `start..end`.
pub(super) fn password(text: &[u8], start: usize, end: usize) -> Option<Span> {
    if !text[..start].last().is_some_and(u8::is_ascii_alphanumeric) {
        return None;
    }
    let window = &text[end..text.len().min(end + 1024)];
    let stop =
        window.iter().position(|b| b.is_ascii_whitespace() || b"\"'`<>".contains(b)).unwrap_or(window.len());
    let all = &window[..stop];
    let authority = &all[..all.iter().position(|b| b"/?#\\".contains(b)).unwrap_or(all.len())];
    let (user_info, colon) = match authority.iter().rposition(|&b| b == b'@') {
        Some(at) => (&authority[..at], authority[..at].iter().position(|&b| b == b':')),
        // A password with an unescaped `/` or `#`: what follows the colon is no port then.
        None => {
            let colon = authority.iter().position(|&b| b == b':')?;
            let at = all.iter().position(|&b| b == b'@').filter(|at| *at > colon + 1)?;
            if authority[colon + 1..].first().is_none_or(u8::is_ascii_digit)
                && authority[colon + 1..].iter().all(u8::is_ascii_digit)
            {
                return None;
            }
            (&all[..at], Some(colon))
        }
    };
    if user_info.starts_with(b"[redacted:") {
        return None;
    }
    let secret = match colon {
        Some(colon) => colon + 1..user_info.len(),
        // A token alone, as user.
        None if user_info.len() >= 20 && user_info.iter().any(u8::is_ascii_digit) => 0..user_info.len(),
        None => return None,
    };
    let value = &user_info[secret.clone()];
    let stands_for = match value {
        [] | [b'<' | b'{' | b'[' | b'*', ..] | [b'$'] | [b'$', b'{' | b'(', ..] => true,
        [b'$', name @ ..] => is_upper_name(name),
        _ => false,
    };
    (!stands_for).then_some(Span {
        start: end + secret.start,
        end: end + secret.end,
        kind: "url-password",
        rank: Rank::Context,
        until: Until::Nothing,
    })
}

/// Returns the passwords in the URLs of a value.
pub(super) fn passwords(value: &[u8]) -> Vec<Vec<u8>> {
    let marks = value.windows(3).enumerate().filter(|(_, w)| *w == b"://");
    marks.filter_map(|(at, _)| password(value, at, at + 3)).map(|s| value[s.start..s.end].to_vec()).collect()
}
