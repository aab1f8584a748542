//! `workspool workers`.

use super::exit::{self, Exit};
use super::term;
use crate::model::profile::PromptBy;
use crate::model::{Profile, WorkerName, input};
use crate::verbs::House;
use crate::worker::{self, env};
use clap::Subcommand;
use std::path::PathBuf;

/// List, show, link and unlink workers
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  workspool workers list
  workspool workers link mine --command '[\"my-agent\", \"run\", \"{prompt}\"]'
  workspool workers show mine")]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List the workers and whether they are there
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show the profile of a worker as it is in force
    Show {
        /// The worker
        name: WorkerName,
    },
    /// Link a program as a worker
    ///
    /// In the command, {prompt} or {prompt_file} stands for the task's prompt; without either it comes on
    /// standard input.
    Link(LinkArgs),
    /// Unlink a worker
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
        Verb::Link(args) => link(house, args),
        Verb::Unlink { name } => unlink(house, name),
    }
}

#[derive(serde::Serialize)]
struct Row {
    name: WorkerName,
    origin: &'static str,
    installed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    executable: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

fn list(house: &House, json: bool) -> Result<u8, Exit> {
    let rows: Vec<Row> = worker::all(&house.spool)?
        .into_iter()
        .map(|(name, (origin, profile))| {
            let origin = origin.as_str();
            match profile {
                Err(problem) => Row {
                    name,
                    origin,
                    installed: false,
                    executable: None,
                    description: None,
                    problem: Some(problem),
                },
                Ok(profile) => {
                    let executable = executable(&profile);
                    Row {
                        name,
                        origin,
                        installed: executable.is_some(),
                        executable,
                        description: profile.description,
                        problem: None,
                    }
                }
            }
        })
        .collect();
    if json {
        term::json(&rows)?;
        return Ok(0);
    }
    for row in rows {
        let there = if row.installed { "installed" } else { "missing" };
        let text = row.problem.or(row.description).unwrap_or_default();
        term::line(&term::printable(&format!("{:16}  {:8}  {there:9}  {text}", row.name, row.origin)))?;
    }
    Ok(0)
}

/// The program that a worker starts, where it is.
fn executable(profile: &Profile) -> Option<PathBuf> {
    let program = profile.wrap.first().unwrap_or(&profile.command[0]);
    if program == "{workspool}" { env::own_executable().ok() } else { env::find_executable(program) }
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

fn unknown(house: &House, name: &WorkerName) -> Exit {
    let known: Vec<String> =
        worker::all(&house.spool).map(|a| a.keys().map(ToString::to_string).collect()).unwrap_or_default();
    let hint = match input::nearest(name.as_str(), &known) {
        Some(near) => format!("did you mean {near}?"),
        None => format!("known are {}", known.join(", ")),
    };
    Exit::new(exit::NOT_FOUND, format!("there is no worker {name}\n  hint: {hint}"))
}

fn link(house: &House, args: &LinkArgs) -> Result<u8, Exit> {
    let mut profile = match (&args.file, &args.command, &args.name) {
        (Some(file), _, _) => {
            let bytes = std::fs::read(file)
                .map_err(|e| Exit::new(exit::NOT_FOUND, format!("cannot read {}: {e}", file.display())))?;
            input::json::<Profile>(&bytes)
                .map_err(|p| Exit::new(exit::INPUT, format!("{}: {p}", file.display())))?
        }
        (None, Some(command), Some(name)) => {
            let value = serde_json::json!({ "name": name, "command": command.0 });
            serde_json::from_value(value)?
        }
        _ => return Err(Exit::new(exit::USAGE, "a name and --command, or --file, are needed")),
    };
    if let Some(name) = &args.name {
        profile.name = name.clone();
    }
    profile.version = Some(crate::model::VERSION);
    if let Some(wrap) = &args.wrap {
        profile.wrap.clone_from(&wrap.0);
    }
    if let Some(stop) = &args.stop {
        profile.stop = Some(stop.0.clone());
    }
    if let Some(output) = &args.output {
        profile.output.clone_from(output);
    }
    profile.pass_env.extend(args.env.iter().cloned());
    profile.concurrency = args.concurrency.or(profile.concurrency);
    profile.description = args.description.clone().or(profile.description);
    if profile.command.iter().any(|a| a.contains("{prompt}") || a.contains("{prompt_file}")) {
        profile.prompt = PromptBy::Argument;
    }
    worker::link(&house.spool, &profile, args.replace)
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
