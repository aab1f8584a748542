//! The specification as tests: a module a feature, each test one thing that a user can rely on.
//!
//! Every test has a world of its own ([`support::World`]): a home, a spool and repositories in a temporary
//! folder. It runs the real program, as a user does, and reads the spool with the library's types. When a
//! world is dropped, none of its processes may be alive.
#![allow(clippy::unwrap_used, reason = "a test's helpers are tests, too")]

mod support;

mod again;
mod bad_input;
mod budgets;
mod cancel;
mod ceilings;
mod clean_gate;
mod clones;
mod confine;
mod copies;
mod failures;
mod full_disk;
mod gate;
mod inbox;
mod lacks;
mod logs;
mod order;
mod overlay;
mod permissions;
mod results;
mod review;
mod runners;
mod submit;
mod supervision;
mod surface;
mod tampering;
#[cfg(target_os = "linux")]
mod warm;
mod workers;
mod worktree;
