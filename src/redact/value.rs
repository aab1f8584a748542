//! What a value looks like: a secret, or a placeholder, a number, prose, code.

/// Says whether a value only stands for one.
pub(super) fn is_placeholder(value: &[u8]) -> bool {
    const BEGIN: &[&str] = &[
        "your",
        "example",
        "changeme",
        "change-me",
        "change_me",
        "placeholder",
        "xxxx",
        "****",
        "....",
        "redacted",
        "dummy",
        "insert",
        "replace",
        "todo",
        "process.env",
        "os.environ",
        "getenv",
        "os.getenv",
        "env.",
        "secrets.",
    ];
    const WHOLE: &[&str] = &[
        "none",
        "null",
        "nil",
        "true",
        "false",
        "undefined",
        "string",
        "required",
        "optional",
        "password",
        "secret",
        "token",
        "hidden",
        "masked",
        "omitted",
    ];
    let first = value.first().copied().unwrap_or(b' ');
    if matches!(first, b'$' | b'<' | b'{' | b'%' | b'[' | b'(' | b' ') {
        // `$ecret1` and `%41…` may be meant; `$NAME`, `${…}`, `%s`, `%(…)s` are not.
        let second = value.get(1).copied().unwrap_or(b' ');
        let shell = first == b'$'
            && (b"{(_".contains(&second) || is_upper_name(&value[1..]) || is_lower_name(&value[1..]));
        return first != b'$' && first != b'%' || shell || first == b'%' && !second.is_ascii_hexdigit();
    }
    let starts =
        |word: &&str| value.len() >= word.len() && value[..word.len()].eq_ignore_ascii_case(word.as_bytes());
    if WHOLE.iter().any(|word| starts(word) && (value.len() == word.len() || is_name(value))) {
        return true;
    }
    match BEGIN.iter().find(|word| starts(word)) {
        // A real secret may begin with such a word, but then goes on with digits.
        Some(word) => {
            let rest = &value[word.len()..];
            rest.iter().filter(|b| b.is_ascii_digit()).count() < 3 || word.starts_with(['x', '*', '.'])
        }
        None => value.iter().all(|b| *b == first),
    }
}

pub(super) fn is_upper_name(name: &[u8]) -> bool {
    name.first().is_some_and(u8::is_ascii_uppercase)
        && name.iter().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || *b == b'_')
}

fn is_lower_name(name: &[u8]) -> bool {
    name.first().is_some_and(u8::is_ascii_lowercase)
        && name.iter().all(|b| b.is_ascii_lowercase() || *b == b'_')
}

pub(super) fn is_number(value: &[u8]) -> bool {
    value.len() < 6 && value.iter().all(|b| b.is_ascii_digit() || b"._-kKmM%".contains(b))
        || value.iter().all(|b| b.is_ascii_digit() || b"._,".contains(b)) && value.len() < 16
}

/// Says whether a value is words: a message about the field, not its content.
pub(super) fn is_prose(value: &[u8]) -> bool {
    let plain = |word: &[u8]| {
        let word = word.strip_suffix(b".").or(word.strip_suffix(b",")).unwrap_or(word);
        word.iter().all(u8::is_ascii_digit)
            || word.iter().all(|b| b.is_ascii_alphabetic() || b"'-:".contains(b))
    };
    value.contains(&b' ') && value.split(|b| *b == b' ').all(plain)
}

/// Says whether a value is a name: words and small numbers, as in `progress-token-12` or `_bindgen_ty_64`.
pub(super) fn is_name(value: &[u8]) -> bool {
    let part = |part: &[u8]| {
        let digits = part.iter().filter(|b| b.is_ascii_digit()).count();
        (digits == 0 || digits == part.len()) && digits <= 3 && part.iter().all(u8::is_ascii_alphanumeric)
    };
    value.iter().any(|b| b"_-.".contains(b)) && value.split(|b| b"_-.".contains(b)).all(part)
}

/// Says whether an unquoted value is an expression: a call, a path of names, a type.
pub(super) fn is_code(value: &[u8]) -> bool {
    let name = |part: &[u8]| {
        part.first().is_some_and(|b| b.is_ascii_alphabetic() || *b == b'_')
            && part.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'_')
            && part.len() <= 24
    };
    value.contains(&b'(')
        || value.windows(2).any(|w| w == b"::" || w == b"->" || w == b"=>")
        || value.windows(3).any(|w| w == b"://")
        || value.contains(&b'.')
            && value
                .split(|b| *b == b'.')
                .all(|p| name(p) && p.iter().filter(|b| b.is_ascii_digit()).count() < 3)
}
