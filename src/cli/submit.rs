//! `workspool submit`.

use super::exit::{self, Exit};
use super::{term, wait};
use crate::intake::{self, Accepted};
use crate::model::input::{self, Submission};
use crate::model::task::SubmittedBy;
use crate::model::{Command, Door, Effort, GateKind, Permission, Role, TaskSpec, WorkerName, WorkspaceKind};
use crate::verbs::House;
use chrono::{DateTime, TimeDelta, Utc};
use std::io::Read as _;
use std::path::PathBuf;

/// Submit a task, and print its id and hash
///
/// Returns as soon as the task is safely on the disk; a runner (`workspool run`, or a timer that calls
/// `workspool tick`) works it off.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  workspool submit 'sed -i s/colour/color/ src/*.rs' --repo . --worker shell --verify 'cargo test'
  workspool submit --file task.json --wait
  git ls-files | workspool submit --file - --json")]
pub struct Args {
    /// What is to be done; for the shell worker, the script itself
    #[arg(required_unless_present = "file", conflicts_with = "file")]
    objective: Option<String>,
    /// Read a task, a batch, or a task a line from a file; - reads standard input
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    spec: SpecArgs,
    /// Do not start until `workspool release`
    #[arg(long)]
    hold: bool,
    /// Submissions with one key and the same content are one task
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// Wait until it has ended; the exit code says how
    #[arg(long)]
    wait: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The fields of a task, as options. Shared by submit and edit.
#[derive(Debug, Default, clap::Args)]
pub struct SpecArgs {
    /// The git repository (or folder) that it is about; the worker starts in the folder that is named
    #[arg(long, value_name = "DIR")]
    repo: Option<PathBuf>,
    /// Who does it: see `workspool workers list`
    #[arg(long, short, value_name = "NAME")]
    worker: Option<WorkerName>,
    /// The part that the worker plays: [routes] in config.toml may have a worker for it
    #[arg(long, value_name = "ROLE")]
    role: Option<Role>,
    /// The model, where the worker can choose one
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
    /// How hard the model should think, where the worker can choose
    #[arg(long, value_name = "EFFORT")]
    effort: Option<Effort>,
    /// A command that must succeed after the work is done (can be repeated)
    #[arg(long, value_name = "CMD")]
    verify: Vec<String>,
    /// Run every verify command even if one fails
    #[arg(long)]
    verify_all: bool,
    /// Where the verify commands run: in_place, or clean (a second worktree of the produced commit)
    #[arg(long, value_name = "GATE")]
    gate: Option<GateKind>,
    /// How often a failed verification goes back to the worker with the evidence
    #[arg(long, value_name = "N")]
    repair: Option<u32>,
    /// A short name for lists
    #[arg(long, value_name = "TEXT")]
    title: Option<String>,
    /// What the worker should know besides the objective
    #[arg(long, value_name = "TEXT")]
    context: Option<String>,
    /// The commit to start from [default: HEAD]
    #[arg(long, value_name = "REV")]
    base: Option<String>,
    /// Folder inside the repository to work in, from its top
    #[arg(long, value_name = "DIR")]
    subdir: Option<PathBuf>,
    /// Where to work: worktree, overlay, clone, copy, directory or temporary
    #[arg(long, value_name = "KIND")]
    workspace: Option<WorkspaceKind>,
    /// What may change: read_only, workspace_write, custom or full
    #[arg(long, value_name = "PERMISSION")]
    permission: Option<Permission>,
    /// With --permission custom: a pattern of paths that may change (can be repeated)
    #[arg(long, value_name = "GLOB")]
    allow: Vec<String>,
    /// A pattern of paths that must not change (can be repeated)
    #[arg(long, value_name = "GLOB")]
    forbid: Vec<String>,
    /// Ask the worker to use no network; the result says whether that was enforced
    #[arg(long)]
    no_network: bool,
    /// Ask the worker to run no shell commands; the result says whether that was enforced
    #[arg(long)]
    no_shell: bool,
    /// When it counts as done, in words (can be repeated)
    #[arg(long, value_name = "TEXT")]
    acceptance: Vec<String>,
    /// What the worker must respect (can be repeated)
    #[arg(long, value_name = "TEXT")]
    constraint: Vec<String>,
    /// A file that the work should leave (can be repeated)
    #[arg(long, value_name = "PATH")]
    deliverable: Vec<String>,
    /// A pattern of files to keep with the result (can be repeated)
    #[arg(long, value_name = "GLOB")]
    artifact: Vec<String>,
    /// A command that prepares the workspace (can be repeated)
    #[arg(long, value_name = "CMD")]
    setup: Vec<String>,
    /// A pattern of ignored files to copy into the workspace (can be repeated)
    #[arg(long, value_name = "GLOB")]
    copy: Vec<String>,
    /// The name of an environment variable to hand to the worker (can be repeated)
    #[arg(long, value_name = "NAME")]
    env: Vec<String>,
    /// 0 to 100, higher first [default: 50]
    #[arg(long, value_name = "N")]
    priority: Option<u8>,
    /// Seconds for the worker in one attempt [default: 3600]
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<u64>,
    /// How often a failed attempt is repeated [default: 2, for faults that pass by themselves]
    #[arg(long, value_name = "N")]
    retries: Option<u32>,
    /// A word to find it by (can be repeated)
    #[arg(long, value_name = "TAG")]
    tag: Vec<String>,
    /// A task that must have succeeded first (can be repeated)
    #[arg(long, value_name = "ID")]
    needs: Vec<String>,
    /// Not before this time: RFC 3339, or from now such as 30m, 2h, 1d
    #[arg(long, value_name = "TIME", value_parser = time)]
    not_before: Option<DateTime<Utc>>,
    /// Not to be started after this time: RFC 3339, or from now such as 2h
    #[arg(long, value_name = "TIME", value_parser = time)]
    expires: Option<DateTime<Utc>>,
}

impl SpecArgs {
    /// Puts what was given into a task.
    pub fn apply(self, spec: &mut TaskSpec) -> Result<(), Exit> {
        fn set<T>(field: &mut Option<T>, value: Option<T>) {
            if value.is_some() {
                *field = value;
            }
        }
        fn list<T>(field: &mut Vec<T>, value: Vec<T>) {
            if !value.is_empty() {
                *field = value;
            }
        }
        if let Some(repo) = self.repo {
            // Where it is not there, admission says so in its own words.
            spec.repository = Some(std::path::absolute(&repo)?);
        }
        set(&mut spec.worker, self.worker);
        set(&mut spec.role, self.role);
        set(&mut spec.model, self.model);
        set(&mut spec.effort, self.effort);
        list(&mut spec.verify, self.verify.into_iter().map(Command::Shell).collect());
        spec.verify_all |= self.verify_all;
        spec.no_network |= self.no_network;
        spec.no_shell |= self.no_shell;
        set(&mut spec.gate, self.gate);
        set(&mut spec.repair, self.repair);
        set(&mut spec.title, self.title);
        set(&mut spec.context, self.context);
        set(&mut spec.base, self.base);
        set(&mut spec.subdir, self.subdir);
        set(&mut spec.workspace, self.workspace);
        set(&mut spec.permission, self.permission);
        list(&mut spec.allow, self.allow);
        list(&mut spec.forbid, self.forbid);
        list(&mut spec.acceptance, self.acceptance);
        list(&mut spec.constraints, self.constraint);
        list(&mut spec.deliverables, self.deliverable);
        list(&mut spec.artifacts, self.artifact);
        list(&mut spec.setup, self.setup.into_iter().map(Command::Shell).collect());
        list(&mut spec.copy, self.copy);
        list(&mut spec.env, self.env);
        set(&mut spec.priority, self.priority);
        set(&mut spec.timeout, self.timeout);
        set(&mut spec.retries, self.retries);
        list(&mut spec.tags, self.tag);
        list(&mut spec.needs, self.needs);
        set(&mut spec.not_before, self.not_before);
        set(&mut spec.expires, self.expires);
        Ok(())
    }
}

/// Carries the verb out.
pub fn run(house: &House, args: Args) -> Result<u8, Exit> {
    let mut submission = match (&args.objective, &args.file) {
        (Some(objective), _) => Submission::One(Box::new(TaskSpec::new(objective.clone()))),
        (None, Some(file)) => read(file)?,
        (None, None) => return Err(Exit::new(exit::USAGE, "an objective or --file is needed")),
    };
    match &mut submission {
        Submission::One(spec) => {
            args.spec.apply(spec)?;
            spec.hold |= args.hold;
            if args.idempotency_key.is_some() {
                spec.idempotency_key = args.idempotency_key;
            }
            if let Some(path) = spec.repository.as_mut().filter(|p| !p.is_absolute()) {
                *path = std::path::absolute(&*path)?;
            }
        }
        Submission::Many(batch) => {
            if args.idempotency_key.is_some() {
                batch.idempotency_key = args.idempotency_key;
            }
            for spec in &mut batch.tasks {
                spec.hold |= args.hold;
                if let Some(path) = spec.repository.as_mut().filter(|p| !p.is_absolute()) {
                    *path = std::path::absolute(&*path)?;
                }
            }
        }
    }
    let specs = match &submission {
        Submission::One(spec) => std::slice::from_ref(&**spec),
        Submission::Many(batch) => &batch.tasks[..],
    };
    if specs.iter().any(|spec| !spec.needs.is_empty() || spec.parent.is_some()) {
        // The tasks that it names may have been submitted just now. What cannot be expanded is told by the
        // runner; it is no reason to refuse this one.
        let _ = intake::expand(&house.spool);
    }
    let by = SubmittedBy { door: Door::Cli, client: None, file: None, results: None };
    let accepted = intake::submit(&house.spool, &house.config, submission, by)?;
    if args.json && !args.wait {
        #[derive(serde::Serialize)]
        struct Out<'a> {
            tasks: &'a [Accepted],
        }
        term::json(&Out { tasks: &accepted })?;
    } else if !args.json {
        for task in &accepted {
            let again = if task.existing { "  (submitted before)" } else { "" };
            term::line(&format!("{}  sha256:{}{again}", task.id, task.sha256))?;
        }
    }
    if !args.wait {
        return Ok(0);
    }
    let ids: Vec<_> = accepted.iter().map(|a| a.id).collect();
    wait::wait_and_tell(house, &ids, false, None, args.json)
}

