//! Which worker a task gets, and what it may ask of it. Never a silent substitute: a worker that is named
//! and not there is an error.

use super::registry::{self, AUTO};
use super::{health, models};
use crate::model::task::RoutedBy;
use crate::model::{Config, Problem, ProblemKind, Profile, Role, RouteKey, TaskSpec, WorkerName, input};
use crate::spool::{Spool, config};

/// In which order `auto` looks for a worker that is available.
pub const AUTO_ORDER: &[&str] = &["dsh", "opencode", "claude", "codex", "gemini", "openai", "anthropic"];

/// Chooses the worker of a task: the one that it names, else the configuration's route for its role, its
/// default route, its default worker, else the environment's, else the first that is available. `auto`,
/// wherever it stands, is the last of these.
pub fn route(
    spool: &Spool,
    config: &Config,
    named: Option<&WorkerName>,
    role: Option<Role>,
) -> Result<(WorkerName, RoutedBy), Problem> {
    let environment = config::environment_worker()
        .map_err(|e| Problem::new(ProblemKind::Worker, e.to_string()).at("worker"))?;
    let route = |key: RouteKey| config.routes.get(&key).cloned();
    let chosen = named
        .map(|w| (w.clone(), RoutedBy::Task))
        .or_else(|| role.and_then(|r| route(RouteKey::Role(r))).map(|w| (w, RoutedBy::Role)))
        .or_else(|| route(RouteKey::Default).map(|w| (w, RoutedBy::DefaultRoute)))
        .or_else(|| config.default_worker.clone().map(|w| (w, RoutedBy::Default)))
        .or_else(|| environment.map(|w| (w, RoutedBy::Environment)));
    match chosen {
        Some((name, rule)) if name.as_str() != AUTO => {
            let profile = there(spool, &name).map_err(|p| blame(p, rule, role))?;
            Ok((profile.name, rule))
        }
        _ => Ok((first_available(spool)?, RoutedBy::Auto)),
    }
}

/// Says who named the worker, where it was not the task.
fn blame(problem: Problem, rule: RoutedBy, role: Option<Role>) -> Problem {
    let who = match rule {
        RoutedBy::Role => format!("config.toml routes the role {} to it", role.map_or("", Role::as_str)),
        RoutedBy::DefaultRoute => "config.toml has it as the route `default`".to_owned(),
        RoutedBy::Default => "config.toml has it as default_worker".to_owned(),
        RoutedBy::Environment => "WORKSPOOL_WORKER names it".to_owned(),
        RoutedBy::Task | RoutedBy::Auto => return problem,
    };
    Problem { message: format!("{} ({who})", problem.message), ..problem }
}

/// The profile of a worker that is there: known, and its program installed.
fn there(spool: &Spool, name: &WorkerName) -> Result<Profile, Problem> {
    let profile = known(spool, name)?;
    if registry::executable(&profile).is_some() {
        return Ok(profile);
    }
    let missing = registry::missing_executable(registry::program(&profile));
    let p = Problem::new(ProblemKind::Worker, format!("worker {name} is not installed: {}", missing.message))
        .at("worker");
    Err(match profile.install.or(missing.hint) {
        Some(hint) => p.hint(hint),
        None => p,
    })
}

fn known(spool: &Spool, name: &WorkerName) -> Result<Profile, Problem> {
    match registry::profile(spool, name) {
        Ok(Some(profile)) => Ok(profile),
        Ok(None) => {
            let known: Vec<String> =
                registry::all(spool).map(|a| a.keys().map(ToString::to_string).collect()).unwrap_or_default();
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

/// The first worker of [`AUTO_ORDER`] that is installed and not known to be signed out.
fn first_available(spool: &Spool) -> Result<WorkerName, Problem> {
    let mut missing = Vec::new();
    for name in AUTO_ORDER.iter().filter_map(|name| name.parse::<WorkerName>().ok()) {
        match registry::profile(spool, &name) {
            Ok(Some(profile)) if registry::executable(&profile).is_none() => {
                missing.push(format!("{name} is not installed"));
            }
            Ok(Some(profile)) if health::sign_in(&profile) == Some(false) => {
                missing.push(format!("{name} is not signed in"));
            }
            Ok(Some(profile)) => return Ok(profile.name),
            Ok(None) => {}
            // One that was meant to be used and is wrong must not silently give way to the next.
            Err(e) => return Err(Problem::new(ProblemKind::Worker, e.to_string()).at("worker")),
        }
    }
    let message = format!("no worker is named, and none was found: {}", missing.join(", "));
    Err(Problem::new(ProblemKind::Worker, message).at("worker").hint(
        "name one (`--worker shell`), or set default_worker in config.toml; `workspool workers list` shows them",
    ))
}

/// Refuses what a task asks of a worker that the worker cannot do.
pub fn accepts(spool: &Spool, config: &Config, name: &WorkerName, spec: &TaskSpec) -> Result<(), Problem> {
    let profile = known(spool, name)?;
    models::model(config, &profile, spec.model.as_deref())?;
    if spec.effort.is_some() && profile.effort.is_empty() {
        return Err(
            Problem::new(ProblemKind::Worker, format!("worker {name} cannot choose an effort")).at("effort")
        );
    }
    Ok(())
}
