//! Files that were being written, and trees that were being deleted, when something died.

use super::{Context, Finding, bytes, command};
use crate::git::worktree::delete_tree;
use crate::spool::names;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

/// Nothing is written, or deleted, for as long as this.
const OLD: Duration = Duration::from_secs(24 * 3600);

pub(super) fn look(context: &Context<'_>) -> anyhow::Result<Vec<Finding>> {
    let old = old(context, SystemTime::now())?;
    if old.is_empty() {
        return Ok(vec![Finding::ok("nothing is left over")]);
    }
    let size =
        old.iter().filter_map(|p| p.symlink_metadata().ok()).filter(|m| m.is_file()).map(|m| m.len()).sum();
    let finding =
        Finding::note(format!("{} leftovers are older than a day ({} in files)", old.len(), bytes(size)))
            .why("they take up space; nothing uses them")
            .fix(command(context, "doctor --fix"))
            .fixable();
    Ok(vec![finding])
}

pub(super) fn mend(context: &Context<'_>) -> anyhow::Result<String> {
    let old = old(context, SystemTime::now())?;
    for path in &old {
        if path.symlink_metadata().is_ok_and(|m| m.is_dir()) {
            delete_tree(path)?;
        } else {
            crate::durable::remove_file(path)?;
        }
    }
    Ok(format!("removed {} leftovers", old.len()))
}

/// What lies in `tmp/` and in the trash, belongs to no running task, and is old.
fn old(context: &Context<'_>, now: SystemTime) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    // What was taken out of use lies here until it is deleted: all in it was kept before.
    let trash = crate::workspace::trash(context.spool);
    for dir in [context.spool.tmp(), trash] {
        for name in names(&dir)? {
            let path = dir.join(&name);
            let running = name
                .to_str()
                .and_then(|n| n.split_once('.')?.0.parse().ok())
                .is_some_and(|id| context.spool.task(id).lock().is_held().unwrap_or(true));
            let age = fs::symlink_metadata(&path)
                .and_then(|m| m.modified())
                .ok()
                .and_then(|m| now.duration_since(m).ok());
            if !running && age.is_some_and(|a| a > OLD) {
                found.push(path);
            }
        }
    }
    // Half-written files beside the spool's own.
    for name in names(context.spool.root())? {
        let path = context.spool.root().join(&name);
        let age = fs::symlink_metadata(&path)
            .and_then(|m| m.modified())
            .ok()
            .and_then(|m| now.duration_since(m).ok());
        if name.to_str().is_some_and(|n| n.starts_with('.') && n.ends_with(".tmp"))
            && age.is_some_and(|a| a > OLD)
        {
            found.push(path);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::super::support::{Fixture, worst};
    use super::*;

    fn age(path: &std::path::Path) {
        let file = fs::File::open(path).unwrap();
        file.set_modified(SystemTime::now() - OLD * 2).unwrap();
    }

    #[test]
    fn old_leftovers_go_and_young_ones_stay() {
        let fixture = Fixture::new();
        let tmp = fixture.spool.tmp();
        let trash = fixture.spool.worktrees().join(".trash/x");
        fs::create_dir_all(&trash).unwrap();
        for (name, old) in [("a.tmp", true), ("b.tmp", false)] {
            fs::write(tmp.join(name), "x").unwrap();
            if old {
                age(&tmp.join(name));
            }
        }
        fs::write(fixture.root().join(".1-2-3.tmp"), "x").unwrap();
        age(&fixture.root().join(".1-2-3.tmp"));
        fs::write(trash.join("file"), "x").unwrap();
        age(&trash);
        let found = look(&fixture.context()).unwrap();
        assert!(worst(&found).fixable && worst(&found).what.starts_with("3 "), "{found:?}");
        mend(&fixture.context()).unwrap();
        assert!(tmp.join("b.tmp").exists() && !tmp.join("a.tmp").exists() && !trash.exists());
        assert_eq!(worst(&look(&fixture.context()).unwrap()).level, Level::Ok);
    }
}
