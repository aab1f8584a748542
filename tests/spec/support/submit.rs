//! Submitting by the command line, an option a method.

use super::{Ran, Repo, World};
use std::ffi::{OsStr, OsString};
use std::process::Command;
use workspool::model::TaskId;

/// A submission that is being put together.
#[derive(Debug)]
pub struct Submit<'w> {
    world: &'w World,
    options: Vec<OsString>,
    objective: Option<OsString>,
    input: Vec<u8>,
    env: Vec<(String, String)>,
}

impl<'w> Submit<'w> {
    pub(super) fn new(world: &'w World, objective: Option<OsString>) -> Self {
        Submit { world, options: Vec::new(), objective, input: Vec::new(), env: Vec::new() }
    }

    /// Adds an option with its value.
    pub fn with(mut self, option: &str, value: impl AsRef<OsStr>) -> Self {
        let mut arg = OsString::from(format!("--{option}="));
        arg.push(value);
        self.options.push(arg);
        self
    }

    /// Adds an option that has no value.
    pub fn flag(mut self, option: &str) -> Self {
        self.options.push(format!("--{option}").into());
        self
    }

    pub fn repo(self, repo: &Repo) -> Self {
        self.with("repo", repo.path())
    }

    pub fn worker(self, name: &str) -> Self {
        self.with("worker", name)
    }

    pub fn verify(self, command: &str) -> Self {
        self.with("verify", command)
    }

    pub fn needs(self, id: TaskId) -> Self {
        self.with("needs", id.to_string())
    }

    /// What is on standard input.
    pub fn input(mut self, bytes: impl AsRef<[u8]>) -> Self {
        self.input = bytes.as_ref().to_vec();
        self
    }

    /// A variable in the environment of the one who submits.
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// The command, ready to run.
    pub fn command(&self) -> Command {
        let mut args: Vec<OsString> = vec!["submit".into()];
        args.extend(self.options.iter().cloned());
        // Whatever an objective begins with, it is no option.
        args.extend(self.objective.iter().flat_map(|o| [OsString::from("--"), o.clone()]));
        let mut command = self.world.command(&args);
        command.envs(self.env.iter().map(|(k, v)| (k, v)));
        command
    }

    /// Runs it, however it ends.
    pub fn run(self) -> Ran {
        Ran::to_end(self.command(), &self.input)
    }

    /// Runs it; it must be taken. Returns the task's id.
    #[track_caller]
    pub fn ok(self) -> TaskId {
        let ids = self.all();
        assert_eq!(ids.len(), 1, "expected one task");
        ids[0]
    }

    /// Runs it; it must be taken. Returns the ids of all its tasks.
    #[track_caller]
    pub fn all(self) -> Vec<TaskId> {
        let ran = self.run().ok();
        ran.text().lines().map(|l| l.split_whitespace().next().unwrap().parse().unwrap()).collect()
    }

    /// Runs it; it must be refused with this exit code and these words, and leave nothing behind.
    #[track_caller]
    pub fn refused(self, code: i32, words: &[&str]) {
        let world = self.world;
        // Every verb first expands what was submitted before it.
        world.run(&["list"]);
        let before = world.task_count();
        self.run().exits(code).says(words);
        assert_eq!(world.task_count(), before, "a refused submission left a task behind");
        assert_eq!(world.names("intake"), Vec::<String>::new(), "a refused submission left an intake file");
    }
}
