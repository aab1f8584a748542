//! The keeper's life: from the plan to the recorded end.

use super::facts::{Listener, Said};
use super::limits::{self, Seen};
use super::output::Output;
use super::plan::StepPlan;
use super::progress::{Phase, Progress, Reporter};
use super::record::{Cause, Ended, StepExit, StepStart};
use super::spawn::{self, Failure, Started};
use super::{FACTS, LOG, START, VERSION};
use crate::durable;
use crate::model::result::Confinement;
use crate::process::{self, Census, CensusMethod, Cgroup, Cleared, Domain, Identity, Survivor, boot_id};
use crate::redact::{Caps, LogWriter, Redactor, env_secrets, known_from_env_file};
use crate::worker::{env, parser};
use anyhow::{Context as _, anyhow};
use chrono::{DateTime, Utc};
use signal_hook::consts::{SIGCHLD, SIGUSR1};
use std::ffi::OsString;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How often the file that asks for cancellation is looked for.
const LOOK: Duration = Duration::from_millis(500);
/// How long one round of killing goes on before it is called stuck.
const ROUND: Duration = Duration::from_secs(2);
/// A command that runs for so long will run for longer.
const LONG: Duration = Duration::from_secs(1);
/// How long the stop command may take.
const STOP: Duration = Duration::from_secs(30);

/// Runs the plan's command to its end.
///
/// `look` is set by a signal that means: look for a request to cancel now.
pub(super) fn run(dir: &Path, plan: &StepPlan, look: Arc<AtomicBool>) -> StepExit {
    Keeper::prepare(dir, plan, look).map_or_else(|e| never_ready(plan, e), Keeper::run)
}

struct Keeper<'a> {
    dir: &'a Path,
    plan: &'a StepPlan,
    start: StepStart,
    started: Instant,
    domain: Domain,
    output: Output,
    progress: Reporter,
    look: Arc<AtomicBool>,
    write_error: Option<String>,
    confinement: Option<Confinement>,
    _ringers: Ringers,
}

/// The signals that ring the bell of a command, as long as it has one.
struct Ringers(Vec<signal_hook::SigId>);

impl Drop for Ringers {
    fn drop(&mut self) {
        for id in self.0.drain(..) {
            signal_hook::low_level::unregister(id);
        }
    }
}

impl<'a> Keeper<'a> {
    /// Gets everything ready, and writes the start record.
    fn prepare(dir: &'a Path, plan: &'a StepPlan, look: Arc<AtomicBool>) -> Result<Self, Failure> {
        let parser =
            parser(&plan.parser).ok_or_else(|| Failure::new(format!("no parser named {:?}", plan.parser)))?;
        let redactor = Redactor::new(secrets(plan)?);
        let (bell, ring) = UnixStream::pair().map_err(Failure::new)?;
        bell.set_nonblocking(true).map_err(Failure::new)?;
        let mut ringers = Ringers(Vec::new());
        for signal in [SIGCHLD, SIGUSR1] {
            let ring = ring.try_clone().map_err(Failure::new)?;
            ringers.0.push(signal_hook::low_level::pipe::register(signal, ring).map_err(Failure::new)?);
        }
        let mut write_error = None;
        let caps = Caps { stream: plan.output_cap_bytes, ..Caps::default() };
        let log = LogWriter::create(&dir.join(LOG), redactor.clone(), caps)
            .map_err(|e| write_error = Some(format!("cannot create the log: {e}")))
            .ok();
        let mask = Box::new(move |text: &str| redactor.str(text).into_owned());
        let listener = Listener::new(parser, mask, dir.join(FACTS), plan.usage_before.clone());
        let domain = Domain::of_descendants(plan.marker.clone());
        let keeper = Identity::current().map_err(Failure::new)?;
        let start = StepStart {
            version: VERSION,
            worker: None,
            at: Utc::now(),
            boot: boot_id().map_err(Failure::new)?,
            marker: plan.marker.clone(),
            workspace: plan.cwd.clone(),
            cgroup: plan.use_cgroup.then(|| Cgroup::place(&group_name(&keeper))).flatten(),
            unkillable: Vec::new(),
            keeper,
        };
        let output = Output::new(bell, log, listener);
        let progress = Reporter::new(plan.progress.clone());
        let (started, confinement) = (Instant::now(), None);
        let me = Keeper {
            dir,
            plan,
            start,
            started,
            domain,
            output,
            progress,
            look,
            write_error,
            confinement,
            _ringers: ringers,
        };
        // Without this record the command would be taken for one that never ran.
        me.write_start().map_err(|e| Failure::new(format!("cannot write the start record: {e}")))?;
        Ok(me)
    }

