//! The head of the queue: the next tickets in order, kept beside the locks so that claiming one does not list a
//! long queue each time.
//!
//! Only a hint. Whoever claims (and holds the lock for that) makes the file, lists the queue, and then writes into
//! the file that was made. Whoever puts a ticket into the queue removes the file afterwards: a list that was being
//! made without that ticket is then written to a file that nobody finds. What a crash leaves is out of date after
//! [`FRESH`], and a name in it whose ticket is gone is passed over.

use super::{Spool, parsed};
use crate::durable;
use crate::model::Ticket;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::time::Duration;

/// How many tickets are kept.
const MOST: usize = 256;
/// A queue that is not longer is listed each time.
const SHORT: usize = 16;
/// For how long what was seen is believed.
const FRESH: Duration = Duration::from_secs(2);

/// The next tickets, in order.
#[derive(Debug)]
pub struct Head {
    file: Option<File>,
    /// The last one is the next.
    tickets: Vec<Ticket>,
    /// Whether these are all there are.
    whole: bool,
}

impl Head {
    /// Reads the head of the queue, or lists the queue. To be called with the lock for claiming.
    pub fn of(spool: &Spool) -> io::Result<Head> {
        match Head::read(spool) {
            Some(head) => Ok(head),
            None => Head::list(spool),
        }
    }

    /// Lists the queue. To be called with the lock for claiming.
    pub fn list(spool: &Spool) -> io::Result<Head> {
        // Not a fault: without it the next one lists, too.
        let path = path(spool);
        let options = || OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path);
        let file = options().ok();
        let mut tickets: Vec<Ticket> = parsed(&spool.queue())?;
        if tickets.len() <= SHORT {
            let _ = std::fs::remove_file(&path);
            tickets.reverse();
            return Ok(Head { file: None, tickets, whole: true });
        }
        tickets.reverse();
        if let Some(mut file) = file.as_ref() {
            let from = tickets.len().saturating_sub(MOST);
            let text: String = tickets.iter().skip(from).map(|ticket| format!("{ticket}\n")).collect();
            if file.write_all(text.as_bytes()).is_err() {
                let _ = std::fs::remove_file(&path);
            }
        }
        Ok(Head { file, tickets, whole: true })
    }

    fn read(spool: &Spool) -> Option<Head> {
        let mut file = OpenOptions::new().read(true).write(true).open(path(spool)).ok()?;
        let age = file.metadata().ok()?.modified().ok()?.elapsed().ok()?;
        let mut text = String::new();
        file.read_to_string(&mut text).ok()?;
        let tickets: Vec<Ticket> = text.lines().map(str::parse).collect::<Result<_, _>>().ok()?;
        let good = age < FRESH && !tickets.is_empty() && text.ends_with('\n');
        good.then_some(Head { file: Some(file), tickets, whole: false })
    }

    /// The tickets, the next one first.
    pub fn tickets(&self) -> impl Iterator<Item = &Ticket> {
        self.tickets.iter().rev()
    }

    /// Whether there is no other ticket in the queue.
    pub fn is_whole(&self) -> bool {
        self.whole
    }

    /// Says that the first `count` tickets are in the queue no more.
    pub fn taken(self, count: usize) {
        let Some(file) = self.file else { return };
        let left = self.tickets.len().saturating_sub(count);
        let from = self.tickets.len().saturating_sub(MOST).min(left);
        let bytes: usize = self.tickets[from..left].iter().map(|t| t.to_string().len() + 1).sum();
        // Keeps the time of the list: what is left is no newer.
        let seen = file.metadata().and_then(|m| m.modified());
        let cut = file.set_len(bytes as u64).and(seen).and_then(|seen| file.set_modified(seen));
        if cut.is_err() {
            let _ = file.set_len(0);
        }
    }
}

impl Spool {
    /// Says that the queue has got another ticket. To be called after it has.
    pub(super) fn queue_grew(&self) {
        // One that cannot be removed is out of date soon.
        let _ = durable::remove_file(&path(self));
    }
}

fn path(spool: &Spool) -> PathBuf {
    spool.lock_path("next")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Short, TaskId};

    struct Bench {
        _dir: tempfile::TempDir,
        spool: Spool,
    }

    impl Bench {
        fn new(count: u64) -> Bench {
            let dir = tempfile::tempdir().unwrap();
            let spool = Spool::open(&dir.path().join("s")).unwrap();
            let bench = Bench { _dir: dir, spool };
            (100..100 + count).for_each(|key| bench.put(key));
            bench
        }

        fn put(&self, key: u64) {
            let (repo, worker) = (Short::NONE, Short::of("w"));
            let ticket = Ticket { key, task: TaskId::generate(), repo, worker, attempt: 1 };
            std::fs::write(self.spool.queue().join(ticket.to_string()), "").unwrap();
        }

        /// The keys of the next tickets, as somebody sees them who claims the first of them.
        fn claim(&self) -> Option<u64> {
            let head = Head::of(&self.spool).unwrap();
            let first = head.tickets().next().copied()?;
            std::fs::remove_file(self.spool.queue().join(first.to_string())).unwrap();
            head.taken(1);
            Some(first.key)
        }

        fn kept(&self) -> Option<usize> {
            std::fs::read_to_string(path(&self.spool)).ok().map(|text| text.lines().count())
        }
    }

    #[test]
    fn a_long_queue_is_listed_once_for_many_claims_and_in_order() {
        let bench = Bench::new(MOST as u64 + 50);
        assert_eq!((bench.claim(), bench.kept()), (Some(100), Some(MOST - 1)));
        // Nobody said that this one came: it is out of sight until the list is made anew.
        bench.put(1);
        assert_eq!((bench.claim(), bench.kept()), (Some(101), Some(MOST - 2)));
        bench.spool.queue_grew();
        assert_eq!(bench.kept(), None);
        assert_eq!((bench.claim(), bench.claim()), (Some(1), Some(102)));
        let left: Vec<u64> = std::iter::from_fn(|| bench.claim()).collect();
        assert_eq!(left, (103..100 + MOST as u64 + 50).collect::<Vec<_>>());
        assert_eq!(bench.kept(), None, "a short queue needs no list");
    }

    #[test]
    fn a_list_that_is_old_torn_or_nonsense_is_not_believed() {
        let bench = Bench::new(40);
        bench.claim();
        bench.put(1);
        let file = File::options().write(true).open(path(&bench.spool)).unwrap();
        file.set_modified(std::time::SystemTime::now() - FRESH * 2).unwrap();
        assert_eq!(bench.claim(), Some(1), "it was old");
        for torn in ["", "nonsense\n", "00000000000100-"] {
            bench.put(2);
            std::fs::write(path(&bench.spool), torn).unwrap();
            assert_eq!(bench.claim(), Some(2), "{torn:?}");
        }
    }

    #[test]
    fn a_list_made_while_the_queue_grew_is_found_by_nobody() {
        let bench = Bench::new(40);
        let head = Head::list(&bench.spool).unwrap();
        // Between the listing and its use somebody puts another ticket there.
        bench.put(1);
        bench.spool.queue_grew();
        head.taken(0);
        assert_eq!(bench.kept(), None);
        assert_eq!(bench.claim(), Some(1));
    }
}
