//! Reading the owner's configuration: flags over the environment, the environment over the file, the file
//! over the defaults.
//!
//! A flag (`--set KEY=VALUE`) is put into our own environment, so that it also holds for the supervisors
//! that we start.

use super::{Spool, SpoolError};
use crate::model::config::Config;
use crate::model::config_keys::{Key, keys};
use crate::model::{Problem, ProblemKind, WorkerName, input};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock, PoisonError};

/// A configuration that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error(transparent)]
    Spool(#[from] SpoolError),
    /// Something in it is wrong.
    #[error("{path}: {1}", path = .0.display())]
    File(PathBuf, Box<Problem>),
    /// An environment variable, or a flag, is wrong.
    #[error("{0}: {1}")]
    Environment(String, String),
}

/// Where a value comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The command line.
    Flag,
    /// The environment.
    Environment,
    /// The file.
    File,
    /// Nobody said anything else.
    Default,
}

impl Source {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Source::Flag => "flag",
            Source::Environment => "environment",
            Source::File => "file",
            Source::Default => "default",
        }
    }
}

/// A key with the value that holds.
#[derive(Debug, Clone, serde::Serialize)]
pub struct Setting {
    /// The key's path.
    pub key: String,
    /// The value that holds; null if none does.
    pub value: Value,
    /// Where it comes from.
    pub source: Source,
    /// The variable that sets this key.
    pub variable: String,
    /// What it means.
    pub about: String,
}

/// Keys that the command line has set, by their variables.
static FLAGS: OnceLock<BTreeSet<String>> = OnceLock::new();

/// Variables of ours that are no keys.
const OTHER_VARIABLES: &[&str] = &[super::HOME_VARIABLE, "WORKSPOOL_CONFIG", "WORKSPOOL_WORKER"];

/// Takes `KEY=VALUE` from the command line.
///
/// # Safety
/// It changes the environment: no other thread may run yet.
pub unsafe fn set_flags(assignments: &[String]) -> Result<(), ConfigError> {
    let mut names = BTreeSet::new();
    for text in assignments {
        let wrong = |message: String| ConfigError::Environment("--set".into(), message);
        let (path, value) =
            text.split_once('=').ok_or_else(|| wrong(format!("{text:?}: expected KEY=VALUE")))?;
        let Some(key) = keys().iter().find(|k| k.path == path.trim()) else {
            let all: Vec<&str> = keys().iter().map(|k| k.path.as_str()).collect();
            let hint = input::nearest(path.trim(), &all).map_or_else(
                || "`workspool config show` lists all keys".into(),
                |k| format!("did you mean {k}?"),
            );
            return Err(wrong(format!("there is no key {path:?}\n  hint: {hint}")));
        };
        // SAFETY: the caller vouches that we are the only thread.
        unsafe { std::env::set_var(key.variable(), value.trim()) };
        names.insert(key.variable());
    }
    let _ = FLAGS.set(names);
    Ok(())
}

/// Loads the configuration of a spool.
pub fn load(spool: &Spool) -> Result<Config, ConfigError> {
    /// What was given the last time, and what came of it: a supervisor asks several times for each task.
    static LAST: Mutex<Option<(Given, Config)>> = Mutex::new(None);
    let overrides = overrides();
    let given = Given {
        file: spool.config_file(),
        text: read_text(spool)?,
        set: overrides.iter().map(|o| (o.variable.clone(), o.text.clone())).collect(),
    };
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, config)) = last.as_ref().filter(|(known, _)| *known == given) {
        return Ok(config.clone());
    }
    let config = overlay(parse(spool, given.text.as_deref())?, &overrides)?;
    *last = Some((given, config.clone()));
    Ok(config)
}

#[derive(PartialEq)]
struct Given {
    file: PathBuf,
    text: Option<String>,
    set: Vec<(String, String)>,
}

