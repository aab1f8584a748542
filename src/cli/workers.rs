//! `workspool workers`.

use super::exit::{self, Exit};
use super::models::Models;
use super::term;
use crate::model::profile::PromptBy;
use crate::model::{Permission, Profile, WorkerName, input};
use crate::runner;
use crate::verbs::House;
use crate::worker::health::{self, Health};
use crate::worker::{self, Origin};
use chrono::{DateTime, Utc};
use clap::Subcommand;
use serde_json::{Map, Value, json};
use std::path::PathBuf;

/// List, show, check, link and unlink workers
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  workspool workers list
  workspool workers check claude
  workspool workers link mine --command '[\"my-agent\", \"run\", \"{prompt}\"]'
  workspool workers show mine")]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List the workers and whether they are there
    #[command(after_help = "Example:
  workspool workers list")]
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show the profile of a worker as it is in force
    #[command(after_help = "Example:
  workspool workers show claude")]
    Show {
        /// The worker
        name: WorkerName,
    },
    /// See whether a worker can be used: installed, version, signed in
    ///
    /// Asks the program itself where files and variables do not say it; nothing is spent.
    #[command(after_help = "Examples:
  workspool workers check claude
  workspool workers check mine --json")]
    Check {
        /// The worker
        name: WorkerName,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Link a program as a worker
    ///
    /// In the command, {prompt} or {prompt_file} stands for the task's prompt; without either it comes on
    /// standard input.
    #[command(after_help = "Examples:
  workspool workers link mine --command '[\"my-agent\", \"run\", \"{prompt}\"]' --env MY_KEY
  workspool workers link --file mine.json --replace")]
    Link(LinkArgs),
    /// Unlink a worker
    #[command(after_help = "Example:
  workspool workers unlink mine")]
    Unlink {
        /// The worker
        name: WorkerName,
    },
}

#[derive(Debug, clap::Args)]
struct LinkArgs {
    /// The worker's name; with --file it may be left out
    #[arg(required_unless_present = "file")]
    name: Option<WorkerName>,
    /// Program and arguments, as a JSON list
    #[arg(long, value_name = "JSON", value_parser = argv, required_unless_present = "file")]
    command: Option<Argv>,
    /// Arguments to put before the command, such as a container's `run`, as a JSON list
    #[arg(long, value_name = "JSON", value_parser = argv)]
    wrap: Option<Argv>,
    /// A command that ends what `wrap` started, as a JSON list
    #[arg(long, value_name = "JSON", value_parser = argv)]
    stop: Option<Argv>,
    /// Format of what it prints
    #[arg(long, value_name = "FORMAT")]
    output: Option<String>,
    /// Hand over this environment variable (can be repeated)
    #[arg(long, value_name = "NAME")]
    env: Vec<String>,
    /// Most attempts of it at once
    #[arg(long, value_name = "N")]
    concurrency: Option<u32>,
    /// What it is, in a line
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    /// Read a whole profile from a file: see `workspool schema worker-profile`
    #[arg(long, value_name = "FILE", conflicts_with = "command")]
    file: Option<PathBuf>,
    /// Take the place of a worker that is linked already
    #[arg(long)]
    replace: bool,
}

/// A list of arguments.
#[derive(Debug, Clone)]
struct Argv(Vec<String>);

fn argv(text: &str) -> Result<Argv, String> {
    serde_json::from_str(text).map(Argv).map_err(|e| {
        format!("expected a JSON list of strings such as [\"agent\", \"run\", \"{{prompt}}\"]: {e}")
    })
}

/// Carries the verb out.
pub fn run(house: &House, args: &Args) -> Result<u8, Exit> {
    match &args.verb {
        Verb::List { json } => list(house, *json),
        Verb::Show { name } => show(house, name),
        Verb::Check { name, json } => check(house, name, *json),
        Verb::Link(args) => link(house, args),
        Verb::Unlink { name } => unlink(house, name),
    }
}

