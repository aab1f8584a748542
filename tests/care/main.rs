//! Looking after a spool: check, audit, salvage, prune.

#![allow(clippy::unwrap_used, reason = "a test may panic anywhere, also in its helpers")]

#[allow(dead_code, unused_imports, reason = "each test target uses a part")]
#[path = "../spec/support/mod.rs"]
mod support;

mod audit;
mod check;
mod prune;
mod salvage;
