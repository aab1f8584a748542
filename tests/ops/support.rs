//! A home and a spool of their own for each test, and programs that only record how they were called.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

pub const LIMIT: Duration = Duration::from_secs(60);

/// A home folder with a spool in it.
pub struct Home {
    dir: tempfile::TempDir,
}

impl Home {
    pub fn new() -> Self {
        let home = Home { dir: tempfile::tempdir().unwrap() };
        std::fs::create_dir(home.bin()).unwrap();
        home
    }

    /// The home folder, as the kernel names it.
    pub fn path(&self) -> PathBuf {
        self.dir.path().canonicalize().unwrap()
    }

    pub fn spool(&self) -> PathBuf {
        self.path().join("spool")
    }

    /// A folder before all others on PATH.
    pub fn bin(&self) -> PathBuf {
        self.path().join("bin")
    }

    /// The program with a clean environment.
    pub fn command<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_workspool"));
        let path = format!("{}:{}", self.bin().display(), std::env::var("PATH").unwrap());
        command.args(args).env_clear().env("HOME", self.path()).env("PATH", path).env("USER", "somebody");
        command.env("WORKSPOOL_HOME", self.spool()).env("LANG", "C.UTF-8");
        command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
        // Whatever disk the tests run on: they need little of it.
        command.env("WORKSPOOL_DISK_RESERVE_BYTES", "0").env("WORKSPOOL_DISK_RESERVE_PERCENT", "0");
        command.stdin(Stdio::null()).current_dir(self.path());
        command
    }

    pub fn run<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Said {
        Said(self.command(args).output().unwrap())
    }

    /// Puts a program on PATH: a shell script.
    pub fn program(&self, name: &str, script: &str) {
        let path = self.bin().join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Puts a program on PATH that writes its arguments, one call a line, into `NAME.calls`, and goes on
    /// with `script`.
    pub fn recorder(&self, name: &str, script: &str) {
        let calls = self.path().join(format!("{name}.calls"));
        self.program(name, &format!("echo \"$*\" >> '{}'\n{script}", calls.display()));
    }

    pub fn calls(&self, name: &str) -> String {
        std::fs::read_to_string(self.path().join(format!("{name}.calls"))).unwrap_or_default()
    }

    pub fn write(&self, path: impl AsRef<Path>, text: &str) {
        let path = self.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// Submits a script for the shell worker; returns the task's id.
    pub fn submit(&self, script: &str) -> String {
        let said = self.run(["submit", script, "--worker", "shell", "--json"]).good();
        let value: serde_json::Value = serde_json::from_str(&said).unwrap();
        find(&value, "id").unwrap_or_else(|| panic!("no id in {said}"))
    }
}

fn find(value: &serde_json::Value, key: &str) -> Option<String> {
    match value {
        serde_json::Value::Object(map) => map
            .get(key)
            .and_then(|v| v.as_str().map(str::to_owned))
            .or_else(|| map.values().find_map(|v| find(v, key))),
        serde_json::Value::Array(items) => items.iter().find_map(|v| find(v, key)),
        _ => None,
    }
}

/// What the program said.
pub struct Said(pub Output);

impl Said {
    pub fn out(&self) -> String {
        String::from_utf8(self.0.stdout.clone()).unwrap()
    }

    pub fn err(&self) -> String {
        String::from_utf8_lossy(&self.0.stderr).into_owned()
    }

    pub fn code(&self) -> i32 {
        self.0.status.code().unwrap()
    }

    /// What it printed, if all went well.
    pub fn good(&self) -> String {
        assert!(self.0.status.success(), "{}: {}{}", self.0.status, self.out(), self.err());
        self.out()
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out()).unwrap_or_else(|e| panic!("{e}: {}{}", self.out(), self.err()))
    }
}

/// A process that is ended with the test.
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Looks again and again until `look` finds something.
pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + LIMIT;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "waited too long for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