    fn run(mut self) -> StepExit {
        self.started = Instant::now();
        self.start.at = Utc::now();
        // Recorded first, made then: one that we leave behind when killed is found by the sweep.
        self.domain.set_cgroup(self.start.cgroup.as_deref().and_then(Cgroup::create));
        self.start.cgroup = self.domain.cgroup().map(|c| c.dir().to_owned());
        let child = match spawn::start(self.plan, self.domain.cgroup()) {
            // Perhaps the group cannot be entered; if it is something else, it fails again.
            Err(_) if self.domain.cgroup().is_some() => {
                if let Some(cgroup) = self.domain.cgroup() {
                    cgroup.remove();
                }
                self.domain.set_cgroup(None);
                self.start.cgroup = None;
                spawn::start(self.plan, None)
            }
            other => other,
        };
        let child = match child {
            Ok((child, confinement)) => {
                self.confinement = confinement;
                child
            }
            Err(failure) => return never_started(self.plan, failure),
        };
        let pid = child.pid;
        self.domain.watch(pid);
        let cause = match self.attend(child) {
            Ok(cause) => cause,
            Err(e) => Cause::KeeperFault { error: format!("{e:#}") },
        };
        let exited = (self.started.elapsed(), Utc::now());
        let mut cleared = self.clear();
        // What outlives a command that ended by itself is not counted as its time.
        let over = if cause == Cause::Exit { exited } else { (self.started.elapsed(), Utc::now()) };
        let stop_error = self.stop_container(&mut cleared).err().map(|e| format!("{e:#}"));
        self.finish(pid, cause, over, cleared, stop_error)
    }

    /// Looks after the command until it has ended or must end.
    fn attend(&mut self, child: Started) -> anyhow::Result<Cause> {
        let pid = child.pid;
        self.output.connect(child.stdout, child.stderr)?;
        self.start.worker = Some(Identity::of_child(pid)?);
        if let Err(e) = self.write_start() {
            self.note(format!("cannot write the start record again: {e}"));
        }
        let mut looked = None;
        let mut shrunk = false;
        loop {
            // First of all: one that has ended by itself was not cancelled.
            if let Some(ending) = self.domain.ending(pid)? {
                self.output.drain()?;
                let usage = self.output.listener.usage();
                let over = limits::over_budget(&self.plan.budget, &usage, self.started.elapsed());
                // Whether its last report was read before it ended or after must not matter. A failure tells
                // more than the use does.
                let well = ending == process::Ending::Exited { code: 0 };
                return Ok(over.filter(|_| well).unwrap_or(Cause::Exit));
            }
            let now = Instant::now();
            let asked = self.look.swap(false, Ordering::Relaxed);
            if asked || looked.is_none_or(|at| now.saturating_duration_since(at) >= LOOK) {
                looked = Some(now);
                if self.plan.cancel.exists() {
                    return Ok(Cause::Cancelled);
                }
                if self.domain.method() == CensusMethod::Scan {
                    // Orphans get lost here; whoever was seen before is known for good.
                    self.domain.census()?;
                }
            }
            let seen = self.seen();
            let (deadlines, budget) = (&self.plan.deadlines, &self.plan.budget);
            let usage = self.output.listener.usage();
            if let Some(cause) = limits::broken(deadlines, budget, &seen, &usage, now) {
                return Ok(cause);
            }
            self.report(Phase::Running);
            if !shrunk && self.started.elapsed() > LONG {
                shrunk = true;
                process::shrink();
            }
            let next = limits::next(deadlines, budget, &seen, now).unwrap_or(LOOK).min(LOOK);
            self.output.pump(next.max(Duration::from_millis(1)))?;
        }
    }

