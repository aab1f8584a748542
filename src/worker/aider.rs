//! Aider's plain output.

use super::Parser;
use super::classify::{self, fail};
use super::json::{MAX_NOTE, clip};
use super::text::Text;
use crate::model::{ErrorClass, Fact, Usage, UsageScope};

/// Reads the output of aider (observed: 0.86.2), run with `--no-pretty --no-stream`.
///
/// It exits with 0 even when the key was refused, so its words are read: a `litellm.…Error` after which no
/// answer came is a failure. It counts tokens and costs in a line after each answer.
#[derive(Debug, Default)]
pub(super) struct Aider {
    text: Text,
    error: Option<(ErrorClass, String)>,
}

impl Aider {
    fn words(&mut self, line: &str, facts: &mut Vec<Fact>) {
        // A line of the history that it may print begins with a mark of quotation.
        let line = line.trim().trim_start_matches("> ");
        if let Some(version) = line.strip_prefix("Aider v") {
            facts.push(Fact::Program { version: Some(clip(version, 40).to_owned()), model: None });
        } else if let Some(rest) = line.strip_prefix("Main model: ").or_else(|| line.strip_prefix("Model: "))
        {
            let model = rest.split_whitespace().next().map(|model| clip(model, 200).to_owned());
            facts.push(Fact::Program { version: None, model });
        } else if let Some(counts) = line.strip_prefix("Tokens: ") {
            if let Some(usage) = usage(counts) {
                self.error = None;
                facts.push(Fact::Usage { usage, scope: UsageScope::Delta });
            }
        } else if line.starts_with("litellm.") && line.contains("Error") {
            let class = match line.split(':').next().unwrap_or_default() {
                "litellm.AuthenticationError" | "litellm.PermissionDeniedError" => ErrorClass::Auth,
                "litellm.RateLimitError" => match classify::of_words(line) {
                    Some(ErrorClass::Quota) => ErrorClass::Quota,
                    _ => ErrorClass::RateLimited,
                },
                "litellm.NotFoundError" => ErrorClass::ModelNotFound,
                "litellm.ContextWindowExceededError" => ErrorClass::ContextFull,
                "litellm.BadRequestError" => match classify::of_words(line) {
                    Some(class @ (ErrorClass::ContextFull | ErrorClass::Auth)) => class,
                    _ => ErrorClass::InvalidRequest,
                },
                "litellm.APIConnectionError" | "litellm.Timeout" => ErrorClass::Network,
                "litellm.InternalServerError" | "litellm.ServiceUnavailableError" => ErrorClass::Provider,
                _ => classify::of(None, line),
            };
            self.error = Some((class, clip(line, MAX_NOTE).to_owned()));
        } else if line.starts_with("Retrying in ") && self.error.is_some() {
            facts.push(Fact::Retry { status: None, delay_ms: None });
        }
    }
}

/// Reads `5.3k sent, 1.2k cache write, 3.4k cache hit, 250 received. Cost: $0.02 message, $0.05 session.`
fn usage(counts: &str) -> Option<Usage> {
    let (tokens, cost) = counts.split_once(" received")?;
    let mut usage = Usage { turns: Some(1), ..Usage::default() };
    for part in tokens.split(", ") {
        match part.split_once(' ') {
            Some((number, "sent")) => usage.input_tokens = number_of(number),
            Some((number, "cache hit")) => usage.cached_tokens = number_of(number),
            None => usage.output_tokens = number_of(part),
            _ => {}
        }
    }
    let message = cost.split_once("Cost: $").and_then(|(_, rest)| rest.split_once(" message"));
    usage.cost_usd =
        message.and_then(|(cost, _)| cost.parse().ok()).filter(|cost: &f64| *cost >= 0.0 && cost.is_finite());
    usage.output_tokens.is_some().then_some(usage)
}

/// Reads a number such as `450`, `1,250`, `5.3k` or `1.2M`.
fn number_of(text: &str) -> Option<u64> {
    let text = text.replace(',', "");
    let (digits, factor) = match text.as_bytes().last()? {
        b'k' => (&text[..text.len() - 1], 1e3),
        b'M' => (&text[..text.len() - 1], 1e6),
        _ => (text.as_str(), 1.0),
    };
    let number: f64 = digits.parse().ok()?;
    (number >= 0.0 && number.is_finite()).then_some((number * factor) as u64)
}

impl Parser for Aider {
    fn line(&mut self, line: &[u8], facts: &mut Vec<Fact>) {
        self.words(&String::from_utf8_lossy(&line[..line.len().min(8 << 10)]), facts);
        self.text.line(line, facts);
    }

    fn end(&mut self, facts: &mut Vec<Fact>) {
        self.text.end(facts);
        if let Some((class, message)) = self.error.take() {
            fail(facts, class, &message);
            facts.push(Fact::Final { ok: false, text: None });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_counts_is_read() {
        let line = "5.3k sent, 1.2k cache write, 3.4k cache hit, 1,250 received. Cost: $0.02 message, $0.05 session.";
        let want = Usage {
            input_tokens: Some(5_300),
            output_tokens: Some(1_250),
            cached_tokens: Some(3_400),
            turns: Some(1),
            cost_usd: Some(0.02),
            ..Usage::default()
        };
        assert_eq!(usage(line), Some(want));
        assert_eq!(usage("no such line"), None);
        assert_eq!(usage("5 sent, 7 received.").unwrap().output_tokens, Some(7));
    }
}
