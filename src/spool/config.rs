//! Reading the owner's configuration: the file, then the environment over it.

use super::{Spool, SpoolError};
use crate::model::config::Config;
use crate::model::{Problem, ProblemKind, WorkerName};
use std::path::PathBuf;

/// A configuration that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error(transparent)]
    Spool(#[from] SpoolError),
    /// Something in it is wrong.
    #[error("{path}: {1}", path = .0.display())]
    File(PathBuf, Box<Problem>),
    /// An environment variable is wrong.
    #[error("{0}: {1}")]
    Environment(&'static str, String),
}

/// Loads the configuration of a spool.
pub fn load(spool: &Spool) -> Result<Config, ConfigError> {
    let path = spool.config_file();
    let mut config: Config = match std::fs::read_to_string(&path) {
        Ok(text) => {
            crate::model::input::toml(&text).map_err(|p| ConfigError::File(path.clone(), Box::new(p)))?
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Config::default(),
        Err(e) => return Err(SpoolError::io("read", &path, e).into()),
    };
    check(&config).map_err(|p| ConfigError::File(path, Box::new(p)))?;
    if let Some(n) = number("WORKSPOOL_MAX_CONCURRENCY")? {
        config.max_concurrency = n;
    }
    if let Some(n) = number("WORKSPOOL_REPO_CONCURRENCY")? {
        config.repo_concurrency = n;
    }
    if let Some(path) = std::env::var_os("WORKSPOOL_WORKTREES") {
        config.worktrees = Some(path.into());
    }
    Ok(config)
}

/// The worker that the environment names (`WORKSPOOL_WORKER`); it comes after the configuration's.
pub fn environment_worker() -> Result<Option<WorkerName>, ConfigError> {
    const NAME: &str = "WORKSPOOL_WORKER";
    match std::env::var(NAME) {
        Ok(value) if !value.is_empty() => {
            value.parse().map(Some).map_err(|e| ConfigError::Environment(NAME, e))
        }
        _ => Ok(None),
    }
}

fn check(config: &Config) -> Result<(), Problem> {
    let invalid = |field: &str, message: &str| Err(Problem::new(ProblemKind::Invalid, message).at(field));
    if config.max_concurrency == 0 {
        return invalid("max_concurrency", "0 would run nothing: expected at least 1");
    }
    if config.repo_concurrency == 0 {
        return invalid("repo_concurrency", "0 would run nothing: expected at least 1");
    }
    if config.poll == 0 {
        return invalid("poll", "expected at least 1 second");
    }
    if config.disk.reserve_percent > 90 {
        return invalid("disk.reserve_percent", "expected 0 to 90");
    }
    if config.worktrees.as_ref().is_some_and(|p| !p.is_absolute()) {
        return invalid("worktrees", "expected an absolute path");
    }
    if config
        .inbox
        .iter()
        .any(|i| !i.path.is_absolute() || i.results.as_ref().is_some_and(|r| !r.is_absolute()))
    {
        return invalid("inbox", "expected absolute paths");
    }
    Ok(())
}

fn number(name: &'static str) -> Result<Option<u32>, ConfigError> {
    match std::env::var(name) {
        Ok(value) if !value.is_empty() => match value.parse() {
            Ok(n) if n > 0 => Ok(Some(n)),
            _ => Err(ConfigError::Environment(name, format!("{value:?}: expected a whole number from 1"))),
        },
        _ => Ok(None),
    }
}
