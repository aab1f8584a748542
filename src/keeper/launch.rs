//! The supervisor's side: starts a keeper and waits for it.

#[cfg(target_os = "linux")]
use super::forked::{Kept, Order};
use super::plan::StepPlan;
use super::record::{StepState, settled, state};
use super::{ERRORS, LOCK, PLAN};
use crate::durable::{self, Held, Lock, fault};
use crate::process;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Why no keeper was started.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// A keeper lives in this folder.
    #[error("a keeper runs this step already")]
    Running,
    /// The step was started before; it must be looked at and, if it was lost, swept.
    #[error("this step was started before")]
    AlreadyStarted,
    /// The plan cannot be carried out.
    #[error("the plan is not valid: {0}")]
    Plan(String),
    /// Something failed.
    #[error("cannot {what}")]
    Io {
        /// What was being done.
        what: &'static str,
        /// How it failed.
        source: io::Error,
    },
}

/// A step that takes so long will take longer: while we wait, we need little memory.
#[cfg(target_os = "linux")]
const LONG: std::time::Duration = std::time::Duration::from_secs(1);

/// A keeper that was started by this process.
#[derive(Debug)]
pub enum Launched {
    /// As a process of its own from the start.
    Spawned(Child),
    /// As a copy of this one, made for this step or an earlier one, until it is waited for.
    #[cfg(target_os = "linux")]
    Kept(Option<Kept>),
}

/// Starts a keeper for `plan` in `step_dir`, which must exist and be unused.
///
/// The step's lock is taken before the keeper is started and inherited by it, so that a free lock
/// always means that no keeper lives. `supervisor_lock` is the lock that tells the keeper at its end
/// whether anybody still waits for it.
///
/// On Linux the keeper is a fork of this process if it has one thread only, made for this step or left from an earlier
/// one; otherwise, and on other systems, it is this program's `keep`.
pub fn launch(step_dir: &Path, plan: &StepPlan, supervisor_lock: &Path) -> Result<Launched, LaunchError> {
    let ready = Ready::new(step_dir, plan, supervisor_lock)?;
    #[cfg(target_os = "linux")]
    if let Some(kept) = ready.hand(plan)? {
        return Ok(Launched::Kept(Some(kept)));
    }
    ready.spawn(&own_program().map_err(io("find this program"))?).map(Launched::Spawned)
}

/// Like [`launch`], with the program that has the `keep` verb.
pub fn launch_with(
    program: &Path,
    step_dir: &Path,
    plan: &StepPlan,
    supervisor_lock: &Path,
) -> Result<Child, LaunchError> {
    Ready::new(step_dir, plan, supervisor_lock)?.spawn(program)
}

/// A step whose keeper can be started: its lock is ours, and its plan is written.
struct Ready {
    step_dir: PathBuf,
    supervisor_lock: PathBuf,
    held: Held,
}

impl Ready {
    fn new(step_dir: &Path, plan: &StepPlan, supervisor_lock: &Path) -> Result<Self, LaunchError> {
        check(plan)?;
        let step_dir = std::path::absolute(step_dir).map_err(io("find the step's folder"))?;
        let supervisor_lock =
            std::path::absolute(supervisor_lock).map_err(io("find the supervisor's lock"))?;
        let lock = Lock::at(step_dir.join(LOCK));
        let held = lock.try_take().map_err(io("lock the step"))?.ok_or(LaunchError::Running)?;
        let used = [super::START, super::EXIT].iter().any(|name| step_dir.join(name).exists());
        if used {
            return Err(LaunchError::AlreadyStarted);
        }
        let bytes = serde_json::to_vec(plan).map_err(|e| LaunchError::Plan(e.to_string()))?;
        durable::replace_unsynced(&step_dir.join(PLAN), &bytes).map_err(io("write the plan"))?;
        Ok(Ready { step_dir, supervisor_lock, held })
    }

