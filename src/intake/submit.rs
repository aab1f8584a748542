//! The one code path behind every door: a submission is one durable file.

use super::{Refused, admit};
use crate::durable;
use crate::model::input::Submission;
use crate::model::task::SubmittedBy;
use crate::model::{Config, Intake, Problem, ProblemKind, Task, TaskId, TaskSpec, VERSION};
use crate::spool::{Spool, SpoolError, events, read_json};
use serde::{Deserialize, Serialize};

/// A task that was taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accepted {
    /// Its id.
    pub id: TaskId,
    /// SHA-256 of its record.
    pub sha256: String,
    /// Its name for lists.
    pub title: String,
    /// Whether an earlier submission with the same key is this task.
    #[serde(default)]
    pub existing: bool,
}

/// Which submission won an idempotency key: `keys/<sha256 of the key>`.
#[derive(Debug, Serialize, Deserialize)]
struct KeyFile {
    version: u32,
    key: String,
    first: TaskId,
    content: String,
    count: usize,
}

/// Takes a submission and returns once it is durable.
///
/// All tasks of a batch are taken, or none. Of submissions with one key and the same content the first
/// one counts, however many race.
pub fn submit(
    spool: &Spool,
    config: &Config,
    submission: Submission,
    by: SubmittedBy,
) -> Result<Vec<Accepted>, Refused> {
    let key = match &submission {
        Submission::One(spec) => spec.idempotency_key.clone(),
        Submission::Many(batch) => batch.idempotency_key.clone(),
    };
    submit_with_key(spool, config, submission, by, key)
}

/// Like [`submit`], with a key that the submission itself does not name.
pub fn submit_with_key(
    spool: &Spool,
    config: &Config,
    submission: Submission,
    by: SubmittedBy,
    key: Option<String>,
) -> Result<Vec<Accepted>, Refused> {
    reserve(spool, config, &submission)?;
    let content = key.as_ref().map(|_| content(&submission));
    if let (Some(key), Some(content)) = (&key, &content)
        && let Some(known) = read_key(spool, key)?
        && let Some(accepted) = existing(spool, key, &known, content, &submission)?
    {
        return Ok(accepted);
    }
    let specs = submission.clone();
    let mut first = TaskId::generate();
    let mut tasks = admit::records(spool, config, submission.clone(), &by, first)?;
    if let (Some(key), Some(content)) = (&key, &content) {
        let known = KeyFile {
            version: VERSION,
            key: key.clone(),
            first,
            content: content.clone(),
            count: tasks.len(),
        };
        let path = key_path(spool, key);
        let bytes = serde_json::to_vec(&known).map_err(anyhow::Error::from)?;
        let won = durable::create_new(&path, &bytes).map_err(|e| SpoolError::io("write", &path, e))?;
        if !won {
            let known = read_key(spool, key)?.ok_or_else(|| {
                Refused::Fault(anyhow::anyhow!("the idempotency key was removed meanwhile; try again"))
            })?;
            if let Some(accepted) = existing(spool, key, &known, content, &specs)? {
                return Ok(accepted);
            }
            // The winner died between its key and its submission: we make its submission, under its id.
            first = known.first;
            tasks = admit::records(spool, config, submission, &by, first)?;
        }
    }
    let intake = Intake { version: VERSION, tasks };
    let path = spool.intake().join(format!("{first}.json"));
    let bytes = serde_json::to_vec(&intake).map_err(anyhow::Error::from)?;
    durable::create_new(&path, &bytes).map_err(|e| SpoolError::io("write", &path, e))?;
    spool.ring();
    let ours: Vec<Accepted> = intake.tasks.iter().map(|task| accepted(task, false)).collect();
    if let (Some(key), Some(content)) = (&key, &content)
        && let Some(known) = read_key(spool, key)?
        && let Some(there) = existing(spool, key, &known, content, &specs)?
        && there.iter().zip(&ours).any(|(there, ours)| there.sha256 != ours.sha256)
    {
        // Somebody else with the same key was only slow, and not dead: what is there is the task.
        return Ok(there);
    }
    Ok(ours)
}

fn accepted(task: &Task, existing: bool) -> Accepted {
    Accepted {
        id: task.id,
        sha256: events::hash(&task.to_bytes()),
        title: task.spec.display_title(),
        existing,
    }
}

/// What a submission is, apart from its key: equal content has an equal hash.
fn content(submission: &Submission) -> String {
    let plain = |spec: &TaskSpec| TaskSpec { idempotency_key: None, ..spec.clone() };
    let specs: Vec<TaskSpec> = match submission {
        Submission::One(spec) => vec![plain(spec)],
        Submission::Many(batch) => batch.tasks.iter().map(plain).collect(),
    };
    events::hash(&serde_json::to_vec(&specs).unwrap_or_default())
}

