//! A webhook: one signed POST, without redirects, with a limit.

use super::Details;
use crate::model::config::Notify;
use crate::model::hex;
use anyhow::{Context as _, bail};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use std::path::Path;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(20);

/// The other side says that it will never take this.
#[derive(Debug, thiserror::Error)]
#[error("the answer was {0}")]
pub struct Refused(u16);

/// Sends the details.
pub(super) fn post(notify: &Notify, details: &Details) -> anyhow::Result<()> {
    let Some(address) = &notify.webhook else { return Ok(()) };
    let body = serde_json::to_vec(details)?;
    let at = chrono::Utc::now().timestamp().to_string();
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .timeout_global(Some(LIMIT))
        // A signed body goes to the address that was named, and to no other.
        .max_redirects(0)
        .http_status_as_error(false)
        .user_agent(concat!("workspool/", env!("CARGO_PKG_VERSION")))
        .build()
        .into();
    let mut request = agent
        .post(address)
        .content_type("application/json")
        .header("X-Workspool-Event", details.event.as_str())
        .header("X-Workspool-Delivery", &details.delivery)
        .header("X-Workspool-Timestamp", &at);
    if let Some(path) = &notify.webhook_secret_file {
        request = request.header("X-Workspool-Signature", sign(&secret(path)?, &at, &body)?);
    }
    let status = request.send(&body[..]).map_err(|e| anyhow::anyhow!("{e}"))?.status().as_u16();
    match status {
        200..300 => Ok(()),
        // It may be otherwise the next time.
        408 | 425 | 429 | 500.. => bail!("the answer was {status}"),
        _ => Err(Refused(status).into()),
    }
}

fn secret(path: &Path) -> anyhow::Result<Vec<u8>> {
    let bytes = std::fs::read(path).with_context(|| format!("cannot read the secret {}", path.display()))?;
    let secret = bytes.trim_ascii().to_vec();
    if secret.is_empty() { bail!("the secret {} is empty", path.display()) } else { Ok(secret) }
}

/// The signature of a body: `sha256=` and the HMAC-SHA256 of time, a dot and body.
fn sign(secret: &[u8], at: &str, body: &[u8]) -> anyhow::Result<String> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).context("the secret cannot be a key")?;
    for part in [at.as_bytes(), b".", body] {
        mac.update(part);
    }
    Ok(format!("sha256={}", hex(&mac.finalize().into_bytes())))
}

#[cfg(test)]
mod tests {
    use super::super::tests::details;
    use super::*;
    use std::io::{Read as _, Write as _};

    #[test]
    fn the_signature_is_the_one_that_others_compute() {
        // printf '1700000000.{}' | openssl dgst -sha256 -hmac Jefe
        assert_eq!(
            sign(b"Jefe", "1700000000", b"{}").unwrap(),
            "sha256=d3793e2b4103edfbd98cc19591832f5fad701d413db9fcae0ae7dab8184ed207"
        );
    }

    /// Answers one request with `status`, and returns what it was.
    fn answer(status: &'static str) -> (String, std::thread::JoinHandle<String>) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}/hook", listener.local_addr().unwrap());
        let thread = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut bytes = Vec::new();
            let mut buffer = [0; 4096];
            loop {
                let n = stream.read(&mut buffer).unwrap();
                bytes.extend_from_slice(&buffer[..n]);
                let text = String::from_utf8_lossy(&bytes).into_owned();
                if let Some((head, body)) = text.split_once("\r\n\r\n") {
                    let length: usize = head
                        .lines()
                        .find_map(|l| {
                            l.to_lowercase().strip_prefix("content-length: ").map(|v| v.parse().unwrap())
                        })
                        .unwrap();
                    if body.len() >= length {
                        let reply = format!(
                            "HTTP/1.1 {status}\r\nContent-Length: 0\r\nLocation: http://127.0.0.1:1/\r\n\r\n"
                        );
                        stream.write_all(reply.as_bytes()).unwrap();
                        return text;
                    }
                }
                assert!(n > 0, "the request ended early");
            }
        });
        (address, thread)
    }

    fn to(address: String) -> Notify {
        Notify { webhook: Some(address), ..Notify::default() }
    }

    #[test]
    fn what_is_sent_is_signed_over_time_and_body() {
        let dir = tempfile::tempdir().unwrap();
        let secret = dir.path().join("secret");
        std::fs::write(&secret, "Jefe\n").unwrap();
        let (address, server) = answer("204 No Content");
        post(&Notify { webhook_secret_file: Some(secret), ..to(address) }, &details()).unwrap();
        let request = server.join().unwrap();
        let (head, body) = request.split_once("\r\n\r\n").unwrap();
        let header = |name: &str| {
            head.lines()
                .find_map(|l| l.split_once(": ").filter(|(n, _)| n.eq_ignore_ascii_case(name)))
                .unwrap_or_else(|| panic!("{name} in {head}"))
                .1
        };
        assert_eq!(header("X-Workspool-Event"), "done");
        assert_eq!(header("X-Workspool-Delivery"), "d.1.done");
        let wanted = sign(b"Jefe", header("X-Workspool-Timestamp"), body.as_bytes()).unwrap();
        assert_eq!(header("X-Workspool-Signature"), wanted);
        assert_eq!(serde_json::from_str::<serde_json::Value>(body).unwrap()["task"], "01jdq");
    }

    #[test]
    fn some_answers_are_for_ever_and_others_for_now() {
        for (status, for_ever) in
            [("404 Not Found", true), ("302 Found", true), ("503 Busy", false), ("429 Slow", false)]
        {
            let (address, server) = answer(status);
            let e = post(&to(address), &details()).unwrap_err();
            assert_eq!(e.is::<Refused>(), for_ever, "{status}: {e}");
            server.join().unwrap();
        }
        assert!(post(&to("http://127.0.0.1:1/".into()), &details()).is_err_and(|e| !e.is::<Refused>()));
    }

    #[test]
    fn without_its_secret_nothing_is_sent() {
        let notify =
            Notify { webhook_secret_file: Some("/no/such".into()), ..to("http://127.0.0.1:1/".into()) };
        assert!(post(&notify, &details()).unwrap_err().to_string().contains("secret"));
    }
}