    /// Ends the kill domain, however long that takes, within the plan's patience.
    fn clear(&mut self) -> Cleared {
        self.report(Phase::Ending);
        let begun = Instant::now();
        let patience = Duration::from_millis(self.plan.unkillable_ms);
        let mut grace = self.plan.grace();
        let mut ended = Vec::new();
        let mut pause = Duration::from_millis(500);
        loop {
            let Keeper { domain, output, .. } = self;
            // What is asked to end may want to print a last word, and waits until it is read.
            let mut wait = |time| {
                if output.pump(time).is_err() {
                    std::thread::sleep(time);
                }
            };
            let cleared = domain.end_with(grace, ROUND, &mut wait);
            let mut cleared = cleared.unwrap_or_else(|e| {
                let command = format!("(no census: {e})");
                let survivors = vec![Survivor { pid: 0, start: 0, command }];
                Cleared { census: Census { method: CensusMethod::Scan, survivors }, ended: Vec::new() }
            });
            ended.append(&mut cleared.ended);
            if cleared.census.is_empty() || begun.elapsed() >= patience {
                ended.sort();
                ended.dedup();
                return Cleared { ended, ..cleared };
            }
            grace = Duration::ZERO;
            self.start.unkillable = cleared.census.survivors;
            if let Err(e) = self.write_start() {
                self.note(format!("cannot record what is unkillable: {e}"));
            }
            self.report(Phase::Unkillable);
            std::thread::sleep(pause.min(patience.saturating_sub(begun.elapsed())));
            pause = (pause * 2).min(Duration::from_secs(30));
        }
    }

    /// Runs the plan's stop command, and ends what it may leave.
    fn stop_container(&mut self, cleared: &mut Cleared) -> anyhow::Result<()> {
        let Some(argv) = &self.plan.stop else { return Ok(()) };
        let mut command = spawn::command(self.plan, argv).context("the stop command is empty")?;
        let null = std::process::Stdio::null;
        let child = command.stdin(null()).stdout(null()).stderr(null()).spawn();
        let pid = child.context("starting the stop command")?.id();
        self.domain.watch(pid);
        let until = Instant::now() + STOP;
        let ending = loop {
            let ending = self.domain.ending(pid)?;
            if ending.is_some() || Instant::now() >= until {
                break ending;
            }
            self.output.pump(LOOK)?;
        };
        let after = self.domain.end(Duration::ZERO, ROUND)?;
        // Of the command itself nothing new can have come; of the stop command something can be left.
        cleared.census = after.census;
        match ending {
            Some(process::Ending::Exited { code: 0 }) => Ok(()),
            Some(other) => Err(anyhow!("the stop command failed: {other:?}")),
            None => Err(anyhow!("the stop command took longer than {STOP:?} and was ended")),
        }
    }

    fn finish(
        mut self,
        pid: u32,
        cause: Cause,
        (elapsed, ended_at): (Duration, DateTime<Utc>),
        cleared: Cleared,
        stop_error: Option<String>,
    ) -> StepExit {
        let ending = self.domain.ending(pid).unwrap_or_default();
        if let Err(e) = self.output.drain() {
            self.note(format!("cannot read the last output: {e}"));
        }
        let mut output = self.output.finish();
        let (stdout_tail, stderr_tail) = output
            .as_mut()
            .map(|o| (std::mem::take(&mut o.tail_out), std::mem::take(&mut o.tail_err)))
            .unwrap_or_default();
        if let Some(e) = self.output.listener.error.take() {
            self.note(format!("cannot write facts: {e}"));
        }
        if let Some(e) = output.as_ref().and_then(|o| o.write_error.clone()) {
            self.note(format!("cannot write the log: {e}"));
        }
        let listener = &self.output.listener;
        StepExit {
            version: VERSION,
            ended: Ended::from(ending),
            cause,
            started_at: self.start.at,
            ended_at,
            elapsed_ms: millis(elapsed),
            census: cleared.census,
            left_over: cleared.ended.into_iter().filter(|s| s.pid != pid).collect(),
            output,
            stderr_tail,
            stdout_tail,
            usage: listener.usage(),
            facts: listener.counts.clone(),
            said: Said::from(&listener.summary),
            confinement: self.confinement,
            write_error: self.write_error,
            stop_error,
        }
    }

