//! Which names promise a secret: of environment variables, `.env` entries, JSON keys and options.
//!
//! A name is read in word parts (`DB_PASSWORD`, `apiKey`, `x-auth-token`), so that `AUTHOR`,
//! `MONKEY`, `KEYBOARD` and `max_tokens` promise nothing.

/// What kind of secret a name promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Promise {
    /// A password: any value counts.
    Password,
    /// A token or another secret: made by a machine.
    Token,
    /// A key whose name says what it opens (`api_key`, `signing-key`).
    Key,
    /// A key that may as well be one of a map or a table (`FOO_KEY`).
    VagueKey,
    /// The `Authorization` header: a scheme, then the secret.
    Authorization,
    /// The `Cookie` and `Set-Cookie` headers.
    Cookie,
}

const PASSWORD: &[&str] = &["password", "passwords", "passwd", "pass", "passphrase", "passcode", "pwd"];
const TOKEN: &[&str] = &[
    "token",
    "secret",
    "secrets",
    "credential",
    "credentials",
    "creds",
    "cred",
    "jwt",
    "pat",
    "auth",
    "bearer",
    "cookie",
    "sas",
];
/// Words run together whose end still tells.
const ENDS: &[(&str, Promise)] = &[
    ("password", Promise::Password),
    ("passwd", Promise::Password),
    ("passphrase", Promise::Password),
    ("token", Promise::Token),
    ("secret", Promise::Token),
    ("apikey", Promise::Key),
    ("accesskey", Promise::Key),
    ("secretkey", Promise::Key),
    ("privatekey", Promise::Key),
    ("accountkey", Promise::Key),
    ("masterkey", Promise::Key),
    ("authkey", Promise::Key),
    ("signingkey", Promise::Key),
    ("encryptionkey", Promise::Key),
    ("sshkey", Promise::Key),
];
/// Words before `key` that make it one of a lock.
const OPENS: &[&str] = &[
    "api",
    "private",
    "access",
    "secret",
    "encryption",
    "signing",
    "master",
    "account",
    "auth",
    "service",
    "deploy",
    "ssh",
    "session",
    "client",
    "shared",
    "storage",
    "subscription",
    "webhook",
    "license",
    "admin",
    "app",
    "application",
    "hmac",
    "aes",
    "rsa",
    "jwt",
    "token",
    "ssl",
    "tls",
    "gpg",
];
/// Words that make a key one that anyone may know.
const OPEN_TO_ALL: &[&str] = &[
    "public",
    "pub",
    "primary",
    "foreign",
    "cache",
    "sort",
    "partition",
    "unique",
    "idempotency",
    "row",
    "map",
    "lookup",
    "translation",
    "object",
];
/// Last words that say that the value is *about* a secret.
const ABOUT: &[&str] = &[
    "id",
    "ids",
    "name",
    "names",
    "file",
    "files",
    "path",
    "paths",
    "dir",
    "directory",
    "url",
    "uri",
    "endpoint",
    "host",
    "type",
    "kind",
    "count",
    "counts",
    "limit",
    "size",
    "length",
    "len",
    "ttl",
    "expiry",
    "expires",
    "expiration",
    "at",
    "in",
    "age",
    "version",
    "format",
    "algorithm",
    "alg",
    "header",
    "prefix",
    "suffix",
    "method",
    "mode",
    "enabled",
    "required",
    "policy",
    "usage",
    "budget",
    "sock",
    "provider",
    "helper",
    "manager",
    "store",
    "field",
    "label",
    "hint",
    "status",
    "index",
    "arn",
    "regex",
    "pattern",
    "env",
    "var",
    "window",
    "rate",
    "cost",
    "price",
    "max",
    "min",
];

/// Says whether an environment variable of this name holds a secret.
pub fn env_name_is_secret(name: &str) -> bool {
    promise(name.as_bytes()).is_some()
}

/// Returns what a name promises, if it promises a secret.
pub(super) fn promise(name: &[u8]) -> Option<Promise> {
    // The working directory, in every environment there is.
    if name == b"PWD" || name == b"OLDPWD" || name == b"pwd" {
        return None;
    }
    let parts = Parts::of(name);
    let (last, is) = (parts.last()?, |part: &[u8], list: &[&str]| {
        list.iter().any(|word| part.eq_ignore_ascii_case(word.as_bytes()))
    });
    if last.eq_ignore_ascii_case(b"authorization") {
        return Some(Promise::Authorization);
    }
    if name.eq_ignore_ascii_case(b"cookie") || name.eq_ignore_ascii_case(b"set-cookie") {
        return Some(Promise::Cookie);
    }
    if is(last, ABOUT) {
        return None;
    }
    let (mut found, mut before): (Option<Promise>, Option<&[u8]>) = (None, None);
    let mut key = false;
    for part in parts.iter() {
        if is(part, OPEN_TO_ALL) {
            return None;
        }
        let word = without_digits(part);
        if is(word, PASSWORD) {
            return Some(Promise::Password);
        } else if is(word, TOKEN) {
            found = Some(Promise::Token);
        } else if word.eq_ignore_ascii_case(b"key") || word.eq_ignore_ascii_case(b"keys") && before.is_some()
        {
            key = true;
            if before.is_some_and(|b| is(b, OPENS)) {
                found = Some(Promise::Key);
            }
        } else if let Some((_, p)) = ENDS.iter().find(|(end, _)| ends_with(word, end.as_bytes())) {
            found = Some(*p);
        }
        before = Some(part);
    }
    found.or(key.then_some(Promise::VagueKey))
}