    fn spawn(self, program: &Path) -> Result<Child, LaunchError> {
        let errors = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(self.step_dir.join(ERRORS))
            .map_err(io("create the keeper's error file"))?;
        let mut command = Command::new(program);
        command.arg("keep").arg(&self.step_dir);
        command.args(["--lock-fd", "0", "--supervisor-lock"]).arg(&self.supervisor_lock);
        // The lock goes as standard input, and the keeper makes its session itself: with nothing to do in between,
        // no copy of this process is made to start another.
        let handed = self.held.as_fd().try_clone_to_owned().map_err(io("hand over the lock"))?;
        command.current_dir("/").stdin(handed).stdout(Stdio::null()).stderr(errors);
        fault::point("spawn-keeper").and_then(|()| command.spawn()).map_err(io("start the keeper"))
    }

    /// Gives the step to a keeper that is a copy of this process; `None` where there can be none.
    #[cfg(target_os = "linux")]
    fn hand(&self, plan: &StepPlan) -> Result<Option<Kept>, LaunchError> {
        let order = Order { step_dir: self.step_dir.clone(), supervisor_lock: self.supervisor_lock.clone() };
        Kept::hand(&order, plan, &self.held).map_err(io("start the keeper"))
    }
}

impl Launched {
    /// Waits until the step has ended, and says how it stands.
    pub fn wait(&mut self, step_dir: &Path) -> io::Result<StepState> {
        match self {
            Launched::Spawned(child) => wait(child, step_dir),
            #[cfg(target_os = "linux")]
            Launched::Kept(kept) => {
                if let Some(kept) = kept.take() {
                    if !kept.is_done_within(LONG)? {
                        process::shrink();
                    }
                    if let Some(kept) = kept.stays() {
                        kept.rest();
                    }
                }
                await_end(step_dir)
            }
        }
    }
}

/// Waits until a keeper that we started has ended, and says how the step stands.
pub fn wait(child: &mut Child, step_dir: &Path) -> io::Result<StepState> {
    child.wait()?;
    await_end(step_dir)
}

/// Waits until no keeper lives in `step_dir`, whoever started it, and says how the step stands.
pub fn await_end(step_dir: &Path) -> io::Result<StepState> {
    // The kernel frees the lock at the keeper's death, and wakes us.
    let _held = Lock::at(step_dir.join(LOCK)).take()?;
    settled(step_dir)
}

/// Makes the keeper of this step look for a request to cancel now; it looks twice a second anyway.
///
/// Says `false` if no keeper was found alive.
pub fn hasten(step_dir: &Path) -> io::Result<bool> {
    match state(step_dir)? {
        StepState::Running(Some(start)) => start.keeper.signal(process::Signal::USR1),
        _ => Ok(false),
    }
}

/// Returns what keepers of this step complained of: why there is no record, if there is none.
pub fn complaints(step_dir: &Path) -> io::Result<String> {
    match std::fs::read(step_dir.join(ERRORS)) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).trim_end().to_owned()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        Err(e) => Err(e),
    }
}

fn check(plan: &StepPlan) -> Result<(), LaunchError> {
    if plan.argv.first().is_none_or(String::is_empty) {
        return Err(LaunchError::Plan("the command is empty".into()));
    }
    let paths = [Some(&plan.cwd), Some(&plan.cancel), plan.stdin.as_ref(), plan.progress.as_ref()];
    let mut paths = paths.into_iter().flatten().chain(&plan.mask_files);
    match paths.find(|p| !p.is_absolute()) {
        Some(path) => Err(LaunchError::Plan(format!("not an absolute path: {}", path.display()))),
        None => Ok(()),
    }
}

/// This program, also if its file was replaced by another version meanwhile.
fn own_program() -> io::Result<PathBuf> {
    let path = std::env::current_exe()?;
    let itself = PathBuf::from("/proc/self/exe");
    Ok(if !path.exists() && itself.exists() { itself } else { path })
}

fn io(what: &'static str) -> impl FnOnce(io::Error) -> LaunchError {
    move |source| LaunchError::Io { what, source }
}
