//! Logs that have outgrown their size. The service's own rotate by themselves; others are only told.

use super::{Context, Finding, bytes, command};
use crate::care::log;
use crate::spool::names;

pub(super) fn look(context: &Context<'_>) -> anyhow::Result<Vec<Finding>> {
    let dir = log::dir(context.spool);
    let most = context.config.logs.service_bytes;
    let mut found = Vec::new();
    if let Some(trouble) = log::trouble(context.spool) {
        found.push(
            Finding::warning(format!(
                "a runner in the background met trouble at {}: {}",
                trouble.at.to_rfc3339(),
                trouble.message
            ))
            .why("nobody else hears of it")
            .fix(format!("see {}", trouble.log.display())),
        );
    }
    let mut total = 0;
    for name in names(&dir)? {
        let size = dir.join(&name).metadata().map_or(0, |m| m.len());
        total += size;
        // Twice: it rotates only between passes.
        if size > most.saturating_mul(2) {
            found.push(
                Finding::warning(format!(
                    "{} has {}; logs.service_bytes is {}",
                    dir.join(&name).display(),
                    bytes(size),
                    bytes(most)
                ))
                .why("it takes up space, and nobody reads that much")
                .fix(command(context, "doctor --fix"))
                .fixable(),
            );
        }
    }
    if found.is_empty() {
        found.push(Finding::ok(format!("logs of the service take up {}", bytes(total))));
    }
    Ok(found)
}

pub(super) fn mend(context: &Context<'_>) -> anyhow::Result<String> {
    let dir = log::dir(context.spool);
    let most = context.config.logs.service_bytes;
    let mut done = Vec::new();
    for name in names(&dir)? {
        let path = dir.join(&name);
        if path.metadata().is_ok_and(|m| m.len() > most) {
            if name.as_encoded_bytes().ends_with(b".1") {
                crate::durable::remove_file(&path)?;
            } else {
                log::rotate(&path)?;
            }
            done.push(name.to_string_lossy().into_owned());
        }
    }
    // What was just put aside as `.1` is as large as before.
    for name in &done {
        let old = dir.join(format!("{name}.1"));
        if old.metadata().is_ok_and(|m| m.len() > most) {
            crate::durable::remove_file(&old)?;
        }
    }
    Ok(format!("rotated {}", done.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::super::support::{Fixture, worst};
    use super::*;

    #[test]
    fn an_oversized_log_is_told_and_rotated() {
        let mut fixture = Fixture::new();
        fixture.config.logs.service_bytes = 100;
        let dir = log::dir(&fixture.spool);
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("service.log"), [b'x'; 50]).unwrap();
        assert_eq!(worst(&look(&fixture.context()).unwrap()).level, Level::Ok);
        std::fs::write(dir.join("service.log"), [b'x'; 500]).unwrap();
        assert!(worst(&look(&fixture.context()).unwrap()).fixable);
        mend(&fixture.context()).unwrap();
        assert_eq!(worst(&look(&fixture.context()).unwrap()).level, Level::Ok);
    }
}
