//! Which model a worker uses: the task's, else the configuration's, else the environment's, else the
//! worker's own default. Nobody is asked over a network.

use crate::model::{Config, Problem, ProblemKind, Profile, WorkerName};
use serde::Serialize;

/// The rule that chose a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelFrom {
    /// The task names it.
    Task,
    /// `[models]` in `config.toml`.
    Config,
    /// `WORKSPOOL_<WORKER>_MODEL`.
    Environment,
    /// The worker's profile.
    Profile,
}

/// The environment variable that names a worker's model.
pub fn variable(worker: &WorkerName) -> String {
    let name = worker.as_str().to_ascii_uppercase();
    let name: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    format!("WORKSPOOL_{name}_MODEL")
}

/// The model for a worker and the rule that chose it; `None` leaves it to the program. Refused where the
/// worker cannot choose one.
pub fn model(
    config: &Config,
    profile: &Profile,
    asked: Option<&str>,
) -> Result<Option<(String, ModelFrom)>, Problem> {
    let worker = &profile.name;
    let variable = variable(worker);
    let environment = std::env::var(&variable).ok().filter(|v| !v.trim().is_empty());
    let chosen = asked
        .map(|m| (m.to_owned(), ModelFrom::Task))
        .or_else(|| config.models.get(worker).map(|m| (m.clone(), ModelFrom::Config)))
        .or_else(|| environment.map(|m| (m, ModelFrom::Environment)));
    let Some((model, from)) = chosen else {
        return Ok(profile.default_model.clone().map(|m| (m, ModelFrom::Profile)));
    };
    let problem = |message: String| Err(Problem::new(ProblemKind::Worker, message).at("model"));
    let whence = match from {
        ModelFrom::Config => format!(" ([models] in config.toml has {model:?} for it)"),
        ModelFrom::Environment => format!(" ({variable} has {model:?} for it)"),
        ModelFrom::Task | ModelFrom::Profile => String::new(),
    };
    if profile.model.is_empty() {
        return problem(format!("worker {worker} cannot choose a model{whence}"));
    }
    if model.trim().is_empty() || model.chars().any(char::is_control) {
        return problem(format!("the model's name is empty, or holds control characters{whence}"));
    }
    // A name that begins with a dash would be read as a flag.
    if model.starts_with('-') {
        return problem(format!("{model:?} is not the name of a model{whence}"));
    }
    Ok(Some((model, from)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_task_goes_before_the_configuration_and_that_before_the_profile() {
        let mut profile: Profile = serde_json::from_str(
            r#"{"name": "zcode-x", "command": ["a"], "model": ["-m", "{model}"], "default_model": "own"}"#,
        )
        .unwrap();
        let mut config = Config::default();
        let chosen = |config: &Config, profile: &Profile, asked| model(config, profile, asked).unwrap();
        assert_eq!(chosen(&config, &profile, None), Some(("own".into(), ModelFrom::Profile)));
        config.models.insert("zcode-x".parse().unwrap(), "conf".into());
        assert_eq!(chosen(&config, &profile, None), Some(("conf".into(), ModelFrom::Config)));
        assert_eq!(chosen(&config, &profile, Some("task")), Some(("task".into(), ModelFrom::Task)));
        assert_eq!(variable(&profile.name), "WORKSPOOL_ZCODE_X_MODEL");
        assert!(model(&config, &profile, Some("--danger")).is_err());

        profile.model.clear();
        let refused = model(&config, &profile, None).unwrap_err();
        assert!(refused.message.contains("config.toml"), "{refused}");
    }
}
