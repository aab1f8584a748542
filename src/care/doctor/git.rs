//! Whether git is there and new enough.

use super::{Context, Finding};
use crate::git::version;

pub(super) fn look(_: &Context<'_>) -> anyhow::Result<Vec<Finding>> {
    Ok(vec![judge(version().map_err(|e| e.to_string()))])
}

fn judge(version: Result<(u32, u32), String>) -> Finding {
    match version {
        Ok((major, minor)) => Finding::ok(format!("git {major}.{minor}")),
        Err(e) => Finding::error(e)
            .why("every task with a repository needs git: without it, none can be submitted")
            .fix(if cfg!(target_os = "macos") { "brew install git" } else { "sudo apt install git" }),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    #[test]
    fn the_version_is_said_and_its_lack_is_an_error() {
        assert_eq!(judge(Ok((2, 50))), Finding::ok("git 2.50"));
        let bad = judge(Err("git is too old".into()));
        assert_eq!(bad.level, Level::Error);
        assert!(bad.fix.is_some() && bad.why.is_some());
    }
}
