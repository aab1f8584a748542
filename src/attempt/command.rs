//! The worker's command line: its prompt, the session that it goes on with, the values of its profile.

use super::Attempt;
use super::outcome::{End, Outcome};
use super::steps::tail;
use crate::durable;
use crate::keeper;
use crate::model::profile::Template;
use crate::model::{Class, Command, Phase, ReviewFile, TaskId};
use crate::spool::{AttemptDir, Spool};
use crate::worker::invoke::InvokeError;
use crate::worker::prompt::{NeedResult, PromptInput, Repair};
use crate::worker::{fill, invoke, private, prompt};
use anyhow::Context as _;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::Duration;

impl Attempt {
    /// The session to continue: of the round before, or of the attempt that this one goes on with.
    pub(super) fn session(&self, outcome: &Outcome) -> anyhow::Result<Option<String>> {
        if self.plan.profile.resume.is_empty() {
            return Ok(None);
        }
        if outcome.session.is_some() {
            return Ok(outcome.session.clone());
        }
        let before = self.plan.continues.map(|n| self.locked.dir().attempt(n));
        let Some(before) = before else { return Ok(None) };
        let same: Option<super::Plan> = crate::spool::read_json(&before.file("attempt.json"))?;
        if same.is_none_or(|p| p.profile.name != self.plan.profile.name) {
            return Ok(None);
        }
        Ok(last_round(&before).map(|step| keeper::summary(&step)).transpose()?.and_then(|s| s.session))
    }

    /// What the session had used at the end of its last run.
    pub(super) fn session_usage(&self, round: u32) -> anyhow::Result<Option<crate::model::Usage>> {
        let step = match (round, self.plan.continues) {
            (1, Some(n)) => last_round(&self.locked.dir().attempt(n)),
            (1, None) => None,
            _ => Some(self.dir.step(&format!("work.{}", round - 1))),
        };
        Ok(step.map(|step| keeper::summary(&step)).transpose()?.map(|s| s.session_usage))
    }

    /// Runs the profile's probe, where it has one, and returns what it printed.
    pub(super) fn probe(&self, round: u32) -> anyhow::Result<Result<Option<String>, End>> {
        const TIME: Duration = Duration::from_secs(120);
        let profile = &self.plan.profile;
        let Some(command) = &profile.probe else { return Ok(Ok(None)) };
        // Where the worker itself must not be started, the probe must not either: the command line says why.
        if self.steering().is_some() {
            return Ok(Ok(None));
        }
        let step = format!("probe.{round}");
        let values = self.values(&step, PathBuf::new(), String::new(), None);
        // Where the worker itself cannot be started either, that says why.
        let Ok(made) = invoke::invocation(profile, &values) else { return Ok(Ok(None)) };
        let command = match command {
            Command::Argv(args) => Command::Argv(fill::fill_all(args, profile, &values)?),
            // Nothing is filled into what a shell reads: it could end a word, or begin a command.
            Command::Shell(line) => Command::Shell(line.clone()),
        };
        let mut plan = self.command_plan_in(&self.plan.workspace, self.folder(), &step, &command, TIME)?;
        plan.env.extend(made.env);
        plan.env.extend(private::variables(profile, &values));
        plan.pass_env.extend(made.pass_env);
        if !self.dir.step(&step).exists() {
            private::prepare(profile, &values).context("cannot make the worker's own folders and files")?;
        }
        let exit = match self.carry_step(&step, &plan, Phase::Working)? {
            Ok(exit) => exit,
            Err(end) => return Ok(Err(end)),
        };
        if let Some(ended) = super::steps::failed(&exit) {
            let said = tail(&exit).map(|t| format!(": {}", t.trim())).unwrap_or_default();
            let message = format!("the worker's probe failed ({ended}){said}");
            return Ok(Err(End::failed(Class::WorkerFailed, Phase::Working, message)));
        }
        Ok(Ok(Some(exit.stdout_tail.trim().to_owned())))
    }

    /// What of the workspace would steer the worker's program at its start.
    fn steering(&self) -> Option<String> {
        let workspace = &self.plan.workspace;
        let mut cwd = workspace.clone();
        cwd.extend(self.folder());
        invoke::steering(&self.plan.profile, workspace, &cwd)
    }

