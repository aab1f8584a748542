//! From a submission to task records: every rule that a task must fulfil before it is acknowledged.

use crate::git::{Repo, RepoError};
use crate::model::input::Submission;
use crate::model::task::{BatchRef, RepoRef, RoutedBy, SubmittedBy};
use crate::model::{
    Batch, Config, Problem, ProblemKind, Short, Task, TaskId, TaskSpec, VERSION, WorkerName, WorkspaceKind,
    check,
};
use crate::spool::{Spool, SpoolError};
use crate::worker;
use crate::workspace::overlay;
use chrono::{DateTime, TimeDelta, Utc};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

/// Turns a submission into records with ids, or says everything that is wrong with it.
pub(super) fn records(
    spool: &Spool,
    config: &Config,
    submission: Submission,
    by: &SubmittedBy,
    first: TaskId,
) -> Result<Vec<Task>, super::Refused> {
    let (specs, single) = match submission {
        Submission::One(spec) => (vec![*spec], true),
        Submission::Many(Batch { tasks, .. }) => (tasks, false),
    };
    let place = |k: usize| if single { None } else { Some(format!("tasks[{k}]")) };
    let mut problems = Vec::new();
    let mut found = |k: usize, p: Problem| {
        problems.push(match place(k) {
            Some(at) => p.under(&at),
            None => p,
        })
    };

    let names = batch_names(&specs, first, &mut found);
    let mut repos: HashMap<PathBuf, Result<RepoRef, Unusable>> = HashMap::new();
    let mut fault = None;
    let mut workers: HashMap<_, Result<(WorkerName, RoutedBy), Problem>> = HashMap::new();
    let size = u32::try_from(specs.len()).unwrap_or(u32::MAX);
    let mut tasks = Vec::with_capacity(specs.len());
    let now = Utc::now();
    for (k, spec) in specs.into_iter().enumerate() {
        for p in check::check(&spec).into_iter().chain(check::check_ceilings(&spec, &config.ceilings)) {
            found(k, p);
        }
        if !single && spec.idempotency_key.is_some() {
            found(
                k,
                Problem::new(ProblemKind::Invalid, "in a batch, the key belongs to the batch")
                    .at("idempotency_key"),
            );
        }
        for p in family(spool, config, &spec) {
            found(k, p);
        }
        let worker = workers
            .entry((spec.worker.clone(), spec.role))
            .or_insert_with(|| worker::route(spool, config, spec.worker.as_ref(), spec.role))
            .clone()
            .and_then(|(name, rule)| worker::accepts(spool, config, &name, &spec).map(|()| (name, rule)));
        let repo = match spec.repository.as_ref().filter(|path| path.is_absolute()) {
            None => None,
            Some(path) => {
                let kind = spec.workspace();
                let found_repo = repos
                    .entry(path.clone())
                    .or_insert_with(|| repository(spool, config, path, kind))
                    .clone();
                match found_repo {
                    Ok(repo) => Some(repo),
                    Err(unusable) => {
                        unusable.tell(&mut fault, |p| found(k, p));
                        None
                    }
                }
            }
        };
        if let (Some(base), Some(repo)) = (&spec.base, &repo)
            && let Err(unusable) = base_exists(&repo.path, base)
        {
            unusable.tell(&mut fault, |p| found(k, p));
        }
        let needs = needs(spool, &spec, &names, first.plus(k), |p| found(k, p));
        match worker {
            Err(p) => found(k, p),
            Ok((worker, routed_by)) => tasks.push(Task {
                version: VERSION,
                id: first.plus(k),
                revision: 1,
                submitted_at: now,
                expires_at: expires_at(&spec, config, now),
                submitted_by: by.clone(),
                worker,
                routed_by,
                repo,
                needs,
                batch: (!single).then(|| BatchRef {
                    first,
                    index: u32::try_from(k).unwrap_or(u32::MAX),
                    size,
                }),
                spec,
            }),
        }
    }
    if let Some(fault) = fault {
        // Nobody knows what is wrong with the submission, if anything is.
        return Err(super::Refused::Fault(anyhow::anyhow!(fault)));
    }
    if problems.is_empty()
        && let Some(p) = circle(&tasks)
    {
        problems.push(p);
    }
    if problems.is_empty() { Ok(tasks) } else { Err(super::Refused::Problems(problems)) }
}

/// Makes a new revision of a task that has not started, by the same rules as a submission.
pub fn revise(spool: &Spool, config: &Config, old: &Task, spec: TaskSpec) -> Result<Task, super::Refused> {
    let mut checked = spec.clone();
    if spec.needs == old.spec.needs {
        // Names of the batch mean nothing outside it; what they stood for is in the record.
        checked.needs = old.needs.iter().map(ToString::to_string).collect();
    }
    let made = records(spool, config, Submission::One(Box::new(checked)), &old.submitted_by, old.id)?;
    let new = made.into_iter().next().ok_or_else(|| anyhow::anyhow!("one task makes one record"))?;
    Ok(Task {
        revision: old.revision + 1,
        submitted_at: old.submitted_at,
        batch: old.batch.clone(),
        spec,
        ..new
    })
}

