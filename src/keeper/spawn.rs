//! Starts the command: own session, nothing inherited but what the plan says.

use super::plan::{Confine, StepPlan};
use crate::durable::fault;
use crate::model::{self, result::Confinement};
use crate::process::confine::Support;
use crate::process::{self, Cgroup, MARKER, die_with_parent};
use crate::worker::env;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// Why a command was not started.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) error: String,
    pub(super) not_found: bool,
    pub(super) not_allowed: bool,
}

impl Failure {
    pub(super) fn new(error: impl std::fmt::Display) -> Self {
        Failure { error: error.to_string(), not_found: false, not_allowed: false }
    }
}

/// A command that was started.
pub(super) struct Started {
    pub(super) pid: u32,
    pub(super) stdout: Option<OwnedFd>,
    pub(super) stderr: Option<OwnedFd>,
}

/// Starts the plan's command with pipes for its output, in the control group if there is one. Says whether it
/// is confined, if it was to be.
pub(super) fn start(
    plan: &StepPlan,
    cgroup: Option<&Cgroup>,
) -> Result<(Started, Option<Confinement>), Failure> {
    if !plan.cwd.is_dir() {
        return Err(Failure::new(format!("the folder to run in is not there: {}", plan.cwd.display())));
    }
    let input = plan.stdin.as_deref().unwrap_or(Path::new("/dev/null"));
    let stdin = File::open(input)
        .map_err(|e| Failure::new(format!("cannot read the input {}: {e}", input.display())))?;
    #[cfg(target_os = "linux")]
    if let Some(cgroup) = cgroup
        && let Some(born) = born(plan, &stdin, cgroup)
    {
        return Ok(born);
    }
    let mut command = command(plan, &plan.argv).ok_or_else(|| Failure::new("the command is empty"))?;
    command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
    let entrance = cgroup.map(Cgroup::entrance).transpose().map_err(Failure::new)?;
    if let Some(entrance) = entrance {
        // SAFETY: one write of a constant to an open descriptor; nothing is allocated.
        unsafe {
            command.pre_exec(move || {
                rustix::io::write(&entrance, b"0")?;
                Ok(())
            });
        }
    }
    // Last, so that what is done before the command begins is not kept from anything.
    let confinement = plan.confine.as_ref().map(|c| confine(&mut command, c)).transpose()?;
    let spawned = fault::point("spawn-worker").and_then(|()| command.spawn());
    let mut child = spawned.map_err(|e| Failure {
        not_found: is_missing(&e, &command),
        not_allowed: e.kind() == io::ErrorKind::PermissionDenied && !is_missing(&e, &command),
        error: format!("cannot start {}: {}", plan.argv[0], explain(&e, Path::new(&plan.argv[0]))),
    })?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let started = Started { pid: child.id(), stdout: stdout.map(Into::into), stderr: stderr.map(Into::into) };
    Ok((started, confinement))
}

/// Confines a command as far as the system can.
fn confine(command: &mut Command, wish: &Confine) -> Result<Confinement, Failure> {
    let support = match wish.writable.is_empty() {
        true => process::confine::support(),
        false => process::confine::confine(command, &wish.writable)
            .map_err(|e| Failure::new(format!("cannot confine the command: {e}")))?,
    };
    Ok(confinement(wish, support))
}

/// What is told of a command that was to be confined.
fn confinement(wish: &Confine, support: Support) -> Confinement {
    let (held, why_not) = match (&wish.unless, wish.writable.is_empty()) {
        (why, true) => (false, why.clone()),
        (Some(why), false) => (false, Some(why.clone())),
        (None, false) => (support.full, support.why_not),
    };
    Confinement { asked: model::Confine::Strict, held, abi: support.abi, why_not }
}

/// Starts the command as one that is born in its group. Where that fails for whatever reason, the ordinary way
/// does, or says why not.
#[cfg(target_os = "linux")]
fn born(plan: &StepPlan, stdin: &File, cgroup: &Cgroup) -> Option<(Started, Option<Confinement>)> {
    use std::os::fd::AsFd as _;
    let group = cgroup.folder().ok()?;
    let (told, last) = match &plan.confine {
        None => (None, None),
        Some(wish) if wish.writable.is_empty() => {
            (Some(confinement(wish, process::confine::support())), None)
        }
        Some(wish) => {
            let (support, last) = process::confine::hook(&wish.writable).ok()?;
            (Some(confinement(wish, support)), last)
        }
    };
    let birth = crate::process::Birth {
        argv: &plan.argv,
        env: environment(plan),
        cwd: &plan.cwd,
        stdin: stdin.try_clone().ok()?,
        group: group.as_fd(),
        last,
    };
    fault::point("spawn-worker").ok()?;
    let born = birth.spawn().ok()?;
    Some((Started { pid: born.pid, stdout: Some(born.stdout), stderr: Some(born.stderr) }, told))
}

/// The whole environment of the plan's commands.
fn environment(plan: &StepPlan) -> Vec<(OsString, OsString)> {
    let passed = plan.pass_env.iter().map(|entry| env::renamed(entry));
    let mut all: BTreeMap<OsString, OsString> =
        passed.filter_map(|(new, old)| Some((new.into(), std::env::var_os(old)?))).collect();
    all.extend(plan.env.iter().map(|(name, value)| (name.into(), value.into())));
    all.insert(MARKER.into(), plan.marker.value().into());
    all.into_iter().collect()
}

/// Whether a command failed to start because there is no such program.
///
/// A search that finds nothing says "permission denied" if one folder of `PATH` may not be looked into.
fn is_missing(e: &io::Error, command: &Command) -> bool {
    let program = Path::new(command.get_program());
    let searched = program.components().count() == 1 && !program.is_absolute();
    match e.kind() {
        io::ErrorKind::NotFound => true,
        io::ErrorKind::PermissionDenied if searched => {
            let path = command.get_envs().find(|(name, _)| *name == "PATH").and_then(|(_, value)| value);
            !path.is_some_and(|path| std::env::split_paths(path).any(|dir| dir.join(program).is_file()))
        }
        _ => false,
    }
}

/// Makes a command with the plan's environment and folder, in a session of its own, that dies with us.
///
/// To be spawned from the main thread: it is that thread's end that kills the command.
pub(super) fn command(plan: &StepPlan, argv: &[String]) -> Option<Command> {
    let (program, args) = argv.split_first()?;
    let mut command = Command::new(program);
    command.args(args).current_dir(&plan.cwd).env_clear();
    command.envs(environment(plan));
    crate::process::new_session(&mut command);
    let parent = rustix::process::getpid();
    // SAFETY: three system calls; nothing is allocated.
    unsafe {
        command.pre_exec(move || {
            process::mounts::give_up_right();
            die_with_parent(parent)
        });
    }
    Some(command)
}

/// The system says "not found" for a script's interpreter as for the program itself.
fn explain(e: &io::Error, program: &Path) -> String {
    if e.kind() == io::ErrorKind::NotFound && program.is_absolute() && program.exists() {
        return format!("its interpreter was not found ({e})");
    }
    e.to_string()
}
