//! Looking at tasks: one, or many, newest first.

use super::House;
use crate::intake;
use crate::keeper::Progress;
use crate::model::{HeldReason, Review, ReviewFile, State, Task, TaskId, TaskResult};
use crate::spool::{Found, Hold, Place, SpoolError, events, read_json};
use anyhow::Context as _;
use chrono::{DateTime, Utc};
use schemars::JsonSchema;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// Which task it is, and where it stands.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Head {
    /// Its id.
    pub id: TaskId,
    /// Where it stands.
    pub state: State,
    /// What was decided about it, if it succeeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub review: Option<Review>,
    /// Its name.
    pub title: String,
    /// Who does it.
    pub worker: String,
    /// The repository.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repository: Option<PathBuf>,
}

impl Head {
    /// The head of a task.
    pub fn of(task: &Task, state: State, review: Option<Review>) -> Self {
        Head {
            id: task.id,
            state,
            review,
            title: task.spec.display_title(),
            worker: task.worker.to_string(),
            repository: task.repo.as_ref().map(|r| r.path.clone()),
        }
    }
}

/// A task in a list.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Entry {
    /// Which task it is.
    #[serde(flatten)]
    pub head: Head,
    /// Words to find it by.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// When it was submitted.
    pub submitted_at: DateTime<Utc>,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<DateTime<Utc>>,
    /// What happened, or what it waits for, in a line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// Which tasks to list.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Any of these states; empty: all.
    pub states: Vec<State>,
    /// With this verdict.
    pub review: Option<Review>,
    /// With all these tags.
    pub tags: Vec<String>,
    /// About this repository (or a folder of it).
    pub repository: Option<PathBuf>,
    /// Of this worker.
    pub worker: Option<String>,
    /// At most so many.
    pub limit: usize,
    /// Only what comes after this task in the list.
    pub after: Option<TaskId>,
    /// Look through about so many records for what fits; the rest is another page. Absent: through all.
    pub effort: Option<usize>,
}

/// Names of tickets that can be looked at in the time that one record takes.
const NAMES_A_RECORD: usize = 20;

/// A list of tasks.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Listing {
    /// The tasks, newest first: those that have not ended, then those that have.
    pub tasks: Vec<Entry>,
    /// Give this as `after` for the next page; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<TaskId>,
}

/// Lists tasks. A short list costs the same with any number of ended tasks, and with an effort, any list does.
pub fn list(house: &House, filter: &Filter) -> anyhow::Result<Listing> {
    let spool = &house.spool;
    // What cannot be expanded is told by the runner; the others can be listed all the same.
    let _ = intake::expand(spool);
    let mut listing = Listing { tasks: Vec::new(), next: None };
    let repository = match &filter.repository {
        Some(path) => Some(path.canonicalize().with_context(|| format!("cannot find {}", path.display()))?),
        None => None,
    };
    let tickets = match filter.after {
        Some(id) => spool.tickets_after(id)?,
        None => spool.all_tickets()?,
    };
    let mut effort = filter.effort.map(|records| records.saturating_mul(NAMES_A_RECORD));
    let mut last = None;
    for found in tickets {
        let found = found?;
        if effort == Some(0) {
            listing.next = last;
            break;
        }
        last = Some(found.ticket.task);
        let mut spend = |names: usize| effort = effort.map(|left| left.saturating_sub(names));
        spend(1);
        let state = found.place.state();
        if !filter.states.is_empty() && !filter.states.contains(&state) {
            continue;
        }
        spend(NAMES_A_RECORD);
        // Between the name of its ticket and its record a task may be pruned, or a record be broken.
        let Ok(entry) = entry(house, found) else { continue };
        let fits = filter.review.is_none_or(|r| entry.head.review == Some(r))
            && filter.tags.iter().all(|t| entry.tags.contains(t))
            && filter.worker.as_ref().is_none_or(|w| *w == entry.head.worker)
            && repository.as_ref().is_none_or(|r| {
                entry.head.repository.as_ref().is_some_and(|e| e.starts_with(r) || r.starts_with(e))
            });
        if !fits {
            continue;
        }
        if listing.tasks.len() == filter.limit {
            listing.next = listing.tasks.last().map(|e| e.head.id);
            break;
        }
        listing.tasks.push(entry);
    }
    Ok(listing)
}

