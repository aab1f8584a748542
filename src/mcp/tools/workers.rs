//! Who can be asked.

use super::super::tool::{Call, Effect, Fault, Tool};
use crate::worker::{self, health, models};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub fn tools() -> Vec<Tool> {
    vec![Tool::quick(
        "list_workers",
        "List workers",
        Effect::Reads,
        "The workers that a task can name: whether each is installed on this machine and signed in, the model that \
         it uses, the models that it offers. A task that names none gets the owner's default. Nothing is spent to \
         find out, and nobody is asked over a network; `check` asks the programs themselves whether they are \
         signed in, which takes a few seconds.",
        list,
    )]
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct List {
    /// Only workers that are installed.
    #[serde(default)]
    installed: bool,
    /// Ask the programs themselves whether they are signed in.
    #[serde(default)]
    check: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Workers {
    /// The workers.
    workers: Vec<WorkerView>,
    /// The worker of tasks that name none, if one is configured.
    #[serde(skip_serializing_if = "Option::is_none")]
    default: Option<String>,
}

#[derive(Debug, Default, Serialize, JsonSchema)]
struct WorkerView {
    /// Its name.
    name: String,
    /// Whether its program is there.
    installed: bool,
    /// What version it says it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    /// Whether it is signed in; absent where that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    signed_in: Option<bool>,
    /// What it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    /// Whether a task can choose its model.
    chooses_model: bool,
    /// The model of tasks that name none; absent where the program chooses.
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    /// Models that it offers; others may be named as well.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    models: Vec<String>,
    /// Whether a task can choose how hard it thinks.
    chooses_effort: bool,
    /// What keeps it from working.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

fn list(call: &Call, args: List) -> Result<Workers, Fault> {
    let house = &call.house;
    let mut workers = Vec::new();
    for (name, (_, profile)) in worker::all(&house.spool)? {
        let name = name.to_string();
        let profile = match profile {
            Ok(profile) => profile,
            Err(problem) => {
                workers.push(WorkerView { name, problem: Some(problem), ..WorkerView::default() });
                continue;
            }
        };
        let health = health::look(&house.spool, &profile, args.check);
        let model = models::model(&house.config, &profile, None);
        let problem =
            model.as_ref().err().map(ToString::to_string).or_else(|| health::complaint(&profile, &health));
        workers.push(WorkerView {
            name,
            installed: health.installed,
            version: health.version,
            signed_in: health.signed_in,
            description: profile.description,
            chooses_model: !profile.model.is_empty(),
            model: model.ok().flatten().map(|(model, _)| model),
            models: profile.models,
            chooses_effort: !profile.effort.is_empty(),
            problem,
        });
    }
    workers.retain(|w| w.installed || !args.installed);
    Ok(Workers { workers, default: house.config.default_worker.as_ref().map(ToString::to_string) })
}
