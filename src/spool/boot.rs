//! What a restart of the machine cut short.
//!
//! The first records of an attempt are not waited for: the claim is synced, and what ran in another boot is
//! dead. But after a power loss a record that is not there does not say that nothing ran. So, once in each
//! boot and before anything is claimed or recovered, every attempt that was claimed before is marked.

use super::{AttemptDir, Spool, parsed};
use crate::durable;
use crate::model::Ticket;
use crate::process::boot_id;
use anyhow::Context as _;
use std::time::SystemTime;

/// The mark, in an attempt's folder.
const CUT: &str = "cut-by-restart";

impl Spool {
    /// Whether somebody looked in this boot already for what the restart cut short.
    pub fn knows_boot(&self) -> anyhow::Result<bool> {
        let boot = boot_id().context("cannot read the boot's id")?;
        Ok(std::fs::read(self.lock_path("boot")).is_ok_and(|id| id == boot.as_bytes()))
    }

    /// Marks the attempts that were claimed before the machine was started, if nobody has yet.
    pub fn mark_cut_attempts(&self) -> anyhow::Result<()> {
        let boot = boot_id().context("cannot read the boot's id")?;
        let known = self.lock_path("boot");
        if self.knows_boot()? {
            return Ok(());
        }
        let lock = self.lock("claim");
        let _alone = lock.take().context("cannot lock for claiming")?;
        if self.knows_boot()? {
            return Ok(());
        }
        // A spool without the file was last used by a version that waited for every record.
        if known.exists() {
            for ticket in parsed::<Ticket>(&self.running())? {
                let attempt = self.task(ticket.task).attempt(ticket.attempt);
                durable::ensure_dir(attempt.path())?;
                durable::create_new(&attempt.file(CUT), b"")?;
            }
        }
        durable::replace(&known, boot.as_bytes()).with_context(|| format!("cannot write {}", known.display()))
    }
}

impl AttemptDir {
    /// Whether the machine was restarted after this attempt was claimed.
    pub fn was_cut(&self) -> bool {
        self.file(CUT).exists()
    }

    /// When a restart after the claim was noticed. What was written before it is of an earlier boot.
    pub fn cut_at(&self) -> Option<SystemTime> {
        self.file(CUT).metadata().and_then(|m| m.modified()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Short, TaskId};

    #[test]
    fn only_what_was_claimed_in_another_boot_is_marked() {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::open(&dir.path().join("s")).unwrap();
        let claimed = || {
            let ticket = Ticket {
                key: 1,
                task: TaskId::generate(),
                repo: Short::NONE,
                worker: Short::of("shell"),
                attempt: 1,
            };
            std::fs::write(spool.running().join(ticket.to_string()), "").unwrap();
            spool.task(ticket.task).attempt(1)
        };
        let first = claimed();
        spool.mark_cut_attempts().unwrap();
        assert!(!first.was_cut(), "of before such marks were made");
        std::fs::write(spool.lock_path("boot"), "another").unwrap();
        spool.mark_cut_attempts().unwrap();
        assert!(first.was_cut());
        let second = claimed();
        spool.mark_cut_attempts().unwrap();
        assert!(!second.was_cut(), "claimed in this boot");
    }
}
