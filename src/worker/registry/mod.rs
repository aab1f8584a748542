//! Which workers there are: built in, and linked by a file in `workers/`.

mod check;
mod link;

pub use check::check;
pub use link::{link, unlink};

use super::env;
use crate::model::{Problem, ProblemKind, Profile, WorkerName, input};
use crate::spool::{Spool, SpoolError, names};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Built-in profiles by name: files of the same kind as linked ones.
const BUILT_IN: &[(&str, &str)] = &[
    ("aider", include_str!("../profiles/aider.json")),
    ("anthropic", include_str!("../profiles/anthropic.json")),
    ("claude", include_str!("../profiles/claude.json")),
    ("codex", include_str!("../profiles/codex.json")),
    ("command", include_str!("../profiles/command.json")),
    ("copilot", include_str!("../profiles/copilot.json")),
    ("dsh", include_str!("../profiles/dsh.json")),
    ("gemini", include_str!("../profiles/gemini.json")),
    ("mock", include_str!("../profiles/mock.json")),
    ("openai", include_str!("../profiles/openai.json")),
    ("opencode", include_str!("../profiles/opencode.json")),
    ("qwen", include_str!("../profiles/qwen.json")),
    ("shell", include_str!("../profiles/shell.json")),
    ("vscode", include_str!("../profiles/vscode.json")),
    ("zcode-glm", include_str!("../profiles/zcode-glm.json")),
];

/// Other names of built-in workers.
const ALIASES: &[(&str, &str)] = &[("claude-code", "claude")];

/// The word that stands for the first worker that is available, and is therefore no worker's name.
pub const AUTO: &str = "auto";

/// How many profiles may start from one another.
const MAX_DEPTH: u32 = 8;

/// Where a profile comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// Part of the program.
    BuiltIn,
    /// A file in `workers/`.
    Linked,
    /// A file in `workers/` that takes the place of a built-in one.
    Override,
}

impl Origin {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Origin::BuiltIn => "built-in",
            Origin::Linked => "linked",
            Origin::Override => "override",
        }
    }
}

/// A worker that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// The spool cannot be read.
    #[error(transparent)]
    Spool(#[from] SpoolError),
    /// The profile is wrong.
    #[error("{path}: {1}", path = .0.display())]
    Profile(PathBuf, Box<Problem>),
}

fn built_in(name: &WorkerName) -> Option<&'static str> {
    BUILT_IN.iter().find(|(known, _)| *known == name.as_str()).map(|(_, text)| *text)
}

/// The name of the worker that a name or alias means.
fn canonical(spool: &Spool, name: &WorkerName) -> WorkerName {
    if spool.worker(name).is_file() {
        return name.clone();
    }
    let alias = ALIASES.iter().find(|(alias, _)| *alias == name.as_str());
    alias.and_then(|(_, name)| name.parse().ok()).unwrap_or_else(|| name.clone())
}

/// A worker that is known: where from, and its profile or what is wrong with it.
pub type Known = (Origin, Result<Profile, String>);

/// All workers by name. A linked one that cannot be read is an error only when it is asked for.
pub fn all(spool: &Spool) -> Result<BTreeMap<WorkerName, Known>, SpoolError> {
    let mut names_of_all: Vec<WorkerName> =
        BUILT_IN.iter().filter_map(|(name, _)| name.parse().ok()).collect();
    let dir = spool.workers();
    let files = names(&dir).map_err(|e| SpoolError::io("read", &dir, e))?;
    names_of_all.extend(files.iter().filter_map(|f| f.to_str()?.strip_suffix(".json")?.parse().ok()));
    let mut found = BTreeMap::new();
    for name in names_of_all {
        let profile = match profile(spool, &name) {
            Ok(Some(profile)) => Ok(profile),
            Ok(None) => continue,
            Err(e) => Err(e.to_string()),
        };
        let origin = origin(spool, &name);
        found.insert(name, (origin, profile));
    }
    Ok(found)
}

