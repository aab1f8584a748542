//! Requests: one at a time, streamed, nothing tried again here.

use super::api::{self, Decoder};
use super::failure::Failure;
use super::settings::Settings;
use super::sse;
use crate::model::ErrorClass;
use chrono::{DateTime, Utc};
use serde_json::Value;
use std::io::Read;
use std::time::Duration;
use ureq::http::{HeaderMap, Response};

/// The most bytes of an error's body that are read.
const MAX_ERROR: u64 = 64 << 10;
/// The most bytes of an answer.
const MAX_ANSWER: u64 = 128 << 20;
/// The time to find the server and connect to it.
const CONNECT: Duration = Duration::from_secs(30);

/// Speaks HTTP.
pub(super) struct Client {
    agent: ureq::Agent,
    url: String,
    headers: Vec<(&'static str, String)>,
}

impl Client {
    /// Makes a client for the API that the settings name.
    pub fn new(settings: &Settings) -> Result<Client, Failure> {
        let mut config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            // A redirect would take the key to another address.
            .max_redirects(0)
            .max_redirects_will_error(false)
            .timeout_resolve(Some(CONNECT))
            .timeout_connect(Some(CONNECT))
            .timeout_per_read(Some(settings.read_timeout))
            .timeout_per_write(Some(settings.read_timeout))
            .user_agent(concat!("workspool/", env!("CARGO_PKG_VERSION")));
        if settings.base_url.starts_with("https")
            && let Some(certificates) = certificates()?
        {
            let tls = ureq::tls::TlsConfig::builder().root_certs(certificates).build();
            config = config.tls_config(tls);
        }
        Ok(Client {
            agent: config.build().new_agent(),
            url: settings.api.url(&settings.base_url),
            headers: settings.api.headers(settings),
        })
    }

    /// Posts a body and reads the answer into `decoder`, to its end.
    pub fn ask(&self, body: &Value, decoder: &mut dyn Decoder) -> Result<(), Failure> {
        let mut request = self.agent.post(&self.url).header("content-type", "application/json");
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        let mut response = request.send(body.to_string()).map_err(|e| self.unreachable(&e))?;
        let status = response.status().as_u16();
        if status != 200 {
            return Err(refusal(&mut response));
        }
        let kind = response.headers().get("content-type").and_then(|v| v.to_str().ok()).unwrap_or_default();
        let is_whole = kind.to_ascii_lowercase().starts_with("application/json");
        let reader = response.body_mut().with_config().limit(MAX_ANSWER).reader();
        if is_whole { read_whole(reader, decoder) } else { read_stream(reader, decoder) }
    }

    fn unreachable(&self, error: &ureq::Error) -> Failure {
        let class = match error {
            ureq::Error::BadUri(_) | ureq::Error::Http(_) | ureq::Error::InvalidProxyUrl => ErrorClass::Usage,
            _ => ErrorClass::Network,
        };
        let error = error.to_string();
        let mut failure = Failure::new(class, format!("no answer from {}: {error}", self.url));
        // A certificate that is not trusted will not be in a minute.
        failure.may_retry = error.contains("certificate").then_some(false);
        failure
    }
}

/// Certificates to trust, where the environment names a file of them.
fn certificates() -> Result<Option<ureq::tls::RootCerts>, Failure> {
    let Some(path) = std::env::var_os("SSL_CERT_FILE").filter(|p| !p.is_empty()) else { return Ok(None) };
    let wrong = |e: &dyn std::fmt::Display| {
        let message = format!("SSL_CERT_FILE ({}): {e}", std::path::Path::new(&path).display());
        Failure::new(ErrorClass::Usage, message)
    };
    let bytes = std::fs::read(&path).map_err(|e| wrong(&e))?;
    let mut certificates = Vec::new();
    for item in ureq::tls::parse_pem(&bytes) {
        if let ureq::tls::PemItem::Certificate(certificate) = item.map_err(|e| wrong(&e))? {
            certificates.push(certificate);
        }
    }
    Ok(Some(ureq::tls::RootCerts::new_with_certs(&certificates)))
}

/// Reads an answer that comes in events.
fn read_stream(mut reader: impl Read, decoder: &mut dyn Decoder) -> Result<(), Failure> {
    let mut parser = sse::Parser::default();
    let mut buffer = vec![0; 16 << 10];
    // Whether the last event was there, or why one could not be taken.
    let mut outcome = Ok(false);
    let mut broken = None;
    // Some servers keep the connection open when all is said.
    while let Ok(false) = outcome {
        let mut take = |event: sse::Event| {
            if let Ok(false) = outcome {
                outcome = api::take(&event, decoder);
            }
        };
        match reader.read(&mut buffer) {
            Ok(0) => {
                parser.end(&mut take);
                break;
            }
            Ok(n) => parser.push(&buffer[..n], &mut take)?,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => {
                broken = Some(e.to_string());
                break;
            }
        }
    }
    outcome?;
    match broken {
        _ if decoder.is_complete() => Ok(()),
        Some(how) => Err(broken_off(&how)),
        None => Err(broken_off("the stream ended before the answer did")),
    }
}

/// Reads an answer that comes as a whole.
fn read_whole(mut reader: impl Read, decoder: &mut dyn Decoder) -> Result<(), Failure> {
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes).map_err(|e| broken_off(&e.to_string()))?;
    let value = serde_json::from_slice(&bytes).map_err(|e| api::unreadable(&e.to_string()))?;
    decoder.whole(value)?;
    if decoder.is_complete() { Ok(()) } else { Err(api::unreadable("it is no answer of this API")) }
}

