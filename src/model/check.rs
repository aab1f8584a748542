//! What a well-formed task must also fulfil: ranges, fields that fit together, owner's ceilings, and what
//! this version can do. No input or output: whether a repository is there is found out elsewhere.

use super::command::Command;
use super::config::Ceilings;
use super::rejection::{Problem, ProblemKind};
use super::task::TaskSpec;
use super::words::{GateKind, Mode, Permission, WorkspaceKind};
use std::path::{Component, Path};

/// Longest objective and context, in bytes.
const MAX_TEXT: usize = 4 * 1024 * 1024;

/// Returns everything that is wrong with a task.
pub fn check(spec: &TaskSpec) -> Vec<Problem> {
    let mut found = Vec::new();
    let mut invalid =
        |field: &str, message: String| found.push(Problem::new(ProblemKind::Invalid, message).at(field));

    if spec.objective.trim().is_empty() {
        invalid("objective", "the objective is empty: say what is to be done".into());
    }
    for (field, text) in [("objective", Some(&spec.objective)), ("context", spec.context.as_ref())] {
        if text.is_some_and(|t| t.len() > MAX_TEXT) {
            invalid(
                field,
                format!("longer than {MAX_TEXT} bytes: put it into a file of the repository and name that"),
            );
        }
        if text.is_some_and(|t| t.contains('\0')) {
            invalid(field, "holds a NUL character".into());
        }
    }
    for (field, text) in
        [("title", &spec.title), ("name", &spec.name), ("model", &spec.model), ("base", &spec.base)]
    {
        if text.as_ref().is_some_and(|t| t.trim().is_empty() || t.chars().any(char::is_control)) {
            invalid(field, "empty, or holds control characters".into());
        }
    }
    if spec.model.as_ref().is_some_and(|m| m.starts_with('-')) {
        invalid("model", "begins with a dash: the worker would take it for an option".into());
    }
    if spec.name.as_ref().is_some_and(|n| n.len() == 26 && n.parse::<super::TaskId>().is_ok()) {
        invalid("name", "looks like a task id".into());
    }
    if let Some(p) = spec.priority.filter(|p| *p > 100) {
        invalid("priority", format!("{p} is out of range: expected 0 to 100"));
    }
    if let Some(n) = spec.retries.filter(|n| *n > 100) {
        invalid("retries", format!("{n} is out of range: expected 0 to 100"));
    }
    if let Some(n) = spec.repair.filter(|n| *n > 20) {
        invalid("repair", format!("{n} is out of range: expected 0 to 20"));
    }
    for (field, seconds) in [
        ("timeout", spec.timeout),
        ("silence_timeout", spec.silence_timeout),
        ("start_timeout", spec.start_timeout),
        ("total_timeout", spec.total_timeout),
        ("verify_timeout", spec.verify_timeout),
    ] {
        if seconds.is_some_and(|s| s == 0 || s > 366 * 86_400) {
            invalid(field, "out of range: expected 1 second to a year".into());
        }
    }
    if spec.budget.cost_usd.is_some_and(|c| !c.is_finite() || c < 0.0) {
        invalid("budget.cost_usd", "expected a positive amount".into());
    }
    for (field, commands) in [("verify", &spec.verify), ("setup", &spec.setup)] {
        for (k, command) in commands.iter().enumerate() {
            if let Err(message) = Command::check(command) {
                invalid(&format!("{field}[{k}]"), message);
            }
        }
    }
    if let Some(path) = &spec.repository {
        if !path.is_absolute() {
            invalid("repository", format!("{} is not an absolute path", path.display()));
        }
    } else {
        if spec.base.is_some() {
            invalid("base", "there is no repository that it could be a commit of".into());
        }
        if !spec.copy.is_empty() {
            invalid("copy", "there is no repository to copy from".into());
        }
        match spec.workspace() {
            WorkspaceKind::Temporary => {}
            kind => invalid("workspace", format!("a {kind} needs a repository")),
        }
    }
    let kind = spec.workspace();
    if spec.gate == Some(GateKind::Clean)
        && matches!(kind, WorkspaceKind::Directory | WorkspaceKind::Temporary)
    {
        invalid("gate", "a clean tree needs a worktree, a clone or a copy as workspace".into());
    }
    if spec.base.is_some() && matches!(kind, WorkspaceKind::Directory | WorkspaceKind::Copy) {
        invalid("base", format!("a {kind} is of what lies there: it has no base commit to choose"));
    }
    if !spec.copy.is_empty() && matches!(kind, WorkspaceKind::Directory | WorkspaceKind::Copy) {
        invalid("copy", format!("a {kind} has all files of the folder already"));
    }
    if let Some(subdir) = &spec.subdir
        && !is_inside(subdir)
    {
        invalid("subdir", format!("{} leaves the repository", subdir.display()));
    }
    for (field, paths) in
        [("deliverables", &spec.deliverables), ("artifacts", &spec.artifacts), ("copy", &spec.copy)]
    {
        for (k, path) in paths.iter().enumerate() {
            if !is_inside(Path::new(path)) {
                invalid(
                    &format!("{field}[{k}]"),
                    format!("{path:?} leaves the workspace: expected a relative path without .."),
                );
            }
        }
    }
    for (field, patterns) in [
        ("allow", &spec.allow),
        ("forbid", &spec.forbid),
        ("copy", &spec.copy),
        ("artifacts", &spec.artifacts),
    ] {
        for (k, pattern) in patterns.iter().enumerate() {
            if let Err(e) = globset::Glob::new(pattern) {
                invalid(&format!("{field}[{k}]"), format!("not a pattern: {e}"));
            }
        }
    }
    match spec.permission() {
        Permission::Custom if spec.allow.is_empty() && spec.forbid.is_empty() => {
            invalid("permission", "custom says nothing without `allow` or `forbid`".into());
        }
        Permission::Custom => {}
        other if !spec.allow.is_empty() => {
            invalid("allow", format!("`allow` goes with permission custom, not {other}"));
        }
        _ => {}
    }
    if spec.deliverables_required && spec.deliverables.is_empty() {
        invalid("deliverables_required", "no deliverables are named".into());
    }
    if let (Some(from), Some(to)) = (spec.not_before, spec.expires)
        && to <= from
    {
        invalid("expires", "lies before `not_before`: it could never run".into());
    }
    for (k, name) in spec.env.iter().enumerate() {
        if !is_variable(name) {
            invalid(
                &format!("env[{k}]"),
                format!(
                    "{name:?} is not the name of an environment variable (names only: values stay with the runner)"
                ),
            );
        }
    }
    if spec.idempotency_key.as_ref().is_some_and(|k| k.is_empty() || k.len() > 512) {
        invalid("idempotency_key", "expected 1 to 512 bytes".into());
    }
    found.extend(not_yet(spec));
    found
}

