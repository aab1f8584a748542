//! The MCP server, as clients meet it: a child process that speaks on its standard streams.

#![allow(clippy::unwrap_used, reason = "a test may panic anywhere, also in its helpers")]

mod bench;

mod arguments;
mod ends;
mod extension;
mod protocol;
mod reference;
mod resources;
mod setup;
mod tools;
mod waiting;
