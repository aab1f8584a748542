//! One run of a command: its exit code and all that it printed.

use super::PATIENCE;
use serde::de::DeserializeOwned;
use std::io::{Read, Write as _};
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// A command that has ended.
#[derive(Debug)]
pub struct Ran {
    /// Its command line, for messages.
    pub line: String,
    /// Its exit code; -1 if a signal ended it.
    pub code: i32,
    /// What it printed.
    pub stdout: Vec<u8>,
    /// What it printed as errors.
    pub stderr: String,
    /// How long it ran.
    pub took: Duration,
}

impl Ran {
    /// Runs a command to its end, with `input` as its standard input.
    pub fn to_end(mut command: Command, input: &[u8]) -> Ran {
        let line = format!("{command:?}");
        let began = Instant::now();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|e| panic!("{line}: {e}"));
        let mut stdin = child.stdin.take().unwrap();
        let input = input.to_vec();
        let feed = thread::spawn(move || drop(stdin.write_all(&input)));
        let (out, err) = (drain(child.stdout.take().unwrap()), drain(child.stderr.take().unwrap()));
        let status = wait(&mut child, &line);
        feed.join().unwrap();
        Ran {
            line,
            code: status.code().unwrap_or(-1),
            stdout: out.join().unwrap(),
            stderr: String::from_utf8_lossy(&err.join().unwrap()).into_owned(),
            took: began.elapsed(),
        }
    }

    /// Asserts that it went well.
    #[track_caller]
    pub fn ok(self) -> Ran {
        self.exits(0)
    }

    /// Asserts its exit code.
    #[track_caller]
    pub fn exits(self, code: i32) -> Ran {
        assert!(
            self.code == code,
            "expected exit code {code}, got {}\n  of {}\n--- stdout\n{}\n--- stderr\n{}",
            self.code,
            self.line,
            self.text(),
            self.stderr
        );
        self
    }

    /// Asserts that its errors hold all of these.
    #[track_caller]
    pub fn says(self, parts: &[&str]) -> Ran {
        for part in parts {
            assert!(
                self.stderr.contains(part),
                "expected {part:?} in the errors of {}:\n{}",
                self.line,
                self.stderr
            );
        }
        self
    }

    /// What it printed, as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// What it printed, as JSON.
    #[track_caller]
    pub fn json<T: DeserializeOwned>(&self) -> T {
        serde_json::from_slice(&self.stdout).unwrap_or_else(|e| {
            panic!("{} did not print the JSON that was expected: {e}\n{}", self.line, self.text())
        })
    }
}

/// Waits for a child; one that does not end is killed and fails the test.
pub fn wait(child: &mut Child, line: &str) -> std::process::ExitStatus {
    let deadline = Instant::now() + PATIENCE * 2;
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if Instant::now() >= deadline {
            let _ = child.kill();
            let _ = child.wait();
            panic!("{line} did not end");
        }
        thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

/// Reads all of a pipe beside the test.
pub fn drain(mut pipe: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = pipe.read_to_end(&mut bytes);
        bytes
    })
}
