//! What is left when a keeper is killed, and how it is found and ended without touching strangers.

#![allow(clippy::unwrap_used, reason = "a test may panic anywhere, also in its helpers")]

mod bench;

use bench::{Bench, until};
use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use workspool::durable::Lock;
use workspool::keeper::{
    Carried, Loss, Orphans, StepPlan, StepStart, StepState, SweepError, Swept, await_end, carry, sweep,
};
use workspool::process::{CensusMethod, Cleared, Identity, Liveness, Signal};

const GRACE: Duration = Duration::from_millis(200);
const LIMIT: Duration = Duration::from_secs(20);

/// Starts a step, waits until its script says that it is ready, and kills the keeper.
fn lose(bench: &Bench, plan: &StepPlan) -> StepStart {
    let mut keeper = bench.launch(plan);
    until("the script is ready", || bench.work().join("ready").exists());
    assert!(matches!(
        sweep(&bench.step(), &plan.marker, Orphans::Elsewhere, GRACE, LIMIT),
        Err(SweepError::Running)
    ));
    until("its identity is recorded", || bench.start().is_some_and(|s| s.worker.is_some()));
    keeper.kill().unwrap();
    keeper.wait().unwrap();
    match await_end(&bench.step()).unwrap() {
        StepState::Lost(Some(start)) => {
            let worker = start.worker.clone().unwrap();
            until("the command dies with its keeper", || worker.liveness().unwrap() == Liveness::Dead);
            *start
        }
        other => panic!("{other:?}"),
    }
}

fn swept(bench: &Bench, plan: &StepPlan) -> Cleared {
    // Another test's child may share the lock between its fork and its exec.
    until("nobody has the lock", || !Lock::at(bench.step().join("lock")).is_held().unwrap());
    sweep(&bench.step(), &plan.marker, Orphans::Elsewhere, GRACE, LIMIT).unwrap().cleared
}

/// A process that is nobody's; killed when dropped.
struct Stranger(Child);

impl Stranger {
    fn start() -> Stranger {
        let mut command = Command::new("sleep");
        command.arg("300").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Stranger(command.spawn().unwrap())
    }

