//! Generated secrets of each kind, each in the text that it comes in.

use super::super::Redactor;

/// A generator of the same bytes on each run (xorshift).
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(super) fn of(&mut self, alphabet: &str, count: usize) -> String {
        let letters = alphabet.as_bytes();
        // A digit, a capital and a small letter in front, where the alphabet has them: as long random text has.
        let mut text: String =
            (0..count).map(|_| char::from(letters[self.next() as usize % letters.len()])).collect();
        for (at, class) in ["0123456789", "ABCDEF", "abcdef", "0123456789"].into_iter().enumerate() {
            let both: Vec<char> = class.chars().filter(|c| alphabet.contains(*c)).collect();
            if let Some(c) = both.get(self.next() as usize % both.len().max(1)).filter(|_| at < count) {
                text.replace_range(at..=at, &c.to_string());
            }
        }
        text
    }
}

const ALNUM: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
const UPPER: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
const HEX: &str = "0123456789abcdef";
const TOKEN: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-";
const BASE64: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// A text and what of it must not be seen.
#[derive(Debug, Clone)]
pub(super) struct Case {
    pub(super) text: String,
    pub(super) secret: String,
    pub(super) kind: &'static str,
}

/// Makes one of each.
pub(super) fn cases(seed: u64) -> Vec<Case> {
    let mut r = Random(seed | 1);
    let mut cases = Vec::new();
    let shapes: &[(&str, &str, usize, &'static str)] = &[
        ("AKIA", UPPER, 16, "aws-key"),
        ("ASIA", UPPER, 16, "aws-key"),
        ("ghp_", ALNUM, 36, "github-token"),
        ("gho_", ALNUM, 36, "github-token"),
        ("ghu_", ALNUM, 36, "github-token"),
        ("ghs_", ALNUM, 36, "github-token"),
        ("ghr_", ALNUM, 76, "github-token"),
        ("github_pat_", ALNUM, 82, "github-token"),
        ("glpat-", TOKEN, 20, "gitlab-token"),
        ("xoxb-", TOKEN, 50, "slack-token"),
        ("xapp-", TOKEN, 50, "slack-token"),
        ("sk_live_", ALNUM, 24, "stripe-key"),
        ("rk_live_", ALNUM, 24, "stripe-key"),
        ("whsec_", ALNUM, 32, "stripe-key"),
        ("sk-proj-", TOKEN, 120, "openai-key"),
        ("sk-", ALNUM, 48, "api-key"),
        ("sk-ant-api03-", TOKEN, 95, "anthropic-key"),
        ("sk-or-v1-", HEX, 64, "openrouter-key"),
        ("xai-", ALNUM, 80, "api-key"),
        ("gsk_", ALNUM, 52, "api-key"),
        ("AIza", TOKEN, 35, "google-key"),
        ("ya29.", TOKEN, 100, "google-token"),
        ("GOCSPX-", TOKEN, 28, "google-key"),
        ("npm_", ALNUM, 36, "npm-token"),
        ("pypi-AgEIcHlwaS5vcmc", TOKEN, 150, "pypi-token"),
        ("rubygems_", HEX, 48, "rubygems-token"),
        ("cio", ALNUM, 32, "crates-token"),
        ("hf_", ALNUM, 34, "huggingface-token"),
        ("dop_v1_", HEX, 64, "digitalocean-token"),
        ("SK", HEX, 32, "twilio-key"),
        ("AGE-SECRET-KEY-1", UPPER, 58, "age-key"),
        ("shpat_", HEX, 32, "shopify-token"),
        ("lin_api_", ALNUM, 40, "linear-key"),
        ("dapi", HEX, 32, "databricks-token"),
        ("hvs.", TOKEN, 90, "vault-token"),
        ("glsa_", ALNUM, 41, "grafana-token"),
        ("sntryu_", HEX, 64, "sentry-token"),
        ("dckr_pat_", TOKEN, 27, "docker-token"),
        ("ATATT3", TOKEN, 180, "atlassian-token"),
        ("tskey-auth-", TOKEN, 40, "tailscale-key"),
        ("sbp_", HEX, 40, "supabase-key"),
        ("pul-", HEX, 40, "pulumi-token"),
    ];
    for &(prefix, alphabet, count, kind) in shapes {
        let secret = format!("{prefix}{}", r.of(alphabet, count));
        cases.push(Case { text: format!("use {secret} now"), secret, kind });
    }
    let sendgrid = format!("SG.{}.{}", r.of(TOKEN, 22), r.of(TOKEN, 43));
    cases.push(Case { text: format!("mail {sendgrid}"), secret: sendgrid, kind: "sendgrid-key" });
    let jwt = format!("eyJ{}.eyJ{}.{}", r.of(TOKEN, 30), r.of(TOKEN, 90), r.of(TOKEN, 43));
    cases.push(Case { text: format!("got {jwt};"), secret: jwt, kind: "jwt" });
    let bot = format!("{}:AA{}", "1234567890", r.of(TOKEN, 33));
    cases.push(Case { text: format!("bot {bot} up"), secret: bot, kind: "telegram-token" });
    let hook =
        format!("hooks.slack.com/services/T{}/B{}/{}", r.of(UPPER, 8), r.of(UPPER, 8), r.of(ALNUM, 24));
    cases.push(Case { text: format!("post to https://{hook} ok"), secret: hook, kind: "webhook-url" });

    let around: &[(&str, &str, &str, usize, &'static str)] = &[
        ("export FOO_TOKEN=", "\n", ALNUM, 24, "token"),
        ("AWS_SECRET_ACCESS_KEY=", " x", BASE64, 40, "key"),
        ("aws_secret_access_key = ", "\n", BASE64, 40, "key"),
        ("DB_PASSWORD=", "\n", TOKEN, 12, "password"),
        ("MY_KEY=", "\n", ALNUM, 20, "key"),
        ("{\"password\":\"", "\"}", TOKEN, 9, "password"),
        ("{\"api_key\": \"", "\", \"a\": 1}", TOKEN, 20, "key"),
        ("{\"clientSecret\": \"", "\"}", TOKEN, 20, "token"),
        ("{\"accessToken\" : \"", "\"}", BASE64, 30, "token"),
        ("const apiKey: string = \"", "\";", ALNUM, 24, "key"),
        ("token: ", "\n", TOKEN, 30, "token"),
        ("tool --token ", " --verbose", TOKEN, 20, "token"),
        ("tool --password=", " x", TOKEN, 10, "password"),
        ("<password>", "</password>", ALNUM, 12, "password"),
        ("machine example.org login me password ", "\n", ALNUM, 12, "password"),
        ("Server=db;User Id=sa;Password=", ";Encrypt=true", ALNUM, 14, "password"),
        ("AccountName=a;AccountKey=", ";EndpointSuffix=x", BASE64, 86, "key"),
        ("Authorization: Bearer ", "\r\n", TOKEN, 30, "authorization"),
        ("authorization: Basic ", "\n", BASE64, 24, "authorization"),
        ("curl -H 'Authorization: Token ", "' x", HEX, 40, "authorization"),
        ("{\"Authorization\":\"Bearer ", "\"}", TOKEN, 30, "authorization"),
        ("X-Api-Key: ", "\n", ALNUM, 32, "key"),
        ("Set-Cookie: sid=", "; Path=/\n", ALNUM, 26, "cookie"),
        ("curl -H 'Cookie: a=b; sid=", "' x", ALNUM, 26, "cookie"),
        ("postgres://app:", "@db.internal:5432/app", ALNUM, 12, "url-password"),
        ("redis://:", "@cache:6379", ALNUM, 16, "url-password"),
        ("https://", "@git.example.org/a.git", ALNUM, 24, "url-password"),
        ("mysql://u:a/b#", "@db/x", ALNUM, 12, "url-password"),
        ("https://s.blob.core.example.net/c?se=2&sig=", "&sp=r", ALNUM, 44, "azure-signature"),
        ("{\"auths\":{\"r.example.org\":{\"auth\":\"", "\"}}}", BASE64, 32, "token"),
        ("//registry.example.org/:_authToken=", "\n", ALNUM, 36, "token"),
        ("{\"set-cookie\":[\"sid=", "; Path=/\"]}", ALNUM, 26, "cookie"),
        ("map[Authorization:[Bearer ", "] Accept:[*/*]]", TOKEN, 30, "authorization"),
        ("curl -s -u me:", " https://example.org", ALNUM, 12, "password"),
        ("curl --user 'me:", "' https://example.org", ALNUM, 12, "password"),
        ("sent Bearer ", " to it", TOKEN, 32, "token"),
    ];
    for &(before, after, alphabet, count, kind) in around {
        let secret = r.of(alphabet, count);
        cases.push(Case { text: format!("{before}{secret}{after}"), secret, kind });
    }
    cases
}

/// Makes a private key, its lines apart.
pub(super) fn private_key(seed: u64, lines: usize) -> Vec<String> {
    let mut r = Random(seed | 1);
    let mut key = vec![["-----BEGIN RSA PRIV", "ATE KEY-----"].concat()];
    key.extend((0..lines).map(|_| r.of(BASE64, 64)));
    key.push(r.of(BASE64, 22) + "==");
    key.push(["-----END RSA PRIV", "ATE KEY-----"].concat());
    key
}

pub(super) fn masked(text: &str) -> String {
    Redactor::default().str(text).into_owned()
}

#[test]
fn every_kind_is_masked_and_named() {
    for seed in 1..20 {
        for case in cases(seed * 7919) {
            let shown = masked(&case.text);
            assert!(!shown.contains(&case.secret), "{case:?} -> {shown}");
            assert!(shown.contains(&format!("[redacted:{}]", case.kind)), "{case:?} -> {shown}");
        }
    }
}

#[test]
fn a_name_within_a_masked_value_still_names_its_own() {
    let shown = masked("Set-Cookie: sid=abcdef; Path=/ apiKey: string = \"6Ec8VJqg54xehjrL0X9zCZQi\"; x");
    assert_eq!(shown, "Set-Cookie: [redacted:cookie]\"[redacted:key]\"; x");
}

#[test]
fn passwords_that_begin_like_placeholders_are_masked() {
    for value in ["secretXy!kq", "TrueLove99", "{s0me!pw", "password12", "$ecr1t!pw", "null7byte!"] {
        for text in [format!("DB_PASSWORD={value}\n"), format!("{{\"password\":\"{value}\"}}")] {
            assert!(
                !masked(&text).contains(value) || value.starts_with('{') && text.starts_with("DB"),
                "{text}"
            );
        }
    }
}

#[test]
fn what_is_around_a_secret_stays() {
    assert_eq!(
        masked("postgres://app:hunter2@db:5432/x?a=1"),
        "postgres://app:[redacted:url-password]@db:5432/x?a=1"
    );
    assert_eq!(masked("export A_TOKEN=abcdef123456 # mine"), "export A_TOKEN=[redacted:token] # mine");
    assert_eq!(
        masked(r#"{"password":"hunter2","user":"me"}"#),
        r#"{"password":"[redacted:password]","user":"me"}"#
    );
    assert_eq!(
        masked("Authorization: Basic dXNlcjpwYXNz\nnext"),
        "Authorization: Basic [redacted:authorization]\nnext"
    );
    assert_eq!(
        masked(r#"{"t":"PASSWORD=hunter2\nUSER=me"}"#),
        r#"{"t":"PASSWORD=[redacted:password]\nUSER=me"}"#
    );
}

#[test]
fn every_kind_is_masked_within_json_and_json_within_json() {
    for case in cases(4242) {
        let once = serde_json::to_string(&case.text).unwrap();
        let text = format!("{{\"type\":\"tool\",\"output\":{once},\"id\":7}}");
        let twice = format!("{{\"line\":{}}}", serde_json::to_string(&text).unwrap());
        for text in [text, twice] {
            let shown = masked(&text);
            assert!(!shown.contains(&case.secret), "{case:?} -> {shown}");
            serde_json::from_str::<serde_json::Value>(&shown).unwrap_or_else(|e| panic!("{e}: {shown}"));
        }
    }
}

#[test]
fn a_token_glued_to_an_escape_or_a_colour_is_masked() {
    for case in cases(99).into_iter().filter(|c| c.text.starts_with("use ")) {
        for before in ["\\n", "\\u001b[31m", "\u{1b}[1;32m", "?q%3D", "\\t", "=", "\"", "(", "/"] {
            let shown = masked(&format!("x{before}{}", case.secret));
            assert!(!shown.contains(&case.secret), "{before:?} {case:?} -> {shown}");
        }
    }
}

#[test]
fn private_keys_are_masked_whole_cut_prefixed_and_written_out() {
    let key = private_key(5, 12);
    let body = &key[1..key.len() - 1];
    let hidden = |shown: &str| {
        for line in body {
            assert!(!shown.contains(line.as_str()), "{line} in {shown}");
        }
        assert_eq!(shown.matches("[redacted:private-key]").count(), 1, "{shown}");
    };
    let whole = format!("before\n{}\nafter\n", key.join("\n"));
    hidden(&masked(&whole));
    assert_eq!(masked(&whole), "before\n[redacted:private-key]\nafter\n");
    hidden(&masked(&format!("a\n{}", key[..9].join("\r\n"))));
    hidden(&masked(&format!("a\n{}\nz", key[3..].join("\n"))));
    for prefix in ["+", "    ", "12: ", "  | "] {
        let shown = masked(&format!("a\n{prefix}{}\nz\n", key.join(&format!("\n{prefix}"))));
        hidden(&shown);
        assert!(shown.ends_with("\nz\n"), "{shown}");
    }
    let written_out = format!("{{\"private_key\": \"{}\\n\", \"b\": 1}}\n", key.join("\\n"));
    hidden(&masked(&written_out));
    assert!(masked(&written_out).contains("\"b\": 1"));
    hidden(&masked(&format!("{{\"k\":\"{}", key[..8].join("\\n"))));
    hidden(&masked(&format!("{}\"}}\nz", key[4..].join("\\n"))));
    let code = key.iter().map(|line| format!("  \"{line}\\n\" +\n")).collect::<String>();
    hidden(&masked(&code));
}

#[test]
fn a_public_key_and_a_digest_list_are_shown() {
    let mut key = private_key(6, 6);
    let last = key.len() - 1;
    key[0] = "-----BEGIN CERTIFICATE-----".into();
    key[last] = "-----END CERTIFICATE-----".into();
    let text = key.join("\n");
    assert_eq!(masked(&text), text);
    let digests = format!("{}  a\n{}\n", "0123456789abcdef".repeat(4), "fedcba9876543210".repeat(4));
    assert_eq!(masked(&digests), digests);
}
