//! The plan of an attempt: resolved once, before the first file is touched, and never changed.

use crate::git::{Oid, Repo};
use crate::model::config::Defaults;
use crate::model::{Config, Profile, RepoConfig, Task, TaskId, VERSION, WorkspaceKind, input};
use crate::spool::{Spool, events};
use crate::worker;
use anyhow::{Context as _, anyhow};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// `attempts/<n>/attempt.json`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Plan {
    /// Version of this format.
    pub version: u32,
    /// The task.
    pub task: TaskId,
    /// The attempt.
    pub attempt: u32,
    /// Which revision of the task runs.
    pub revision: u32,
    /// SHA-256 of that revision's record.
    pub task_sha256: String,
    /// When the attempt began.
    pub started_at: DateTime<Utc>,
    /// The boot that it began in.
    pub boot: String,
    /// The worker as it was then.
    pub profile: Profile,
    /// The model that was chosen, if one was.
    pub model: Option<String>,
    /// Where it works.
    pub workspace: PathBuf,
    /// What kind of workspace that is.
    pub kind: WorkspaceKind,
    /// The branch, for a git worktree.
    pub branch: Option<String>,
    /// The commit that it starts from, for a git worktree.
    pub base: Option<Oid>,
    /// Where the task's branch is at the start: the base, or the commit that this attempt goes on from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<Oid>,
    /// The attempt whose work this one goes on with, in the same workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continues: Option<u32>,
    /// What the repository says, read from that commit.
    pub repo_config: RepoConfig,
    /// The owner's values as they were then.
    pub defaults: Defaults,
}

/// The file in a repository that says how to work in it.
pub const REPO_FILE: &str = ".workspool.toml";

/// Why there is no plan: the class says who should act.
#[derive(Debug)]
pub struct NoPlan {
    /// Who should act.
    pub class: crate::model::Class,
    /// Why.
    pub error: anyhow::Error,
}

impl Plan {
    /// Makes the plan of an attempt. `before` is the plan of the attempt that it goes on with, if it does.
    pub fn make(
        spool: &Spool,
        config: &Config,
        task: &Task,
        attempt: u32,
        repo: Option<&Repo>,
        before: Option<Plan>,
    ) -> Result<Self, NoPlan> {
        use crate::model::Class;
        let no = |class: Class| move |error: anyhow::Error| NoPlan { class, error };
        let profile = worker::profile(spool, &task.worker)
            .map_err(|e| no(Class::NotFound)(e.into()))?
            .ok_or_else(|| no(Class::NotFound)(anyhow!("there is no worker {} any more", task.worker)))?;
        let kind = task.spec.workspace();
        let (mut base, mut branch, mut repo_config) = (None, None, RepoConfig::default());
        let mut start = None;
        if let (Some(repo), Some(before)) = (repo, &before) {
            (base, branch) = (before.base.clone(), before.branch.clone());
            repo_config = before.repo_config.clone();
            let name = format!("refs/heads/{}", crate::workspace::branch(task.id));
            start = repo.read_ref(&name).map_err(|e| no(Class::Workspace)(e.into()))?;
        } else if let Some(repo) = repo {
            let commit =
                repo.resolve_base(task.spec.base.as_deref()).map_err(|e| no(Class::Workspace)(e.into()))?;
            repo_config = read_repo_config(repo, &commit).map_err(no(Class::Workspace))?;
            base = Some(commit);
            branch = Some(crate::workspace::branch(task.id));
        }
        let model = worker::models::model(config, &profile, task.spec.model.as_deref())
            .map_err(|p| no(Class::NotFound)(anyhow!("{p}")))?
            .map(|(model, _)| model);
        Ok(Plan {
            version: VERSION,
            task: task.id,
            attempt,
            revision: task.revision,
            task_sha256: events::hash(&task.to_bytes()),
            started_at: Utc::now(),
            boot: crate::process::boot_id().unwrap_or_default(),
            model,
            profile,
            workspace: crate::workspace::path(spool, task),
            kind,
            branch,
            start: start.or_else(|| base.clone()),
            base,
            continues: before.map(|b| b.attempt),
            repo_config,
            defaults: config.defaults.clone(),
        })
    }
}

fn read_repo_config(repo: &Repo, base: &Oid) -> anyhow::Result<RepoConfig> {
    let Some(bytes) = repo.read_file(base, std::path::Path::new(REPO_FILE))? else {
        return Ok(RepoConfig::default());
    };
    let text = String::from_utf8(bytes).with_context(|| format!("{REPO_FILE} is not UTF-8"))?;
    let config: RepoConfig = input::toml(&text).map_err(|p| anyhow!("{REPO_FILE} at {base}: {p}"))?;
    for (key, patterns) in [("copy", &config.copy), ("protected", &config.protected)] {
        crate::workspace::rules::set(patterns).with_context(|| format!("{REPO_FILE} at {base}: {key}"))?;
    }
    Ok(config)
}
