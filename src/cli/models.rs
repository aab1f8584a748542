//! `workspool models`.

use super::exit::{self, Exit};
use super::{term, workers};
use crate::model::{Profile, WorkerName};
use crate::verbs::House;
use crate::worker;
use crate::worker::models::{self, ModelFrom};

/// Show which models workers use and offer
///
/// Only what is configured is shown: no program is started, and nobody is asked over a network. A task's own
/// `--model` goes first, then [models] in config.toml, then WORKSPOOL_<WORKER>_MODEL, then the worker's profile;
/// without any of them, the program chooses.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  workspool models
  workspool models claude --json")]
pub struct Args {
    /// The worker; all of them without one
    worker: Option<WorkerName>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The models of a worker.
#[derive(Debug, serde::Serialize)]
pub(super) struct Models {
    /// Whether a task can choose one.
    choice: bool,
    /// The one that a task gets which names none; absent where the program chooses.
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    /// The rule that chose it.
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<ModelFrom>,
    /// The variable that can choose it.
    variable: String,
    /// Models to offer; others may be named as well.
    offered: Vec<String>,
}

impl Models {
    pub(super) fn of(house: &House, profile: &Profile) -> Result<Self, String> {
        let chosen = models::model(&house.config, profile, None).map_err(|p| p.message)?;
        let (model, from) = chosen.map(|(model, from)| (Some(model), Some(from))).unwrap_or_default();
        Ok(Models {
            choice: !profile.model.is_empty(),
            model,
            from,
            variable: models::variable(&profile.name),
            offered: profile.models.clone(),
        })
    }

    /// The model in use, for people.
    pub(super) fn current(&self) -> String {
        let from = match self.from {
            Some(ModelFrom::Config) => " (config.toml)",
            Some(ModelFrom::Environment) => " (environment)",
            Some(ModelFrom::Profile) => " (profile)",
            Some(ModelFrom::Task) | None => "",
        };
        match &self.model {
            Some(model) => format!("{model}{from}"),
            None if self.choice => "the program's own".into(),
            None => "no choice".into(),
        }
    }
}

#[derive(serde::Serialize)]
struct Row {
    worker: WorkerName,
    #[serde(flatten)]
    models: Option<Models>,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

/// Carries the verb out.
pub fn run(house: &House, args: &Args) -> Result<u8, Exit> {
    let profiles: Vec<(WorkerName, Result<Profile, String>)> = match &args.worker {
        None => worker::all(&house.spool)?.into_iter().map(|(name, (_, profile))| (name, profile)).collect(),
        Some(name) => {
            let found =
                worker::profile(&house.spool, name).map_err(|e| Exit::new(exit::INPUT, e.to_string()))?;
            let Some(profile) = found else { return Err(workers::unknown(house, name)) };
            vec![(profile.name.clone(), Ok(profile))]
        }
    };
    let rows: Vec<Row> = profiles
        .into_iter()
        .map(|(worker, profile)| match profile.and_then(|p| Models::of(house, &p)) {
            Ok(models) => Row { worker, models: Some(models), problem: None },
            Err(problem) => Row { worker, models: None, problem: Some(problem) },
        })
        .collect();
    if args.json {
        return term::json(&rows).map(|()| 0);
    }
    for Row { worker, models, problem } in rows {
        let (current, offered) = match (models, problem) {
            (Some(models), _) => (models.current(), models.offered.join(", ")),
            (None, problem) => ("-".into(), problem.unwrap_or_default()),
        };
        let text = format!("{worker:16}  {current:30}  {offered}");
        term::line(&term::printable(text.trim_end()))?;
    }
    Ok(0)
}