fn key_path(spool: &Spool, key: &str) -> std::path::PathBuf {
    spool.keys().join(events::hash(key.as_bytes()))
}

fn read_key(spool: &Spool, key: &str) -> Result<Option<KeyFile>, SpoolError> {
    read_json(&key_path(spool, key))
}

/// Removes the key of a task that is pruned, so that it can be used again.
pub fn forget_key(spool: &Spool, key: &str, first: TaskId) -> Result<(), SpoolError> {
    let path = key_path(spool, key);
    if read_key(spool, key)?.is_some_and(|known| known.first == first) {
        durable::remove_file(&path).map_err(|e| SpoolError::io("remove", &path, e))?;
    }
    Ok(())
}

/// The tasks that a key stands for; `None` if its submission was never made.
fn existing(
    spool: &Spool,
    key: &str,
    known: &KeyFile,
    content: &str,
    submission: &Submission,
) -> Result<Option<Vec<Accepted>>, Refused> {
    let Some(tasks) = submitted(spool, known)? else { return Ok(None) };
    if known.content != content {
        let difference = difference(&tasks, submission);
        return Err(Refused::Problems(vec![
            Problem::new(
                ProblemKind::Conflict,
                format!("the key {key:?} was used for task {} with other content: {difference}", known.first),
            )
            .at("idempotency_key")
            .hint("use a new key for a new task"),
        ]));
    }
    Ok(Some(tasks.iter().map(|task| accepted(task, true)).collect()))
}

/// Reads the tasks of a submission, expanded or not.
fn submitted(spool: &Spool, known: &KeyFile) -> Result<Option<Vec<Task>>, SpoolError> {
    let expanded = || -> Result<Option<Vec<Task>>, SpoolError> {
        let tasks = (0..known.count).map(|k| read_json(&spool.task(known.first.plus(k)).record(1)));
        tasks.collect()
    };
    // Records come first: an intake file beside them may be that of somebody who thought the first
    // submitter dead. Expansion makes the records, then removes the file: so they are looked at once more.
    if let Some(tasks) = expanded()? {
        return Ok(Some(tasks));
    }
    if let Some(intake) = read_json::<Intake>(&spool.intake().join(format!("{}.json", known.first)))? {
        return Ok(Some(intake.tasks));
    }
    match expanded()? {
        None if spool.task(known.first).record(1).is_file() => {
            let gone =
                (0..known.count).map(|k| known.first.plus(k)).find(|id| !spool.task(*id).record(1).is_file());
            Err(SpoolError::NoTask(gone.unwrap_or(known.first).to_string()))
        }
        tasks => Ok(tasks),
    }
}

/// Names the fields in which two submissions differ.
fn difference(tasks: &[Task], submission: &Submission) -> String {
    let specs: Vec<&TaskSpec> = match submission {
        Submission::One(spec) => vec![spec],
        Submission::Many(batch) => batch.tasks.iter().collect(),
    };
    if specs.len() != tasks.len() {
        return format!("{} tasks instead of {}", specs.len(), tasks.len());
    }
    let mut fields = Vec::new();
    for (k, (old, new)) in tasks.iter().zip(&specs).enumerate() {
        let (Ok(old), Ok(new)) = (serde_json::to_value(&old.spec), serde_json::to_value(new)) else {
            continue;
        };
        let (Some(old), Some(new)) = (old.as_object(), new.as_object()) else { continue };
        let names: std::collections::BTreeSet<&String> = old.keys().chain(new.keys()).collect();
        for name in names {
            if name != "idempotency_key" && old.get(name) != new.get(name) {
                fields.push(if specs.len() == 1 { name.clone() } else { format!("tasks[{k}].{name}") });
            }
        }
    }
    format!("{} differs", fields.join(", "))
}

/// Refuses new work while the disk is too full to hold it.
fn reserve(spool: &Spool, config: &Config, submission: &Submission) -> Result<(), Refused> {
    let disk = &config.disk;
    let specs = match submission {
        Submission::One(spec) => std::slice::from_ref(&**spec),
        Submission::Many(batch) => batch.tasks.as_slice(),
    };
    super::check_reserve(spool.root(), disk.reserve_bytes, disk.reserve_percent).map_err(Refused::Disk)?;
    let most = specs.iter().map(|spec| super::reserve_for(disk, spec.workspace())).max().unwrap_or(0);
    if most > disk.reserve_bytes {
        super::check_reserve(spool.worktrees(), most, disk.reserve_percent).map_err(Refused::Disk)?;
    }
    Ok(())
}
