//! The fake worker, `examples/misbehave.rs`: where it is, and tasks that let it do things.

use super::{Submit, World};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

impl World {
    /// Begins a submission whose worker does what the fake worker can.
    pub fn misbehave(&self, verbs: &[&str]) -> Submit<'_> {
        self.script(&self.misbehave_line(verbs))
    }

    /// The line for a shell that runs the fake worker.
    pub fn misbehave_line(&self, verbs: &[&str]) -> String {
        let quoted = |text: &str| format!("'{}'", text.replace('\'', "'\\''"));
        let mut line = format!(
            "exec {} --mark {}",
            quoted(&misbehave().to_string_lossy()),
            quoted(&self.root().to_string_lossy())
        );
        for verb in verbs {
            line.push(' ');
            line.push_str(&quoted(verb));
        }
        line
    }

    /// The command that links the fake worker, as JSON.
    pub fn misbehave_command(&self, args: &[&str]) -> String {
        let program = misbehave().to_string_lossy().into_owned();
        let root = self.root().to_string_lossy().into_owned();
        let all: Vec<&str> = [&[program.as_str(), "--mark", root.as_str()], args].concat();
        serde_json::to_string(&all).unwrap()
    }
}

/// Where the fake worker is. A run of this test alone does not build it: then it is built here.
fn misbehave() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        let exe = std::env::current_exe().unwrap();
        let target = exe.parent().and_then(Path::parent).unwrap();
        let program = target.join("examples/misbehave");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/misbehave.rs");
        let time = |path: &Path| path.metadata().and_then(|m| m.modified()).ok();
        if time(&program).is_none() || time(&program) < time(&source) {
            let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
            cargo
                .args(["build", "--quiet", "--example", "misbehave"])
                .current_dir(env!("CARGO_MANIFEST_DIR"));
            if target.ends_with("release") {
                cargo.arg("--release");
            }
            let out = cargo.output().unwrap();
            assert!(
                out.status.success(),
                "cannot build the fake worker: {}",
                String::from_utf8_lossy(&out.stderr)
            );
        }
        assert!(program.is_file(), "{} is not there", program.display());
        program
    })
}
