//! What must hold for a profile besides its form: what it names is there, and its texts can be filled.

use super::AUTO;
use crate::model::profile::Switch;
use crate::model::{Command, Problem, ProblemKind, Profile, VERSION, input};
use crate::worker::{PARSERS, env, fill, parser, private};

/// What must hold for a profile besides its form.
pub fn check(profile: &Profile) -> Result<(), Problem> {
    let invalid = |field: &str, message: String| Err(Problem::new(ProblemKind::Invalid, message).at(field));
    if profile.version.is_some_and(|v| v != VERSION) {
        return invalid("version", format!("this program reads version {VERSION}"));
    }
    if profile.name.as_str() == AUTO {
        return invalid("name", format!("{AUTO} stands for the first worker that is available"));
    }
    if profile.command.first().is_none_or(|p| p.is_empty()) {
        return invalid("command", "the command is empty".into());
    }
    if parser(&profile.output).is_none() {
        let near = input::nearest(&profile.output, PARSERS);
        let p = Problem::new(ProblemKind::Invalid, format!("there is no output format {:?}", profile.output))
            .at("output");
        return Err(p.hint(match near {
            Some(near) => format!("did you mean {near:?}?"),
            None => format!("expected one of {}", PARSERS.join(", ")),
        }));
    }
    for (field, text) in texts(profile) {
        if let Some(unknown) = fill::unknown_placeholder(text) {
            let known = fill::PLACEHOLDERS.join(", ");
            return invalid(&field, format!("{unknown} stands for nothing: expected one of {known}"));
        }
    }
    let without_variables = |value: &str| !value.is_empty() && !value.contains('=');
    for (k, name) in profile.pass_env.iter().enumerate() {
        let (new, old) = env::renamed(name);
        if !without_variables(new) || !without_variables(old) {
            return invalid(&format!("pass_env[{k}]"), format!("{name:?}: expected NAME, or NEW=OLD"));
        }
    }
    for name in profile.files.keys() {
        if !private::is_plain(name) {
            return invalid("files", format!("{name:?}: expected a relative path without .."));
        }
    }
    if let Some(name) = profile.refuse_files.iter().find(|name| !private::is_plain(name)) {
        return invalid("refuse_files", format!("{name:?}: expected a relative path without .."));
    }
    let unplaced = |p: &&String| !["/", "~/", "{attempt_dir}/"].iter().any(|start| p.starts_with(start));
    if let Some(path) = profile.writable.iter().find(unplaced) {
        return invalid(
            "writable",
            format!("{path:?}: expected a path that begins with /, ~/ or {{attempt_dir}}/"),
        );
    }
    for (variable, dir) in &profile.private_dirs {
        if !private::is_plain(variable) || variable.contains(['/', '=']) {
            return invalid("private_dirs", format!("{variable:?} is not the name of a variable"));
        }
        if let Some(name) = dir.link.iter().find(|name| !private::is_plain(name)) {
            return invalid("private_dirs", format!("{name:?}: expected a relative path without .."));
        }
    }
    if let Some(Err(message)) = profile.probe.as_ref().map(Command::check) {
        return invalid("probe", message);
    }
    for (k, stop) in profile.stop_patterns.iter().enumerate() {
        if let Err(e) = regex::bytes::Regex::new(&stop.pattern) {
            return invalid(&format!("stop_patterns[{k}].pattern"), format!("not a regular expression: {e}"));
        }
    }
    for code in profile.exit_codes.keys() {
        if code.parse::<u8>().is_err() {
            return invalid("exit_codes", format!("{code:?}: expected an exit code, 0 to 255"));
        }
    }
    if profile.concurrency == Some(0) {
        return invalid("concurrency", "0 would run nothing: expected at least 1".into());
    }
    if profile.account.as_ref().is_some_and(|account| account.trim().is_empty()) {
        return invalid("account", "the name is empty".into());
    }
    Ok(())
}

/// All texts of a profile in which values are filled, with the names of their fields.
fn texts(profile: &Profile) -> Vec<(String, &str)> {
    let mut found = Vec::new();
    let p = profile;
    let stop = p.stop.as_deref().unwrap_or_default();
    let mut lists: Vec<(String, &[String])> = [
        ("command", &p.command[..]),
        ("wrap", &p.wrap),
        ("model", &p.model),
        ("effort", &p.effort),
        ("resume", &p.resume),
        ("session", &p.session),
        ("max_turns", &p.max_turns),
        ("max_cost", &p.max_cost),
        ("stop", stop),
        ("tail", &p.tail),
    ]
    .map(|(field, args)| (field.to_owned(), args))
    .into();
    if let Some(Command::Argv(args)) = &p.probe {
        lists.push(("probe".to_owned(), args));
    }
    let mut maps = vec![("env".to_owned(), &p.env), ("files".to_owned(), &p.files)];
    for (permission, args) in &p.permissions {
        lists.push((format!("permissions.{permission}.args"), &args.args));
        maps.push((format!("permissions.{permission}.env"), &args.env));
    }
    for (field, switch) in [("no_network", &p.no_network), ("no_shell", &p.no_shell)] {
        if let Some(Switch { args, env }) = switch {
            lists.push((format!("{field}.args"), args));
            maps.push((format!("{field}.env"), env));
        }
    }
    for (field, args) in lists {
        found.extend(args.iter().enumerate().map(|(k, arg)| (format!("{field}[{k}]"), arg.as_str())));
    }
    for (field, map) in maps {
        found.extend(map.iter().map(|(k, text)| (format!("{field}.{k}"), text.as_str())));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn a_profile_that_asks_for_what_is_not_there_is_refused() {
        let refused = |json: Value| {
            let p = check(&serde_json::from_value(json).unwrap()).unwrap_err();
            (p.kind, p.field.unwrap_or_default())
        };
        let with = |key: &str, value: Value| {
            let mut profile = serde_json::json!({ "name": "a", "command": ["agent"] });
            profile[key] = value;
            refused(profile)
        };
        use ProblemKind::Invalid;
        use serde_json::json;
        assert_eq!(with("name", json!("auto")), (Invalid, "name".into()));
        assert_eq!(with("account", json!(" ")), (Invalid, "account".into()));
        assert_eq!(with("probe", json!(["ask", "{modle}"])), (Invalid, "probe[1]".into()));
        assert_eq!(with("tail", json!(["{promt}"])), (Invalid, "tail[0]".into()));
        assert_eq!(with("effort", json!(["--effort={efort}"])), (Invalid, "effort[0]".into()));
        assert_eq!(with("env", json!({ "A": "{nothing}" })), (Invalid, "env.A".into()));
        assert_eq!(with("files", json!({ "../x": "" })), (Invalid, "files".into()));
        assert_eq!(with("pass_env", json!(["A", "B=C", "=D"])), (Invalid, "pass_env[2]".into()));
        assert_eq!(
            with("private_dirs", json!({ "A": { "link": ["/x"] } })),
            (Invalid, "private_dirs".into())
        );
        let pattern = json!([{ "pattern": "(", "class": "auth" }]);
        assert_eq!(with("stop_patterns", pattern), (Invalid, "stop_patterns[0].pattern".into()));
        assert_eq!(with("exit_codes", json!({ "300": "auth" })), (Invalid, "exit_codes".into()));
    }
}