#[derive(serde::Serialize)]
struct Row {
    name: WorkerName,
    origin: &'static str,
    #[serde(flatten)]
    health: Health,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    provider: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    concurrency: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    account: Option<String>,
    /// The limit of its provider that holds its tasks now.
    #[serde(skip_serializing_if = "Option::is_none")]
    limited: Option<Limited>,
    #[serde(skip_serializing_if = "Option::is_none")]
    models: Option<Models>,
    can: Vec<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    install: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

/// A limit of a provider.
#[derive(serde::Serialize)]
struct Limited {
    until: DateTime<Utc>,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    message: String,
}

impl Limited {
    fn of(house: &House, worker: &WorkerName) -> Option<Self> {
        let breaker = runner::provider_limit(&house.spool, &house.config, worker)?;
        Some(Limited { until: breaker.until, model: breaker.model, message: breaker.message })
    }
}

impl Row {
    fn new(house: &House, origin: Origin, profile: Profile, ask: bool) -> Self {
        let health = health::look(&house.spool, &profile, ask);
        let models = Models::of(house, &profile);
        let problem = models.as_ref().err().cloned().or_else(|| health::complaint(&profile, &health));
        Row {
            origin: origin.as_str(),
            can: can(&profile),
            concurrency: house.config.worker_concurrency.get(&profile.name).copied().or(profile.concurrency),
            limited: Limited::of(house, &profile.name),
            account: profile.account,
            health,
            models: models.ok(),
            problem,
            name: profile.name,
            description: profile.description,
            provider: profile.provider,
            install: profile.install,
        }
    }

    fn broken(name: WorkerName, origin: Origin, problem: String) -> Self {
        let health = Health { installed: false, executable: None, version: None, signed_in: None };
        Row {
            name,
            origin: origin.as_str(),
            health,
            description: None,
            provider: None,
            concurrency: None,
            account: None,
            limited: None,
            models: None,
            can: Vec::new(),
            install: None,
            problem: Some(problem),
        }
    }
}

/// What a worker can do besides working.
fn can(profile: &Profile) -> Vec<&'static str> {
    let enforced = |p: Permission| profile.permissions.get(&p).is_some_and(|args| args.enforced);
    [
        (!profile.resume.is_empty(), "resume"),
        (!profile.model.is_empty(), "model"),
        (!profile.effort.is_empty(), "effort"),
        (!profile.max_turns.is_empty(), "max_turns"),
        (!profile.max_cost.is_empty(), "max_cost"),
        (enforced(Permission::ReadOnly), "read_only"),
        (enforced(Permission::WorkspaceWrite), "workspace_write"),
        (profile.no_network.is_some(), "no_network"),
        (profile.no_shell.is_some(), "no_shell"),
    ]
    .into_iter()
    .filter_map(|(can, what)| can.then_some(what))
    .collect()
}

fn list(house: &House, json: bool) -> Result<u8, Exit> {
    let all = worker::all(&house.spool)?;
    let rows: Vec<Row> = std::thread::scope(|scope| {
        // Programs are asked for their versions at once: some take seconds to say it.
        let asked: Vec<_> = all
            .into_iter()
            .map(|(name, (origin, profile))| {
                scope.spawn(move || match profile {
                    Ok(profile) => Row::new(house, origin, profile, false),
                    Err(problem) => Row::broken(name, origin, problem),
                })
            })
            .collect();
        asked.into_iter().filter_map(|row| row.join().ok()).collect()
    });
    if json {
        term::json(&rows)?;
        return Ok(0);
    }
    for row in rows {
        let there = match (row.health.installed, row.health.signed_in) {
            (true, _) if row.limited.is_some() => "limited",
            (false, _) => "missing",
            (true, Some(false)) => "signed out",
            (true, _) => "installed",
        };
        let version = row.health.version.as_deref().unwrap_or("-");
        let text = match (row.problem, row.limited) {
            (Some(problem), _) if row.health.installed => problem,
            (None, Some(limited)) => format!("until {}: {}", limited.until.to_rfc3339(), limited.message),
            _ => row.description.unwrap_or_default(),
        };
        let text = text.lines().next().unwrap_or_default();
        term::line(&term::printable(&format!(
            "{:16}  {:8}  {there:10}  {version:10}  {text}",
            row.name, row.origin
        )))?;
    }
    Ok(0)
}

