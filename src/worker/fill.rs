//! The values of an attempt, filled into the texts of a profile.

use super::env;
use super::invoke::Values;
use crate::model::Profile;
use std::path::Path;

/// What stands for values of an attempt in a profile's arguments, variables and files.
pub const PLACEHOLDERS: &[&str] = &[
    "{prompt}",
    "{prompt_file}",
    "{workspace}",
    "{attempt_dir}",
    "{files_dir}",
    "{private_dir}",
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

/// Fills the values of an attempt into arguments that are not the worker's own command.
pub fn fill_all(args: &[String], profile: &Profile, values: &Values) -> std::io::Result<Vec<String>> {
    let fill = filler(profile, values)?;
    Ok(args.iter().map(|a| fill(a)).collect())
}

/// Returns what fills the values of an attempt into one argument.
pub(super) fn filler<'a>(
    profile: &'a Profile,
    values: &'a Values,
) -> std::io::Result<impl Fn(&str) -> String + 'a> {
    let own = env::own_executable()?.to_string_lossy().into_owned();
    let effort =
        values.effort.map(|e| profile.efforts.get(&e).cloned().unwrap_or_else(|| e.as_str().to_owned()));
    let model = values.model.clone().or_else(|| profile.default_model.clone());
    let session = values.session.clone().or_else(|| values.new_session.clone());
    let path = |path: &Path| Some(path.to_string_lossy().into_owned());
    let value = move |name: &str| match name {
        "prompt" => Some(values.prompt.clone()),
        "prompt_file" => path(&values.prompt_file),
        "workspace" => path(&values.workspace),
        "attempt_dir" => path(&values.attempt_dir),
        "files_dir" => path(&values.files_dir()),
        "private_dir" => path(&values.private_dir),
        "task" => Some(values.task.clone()),
        "attempt" => Some(values.attempt.to_string()),
        "model" => Some(model.clone().unwrap_or_default()),
        "effort" => Some(effort.clone().unwrap_or_default()),
        "session" => Some(session.clone().unwrap_or_default()),
        "turns" => Some(values.turns.map(|n| n.to_string()).unwrap_or_default()),
        "cost_usd" => Some(values.cost_usd.map(|n| n.to_string()).unwrap_or_default()),
        "probe" => Some(values.probe.clone().unwrap_or_default()),
        "workspool" => Some(own.clone()),
        _ => None,
    };
    Ok(move |text: &str| {
        fill(text, |name| match name.strip_suffix(":json") {
            Some(name) => value(name).map(|v| serde_json::Value::String(v).to_string()),
            None => value(name),
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
        let name = tail[..close].strip_suffix(":json").unwrap_or(&tail[..close]);
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

    #[test]
    fn unknown_placeholders_are_found_and_json_is_left_alone() {
        assert_eq!(unknown_placeholder("--x={promt}"), Some("{promt}".into()));
        assert_eq!(unknown_placeholder("{\"a\": {\"b\": 1}}"), None);
        assert_eq!(unknown_placeholder("{model}"), None);
    }
}
