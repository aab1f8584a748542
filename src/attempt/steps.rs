//! Steps: how each command of an attempt is planned for its keeper, and what its end means.

use super::Attempt;
use super::outcome::{End, Outcome};
use crate::durable;
use crate::keeper::{
    self, Carried, CarryError, Cause, DeadlineKind, Ended, Loss, StepExit, StepPlan, StepState, Swept,
};
use crate::model::{Class, Command, Event, EventKind, Phase};
use crate::process::{Census, Identity, Survivor};
use crate::redact;
use crate::spool::{AttemptDir, events};
use crate::worker::env;
use anyhow::Context as _;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

impl Attempt {
    /// The plan of a command that a user declared: setup, verify, teardown.
    pub(super) fn command_plan(
        &self,
        step: &str,
        command: &Command,
        total: Duration,
    ) -> anyhow::Result<StepPlan> {
        self.command_plan_in(&self.plan.workspace, self.task.spec.subdir.as_deref(), step, command, total)
    }

    /// The plan of such a command in a tree, or a folder of it.
    pub(super) fn command_plan_in(
        &self,
        root: &Path,
        folder: Option<&Path>,
        step: &str,
        command: &Command,
        total: Duration,
    ) -> anyhow::Result<StepPlan> {
        let mut plan = self.step_plan(root, folder, step, command.argv())?;
        // A deadline of nothing still lets the keeper say that the time was over.
        plan.deadlines.total_ms = Some(millis(total).max(1));
        Ok(plan)
    }

    /// The folder of the workspace that the worker starts in: the one that the task names, else the one of the
    /// repository by which the task named that.
    pub(super) fn folder(&self) -> Option<&Path> {
        let named = self.repo.as_ref().map(|repo| repo.prefix.as_path());
        self.task.spec.subdir.as_deref().or(named.filter(|prefix| !prefix.as_os_str().is_empty()))
    }

    /// Fails the attempt if the workspace lacks that folder.
    pub(super) fn check_folder(&self) -> Option<End> {
        let root = &self.plan.workspace;
        let error = self.folder().and_then(|folder| inside(root, folder).err())?;
        let commit = self.plan.start.as_ref().map(|at| format!(", which begins with the commit {at}"));
        let message = format!("{error}{}", commit.unwrap_or_default());
        Some(End::failed(Class::Workspace, Phase::Preparing, message))
    }

    /// What the plans of all steps have in common; `folder` is where in the tree it begins, if not at its top.
    pub(super) fn step_plan(
        &self,
        root: &Path,
        folder: Option<&Path>,
        step: &str,
        argv: Vec<String>,
    ) -> anyhow::Result<StepPlan> {
        let spool = self.locked.spool();
        let id = self.task.id.to_string();
        let cancel = spool.request_path(self.cancel_request());
        let cwd = match folder {
            Some(folder) => inside(root, folder)?,
            None => root.to_owned(),
        };
        let mut plan = StepPlan::new(spool.id(), (&id, self.number(), step), argv, &cwd, &cancel);
        let tmp = spool.tmp().join(format!("{id}.{}", self.number()));
        durable::ensure_dir(&tmp)?;
        let set = |name: &str, value: String| (name.to_owned(), value);
        plan.env.extend([
            set("TMPDIR", tmp.to_string_lossy().into_owned()),
            set("TERM", "dumb".into()),
            set("GIT_TERMINAL_PROMPT", "0".into()),
            set("WORKSPOOL_HOME", spool.root().to_string_lossy().into_owned()),
            set("WORKSPOOL_TASK", id),
            set("WORKSPOOL_WORKSPACE", root.to_string_lossy().into_owned()),
        ]);
        if std::env::var_os("LANG").is_none() && std::env::var_os("LC_ALL").is_none() {
            plan.env.extend([set("LANG", "C.UTF-8".into())]);
        }
        if let Some(repo) = &self.task.repo {
            plan.env.extend([set("WORKSPOOL_REPOSITORY", repo.path.to_string_lossy().into_owned())]);
        }
        plan.pass_env = env::BASE.iter().map(|n| (*n).to_owned()).collect();
        plan.pass_env.extend(self.task.spec.env.iter().cloned());
        plan.mask_env = self.task.spec.env.clone();
        plan.mask_env.extend(plan.pass_env.iter().filter(|n| redact::env_name_is_secret(n)).cloned());
        if let Some(prepared) = super::read_prepared(&self.dir)? {
            let secret =
                |path: &&PathBuf| path.file_name().is_some_and(|n| n.to_string_lossy().contains(".env"));
            plan.mask_files = prepared.copied.iter().filter(secret).map(|p| root.join(p)).collect();
        }
        plan.grace_ms = self.plan.defaults.grace_ms;
        plan.output_cap_bytes = self.plan.defaults.output_cap;
        plan.progress = Some(self.locked.dir().progress());
        plan.resume = super::spawn::argv(spool, self.task.id, self.number(), &self.plan.task_sha256)?;
        Ok(plan)
    }

