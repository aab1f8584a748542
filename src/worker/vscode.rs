//! `workspool vscode`: the worker that hands its task to a running VS Code window, and passes on what comes
//! back.
//!
//! The window runs the extension in `scripts/vscode-extension`, which listens on this machine only and writes
//! its address and a token into a file that nobody else can read. Everything fails closed: where the file, the
//! token, the address or the workspace is not what it should be, nothing is sent, or the bridge refuses it.

use crate::model::{ErrorClass, Fact, Permission};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The version of what is said between us and the bridge.
const VERSION: u32 = 1;
/// Where the bridge leaves its address and token, in the user's folder for settings.
const FILE: &str = "workspool/vscode-bridge.json";
/// The variable that names another place for it.
const FILE_VARIABLE: &str = "WORKSPOOL_VSCODE_FILE";
const CONNECT: Duration = Duration::from_secs(5);
/// The longest prompt, refusal and line of an answer.
const MAX_PROMPT: u64 = 16 << 20;
const MAX_REFUSAL: u64 = 64 << 10;
const MAX_LINE: u64 = 8 << 20;

const NOT_RUNNING: &str =
    "is VS Code running, with the extension of scripts/vscode-extension, and is its bridge started?";

/// Hand the prompt (standard input) to a running VS Code window, by its bridge on this machine
///
/// A worker like any other, run by the profile vscode: it prints facts, a line of JSON each. The window needs
/// the extension in scripts/vscode-extension.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Examples:
  workspool vscode --check
  workspool vscode --workspace . --permission read_only < prompt.md")]
pub struct Options {
    /// The folder to work in: it must be open in the window, or a worktree of a repository that is
    #[arg(long, value_name = "DIR", required_unless_present = "check")]
    workspace: Option<PathBuf>,
    /// The model, by its id or family [default: the first that VS Code offers]
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// What the model may change
    #[arg(long, value_name = "PERMISSION", default_value = "workspace_write")]
    permission: Permission,
    /// Offer the model no shell
    #[arg(long)]
    no_shell: bool,
    /// The most answers of the model
    #[arg(long, value_name = "N", default_value_t = 48, value_parser = clap::value_parser!(u32).range(1..))]
    max_turns: u32,
    /// The file with the bridge's address and token
    /// [default: WORKSPOOL_VSCODE_FILE, else workspool/vscode-bridge.json in ~/.config]
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Only see whether a bridge answers and takes the token
    #[arg(long)]
    check: bool,
}

/// What the bridge leaves in its file.
#[derive(Debug, Deserialize)]
struct Bridge {
    version: u32,
    url: String,
    token: String,
}

/// What is asked of it.
#[derive(Debug, Serialize)]
struct Run<'a> {
    version: u32,
    workspace: &'a Path,
    prompt: String,
    permission: Permission,
    no_shell: bool,
    max_turns: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<&'a str>,
}

/// Why nothing came of it.
#[derive(Debug)]
struct Refusal {
    class: ErrorClass,
    message: String,
}

fn refusal(class: ErrorClass, message: impl Into<String>) -> Refusal {
    Refusal { class, message: message.into() }
}

/// Carries `workspool vscode` out, and returns its exit code.
pub fn run(options: &Options) -> u8 {
    let done = if options.check { check(options) } else { hand_over(options) };
    match done {
        Ok(true) => 0,
        Ok(false) => 1,
        Err(Refusal { class, message }) if options.check => {
            eprintln!(
                "workspool vscode: {}: {message}",
                serde_json::json!(class).as_str().unwrap_or_default()
            );
            1
        }
        Err(Refusal { class, message }) => {
            say(&Fact::Error { class, message });
            say(&Fact::Final { ok: false, text: None });
            1
        }
    }
}

/// Prints a fact. Where nobody reads any more, there is nobody to tell.
fn say(fact: &Fact) -> bool {
    let mut out = std::io::stdout().lock();
    let line = serde_json::json!(fact).to_string();
    writeln!(out, "{line}").and_then(|()| out.flush()).is_ok()
}