fn entry(house: &House, found: Found) -> anyhow::Result<Entry> {
    let spool = &house.spool;
    let id = found.ticket.task;
    let task = spool.read_task(id)?;
    let state = found.place.state();
    let (mut ended_at, mut message) = (None, None);
    if state.is_terminal()
        && let Some(result) = spool.read_result(id)?
    {
        (ended_at, message) = (Some(result.ended_at), Some(result.message));
    } else if state == State::Held {
        message = spool.read_hold(id).map(|h| h.message);
    }
    let review = review(house, id, state, found.ticket.attempt)?;
    Ok(Entry {
        head: Head::of(&task, state, review),
        tags: task.spec.tags,
        submitted_at: task.submitted_at,
        ended_at,
        message,
    })
}

fn review(house: &House, id: TaskId, state: State, attempt: u32) -> Result<Option<Review>, SpoolError> {
    if state != State::Succeeded {
        return Ok(None);
    }
    let file: Option<ReviewFile> = read_json(&house.spool.task(id).review())?;
    // A verdict about an earlier attempt says nothing of this one.
    let last = file.and_then(|f| f.verdicts.into_iter().last()).filter(|v| v.attempt == attempt);
    Ok(Some(last.map_or(Review::Unreviewed, |v| v.verdict)))
}

/// All about one task.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Shown {
    /// Its id.
    pub id: TaskId,
    /// Where it stands.
    pub state: State,
    /// The attempt that runs, or would run next, or was the last.
    pub attempt: u32,
    /// Why it waits, while it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits: Option<String>,
    /// For what it waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hold_reason: Option<HeldReason>,
    /// Until when.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<DateTime<Utc>>,
    /// The phase of a running attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<crate::model::Phase>,
    /// How far a running attempt is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
    /// What was asked.
    pub task: Task,
    /// SHA-256 of the record.
    pub sha256: String,
    /// What came out: of the last end, if it runs again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<TaskResult>,
    /// What was decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub review: Option<Review>,
    /// The task's folder.
    pub folder: PathBuf,
}

/// Shows one task.
pub fn show(house: &House, id: TaskId) -> anyhow::Result<Shown> {
    let spool = &house.spool;
    let task = spool.read_task(id)?;
    let dir = spool.task(id);
    let found =
        spool.find_ticket(id)?.with_context(|| format!("task {id} has no ticket: see `workspool check`"))?;
    let state = found.place.state();
    let hold: Option<Hold> = if state == State::Held { spool.read_hold(id) } else { None };
    let running = found.place == Place::Running;
    let phase = if running { last_phase(&dir.events())? } else { None };
    Ok(Shown {
        id,
        state,
        attempt: found.ticket.attempt,
        waits: hold.as_ref().map(|h| h.message.clone()),
        hold_reason: hold.as_ref().map(|h| h.reason),
        until: hold.and_then(|h| h.until),
        phase,
        progress: if running { read_json(&dir.progress()).ok().flatten() } else { None },
        sha256: events::hash(&task.to_bytes()),
        result: spool.read_result(id)?,
        review: review(house, id, state, found.ticket.attempt)?,
        folder: dir.path().to_owned(),
        task,
    })
}

fn last_phase(path: &Path) -> anyhow::Result<Option<crate::model::Phase>> {
    use crate::model::EventKind;
    Ok(events::read(path)?.into_iter().rev().find_map(|e| match e.what {
        EventKind::Phase { phase } => Some(phase),
        _ => None,
    }))
}

/// A step of an attempt whose log can be read.
#[derive(Debug, Clone)]
pub struct Step {
    /// The attempt.
    pub attempt: u32,
    /// The step's name.
    pub name: String,
    /// Its log.
    pub log: PathBuf,
}