fn check(house: &House, name: &WorkerName, json: bool) -> Result<u8, Exit> {
    let profile = worker::profile(&house.spool, name).map_err(|e| Exit::new(exit::INPUT, e.to_string()))?;
    let Some(profile) = profile else { return Err(unknown(house, name)) };
    let origin = worker::origin(&house.spool, &profile.name);
    let row = Row::new(house, origin, profile, true);
    let code = if row.problem.is_some() { exit::NOT_FOUND } else { 0 };
    if json {
        term::json(&row)?;
        return Ok(code);
    }
    let path = |path: &PathBuf| path.display().to_string();
    let said = |label: &str, text: String| term::line(&term::printable(&format!("{label:10}  {text}")));
    said("worker", format!("{} ({})", row.name, row.origin))?;
    said("program", row.health.executable.as_ref().map_or_else(|| "not installed".into(), path))?;
    said("version", row.health.version.clone().unwrap_or_else(|| "not known".into()))?;
    said(
        "signed in",
        match row.health.signed_in {
            Some(true) => "yes".into(),
            Some(false) => "no".into(),
            None => "not known".into(),
        },
    )?;
    if let Some(models) = &row.models {
        said("model", models.current())?;
    }
    said("can", if row.can.is_empty() { "-".into() } else { row.can.join(", ") })?;
    if let Some(limited) = &row.limited {
        let what = limited.model.as_ref().map(|m| format!(" (model {m})")).unwrap_or_default();
        said("limited", format!("until {}{what}: {}", limited.until.to_rfc3339(), limited.message))?;
    }
    if let Some(problem) = &row.problem {
        term::error(problem);
    }
    Ok(code)
}

fn show(house: &House, name: &WorkerName) -> Result<u8, Exit> {
    match worker::profile(&house.spool, name).map_err(|e| Exit::new(exit::INPUT, e.to_string()))? {
        Some(profile) => {
            term::json(&profile)?;
            Ok(0)
        }
        None => Err(unknown(house, name)),
    }
}

pub(super) fn unknown(house: &House, name: &WorkerName) -> Exit {
    let known: Vec<String> =
        worker::all(&house.spool).map(|a| a.keys().map(ToString::to_string).collect()).unwrap_or_default();
    let hint = match input::nearest(name.as_str(), &known) {
        Some(near) => format!("did you mean {near}?"),
        None => format!("known are {}", known.join(", ")),
    };
    Exit::new(exit::NOT_FOUND, format!("there is no worker {name}\n  hint: {hint}"))
}

fn link(house: &House, args: &LinkArgs) -> Result<u8, Exit> {
    let mut given: Map<String, Value> = match (&args.file, &args.command) {
        (Some(file), _) => {
            let bytes = std::fs::read(file)
                .map_err(|e| Exit::new(exit::NOT_FOUND, format!("cannot read {}: {e}", file.display())))?;
            let wrong = |p| Exit::new(exit::INPUT, format!("{}: {p}", file.display()));
            // Read as a profile first: that says where something is wrong.
            input::json::<Profile>(&bytes).map_err(wrong)?;
            input::json(&bytes).map_err(wrong)?
        }
        (None, Some(command)) => Map::from_iter([("command".to_owned(), json!(command.0))]),
        (None, None) => return Err(Exit::new(exit::USAGE, "a name and --command, or --file, are needed")),
    };
    let mut set = |key: &str, value: Option<Value>| {
        given.extend(value.map(|value| (key.to_owned(), value)));
    };
    set("name", args.name.as_ref().map(|n| json!(n)));
    set("version", Some(json!(crate::model::VERSION)));
    set("wrap", args.wrap.as_ref().map(|a| json!(a.0)));
    set("stop", args.stop.as_ref().map(|a| json!(a.0)));
    set("output", args.output.as_ref().map(|o| json!(o)));
    set("concurrency", args.concurrency.map(|n| json!(n)));
    set("description", args.description.as_ref().map(|d| json!(d)));
    if !args.env.is_empty() {
        let known = given.get("pass_env").and_then(Value::as_array).cloned().unwrap_or_default();
        let all: Vec<Value> = known.into_iter().chain(args.env.iter().map(|n| json!(n))).collect();
        given.insert("pass_env".into(), all.into());
    }
    let in_command = |arg: &Value| {
        arg.as_str().is_some_and(|arg| arg.contains("{prompt}") || arg.contains("{prompt_file}"))
    };
    if given.get("command").and_then(Value::as_array).is_some_and(|args| args.iter().any(in_command)) {
        given.insert("prompt".into(), json!(PromptBy::Argument));
    }
    let profile = worker::link(&house.spool, &given, args.replace)
        .map_err(|p| Exit::new(exit::of_problem(p.kind), p.to_string()))?;
    term::line(&format!("linked {}", profile.name))?;
    Ok(0)
}

fn unlink(house: &House, name: &WorkerName) -> Result<u8, Exit> {
    if worker::unlink(&house.spool, name)? {
        term::line(&format!("unlinked {name}"))?;
        return Ok(0);
    }
    match worker::profile(&house.spool, name) {
        Ok(Some(_)) => Err(Exit::new(exit::STATE, format!("{name} is built in: it cannot be unlinked"))),
        _ => Err(unknown(house, name)),
    }
}