/// The names that tasks of a batch give themselves.
fn batch_names(
    specs: &[TaskSpec],
    first: TaskId,
    found: &mut impl FnMut(usize, Problem),
) -> BTreeMap<String, TaskId> {
    let mut names = BTreeMap::new();
    for (k, spec) in specs.iter().enumerate() {
        if let Some(name) = &spec.name
            && names.insert(name.clone(), first.plus(k)).is_some()
        {
            found(
                k,
                Problem::new(ProblemKind::Invalid, format!("two tasks of the batch are named {name:?}"))
                    .at("name"),
            );
        }
    }
    names
}

/// Resolves the needs of a task to ids that exist.
fn needs(
    spool: &Spool,
    spec: &TaskSpec,
    names: &BTreeMap<String, TaskId>,
    own: TaskId,
    mut found: impl FnMut(Problem),
) -> Vec<TaskId> {
    let mut ids = Vec::new();
    for (j, need) in spec.needs.iter().enumerate() {
        let at = format!("needs[{j}]");
        let id = match names.get(need) {
            Some(id) => Ok(*id),
            None => spool.resolve(need).map_err(|e| {
                let known: Vec<&String> = names.keys().collect();
                let p = Problem::new(
                    ProblemKind::Task,
                    e.to_string().lines().next().unwrap_or_default().to_owned(),
                );
                match crate::model::input::nearest(need, &known) {
                    Some(near) => p.hint(format!("did you mean {near:?} of the same batch?")),
                    None => p.hint("a need is the id of a task, or the name of a task of the same batch"),
                }
            }),
        };
        match id {
            Ok(id) if id == own => {
                found(Problem::new(ProblemKind::Invalid, "a task cannot need itself").at(at))
            }
            Ok(id) if ids.contains(&id) => {}
            Ok(id) => ids.push(id),
            Err(p) => found(p.at(at)),
        }
    }
    ids
}

/// Finds a circle of needs inside a batch.
fn circle(tasks: &[Task]) -> Option<Problem> {
    let mut left: Vec<&Task> = tasks.iter().collect();
    loop {
        let before = left.len();
        let open: Vec<TaskId> = left.iter().map(|t| t.id).collect();
        left.retain(|t| t.needs.iter().any(|n| open.contains(n)));
        if left.is_empty() {
            return None;
        }
        if left.len() == before {
            let names = left.iter().take(8).map(|t| {
                t.spec
                    .name
                    .clone()
                    .unwrap_or_else(|| format!("tasks[{}]", t.batch.as_ref().map_or(0, |b| b.index)))
            });
            let names = names.collect::<Vec<_>>().join(", ");
            return Some(
                Problem::new(
                    ProblemKind::Invalid,
                    format!("these tasks need each other in a circle: {names}"),
                )
                .at("tasks"),
            );
        }
    }
}

/// When a task can no longer be started.
fn expires_at(spec: &TaskSpec, config: &Config, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
    let age = config.ceilings.queue_age.and_then(|s| TimeDelta::try_seconds(i64::try_from(s).ok()?));
    let most = age.and_then(|age| spec.not_before.unwrap_or(now).max(now).checked_add_signed(age));
    [spec.expires, most].into_iter().flatten().min()
}

/// Looks at the task whose worker submits this one: it must exist, and the owner limits such families.
fn family(spool: &Spool, config: &Config, spec: &TaskSpec) -> Vec<Problem> {
    let Some(parent) = spec.parent else { return Vec::new() };
    let mut found = Vec::new();
    if !spool.task(parent).record(1).is_file() {
        found.push(Problem::new(ProblemKind::Task, format!("there is no task {parent}")).at("parent"));
        return found;
    }
    let above = |message: String| {
        Problem::new(ProblemKind::Ceiling, message)
            .at("parent")
            .hint("the owner's [ceilings] in config.toml decide this")
    };
    if let Some(most) = config.ceilings.children {
        let there = crate::spool::names(&spool.task(parent).children()).map_or(0, |n| n.len());
        if there >= most as usize {
            found.push(above(format!(
                "task {parent} has submitted {there} tasks, and the owner allows {most}"
            )));
        }
    }
    if let Some(most) = config.ceilings.depth {
        let mut depth = 0;
        let mut next = Some(parent);
        // A chain longer than what is allowed need not be followed to its end.
        while let Some(id) = next.filter(|_| depth <= most) {
            depth += 1;
            next = spool.read_task(id).ok().and_then(|t| t.spec.parent);
        }
        if depth > most {
            found.push(above(format!("tasks may submit tasks {most} deep, and this one would be deeper")));
        }
    }
    found
}

