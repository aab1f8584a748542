//! What the run says: facts on standard output, each masked, a line each.

use super::failure::Failure;
use crate::model::Fact;
use crate::redact::Redactor;
use serde_json::Value;
use std::io::Write as _;

/// Fields that are no text of anybody: masking them could only break them.
const PLAIN: &[&str] = &["fact", "id", "class", "kind", "scope", "until"];

/// Prints facts.
pub(super) struct Output {
    redactor: Redactor,
    broken: bool,
}

impl Output {
    /// Makes an output that masks what `redactor` knows.
    pub fn new(redactor: Redactor) -> Output {
        Output { redactor, broken: false }
    }

    /// Prints a fact.
    pub fn say(&mut self, fact: Fact) {
        let Ok(mut value) = serde_json::to_value(fact) else { return };
        mask(&self.redactor, &mut value, PLAIN);
        let mut out = std::io::stdout().lock();
        self.broken |= writeln!(out, "{value}").and_then(|()| out.flush()).is_err();
    }

    /// Prints how the run failed: the limit that it ran into, the error, and that this is the end.
    pub fn fail(&mut self, failure: &Failure) {
        if let Some((kind, until)) = failure.limit() {
            self.say(Fact::Limit { kind, until, rejected: true });
        }
        self.say(Fact::Error { class: failure.class, message: failure.message.clone() });
        self.say(Fact::Final { ok: false, text: None });
    }

    /// Whether something could not be printed.
    pub fn is_broken(&self) -> bool {
        self.broken
    }
}

/// Masks every text in a value but those under the keys named in `plain`. Says whether it changed anything.
pub(super) fn mask(redactor: &Redactor, value: &mut Value, plain: &[&str]) -> bool {
    match value {
        Value::String(text) => match redactor.str(text) {
            std::borrow::Cow::Owned(masked) => {
                *text = masked;
                true
            }
            std::borrow::Cow::Borrowed(_) => false,
        },
        Value::Array(items) => items.iter_mut().fold(false, |any, item| mask(redactor, item, plain) | any),
        Value::Object(fields) => fields
            .iter_mut()
            .filter(|(name, _)| !plain.contains(&name.as_str()))
            .fold(false, |any, (_, field)| mask(redactor, field, plain) | any),
        _ => false,
    }
}
