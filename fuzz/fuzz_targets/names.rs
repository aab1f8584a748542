//! Names of tickets and ids: a folder may hold any name, and only our own spelling of one is ours.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::fmt::Display;
use std::str::FromStr;
use workspool::model::{DoneTicket, RequestName, TaskId, Ticket, TimedTicket, WorkerName};

fn same<T: FromStr + Display>(text: &str) {
    if let Ok(read) = text.parse::<T>() {
        assert_eq!(read.to_string(), text, "two names for one thing");
    }
}

fuzz_target!(|text: &str| {
    same::<Ticket>(text);
    same::<TimedTicket>(text);
    same::<DoneTicket>(text);
    same::<RequestName>(text);
    same::<WorkerName>(text);
    // People may type an id in capitals.
    if let Ok(id) = text.parse::<TaskId>() {
        assert_eq!(id.to_string(), text.to_ascii_lowercase());
    }
});
