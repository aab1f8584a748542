//! Workers as data: the command lines of the built-in profiles, a program added by a file alone, and which
//! worker and model a task gets.

#![allow(clippy::unwrap_used, reason = "a test may panic anywhere, also in its helpers")]

#[allow(dead_code, unused_imports, reason = "each test crate that includes this uses a part of it")]
#[path = "../spec/support/mod.rs"]
mod support;

mod accounts;
mod commands;
mod dsh;
mod linked;
mod models;
mod programs;
mod route;
mod sessions;
mod vscode;
