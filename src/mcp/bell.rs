//! One watch on the spool for all that wait in this server, for as long as somebody does.

use crate::runner::Watch;
use crate::verbs::House;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

/// Counts up whenever something happened in the spool. Cheap to clone.
#[derive(Clone)]
pub struct Bell {
    count: watch::Sender<u64>,
    watching: Arc<Mutex<bool>>,
}

impl Bell {
    /// Makes a bell that nobody listens to yet.
    pub fn new() -> Self {
        Bell { count: watch::Sender::new(0), watching: Arc::default() }
    }

    /// Listens. The first change comes once the spool is watched: what happened before is found by looking.
    pub fn listen(&self, house: &House) -> watch::Receiver<u64> {
        let receiver = self.count.subscribe();
        let mut watching = self.watching.lock().unwrap_or_else(PoisonError::into_inner);
        if !*watching {
            let (bell, house) = (self.clone(), house.clone());
            let spawned = std::thread::Builder::new().name("bell".into()).spawn(move || bell.watch(&house));
            // Where there can be no thread, whoever waits still looks at times.
            *watching = spawned.is_ok();
        }
        receiver
    }

    /// Watches until nobody listens any more.
    fn watch(&self, house: &House) {
        let watch = Watch::new(&house.spool, &house.config, false);
        let poll = Duration::from_secs(house.config.poll.max(1));
        loop {
            self.count.send_modify(|n| *n += 1);
            watch.wait(poll);
            let mut watching = self.watching.lock().unwrap_or_else(PoisonError::into_inner);
            if self.count.receiver_count() == 0 {
                *watching = false;
                return;
            }
        }
    }
}
