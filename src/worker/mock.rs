//! `workspool mock`: the built-in worker that does what the lines of its prompt say.
//!
//! It needs no account and no network, and does the same each time: for trying things out, and for tests of
//! whatever stands around a worker. What the lines may say is in `docs/mock-worker.md`. It prints [`Fact`]s,
//! one JSON object a line, as our own agent does.

mod directive;

use crate::model::{ErrorClass, Fact, LimitKind, UsageScope};
use directive::{Directive, Line};
use std::ffi::OsString;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

/// The exit code for a prompt or a command line that cannot be carried out.
const USAGE: u8 = 2;

const HELP: &str = "\
Do what the lines of a prompt say, and print events as a worker does

Usage: workspool mock PROMPT_FILE [--model NAME] [--attempt N]

PROMPT_FILE - reads standard input. It is the worker `mock`: the prompt is the objective of the task.
All lines are read before the first is carried out. In texts, \\n, \\t, \\\\ and \\\" are known; a path with
spaces stands in quotation marks. Lines that begin with # are passed over.

  write PATH TEXT      make a file of exactly this text, and the folders above it
  append PATH TEXT     add to the end of a file
  delete PATH          remove a file, or a folder with all in it
  mkdir PATH           make a folder
  commit MESSAGE       commit all there is in the workspace, as a worker may do itself
  sleep SECONDS        wait
  hang                 never end
  print TEXT           write a line to standard output that is no event
  stderr TEXT          write a line to standard error
  say TEXT             text of the assistant
  tool NAME TEXT       a call of a tool, and its success
  usage FIGURES        input=N output=N cached=N tool_calls=N turns=N cost=DOLLARS
  session ID           the id of the session
  report JSON          the report: summary, commit_message, tests_run, open_questions, warnings
  fail MESSAGE         end as failed
  rate_limit SECONDS   end as asked to come back later
  quota SECONDS        end as out of quota
  auth                 end as not signed in
  exit CODE            end at once, without a last word
  on N DIRECTIVE       only in attempt N";

/// Carries `workspool mock` out.
pub fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    let args = match parse_args(args) {
        Ok(Some(args)) => args,
        Ok(None) => {
            println!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Err(message) => {
            eprintln!("workspool mock: {message}");
            return ExitCode::from(USAGE);
        }
    };
    match run(&args) {
        Ok(code) => ExitCode::from(code),
        // Nobody reads any more: there is nobody to tell.
        Err(_) => ExitCode::FAILURE,
    }
}

#[derive(Debug, Default)]
struct Args {
    prompt: PathBuf,
    model: Option<String>,
    attempt: Option<u32>,
}

/// Reads the command line; `None` asks for help.
fn parse_args(mut args: impl Iterator<Item = OsString>) -> Result<Option<Args>, String> {
    let mut parsed = Args::default();
    let mut prompt = None;
    while let Some(arg) = args.next() {
        let mut value = |what: &str| {
            let value = args.next().and_then(|v| v.into_string().ok());
            value.ok_or_else(|| format!("{what} is missing"))
        };
        match arg.to_str() {
            Some("-h" | "--help") => return Ok(None),
            Some("--model") => parsed.model = Some(value("the name of the model")?),
            Some("--attempt") => {
                let number = value("the number of the attempt")?;
                let number = number.parse().map_err(|_| format!("{number:?} is no number of an attempt"))?;
                parsed.attempt = Some(number);
            }
            Some(other) if other.starts_with("--") => return Err(format!("there is no option {other}")),
            _ if prompt.is_none() => prompt = Some(PathBuf::from(arg)),
            _ => return Err(format!("{} is one argument too many", arg.to_string_lossy())),
        }
    }
    parsed.prompt = prompt.ok_or("the prompt's file is missing; see `workspool mock --help`")?;
    Ok(Some(parsed))
}

fn run(args: &Args) -> io::Result<u8> {
    let version = Some(env!("CARGO_PKG_VERSION").to_owned());
    say(&Fact::Program { version, model: args.model.clone() })?;
    let lines = match read(&args.prompt).and_then(|t| directive::parse(&t).map_err(|e| e.to_string())) {
        Ok(lines) => lines,
        Err(message) => return end(USAGE, ErrorClass::Usage, &message),
    };
    let mut script = Script::default();
    let wanted = |line: &&Line| line.attempt.is_none_or(|n| Some(n) == args.attempt);
    for line in lines.iter().filter(wanted) {
        if let Some(code) = script.carry_out(line)? {
            return Ok(code);
        }
    }
    let text = match (script.report, script.said) {
        (Some(report), said) => {
            let said = said.map(|s| s + "\n\n").unwrap_or_default();
            format!("{said}```workspool-report\n{report}\n```\n")
        }
        (None, Some(said)) => said,
        (None, None) => match script.steps {
            1 => "Carried out 1 line.".to_owned(),
            n => format!("Carried out {n} lines."),
        },
    };
    say(&Fact::Final { ok: true, text: Some(text) })?;
    Ok(0)
}

fn read(prompt: &Path) -> Result<String, String> {
    let cannot = |e: io::Error| format!("cannot read the prompt {}: {e}", prompt.display());
    if prompt.as_os_str() == "-" {
        let mut text = String::new();
        io::stdin().lock().read_to_string(&mut text).map_err(cannot)?;
        return Ok(text);
    }
    fs::read_to_string(prompt).map_err(cannot)
}

/// What was carried out so far.
#[derive(Debug, Default)]
struct Script {
    steps: usize,
    said: Option<String>,
    report: Option<serde_json::Value>,
}

