//! Looking after a spool: is everything true that must be, and what may go.

pub mod check;
pub mod prune;
pub mod salvage;