    fn identity(&self) -> Option<Identity> {
        Identity::of(self.0.id()).unwrap()
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_command_dies_with_its_keeper_and_the_rest_is_swept() {
    let bench = Bench::new();
    // The last one drops its environment and loses its parent, but keeps the session and the folder.
    let script = r#"S='echo $$ >> pids; exec sleep 300'
        sh -c "$S" &
        setsid sh -c "$S" &
        (setsid sh -c "(sh -c '$S' &) &" &)
        (env -i /bin/sh -c "$S" &)
        while [ "$(cat pids 2>/dev/null | wc -l)" -lt 4 ]; do sleep 0.01; done
        touch ready; exec sleep 300"#;
    let mut plan = bench.plan(script);
    plan.use_cgroup = false;
    lose(&bench, &plan);
    let cleared = swept(&bench, &plan);
    assert!(cleared.census.is_empty());
    assert_eq!(cleared.census.method, CensusMethod::Scan);
    assert_eq!(cleared.ended.len(), 4, "{:?}", cleared.ended);
    for pid in bench.pids() {
        assert_eq!(Identity::of(pid).unwrap(), None, "{pid} lives");
    }
    // Nothing more is found, and the step stays lost: who sweeps decides what that means.
    assert!(swept(&bench, &plan).ended.is_empty());
    assert!(matches!(await_end(&bench.step()).unwrap(), StepState::Lost(_)));
}

#[test]
fn a_control_group_outlives_the_keeper_and_hides_nobody() {
    let bench = Bench::new();
    let script = r#"(env -i setsid /bin/sh -c 'cd /; echo $$ >> "$1"; exec sleep 300' x "$PWD/pids" &)
        while ! [ -s pids ]; do sleep 0.01; done; touch ready; exec sleep 300"#;
    let plan = bench.plan(script);
    let start = lose(&bench, &plan);
    let Some(group) = start.cgroup else {
        // No group was granted here: then this stray escapes a scan, and must not outlive the test.
        Identity::of(bench.pids()[0]).unwrap().unwrap().signal(Signal::KILL).unwrap();
        return;
    };
    let cleared = swept(&bench, &plan);
    assert_eq!(cleared.census.method, CensusMethod::Kernel);
    assert!(cleared.census.is_empty());
    assert_eq!(Identity::of(bench.pids()[0]).unwrap(), None);
    assert!(!group.exists(), "the group is removed");
}

#[test]
fn a_reused_number_is_spared() {
    let bench = Bench::new();
    let plan = bench.plan("touch ready; exec sleep 300");
    let mut start = lose(&bench, &plan);
    let stranger = Stranger::start();
    let real = stranger.identity().unwrap();
    start.worker = Some(Identity { start: real.start - 1, ..real.clone() });
    fs::write(bench.step().join("start.json"), serde_json::to_vec(&start).unwrap()).unwrap();
    assert!(swept(&bench, &plan).ended.is_empty());
    assert!(stranger.identity().is_some(), "it lives");
    // With its true start time it is the recorded process, and is ended.
    start.worker = Some(real);
    fs::write(bench.step().join("start.json"), serde_json::to_vec(&start).unwrap()).unwrap();
    assert_eq!(swept(&bench, &plan).ended.len(), 1);
    assert_eq!(stranger.identity(), None);
}

#[test]
fn a_recorded_number_means_nothing_after_another_boot_or_in_another_namespace() {
    let bench = Bench::new();
    let mut plan = bench.plan("touch ready; exec sleep 300");
    plan.use_cgroup = false;
    let real = lose(&bench, &plan);
    let stranger = Stranger::start();
    let worker = stranger.identity();
    let mut start = StepStart { worker, boot: "another".into(), ..real.clone() };
    fs::write(bench.step().join("start.json"), serde_json::to_vec(&start).unwrap()).unwrap();
    let seen = sweep(&bench.step(), &plan.marker, Orphans::Elsewhere, GRACE, LIMIT).unwrap();
    assert_eq!((seen.loss, seen.cleared.ended.len()), (Loss::Restarted, 0));
    start.boot = real.boot;
    start.keeper.pidns += 1;
    fs::write(bench.step().join("start.json"), serde_json::to_vec(&start).unwrap()).unwrap();
    let seen = sweep(&bench.step(), &plan.marker, Orphans::Elsewhere, GRACE, LIMIT).unwrap();
    assert_eq!((seen.loss, seen.cleared.ended.len()), (Loss::Elsewhere, 0));
    assert_eq!(stranger.identity(), start.worker, "it lives");
}

#[test]
fn records_that_name_another_boot_or_namespace_hide_nobody_who_bears_the_marker() {
    let bench = Bench::new();
    let mut plan = bench.plan("setsid sleep 300 & touch ready; exec sleep 300");
    plan.use_cgroup = false;
    let mut start = lose(&bench, &plan);
    start.boot = "another".into();
    fs::write(bench.step().join("start.json"), serde_json::to_vec(&start).unwrap()).unwrap();
    assert_eq!(swept(&bench, &plan).ended.len(), 1);
    assert_eq!(bench.marked(&plan), 0);
}

#[test]
fn records_that_are_torn_leave_the_marker() {
    let bench = Bench::new();
    let mut plan = bench.plan("setsid sleep 300 & touch ready; exec sleep 300");
    plan.use_cgroup = false;
    lose(&bench, &plan);
    fs::write(bench.step().join("start.json"), b"{\"vers").unwrap();
    fs::write(bench.step().join("exit.json"), b"").unwrap();
    assert_eq!(await_end(&bench.step()).unwrap(), StepState::Lost(None));
    let cleared = swept(&bench, &plan);
    assert!(!cleared.ended.is_empty() && cleared.census.is_empty());
    assert_eq!(bench.marked(&plan), 0);
}

#[test]
fn the_steps_of_two_spools_are_apart() {
    let (ours, theirs) = (Bench::new(), Bench::new());
    let script = "setsid sleep 300 & touch ready; exec sleep 300";
    let plan = ours.plan(script);
    let other = theirs.plan(script);
    let mut keeper = theirs.launch(&other);
    until("the other runs", || theirs.work().join("ready").exists());
    lose(&ours, &plan);
    swept(&ours, &plan);
    assert_eq!(ours.marked(&plan), 0);
    assert_eq!(theirs.marked(&other), 2, "the other spool's step goes on");
    theirs.cancel();
    keeper.wait().unwrap();
    assert_eq!(theirs.marked(&other), 0);
}

#[test]
fn a_supervisor_that_is_a_subreaper_loses_nobody() {
    let bench = Bench::new();
    // Neither marker nor session nor parent nor folder: only who inherits it tells whose it is.
    let script = r#"(env -i setsid /bin/sh -c 'cd /; echo $$ >> "$1"; exec sleep 300' x "$PWD/pids" &)
        while ! [ -s pids ]; do sleep 0.01; done; touch ready; exec sleep 300"#;
    let mut plan = bench.plan(script);
    plan.use_cgroup = false;
    let mut supervisor = bench.spawn_supervisor(&plan);
    until("the script is ready", || bench.work().join("ready").exists());
    assert!(bench.start().unwrap().keeper.signal(Signal::KILL).unwrap());
    assert!(supervisor.wait().unwrap().success());
    let swept = fs::read_to_string(bench.path("swept")).unwrap();
    assert!(swept.contains("subreaper"), "{swept}");
    let pid = bench.pids()[0];
    let lives = Identity::of(pid).unwrap();
    if let Some(stray) = &lives {
        stray.signal(Signal::KILL).unwrap();
    }
    assert_eq!(lives, None, "{pid} lives");
}

#[test]
fn carrying_a_step_never_runs_it_twice() {
    let bench = Bench::new();
    let mut plan = bench.plan("echo ran >> runs; (setsid sleep 300 &); touch ready; exec sleep 300");
    plan.grace_ms = 100;
    plan.use_cgroup = false;
    lose(&bench, &plan);
    let carried = carry(&bench.step(), &plan, &bench.path("task.lock"), || {}).unwrap();
    let Carried::Lost(Swept { cleared, .. }) = carried else { panic!("{carried:?}") };
    assert!(cleared.census.is_empty());
    assert_eq!(cleared.ended.len(), 1, "{:?}", cleared.ended);
    assert_eq!(fs::read_to_string(bench.work().join("runs")).unwrap(), "ran\n");

    let bench = Bench::new();
    let plan = bench.plan("echo ran >> runs; exit 3");
    let exit = bench.run_plan(&plan);
    let carried = carry(&bench.step(), &plan, &bench.path("task.lock"), || {}).unwrap();
    let Carried::Ended(again) = carried else { panic!("{carried:?}") };
    assert_eq!(*again, exit);
    assert_eq!(fs::read_to_string(bench.work().join("runs")).unwrap(), "ran\n");
}