impl Script {
    /// Carries one line out. Returns the exit code if that was the end.
    fn carry_out(&mut self, line: &Line) -> io::Result<Option<u8>> {
        self.steps += 1;
        match &line.directive {
            Directive::Write { .. }
            | Directive::Append { .. }
            | Directive::Delete { .. }
            | Directive::Mkdir { .. }
            | Directive::Commit(_) => {
                if let Err(message) = change(&line.directive) {
                    return end(1, ErrorClass::Other, &format!("line {}: {message}", line.number)).map(Some);
                }
            }
            Directive::Sleep(time) => std::thread::sleep(*time),
            Directive::Print(text) => raw(text)?,
            Directive::Stderr(text) => writeln!(io::stderr(), "{text}")?,
            Directive::Say(text) => {
                say(&Fact::Message { text: text.clone() })?;
                self.said = Some(text.clone());
            }
            Directive::Tool { name, summary } => {
                let id = Some(format!("call-{}", line.number));
                say(&Fact::ToolCall { id: id.clone(), name: name.clone(), summary: summary.clone() })?;
                say(&Fact::ToolResult { id, ok: true })?;
            }
            Directive::Usage(usage) => {
                say(&Fact::Usage { usage: usage.clone(), scope: UsageScope::Delta })?;
            }
            Directive::Session(id) => say(&Fact::Session { id: id.clone() })?,
            Directive::Report(report) => self.report = Some(report.clone()),
            Directive::RateLimit(time) => return limited(LimitKind::Rate, *time).map(Some),
            Directive::Quota(time) => return limited(LimitKind::Quota, *time).map(Some),
            Directive::Auth => return end(1, ErrorClass::Auth, "not signed in").map(Some),
            Directive::Fail(message) => return end(1, ErrorClass::Other, message).map(Some),
            Directive::Exit(code) => return Ok(Some(*code)),
            Directive::Hang => loop {
                std::thread::park();
            },
        }
        Ok(None)
    }
}

/// Prints a fact.
fn say(fact: &Fact) -> io::Result<()> {
    raw(&serde_json::to_string(fact)?)
}

fn raw(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

/// Says why the run failed, as its last word.
fn end(code: u8, class: ErrorClass, message: &str) -> io::Result<u8> {
    say(&Fact::Error { class, message: message.to_owned() })?;
    say(&Fact::Final { ok: false, text: Some(message.to_owned()) })?;
    Ok(code)
}

fn limited(kind: LimitKind, time: Duration) -> io::Result<u8> {
    let until = chrono::Utc::now() + chrono::TimeDelta::from_std(time).unwrap_or_default();
    say(&Fact::Limit { kind, until: Some(until), rejected: true })?;
    let seconds = time.as_secs_f64();
    match kind {
        LimitKind::Rate => end(1, ErrorClass::RateLimited, &format!("rate limited for {seconds} s")),
        LimitKind::Quota => end(1, ErrorClass::Quota, &format!("out of quota for {seconds} s")),
    }
}

/// Carries out a directive that changes files.
///
/// Nothing keeps paths inside the workspace: it stands for any program, and those are free to leave it.
fn change(directive: &Directive) -> Result<(), String> {
    let failed = |path: &Path, e: io::Error| format!("{}: {e}", path.display());
    let make_parent = |path: &Path| match path.parent() {
        Some(parent) => fs::create_dir_all(parent).map_err(|e| failed(parent, e)),
        None => Ok(()),
    };
    match directive {
        Directive::Write { path, text } => {
            make_parent(path)?;
            fs::write(path, text).map_err(|e| failed(path, e))
        }
        Directive::Append { path, text } => {
            make_parent(path)?;
            let file = fs::OpenOptions::new().create(true).append(true).open(path);
            file.and_then(|mut f| f.write_all(text.as_bytes())).map_err(|e| failed(path, e))
        }
        Directive::Delete { path } => {
            let folder = path.symlink_metadata().map_err(|e| failed(path, e))?.is_dir();
            let removed = if folder { fs::remove_dir_all(path) } else { fs::remove_file(path) };
            removed.map_err(|e| failed(path, e))
        }
        Directive::Mkdir { path } => fs::create_dir_all(path).map_err(|e| failed(path, e)),
        Directive::Commit(message) => commit(message),
        _ => Ok(()),
    }
}

/// Commits as a worker's own program would: by git as it is found, in the folder it was started in.
fn commit(message: &str) -> Result<(), String> {
    let workspace = std::env::var_os("WORKSPOOL_WORKSPACE").map(PathBuf::from);
    let workspace = workspace.or_else(|| std::env::current_dir().ok()).unwrap_or_default();
    let git = |args: &[&str]| {
        let mut command = Command::new("git");
        command.args([
            "-c",
            "user.name=mock",
            "-c",
            "user.email=mock@localhost",
            "-c",
            "commit.gpgSign=false",
        ]);
        // A workspace without a repository must not lead to one that happens to lie around it.
        command.args(args).env("GIT_CEILING_DIRECTORIES", workspace.parent().unwrap_or(&workspace));
        let out = command.output().map_err(|e| format!("cannot run git: {e}"))?;
        if out.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(if out.stderr.is_empty() { &out.stdout } else { &out.stderr });
        Err(format!("git {}: {}", args[0], said.trim()))
    };
    git(&["add", "--all"])?;
    git(&["commit", "--quiet", "--no-verify", "--message", message])
}
