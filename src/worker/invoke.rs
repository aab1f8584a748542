//! From a profile and an attempt to a command line: every value in its own argument, nothing through a shell.

use super::env;
use super::fill::filler;
use crate::model::hex;
use crate::model::profile::{Forbidden, PromptBy, Switch, Template};
use crate::model::{Effort, Permission, Profile};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The most bytes that one argument may have: Linux refuses longer ones (MAX_ARG_STRLEN, its end included).
pub const LONGEST_ARGUMENT: usize = 128 * 1024 - 1;

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
    /// The worker's own folder, which later attempts of the task find again.
    pub private_dir: PathBuf,
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
    /// The name for a new session, where the worker can be given one: see [`session_name`].
    pub new_session: Option<String>,
    /// What the worker may change.
    pub permission: Option<Permission>,
    /// Forbid the network, where the worker can.
    pub no_network: bool,
    /// Forbid shell commands, where the worker can.
    pub no_shell: bool,
    /// Most turns, where the worker can limit them.
    pub turns: Option<u64>,
    /// Most US dollars, where the worker can limit them.
    pub cost_usd: Option<f64>,
    /// What the profile's probe printed.
    pub probe: Option<String>,
}

impl Values {
    /// Where the profile's files are written.
    pub fn files_dir(&self) -> PathBuf {
        self.attempt_dir.join("files")
    }
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

/// Why a worker cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum InvokeError {
    /// A variable that the profile requires is not set.
    #[error("{0} is not set in the runner's environment, and this worker does not start without it")]
    NoVariable(String),
    /// The repository has what would steer the program.
    #[error(
        "the repository has {0}, which the worker's program would obey at its start\n  hint: to allow it, link a worker that extends this one with \"refuse_files\": []"
    )]
    Steered(String),
    /// The prompt goes by an argument and does not fit into one.
    #[error(
        "the prompt has {0} bytes, and this worker takes it as one argument, which holds {LONGEST_ARGUMENT} at most"
    )]
    TooLong(usize),
    /// This program's own executable is not to be found.
    #[error("cannot find this program: {0}")]
    Own(#[from] std::io::Error),
}

/// Makes the command line of a worker.
pub fn invocation(profile: &Profile, values: &Values) -> Result<Invocation, InvokeError> {
    if let Some(missing) = missing_variable(profile) {
        return Err(InvokeError::NoVariable(missing.to_owned()));
    }
    let fill = filler(profile, values)?;
    let all = |args: &[String]| args.iter().map(|a| fill(a)).collect::<Vec<_>>();
    let set = |vars: &BTreeMap<String, String>| -> BTreeMap<String, String> {
        vars.iter().map(|(k, v)| (k.clone(), fill(v))).collect()
    };

    let mut argv = all(&profile.wrap);
    let script = profile.template == Template::Objective && values.prompt.starts_with("#!");
    if script && profile.command.first().is_some_and(|p| p == "sh") {
        // A script that names its own interpreter is run by it.
        argv.push(values.prompt_file.to_string_lossy().into_owned());
    } else {
        argv.extend(all(&profile.command));
    }
    let mut vars = set(&profile.env);
    if values.model.is_some() || profile.default_model.is_some() {
        argv.extend(all(&profile.model));
    }
    if values.effort.is_some() {
        argv.extend(all(&profile.effort));
    }
    let mut enforced = Vec::new();
    let mut lifted: &[Forbidden] = &[];
    if let Some((permission, args)) = values.permission.and_then(|p| permission(profile, p)) {
        argv.extend(all(&args.args));
        vars.extend(set(&args.env));
        if args.enforced {
            enforced.push(permission.to_string());
        }
        lifted = &args.lifts;
    }
    for (wanted, switch, what) in [
        (values.no_network, &profile.no_network, Forbidden::NoNetwork),
        (values.no_shell, &profile.no_shell, Forbidden::NoShell),
    ] {
        if let Some(Switch { args, env: more }) = switch.as_ref().filter(|_| wanted) {
            argv.extend(all(args));
            vars.extend(set(more));
            if !lifted.contains(&what) {
                enforced.push(what.as_str().to_owned());
            }
        }
    }
    if values.turns.is_some() {
        argv.extend(all(&profile.max_turns));
    }
    if values.cost_usd.is_some() {
        argv.extend(all(&profile.max_cost));
    }
    // Last, since a program may continue a session by a verb of its own that knows fewer flags.
    if values.session.is_some() {
        argv.extend(all(&profile.resume));
    } else if values.new_session.is_some() {
        argv.extend(all(&profile.session));
    }
    argv.extend(all(&profile.tail));
    if let Some(words) = own_words(profile, values, &argv) {
        argv = words;
    }
    if let Some(long) = argv.iter().map(String::len).find(|n| *n > LONGEST_ARGUMENT) {
        return Err(InvokeError::TooLong(long));
    }
    let passed = |name: &String| {
        profile
            .pass_env
            .iter()
            .map(|e| env::renamed(e))
            .any(|(new, old)| new == name && std::env::var_os(old).is_some())
    };
    vars.retain(|name, _| !passed(name));
    let stdin =
        (profile.prompt == PromptBy::Stdin && !names_prompt(profile)).then(|| values.prompt_file.clone());
    Ok(Invocation { argv, stdin, env: vars, pass_env: profile.pass_env.clone(), enforced })
}

