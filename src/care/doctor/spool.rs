//! Whether the spool is private, ours, and whole.

use super::{Context, Finding, command, shell};
use anyhow::Context as _;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

pub(super) fn look(context: &Context<'_>) -> anyhow::Result<Vec<Finding>> {
    let root = context.spool.root();
    let meta = root.metadata().with_context(|| format!("cannot look at {}", root.display()))?;
    let mut found = Vec::new();
    let user = rustix::process::geteuid().as_raw();
    if meta.uid() != user {
        found.push(
            Finding::error(format!("{} belongs to user {}, and you are {user}", root.display(), meta.uid()))
                .why("files would be written that one of the two cannot read")
                .fix(format!("sudo chown -R $(id -u) {}", shell(&root.to_string_lossy()))),
        );
    }
    let mode = meta.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        found.push(
            Finding::error(format!("{} is open to others (mode {mode:03o})", root.display()))
                .why(
                    "prompts, logs and diffs are private, and whoever may write here can run commands as you",
                )
                .fix(format!("chmod 700 {}", shell(&root.to_string_lossy())))
                .fixable(),
        );
    }
    let missing = missing(context);
    if !missing.is_empty() {
        found.push(
            Finding::error(format!("folders are missing: {}", missing.join(", ")))
                .why("tickets cannot be moved there")
                .fix(command(context, "doctor --fix"))
                .fixable(),
        );
    }
    if found.is_empty() {
        found.push(Finding::ok(format!("{} is private and whole", root.display())));
    }
    Ok(found)
}

pub(super) fn mend(context: &Context<'_>) -> anyhow::Result<String> {
    let root = context.spool.root();
    fs::set_permissions(root, fs::Permissions::from_mode(0o700))?;
    let missing = missing(context);
    for folder in &missing {
        crate::durable::ensure_dir(&root.join(folder))?;
    }
    let made = if missing.is_empty() { String::new() } else { format!(", made {}", missing.join(", ")) };
    Ok(format!("{} has mode 700{made}", root.display()))
}

fn missing(context: &Context<'_>) -> Vec<&'static str> {
    crate::spool::FOLDERS.iter().copied().filter(|f| !context.spool.root().join(f).is_dir()).collect()
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::super::support::{Fixture, worst};
    use super::*;

    #[test]
    fn an_open_spool_and_a_missing_folder_are_errors_and_mended() {
        let fixture = Fixture::new();
        assert_eq!(worst(&look(&fixture.context()).unwrap()).level, Level::Ok);
        fs::remove_dir(fixture.spool.running()).unwrap();
        fs::set_permissions(fixture.root(), fs::Permissions::from_mode(0o750)).unwrap();
        let found = look(&fixture.context()).unwrap();
        assert_eq!(found.len(), 2);
        assert!(
            found.iter().any(|f| f.what.contains("750")) && found.iter().any(|f| f.what.contains("running"))
        );
        mend(&fixture.context()).unwrap();
        assert_eq!(worst(&look(&fixture.context()).unwrap()).level, Level::Ok);
    }
}
