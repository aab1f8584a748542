//! A step's folder, a workspace, and a plan: what a keeper needs, for tests.

#![allow(dead_code, reason = "each test file uses a part")]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use workspool::durable::{Held, Lock};
use workspool::keeper::{self, LaunchError, StepExit, StepPlan, StepStart, StepState};
use workspool::process::Domain;

/// Names the folder in which a test process plays the supervisor.
const PLAY: &str = "KEEPER_TEST_SUPERVISOR";

/// A folder with all that one step needs. Ends what is left of it when dropped.
pub struct Bench {
    dir: tempfile::TempDir,
}

impl Bench {
    pub fn new() -> Bench {
        let dir = tempfile::tempdir().unwrap();
        for name in ["step", "work"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        Bench { dir }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn step(&self) -> PathBuf {
        self.path("step")
    }

    pub fn work(&self) -> PathBuf {
        self.path("work")
    }

    /// A plan that runs `script` with `sh` in the workspace, and bears a marker that no other test has.
    pub fn plan(&self, script: &str) -> StepPlan {
        let argv = ["sh", "-c", script].map(str::to_owned).to_vec();
        let spool = self.dir.path().to_str().unwrap();
        let mut plan = StepPlan::new(spool, ("t", 1, "work"), argv, &self.work(), &self.path("cancel"));
        plan.env.insert("PATH".into(), std::env::var("PATH").unwrap());
        plan.grace_ms = 10_000;
        plan.unkillable_ms = 60_000;
        plan
    }

    pub fn cancel(&self) {
        std::fs::write(self.path("cancel"), "").unwrap();
    }

    pub fn lock_task(&self) -> Held {
        Lock::at(self.path("task.lock")).try_take().unwrap().unwrap()
    }

    pub fn try_launch(&self, plan: &StepPlan) -> Result<Child, LaunchError> {
        let program = Path::new(env!("CARGO_BIN_EXE_workspool"));
        keeper::launch_with(program, &self.step(), plan, &self.path("task.lock"))
    }

    pub fn launch(&self, plan: &StepPlan) -> Child {
        self.try_launch(plan).unwrap()
    }

    pub fn run(&self, script: &str) -> StepExit {
        self.run_plan(&self.plan(script))
    }

    pub fn run_plan(&self, plan: &StepPlan) -> StepExit {
        let mut keeper = self.launch(plan);
        match keeper::wait(&mut keeper, &self.step()).unwrap() {
            StepState::Ended(exit) => *exit,
            other => panic!("{other:?}\n{}", keeper::complaints(&self.step()).unwrap()),
        }
    }

    /// Waits for the recorded end, whoever the keeper's parent is.
    pub fn ended(&self) -> StepExit {
        match keeper::await_end(&self.step()).unwrap() {
            StepState::Ended(exit) => *exit,
            other => panic!("{other:?}\n{}", keeper::complaints(&self.step()).unwrap()),
        }
    }

    pub fn start(&self) -> Option<StepStart> {
        serde_json::from_slice(&std::fs::read(self.step().join("start.json")).ok()?).ok()
    }

    /// The processes that the script wrote down.
    pub fn pids(&self) -> Vec<u32> {
        let text = std::fs::read_to_string(self.work().join("pids")).unwrap();
        text.lines().map(|l| l.parse().unwrap()).collect()
    }

    /// How many processes bear the plan's marker.
    pub fn marked(&self, plan: &StepPlan) -> usize {
        Domain::recorded(plan.marker.clone()).census().unwrap().survivors.len()
    }

    /// Starts another process that launches the keeper and waits for it, as a supervisor does.
    pub fn spawn_supervisor(&self, plan: &StepPlan) -> Child {
        std::fs::write(self.path("supervisor.json"), serde_json::to_vec(plan).unwrap()).unwrap();
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "bench::plays_the_supervisor", "--nocapture"])
            .env(PLAY, self.dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        // A test that failed half-way must leave nothing running.
        let _ = Domain::recorded(self.plan("").marker).end(Duration::ZERO, Duration::from_secs(5));
    }
}

/// Does nothing, unless it was started by [`Bench::spawn_supervisor`].
#[test]
fn plays_the_supervisor() {
    let Some(dir) = std::env::var_os(PLAY).map(PathBuf::from) else { return };
    let _lock = Lock::at(dir.join("task.lock")).try_take().unwrap().unwrap();
    let _ = workspool::process::become_subreaper();
    let plan: StepPlan =
        serde_json::from_slice(&std::fs::read(dir.join("supervisor.json")).unwrap()).unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_workspool"));
    let mut keeper = keeper::launch_with(program, &dir.join("step"), &plan, &dir.join("task.lock")).unwrap();
    if let StepState::Lost(_) = keeper::wait(&mut keeper, &dir.join("step")).unwrap() {
        let limit = Duration::from_secs(20);
        let orphans = keeper::Orphans::Ours;
        let cleared =
            keeper::sweep(&dir.join("step"), &plan.marker, orphans, Duration::ZERO, limit).unwrap().cleared;
        assert!(cleared.census.is_empty());
        std::fs::write(dir.join("swept"), serde_json::to_vec(&cleared.census).unwrap()).unwrap();
    }
}

/// Waits for something to become true, at most half a minute.
#[track_caller]
pub fn until(what: &str, mut is: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !is() {
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
