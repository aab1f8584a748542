//! Secrets with a shape of their own: a literal prefix, then so many characters of a class.
//!
//! Each rule is matched by hand at the place its prefix was found. A rule looks at each byte once, so
//! a line of any length costs time in proportion; a regex engine would add start-up time and nothing
//! else.

use super::scan::{Rank, Span, Until};

/// One shape.
pub(super) struct Rule {
    /// What it begins with, in exact case.
    pub(super) literal: &'static str,
    /// The name in its mask.
    kind: &'static str,
    /// Characters after the prefix.
    class: Class,
    /// How many there are at least.
    min: usize,
    /// Whether the prefix must begin a word: those that also end words.
    word: bool,
    /// What else must hold.
    check: Check,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Hex,
    Upper,
    Alnum,
    /// Letters, digits, `_`, `-`.
    Token,
    /// The same, `.`, `=`, `+`, `/`.
    Wide,
    /// What stands in a URL.
    Path,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Check {
    None,
    /// Exactly `min` characters: a hash or an id has more or fewer.
    Exact,
    /// Digits among the letters: kebab-case words have none.
    Variety,
    /// A second part after a dot.
    Dotted,
    /// Letters, digits and the colon of an id before the prefix belong to it.
    WithId,
    /// Only behind `?`, `&` or `;`.
    Query,
}

const fn rule(literal: &'static str, kind: &'static str, class: Class, min: usize) -> Rule {
    Rule { literal, kind, class, min, word: false, check: Check::None }
}

const fn word(literal: &'static str, kind: &'static str, class: Class, min: usize, check: Check) -> Rule {
    Rule { literal, kind, class, min, word: true, check }
}

use Class::{Alnum, Hex, Path, Token, Upper, Wide};

/// All shapes.
pub(super) static RULES: &[Rule] = &[
    word("AKIA", "aws-key", Upper, 16, Check::Exact),
    word("ASIA", "aws-key", Upper, 16, Check::Exact),
    word("ABIA", "aws-key", Upper, 16, Check::Exact),
    word("ACCA", "aws-key", Upper, 16, Check::Exact),
    rule("ghp_", "github-token", Alnum, 30),
    rule("gho_", "github-token", Alnum, 30),
    rule("ghu_", "github-token", Alnum, 30),
    rule("ghs_", "github-token", Wide, 30),
    rule("ghr_", "github-token", Alnum, 30),
    rule("github_pat_", "github-token", Token, 22),
    rule("glpat-", "gitlab-token", Token, 20),
    rule("gldt-", "gitlab-token", Token, 20),
    rule("glrt-", "gitlab-token", Token, 20),
    rule("glptt-", "gitlab-token", Token, 20),
    rule("glcbt-", "gitlab-token", Token, 20),
    rule("glsoat-", "gitlab-token", Token, 20),
    rule("glagent-", "gitlab-token", Token, 20),
    rule("xoxa-", "slack-token", Token, 10),
    rule("xoxb-", "slack-token", Token, 10),
    rule("xoxc-", "slack-token", Token, 10),
    rule("xoxd-", "slack-token", Wide, 10),
    rule("xoxe-", "slack-token", Token, 10),
    rule("xoxe.", "slack-token", Wide, 10),
    rule("xoxo-", "slack-token", Token, 10),
    rule("xoxp-", "slack-token", Token, 10),
    rule("xoxr-", "slack-token", Token, 10),
    rule("xoxs-", "slack-token", Token, 10),
    rule("xapp-", "slack-token", Token, 20),
    rule("hooks.slack.com/", "webhook-url", Path, 20),
    rule("discord.com/api/webhooks/", "webhook-url", Path, 30),
    rule("discordapp.com/api/webhooks/", "webhook-url", Path, 30),
    word("sk_live_", "stripe-key", Alnum, 10, Check::None),
    word("sk_test_", "stripe-key", Alnum, 10, Check::None),
    word("rk_live_", "stripe-key", Alnum, 10, Check::None),
    word("rk_test_", "stripe-key", Alnum, 10, Check::None),
    rule("whsec_", "stripe-key", Wide, 20),
    rule("sk-ant-", "anthropic-key", Token, 20),
    rule("sk-proj-", "openai-key", Token, 20),
    rule("sk-svcacct-", "openai-key", Token, 20),
    rule("sk-admin-", "openai-key", Token, 20),
    rule("sk-or-v1-", "openrouter-key", Hex, 32),
    word("sk-", "api-key", Token, 20, Check::Variety),
    word("xai-", "api-key", Alnum, 40, Check::None),
    word("gsk_", "api-key", Alnum, 40, Check::None),
    word("pplx-", "api-key", Alnum, 40, Check::None),
    word("r8_", "api-key", Alnum, 30, Check::None),
    word("AIza", "google-key", Token, 35, Check::None),
    rule("ya29.", "google-token", Token, 20),
    rule("GOCSPX-", "google-key", Token, 20),
    word("1//0", "google-token", Token, 30, Check::Variety),
    word("npm_", "npm-token", Alnum, 30, Check::None),
    rule("pypi-AgE", "pypi-token", Token, 40),
    word("rubygems_", "rubygems-token", Hex, 40, Check::None),
    word("cio", "crates-token", Alnum, 32, Check::Exact),
    word("hf_", "huggingface-token", Alnum, 30, Check::None),
    rule("dop_v1_", "digitalocean-token", Hex, 40),
    rule("doo_v1_", "digitalocean-token", Hex, 40),
    rule("dor_v1_", "digitalocean-token", Hex, 40),
    word("SG.", "sendgrid-key", Token, 16, Check::Dotted),
    word("SK", "twilio-key", Hex, 32, Check::Exact),
    word("key-", "mailgun-key", Hex, 32, Check::Exact),
    rule(":AA", "telegram-token", Token, 32).with_id(),
    word("eyJ", "jwt", Token, 8, Check::Dotted),
    rule("AGE-SECRET-KEY-1", "age-key", Upper, 40),
    rule("shpat_", "shopify-token", Hex, 32),
    rule("shpss_", "shopify-token", Hex, 32),
    rule("shpca_", "shopify-token", Hex, 32),
    rule("lin_api_", "linear-key", Alnum, 30),
    rule("sq0atp-", "square-token", Token, 20),
    rule("sq0csp-", "square-token", Token, 40),
    word("dapi", "databricks-token", Hex, 32, Check::None),
    word("hvs.", "vault-token", Token, 24, Check::None),
    word("hvb.", "vault-token", Token, 24, Check::None),
    rule("glsa_", "grafana-token", Token, 30),
    rule("glc_eyJ", "grafana-token", Wide, 30),
    rule("NRAK-", "newrelic-key", Upper, 20),
    rule("sntrys_", "sentry-token", Wide, 30),
    rule("sntryu_", "sentry-token", Hex, 40),
    rule("PMAK-", "postman-key", Token, 40),
    rule("dckr_pat_", "docker-token", Token, 20),
    rule("dckr_oat_", "docker-token", Token, 20),
    rule("ATATT3", "atlassian-token", Wide, 40),
    rule("ATCTT3", "atlassian-token", Wide, 40),
    rule("ATBB", "atlassian-token", Alnum, 28).at_word(),
    rule("tskey-", "tailscale-key", Token, 20),
    rule("sbp_", "supabase-key", Hex, 40),
    rule("sb_secret_", "supabase-key", Token, 20),
    rule("figd_", "figma-token", Token, 30),
    word("ntn_", "notion-token", Alnum, 30, Check::None),
    rule("dp.st.", "doppler-token", Wide, 30),
    rule("dp.pt.", "doppler-token", Wide, 30),
    word("pul-", "pulumi-token", Hex, 40, Check::None),
    rule(".atlasv1.", "terraform-token", Token, 50).with_id(),
    rule("fm2_", "fly-token", Wide, 60).at_word(),
    rule("sig=", "azure-signature", Path, 40).in_query(),
];

impl Rule {
    const fn with_id(mut self) -> Rule {
        self.check = Check::WithId;
        self
    }