fn ends_with(word: &[u8], end: &[u8]) -> bool {
    word.len() >= end.len() && word[word.len() - end.len()..].eq_ignore_ascii_case(end)
}

/// `TOKEN2` is a token.
fn without_digits(word: &[u8]) -> &[u8] {
    let keep = word.iter().rposition(|b| !b.is_ascii_digit()).map_or(0, |at| at + 1);
    &word[..keep]
}

/// The word parts of a name; no allocation, since every keyword of a log comes by here.
struct Parts<'a> {
    name: &'a [u8],
    ends: [(u16, u16); 24],
    count: usize,
}

impl<'a> Parts<'a> {
    fn of(name: &'a [u8]) -> Parts<'a> {
        let name = &name[name.len().saturating_sub(256)..];
        let mut parts = Parts { name, ends: [(0, 0); 24], count: 0 };
        let mut start = 0;
        for at in 0..=name.len() {
            let here = name.get(at).copied().unwrap_or(b' ');
            let cut = !here.is_ascii_alphanumeric();
            let hump = at > start
                && here.is_ascii_uppercase()
                && (name[at - 1].is_ascii_lowercase()
                    || name[at - 1].is_ascii_digit() && name[start..at].iter().any(u8::is_ascii_lowercase)
                    || name[at - 1].is_ascii_uppercase()
                        && name.get(at + 1).is_some_and(u8::is_ascii_lowercase));
            if cut || hump {
                parts.add(start, at);
                start = if cut { at + 1 } else { at };
            }
        }
        parts
    }

    fn add(&mut self, start: usize, end: usize) {
        if start >= end {
            return;
        }
        if self.count == self.ends.len() {
            // A name of that many words: only its end matters.
            self.ends.rotate_left(1);
            self.count -= 1;
        }
        self.ends[self.count] = (start as u16, end as u16);
        self.count += 1;
    }

    fn iter(&self) -> impl Iterator<Item = &'a [u8]> {
        self.ends[..self.count].iter().map(|&(start, end)| &self.name[start as usize..end as usize])
    }

    fn last(&self) -> Option<&'a [u8]> {
        self.iter().last()
    }
}

/// Returns what of one environment variable must be masked: its value if the name promises a secret,
/// else the password in it if it is a URL.
pub fn env_secrets(name: &str, value: &[u8]) -> Vec<Vec<u8>> {
    if env_name_is_secret(name) {
        return vec![value.to_vec()];
    }
    super::context::url_passwords(value)
}

/// Returns the secrets of a `.env` file: the values of entries whose names promise one, and URL passwords.
pub fn known_from_env_file(bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let end = rest.iter().position(|&b| b == b'\n').unwrap_or(rest.len());
        let line = rest[..end].trim_ascii();
        let Some(eq) = line.iter().position(|&b| b == b'=').filter(|_| !line.starts_with(b"#")) else {
            rest = rest.get(end + 1..).unwrap_or_default();
            continue;
        };
        let name = line[..eq].trim_ascii();
        let name = name.strip_prefix(b"export ").unwrap_or(name).trim_ascii();
        let start = rest.iter().position(|&b| b == b'=').unwrap_or(0) + 1;
        let (values, used) = env_value(&rest[start..]);
        for value in values {
            found.extend(env_secrets(&String::from_utf8_lossy(name), &value));
        }
        rest = rest.get(start + used..).unwrap_or_default();
        let end = rest.iter().position(|&b| b == b'\n').map_or(rest.len(), |at| at + 1);
        rest = &rest[end..];
    }
    found.sort();
    found.dedup();
    found
}

/// Reads the value after `=`: as written and as meant, and how many bytes it took.
fn env_value(input: &[u8]) -> (Vec<Vec<u8>>, usize) {
    let lead = input.iter().take_while(|&&b| b == b' ' || b == b'\t').count();
    let body = &input[lead..];
    if let Some(&quote @ (b'"' | b'\'' | b'`')) = body.first() {
        let mut at = 1;
        while at < body.len() && body[at] != quote {
            at += if body[at] == b'\\' && quote == b'"' { 2 } else { 1 };
        }
        // A quote that is never closed is part of the value.
        if at < body.len() {
            let raw = body[1..at].to_vec();
            let meant = if quote == b'"' { unescape(&raw) } else { raw.clone() };
            return (if raw == meant { vec![raw] } else { vec![raw, meant] }, lead + at + 1);
        }
    }
    let end = body.iter().position(|&b| b == b'\n').unwrap_or(body.len());
    let line = body[..end].trim_ascii_end();
    let plain = line.windows(2).position(|w| w == b" #").map_or(line, |at| line[..at].trim_ascii_end());
    (vec![plain.to_vec()], lead + end)
}

fn unescape(raw: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(raw.len());
    let mut bytes = raw.iter();
    while let Some(&b) = bytes.next() {
        match (b, b == b'\\') {
            (_, true) => match bytes.next() {
                Some(b'n') => out.push(b'\n'),
                Some(b'r') => out.push(b'\r'),
                Some(b't') => out.push(b'\t'),
                Some(&other) => out.push(other),
                None => out.push(b'\\'),
            },
            _ => out.push(b),
        }
    }
    out
}
