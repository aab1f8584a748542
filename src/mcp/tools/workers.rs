//! Who can be asked.

use super::super::tool::{Call, Effect, Fault, Tool};
use crate::worker::{self, env};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub fn tools() -> Vec<Tool> {
    vec![Tool::quick(
        "list_workers",
        "List workers",
        Effect::Reads,
        "The workers that a task can name, whether each is installed on this machine, and the models it offers. \
         A task that names none gets the owner's default. Nothing is started or spent to find out.",
        list,
    )]
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct List {
    /// Only workers that are installed.
    #[serde(default)]
    installed: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Workers {
    /// The workers.
    workers: Vec<WorkerView>,
    /// The worker of tasks that name none, if one is configured.
    #[serde(skip_serializing_if = "Option::is_none")]
    default: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct WorkerView {
    /// Its name.
    name: String,
    /// Whether its program is there.
    installed: bool,
    /// What it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    /// Whether a task can choose its model.
    chooses_model: bool,
    /// Models that it offers, where they are known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    models: Vec<String>,
    /// The model that is used when none is chosen, where it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    default_model: Option<String>,
    /// Whether a task can choose how hard it thinks.
    chooses_effort: bool,
    /// Where its program is.
    #[serde(skip_serializing_if = "Option::is_none")]
    program: Option<String>,
    /// What is wrong with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

fn list(call: &Call, args: List) -> Result<Workers, Fault> {
    let mut workers = Vec::new();
    for (name, (_, profile)) in worker::all(&call.house.spool)? {
        let profile = match profile {
            Ok(profile) => profile,
            Err(problem) => {
                workers.push(WorkerView {
                    name: name.to_string(),
                    installed: false,
                    description: None,
                    chooses_model: false,
                    models: Vec::new(),
                    default_model: None,
                    chooses_effort: false,
                    program: None,
                    problem: Some(problem),
                });
                continue;
            }
        };
        let program = profile.wrap.first().or(profile.command.first()).cloned().unwrap_or_default();
        let path = if program == "{workspool}" {
            env::own_executable().ok()
        } else {
            env::find_executable(&program)
        };
        workers.push(WorkerView {
            name: name.to_string(),
            installed: path.is_some(),
            description: profile.description,
            chooses_model: !profile.model.is_empty(),
            models: profile.models,
            default_model: profile.default_model,
            chooses_effort: !profile.effort.is_empty(),
            problem: path.is_none().then(|| format!("{program} is not on the PATH of this server")),
            program: path.map(|p| p.display().to_string()),
        });
    }
    workers.retain(|w| w.installed || !args.installed);
    Ok(Workers { workers, default: call.house.config.default_worker.as_ref().map(ToString::to_string) })
}
