//! Registering the MCP server in the configuration of a client, and undoing it.
//!
//! What is to change is found out first and can be shown; then it is done, by the client's own command where
//! it has one and is there, else in its file, of which everything else stays as it is.

mod clients;
mod jsonc;
mod toml;

pub use clients::{ALL, Client, Format, NAME, Start};

use crate::durable;
use crate::worker::env::{find_executable, own_executable};
use anyhow::{Context as _, bail};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What would be done to a client's configuration.
#[derive(Debug)]
pub struct Change {
    /// The client.
    pub client: &'static Client,
    /// Its configuration.
    pub file: PathBuf,
    /// The text now; `None` where there is no file.
    pub old: Option<String>,
    /// The text then; `None` where the file goes away.
    pub new: Option<String>,
    /// The client's own command lines that do it, where it has them and is there.
    pub commands: Vec<Vec<String>>,
    /// Whether the server is there afterwards.
    present: bool,
}

impl Change {
    /// Whether there is nothing to do.
    pub fn is_nothing(&self) -> bool {
        self.old == self.new
    }

    /// What is different, as lines that begin with `+` or `-`.
    pub fn lines(&self) -> Vec<String> {
        let split =
            |t: &Option<String>| t.as_deref().unwrap_or_default().lines().map(str::to_owned).collect();
        let (old, new): (Vec<String>, Vec<String>) = (split(&self.old), split(&self.new));
        let same = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
        let rest = |k: &Vec<String>| k.len() - same;
        let ends = old.iter().rev().zip(new.iter().rev()).take_while(|(a, b)| a == b).count();
        let ends = ends.min(rest(&old)).min(rest(&new));
        let mut lines: Vec<String> = Vec::new();
        lines.extend(old[same..old.len() - ends].iter().map(|l| format!("- {l}")));
        lines.extend(new[same..new.len() - ends].iter().map(|l| format!("+ {l}")));
        lines
    }
}

/// How this program is best started later: by the name under which it is found, and which outlives an update.
pub fn start(spool: Option<&Path>) -> anyhow::Result<Start> {
    let own = own_executable().context("cannot find this program")?;
    let real = own.canonicalize().unwrap_or_else(|_| own.clone());
    let found = find_executable("workspool").filter(|p| p.is_absolute());
    let program = found.filter(|p| p.canonicalize().is_ok_and(|p| p == real)).unwrap_or(own);
    let text = |path: &Path| {
        path.to_str().map(str::to_owned).with_context(|| format!("{} is not UTF-8", path.display()))
    };
    let mut command = vec![text(&program)?];
    if let Some(spool) = spool {
        command.extend(["--spool".into(), text(&std::path::absolute(spool)?)?]);
    }
    command.push("mcp".into());
    Ok(Start { command, path: std::env::var("PATH").ok() })
}

/// Finds out what would change to have the server registered as `start` says, or to have it gone.
pub fn plan(client: &'static Client, home: &Path, start: Option<&Start>) -> anyhow::Result<Change> {
    let file = client.file(home, |name| std::env::var_os(name).map(PathBuf::from));
    let old = match std::fs::read_to_string(&file) {
        Ok(text) => Some(text),
        Err(e) if e.kind() == io::ErrorKind::NotFound => None,
        Err(e) => return Err(e).with_context(|| format!("cannot read {}", file.display())),
    };
    let unreadable =
        || format!("{} cannot be edited\n  hint: mend it, or add what --print shows by hand", file.display());
    let new = edit(client, old.as_deref(), start).with_context(unreadable)?;
    let mut commands = Vec::new();
    if old != new
        && let Some(own) = &client.own
        && find_executable(own.program).is_some()
    {
        // None of them replaces an entry that is there.
        let there = old.as_deref().is_some_and(|text| current(client, text).ok().flatten().is_some());
        if there {
            commands.extend(client.own_command(None));
        }
        if start.is_some() {
            commands.extend(client.own_command(start));
        }
    }
    Ok(Change { client, file, old, new, commands, present: start.is_some() })
}

/// The entry that is in a configuration now.
fn current(client: &Client, text: &str) -> anyhow::Result<Option<Value>> {
    let path = client.entry_path();
    Ok(match client.format {
        Format::Json => {
            if text.trim().is_empty() {
                None
            } else {
                jsonc::get(text, &path)?
            }
        }
        Format::Toml => toml::get(text, &path)?,
    })
}

fn edit(client: &Client, old: Option<&str>, start: Option<&Start>) -> anyhow::Result<Option<String>> {
    let path = client.entry_path();
    let text = old.unwrap_or_default();
    let now = current(client, text)?;
    let Some(start) = start else {
        if now.is_none() {
            return Ok(old.map(str::to_owned));
        }
        let left = match client.format {
            Format::Json => jsonc::remove(text, &path)?,
            Format::Toml => toml::remove(text, &path)?,
        };
        let empty = left.trim().is_empty() || left.split_whitespace().collect::<String>() == "{}";
        return Ok((!empty).then_some(left));
    };
    let wanted = client.entry(start);
    // What a user added to our entry, such as approvals, stays.
    let mut merged = match &now {
        Some(Value::Object(now)) => now.clone(),
        _ => Map::new(),
    };
    if !wanted.contains_key("env") {
        merged.remove("env");
    }
    merged.extend(wanted);
    let merged = Value::Object(merged);
    if now.as_ref() == Some(&merged) {
        return Ok(old.map(str::to_owned));
    }
    Ok(Some(match client.format {
        Format::Json => jsonc::set(text, &path, &merged)?,
        Format::Toml => toml::set(text, &path, &merged)?,
    }))
}