/// The profiles that may say how many attempts of a worker, or of its account, run at once. Every claim asks,
/// so only linked ones are read, and of the built-in ones those that say something.
pub fn limited(spool: &Spool) -> Result<BTreeMap<WorkerName, Profile>, SpoolError> {
    let dir = spool.workers();
    let files = names(&dir).map_err(|e| SpoolError::io("read", &dir, e))?;
    let linked = files.iter().filter_map(|f| f.to_str()?.strip_suffix(".json")?.parse().ok());
    let says = |text: &str| text.contains("\"concurrency\"") || text.contains("\"account\"");
    let built_in = BUILT_IN.iter().filter(|(_, text)| says(text)).filter_map(|(name, _)| name.parse().ok());
    let all: std::collections::BTreeSet<WorkerName> = built_in.chain(linked).collect();
    Ok(all.into_iter().filter_map(|name| Some((name.clone(), profile(spool, &name).ok()??))).collect())
}

/// Where the profile of a worker comes from.
pub fn origin(spool: &Spool, name: &WorkerName) -> Origin {
    match (spool.worker(name).is_file(), built_in(name).is_some()) {
        (true, true) => Origin::Override,
        (true, false) => Origin::Linked,
        (false, _) => Origin::BuiltIn,
    }
}

/// One worker's profile by its name or alias, with all that it takes from the one it extends, if there is
/// such a worker.
pub fn profile(spool: &Spool, name: &WorkerName) -> Result<Option<Profile>, ProfileError> {
    whole(spool, &canonical(spool, name), false, MAX_DEPTH)
}

/// Reads a profile and what it starts from. `original`: the built-in one, whatever is linked.
fn whole(
    spool: &Spool,
    name: &WorkerName,
    original: bool,
    depth: u32,
) -> Result<Option<Profile>, ProfileError> {
    let path = spool.worker(name);
    let wrong = |p: Problem| ProfileError::Profile(path.clone(), Box::new(p));
    let linked = if original { None } else { linked(spool, name)? };
    let text: Cow<'_, [u8]> = match (linked, built_in(name)) {
        (Some(bytes), _) => bytes.into(),
        (None, Some(text)) => text.as_bytes().into(),
        (None, None) => return Ok(None),
    };
    let mut profile: Profile = input::json(&text).map_err(wrong)?;
    if profile.name != *name {
        let message = format!("the profile is named {}, its file {name}.json", profile.name);
        return Err(wrong(Problem::new(ProblemKind::Invalid, message).at("name")));
    }
    if let Some(base) = &profile.extends {
        // A file that extends its own name means the built-in worker whose place it takes.
        let of_own_name = base == name;
        let found = match depth.checked_sub(1) {
            Some(depth) => whole(spool, &canonical(spool, base), of_own_name, depth)?,
            None => None,
        };
        let Some(found) = found.filter(|_| !(of_own_name && original)) else {
            return Err(wrong(no_base(base)));
        };
        let given: Map<String, Value> = input::json(&text).map_err(wrong)?;
        profile = extend(&found, given).map_err(wrong)?;
    }
    check(&profile).map_err(wrong)?;
    Ok(Some(profile))
}

fn linked(spool: &Spool, name: &WorkerName) -> Result<Option<Vec<u8>>, SpoolError> {
    let path = spool.worker(name);
    match std::fs::read(&path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(SpoolError::io("read", &path, e)),
    }
}

/// Puts what is given in the place of what `base` has; variables one by one.
fn extend(base: &Profile, given: Map<String, Value>) -> Result<Profile, Problem> {
    let problem = |e: serde_json::Error| Problem::new(ProblemKind::Malformed, e.to_string());
    let Value::Object(mut merged) = serde_json::to_value(base).map_err(problem)? else {
        return Err(Problem::new(ProblemKind::Malformed, "a profile is an object"));
    };
    for (key, value) in given {
        match (merged.get_mut(&key), value) {
            (Some(Value::Object(known)), Value::Object(more)) if key == "env" => known.extend(more),
            (_, value) => {
                merged.insert(key, value);
            }
        }
    }
    serde_json::from_value(Value::Object(merged)).map_err(problem)
}

