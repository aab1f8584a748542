//! The spool: its folders, its tickets and how they move, requests, history, configuration, queries.

mod boot;
mod breakers;
pub mod config;
pub mod counters;
mod ending;
mod error;
pub mod events;
mod head;
mod journal;
mod layout;
mod lookup;
pub mod notices;
mod query;
mod requests;
mod tickets;

pub use breakers::Breaker;
pub use ending::{Needs, bare_result, bare_result_of, waiting_message};
pub use error::SpoolError;
pub use events::EventLog;
pub use head::Head;
pub use journal::{Entry, Journal};
pub use layout::{AttemptDir, FOLDERS, HOME_VARIABLE, Spool, TaskDir, is_empty, names, parsed};
pub use query::{Tickets, dropped_name};
pub use tickets::{DONE_FOLDER, Found, Hold, LockedTask, Place, done_place, read_json, ticket_of};