/// Does it, and looks whether it is done.
pub fn apply(change: &Change) -> anyhow::Result<()> {
    if change.is_nothing() {
        return Ok(());
    }
    if change.commands.is_empty() {
        return write(change);
    }
    for line in &change.commands {
        let out = Command::new(&line[0])
            .args(&line[1..])
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("cannot run {}", line[0]))?;
        if !out.status.success() {
            let said = String::from_utf8_lossy(if out.stderr.is_empty() { &out.stdout } else { &out.stderr });
            bail!("{} failed ({}): {}", words(line), out.status, said.trim());
        }
    }
    let text = std::fs::read_to_string(&change.file).unwrap_or_default();
    if current(change.client, &text)?.is_some() != change.present {
        bail!(
            "{} said that it was done, but {} does not show it",
            change.commands.last().map(|l| words(l)).unwrap_or_default(),
            change.file.display()
        );
    }
    Ok(())
}

fn write(change: &Change) -> anyhow::Result<()> {
    // A configuration may be a link into somebody's dotfiles: the file behind it is the one to change.
    let file = change.file.canonicalize().unwrap_or_else(|_| change.file.clone());
    let why = || format!("cannot write {}", file.display());
    let now = std::fs::read_to_string(&file).ok();
    if now != change.old {
        bail!("{} was changed meanwhile: try again", file.display());
    }
    let Some(new) = &change.new else {
        return durable::remove_file(&file).with_context(why);
    };
    if let Some(folder) = file.parent() {
        durable::ensure_dir(folder).with_context(why)?;
    }
    let mode = file.metadata().ok().map(|m| m.permissions().mode());
    durable::replace(&file, new.as_bytes()).with_context(why)?;
    if let Some(mode) = mode {
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).with_context(why)?;
    }
    Ok(())
}

/// What to put into a configuration by hand.
pub fn snippet(client: &Client, start: &Start) -> anyhow::Result<String> {
    let entry = Value::Object(client.entry(start));
    Ok(match client.format {
        Format::Json => jsonc::set("", &client.entry_path(), &entry)?,
        Format::Toml => toml::set("", &client.entry_path(), &entry)?,
    })
}

/// A command line as one would type it.
pub fn words(line: &[String]) -> String {
    let plain =
        |w: &str| !w.is_empty() && w.chars().all(|c| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c));
    let quoted =
        line.iter().map(|w| if plain(w) { w.clone() } else { format!("'{}'", w.replace('\'', "'\\''")) });
    quoted.collect::<Vec<_>>().join(" ")
}

/// Whether the server is registered with a client, as far as its file says.
pub fn is_registered(client: &Client, home: &Path) -> bool {
    registered(client, home).is_ok_and(|entry| entry.is_some())
}

/// What a client starts as our server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registration {
    /// The configuration that says so.
    pub file: PathBuf,
    /// Program and arguments; empty where the entry names none.
    pub command: Vec<String>,
    /// The variables that it sets.
    pub env: BTreeMap<String, String>,
    /// Whether the client is told not to start it.
    pub is_off: bool,
}

/// Reads what a client starts as our server; `None` if it does not know of us.
pub fn registered(client: &Client, home: &Path) -> anyhow::Result<Option<Registration>> {
    let file = client.file(home, |name| std::env::var_os(name).map(PathBuf::from));
    let text = match std::fs::read_to_string(&file) {
        Ok(text) => text,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e).with_context(|| format!("cannot read {}", file.display())),
    };
    let entry = current(client, &text).with_context(|| format!("cannot read {}", file.display()))?;
    let Some(entry) = entry else { return Ok(None) };
    let texts = |value: &Value| match value {
        Value::String(one) => vec![one.clone()],
        Value::Array(all) => all.iter().filter_map(|v| v.as_str().map(str::to_owned)).collect(),
        _ => Vec::new(),
    };
    let mut command = texts(&entry["command"]);
    if !command.is_empty() {
        command.extend(texts(&entry["args"]));
    }
    let env = ["env", "environment"].iter().find_map(|key| entry[*key].as_object());
    let env = env.into_iter().flatten().filter_map(|(k, v)| Some((k.clone(), v.as_str()?.to_owned())));
    let is_off = entry["enabled"] == Value::Bool(false) || entry["disabled"] == Value::Bool(true);
    Ok(Some(Registration { file, command, env: env.collect(), is_off }))
}

/// Whether a client seems to be on this machine: its file, the folder that the file is in, or its program.
pub fn is_there(client: &Client, home: &Path) -> bool {
    let file = client.file(home, |name| std::env::var_os(name).map(PathBuf::from));
    let folder = file.parent().is_some_and(|folder| folder != home && folder.is_dir());
    file.is_file() || folder || client.own.as_ref().is_some_and(|o| find_executable(o.program).is_some())
}