/// Why a repository cannot be used.
#[derive(Debug, Clone)]
enum Unusable {
    /// The submission is wrong.
    Problem(Problem),
    /// The machine failed: the same submission may be right.
    Fault(String),
}

impl Unusable {
    fn tell(self, fault: &mut Option<String>, found: impl FnOnce(Problem)) {
        match self {
            Unusable::Problem(p) => found(p),
            Unusable::Fault(message) => *fault = Some(message),
        }
    }

    fn of(e: &RepoError, problem: impl FnOnce(String) -> Problem) -> Self {
        match e {
            RepoError::Git(git) if git.is_of_the_machine() => Unusable::Fault(e.to_string()),
            _ => Unusable::Problem(problem(e.to_string())),
        }
    }
}

impl From<Problem> for Unusable {
    fn from(p: Problem) -> Self {
        Unusable::Problem(p)
    }
}

/// Looks at the repository (or folder) that a task names.
fn repository(spool: &Spool, config: &Config, path: &Path, kind: WorkspaceKind) -> Result<RepoRef, Unusable> {
    let problem = |message: String| Problem::new(ProblemKind::Repository, message).at("repository");
    let resolved = path.canonicalize().map_err(|e| problem(format!("{}: {}", path.display(), reason(&e))))?;
    if !resolved.is_dir() {
        return Err(problem(format!("{} is not a folder", path.display())).into());
    }
    if path.to_str().is_none() || resolved.to_str().is_none() {
        // Records are JSON, which cannot hold it.
        return Err(problem(format!("{} is not UTF-8", resolved.display()))
            .hint("give it another name")
            .into());
    }
    let inside = |a: &Path, b: &Path| a.starts_with(b);
    if inside(&resolved, spool.root()) {
        return Err(problem(format!(
            "{} lies inside the spool {}",
            resolved.display(),
            spool.root().display()
        ))
        .hint("a repository and a spool must not be inside each other: use another place for one of them")
        .into());
    }
    if inside(spool.root(), &resolved) && !config.allow_repository_above_spool {
        return Err(problem(format!(
            "the spool {} lies inside {}",
            spool.root().display(),
            resolved.display()
        ))
        .hint(
            "name another spool by WORKSPOOL_HOME, or set allow_repository_above_spool = true in config.toml",
        )
        .into());
    }
    match kind {
        WorkspaceKind::Directory | WorkspaceKind::Copy | WorkspaceKind::Temporary => {
            use std::os::unix::fs::MetadataExt as _;
            let meta = resolved.metadata().map_err(|e| problem(reason(&e)))?;
            let key = Short::of(&format!("{}:{}", meta.dev(), meta.ino())).of_directory().to_string();
            let name =
                resolved.file_name().map_or_else(|| "root".into(), |n| n.to_string_lossy().into_owned());
            Ok(RepoRef { name: format!("{name}-{key}"), key, path: resolved })
        }
        WorkspaceKind::Worktree | WorkspaceKind::Clone | WorkspaceKind::Overlay => {
            let repo = Repo::open(&resolved).map_err(|e| {
                Unusable::of(&e, |text| {
                    let mut lines = text.splitn(2, "\n  hint: ");
                    let p = problem(lines.next().unwrap_or_default().to_owned());
                    match lines.next() {
                        Some(hint) => p.hint(hint),
                        None => p,
                    }
                })
            })?;
            if kind == WorkspaceKind::Overlay {
                overlay::probe(spool).map_err(|unfit| {
                    Problem::new(ProblemKind::Invalid, format!("overlays cannot be made here: {unfit}"))
                        .at("workspace")
                        .hint(unfit.hint)
                })?;
            }
            Ok(RepoRef { path: resolved, key: repo_key(&repo), name: repo.key.name })
        }
    }
}

/// The digits that stand for a repository in tickets.
fn repo_key(repo: &Repo) -> String {
    repo.key.hash.parse::<Short>().unwrap_or_else(|()| Short::of(&repo.key.hash)).of_repository().to_string()
}

fn base_exists(path: &Path, base: &str) -> Result<(), Unusable> {
    let problem = |message: String| Problem::new(ProblemKind::Repository, message).at("base");
    let repo = Repo::open(path).map_err(|e| Unusable::of(&e, problem))?;
    repo.resolve_base(Some(base)).map(drop).map_err(|e| {
        Unusable::of(&e, |message| {
            problem(message).hint(format!("expected a commit, branch or tag of {}", path.display()))
        })
    })
}

fn reason(e: &std::io::Error) -> String {
    match e.kind() {
        std::io::ErrorKind::NotFound => "there is no such folder".into(),
        std::io::ErrorKind::PermissionDenied => "it may not be read by this user".into(),
        _ => e.to_string(),
    }
}

/// Faults of the spool are not the submitter's.
impl From<SpoolError> for super::Refused {
    fn from(e: SpoolError) -> Self {
        super::Refused::Fault(e.into())
    }
}
