//! Places that make bad spools: folders that a sync program copies, and those that macOS guards.

use super::{Context, Finding, shell};
use std::path::Path;

/// A place in which a spool, or a program that a service starts, must not lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bad {
    /// What is wrong with it.
    pub what: String,
    /// Why that matters.
    pub why: &'static str,
}

const SYNCED_WHY: &str = "a sync program copies, renames and empties files behind our back: tasks would run twice, and locks mean nothing on the other machine";
const GUARDED_WHY: &str = "macOS lets a background service read these folders only after a question that nobody sees: the service would hang or fail";

/// Folders of sync programs: a folder's name, or its beginning.
const SYNCED: &[(&str, &str)] = &[
    ("Dropbox", "Dropbox"),
    ("OneDrive", "OneDrive"),
    ("Google Drive", "Google Drive"),
    ("GoogleDrive", "Google Drive"),
    ("iCloud", "iCloud"),
    ("Nextcloud", "Nextcloud"),
    ("ownCloud", "ownCloud"),
    ("Syncthing", "Syncthing"),
    ("pCloud", "pCloud"),
    ("Box Sync", "Box"),
];

pub(super) fn look(context: &Context<'_>) -> anyhow::Result<Vec<Finding>> {
    let root = context.spool.root();
    let home = std::env::home_dir();
    let mut found = Vec::new();
    for (what, path) in [("the spool", root), ("the folder of workspaces", context.spool.worktrees())] {
        let bad = synced(path)
            .into_iter()
            .chain(guarded(path, home.as_deref()).filter(|_| cfg!(target_os = "macos")));
        for bad in bad {
            found.push(
                Finding::error(format!("{what} ({}) lies {}", path.display(), bad.what))
                    .why(bad.why)
                    .fix(format!("mv {} $HOME/.workspool", shell(&path.to_string_lossy()))),
            );
        }
        if path == root && root.starts_with(context.spool.worktrees()) {
            break;
        }
    }
    if found.is_empty() {
        found.push(Finding::ok("no sync program and no guarded folder is in the way"));
    }
    Ok(found)
}

/// Whether a sync program looks after a folder: by the names above it, and by what such programs leave there.
pub fn synced(path: &Path) -> Option<Bad> {
    let bad = |program: &str| Some(Bad { what: format!("in a folder of {program}"), why: SYNCED_WHY });
    for folder in path.ancestors() {
        let Some(name) = folder.file_name().and_then(|n| n.to_str()) else { continue };
        if name == "Mobile Documents" && folder.parent().is_some_and(|p| p.ends_with("Library")) {
            return bad("iCloud");
        }
        if name == "CloudStorage" && folder.parent().is_some_and(|p| p.ends_with("Library")) {
            return bad("a cloud drive");
        }
        // "Dropbox", "Dropbox (Team)", "OneDrive - Firm", but not "dropbox-clone" with a project in it.
        let hit = SYNCED.iter().find(|(start, _)| {
            name.strip_prefix(start).is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '(']))
        });
        if let Some((_, program)) = hit {
            return bad(program);
        }
        if folder.join(".dropbox").exists() && folder.join(".dropbox.cache").exists() {
            return bad("Dropbox");
        }
        if folder.join(".stfolder").exists() {
            return bad("Syncthing");
        }
    }
    None
}

/// Whether macOS guards a folder from programs that nobody has allowed it to.
pub fn guarded(path: &Path, home: Option<&Path>) -> Option<Bad> {
    let bad = |name: &str| Some(Bad { what: format!("in {name}, which macOS guards"), why: GUARDED_WHY });
    if let Some(inside) = home.and_then(|home| path.strip_prefix(home).ok()) {
        for name in ["Desktop", "Documents", "Downloads", "Pictures", "Movies", "Music"] {
            if inside.starts_with(name) {
                return bad(name);
            }
        }
    }
    if path.starts_with("/Volumes") {
        return bad("/Volumes");
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::super::support::{Fixture, worst};
    use super::*;
    use crate::spool::Spool;

    #[test]
    fn folders_of_sync_programs_are_told_by_name() {
        let synced = |p: &str| synced(Path::new(p)).map(|b| b.what);
        for path in [
            "/home/me/Dropbox/spool",
            "/home/me/Dropbox (Team)/spool",
            "/Users/me/OneDrive - Firm/x/spool",
            "/Users/me/Library/Mobile Documents/com~apple~CloudDocs/spool",
            "/Users/me/Library/CloudStorage/GoogleDrive-me/spool",
            "/home/me/Nextcloud/spool",
        ] {
            assert!(synced(path).is_some(), "{path}");
        }
        for path in ["/home/me/.workspool", "/home/me/dropbox-clone/spool", "/home/me/Dropboxes/spool", "/"] {
            assert_eq!(synced(path), None, "{path}");
        }
    }

    #[test]
    fn a_spool_in_such_a_folder_is_an_error() {
        let fixture = Fixture::new();
        let folder = fixture.dir.path().join("sync");
        std::fs::create_dir_all(folder.join(".stfolder")).unwrap();
        let spool = Spool::open(&folder.join("spool")).unwrap();
        let context = Context { spool: &spool, config: &fixture.config };
        let found = look(&context).unwrap();
        assert_eq!(worst(&found).level, Level::Error);
        assert!(worst(&found).what.contains("Syncthing"));
        assert_eq!(worst(&look(&fixture.context()).unwrap()).level, Level::Ok);
    }

    #[test]
    fn guarded_folders_are_those_of_the_home_and_of_other_disks() {
        let home = Some(Path::new("/Users/me"));
        let guarded = |p: &str| guarded(Path::new(p), home).is_some();
        assert!(guarded("/Users/me/Documents/spool") && guarded("/Volumes/Stick/spool"));
        assert!(
            !guarded("/Users/me/.workspool") && !guarded("/Users/other/Documents/x") && !guarded("/opt/x")
        );
    }
}
