//! From a profile and an attempt to a command line: every value in its own argument, nothing through a shell.

use super::env;
use crate::model::profile::{PromptBy, Template};
use crate::model::{Effort, Permission, Profile};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// What stands for values of an attempt in a profile's arguments.
pub const PLACEHOLDERS: &[&str] = &[
    "{prompt}",
    "{prompt_file}",
    "{workspace}",
    "{attempt_dir}",
    "{task}",
    "{attempt}",
    "{model}",
    "{effort}",
    "{session}",
    "{probe}",
    "{workspool}",
    "{turns}",
    "{cost_usd}",
];

/// The values of an attempt.
#[derive(Debug, Clone, Default)]
pub struct Values {
    /// The prompt's text.
    pub prompt: String,
    /// The file that holds it.
    pub prompt_file: PathBuf,
    /// Where the worker works.
    pub workspace: PathBuf,
    /// The attempt's folder.
    pub attempt_dir: PathBuf,
    /// The task's id.
    pub task: String,
    /// The attempt's number.
    pub attempt: u32,
    /// The model, if one is chosen.
    pub model: Option<String>,
    /// The effort, if one is chosen.
    pub effort: Option<Effort>,
    /// The session to continue.
    pub session: Option<String>,
    /// What the worker may change.
    pub permission: Option<Permission>,
    /// Forbid the network, where the worker can.
    pub no_network: bool,
    /// Forbid shell commands, where the worker can.
    pub no_shell: bool,
}

/// A command line, ready for a keeper.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invocation {
    /// Program and arguments.
    pub argv: Vec<String>,
    /// The file on standard input.
    pub stdin: Option<PathBuf>,
    /// Variables to set.
    pub env: BTreeMap<String, String>,
    /// Names of variables to hand on.
    pub pass_env: Vec<String>,
    /// Restrictions that the worker itself enforces.
    pub enforced: Vec<String>,
}

/// Makes the command line of a worker.
pub fn invocation(profile: &Profile, values: &Values) -> std::io::Result<Invocation> {
    let fill = filler(profile, values)?;
    let model = values.model.as_ref().or(profile.default_model.as_ref());

    let mut argv: Vec<String> = profile.wrap.iter().map(|a| fill(a)).collect();
    let script = profile.template == Template::Objective && values.prompt.starts_with("#!");
    if script && profile.command.first().is_some_and(|p| p == "sh") {
        // A script that names its own interpreter is run by it.
        argv.push(values.prompt_file.to_string_lossy().into_owned());
    } else {
        argv.extend(profile.command.iter().map(|a| fill(a)));
    }
    let mut enforced = Vec::new();
    let mut env: BTreeMap<String, String> = profile.env.iter().map(|(k, v)| (k.clone(), fill(v))).collect();
    if model.is_some() {
        argv.extend(profile.model.iter().map(|a| fill(a)));
    }
    if values.effort.is_some() {
        argv.extend(profile.effort.iter().map(|a| fill(a)));
    }
    if values.session.is_some() {
        argv.extend(profile.resume.iter().map(|a| fill(a)));
    }
    if let Some((permission, args)) = values.permission.and_then(|p| profile.permissions.get_key_value(&p)) {
        argv.extend(args.args.iter().map(|a| fill(a)));
        env.extend(args.env.iter().map(|(k, v)| (k.clone(), fill(v))));
        if args.enforced {
            enforced.push(permission.to_string());
        }
    }
    for (wanted, args, what) in [
        (values.no_network, &profile.no_network, "no_network"),
        (values.no_shell, &profile.no_shell, "no_shell"),
    ] {
        if wanted && !args.is_empty() {
            argv.extend(args.iter().map(|a| fill(a)));
            enforced.push(what.to_owned());
        }
    }
    let in_argv = profile.command.iter().any(|a| a.contains("{prompt}") || a.contains("{prompt_file}"));
    let stdin = (profile.prompt == PromptBy::Stdin && !in_argv).then(|| values.prompt_file.clone());
    Ok(Invocation { argv, stdin, env, pass_env: profile.pass_env.clone(), enforced })
}

/// Fills the values of an attempt into arguments that are not the worker's own command.
pub fn fill_all(args: &[String], profile: &Profile, values: &Values) -> std::io::Result<Vec<String>> {
    let fill = filler(profile, values)?;
    Ok(args.iter().map(|a| fill(a)).collect())
}

