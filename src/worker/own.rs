//! Our own lines: each is a fact as JSON.

use super::Parser;
use super::json::{self, Lines};
use crate::model::Fact;

/// Reads the facts that our own agent and the mock worker print.
///
/// A kind of fact that is not known yet is ignored; a known one that cannot be read is counted.
#[derive(Debug, Default)]
pub(super) struct Own {
    lines: Lines,
}

impl Parser for Own {
    fn line(&mut self, line: &[u8], facts: &mut Vec<Fact>) {
        for value in self.lines.read(line, facts) {
            match serde_json::from_value(value) {
                Ok(fact) => facts.push(fact),
                Err(error) if error.to_string().starts_with("unknown variant") => {}
                Err(error) => facts.push(json::unreadable(line.len(), &error.to_string())),
            }
        }
    }

    fn end(&mut self, facts: &mut Vec<Fact>) {
        self.lines.end(facts);
    }
}
