//! Why a request, or the whole run, failed: who should act, and whether to try again.

use super::super::classify;
use super::super::json::{MAX_NOTE, clip, text};
use crate::model::{ErrorClass, LimitKind};
use chrono::{DateTime, TimeDelta, Utc};
use serde_json::Value;
use std::time::Duration;

/// A failure, in words that are for people: nothing here is masked yet.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Failure {
    /// Who should act.
    pub class: ErrorClass,
    /// What happened.
    pub message: String,
    /// The HTTP status, if there was an answer.
    pub status: Option<u16>,
    /// How long the server asked us to wait.
    pub retry_after: Option<Duration>,
    /// What the server said about trying again, if it did.
    pub may_retry: Option<bool>,
}

impl Failure {
    /// Makes a failure that no server told.
    pub fn new(class: ErrorClass, message: impl Into<String>) -> Failure {
        Failure { class, message: message.into(), status: None, retry_after: None, may_retry: None }
    }

    /// Makes a failure of what an API said: an error's body, or an error event in a stream.
    pub fn told(status: Option<u16>, body: &[u8]) -> Failure {
        let all = String::from_utf8_lossy(&body[..body.len().min(64 << 10)]);
        let value: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
        // Some gateways wrap the error in a list.
        let value = value.get(0).unwrap_or(&value);
        let error = value.get("error").unwrap_or(value);
        let words = ["code", "type", "status"].map(|key| text(error, key).unwrap_or_default());
        let said = text(error, "message")
            .or_else(|| error.as_str())
            .or_else(|| text(value, "message"))
            .or_else(|| text(value, "detail"))
            .unwrap_or(if value.is_null() { all.trim() } else { &all });
        let class = class(status, &words, said);
        let mut message = String::new();
        if let Some(status) = status {
            message.push_str(&format!("HTTP status {status}: "));
        }
        let said = said.trim();
        let named = words.iter().find(|word| !word.is_empty() && word.parse::<u16>().is_err());
        match (said.is_empty(), named) {
            (true, Some(named)) => message.push_str(named),
            (true, None) => message.push_str("no reason given"),
            (false, Some(named)) if !said.contains(*named) => {
                message.push_str(&format!("{} ({named})", clip(said, MAX_NOTE)));
            }
            (false, _) => message.push_str(clip(said, MAX_NOTE)),
        }
        let wait = classify::lifts(&all, Utc::now()).and_then(|until| (until - Utc::now()).to_std().ok());
        let limit = matches!(class, ErrorClass::RateLimited | ErrorClass::Quota);
        Failure { class, message, status, retry_after: wait.filter(|_| limit), may_retry: None }
    }

    /// Whether the same request may well succeed later.
    pub fn is_transient(&self) -> bool {
        self.may_retry.unwrap_or(match self.class {
            ErrorClass::RateLimited | ErrorClass::Provider | ErrorClass::Network => true,
            _ => self.status == Some(409),
        })
    }

    /// The limit that it speaks of, and when that lifts.
    pub fn limit(&self) -> Option<(LimitKind, Option<DateTime<Utc>>)> {
        let kind = match self.class {
            ErrorClass::RateLimited => LimitKind::Rate,
            ErrorClass::Quota => LimitKind::Quota,
            _ => return None,
        };
        let until =
            self.retry_after.and_then(|wait| Utc::now().checked_add_signed(TimeDelta::from_std(wait).ok()?));
        Some((kind, until))
    }
}

impl From<super::sse::TooLong> for Failure {
    fn from(error: super::sse::TooLong) -> Failure {
        Failure::new(ErrorClass::Provider, error.to_string())
    }
}

