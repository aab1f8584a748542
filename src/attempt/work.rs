//! The worker's turn, as often as the gate sends it back.

use super::Attempt;
use super::changes::Work;
use super::outcome::{End, Outcome};
use super::steps::{describe, millis, tail};
use crate::gate::{self, Gate};
use crate::keeper::{self, Budget, Cause, DeadlineKind, Ended, StepExit};
use crate::model::result::Confinement;
use crate::model::{Class, ErrorClass, Phase, State, Verification};
use crate::worker::invoke::InvokeError;
use crate::worker::prompt::{Failure, Repair};
use crate::worker::{Observed, Report, Summary, Verdict, env, fill, health, judge, stops};
use std::path::PathBuf;
use std::time::Duration;

impl Attempt {
    /// Lets the worker work and checks what it did, until the gate passes or nothing is left to try.
    pub(super) fn work_and_verify(&self, outcome: &mut Outcome) -> anyhow::Result<Option<End>> {
        let repairs = self.task.spec.repair.unwrap_or(0);
        let (mut repaired, mut repair, mut fresh) = (0, None, false);
        for round in 1.. {
            match self.work(round, repair.clone(), fresh, outcome)? {
                Worked::Done => {}
                Worked::NoSession => {
                    // It has not begun: the same once more, in a new session.
                    if let Err(end) = self.look(round, outcome)? {
                        return Ok(Some(end));
                    }
                    fresh = true;
                    continue;
                }
                Worked::Ended(end) => {
                    self.look_after_failure(round, outcome)?;
                    return Ok(Some(end));
                }
            }
            fresh = false;
            let work = match self.look(round, outcome)? {
                Ok(work) => work,
                Err(end) => return Ok(Some(end)),
            };
            let gate = match self.verify(round, &work, outcome)? {
                Ok(gate) => gate,
                Err(end) => return Ok(Some(end)),
            };
            match gate.verification {
                Verification::Failed if repaired < repairs => {
                    repaired += 1;
                    repair = Some(self.evidence(repaired, repairs, &gate));
                }
                Verification::Failed => return Ok(Some(gate_failed(&gate))),
                _ => return Ok(None),
            }
        }
        Ok(None)
    }

    fn evidence(&self, round: u32, of: u32, gate: &Gate) -> Repair {
        let failures = gate.runs.iter().filter(|r| !r.passed).map(|r| Failure {
            command: r.command.clone(),
            exit: gate::ended(r),
            output_tail: r.output_tail.clone(),
        });
        Repair { round, of, failures: failures.collect() }
    }

    /// One run of the worker; `fresh`: in a new session, whatever was before.
    fn work(
        &self,
        round: u32,
        repair: Option<Repair>,
        fresh: bool,
        outcome: &mut Outcome,
    ) -> anyhow::Result<Worked> {
        let step = format!("work.{round}");
        let session = if fresh { None } else { self.session(outcome)? };
        let probed = match self.probe(round)? {
            Ok(probed) => probed,
            Err(end) => return Ok(Worked::Ended(end)),
        };
        let invocation = match self.invocation(round, repair, session.as_deref(), probed)? {
            Ok(invocation) => invocation,
            Err(e) => {
                let class = match &e {
                    InvokeError::NoVariable(_) => Class::Auth,
                    InvokeError::Steered(_) => Class::Permission,
                    InvokeError::TooLong(_) => Class::WorkerFailed,
                    InvokeError::Own(_) => Class::Internal,
                };
                return Ok(Worked::Ended(End::failed(class, Phase::Working, e.to_string())));
            }
        };
        outcome.restrictions = self.restrictions(&invocation.enforced);
        if !self.dir.step(&step).exists() {
            if self.cancelled() {
                return Ok(Worked::Ended(self.cancelled_end(Phase::Working)));
            }
            self.enter(Phase::Working)?;
        }
        let total = match self.time_left(outcome)? {
            Some(total) => total,
            // It ran in time: whoever takes over finds its end, however late.
            None if self.dir.step(&step).exists() => Duration::ZERO,
            None => {
                let message = "the time for the work is over";
                return Ok(Worked::Ended(End::failed(Class::Timeout, Phase::Working, message)));
            }
        };
        let mut plan = self.step_plan(&self.plan.workspace, self.folder(), &step, invocation.argv)?;
        plan.stdin = invocation.stdin;
        plan.env.extend(invocation.env);
        let secret = invocation.pass_env.iter().map(|entry| env::renamed(entry).0);
        plan.mask_env.extend(secret.filter(|name| !env::is_plain(name)).map(str::to_owned));
        plan.pass_env.extend(invocation.pass_env);
        plan.confine = self.confine_worker();
        plan.parser = self.plan.profile.output.clone();
        if session.is_some() {
            plan.usage_before = self.session_usage(round)?;
        }
        let spec = &self.task.spec;
        plan.deadlines.total_ms = Some(millis(total).max(1));
        let own = self.plan.profile.silence_timeout;
        plan.deadlines.silence_ms =
            Some(spec.silence_timeout.or(own).unwrap_or(self.plan.defaults.silence_timeout) * 1000);
        plan.deadlines.start_ms = spec.start_timeout.or(self.plan.profile.start_timeout).map(|s| s * 1000);
        plan.budget = match self.budget_left(outcome) {
            Ok(left) => left,
            // It has run: whoever takes over finds its end.
            Err(_) if self.dir.step(&step).exists() => Budget::default(),
            Err(end) => return Ok(Worked::Ended(end)),
        };
        if let Some(stop) = &self.plan.profile.stop {
            let values = self.values(&step, PathBuf::new(), String::new(), None);
            plan.stop = Some(fill::fill_all(stop, &self.plan.profile, &values)?);
        }
        let carried = self.carry_step(&step, &plan, Phase::Working)?;
        let dir = self.dir.step(&step);
        if let Ok(Some(exit)) = crate::spool::read_json::<StepExit>(&dir.join("exit.json")) {
            self.take_over(&exit, outcome);
        }
        match carried {
            Err(end) => Ok(Worked::Ended(end)),
            Ok(exit) => {
                let summary = keeper::summary(&dir)?;
                let ended = self.judge(&exit, &summary);
                if let (Some((_, ErrorClass::SessionNotFound)), Some(lost)) = (&ended, &session) {
                    outcome
                        .warnings
                        .push(format!("the session {lost} was not found any more: a new one was begun"));
                    outcome.session = None;
                    return Ok(Worked::NoSession);
                }
                outcome.report = report(&summary, &exit);
                let known = || health::version(self.locked.spool(), &self.plan.profile);
                outcome.version = outcome.version.take().or_else(|| summary.version.clone()).or_else(known);
                outcome.model = summary.model.clone().or_else(|| self.plan.model.clone());
                for (tool, reason) in &summary.denials {
                    outcome.warnings.push(format!("the worker was refused {tool}: {reason}"));
                }
                Ok(ended.map_or(Worked::Done, |(end, _)| Worked::Ended(end)))
            }
        }
    }

