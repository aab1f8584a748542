//! The nouns: what a task, a ticket, a result are, and how each is written. No input or output here.

pub mod fact;

pub use fact::{ErrorClass, Fact, LimitKind, Usage, UsageScope};
