//! Plain text: the output is the message.

use super::Parser;
use super::json::MAX_TEXT;
use crate::model::Fact;

/// Keeps the end of the output as one message. It has no opinion about success.
#[derive(Debug, Default)]
pub(super) struct Text {
    tail: Vec<u8>,
}

impl Text {
    /// Returns the text that was kept.
    pub(super) fn take(&mut self) -> Option<String> {
        let tail = std::mem::take(&mut self.tail);
        let text = String::from_utf8_lossy(&tail);
        let text = text.trim_end();
        (!text.trim_start().is_empty()).then(|| super::json::tail(text, MAX_TEXT).to_owned())
    }
}

impl Parser for Text {
    fn line(&mut self, line: &[u8], _facts: &mut Vec<Fact>) {
        self.tail.extend_from_slice(&line[line.len().saturating_sub(MAX_TEXT)..]);
        self.tail.push(b'\n');
        // Cut seldom, so that it costs nothing per line.
        if self.tail.len() > 4 * MAX_TEXT {
            self.tail.drain(..self.tail.len() - MAX_TEXT);
        }
    }

    fn end(&mut self, facts: &mut Vec<Fact>) {
        if let Some(text) = self.take() {
            facts.push(Fact::Message { text });
        }
    }
}
