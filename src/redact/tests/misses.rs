//! What looks like a secret and is none: it stays readable.

use super::super::{Redactor, env_name_is_secret, env_secrets, known_from_env_file};
use super::corpus::masked;
use std::borrow::Cow;

#[test]
fn ordinary_text_stays_as_it_is() {
    for text in [
        "Author: Jo Doe <jo@example.org>",
        "commit 9fceb02d0ae598e95dc970b74767f19372d61af8",
        "01jcq9v3v2k4w5x6y7z8a9b0c1 01JCQ9V3V2K4W5X6Y7Z8A9B0C1",
        "session_id: 7d9f3c1e-52b1-4d0e-9a53-0c1f5f2c8f11",
        r#"{"session_id":"7d9f3c1e-52b1-4d0e-9a53-0c1f5f2c8f11","uuid":"a7c1"}"#,
        "/home/me/project/src/token/password_reset.rs:12:5",
        "the password is checked: if it is wrong, a token: none is made",
        "password: the thing that you type in",
        "token_count: 12345678, max_tokens = 4096",
        r#"{"max_tokens": 4096, "input_tokens":123456,"cache_read_input_tokens":98765432,"token":null}"#,
        r#"{"usage":{"input_tokens":"12345678","output_tokens":"9"}}"#,
        "TOKEN=\nPASSWORD=''\n",
        "TOKEN=${GITHUB_TOKEN} PASSWORD=$DB_PASSWORD API_KEY=<your-api-key>",
        r#"{"token":"${{ secrets.TOKEN }}","password":"changeme"}"#,
        "let token = parser.next();",
        "let token = parser.next2_token(&mut self).unwrap();",
        "const secret = config.get(\"secret\");",
        "self.password = password",
        "password: String, token: Option<String>,",
        "api_key = os.environ[\"API_KEY\"]",
        "const token = process.env.GITHUB_TOKEN;",
        r#"{"password": "must be at least 8 characters"}"#,
        r#"{"type":"password","name":"token"}"#,
        "key: value, primary_key = \"customer_id_2024\"",
        "cache-key: linux-cargo-3f2a9c8b7d6e5f4a3b2c1d0e",
        "sk-fading-circle-container-large and task-runner-for-everything",
        "monkey=banana12345678 keyboard=qwerty12345678 AUTHOR=JoDoe12345678",
        "PWD=/home/me/work OLDPWD=/home/me",
        "SSH_AUTH_SOCK=/run/user/1000/agent.12345",
        "GOOGLE_APPLICATION_CREDENTIALS=/home/me/.config/gcp.json",
        "http://localhost:8080/path@2 https://example.org/a:b@c",
        "git clone https://git@example.org/a/b.git ssh://git@example.org:22/x",
        "https://user:$PASSWORD@host/ https://u:<password>@host/",
        "Basic understanding of Bearer authentication is required",
        "Cookie: none",
        "docker run -u 1000:1000 x; git push -u origin a:b; curl -u $USER:$PASS x; curl -u me x:y",
        "  -p, --password      basic auth password",
        "  --token string   the token to use",
        "trivially_copy_pass_by_ref = \"warn\"",
        "pub const RTAX_FASTOPEN_NO_COOKIE: _bindgen_ty_64 = 17;",
        r#"{"progressToken":"progress-12"}"#,
        "[`TokenStream`]: https://docs.rs/proc-macro2/1.0/struct.TokenStream.html",
        "assert_eq!(tokens.len(), 3); // pass: 12, fail: 0",
        "test auth::token::parses_key ... ok",
        "use crate::secret::Secret; key::<u8>()",
        "eyJust.a.word SG.x AKIA ghp_short hf_model_name_that_is_long",
        "-----BEGIN PUBLIC KEY-----\nMIIB\n-----END PUBLIC KEY-----",
    ] {
        assert!(
            matches!(Redactor::default().text(text.as_bytes()), Cow::Borrowed(_)),
            "{text}\n{}",
            masked(text)
        );
    }
}

#[test]
fn a_mask_is_not_masked_again() {
    for case in super::corpus::cases(31) {
        let once = masked(&case.text);
        assert_eq!(masked(&once), once);
    }
}

#[test]
fn names_are_read_by_their_words() {
    for name in [
        "TOKEN",
        "GITHUB_TOKEN",
        "GH_TOKEN",
        "DB_PASSWORD",
        "PGPASSWORD",
        "MYSQL_PWD",
        "API_KEY",
        "OPENAI_API_KEY",
        "AWS_SECRET_ACCESS_KEY",
        "SIGNING_KEY",
        "CREDENTIALS",
        "NPM_CONFIG__AUTH",
        "apiKey",
        "APIKey",
        "clientSecret",
        "SECRET",
        "SECRETS",
        "CLIENT_SECRET_2",
        "TOKEN2",
        "GITHUB_PAT",
        "KEY",
        "SSH_PASSPHRASE",
        "x-auth-token",
        "SESSION_COOKIE",
        "authToken",
        "FOO_APIKEY",
        "npmtoken",
    ] {
        assert!(env_name_is_secret(name), "{name}");
    }
    for name in [
        "AUTHOR",
        "GIT_AUTHOR_NAME",
        "MONKEY",
        "KEYBOARD",
        "TOKENIZER",
        "MAX_TOKENS",
        "TOKEN_COUNT",
        "KEY_FILE",
        "SSH_AUTH_SOCK",
        "PWD",
        "OLDPWD",
        "PATH",
        "HOME",
        "COMPASS",
        "BYPASS_CACHE",
        "PUBLIC_KEY",
        "PASSWORD_FILE",
        "TOKEN_URL",
        "SECRET_NAME",
        "KEYMAP",
        "TURKEY",
        "EMAIL",
        "",
        "_",
        "XDG_SESSION_ID",
        "SECRETARY",
    ] {
        assert!(!env_name_is_secret(name), "{name}");
    }
}

#[test]
fn an_env_file_gives_the_values_of_secret_names() {
    let file = b"# TOKEN=not-this-one\nUSER=jo\nexport A_TOKEN = abc-123-def # note\nB_PASSWORD=\"two\\nlines \\\"q\\\"\"\n\
C_KEY='single #quoted'\r\nNAME=value\nD_SECRET=\"first\nsecond\"\nEMPTY_TOKEN=\nDATABASE_URL=postgres://u:p4ssw0rd@h/d\nE_SECRET=open\"quote";
    let known = known_from_env_file(file);
    let has = |v: &str| assert!(known.contains(&v.as_bytes().to_vec()), "{v}: {known:?}");
    for value in
        ["abc-123-def", "two\nlines \"q\"", "single #quoted", "first\nsecond", "p4ssw0rd", "open\"quote"]
    {
        has(value);
    }
    for value in ["jo", "value", "not-this-one"] {
        assert!(!known.contains(&value.as_bytes().to_vec()), "{value}");
    }
    assert_eq!(env_secrets("HOME", b"/home/me"), Vec::<Vec<u8>>::new());
}