fn broken_off(how: &str) -> Failure {
    Failure::new(ErrorClass::Network, format!("the answer broke off: {how}"))
}

/// Reads why the server refused.
fn refusal(response: &mut Response<ureq::Body>) -> Failure {
    let status = response.status().as_u16();
    let mut body = Vec::new();
    // What can be read of the reason is better than none.
    let _ = response.body_mut().with_config().limit(MAX_ERROR).reader().read_to_end(&mut body);
    let mut failure = Failure::told(Some(status), &body);
    if (300..400).contains(&status) {
        failure = Failure::new(
            ErrorClass::InvalidRequest,
            format!("HTTP status {status}: redirects are not followed; is the base URL right?"),
        );
        failure.status = Some(status);
    }
    let headers = response.headers();
    failure.retry_after = retry_after(headers, Utc::now()).or(failure.retry_after);
    failure.may_retry = match header(headers, "x-should-retry") {
        // A limit that is said to be final stays a limit: only its retry is spared.
        Some("true") => Some(true),
        Some("false") => Some(false),
        _ => None,
    };
    failure
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok().map(str::trim)
}

/// Reads how long to wait: `retry-after-ms`, or `Retry-After` in seconds or as a date.
fn retry_after(headers: &HeaderMap, now: DateTime<Utc>) -> Option<Duration> {
    let seconds = |text: &str| {
        let n: f64 = text.parse().ok()?;
        // More than a year is no wait that anybody meant.
        (0.0..=31_536_000.0).contains(&n).then(|| Duration::from_secs_f64(n))
    };
    if let Some(wait) = header(headers, "retry-after-ms").and_then(seconds) {
        return Some(wait / 1000);
    }
    let text = header(headers, "retry-after")?;
    if let Some(wait) = seconds(text) {
        return Some(wait);
    }
    let date = |text: &str| DateTime::parse_from_rfc2822(text).ok().map(|d| d.to_utc());
    // By the server's own clock, where it shows it: ours may be wrong.
    let from = header(headers, "date").and_then(date).unwrap_or(now);
    (date(text)? - from).to_std().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(pairs: &[(&'static str, &'static str)]) -> Option<u128> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.insert(*name, value.parse().unwrap());
        }
        let now = DateTime::parse_from_rfc3339("2026-01-01T00:00:00Z").unwrap().to_utc();
        retry_after(&headers, now).map(|d| d.as_millis())
    }

    #[test]
    fn a_wait_is_read_in_every_form() {
        assert_eq!(wait(&[("retry-after", "7")]), Some(7_000));
        assert_eq!(wait(&[("retry-after", "0.5")]), Some(500));
        assert_eq!(wait(&[("retry-after-ms", "250"), ("retry-after", "9")]), Some(250));
        assert_eq!(wait(&[("retry-after", "Thu, 01 Jan 2026 00:02:00 GMT")]), Some(120_000));
        let dates =
            [("date", "Thu, 01 Jan 2026 00:01:30 GMT"), ("retry-after", "Thu, 01 Jan 2026 00:02:00 GMT")];
        assert_eq!(wait(&dates), Some(30_000), "by the server's clock");
        for nonsense in ["-1", "soon", "1e99", "NaN", "Thu, 01 Jan 1970 00:00:00 GMT"] {
            assert_eq!(wait(&[("retry-after", nonsense)]), None, "{nonsense}");
        }
    }
}