    fn take_over(&self, exit: &StepExit, outcome: &mut Outcome) {
        outcome.usage.add(&exit.usage);
        outcome.session = exit.said.session.clone().or_else(|| outcome.session.take());
        outcome.confinement = exit.confinement.clone();
        if let Some(Confinement { held: false, why_not, .. }) = &exit.confinement {
            let why = why_not.clone().unwrap_or_default();
            outcome.warnings.push(format!("the worker could write outside its workspace: {why}"));
        }
        outcome.stderr_tail = Some(exit.stderr_tail.clone()).filter(|t| !t.trim().is_empty());
        (outcome.exit_code, outcome.signal) = match exit.ended {
            Ended::Exited { code } => (Some(code), None),
            Ended::Signaled { signal } => (None, Some(signal)),
            Ended::NotStarted { .. } | Ended::StillRunning => (None, None),
        };
        outcome.durations.working_ms = Some(outcome.durations.working_ms.unwrap_or(0) + exit.elapsed_ms);
        if let Some(error) = &exit.write_error {
            outcome.warnings.push(format!("the log is not complete: {error}"));
        }
        if let Some(error) = &exit.stop_error {
            outcome.warnings.push(format!("the worker's stop command failed: {error}"));
        }
        if let Some(stats) = exit.output.as_ref().filter(|s| s.cut_out + s.cut_err > 0) {
            outcome.warnings.push(format!(
                "{} bytes of output are over the cap and were not logged",
                stats.cut_out + stats.cut_err
            ));
        }
        self.note_census(exit, outcome);
    }