/// The words of an objective that is a command, where `workspool command` would do nothing but become it: it is
/// started itself then, a process less. What is no command, that program says.
fn own_words(profile: &Profile, values: &Values, argv: &[String]) -> Option<Vec<String>> {
    // With nothing before it or after it.
    let becomes = profile.command == super::command::ARGV && argv.len() == super::command::ARGV.len();
    let words = becomes.then(|| super::command::words(&values.prompt).ok())??;
    (!words.is_empty()).then_some(words)
}

/// Whether an argument stands for the prompt, so that standard input has to be empty.
pub fn names_prompt(profile: &Profile) -> bool {
    let named = |arg: &String| arg.contains("{prompt}") || arg.contains("{prompt_file}");
    profile.command.iter().chain(&profile.tail).any(named)
}

/// What the profile says of a permission. Of `custom` programs know nothing: to them it is
/// `workspace_write`, and we look at the paths afterwards.
fn permission(
    profile: &Profile,
    asked: Permission,
) -> Option<(Permission, &crate::model::profile::PermissionArgs)> {
    let said = |p: Permission| profile.permissions.get(&p).map(|args| (p, args));
    said(asked).or_else(|| match asked {
        Permission::Custom => said(Permission::WorkspaceWrite),
        Permission::Full | Permission::WorkspaceWrite | Permission::ReadOnly => None,
    })
}

/// What of the profile's `refuse_files` lies in the folder `cwd` or above it, inside the workspace.
pub fn steering(profile: &Profile, workspace: &Path, cwd: &Path) -> Option<String> {
    let folders = cwd.ancestors().take_while(|folder| folder.starts_with(workspace));
    for folder in folders {
        for name in &profile.refuse_files {
            let path = folder.join(name);
            if path.symlink_metadata().is_ok() {
                let shown = path.strip_prefix(workspace).unwrap_or(&path);
                return Some(shown.display().to_string());
            }
        }
    }
    None
}

/// A variable that the profile requires and the environment does not have.
pub fn missing_variable(profile: &Profile) -> Option<&str> {
    let unset = |name: &&String| std::env::var_os(name.as_str()).is_none_or(|v| v.is_empty());
    profile.require_env.iter().find(unset).map(String::as_str)
}