/// The steps of a task in the order in which they ran.
pub fn log_steps(house: &House, id: TaskId) -> anyhow::Result<Vec<Step>> {
    let dir = house.spool.task(id);
    let mut steps = Vec::new();
    for attempt in 1..=dir.last_attempt() {
        let folder = dir.attempt(attempt).path().join("steps");
        for name in crate::spool::names(&folder)? {
            let name = name.to_string_lossy().into_owned();
            let log = folder.join(&name).join("log.jsonl");
            steps.push((order(&name), Step { attempt, name, log }));
        }
    }
    steps.sort_by(|a, b| (a.1.attempt, &a.0).cmp(&(b.1.attempt, &b.0)));
    Ok(steps.into_iter().map(|s| s.1).collect())
}

/// Sorts steps as they run: setup, then work and gate round by round, then teardown.
fn order(name: &str) -> (u32, u32, u32, u32) {
    let mut parts = name.split('.');
    let kind = parts.next().unwrap_or_default();
    let mut number = || parts.next().and_then(|p| p.parse().ok()).unwrap_or(0);
    match kind {
        "setup" => (0, 0, 0, number()),
        "probe" => (1, number(), 0, 0),
        "work" => (1, number(), 0, 1),
        "gate-setup" => (1, number(), 1, number()),
        "gate" => (1, number(), 2, number()),
        "in-place" => (1, number(), 3, number()),
        _ => (2, 0, 0, number()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::input::Submission;
    use crate::model::task::SubmittedBy;
    use crate::model::{Config, Door, TaskSpec};
    use crate::spool::Spool;

    fn submit(house: &House, title: &str) -> TaskId {
        let mut task = TaskSpec::new("true");
        (task.worker, task.title) = (Some("shell".parse().unwrap()), Some(title.into()));
        task.tags = vec![title.into()];
        let by = SubmittedBy { door: Door::Library, client: None, file: None, results: None };
        intake::submit(&house.spool, &house.config, Submission::One(Box::new(task)), by).unwrap()[0].id
    }

    /// Follows a list to its end: the ids, and the sizes of the pages.
    fn follow(house: &House, mut filter: Filter) -> (Vec<TaskId>, Vec<usize>) {
        let (mut ids, mut sizes) = (Vec::new(), Vec::new());
        loop {
            let page = list(house, &filter).unwrap();
            sizes.push(page.tasks.len());
            ids.extend(page.tasks.iter().map(|t| t.head.id));
            match page.next {
                Some(next) => filter.after = Some(next),
                None => return (ids, sizes),
            }
        }
    }

    #[test]
    fn pages_hold_every_task_once_and_an_effort_bounds_what_one_looks_through() {
        let dir = tempfile::tempdir().unwrap();
        let mut config = Config::default();
        (config.disk.reserve_bytes, config.disk.reserve_percent) = (0, 0);
        let house = House { spool: Spool::open(dir.path()).unwrap(), config };
        let mut ids: Vec<TaskId> = Vec::new();
        for k in 0..12 {
            ids.push(submit(&house, if k == 0 { "rare" } else { "x" }));
            // Within a millisecond ids have no order.
            let ms = chrono::Utc::now().timestamp_millis();
            while chrono::Utc::now().timestamp_millis() == ms {
                std::hint::spin_loop();
            }
        }
        intake::expand(&house.spool).unwrap();
        for id in &ids[..7] {
            crate::verbs::cancel(&house, *id, None).unwrap();
        }
        // Those that have not ended come first, each part newest first.
        ids.reverse();
        let all = Filter { limit: 5, ..Filter::default() };
        assert_eq!(follow(&house, all.clone()), (ids.clone(), vec![5, 5, 2]));
        let bounded = Filter { effort: Some(4), ..all };
        assert_eq!(follow(&house, bounded.clone()).0, ids);
        // One page does not look far enough for the oldest task; following the pages does.
        let rare = Filter { tags: vec!["rare".into()], ..bounded };
        let (found, sizes) = follow(&house, rare.clone());
        assert_eq!(found, [ids[11]]);
        assert!(sizes.len() > 2 && sizes[0] == 0, "{sizes:?}");
        assert_eq!(follow(&house, Filter { effort: None, ..rare }).1, [1]);
        let unknown = Filter { after: Some(TaskId::generate()), limit: 5, ..Filter::default() };
        assert!(list(&house, &unknown).is_err());
    }
}
