//! The command lines of the built-in workers. `commands.txt` is what a person compared with how the programs
//! really behave; `UPDATE_COMMANDS=1` writes it anew.

use std::fmt::Write as _;
use std::path::Path;
use workspool::model::{Effort, Permission};
use workspool::spool::Spool;
use workspool::worker::invoke::{Invocation, Values, invocation};

const WORKERS: &[&str] =
    &["aider", "claude", "codex", "copilot", "dsh", "gemini", "opencode", "qwen", "zcode-glm"];

fn shown(made: &Invocation) -> String {
    let quoted = |arg: &String| {
        let plain = !arg.is_empty() && !arg.contains([' ', '"', '\'', '{']);
        if plain { arg.clone() } else { format!("'{arg}'") }
    };
    let mut line = made.argv.iter().map(quoted).collect::<Vec<_>>().join(" ");
    if let Some(stdin) = &made.stdin {
        write!(line, " < {}", stdin.display()).unwrap();
    }
    if !made.enforced.is_empty() {
        write!(line, "  # enforces {}", made.enforced.join(", ")).unwrap();
    }
    line
}

#[test]
fn the_built_in_workers_are_called_as_was_tried() {
    let dir = tempfile::tempdir().unwrap();
    let spool = Spool::open(&dir.path().join("spool")).unwrap();
    let values = Values {
        prompt: "P".into(),
        prompt_file: "/a/prompt.md".into(),
        workspace: "/w".into(),
        attempt_dir: "/a".into(),
        private_dir: "/p".into(),
        task: "T".into(),
        attempt: 1,
        permission: Some(Permission::WorkspaceWrite),
        ..Values::default()
    };
    let mut text = String::new();
    for name in WORKERS {
        let mut profile = workspool::worker::profile(&spool, &name.parse().unwrap()).unwrap().unwrap();
        // What the machine has set is not of interest here.
        profile.require_env.clear();
        profile.pass_env.clear();
        let mut add = |what: &str, values: Values| {
            let made = invocation(&profile, &values).unwrap();
            writeln!(text, "{what:16} {}", shown(&made)).unwrap();
            made
        };
        let base = add("workspace_write", values.clone());
        let mut envs = Vec::new();
        for permission in [Permission::ReadOnly, Permission::Full] {
            let made =
                add(&permission.to_string(), Values { permission: Some(permission), ..values.clone() });
            envs.push((permission.to_string(), made.env));
        }
        let custom =
            invocation(&profile, &Values { permission: Some(Permission::Custom), ..values.clone() }).unwrap();
        assert_eq!(custom.argv, base.argv, "{name}: custom is workspace_write to a program");
        if !profile.model.is_empty() {
            let effort = (!profile.effort.is_empty()).then_some(Effort::Max);
            add("model, effort", Values { model: Some("M".into()), effort, ..values.clone() });
        }
        let session = Some("S".to_owned());
        if !profile.session.is_empty() {
            add("new session", Values { new_session: session.clone(), ..values.clone() });
        }
        if !profile.resume.is_empty() {
            add("resume", Values { session, ..values.clone() });
        }
        add("no net, no shell", Values { no_network: true, no_shell: true, ..values.clone() });
        add("limits", Values { turns: Some(9), cost_usd: Some(1.5), ..values.clone() });
        for (k, v) in &base.env {
            writeln!(text, "  {k}={v}").unwrap();
        }
        for (permission, env) in envs {
            for (k, v) in env.iter().filter(|(k, v)| base.env.get(*k) != Some(v)) {
                writeln!(text, "  {k}={v}  # {permission}").unwrap();
            }
        }
        text.push('\n');
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/profiles/commands.txt");
    if std::env::var_os("UPDATE_COMMANDS").is_some() {
        std::fs::write(&file, &text).unwrap();
    }
    let known = std::fs::read_to_string(&file).unwrap_or_default();
    for (now, before) in text.lines().zip(known.lines()) {
        assert_eq!(now, before);
    }
    assert_eq!(text, known);
}
