//! Whether there is room: bytes against the reserve, and inodes.

use super::{Context, Finding, bytes, command};
use crate::durable::free_space;
use std::path::Path;

/// Inodes that must be left for a spool that makes a few dozen files a task.
const FEW_INODES: u64 = 20_000;

pub(super) fn look(context: &Context<'_>) -> anyhow::Result<Vec<Finding>> {
    let mut places = vec![("the spool", context.spool.root())];
    if !context.spool.worktrees().starts_with(context.spool.root()) {
        places.push(("the workspaces", context.spool.worktrees()));
    }
    let mut found = Vec::new();
    for (what, path) in places.into_iter().filter(|(_, p)| p.exists()) {
        let space = free_space(path)?;
        let disk = &context.config.disk;
        let reserve = disk.reserve_bytes.max(space.total / 100 * u64::from(disk.reserve_percent));
        found.push(judge(context, what, space.free, reserve));
        found.extend(inodes(context, what, path));
    }
    Ok(found)
}

fn judge(context: &Context<'_>, what: &str, free: u64, reserve: u64) -> Finding {
    let text = format!("the disk of {what} has {} free; {} must be left", bytes(free), bytes(reserve));
    if free < reserve {
        Finding::error(text)
            .why("no task is taken and none is started: it could not be finished")
            .fix(command(context, "prune"))
    } else if free < reserve.saturating_mul(2) {
        Finding::warning(text).why("soon no task will be started").fix(command(context, "prune"))
    } else {
        Finding::ok(text)
    }
}

fn inodes(context: &Context<'_>, what: &str, path: &Path) -> Option<Finding> {
    let stat = rustix::fs::statvfs(path).ok()?;
    // Some file systems have no fixed number of inodes and say 0.
    let few = stat.f_files > 0 && stat.f_favail < FEW_INODES.min(stat.f_files / 20);
    few.then(|| {
        Finding::warning(format!("the disk of {what} has room for only {} more files", stat.f_favail))
            .why("a disk without inodes is full, whatever its free bytes")
            .fix(command(context, "prune"))
    })
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::super::support::{Fixture, worst};
    use super::*;

    #[test]
    fn less_than_the_reserve_is_an_error_and_less_than_twice_a_warning() {
        let fixture = Fixture::new();
        let level = |free, reserve| judge(&fixture.context(), "x", free, reserve).level;
        assert_eq!(
            (level(9, 10), level(10, 10), level(19, 10), level(20, 10)),
            (Level::Error, Level::Warning, Level::Warning, Level::Ok)
        );
    }

    #[test]
    fn a_reserve_that_no_disk_has_is_told() {
        let mut fixture = Fixture::new();
        fixture.config.disk.reserve_bytes = u64::MAX / 4;
        let found = look(&fixture.context()).unwrap();
        assert_eq!(worst(&found).level, Level::Error);
        assert!(worst(&found).fix.as_ref().unwrap().ends_with("prune"));
    }
}
