//! Waking up: the bell and the inboxes are watched, and a slow poll is the truth.
//!
//! A watched folder may be removed and made again, events may overflow, and some file systems accept a
//! watch and never tell anything: an event only hastens the next look.

use crate::model::Config;
use crate::spool::Spool;
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// Wakes a waiting thread when something happened in a spool.
#[derive(Debug)]
pub struct Watch {
    _watcher: Option<RecommendedWatcher>,
    woken: Receiver<()>,
    sender: Sender<()>,
}

impl Watch {
    /// Watches the bell, and the inboxes if `inboxes`. Goes on by polling where that cannot be had.
    pub fn new(spool: &Spool, config: &Config, inboxes: bool) -> Self {
        let (sender, woken) = channel();
        let bell = spool.bell();
        if !bell.exists() {
            spool.ring();
        }
        let mut folders: Vec<PathBuf> = Vec::new();
        if inboxes {
            folders.push(spool.inbox());
            folders.extend(config.inbox.iter().map(|i| i.path.clone()));
        }
        let tell = sender.clone();
        let mut watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            // Reading an inbox must not wake the reader.
            if !matches!(event, Ok(Event { kind: EventKind::Access(_), .. })) {
                let _ = tell.send(());
            }
        })
        .ok();
        if let Some(watcher) = &mut watcher {
            let mut watch = |path: &Path| drop(watcher.watch(path, RecursiveMode::NonRecursive));
            watch(&bell);
            folders.iter().for_each(|folder| watch(folder));
        }
        Watch { _watcher: watcher, woken, sender }
    }

    /// A sender that wakes the waiting thread for other reasons.
    pub fn waker(&self) -> Sender<()> {
        self.sender.clone()
    }

    /// Waits until something happened, or `most` has passed. Says whether something happened.
    pub fn wait(&self, most: Duration) -> bool {
        match self.woken.recv_timeout(most) {
            Ok(()) => {
                // One look serves all that happened meanwhile.
                while self.woken.try_recv().is_ok() {}
                true
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => false,
        }
    }

    /// Looks again and again, at once whenever something happened and every `poll` otherwise, until `look`
    /// finds something or `deadline` has passed.
    pub fn until<T>(
        &self,
        poll: Duration,
        deadline: Option<Instant>,
        mut look: impl FnMut() -> Option<T>,
    ) -> Option<T> {
        loop {
            if let Some(found) = look() {
                return Some(found);
            }
            let mut most = poll;
            if let Some(deadline) = deadline {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return None;
                }
                most = most.min(left);
            }
            self.wait(most);
        }
    }
}