    /// Carries a step to its end. What ends the attempt whatever the step was comes back as [`End`].
    pub(super) fn carry_step(
        &self,
        step: &str,
        plan: &StepPlan,
        phase: Phase,
    ) -> anyhow::Result<Result<Box<StepExit>, End>> {
        let dir = self.dir.step(step);
        // Whether it ran, nobody can tell whose record of its start a power loss may have taken.
        if phase != Phase::Finishing
            && self.plan.boot != crate::process::boot_id()?
            && keeper::state(&dir).is_ok_and(|state| state == StepState::NotStarted)
        {
            let message = format!("the machine was restarted before step {step}, or as it began");
            return Ok(Err(End::interrupted(phase, message)));
        }
        let new = !dir.join("exit.json").exists();
        if new {
            self.locked.settle_record()?;
        }
        let ended_before = self.lost.borrow_mut().remove(step);
        let carried = match ended_before {
            Some(swept) => Carried::Lost(swept),
            None => self.carry_again(&dir, plan).with_context(|| format!("step {step}"))?,
        };
        let exit = match carried {
            Carried::Ended(exit) => {
                still_alive(&exit.census)?;
                exit
            }
            Carried::Lost(swept) => {
                still_alive(&swept.cleared.census)?;
                let found = swept.cleared.ended.len();
                let message = match swept.loss {
                    Loss::Killed => format!(
                        "the keeper of step {step} was killed; {found} of its processes were found and ended"
                    ),
                    Loss::Restarted => format!("the machine was started again while step {step} ran"),
                    Loss::Elsewhere => format!(
                        "step {step} ran in another pid namespace (a container?) that is not seen from here, \
                         and its keeper is dead; {found} of its processes were found and ended"
                    ),
                };
                return Ok(Err(End::lost(phase, message, swept.cleared)));
            }
        };
        if new || !self.is_told(step)? {
            self.event(EventKind::Step {
                step: step.to_owned(),
                ended: describe(&exit),
                elapsed_ms: exit.elapsed_ms,
                usage: exit.usage.clone(),
                model: exit.said.model.clone(),
            })?;
        }
        match &exit.cause {
            Cause::Cancelled => Ok(Err(self.cancelled_end(phase))),
            Cause::Budget { which, used, limit } => {
                let message = format!("used {used} of {limit} {which:?}");
                Ok(Err(End::over_budget(phase, message)))
            }
            Cause::KeeperFault { error } => {
                Ok(Err(End::fault(phase, error, format!("the keeper of step {step} failed: {error}"))))
            }
            Cause::Exit | Cause::Deadline { .. } | Cause::Lingered => Ok(Ok(exit)),
        }
    }

    /// Carries a step; a keeper that died before it started anything costs nothing but another try.
    pub(super) fn carry_again(&self, dir: &Path, plan: &StepPlan) -> Result<Carried, CarryError> {
        let mut tries = 0;
        loop {
            match keeper::carry(dir, plan, self.locked.lock().path(), || self.record_before()) {
                Err(CarryError::Io(_)) if tries < 2 && keeper::state(dir)? == StepState::NotStarted => {
                    tries += 1;
                }
                other => return other,
            }
        }
    }

    /// Whether the history tells of the end of a step.
    fn is_told(&self, step: &str) -> anyhow::Result<bool> {
        let tells = |e: &Event| match &e.what {
            EventKind::Step { step: told, .. } => e.attempt == Some(self.number()) && told == step,
            _ => false,
        };
        Ok(events::read(&self.locked.dir().events())?.iter().any(tells))
    }

    /// Takes over what a step's end says about processes.
    pub(super) fn note_census(&self, exit: &StepExit, outcome: &mut Outcome) {
        outcome.note_census(&exit.census, &exit.left_over);
    }
}

/// A folder inside a tree, whatever links there are.
fn inside(root: &Path, folder: &Path) -> anyhow::Result<PathBuf> {
    let none = || format!("there is no folder {} in the workspace", folder.display());
    let real = root.join(folder).canonicalize().ok().filter(|real| real.is_dir()).with_context(none)?;
    anyhow::ensure!(
        real.starts_with(root.canonicalize()?),
        "{} leads out of the workspace",
        folder.display()
    );
    Ok(real)
}

/// Processes of an attempt that could not be ended: it keeps its lease (I4).
#[derive(Debug, thiserror::Error)]
#[error("these processes cannot be ended, so the task keeps its place: {0}")]
pub(super) struct StillAlive(String);

