//! Looking after a spool: who works it, what is wrong with it, what it costs.

pub mod doctor;
pub mod heartbeat;
pub mod log;
pub mod metrics;
pub mod notify;
pub mod service;