/// Returns what fills the values of an attempt into one argument.
fn filler<'a>(profile: &'a Profile, values: &'a Values) -> std::io::Result<impl Fn(&str) -> String + 'a> {
    let own = env::own_executable()?.to_string_lossy().into_owned();
    let effort =
        values.effort.map(|e| profile.efforts.get(&e).cloned().unwrap_or_else(|| e.as_str().to_owned()));
    let model = values.model.clone().or_else(|| profile.default_model.clone());
    Ok(move |text: &str| {
        fill(text, |name| match name {
            "prompt" => Some(values.prompt.clone()),
            "prompt_file" => Some(values.prompt_file.to_string_lossy().into_owned()),
            "workspace" => Some(values.workspace.to_string_lossy().into_owned()),
            "attempt_dir" => Some(values.attempt_dir.to_string_lossy().into_owned()),
            "task" => Some(values.task.clone()),
            "attempt" => Some(values.attempt.to_string()),
            "model" => Some(model.clone().unwrap_or_default()),
            "effort" => Some(effort.clone().unwrap_or_default()),
            "session" => Some(values.session.clone().unwrap_or_default()),
            "workspool" => Some(own.clone()),
            _ => None,
        })
    })
}

/// Puts values in for `{name}`s, once: what a value holds is never filled in again.
fn fill(text: &str, value: impl Fn(&str) -> Option<String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(open) = rest.find('{') {
        out.push_str(&rest[..open]);
        let tail = &rest[open + 1..];
        match tail.find('}').and_then(|close| value(&tail[..close]).map(|v| (close, v))) {
            Some((close, v)) => {
                out.push_str(&v);
                rest = &tail[close + 1..];
            }
            None => {
                out.push('{');
                rest = tail;
            }
        }
    }
    out.push_str(rest);
    out
}

/// Returns a `{name}` that stands for nothing, if an argument holds one.
pub fn unknown_placeholder(text: &str) -> Option<String> {
    let mut rest = text;
    while let Some(open) = rest.find('{') {
        let tail = &rest[open + 1..];
        let close = tail.find('}')?;
        let name = &tail[..close];
        let word = !name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
        if word && !PLACEHOLDERS.contains(&format!("{{{name}}}").as_str()) {
            return Some(format!("{{{name}}}"));
        }
        rest = tail;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(json: &str) -> Profile {
        serde_json::from_str(json).unwrap()
    }

    fn values(prompt: &str) -> Values {
        Values {
            prompt: prompt.into(),
            prompt_file: "/a/prompt.md".into(),
            workspace: "/w".into(),
            ..Values::default()
        }
    }

    #[test]
    fn the_prompt_is_one_argument_whatever_it_holds() {
        let p = profile(r#"{"name": "a", "command": ["agent", "run", "{prompt}"]}"#);
        let text = "$(rm -rf ~) `x` {workspace} \"quoted\"\n--flag";
        let made = invocation(&p, &values(text)).unwrap();
        assert_eq!(made.argv, ["agent", "run", text]);
        assert_eq!(made.stdin, None);
    }

    #[test]
    fn the_prompt_goes_by_stdin_unless_the_command_names_it() {
        let p = profile(r#"{"name": "a", "command": ["agent"]}"#);
        assert_eq!(invocation(&p, &values("x")).unwrap().stdin, Some("/a/prompt.md".into()));
    }

    #[test]
    fn a_model_is_added_only_when_chosen() {
        let p = profile(r#"{"name": "a", "command": ["agent"], "model": ["--model", "{model}"]}"#);
        assert_eq!(invocation(&p, &values("x")).unwrap().argv, ["agent"]);
        let chosen = Values { model: Some("m".into()), ..values("x") };
        assert_eq!(invocation(&p, &chosen).unwrap().argv, ["agent", "--model", "m"]);
    }

    #[test]
    fn a_wrap_goes_in_front() {
        let p = profile(
            r#"{"name": "a", "command": ["agent"], "wrap": ["bwrap", "--bind", "{workspace}", "/w", "--"]}"#,
        );
        assert_eq!(
            invocation(&p, &values("x")).unwrap().argv,
            ["bwrap", "--bind", "/w", "/w", "--", "agent"]
        );
    }

    #[test]
    fn unknown_placeholders_are_found_and_json_is_left_alone() {
        assert_eq!(unknown_placeholder("--x={promt}"), Some("{promt}".into()));
        assert_eq!(unknown_placeholder("{\"a\": {\"b\": 1}}"), None);
        assert_eq!(unknown_placeholder("{model}"), None);
    }
}