fn no_base(base: &WorkerName) -> Problem {
    let message = format!("there is no worker {base} to start from, or it starts from this one");
    Problem::new(ProblemKind::Invalid, message).at("extends")
}

/// The program that a worker starts, as its profile names it.
pub fn program(profile: &Profile) -> &str {
    profile.wrap.first().or(profile.command.first()).map_or("", String::as_str)
}

/// Where that program is, if it is there.
pub fn executable(profile: &Profile) -> Option<PathBuf> {
    match program(profile) {
        "{workspool}" => env::own_executable().ok(),
        program => env::find_executable(program),
    }
}

pub(in crate::worker) fn missing_executable(program: &str) -> Problem {
    let path = std::env::var("PATH").unwrap_or_default();
    let what = if program.contains('/') {
        format!("{program} is not there, or is not executable")
    } else {
        format!("there is no executable {program:?} on PATH")
    };
    Problem::new(ProblemKind::Worker, what).hint(if program.contains('/') {
        "expected the path of a program".to_owned()
    } else {
        format!("install it, or give its full path (PATH is {path})")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spool() -> (tempfile::TempDir, Spool) {
        let dir = tempfile::tempdir().unwrap();
        let spool = Spool::open(&dir.path().join("spool")).unwrap();
        (dir, spool)
    }

    fn put(spool: &Spool, name: &str, json: &str) {
        std::fs::write(spool.worker(&name.parse().unwrap()), json).unwrap();
    }

    fn get(spool: &Spool, name: &str) -> Result<Profile, String> {
        profile(spool, &name.parse().unwrap()).map(Option::unwrap).map_err(|e| e.to_string())
    }

    #[test]
    fn built_in_profiles_are_well_formed() {
        let (_dir, spool) = spool();
        for (name, _) in BUILT_IN {
            assert_eq!(get(&spool, name).unwrap().name.as_str(), *name);
        }
        for (alias, name) in ALIASES {
            assert_eq!(get(&spool, alias).unwrap().name.as_str(), *name);
        }
    }

    #[test]
    fn a_profile_starts_from_another_and_replaces_what_it_gives() {
        let (_dir, spool) = spool();
        put(
            &spool,
            "mine",
            r#"{"name": "mine", "extends": "claude-code", "default_model": "m", "models": [],
                "env": {"ANTHROPIC_BASE_URL": "http://x"}}"#,
        );
        let (claude, mine) = (get(&spool, "claude").unwrap(), get(&spool, "mine").unwrap());
        assert_eq!(mine.command, claude.command);
        assert_eq!((mine.default_model.as_deref(), mine.models.len()), (Some("m"), 0));
        assert_eq!(mine.env.len(), claude.env.len() + 1, "the others are still there");

        // Under the built-in name, it starts from the built-in one and reaches those that extend it.
        put(&spool, "claude", r#"{"name": "claude", "extends": "claude", "effort": []}"#);
        assert!(get(&spool, "claude").unwrap().effort.is_empty());
        assert!(get(&spool, "claude-code").unwrap().effort.is_empty());
        assert!(get(&spool, "mine").unwrap().effort.is_empty());
        let origin = all(&spool).unwrap()[&"claude".parse().unwrap()].0;
        assert_eq!(origin, Origin::Override);
    }

    #[test]
    fn what_cannot_be_started_from_is_an_error() {
        let (_dir, spool) = spool();
        put(&spool, "a", r#"{"name": "a", "extends": "b"}"#);
        put(&spool, "b", r#"{"name": "b", "extends": "a"}"#);
        put(&spool, "c", r#"{"name": "c", "extends": "nobody"}"#);
        put(&spool, "d", r#"{"name": "d", "extends": "d"}"#);
        for name in ["a", "b", "c", "d"] {
            let error = get(&spool, name).unwrap_err();
            assert!(error.contains("there is no worker"), "{name}: {error}");
        }
    }
}
