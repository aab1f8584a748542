//! The direct worker: a conversation with a model's API, and tools that work in the workspace.
//!
//! `workspool agent` is a worker process like any other: it reads its prompt from standard input, prints
//! facts (a line of JSON each, the format `workspool`) and nothing else, and is supervised, limited and
//! ended by its keeper. It asks the model, does what the model calls for, hands the results back, and goes
//! on until the model has nothing more to call for.
//!
//! ```text
//! turns ── context ── api (chat, responses, anthropic) ── http ── sse
//!   └───── tools (read, write, list, search, shell) ── paths
//! ```

mod api;
mod context;
mod conversation;
mod failure;
mod http;
mod options;
mod output;
mod paths;
mod retry;
mod settings;
mod sse;
mod stop;
mod tools;
mod transcript;
mod turns;

pub use options::{ApiChoice, Options};

use crate::model::{ErrorClass, Fact};
use crate::redact::Redactor;
use failure::Failure;
use output::Output;
use std::io::Read as _;

/// Exit code of a run that did its work.
const DONE: u8 = 0;
/// Exit code of a run that failed; the facts say why.
const FAILED: u8 = 1;
/// Exit code of a command line that cannot be carried out.
const USAGE: u8 = 2;

/// The longest prompt.
const MAX_PROMPT: u64 = 16 << 20;

/// Runs the agent on the prompt that standard input holds, and returns its exit code.
pub fn run(options: &Options) -> u8 {
    let settings = match settings::Settings::resolve(options, |name| std::env::var(name).ok()) {
        Ok(settings) => settings,
        Err(failure) => return refuse(&failure),
    };
    let mut output = Output::new(settings.redactor.clone());
    let code = match start(settings, &mut output) {
        Ok(()) => DONE,
        Err(failure) => {
            output.fail(&failure);
            exit_code(&failure)
        }
    };
    // What could not be printed was not heard: the run did not do its work.
    if output.is_broken() { FAILED } else { code }
}

fn start(settings: settings::Settings, output: &mut Output) -> Result<(), Failure> {
    stop::on_signals()
        .map_err(|e| Failure::new(ErrorClass::Other, format!("cannot wait for signals: {e}")))?;
    stop::hide_environment();
    let version = Some(env!("CARGO_PKG_VERSION").to_owned());
    output.say(Fact::Program { version, model: Some(settings.model.clone()) });
    let prompt = read_prompt()?;
    turns::Run::new(settings, output)?.carry_out(prompt)
}

fn read_prompt() -> Result<String, Failure> {
    let mut bytes = Vec::new();
    let read = std::io::stdin().lock().take(MAX_PROMPT + 1).read_to_end(&mut bytes);
    read.map_err(|e| Failure::new(ErrorClass::Usage, format!("cannot read the prompt: {e}")))?;
    if bytes.len() as u64 > MAX_PROMPT {
        return Err(Failure::new(ErrorClass::Usage, format!("the prompt is over {} MiB", MAX_PROMPT >> 20)));
    }
    let prompt = String::from_utf8_lossy(&bytes).into_owned();
    if prompt.trim().is_empty() {
        return Err(Failure::new(ErrorClass::Usage, "the prompt (standard input) is empty"));
    }
    Ok(prompt)
}

/// Says why the run cannot even begin.
fn refuse(failure: &Failure) -> u8 {
    Output::new(Redactor::default()).fail(failure);
    exit_code(failure)
}

fn exit_code(failure: &Failure) -> u8 {
    if failure.class == ErrorClass::Usage { USAGE } else { FAILED }
}