    fn seen(&self) -> Seen {
        Seen {
            started: self.started,
            first_byte: self.output.first_byte,
            last_byte: self.output.last_byte,
            last_word: self.output.listener.last_word_at,
        }
    }

    fn report(&mut self, phase: Phase) {
        if phase == Phase::Running && !self.progress.is_due() {
            return;
        }
        self.progress.report(Progress {
            version: VERSION,
            attempt: self.plan.attempt,
            step: self.plan.step.clone(),
            phase,
            started_at: self.start.at,
            elapsed_ms: millis(self.started.elapsed()),
            last_line: self.output.last_line(),
            usage: self.output.listener.usage(),
        });
    }

    fn write_start(&self) -> io::Result<()> {
        durable::replace_unsynced(&self.dir.join(START), &serde_json::to_vec(&self.start)?)
    }

    /// Keeps the first thing that could not be written.
    fn note(&mut self, what: String) {
        self.write_error.get_or_insert(what);
    }
}

/// A name that no other step's group has, also where the group of an earlier step of this keeper could not be removed.
fn group_name(keeper: &Identity) -> String {
    static STEP: AtomicU32 = AtomicU32::new(0);
    format!("{}-{}-{}", keeper.pid, keeper.start, STEP.fetch_add(1, Ordering::Relaxed))
}

/// The values that must not be printed: of variables that are listed or sound secret, and of files.
fn secrets(plan: &StepPlan) -> Result<Vec<Vec<u8>>, Failure> {
    use std::os::unix::ffi::OsStringExt as _;
    let mut known = Vec::new();
    for entry in plan.pass_env.iter().chain(plan.env.keys()).chain(&plan.mask_env) {
        let (name, theirs) = env::renamed(entry);
        let given = plan.env.get(name).map(|v| v.clone().into_bytes());
        for value in given.into_iter().chain(std::env::var_os(theirs).map(OsString::into_vec)) {
            if plan.mask_env.iter().any(|masked| masked == name) {
                known.push(value);
            } else {
                known.extend(env_secrets(name, &value));
            }
        }
    }
    for path in &plan.mask_files {
        match std::fs::read(path) {
            Ok(bytes) => known.extend(known_from_env_file(&bytes)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => {
                let path = path.display();
                return Err(Failure::new(format!("cannot read what must be masked in {path}: {e}")));
            }
        }
    }
    Ok(known)
}

/// The end of a step whose keeper could not get ready: that says nothing about the command.
fn never_ready(plan: &StepPlan, failure: Failure) -> StepExit {
    let cause = Cause::KeeperFault { error: failure.error.clone() };
    StepExit { cause, ..never_started(plan, failure) }
}

fn never_started(plan: &StepPlan, failure: Failure) -> StepExit {
    let now: DateTime<Utc> = Utc::now();
    StepExit {
        version: VERSION,
        ended: Ended::NotStarted {
            error: failure.error,
            not_found: failure.not_found,
            not_allowed: failure.not_allowed,
        },
        cause: Cause::Exit,
        started_at: now,
        ended_at: now,
        elapsed_ms: 0,
        census: Domain::recorded(plan.marker.clone())
            .census()
            .unwrap_or(Census { method: CensusMethod::Scan, survivors: Vec::new() }),
        left_over: Vec::new(),
        output: None,
        stderr_tail: String::new(),
        stdout_tail: String::new(),
        usage: Default::default(),
        facts: Default::default(),
        said: Default::default(),
        confinement: None,
        write_error: None,
        stop_error: None,
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
