//! Runner loops beside a test.

use super::ran::{drain, wait};
use rustix::process::{Pid, Signal, kill_process};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;

/// A `workspool run` that goes on until it is stopped, killed, or dropped.
#[derive(Debug)]
pub struct Runner {
    child: Child,
    errors: Option<JoinHandle<Vec<u8>>>,
}

impl Runner {
    pub(super) fn start(mut command: Command) -> Runner {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let errors = Some(drain(child.stderr.take().unwrap()));
        Runner { child, errors }
    }

    /// Kills it as a crash would.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Asks it to end; returns what it said.
    pub fn stop(mut self) -> String {
        self.end();
        String::from_utf8_lossy(&self.errors.take().unwrap().join().unwrap()).into_owned()
    }

    /// Waits for it to end by itself; returns what it said.
    pub fn join(mut self) -> String {
        let status = wait(&mut self.child, "run");
        let said = String::from_utf8_lossy(&self.errors.take().unwrap().join().unwrap()).into_owned();
        assert!(status.success(), "run ended with {status}:\n{said}");
        said
    }

    fn end(&mut self) {
        if let (Ok(None), Some(pid)) = (self.child.try_wait(), Pid::from_raw(self.child.id().cast_signed())) {
            let _ = kill_process(pid, Signal::TERM);
            wait(&mut self.child, "run, told to stop");
        }
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        } else {
            self.end();
        }
    }
}