fn check(options: &Options) -> Result<bool, Refusal> {
    let bridge = find(options)?;
    let request = agent().get(format!("{}/v1/health", bridge.url));
    let response = request.header("authorization", format!("Bearer {}", bridge.token)).call();
    let mut response = response.map_err(|e| unreachable(&bridge, &e))?;
    if response.status().as_u16() != 200 {
        return Err(refused(&mut response));
    }
    println!("the bridge at {} is ready", bridge.url);
    Ok(true)
}

fn hand_over(options: &Options) -> Result<bool, Refusal> {
    say(&Fact::Program { version: Some(env!("CARGO_PKG_VERSION").to_owned()), model: options.model.clone() });
    let bridge = find(options)?;
    let mut prompt = String::new();
    let read = std::io::stdin().lock().take(MAX_PROMPT + 1).read_to_string(&mut prompt);
    read.map_err(|e| refusal(ErrorClass::Usage, format!("cannot read the prompt: {e}")))?;
    if prompt.trim().is_empty() || prompt.len() as u64 > MAX_PROMPT {
        let message = format!("the prompt (standard input) is empty, or over {} MiB", MAX_PROMPT >> 20);
        return Err(refusal(ErrorClass::Usage, message));
    }
    let workspace = options.workspace.clone().unwrap_or_default();
    let workspace = fs::canonicalize(&workspace)
        .map_err(|e| refusal(ErrorClass::Usage, format!("{}: {e}", workspace.display())))?;
    let body = Run {
        version: VERSION,
        workspace: &workspace,
        prompt,
        permission: options.permission,
        no_shell: options.no_shell,
        max_turns: options.max_turns,
        model: options.model.as_deref(),
    };
    let body = serde_json::to_string(&body).map_err(|e| refusal(ErrorClass::Usage, e.to_string()))?;
    let request = agent().post(format!("{}/v1/run", bridge.url)).header("content-type", "application/json");
    let response = request.header("authorization", format!("Bearer {}", bridge.token)).send(body);
    let mut response = response.map_err(|e| unreachable(&bridge, &e))?;
    if response.status().as_u16() != 200 {
        return Err(refused(&mut response));
    }
    pass_on(response.body_mut().with_config().limit(u64::MAX).reader())
}

/// Prints the facts that come, and says whether the last word was one of success.
fn pass_on(reader: impl std::io::Read) -> Result<bool, Refusal> {
    let broke = |how: String| refusal(ErrorClass::Network, format!("the bridge's answer broke off: {how}"));
    let mut reader = BufReader::new(reader);
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = (&mut reader).take(MAX_LINE).read_until(b'\n', &mut line);
        if read.map_err(|e| broke(e.to_string()))? == 0 {
            return Err(broke("VS Code ended, or its window was closed".into()));
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        // What is no fact of this version is for another one.
        let Ok(fact) = serde_json::from_slice::<Fact>(&line) else { continue };
        if !say(&fact) {
            return Ok(false);
        }
        if let Fact::Final { ok, .. } = fact {
            return Ok(ok);
        }
    }
}

fn agent() -> ureq::Agent {
    let config = ureq::Agent::config_builder()
        .http_status_as_error(false)
        // A redirect or a proxy would take the token elsewhere.
        .max_redirects(0)
        .max_redirects_will_error(false)
        .proxy(None)
        .timeout_connect(Some(CONNECT));
    config.build().new_agent()
}