impl StillAlive {
    pub(super) fn of(whom: String) -> Self {
        StillAlive(whom)
    }
}

/// What was ended of steps that had lost their keepers, by their names.
pub(super) type Lost = BTreeMap<String, Swept>;

/// Fails if a process that a census named still lives.
pub(super) fn still_alive(census: &Census) -> Result<(), StillAlive> {
    let lives =
        |s: &&Survivor| Identity::of(s.pid).is_ok_and(|now| now.is_some_and(|now| now.start == s.start));
    let names: Vec<String> =
        census.survivors.iter().filter(lives).map(|s| format!("{} (pid {})", s.command, s.pid)).collect();
    if names.is_empty() { Ok(()) } else { Err(StillAlive(names.join(", "))) }
}

/// Fails unless nothing of an attempt lives, whatever went wrong with it: no keeper, nothing that a dead
/// keeper left, nothing that could not be ended (I4). What a dead keeper left is ended here.
pub(super) fn nothing_lives(dir: &AttemptDir, spool: &str, task: &str, lock: &Path) -> anyhow::Result<Lost> {
    let mut lost = Lost::default();
    let steps = dir.path().join("steps");
    for name in crate::spool::names(&steps)? {
        let (step, name) = (steps.join(&name), name.to_string_lossy().into_owned());
        // Only its marker counts: what the folder says of it may be anybody's.
        let plan = StepPlan::new(spool, (task, dir.number(), &name), Vec::new(), dir.path(), &step);
        let found = match keeper::state(&step) {
            Ok(StepState::NotStarted) => continue,
            // Its last act is to start another supervisor.
            Ok(StepState::Running(_)) => return Err(StillAlive(format!("the keeper of step {name}")).into()),
            Ok(StepState::Ended(exit)) => Ok(Carried::Ended(exit)),
            Ok(StepState::Lost(_)) => keeper::carry(&step, &plan, lock, || {}).map_err(anyhow::Error::from),
            Err(e) => Err(e.into()),
        };
        match found {
            Ok(Carried::Ended(exit)) => still_alive(&exit.census)?,
            Ok(Carried::Lost(swept)) => {
                still_alive(&swept.cleared.census)?;
                lost.insert(name, swept);
            }
            Err(e) if is_passing(&e) => return Err(StillAlive(format!("step {name}: {e:#}")).into()),
            // Records that a worker spoiled tell nothing, today or later; nor do those of another namespace.
            Err(_) => {}
        }
    }
    Ok(lost)
}

/// Whether a look failed for want of something that comes back.
fn is_passing(error: &anyhow::Error) -> bool {
    use rustix::io::Errno;
    let passing =
        [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::AGAIN, Errno::IO].map(Errno::raw_os_error);
    error.chain().any(|cause| {
        let code = cause.downcast_ref::<std::io::Error>().and_then(std::io::Error::raw_os_error);
        code.is_some_and(|code| passing.contains(&code))
    })
}

/// How a step ended, in words.
pub(super) fn describe(exit: &StepExit) -> String {
    let how = match &exit.ended {
        Ended::Exited { code } => format!("exit code {code}"),
        Ended::Signaled { signal } => format!("signal {signal}"),
        Ended::NotStarted { error, .. } => error.clone(),
        Ended::StillRunning => "it could not be ended".to_owned(),
    };
    match &exit.cause {
        Cause::Exit => how,
        Cause::Cancelled => "cancelled".to_owned(),
        Cause::Deadline { which } => match which {
            DeadlineKind::Total => "its time was over".to_owned(),
            DeadlineKind::Silence => "it was silent for too long".to_owned(),
            DeadlineKind::Start => "it did not print anything in the time for its start".to_owned(),
        },
        Cause::Budget { .. } => "its budget was used up".to_owned(),
        Cause::Lingered => "it had finished and did not exit".to_owned(),
        Cause::KeeperFault { error } => error.clone(),
    }
}

/// How a declared command failed, or `None` if it did not.
pub(super) fn failed(exit: &StepExit) -> Option<String> {
    let passed = exit.ended == Ended::Exited { code: 0 } && exit.cause == Cause::Exit;
    (!passed).then(|| describe(exit))
}

/// The end of what a command wrote to standard error, else to standard output.
pub(super) fn tail(exit: &StepExit) -> Option<String> {
    [&exit.stderr_tail, &exit.stdout_tail].into_iter().find(|t| !t.trim().is_empty()).cloned()
}

pub(super) fn millis(d: Duration) -> u64 {
    u64::try_from(d.as_millis()).unwrap_or(u64::MAX)
}
