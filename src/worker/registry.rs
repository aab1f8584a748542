//! Which workers there are: built in, and linked by a file in `workers/`.

use crate::durable;
use crate::model::task::RoutedBy;
use crate::model::{Config, Problem, ProblemKind, Profile, TaskSpec, VERSION, WorkerName, input};
use crate::spool::{Spool, SpoolError, config, names};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Built-in profiles: files of the same kind as linked ones.
const BUILT_IN: &[&str] = &[
    include_str!("profiles/shell.json"),
    include_str!("profiles/mock.json"),
    include_str!("profiles/openai.json"),
    include_str!("profiles/anthropic.json"),
];

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

fn built_in() -> impl Iterator<Item = Profile> {
    BUILT_IN.iter().filter_map(|text| serde_json::from_str(text).ok())
}

/// A worker that is known: where from, and its profile or what is wrong with it.
pub type Known = (Origin, Result<Profile, String>);

/// All workers by name. A linked one that cannot be read is an error only when it is asked for.
pub fn all(spool: &Spool) -> Result<BTreeMap<WorkerName, Known>, SpoolError> {
    let mut found: BTreeMap<_, _> = built_in().map(|p| (p.name.clone(), (Origin::BuiltIn, Ok(p)))).collect();
    let dir = spool.workers();
    for file in names(&dir).map_err(|e| SpoolError::io("read", &dir, e))? {
        let Some(name) =
            file.to_str().and_then(|f| f.strip_suffix(".json")).and_then(|n| n.parse::<WorkerName>().ok())
        else {
            continue;
        };
        let origin = if found.contains_key(&name) { Origin::Override } else { Origin::Linked };
        let profile = read(&spool.worker(&name), &name).map_err(|e| e.to_string());
        found.insert(name, (origin, profile));
    }
    Ok(found)
}

/// One worker's profile, if there is such a worker.
pub fn profile(spool: &Spool, name: &WorkerName) -> Result<Option<Profile>, ProfileError> {
    let path = spool.worker(name);
    if path.is_file() {
        return read(&path, name).map(Some);
    }
    Ok(built_in().find(|p| p.name == *name))
}

fn read(path: &Path, name: &WorkerName) -> Result<Profile, ProfileError> {
    let wrong = |p: Problem| ProfileError::Profile(path.to_owned(), Box::new(p));
    let bytes = std::fs::read(path).map_err(|e| SpoolError::io("read", path, e))?;
    let profile: Profile = input::json(&bytes).map_err(wrong)?;
    check(&profile).map_err(wrong)?;
    if profile.name != *name {
        let message = format!("the profile is named {}, its file {name}.json", profile.name);
        return Err(wrong(Problem::new(ProblemKind::Invalid, message).at("name")));
    }
    Ok(profile)
}

/// What must hold for a profile besides its form.
pub fn check(profile: &Profile) -> Result<(), Problem> {
    let invalid = |field: &str, message: String| Err(Problem::new(ProblemKind::Invalid, message).at(field));
    if profile.version.is_some_and(|v| v != VERSION) {
        return invalid("version", format!("this program reads version {VERSION}"));
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
    for (field, args) in
        [("command", &profile.command), ("model", &profile.model), ("resume", &profile.resume)]
    {
        for (k, arg) in args.iter().enumerate() {
            if let Some(unknown) = super::invoke::unknown_placeholder(arg) {
                return invalid(
                    &format!("{field}[{k}]"),
                    format!(
                        "{unknown} stands for nothing: expected one of {}",
                        super::invoke::PLACEHOLDERS.join(", ")
                    ),
                );
            }
        }
    }
    if profile.concurrency == Some(0) {
        return invalid("concurrency", "0 would run nothing: expected at least 1".into());
    }
    Ok(())
}

/// Links a worker: checks that it can run, then writes its profile.
pub fn link(spool: &Spool, profile: &Profile, replace: bool) -> Result<(), Problem> {
    check(profile)?;
    let program = profile.wrap.first().unwrap_or(&profile.command[0]);
    if !program.starts_with('{') && super::env::find_executable(program).is_none() {
        return Err(missing_executable(program).at(if profile.wrap.is_empty() {
            "command[0]"
        } else {
            "wrap[0]"
        }));
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

fn missing_executable(program: &str) -> Problem {
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

/// Chooses the worker of a task: the one that it names, else the configuration's default, else the one of the
/// environment. Never a substitute: a worker that is named and not there is an error.
pub fn route(
    spool: &Spool,
    config: &Config,
    named: Option<&WorkerName>,
) -> Result<(WorkerName, RoutedBy), Problem> {
    let environment = config::environment_worker()
        .map_err(|e| Problem::new(ProblemKind::Worker, e.to_string()).at("worker"))?;
    let chosen = named
        .map(|w| (w.clone(), RoutedBy::Task))
        .or_else(|| config.default_worker.clone().map(|w| (w, RoutedBy::Default)))
        .or_else(|| environment.map(|w| (w, RoutedBy::Environment)));
    let Some((name, rule)) = chosen else {
        return Err(Problem::new(ProblemKind::Worker, "the task names no worker, and there is no default")
            .at("worker")
            .hint("name one (`--worker shell`), or set default_worker in config.toml; `workspool workers list` shows them"));
    };
    match profile(spool, &name) {
        Ok(Some(_)) => Ok((name, rule)),
        Ok(None) => {
            let known: Vec<String> =
                all(spool).map(|a| a.keys().map(ToString::to_string).collect()).unwrap_or_default();
            let p = Problem::new(ProblemKind::Worker, format!("there is no worker {name}")).at("worker");
            Err(match input::nearest(name.as_str(), &known) {
                Some(near) => p.hint(format!("did you mean {near}?")),
                None => p.hint(format!(
                    "known are {}; link another by `workspool workers link {name} --command '[\"program\", \"{{prompt}}\"]'`",
                    known.join(", ")
                )),
            })
        }
        Err(e) => Err(Problem::new(ProblemKind::Worker, e.to_string()).at("worker")),
    }
}

/// Refuses what a task asks of a worker that the worker cannot do.
pub fn accepts(spool: &Spool, name: &WorkerName, spec: &TaskSpec) -> Result<(), Problem> {
    let profile = match profile(spool, name) {
        Ok(Some(profile)) => profile,
        Ok(None) => {
            return Err(Problem::new(ProblemKind::Worker, format!("there is no worker {name}")).at("worker"));
        }
        Err(e) => return Err(Problem::new(ProblemKind::Worker, e.to_string()).at("worker")),
    };
    if spec.model.is_some() && profile.model.is_empty() {
        return Err(
            Problem::new(ProblemKind::Worker, format!("worker {name} cannot choose a model")).at("model")
        );
    }
    if spec.effort.is_some() && profile.effort.is_empty() {
        return Err(
            Problem::new(ProblemKind::Worker, format!("worker {name} cannot choose an effort")).at("effort")
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_profiles_are_well_formed() {
        for text in BUILT_IN {
            let profile: Profile = input::json(text.as_bytes()).unwrap();
            check(&profile).unwrap();
        }
        assert_eq!(built_in().count(), BUILT_IN.len());
    }
}