/// The name of the session that a step of an attempt begins: the same each time it is asked for, and a UUID
/// to whoever reads it.
pub fn session_name(spool: &str, task: &str, attempt: u32, step: &str) -> String {
    let hash = Sha256::digest(format!("workspool session\0{spool}\0{task}\0{attempt}\0{step}"));
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hash[..16]);
    // Version 4, variant 1: programs check these bits.
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let (a, b, c, d, e) = (&bytes[..4], &bytes[4..6], &bytes[6..8], &bytes[8..10], &bytes[10..]);
    format!("{}-{}-{}-{}-{}", hex(a), hex(b), hex(c), hex(d), hex(e))
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
    fn an_objective_that_is_a_command_is_started_itself() {
        let p = profile(r#"{"name": "a", "command": ["{workspool}", "command", "{prompt_file}"]}"#);
        assert_eq!(invocation(&p, &values("[\"touch\", \"x y\"]")).unwrap().argv, ["touch", "x y"]);
        // What is none, or what runs elsewhere, is for the program that says so, or runs there.
        let by_program = |p: &Profile, prompt| invocation(p, &values(prompt)).unwrap().argv;
        for broken in ["touch 'x", " ", "[1]"] {
            assert_eq!(by_program(&p, broken)[1..], ["command", "/a/prompt.md"], "{broken}");
        }
        let boxed = Profile { wrap: vec!["box".into()], ..p };
        assert_eq!(by_program(&boxed, "touch x")[2..], ["command", "/a/prompt.md"]);
    }

    #[test]
    fn the_prompt_goes_by_stdin_unless_the_command_names_it() {
        let p = profile(r#"{"name": "a", "command": ["agent"]}"#);
        assert_eq!(invocation(&p, &values("x")).unwrap().stdin, Some("/a/prompt.md".into()));
    }

    #[test]
    fn a_variable_of_the_runner_goes_before_the_profiles_own_value() {
        let p = profile(
            r#"{"name": "a", "command": ["agent"], "pass_env": ["A_URL=SURELY_UNSET_URL", "B=PATH"],
                "env": {"A_URL": "http://default", "B": "default"}}"#,
        );
        let made = invocation(&p, &values("x")).unwrap();
        assert_eq!(made.env.into_iter().collect::<Vec<_>>(), [("A_URL".into(), "http://default".into())]);
    }

    #[test]
    fn what_steers_the_program_is_found_up_to_the_workspace() {
        let dir = tempfile::tempdir().unwrap();
        let workspace = dir.path().join("w");
        std::fs::create_dir_all(workspace.join("sub/deep")).unwrap();
        std::fs::create_dir(dir.path().join(".agent")).unwrap();
        let p = profile(r#"{"name": "a", "command": ["agent"], "refuse_files": [".agent", ".env"]}"#);
        let found = |cwd: &str| steering(&p, &workspace, &workspace.join(cwd));
        assert_eq!(found("sub/deep"), None, "above the workspace is not the repository's");
        std::os::unix::fs::symlink("nowhere", workspace.join("sub/.env")).unwrap();
        assert_eq!(found("sub/deep").as_deref(), Some("sub/.env"));
        assert_eq!(found(""), None);
    }

    #[test]
    fn what_must_stand_last_comes_after_all_that_is_added() {
        let p = profile(
            r#"{"name": "a", "command": ["agent"], "model": ["--model", "{model}"], "tail": ["--", "{prompt}"],
                "resume": ["--resume", "{session}"]}"#,
        );
        let chosen = Values { model: Some("m".into()), session: Some("s".into()), ..values("-x") };
        let made = invocation(&p, &chosen).unwrap();
        assert_eq!(made.argv, ["agent", "--model", "m", "--resume", "s", "--", "-x"]);
        assert_eq!(made.stdin, None);
    }

    #[test]
    fn a_session_is_continued_last_or_else_named() {
        let p = profile(
            r#"{"name": "a", "command": ["agent"], "session": ["--id", "{session}"],
                "resume": ["resume", "{session}", "-"], "max_turns": ["--turns", "{turns}"],
                "max_cost": ["--cost", "{cost_usd}"]}"#,
        );
        let new = Values { new_session: Some("n".into()), ..values("x") };
        assert_eq!(invocation(&p, &new).unwrap().argv, ["agent", "--id", "n"]);
        let old = Values { session: Some("o".into()), turns: Some(7), cost_usd: Some(0.5), ..new };
        assert_eq!(
            invocation(&p, &old).unwrap().argv,
            ["agent", "--turns", "7", "--cost", "0.5", "resume", "o", "-"]
        );
        let name = session_name("s", "t", 1, "work.1");
        assert_eq!(name, session_name("s", "t", 1, "work.1"));
        assert_ne!(name, session_name("s", "t", 1, "work.2"));
        assert!(name.len() == 36 && name.as_bytes()[14] == b'4', "{name}");
    }

    #[test]
    fn custom_is_workspace_write_to_a_program_and_lifted_restrictions_are_not_claimed() {
        let p = profile(
            r#"{"name": "a", "command": ["agent"],
                "permissions": {"workspace_write": {"args": ["-w"], "enforced": true},
                                "full": {"args": ["-f"], "lifts": ["no_network"]}},
                "no_network": {"args": ["--offline"], "env": {"OFFLINE": "1"}}, "no_shell": {"args": ["--no-shell"]}}"#,
        );
        let asked = |permission| {
            let values =
                Values { permission: Some(permission), no_network: true, no_shell: true, ..values("x") };
            invocation(&p, &values).unwrap()
        };
        let custom = asked(Permission::Custom);
        assert_eq!(custom.argv, ["agent", "-w", "--offline", "--no-shell"]);
        assert_eq!(custom.enforced, ["workspace_write", "no_network", "no_shell"]);
        assert_eq!(custom.env["OFFLINE"], "1");
        assert_eq!(asked(Permission::Full).enforced, ["no_shell"]);
        assert_eq!(asked(Permission::ReadOnly).argv, ["agent", "--offline", "--no-shell"]);
    }

    #[test]
    fn what_cannot_be_started_is_said_before() {
        let p =
            profile(r#"{"name": "a", "command": ["agent", "{prompt}"], "require_env": ["SURELY_UNSET"]}"#);
        assert!(matches!(invocation(&p, &values("x")), Err(InvokeError::NoVariable(_))));
        let p = profile(r#"{"name": "a", "command": ["agent", "{prompt}"]}"#);
        let long = "x".repeat(LONGEST_ARGUMENT + 1);
        assert!(matches!(invocation(&p, &values(&long)), Err(InvokeError::TooLong(_))));
        invocation(&p, &values(&long[1..])).unwrap();
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
}
