//! Review: a succeeded task's change is taken, refused, or sent back. Every verdict is kept.

mod accept;
mod verdicts;

pub use accept::{Acceptance, As, NotAccepted, accept};
pub use verdicts::{reject, revise, verdict};
