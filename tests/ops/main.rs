//! Installing and operating: configuration, heartbeat, doctor, service, metrics, notifications, and what
//! the documents say of them.
#![allow(clippy::unwrap_used, reason = "a test's helpers are tests, too")]

mod config;
mod docs;
mod doctor;
#[cfg(feature = "faults")]
mod faults;
mod metrics;
mod notify;
mod packaging;
mod real;
mod retention;
mod runner;
mod service;
mod shells;
mod support;
