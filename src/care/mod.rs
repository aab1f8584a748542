//! Looking after a spool: who works it, whether all is true that must be, what it costs.

pub mod check;
pub mod doctor;
pub mod heartbeat;
pub mod log;
pub mod metrics;
pub mod notify;
pub mod service;
pub mod prune;
pub mod retention;
pub mod salvage;
