//! The direct API worker, against a scripted model server.

#![allow(clippy::unwrap_used, reason = "a test may panic anywhere, also in its helpers")]

#[path = "../modelserver/mod.rs"]
mod modelserver;

mod answers;
mod bench;
mod effort;
mod failures;
mod keys;
mod resume;
mod server;
mod spool;
mod stop;
mod tools;
