//! Which workers there are: built in, and linked by a file in `workers/`.

use super::{env, invoke, private};
use crate::durable;
use crate::model::profile::Switch;
use crate::model::{Command, Problem, ProblemKind, Profile, VERSION, WorkerName, input};
use crate::spool::{Spool, SpoolError, names};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Built-in profiles by name: files of the same kind as linked ones.
const BUILT_IN: &[(&str, &str)] = &[
    ("aider", include_str!("profiles/aider.json")),
    ("anthropic", include_str!("profiles/anthropic.json")),
    ("claude", include_str!("profiles/claude.json")),
    ("codex", include_str!("profiles/codex.json")),
    ("copilot", include_str!("profiles/copilot.json")),
    ("gemini", include_str!("profiles/gemini.json")),
    ("mock", include_str!("profiles/mock.json")),
    ("openai", include_str!("profiles/openai.json")),
    ("opencode", include_str!("profiles/opencode.json")),
    ("qwen", include_str!("profiles/qwen.json")),
    ("shell", include_str!("profiles/shell.json")),
    ("zcode-glm", include_str!("profiles/zcode-glm.json")),
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
            let message = format!("there is no worker {base} to start from, or it starts from this one");
            return Err(wrong(Problem::new(ProblemKind::Invalid, message).at("extends")));
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

/// What must hold for a profile besides its form.
pub fn check(profile: &Profile) -> Result<(), Problem> {
    let invalid = |field: &str, message: String| Err(Problem::new(ProblemKind::Invalid, message).at(field));
    if profile.version.is_some_and(|v| v != VERSION) {
        return invalid("version", format!("this program reads version {VERSION}"));
    }
    if profile.name.as_str() == AUTO {
        return invalid("name", format!("{AUTO} stands for the first worker that is available"));
    }
    if profile.command.first().is_none_or(|p| p.is_empty()) {
        return invalid("command", "the command is empty".into());
    }
    if super::parser(&profile.output).is_none() {
        let near = input::nearest(&profile.output, super::PARSERS);
        let p = Problem::new(ProblemKind::Invalid, format!("there is no output format {:?}", profile.output))
            .at("output");
        return Err(p.hint(match near {
            Some(near) => format!("did you mean {near:?}?"),
            None => format!("expected one of {}", super::PARSERS.join(", ")),
        }));
    }
    for (field, text) in texts(profile) {
        if let Some(unknown) = invoke::unknown_placeholder(text) {
            let known = invoke::PLACEHOLDERS.join(", ");
            return invalid(&field, format!("{unknown} stands for nothing: expected one of {known}"));
        }
    }
    let without_variables = |value: &str| !value.is_empty() && !value.contains('=');
    for (k, name) in profile.pass_env.iter().enumerate() {
        let (new, old) = env::renamed(name);
        if !without_variables(new) || !without_variables(old) {
            return invalid(&format!("pass_env[{k}]"), format!("{name:?}: expected NAME, or NEW=OLD"));
        }
    }
    for name in profile.files.keys() {
        if !private::is_plain(name) {
            return invalid("files", format!("{name:?}: expected a relative path without .."));
        }
    }
    if let Some(name) = profile.refuse_files.iter().find(|name| !private::is_plain(name)) {
        return invalid("refuse_files", format!("{name:?}: expected a relative path without .."));
    }
    for (variable, dir) in &profile.private_dirs {
        if !private::is_plain(variable) || variable.contains(['/', '=']) {
            return invalid("private_dirs", format!("{variable:?} is not the name of a variable"));
        }
        if let Some(name) = dir.link.iter().find(|name| !private::is_plain(name)) {
            return invalid("private_dirs", format!("{name:?}: expected a relative path without .."));
        }
    }
    if let Some(Err(message)) = profile.probe.as_ref().map(Command::check) {
        return invalid("probe", message);
    }
    for (k, stop) in profile.stop_patterns.iter().enumerate() {
        if let Err(e) = regex::bytes::Regex::new(&stop.pattern) {
            return invalid(&format!("stop_patterns[{k}].pattern"), format!("not a regular expression: {e}"));
        }
    }
    for code in profile.exit_codes.keys() {
        if code.parse::<u8>().is_err() {
            return invalid("exit_codes", format!("{code:?}: expected an exit code, 0 to 255"));
        }
    }
    if profile.concurrency == Some(0) {
        return invalid("concurrency", "0 would run nothing: expected at least 1".into());
    }
    if profile.account.is_some() {
        let p = Problem::new(
            ProblemKind::NotYet,
            "workers that share the limits of one account cannot be done yet by this version",
        );
        return Err(p.at("account").hint("leave it out: each worker then has an account of its own"));
    }
    Ok(())
}

/// All texts of a profile in which values are filled, with the names of their fields.
fn texts(profile: &Profile) -> Vec<(String, &str)> {
    let mut found = Vec::new();
    let p = profile;
    let stop = p.stop.as_deref().unwrap_or_default();
    let mut lists: Vec<(String, &[String])> = [
        ("command", &p.command[..]),
        ("wrap", &p.wrap),
        ("model", &p.model),
        ("effort", &p.effort),
        ("resume", &p.resume),
        ("session", &p.session),
        ("max_turns", &p.max_turns),
        ("max_cost", &p.max_cost),
        ("stop", stop),
    ]
    .map(|(field, args)| (field.to_owned(), args))
    .into();
    let mut maps = vec![("env".to_owned(), &p.env), ("files".to_owned(), &p.files)];
    for (permission, args) in &p.permissions {
        lists.push((format!("permissions.{permission}.args"), &args.args));
        maps.push((format!("permissions.{permission}.env"), &args.env));
    }
    for (field, switch) in [("no_network", &p.no_network), ("no_shell", &p.no_shell)] {
        if let Some(Switch { args, env }) = switch {
            lists.push((format!("{field}.args"), args));
            maps.push((format!("{field}.env"), env));
        }
    }
    for (field, args) in lists {
        found.extend(args.iter().enumerate().map(|(k, arg)| (format!("{field}[{k}]"), arg.as_str())));
    }
    for (field, map) in maps {
        found.extend(map.iter().map(|(k, text)| (format!("{field}.{k}"), text.as_str())));
    }
    found
}

/// Links a worker: checks that it can run, then writes its profile.
pub fn link(spool: &Spool, profile: &Profile, replace: bool) -> Result<(), Problem> {
    check(profile)?;
    if executable(profile).is_none() {
        let field = if profile.wrap.is_empty() { "command[0]" } else { "wrap[0]" };
        return Err(missing_executable(program(profile)).at(field));
    }
    let path = spool.worker(&profile.name);
    if path.exists() && !replace {
        return Err(Problem::new(
            ProblemKind::Conflict,
            format!("a worker {} is linked already", profile.name),
        )
        .hint("use --replace, or another name"));
    }
    let io =
        |e: std::io::Error| Problem::new(ProblemKind::Worker, SpoolError::io("write", &path, e).to_string());
    let bytes = serde_json::to_vec_pretty(profile).map_err(|e| io(e.into()))?;
    durable::replace(&path, &bytes).map_err(io)
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

pub(super) fn missing_executable(program: &str) -> Problem {
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

/// Unlinks a worker. Says whether there was one.
pub fn unlink(spool: &Spool, name: &WorkerName) -> Result<bool, SpoolError> {
    let path = spool.worker(name);
    let there = path.is_file();
    durable::remove_file(&path).map_err(|e| SpoolError::io("remove", &path, e))?;
    Ok(there)
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

    #[test]
    fn a_profile_that_asks_for_what_is_not_there_is_refused() {
        let refused = |json: Value| {
            let p = check(&serde_json::from_value(json).unwrap()).unwrap_err();
            (p.kind, p.field.unwrap_or_default())
        };
        let with = |key: &str, value: Value| {
            let mut profile = serde_json::json!({ "name": "a", "command": ["agent"] });
            profile[key] = value;
            refused(profile)
        };
        use ProblemKind::{Invalid, NotYet};
        use serde_json::json;
        assert_eq!(with("name", json!("auto")), (Invalid, "name".into()));
        assert_eq!(with("account", json!("team")), (NotYet, "account".into()));
        assert_eq!(with("effort", json!(["--effort={efort}"])), (Invalid, "effort[0]".into()));
        assert_eq!(with("env", json!({ "A": "{nothing}" })), (Invalid, "env.A".into()));
        assert_eq!(with("files", json!({ "../x": "" })), (Invalid, "files".into()));
        assert_eq!(with("pass_env", json!(["A", "B=C", "=D"])), (Invalid, "pass_env[2]".into()));
        assert_eq!(
            with("private_dirs", json!({ "A": { "link": ["/x"] } })),
            (Invalid, "private_dirs".into())
        );
        let pattern = json!([{ "pattern": "(", "class": "auth" }]);
        assert_eq!(with("stop_patterns", pattern), (Invalid, "stop_patterns[0].pattern".into()));
        assert_eq!(with("exit_codes", json!({ "300": "auth" })), (Invalid, "exit_codes".into()));
    }
}
