//! The plan of an attempt: resolved once, before the first file is touched, and never changed.

use crate::git::{Oid, Repo};
use crate::model::config::Defaults;
use crate::model::{Config, Profile, RepoConfig, Task, TaskId, VERSION, WorkspaceKind, input};
use crate::spool::{Spool, events};
use crate::worker;
use crate::workspace::apart;
use anyhow::{Context as _, anyhow};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

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
        } else if kind == WorkspaceKind::Copy {
            // Its base is known once it is made, unless it is there already.
            base = before.as_ref().and_then(|b| b.base.clone());
            repo_config = match (&before, &task.repo) {
                (Some(before), _) => before.repo_config.clone(),
                (None, Some(folder)) => read_folder_config(&folder.path).map_err(no(Class::Workspace))?,
                (None, None) => RepoConfig::default(),
            };
            if base.is_some() {
                let shadow = apart::shadow_of(spool, task).map_err(no(Class::Workspace))?;
                let name = format!("refs/heads/{}", crate::workspace::branch(task.id));
                start = shadow.read_ref(&name).map_err(|e| no(Class::Workspace)(e.into()))?;
            }
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
    let Some(bytes) = repo.read_file(base, Path::new(REPO_FILE))? else {
        return Ok(RepoConfig::default());
    };
    parse_config(bytes, &format!("{REPO_FILE} at {base}"))
}

/// A copy is of what lies there, whether it is committed or not.
fn read_folder_config(folder: &Path) -> anyhow::Result<RepoConfig> {
    let path = folder.join(REPO_FILE);
    match std::fs::read(&path) {
        Ok(bytes) => parse_config(bytes, &path.display().to_string()),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(RepoConfig::default()),
        Err(e) => Err(anyhow!("cannot read {}: {e}", path.display())),
    }
}

fn parse_config(bytes: Vec<u8>, place: &str) -> anyhow::Result<RepoConfig> {
    let text = String::from_utf8(bytes).with_context(|| format!("{place} is not UTF-8"))?;
    let config: RepoConfig = input::toml(&text).map_err(|p| anyhow!("{place}: {p}"))?;
    for (key, patterns) in [("copy", &config.copy), ("protected", &config.protected)] {
        crate::workspace::rules::set(patterns).with_context(|| format!("{place}: {key}"))?;
    }
    Ok(config)
}
