//! Single paths of a tree: putting them back to how they were, and keeping them out of snapshots.

use super::bytes;
use super::oid::Oid;
use super::runner::GitError;
use super::view::View;
use std::path::Path;

/// Puts paths of a view's tree back to what they are in `commit`, and the view's index with them. Two
/// processes, however many paths.
pub fn checkout_paths(view: &View, commit: &Oid, paths: &[&Path]) -> Result<(), GitError> {
    view.git().writes("read-tree").args(["--reset", commit.as_str()]).run()?;
    if paths.is_empty() {
        return Ok(());
    }
    let mut list = Vec::new();
    for path in paths {
        list.extend_from_slice(bytes::of_path(path));
        list.push(0);
    }
    view.git()
        .writes("checkout-index")
        .args(["--force", "--index", "-z", "--stdin"])
        .stdin(list)
        .run()
        .map(drop)
}

impl View {
    /// Keeps paths out of all snapshots: what was copied in is not the worker's work.
    pub fn exclude(&self, paths: &[std::path::PathBuf]) -> std::io::Result<()> {
        let mut lines = vec![b'\n'];
        for path in paths {
            lines.push(b'/');
            for byte in bytes::of_path(path) {
                if b"\\*?[]!# ".contains(byte) {
                    lines.push(b'\\');
                }
                lines.push(*byte);
            }
            lines.push(b'\n');
        }
        let info = self.dir.join("info");
        crate::durable::ensure_dir(&info)?;
        crate::durable::append(&info.join("exclude"), &lines)
    }
}

impl super::Repo {
    /// Reads the message of a commit, byte for byte.
    pub fn message_of(&self, commit: &Oid) -> Result<Vec<u8>, GitError> {
        let object = self.shared().reads("cat-file").args(["commit", commit.as_str()]).run()?;
        let body = object.windows(2).position(|w| w == b"\n\n").map_or(object.len(), |at| at + 2);
        Ok(object[body..].to_vec())
    }
}