    pub(super) fn invocation(
        &self,
        round: u32,
        repair: Option<Repair>,
        session: Option<&str>,
        probed: Option<String>,
    ) -> anyhow::Result<Result<invoke::Invocation, InvokeError>> {
        let step = format!("work.{round}");
        let file =
            self.dir.file(&if round == 1 { "prompt.md".to_owned() } else { format!("prompt.{round}.md") });
        let text = match fs::read_to_string(&file) {
            Ok(text) if self.dir.step(&step).exists() => text,
            _ => {
                let text = self.prompt(repair)?;
                durable::replace_unsynced(&file, text.as_bytes())?;
                if text.starts_with("#!") {
                    fs::set_permissions(&file, fs::Permissions::from_mode(0o700))?;
                }
                text
            }
        };
        let profile = &self.plan.profile;
        if let Some(found) = self.steering() {
            return Ok(Err(InvokeError::Steered(found)));
        }
        let values = invoke::Values { probe: probed, ..self.values(&step, file, text, session) };
        let mut made = match invoke::invocation(profile, &values) {
            Ok(made) => made,
            Err(e) => return Ok(Err(e)),
        };
        if !self.dir.step(&step).exists() {
            private::prepare(profile, &values).context("cannot make the worker's own folders and files")?;
        }
        made.env.extend(private::variables(profile, &values));
        Ok(Ok(made))
    }

    pub(super) fn values(
        &self,
        step: &str,
        prompt_file: PathBuf,
        prompt: String,
        session: Option<&str>,
    ) -> invoke::Values {
        let spec = &self.task.spec;
        let id = self.task.id.to_string();
        let (asked, most) = (&spec.budget, &self.config.ceilings.budget);
        invoke::Values {
            prompt,
            prompt_file,
            workspace: self.plan.workspace.clone(),
            attempt_dir: self.dir.path().to_owned(),
            private_dir: self.locked.dir().path().join("private").join(self.plan.profile.name.as_str()),
            new_session: Some(invoke::session_name(self.locked.spool().id(), &id, self.number(), step)),
            task: id,
            attempt: self.number(),
            model: self.plan.model.clone(),
            effort: spec.effort,
            session: session.map(str::to_owned),
            permission: Some(spec.permission()),
            no_network: spec.no_network,
            no_shell: spec.no_shell,
            turns: asked.turns.or(most.turns),
            cost_usd: asked.cost_usd.or(most.cost_usd),
            probe: None,
        }
    }

    fn prompt(&self, repair: Option<Repair>) -> anyhow::Result<String> {
        if self.plan.profile.template == Template::Objective {
            return Ok(self.task.spec.objective.clone());
        }
        let mut input = PromptInput::of(&self.task.spec);
        input.subdir = self.folder().map(|folder| folder.to_string_lossy().into_owned());
        input.verify = self.verify_commands().iter().map(ToString::to_string).collect();
        input.protected = self.plan.repo_config.protected.clone();
        input.needs = need_results(self.locked.spool(), &self.task.needs);
        input.repair = repair;
        if let Some(n) = self.plan.continues {
            let verdict = crate::spool::read_json::<ReviewFile>(&self.locked.dir().review())?;
            input.feedback = verdict.and_then(|f| f.verdicts.into_iter().last()).and_then(|v| v.message);
            let result = self.locked.spool().read_result(self.task.id)?.filter(|r| r.attempt == n);
            input.previous = result.and_then(|r| r.summary);
        }
        prompt::render(&input)
    }
}

/// The folder of the last run of the worker in an attempt.
fn last_round(attempt: &AttemptDir) -> Option<PathBuf> {
    (1..).map(|r| attempt.step(&format!("work.{r}"))).take_while(|step| step.exists()).last()
}

/// Results of needed tasks, for the prompt.
fn need_results(spool: &Spool, needs: &[TaskId]) -> Vec<NeedResult> {
    let made = needs.iter().filter_map(|id| {
        let result = spool.read_result(*id).ok()??;
        let task = spool.read_task(*id).ok()?;
        Some(NeedResult {
            id: *id,
            title: task.spec.display_title(),
            summary: result.summary.unwrap_or(result.message),
        })
    });
    made.collect()
}