/// Finds the bridge by its file. A file that another user could have written, or read, is no proof of anything.
fn find(options: &Options) -> Result<Bridge, Refusal> {
    let path = match options.file.clone().or_else(|| variable(FILE_VARIABLE)) {
        Some(path) => path,
        None => {
            let home = || std::env::home_dir().map(|home| home.join(".config"));
            let folder = variable("XDG_CONFIG_HOME").or_else(home);
            let none =
                || refusal(ErrorClass::Usage, "there is no home folder in which the bridge's file could lie");
            folder.ok_or_else(none)?.join(FILE)
        }
    };
    let shown = path.display();
    let file = fs::File::open(&path).map_err(|e| {
        refusal(ErrorClass::NotFound, format!("there is no bridge to VS Code: {shown}: {e}; {NOT_RUNNING}"))
    })?;
    let meta = file.metadata().map_err(|e| refusal(ErrorClass::NotFound, format!("{shown}: {e}")))?;
    if meta.uid() != rustix::process::geteuid().as_raw() || meta.mode() & 0o077 != 0 {
        let message = format!("{shown} can be read or written by others than its owner: it is not believed");
        return Err(refusal(ErrorClass::Permission, message));
    }
    let mut text = String::new();
    let read = file.take(MAX_REFUSAL).read_to_string(&mut text);
    let wrong = |e: &dyn std::fmt::Display| {
        refusal(ErrorClass::Usage, format!("{shown} is no file of a bridge: {e}"))
    };
    read.map_err(|e| wrong(&e))?;
    let bridge: Bridge = serde_json::from_str(&text).map_err(|e| wrong(&e))?;
    if bridge.version != VERSION {
        let message = format!(
            "the bridge speaks version {}, and this program {VERSION}: bring both up to date",
            bridge.version
        );
        return Err(refusal(ErrorClass::Usage, message));
    }
    if !is_here(&bridge.url) {
        let message = format!(
            "{shown} names {}, which is not on this machine: expected http://127.0.0.1:PORT",
            bridge.url
        );
        return Err(refusal(ErrorClass::Permission, message));
    }
    Ok(bridge)
}

fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from)
}

/// Whether an address is a port of this machine, and nothing more.
fn is_here(url: &str) -> bool {
    let port = url.strip_prefix("http://127.0.0.1:");
    port.is_some_and(|port| port.parse::<u16>().is_ok_and(|port| port != 0))
}

fn unreachable(bridge: &Bridge, error: &ureq::Error) -> Refusal {
    let message = format!("the bridge to VS Code does not answer at {}: {error}; {NOT_RUNNING}", bridge.url);
    refusal(ErrorClass::NotFound, message)
}

/// Why the bridge refused, in its own words where it had any.
fn refused(response: &mut ureq::http::Response<ureq::Body>) -> Refusal {
    let status = response.status().as_u16();
    let mut body = Vec::new();
    // What can be read of the reason is better than none.
    let _ = response.body_mut().with_config().limit(MAX_REFUSAL).reader().read_to_end(&mut body);
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let class = serde_json::from_value(body["error"]["class"].clone()).unwrap_or(match status {
        401 => ErrorClass::Auth,
        403 => ErrorClass::Permission,
        _ => ErrorClass::Usage,
    });
    let message = body["error"]["message"].as_str().unwrap_or("it gave no reason");
    refusal(class, format!("the bridge to VS Code refused (HTTP status {status}): {message}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ports_of_this_machine_are_asked() {
        assert!(is_here("http://127.0.0.1:9394"));
        for url in [
            "https://127.0.0.1:9394",
            "http://localhost:9394",
            "http://127.0.0.1",
            "http://127.0.0.1:0",
            "http://127.0.0.1:9394/x",
            "http://127.0.0.1:9394@evil.example",
            "http://192.168.0.2:9394",
        ] {
            assert!(!is_here(url), "{url}");
        }
    }

    #[test]
    fn an_answer_without_a_last_word_is_no_success() {
        assert!(pass_on(&b"{\"fact\":\"final\",\"ok\":true}\n"[..]).unwrap());
        assert!(
            !pass_on(&b"\n{\"fact\":\"new\"}\nnonsense\n{\"fact\":\"final\",\"ok\":false}\n"[..]).unwrap()
        );
        let broken = pass_on(&b"{\"fact\":\"message\",\"text\":\"x\"}\n"[..]).unwrap_err();
        assert_eq!(broken.class, ErrorClass::Network);
    }
}