/// Reads a submission from a file or from standard input.
fn read(file: &PathBuf) -> Result<Submission, Exit> {
    let shown = file.display();
    let text = if file.as_os_str() == "-" {
        let mut text = Vec::new();
        std::io::stdin().lock().read_to_end(&mut text)?;
        text
    } else {
        std::fs::read(file).map_err(|e| Exit::new(exit::NOT_FOUND, format!("cannot read {shown}: {e}")))?
    };
    input::submission(&text).map_err(|p| Exit::new(exit::of_problem(p.kind), format!("{shown}: {p}")))
}

/// Reads a time: RFC 3339, or a number with s, m, h or d from now.
fn time(text: &str) -> Result<DateTime<Utc>, String> {
    if let Ok(at) = DateTime::parse_from_rfc3339(text) {
        return Ok(at.to_utc());
    }
    let expected =
        || format!("expected a time such as 2026-12-24T18:00:00Z, or from now such as 30m, 2h, 1d: {text:?}");
    let unit = text.chars().last().ok_or_else(expected)?;
    let number: i64 = text[..text.len() - unit.len_utf8()].parse().map_err(|_| expected())?;
    let delta = match unit {
        's' => TimeDelta::try_seconds(number),
        'm' => TimeDelta::try_minutes(number),
        'h' => TimeDelta::try_hours(number),
        'd' => TimeDelta::try_days(number),
        _ => None,
    };
    delta.and_then(|d| Utc::now().checked_add_signed(d)).ok_or_else(expected)
}
