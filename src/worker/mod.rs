//! (being built)

pub mod prompt;
