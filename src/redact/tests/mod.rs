//! What must be masked, what must not, and what the log does under pressure.
//!
//! No token stands here as such: all are put together at run time, so that no scanner of repositories
//! takes this folder for a leak.

mod corpus;
mod known;
mod log;
mod misses;
mod splits;