/// All keys with the values that hold, and where they come from.
pub fn settings(spool: &Spool) -> Result<Vec<Setting>, ConfigError> {
    let text = read_text(spool)?;
    let config = parse(spool, text.as_deref())?;
    let text = text.unwrap_or_default();
    let overrides = overrides();
    let config = to_json(&overlay(config, &overrides)?);
    let file: toml::Table = text.parse().unwrap_or_default();
    let flags = FLAGS.get();
    Ok(keys()
        .iter()
        .map(|key| {
            let variable = key.variable();
            let source = if overrides.iter().any(|o| o.key.path == key.path) {
                if flags.is_some_and(|f| f.contains(&variable)) { Source::Flag } else { Source::Environment }
            } else if is_in(&file, &key.path) {
                Source::File
            } else {
                Source::Default
            };
            Setting {
                key: key.path.clone(),
                value: key.in_json(&config).clone(),
                source,
                variable,
                about: key.about.clone(),
            }
        })
        .collect())
}

/// Variables that look like keys of ours and are none, each with the nearest one that is.
pub fn unknown_variables() -> Vec<(String, String)> {
    let known: Vec<String> = keys().iter().map(Key::variable).collect();
    let mut found: Vec<(String, String)> = std::env::vars_os()
        .filter_map(|(name, _)| name.into_string().ok())
        .filter(|name| name.starts_with("WORKSPOOL_") && !known.contains(name))
        .filter(|name| !OTHER_VARIABLES.contains(&name.as_str()))
        .filter_map(|name| input::nearest(&name, &known).map(str::to_owned).map(|near| (name, near)))
        .collect();
    found.sort();
    found
}