    const fn at_word(mut self) -> Rule {
        self.word = true;
        self
    }

    const fn in_query(mut self) -> Rule {
        self.check = Check::Query;
        self
    }

    /// Returns the secret whose prefix begins at `start`, if the rest is there too.
    pub(super) fn at(&self, text: &[u8], start: usize) -> Option<Span> {
        if self.word && !begins_word(text, start) {
            return None;
        }
        let body = start + self.literal.len();
        let is_in = |at: usize| text.get(at).is_some_and(|&b| self.class.has(b));
        let enough = (body..body + self.min).take_while(|&at| is_in(at)).count();
        if enough < self.min {
            return None;
        }
        let mut end = body + self.min;
        let mut span_start = start;
        match self.check {
            Check::Exact if is_in(end) || text.get(end).is_some_and(u8::is_ascii_alphanumeric) => {
                return None;
            }
            Check::Variety => {
                let head = &text[body..end];
                let count = |is: fn(&u8) -> bool| head.iter().filter(|b| is(b)).count();
                if count(u8::is_ascii_digit) < 2 || count(u8::is_ascii_alphabetic) < 2 {
                    return None;
                }
            }
            Check::WithId => {
                let id =
                    text[..start].iter().rev().take(20).take_while(|b| b.is_ascii_alphanumeric()).count();
                if id < 6 || self.literal == ":AA" && !text[start - id..start].iter().all(u8::is_ascii_digit)
                {
                    return None;
                }
                span_start -= id;
            }
            Check::Query => {
                if !text[..start].last().is_some_and(|b| b"?&;".contains(b)) {
                    return None;
                }
                span_start = body;
            }
            _ => {}
        }
        while is_in(end) {
            end += 1;
        }
        let mut until = Until::Token;
        if self.check == Check::Dotted {
            if text.get(end) != Some(&b'.') || !(1..=4).all(|n| is_in(end + n)) {
                return None;
            }
            // Two parts make it one; a third is its signature.
            end += 1;
            while is_in(end) || text.get(end) == Some(&b'.') && is_in(end + 1) {
                end += 1;
            }
        } else if self.check == Check::Exact {
            until = Until::Nothing;
        }
        // `sk-` begins many; a rule that knows more names the mask.
        let rank = if self.check == Check::Variety { Rank::Known } else { Rank::Shape };
        Some(Span { start: span_start, end, kind: self.kind, rank, until })
    }
}

impl Class {
    fn has(self, b: u8) -> bool {
        match self {
            Hex => b.is_ascii_hexdigit(),
            Upper => b.is_ascii_uppercase() || b.is_ascii_digit(),
            Alnum => b.is_ascii_alphanumeric(),
            Token => b.is_ascii_alphanumeric() || b == b'_' || b == b'-',
            Wide => b.is_ascii_alphanumeric() || b"_-.=+/".contains(&b),
            Path => b.is_ascii_alphanumeric() || b"_-.+/%=".contains(&b),
        }
    }
}

/// Says whether a word begins at `at`: no letter, digit, `_` or `-` before it, except as the end of an escape
/// (`\n`, `\u001b`, `%3D`, a colour), which is how a token stands in JSON, a URL or on a terminal.
fn begins_word(text: &[u8], at: usize) -> bool {
    let before = &text[at.saturating_sub(16)..at];
    let Some(&last) = before.last() else { return true };
    if !(last.is_ascii_alphanumeric() || last == b'_' || last == b'-') {
        return true;
    }
    let tail = |n: usize| before.len().checked_sub(n).map(|from| &before[from..]);
    let hex = |bytes: &[u8]| bytes.iter().all(u8::is_ascii_hexdigit);
    tail(2).is_some_and(|t| t[0] == b'\\' && b"nrtbfvae0".contains(&t[1]))
        || tail(3).is_some_and(|t| t[0] == b'%' && hex(&t[1..]))
        || tail(4).is_some_and(|t| t.starts_with(b"\\x") && hex(&t[2..]))
        || tail(6).is_some_and(|t| t.starts_with(b"\\u") && hex(&t[2..]))
        || last == b'm' && {
            let codes = before[..before.len() - 1].iter().rev();
            let codes = codes.take_while(|b| b.is_ascii_digit() || **b == b';').count();
            before[..before.len() - 1 - codes].ends_with(b"[")
        }
}