/// What the format has and this version cannot do.
fn not_yet(spec: &TaskSpec) -> Vec<Problem> {
    let mut found = Vec::new();
    let mut no = |field: &str, what: &str, instead: &str| {
        found.push(
            Problem::new(ProblemKind::NotYet, format!("{what} cannot be done yet by this version"))
                .at(field)
                .hint(instead),
        );
    };
    if spec.mode.is_some_and(|m| m != Mode::Code) {
        no(
            "mode",
            "a mode other than code",
            "leave it out, and say in the objective what kind of work it is",
        );
    }
    if spec.provider.is_some() {
        no("provider", "choosing a provider", "leave it out");
    }
    if spec.cron.is_some() {
        no("cron", "a recurring task", "submit it from a timer");
    }
    found
}

/// Returns what of a task is above the owner's ceilings.
pub fn check_ceilings(spec: &TaskSpec, ceilings: &Ceilings) -> Vec<Problem> {
    let mut found = Vec::new();
    let mut above = |field: &str, message: String| {
        found.push(
            Problem::new(ProblemKind::Ceiling, message)
                .at(field)
                .hint("the owner's [ceilings] in config.toml decide this"),
        );
    };
    if let Some(most) = ceilings.permission
        && breadth(spec.permission()) > breadth(most)
    {
        above("permission", format!("{} is wider than the owner allows ({most})", spec.permission()));
    }
    let mut number = |field: &str, asked: Option<u64>, most: Option<u64>| {
        if let (Some(asked), Some(most)) = (asked, most)
            && asked > most
        {
            above(field, format!("{asked} is more than the owner allows ({most})"));
        }
    };
    number("timeout", spec.timeout, ceilings.timeout);
    number("retries", spec.retries.map(u64::from), ceilings.retries.map(u64::from));
    number("budget.seconds", spec.budget.seconds, ceilings.budget.seconds);
    number("budget.tokens", spec.budget.tokens, ceilings.budget.tokens);
    number("budget.tool_calls", spec.budget.tool_calls, ceilings.budget.tool_calls);
    number("budget.turns", spec.budget.turns, ceilings.budget.turns);
    if let (Some(asked), Some(most)) = (spec.budget.cost_usd, ceilings.budget.cost_usd)
        && asked > most
    {
        above("budget.cost_usd", format!("{asked} is more than the owner allows ({most})"));
    }
    found
}