/// Says who should act, by the API's own word first: the words of a message mention much.
fn class(status: Option<u16>, words: &[&str], message: &str) -> ErrorClass {
    for word in words {
        match *word {
            "insufficient_quota" | "billing_hard_limit_reached" | "billing_not_active" | "billing_error" => {
                return ErrorClass::Quota;
            }
            "context_length_exceeded" | "request_too_large" => return ErrorClass::ContextFull,
            "rate_limit_exceeded" | "rate_limit_error" | "tokens" | "requests"
                if status == Some(429) || status.is_none() =>
            {
                return ErrorClass::RateLimited;
            }
            "overloaded_error" | "api_error" | "server_error" | "timeout_error"
                if status.is_none_or(|s| s >= 500) =>
            {
                return ErrorClass::Provider;
            }
            "authentication_error" | "invalid_api_key" | "permission_error" => return ErrorClass::Auth,
            "model_not_found" => return ErrorClass::ModelNotFound,
            _ => {}
        }
    }
    match classify::of(status, message) {
        // A wrong key or model comes as 400 from some.
        class @ (ErrorClass::InvalidRequest | ErrorClass::Other) => match classify::of_words(message) {
            Some(told @ (ErrorClass::Auth | ErrorClass::ModelNotFound)) => told,
            _ => class,
        },
        class => class,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class_of(status: u16, body: &str) -> ErrorClass {
        Failure::told(Some(status), body.as_bytes()).class
    }

    #[test]
    fn errors_are_told_apart() {
        use ErrorClass::*;
        for (status, body, want) in [
            (401, r#"{"error":{"message":"Incorrect API key provided","code":"invalid_api_key"}}"#, Auth),
            (403, r#"{"type":"error","error":{"type":"permission_error","message":"no"}}"#, Auth),
            (402, r#"{"error":{"message":"Insufficient Balance"}}"#, Quota),
            (
                429,
                r#"{"error":{"message":"You exceeded your current quota","code":"insufficient_quota"}}"#,
                Quota,
            ),
            (
                429,
                r#"{"error":{"message":"Rate limit reached. Add a payment method at https://x/account/billing","type":"requests","code":"rate_limit_exceeded"}}"#,
                RateLimited,
            ),
            (
                400,
                r#"{"error":{"type":"invalid_request_error","message":"Your credit balance is too low"}}"#,
                Quota,
            ),
            (
                400,
                r#"{"error":{"type":"invalid_request_error","message":"prompt is too long: 9 > 8 maximum"}}"#,
                ContextFull,
            ),
            (
                400,
                r#"{"error":{"message":"This model's maximum context length is 8192 tokens","code":"context_length_exceeded"}}"#,
                ContextFull,
            ),
            (
                400,
                r#"[{"error":{"code":400,"message":"API key not valid. invalid api key","status":"INVALID_ARGUMENT"}}]"#,
                Auth,
            ),
            (400, r#"{"error":{"message":"bad"}}"#, InvalidRequest),
            (404, r#"{"detail":"Not Found"}"#, ModelNotFound),
            (413, "", ContextFull),
            (429, "slow down", RateLimited),
            (500, "<html>", Provider),
            (529, r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#, Provider),
        ] {
            assert_eq!(class_of(status, body), want, "{status} {body}");
        }
        let event = br#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
        assert_eq!(Failure::told(None, event).class, Provider);
    }

    #[test]
    fn the_message_is_the_servers_own() {
        let told = |status, body: &str| Failure::told(status, body.as_bytes()).message;
        assert_eq!(
            told(Some(400), r#"{"error":{"message":"no such field","type":"invalid_request_error"}}"#),
            "HTTP status 400: no such field (invalid_request_error)"
        );
        assert_eq!(told(Some(502), ""), "HTTP status 502: no reason given");
        assert_eq!(told(Some(500), "plain words"), "HTTP status 500: plain words");
        assert_eq!(told(None, r#"{"error":"just text"}"#), "just text");
    }

    #[test]
    fn a_wait_in_words_is_taken() {
        let failure = Failure::told(
            Some(429),
            br#"{"error":{"message":"Please try again in 20s.","code":"rate_limit_exceeded"}}"#,
        );
        let wait = failure.retry_after.unwrap();
        assert!(wait > Duration::from_secs(15) && wait <= Duration::from_secs(20), "{wait:?}");
        assert!(matches!(failure.limit(), Some((LimitKind::Rate, Some(_)))));
        assert!(failure.is_transient());
    }
}
