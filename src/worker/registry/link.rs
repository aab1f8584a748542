//! Linking and unlinking: a worker is a file in `workers/`.

use super::check::check;
use super::{MAX_DEPTH, canonical, executable, extend, missing_executable, no_base, program, whole};
use crate::durable;
use crate::model::{Problem, ProblemKind, Profile, WorkerName, input};
use crate::spool::{Spool, SpoolError};
use serde_json::{Map, Value};

/// Links a worker: checks that it can run, then writes its profile as it was given.
pub fn link(spool: &Spool, given: &Map<String, Value>, replace: bool) -> Result<Profile, Problem> {
    let io = |e: serde_json::Error| Problem::new(ProblemKind::Malformed, e.to_string());
    let bytes = serde_json::to_vec_pretty(given).map_err(io)?;
    let mut profile: Profile = input::json(&bytes)?;
    if let Some(base) = profile.extends.clone() {
        let of_own_name = base == profile.name;
        let found = whole(spool, &canonical(spool, &base), of_own_name, MAX_DEPTH)
            .map_err(|e| Problem::new(ProblemKind::Worker, e.to_string()).at("extends"))?
            .ok_or_else(|| no_base(&base))?;
        profile = extend(&found, given.clone())?;
    }
    check(&profile)?;
    if executable(&profile).is_none() {
        let field = if profile.wrap.is_empty() { "command[0]" } else { "wrap[0]" };
        return Err(missing_executable(program(&profile)).at(field));
    }
    let path = spool.worker(&profile.name);
    if path.exists() && !replace {
        return Err(Problem::new(
            ProblemKind::Conflict,
            format!("a worker {} is linked already", profile.name),
        )
        .hint("use --replace, or another name"));
    }
    durable::replace(&path, &bytes)
        .map_err(|e| Problem::new(ProblemKind::Worker, SpoolError::io("write", &path, e).to_string()))?;
    Ok(profile)
}

/// Unlinks a worker. Says whether there was one.
pub fn unlink(spool: &Spool, name: &WorkerName) -> Result<bool, SpoolError> {
    let path = spool.worker(name);
    let there = path.is_file();
    durable::remove_file(&path).map_err(|e| SpoolError::io("remove", &path, e))?;
    Ok(there)
}