fn breadth(permission: Permission) -> u8 {
    match permission {
        Permission::ReadOnly => 0,
        Permission::Custom => 1,
        Permission::WorkspaceWrite => 2,
        Permission::Full => 3,
    }
}

/// Whether a path stays inside the folder that it is relative to.
pub fn is_inside(path: &Path) -> bool {
    !path.as_os_str().is_empty()
        && path.components().all(|c| matches!(c, Component::Normal(_) | Component::CurDir))
}

/// Whether a name can be that of an environment variable.
pub fn is_variable(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(json: &str) -> Vec<(ProblemKind, String)> {
        let spec: TaskSpec = serde_json::from_str(json).unwrap();
        check(&spec).into_iter().map(|p| (p.kind, p.field.unwrap_or_default())).collect()
    }

    fn invalid(field: &str) -> Vec<(ProblemKind, String)> {
        vec![(ProblemKind::Invalid, field.to_owned())]
    }

    #[test]
    fn a_plain_task_is_well() {
        assert_eq!(fields(r#"{"objective": "x"}"#), []);
        assert_eq!(
            fields(r#"{"objective": "x", "repository": "/r", "subdir": "a/b", "deliverables": ["out.md"]}"#),
            []
        );
    }

    #[test]
    fn ranges_are_enforced() {
        assert_eq!(fields(r#"{"objective": " "}"#), invalid("objective"));
        assert_eq!(fields(r#"{"objective": "x", "priority": 101}"#), invalid("priority"));
        assert_eq!(fields(r#"{"objective": "x", "timeout": 0}"#), invalid("timeout"));
        assert_eq!(fields(r#"{"objective": "x", "verify": ["  "]}"#), invalid("verify[0]"));
        assert_eq!(fields(r#"{"objective": "x", "env": ["A=b"]}"#), invalid("env[0]"));
        assert_eq!(fields(r#"{"objective": "x", "model": "--yolo"}"#), invalid("model"));
    }

    #[test]
    fn paths_stay_inside() {
        for path in ["../x", "/etc/passwd", "a/../../b", ""] {
            let json = format!(r#"{{"objective": "x", "repository": "/r", "subdir": {path:?}}}"#);
            assert_eq!(fields(&json), invalid("subdir"), "{path}");
        }
        assert_eq!(fields(r#"{"objective": "x", "deliverables": ["../x"]}"#), invalid("deliverables[0]"));
        assert_eq!(fields(r#"{"objective": "x", "repository": "r"}"#), invalid("repository"));
    }

    #[test]
    fn fields_must_fit_together() {
        assert_eq!(fields(r#"{"objective": "x", "base": "main"}"#), invalid("base"));
        assert_eq!(fields(r#"{"objective": "x", "workspace": "worktree"}"#), invalid("workspace"));
        assert_eq!(fields(r#"{"objective": "x", "permission": "custom"}"#), invalid("permission"));
        assert_eq!(fields(r#"{"objective": "x", "allow": ["src/**"]}"#), invalid("allow"));
    }

    #[test]
    fn what_cannot_be_done_yet_is_refused_as_such() {
        assert_eq!(
            fields(r#"{"objective": "x", "cron": "0 3 * * *"}"#),
            [(ProblemKind::NotYet, "cron".to_owned())]
        );
    }

    #[test]
    fn nothing_exceeds_the_owners_ceilings() {
        let ceilings = Ceilings {
            permission: Some(Permission::WorkspaceWrite),
            timeout: Some(60),
            ..Ceilings::default()
        };
        let spec: TaskSpec =
            serde_json::from_str(r#"{"objective": "x", "permission": "full", "timeout": 61}"#).unwrap();
        let found = check_ceilings(&spec, &ceilings);
        assert_eq!(
            found.iter().filter_map(|p| p.field.as_deref()).collect::<Vec<_>>(),
            ["permission", "timeout"]
        );
    }
}