fn read_text(spool: &Spool) -> Result<Option<String>, ConfigError> {
    let path = spool.config_file();
    match std::fs::read_to_string(&path) {
        Ok(text) => Ok(Some(text)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(SpoolError::io("read", &path, e).into()),
    }
}

fn parse(spool: &Spool, text: Option<&str>) -> Result<Config, ConfigError> {
    let Some(text) = text else { return Ok(Config::default()) };
    let wrong = |p: Problem| ConfigError::File(spool.config_file(), Box::new(p));
    let config: Config = input::toml(text).map_err(wrong)?;
    check(&config).map_err(wrong)?;
    Ok(config)
}

struct Override {
    key: &'static Key,
    variable: String,
    text: String,
}

/// What the environment sets. The list of keys is only made where something might be.
fn overrides() -> Vec<Override> {
    let set = std::env::vars_os().filter_map(|(name, text)| {
        let name = name.to_str()?;
        let ours = name.starts_with("WORKSPOOL_") && !OTHER_VARIABLES.contains(&name) && !text.is_empty();
        ours.then(|| (name.to_owned(), text.to_string_lossy().into_owned()))
    });
    set.filter_map(|(variable, text)| {
        let key = keys().iter().find(|k| k.variable() == variable)?;
        Some(Override { key, variable, text })
    })
    .collect()
}

fn overlay(mut config: Config, overrides: &[Override]) -> Result<Config, ConfigError> {
    for Override { key, variable, text } in overrides {
        let wrong =
            |message: String| ConfigError::Environment(variable.clone(), format!("{text:?}: {message}"));
        // A text is taken as it is where the key is one; anything else is written as in the file.
        let literal =
            format!("v = {text}").parse::<toml::Table>().ok().and_then(|t| to_json_value(t.get("v")?));
        let candidates = [Some(Value::String(text.clone())), literal];
        let mut outcome = Err(String::new());
        for value in candidates.into_iter().flatten() {
            let mut json = to_json(&config);
            put(&mut json, &key.path, value);
            outcome = serde_json::from_value::<Config>(json).map_err(|e| e.to_string());
            if outcome.is_ok() {
                break;
            }
        }
        config = outcome.map_err(|_| wrong(format!("expected {}", key.form)))?;
        check(&config).map_err(|p| wrong(p.message))?;
    }
    Ok(config)
}

fn to_json(config: &Config) -> Value {
    serde_json::to_value(config).unwrap_or_default()
}

fn to_json_value(value: &toml::Value) -> Option<Value> {
    serde_json::to_value(value).ok()
}

fn put(json: &mut Value, path: &str, value: Value) {
    let mut at = json;
    for name in path.split('.') {
        at = &mut at[name];
    }
    *at = value;
}

fn is_in(file: &toml::Table, path: &str) -> bool {
    let mut names = path.split('.');
    let mut at = names.next().and_then(|name| file.get(name));
    for name in names {
        at = at.and_then(|v| v.get(name));
    }
    at.is_some()
}

/// The worker that the environment names (`WORKSPOOL_WORKER`); it comes after the configuration's.
pub fn environment_worker() -> Result<Option<WorkerName>, ConfigError> {
    const NAME: &str = "WORKSPOOL_WORKER";
    match std::env::var(NAME) {
        Ok(value) if !value.is_empty() => {
            value.parse().map(Some).map_err(|e| ConfigError::Environment(NAME.into(), e))
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
    let named = |path: &std::path::PathBuf| path.is_absolute() || path.starts_with("~");
    if !config.confine.writable.iter().all(named) {
        return invalid("confine.writable", "expected absolute paths, or paths that begin with ~/");
    }
    if !config.warm_trees.keys().all(named) {
        return invalid("warm_trees", "expected absolute paths of repositories, or paths that begin with ~/");
    }
    if config.warm_trees.values().any(|most| *most > 100) {
        return invalid(
            "warm_trees",
            "expected at most 100 trees of a repository: each takes the space of one",
        );
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
    check_notify(config)
}

fn check_notify(config: &Config) -> Result<(), Problem> {
    let invalid = |field: &str, message: String| Err(Problem::new(ProblemKind::Invalid, message).at(field));
    let notify = &config.notify;
    if notify.command.first().is_some_and(String::is_empty) {
        return invalid("notify.command", "the program is empty".into());
    }
    if notify.webhook.as_deref().is_some_and(|url| !is_safe_address(url)) {
        let message = "expected an https:// address, or http:// on this machine".to_owned();
        return invalid("notify.webhook", message);
    }
    if notify.webhook_secret_file.as_ref().is_some_and(|p| !p.is_absolute()) {
        return invalid("notify.webhook_secret_file", "expected an absolute path".into());
    }
    if notify.attempts == 0 {
        return invalid("notify.attempts", "expected at least 1".into());
    }
    Ok(())
}

/// Whether what is sent there cannot be read on the way.
fn is_safe_address(url: &str) -> bool {
    if let Some(rest) = url.strip_prefix("https://") {
        return !rest.is_empty() && !rest.starts_with('/');
    }
    let Some(rest) = url.strip_prefix("http://") else { return false };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.contains('@') {
        return false;
    }
    let host = match authority.strip_prefix('[') {
        Some(v6) => v6.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    };
    matches!(host, "localhost" | "127.0.0.1" | "::1")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(path: &str, text: &str) -> Result<Config, ConfigError> {
        let key = keys().iter().find(|k| k.path == path).unwrap();
        overlay(Config::default(), &[Override { key, variable: key.variable(), text: text.into() }])
    }

    #[test]
    fn a_variable_may_set_any_key() {
        assert_eq!(set("max_concurrency", "9").unwrap().max_concurrency, 9);
        assert_eq!(set("worktrees", "/mnt/x").unwrap().worktrees.unwrap(), PathBuf::from("/mnt/x"));
        assert!(set("allow_repository_above_spool", "true").unwrap().allow_repository_above_spool);
        assert_eq!(set("ceilings.budget.tokens", "77").unwrap().ceilings.budget.tokens, Some(77));
        assert_eq!(set("worker_concurrency", "{ codex = 2 }").unwrap().worker_concurrency.len(), 1);
        assert_eq!(set("notify.on", "[\"failed\"]").unwrap().notify.on.len(), 1);
        assert_eq!(
            set("ceilings.permission", "read_only").unwrap().ceilings.permission.unwrap().as_str(),
            "read_only"
        );
    }

    #[test]
    fn a_wrong_variable_is_named_with_what_was_expected() {
        let text = set("max_concurrency", "many").unwrap_err().to_string();
        assert_eq!(text, "WORKSPOOL_MAX_CONCURRENCY: \"many\": expected whole number");
        let text = set("max_concurrency", "0").unwrap_err().to_string();
        assert!(text.contains("at least 1"), "{text}");
        assert!(set("notify.on", "[\"never\"]").is_err());
    }

    #[test]
    fn secrets_do_not_travel_in_the_open() {
        for good in ["https://a.example/x", "http://localhost:1/x", "http://127.0.0.1/", "http://[::1]:8/x"] {
            assert!(is_safe_address(good), "{good}");
        }
        for bad in [
            "http://a.example/",
            "http://localhost.a.example/",
            "http://localhost@a.example/",
            "https:///x",
            "ftp://a",
            "a",
        ] {
            assert!(!is_safe_address(bad), "{bad}");
        }
    }
}
