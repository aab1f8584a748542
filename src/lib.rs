//! A spool of coding tasks on disk, and a runner that works them off.
//!
//! The directory is the state: a task is where its ticket is, a transition is one rename, and any
//! process may be killed at any instant. Modules are listed from the top of the house to its
//! foundation; a module imports only what stands below it.

pub mod cli;
pub mod mcp;
pub mod setup;
pub mod verbs;
pub mod runner;
pub mod care;
pub mod review;
pub mod attempt;
pub mod intake;
pub mod gate;
pub mod workspace;
pub mod keeper;
pub mod worker;
pub mod spool;
pub mod git;
pub mod process;
pub mod redact;
pub mod durable;
pub mod model;