    /// What the worker's end means, and in the program's own terms: never the exit code alone.
    fn judge(&self, exit: &StepExit, summary: &Summary) -> Option<(End, ErrorClass)> {
        let at = Phase::Working;
        match &exit.cause {
            Cause::Deadline { which } => {
                let class = match which {
                    DeadlineKind::Total => Class::Timeout,
                    DeadlineKind::Silence => Class::SilenceTimeout,
                    DeadlineKind::Start => Class::StartTimeout,
                };
                let told = match summary.retrying() {
                    Some(Some(status)) => format!("; it was trying again after HTTP status {status}"),
                    Some(None) => "; it was trying a request again".to_owned(),
                    None => String::new(),
                };
                let message = format!("the worker was ended: {}{told}", describe(exit));
                return Some((End::failed(class, at, message), ErrorClass::Interrupted));
            }
            Cause::Exit
            | Cause::Lingered
            | Cause::Cancelled
            | Cause::Budget { .. }
            | Cause::KeeperFault { .. } => {}
        }
        if let Ended::NotStarted { error, not_found, not_allowed } = &exit.ended {
            let class = match (not_found, not_allowed) {
                (true, _) => Class::NotFound,
                (_, true) => Class::Permission,
                _ => Class::WorkerFailed,
            };
            let message = format!("the worker could not be started: {error}");
            return Some((End::failed(class, at, message), ErrorClass::NotFound));
        }
        let (exit_code, signal) = match (&exit.cause, &exit.ended) {
            (Cause::Lingered, _) => (Some(0), None),
            (_, Ended::Exited { code }) => (Some(*code), None),
            (_, Ended::Signaled { signal }) => (None, Some(*signal)),
            _ => (None, None),
        };
        let observed = Observed { exit_code, signal, stderr_tail: &exit.stderr_tail, facts: summary };
        let Verdict::Failed { mut class, mut message, mut until } =
            judge(&self.plan.profile.output, &observed)
        else {
            return None;
        };
        let profile = &self.plan.profile;
        if let Some(known) = stops::meaning(profile, &exit.stderr_tail, &exit.stdout_tail) {
            (class, message, until) = (known.class, known.line, known.until.or(until));
        } else if let Some(known) = exit_code.and_then(|c| profile.exit_codes.get(&c.to_string())) {
            class = *known;
        }
        let words = if message.is_empty() { tail(exit).unwrap_or_default() } else { message };
        let last = words.trim().lines().last().unwrap_or_default();
        let message = if last.is_empty() { describe(exit) } else { format!("{}: {last}", describe(exit)) };
        let mut end = End::failed(class_of(class), at, format!("the worker failed ({message})"));
        end.until = until;
        end.transient |= matches!(class, ErrorClass::Provider | ErrorClass::Network);
        if class == ErrorClass::Interrupted {
            (end.state, end.class, end.transient) = (State::Interrupted, None, true);
        }
        Some((end, class))
    }

    /// Time for this run of the worker: what is left of the attempt's own, within what all attempts together
    /// have.
    fn time_left(&self, outcome: &Outcome) -> anyhow::Result<Option<Duration>> {
        let spec = &self.task.spec;
        let mut own = spec.timeout.unwrap_or(self.plan.defaults.timeout);
        own = own.min(self.config.ceilings.timeout.unwrap_or(u64::MAX));
        let worked = Duration::from_millis(outcome.durations.working_ms.unwrap_or(0));
        let own = Duration::from_secs(own).saturating_sub(worked);
        let Some(total) = spec.total_timeout else { return Ok((!own.is_zero()).then_some(own)) };
        let first: Option<super::Plan> =
            crate::spool::read_json(&self.locked.dir().attempt(1).file("attempt.json"))?;
        let began = first.map_or(self.plan.started_at, |p| p.started_at);
        let spent = (chrono::Utc::now() - began).to_std().unwrap_or_default();
        let left = Duration::from_secs(total).saturating_sub(spent);
        let left = own.min(left);
        Ok((!left.is_zero()).then_some(left))
    }

    /// What a failed run left in the workspace, for the result: as far as it can be seen.
    fn look_after_failure(&self, round: u32, outcome: &mut Outcome) -> anyhow::Result<()> {
        if let Err(e) = self.look(round, outcome).map(|found: Result<Work, End>| drop(found)) {
            outcome.warnings.push(format!("what the worker left could not be looked at: {e:#}"));
        }
        Ok(())
    }
}

/// What a run of the worker came to.
enum Worked {
    /// It did its work.
    Done,
    /// It could not continue the session that it was to continue.
    NoSession,
    /// It ends the attempt.
    Ended(End),
}

fn gate_failed(gate: &Gate) -> End {
    let failed: Vec<&_> = gate.runs.iter().filter(|r| !r.passed).collect();
    let first = failed.first().map_or_else(String::new, |r| format!("{} ({})", r.command, gate::ended(r)));
    let more = if failed.len() > 1 { format!(" and {} more", failed.len() - 1) } else { String::new() };
    let (class, place) = match gate.only_in_place {
        true => (Class::GateEnv, " in a clean tree, though it passes in the workspace"),
        false => (Class::GateFailed, ""),
    };
    End::failed(class, Phase::Verifying, format!("verification failed{place}: {first}{more}"))
}

fn report(summary: &Summary, exit: &StepExit) -> Report {
    let answer = summary.answer().unwrap_or_default();
    let mut report = Report::find(answer).or_else(|| Report::find(&exit.stdout_tail)).unwrap_or_default();
    if report.summary.is_none() {
        report.summary = summary.final_text.clone().filter(|t| !t.trim().is_empty());
    }
    report
}

fn class_of(class: ErrorClass) -> Class {
    match class {
        ErrorClass::Auth => Class::Auth,
        ErrorClass::RateLimited => Class::RateLimited,
        ErrorClass::Quota => Class::Quota,
        ErrorClass::ContextFull => Class::ContextFull,
        ErrorClass::Permission => Class::Permission,
        ErrorClass::NotFound => Class::NotFound,
        ErrorClass::Provider
        | ErrorClass::ModelNotFound
        | ErrorClass::InvalidRequest
        | ErrorClass::SessionNotFound
        | ErrorClass::OwnLimit
        | ErrorClass::Network
        | ErrorClass::Interrupted
        | ErrorClass::Usage
        | ErrorClass::Other => Class::WorkerFailed,
    }
}
