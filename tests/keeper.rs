//! The keeper, as a process: real commands, real signals, every way to end.

#![allow(clippy::unwrap_used, reason = "a test may panic anywhere, also in its helpers")]

mod bench;

use bench::{Bench, until};
use std::collections::BTreeSet;
use std::fs;
use workspool::keeper::{
    BudgetKind, Cause, DeadlineKind, Ended, Phase, Progress, StepState, complaints, hasten, state, summary,
};
use workspool::process::{CensusMethod, Identity, Liveness, Signal};

#[test]
fn an_exit_code_and_both_streams_are_recorded() {
    let bench = Bench::new();
    let exit = bench.run("echo out; echo err >&2; exit 7");
    assert_eq!(exit.ended, Ended::Exited { code: 7 });
    assert_eq!(exit.cause, Cause::Exit);
    assert_eq!(exit.stdout_tail.trim(), "out");
    assert_eq!(exit.stderr_tail.trim(), "err");
    assert!(exit.census.is_empty() && exit.left_over.is_empty());
    assert_eq!((exit.write_error, exit.stop_error), (None, None));
    assert!(exit.ended_at >= exit.started_at);
    assert_eq!(complaints(&bench.step()).unwrap(), "");
    let log = fs::read_to_string(bench.step().join("log.jsonl")).unwrap();
    assert!(log.contains("out") && log.contains("err"));
}

#[test]
fn a_death_by_signal_is_recorded_as_one() {
    let exit = Bench::new().run("kill -SEGV $$");
    assert_eq!(exit.ended, Ended::Signaled { signal: 11 });
    assert_eq!(exit.cause, Cause::Exit);
}

#[test]
fn a_missing_program_and_a_missing_folder_are_told_apart() {
    let bench = Bench::new();
    let mut plan = bench.plan("");
    plan.argv = vec!["no-such-program-anywhere".into()];
    let Ended::NotStarted { error, not_found, .. } = bench.run_plan(&plan).ended else { panic!("it ran") };
    assert!(not_found && error.contains("no-such-program-anywhere"), "{error}");

    let bench = Bench::new();
    fs::write(bench.path("program"), "#!/bin/sh\n").unwrap();
    let mut plan = bench.plan("");
    plan.argv = vec!["program".into()];
    plan.env.insert("PATH".into(), bench.path("").to_str().unwrap().into());
    let Ended::NotStarted { error, not_found, .. } = bench.run_plan(&plan).ended else { panic!("it ran") };
    assert!(!not_found && error.contains("ermission"), "{error}");

    let bench = Bench::new();
    let mut plan = bench.plan("exit 0");
    plan.cwd = bench.path("nowhere");
    let Ended::NotStarted { error, not_found, .. } = bench.run_plan(&plan).ended else { panic!("it ran") };
    assert!(!not_found && error.contains("nowhere"), "{error}");

    let bench = Bench::new();
    let mut plan = bench.plan("exit 0");
    plan.parser = "no-such-parser".into();
    assert!(matches!(bench.run_plan(&plan).ended, Ended::NotStarted { not_found: false, .. }));
    assert!(!bench.step().join("start.json").exists(), "what never ran has no start");
}

#[test]
fn the_environment_is_the_plan_and_nothing_else() {
    let bench = Bench::new();
    let mut plan = bench.plan("");
    plan.argv = ["cp", "/proc/self/environ", "environ"].map(str::to_owned).to_vec();
    plan.env = [("PATH", "/usr/bin:/bin"), ("A", "b c")].map(|(n, v)| (n.into(), v.into())).into();
    plan.pass_env = vec!["CARGO_PKG_NAME".into(), "NO_SUCH_VARIABLE".into()];
    assert_eq!(bench.run_plan(&plan).ended, Ended::Exited { code: 0 });
    let environ = fs::read_to_string(bench.work().join("environ")).unwrap();
    let got: BTreeSet<&str> = environ.split_terminator('\0').collect();
    let marker = format!("WORKSPOOL_ATTEMPT={}", plan.marker.value());
    let mut wanted = BTreeSet::from(["PATH=/usr/bin:/bin", "A=b c", &marker]);
    let name = std::env::var("CARGO_PKG_NAME").map(|v| format!("CARGO_PKG_NAME={v}"));
    wanted.extend(name.as_deref());
    assert_eq!(got, wanted);
}

#[test]
fn nothing_is_inherited_but_the_standard_streams() {
    let bench = Bench::new();
    // What a careless caller left open, to be inherited by all.
    let stray = fs::File::create(bench.path("stray")).unwrap();
    let _stray = rustix::io::dup(&stray).unwrap();
    let _task_lock = bench.lock_task();
    let script = "ls -l /proc/$PPID/fd > keeper-fds; readlink /proc/self/fd/0 > stdin
        cut -d' ' -f5,6 /proc/$$/stat > session; echo $$ > pid; cut -d' ' -f6 /proc/$PPID/stat > keeper-session
        echo $PPID > keeper; exec ls /proc/self/fd";
    let exit = bench.run(script);
    assert_eq!(exit.ended, Ended::Exited { code: 0 });
    // The fourth is the folder that `ls` reads.
    assert_eq!(exit.stdout_tail.split_whitespace().collect::<Vec<_>>(), ["0", "1", "2", "3"]);
    let read = |name: &str| fs::read_to_string(bench.work().join(name)).unwrap().trim().to_owned();
    assert_eq!(read("stdin"), "/dev/null");
    let keeper = read("keeper-fds");
    assert!(keeper.contains("/step/lock") && !keeper.contains("task.lock"), "{keeper}");
    assert!(!keeper.contains("stray"), "{keeper}");
    assert_eq!(read("session"), format!("{0} {0}", read("pid")), "it leads its own session");
    assert_eq!(read("keeper-session"), read("keeper"), "and so does the keeper");
}

#[test]
fn input_comes_from_a_file_and_ends() {
    let bench = Bench::new();
    fs::write(bench.path("input"), "one\ntwo").unwrap();
    let mut plan = bench.plan("cat > copy");
    plan.stdin = Some(bench.path("input"));
    assert_eq!(bench.run_plan(&plan).ended, Ended::Exited { code: 0 });
    assert_eq!(fs::read(bench.work().join("copy")).unwrap(), b"one\ntwo");
}

#[test]
fn the_true_exit_code_outlives_the_supervisor_and_another_is_started() {
    let bench = Bench::new();
    let mut plan = bench.plan("touch running; while [ ! -e go ]; do sleep 0.02; done; exit 5");
    plan.resume = ["sh", "-c", "echo resumed > \"$0\"", bench.path("resumed").to_str().unwrap()]
        .map(str::to_owned)
        .to_vec();
    let mut supervisor = bench.spawn_supervisor(&plan);
    until("the command runs", || bench.work().join("running").exists());
    supervisor.kill().unwrap();
    supervisor.wait().unwrap();
    assert!(matches!(state(&bench.step()).unwrap(), StepState::Running(Some(_))));
    fs::write(bench.work().join("go"), "").unwrap();
    let exit = bench.ended();
    assert_eq!(exit.ended, Ended::Exited { code: 5 });
    until("another supervisor is started", || bench.path("resumed").exists());
}

#[test]
fn no_supervisor_is_started_while_one_lives() {
    let bench = Bench::new();
    let _task_lock = bench.lock_task();
    let mut plan = bench.plan("exit 0");
    plan.resume = ["touch", bench.path("resumed").to_str().unwrap()].map(str::to_owned).to_vec();
    bench.run_plan(&plan);
    assert!(!bench.path("resumed").exists());
}

#[test]
fn a_timeout_ends_what_ignores_term() {
    let bench = Bench::new();
    let mut plan = bench.plan("trap '' TERM; touch trapped; while :; do sleep 0.05; done");
    plan.deadlines.total_ms = Some(400);
    plan.grace_ms = 100;
    let exit = bench.run_plan(&plan);
    assert!(bench.work().join("trapped").exists());
    assert_eq!(exit.ended, Ended::Signaled { signal: 9 });
    assert_eq!(exit.cause, Cause::Deadline { which: DeadlineKind::Total });
    assert!(exit.census.is_empty());
    assert!((400..20_000).contains(&exit.elapsed_ms), "{}", exit.elapsed_ms);
}

#[test]
fn grace_lets_a_command_say_goodbye_at_length() {
    let bench = Bench::new();
    // More than a pipe holds: it must be read while the command is being ended.
    let script = "trap 'head -c 300000 /dev/zero | tr \"\\0\" x; echo; echo bye; exit 3' TERM
        touch ready; while :; do sleep 0.02; done";
    let mut plan = bench.plan(script);
    plan.grace_ms = 20_000;
    let mut keeper = bench.launch(&plan);
    until("the trap is set", || bench.work().join("ready").exists());
    bench.cancel();
    keeper.wait().unwrap();
    let exit = bench.ended();
    assert_eq!((exit.ended, exit.cause), (Ended::Exited { code: 3 }, Cause::Cancelled));
    assert!(exit.stdout_tail.trim_end().ends_with("bye"));
}

#[test]
fn silence_and_a_late_start_have_their_own_deadlines() {
    let bench = Bench::new();
    let mut plan = bench.plan("echo once; exec sleep 300");
    plan.deadlines.silence_ms = Some(300);
    plan.deadlines.start_ms = Some(60_000);
    assert_eq!(bench.run_plan(&plan).cause, Cause::Deadline { which: DeadlineKind::Silence });

    let bench = Bench::new();
    let mut plan = bench.plan("exec sleep 300");
    plan.deadlines.silence_ms = Some(60_000);
    plan.deadlines.start_ms = Some(300);
    assert_eq!(bench.run_plan(&plan).cause, Cause::Deadline { which: DeadlineKind::Start });

    let bench = Bench::new();
    let mut plan = bench.plan("i=0; while [ $i -lt 20 ]; do echo $i; sleep 0.05; i=$((i+1)); done");
    plan.deadlines.silence_ms = Some(900);
    assert_eq!(bench.run_plan(&plan).cause, Cause::Exit, "who speaks up is left alone");
}

#[test]
fn a_budget_of_seconds_ends_the_run() {
    let bench = Bench::new();
    let mut plan = bench.plan("exec sleep 300");
    plan.budget.seconds = Some(1);
    let exit = bench.run_plan(&plan);
    let Cause::Budget { which: BudgetKind::Seconds, used, limit } = exit.cause else { panic!("{exit:?}") };
    assert!(used >= limit && limit == 1.0);
}

#[test]
fn a_budget_of_what_is_reported_ends_the_run() {
    let bench = Bench::new();
    let usage = |tokens| format!(r#"{{"fact":"usage","usage":{{"input_tokens":{tokens}}},"scope":"delta"}}"#);
    let mut plan = bench.plan(&format!("echo '{}'; echo '{}'; exec sleep 300", usage(60), usage(50)));
    plan.parser = "workspool".into();
    plan.budget.tokens = Some(100);
    let exit = bench.run_plan(&plan);
    let wanted = Cause::Budget { which: BudgetKind::Tokens, used: 110.0, limit: 100.0 };
    assert_eq!(exit.cause, wanted);
    assert_eq!((exit.usage.input_tokens, exit.usage.cost_usd), (Some(110), None));
    assert_eq!(summary(&bench.step()).unwrap().usage, exit.usage);
}

#[test]
fn what_lingers_after_its_last_word_is_ended() {
    let bench = Bench::new();
    let facts = r#"echo '{"fact":"session","id":"s-1"}'; echo '{"fact":"final","ok":true,"text":"done"}'"#;
    let mut plan = bench.plan(&format!("{facts}; exec sleep 300"));
    plan.parser = "workspool".into();
    plan.deadlines.final_ms = 200;
    let exit = bench.run_plan(&plan);
    assert_eq!((exit.cause, exit.ended), (Cause::Lingered, Ended::Signaled { signal: 15 }));
    assert_eq!(exit.said.session.as_deref(), Some("s-1"));
    assert_eq!((exit.said.final_ok, exit.said.answer.as_deref()), (Some(true), Some("done")));
    assert_eq!(exit.facts.total, 2);
}

#[test]
fn a_cancel_that_was_there_before_ends_the_run_at_once() {
    let bench = Bench::new();
    bench.cancel();
    let exit = bench.run("exec sleep 300");
    assert_eq!((exit.ended, exit.cause), (Ended::Signaled { signal: 15 }, Cause::Cancelled));
}

/// Leaves seven processes that hide in every way that a shell knows, and writes down who they are.
const STRAYS: &str = r#"
    P=$PWD/pids; S='echo $$ >> "$1"; exec sleep 300'
    sh -c "$S" x "$P" &
    setsid sh -c "$S" x "$P" &
    env -i setsid /bin/sh -c "$S" x "$P" &
    nohup sh -c "$S" x "$P" > /dev/null 2>&1 &
    (setsid sh -c "(sh -c '$S' x '$P' &) &" &)
    (env -i setsid /bin/sh -c "(sh -c '$S' x '$P' &) &" &)
    sh -c 'trap "" TERM; echo $$ >> "$1"; while :; do sleep 0.1; done' x "$P" &
    while [ "$(cat "$P" 2>/dev/null | wc -l)" -lt 7 ]; do sleep 0.01; done
"#;

fn strays_are_ended(use_cgroup: bool, cancel: bool) {
    let bench = Bench::new();
    let end = if cancel { "touch ready; exec sleep 300" } else { "exit 0" };
    let mut plan = bench.plan(&format!("{STRAYS}\n{end}"));
    plan.grace_ms = 100;
    plan.use_cgroup = use_cgroup;
    let mut keeper = bench.launch(&plan);
    if cancel {
        until("the strays run", || bench.work().join("ready").exists());
        bench.cancel();
        assert!(hasten(&bench.step()).unwrap());
    }
    keeper.wait().unwrap();
    let exit = bench.ended();
    assert!(exit.census.is_empty(), "{exit:?}");
    match bench.start().unwrap().cgroup {
        Some(dir) => {
            assert_eq!(exit.census.method, CensusMethod::Kernel);
            assert!(use_cgroup && !dir.exists(), "the group is removed");
        }
        None => assert_eq!(exit.census.method, CensusMethod::Subreaper),
    }
    let left_over: BTreeSet<u32> = exit.left_over.iter().map(|s| s.pid).collect();
    let strays = bench.pids();
    assert_eq!(strays.len(), 7);
    for pid in strays {
        assert_eq!(Identity::of(pid).unwrap(), None, "{pid} lives");
        assert!(left_over.contains(&pid), "{pid} is not among {left_over:?}");
    }
    let wanted = if cancel { Cause::Cancelled } else { Cause::Exit };
    assert_eq!(exit.cause, wanted);
}

#[test]
fn strays_are_ended_after_success() {
    strays_are_ended(false, false);
}

#[test]
fn strays_are_ended_after_cancel() {
    strays_are_ended(false, true);
}

#[test]
fn strays_are_ended_in_a_control_group_where_there_is_one() {
    strays_are_ended(true, false);
    strays_are_ended(true, true);
}

#[test]
fn a_fork_storm_is_ended() {
    let bench = Bench::new();
    let storm = "i=0; while [ $i -lt 150 ]; do setsid sh -c 'sleep 300' & sleep 0.002; i=$((i+1)); done";
    let mut plan = bench.plan(&format!("({storm}) & ({storm}) & touch ready; exec sleep 300"));
    plan.grace_ms = 0;
    plan.use_cgroup = false;
    let mut keeper = bench.launch(&plan);
    until("it storms", || bench.work().join("ready").exists());
    bench.cancel();
    keeper.wait().unwrap();
    let exit = bench.ended();
    assert!(exit.census.is_empty(), "{exit:?}");
    assert_eq!(bench.marked(&plan), 0);
}

#[test]
fn a_pipe_held_open_does_not_hold_the_run_open() {
    let bench = Bench::new();
    let mut plan = bench.plan("sleep 300 & echo done; exit 4");
    plan.grace_ms = 60_000;
    let exit = bench.run_plan(&plan);
    assert_eq!(exit.ended, Ended::Exited { code: 4 });
    assert_eq!(exit.stdout_tail.trim(), "done");
    assert_eq!(exit.left_over.len(), 1);
    assert!(exit.elapsed_ms < 30_000);
}

fn is_read_with_little_memory(flood: &str) {
    let bench = Bench::new();
    let mut plan = bench.plan(&format!("{flood}; echo; echo end; grep VmHWM /proc/$PPID/status > peak"));
    plan.output_cap_bytes = 1 << 20;
    let exit = bench.run_plan(&plan);
    assert_eq!(exit.ended, Ended::Exited { code: 0 });
    assert!(exit.stdout_tail.trim_end().ends_with("end"), "{:?}", exit.stdout_tail);
    let output = exit.output.unwrap();
    assert_eq!(output.bytes_out, 300_000_005);
    assert!(output.cut_out > 298_000_000 && output.cut_out < 300_000_000);
    let peak = fs::read_to_string(bench.work().join("peak")).unwrap();
    let kib: u64 = peak.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(kib < 64 << 10, "{kib} KiB");
    let log = fs::metadata(bench.step().join("log.jsonl")).unwrap().len();
    assert!(log < 4 << 20, "{log} bytes of log");
}

#[test]
fn a_flood_is_read_with_little_memory() {
    let line = "0123456789abcdef ".repeat(20);
    is_read_with_little_memory(&format!("yes '{line}' | head -c 300000000"));
}

#[test]
fn an_endless_line_is_read_with_little_memory() {
    is_read_with_little_memory("head -c 300000000 /dev/zero | tr '\\0' x");
}

#[test]
fn bytes_that_are_no_text_hurt_nothing() {
    let exit = Bench::new().run(r"printf 'a\377\000\nb\n'; printf '\303' >&2; exit 2");
    assert_eq!(exit.ended, Ended::Exited { code: 2 });
    assert!(exit.stdout_tail.trim_end().ends_with('b'));
}

#[test]
fn secrets_are_masked_in_all_that_is_written() {
    let bench = Bench::new();
    fs::write(bench.path("env"), "DB_PASSWORD=swordfish-77\n").unwrap();
    let mut plan = bench.plan("echo t=$SOME_API_KEY p=swordfish-77 m=$PLAIN >&2");
    plan.env.insert("SOME_API_KEY".into(), "opensesame-4711".into());
    plan.env.insert("PLAIN".into(), "masked-by-name-9".into());
    plan.mask_env = vec!["PLAIN".into()];
    plan.mask_files = vec![bench.path("env"), bench.path("no-such-file")];
    bench.run_plan(&plan);
    for name in ["log.jsonl", "exit.json"] {
        let text = fs::read_to_string(bench.step().join(name)).unwrap();
        assert!(text.contains("t="), "{name}: {text}");
        for secret in ["opensesame-4711", "swordfish-77", "masked-by-name-9"] {
            assert!(!text.contains(secret), "{secret} is in {name}");
        }
    }
}

#[test]
fn signals_that_end_services_do_not_end_the_keeper() {
    let bench = Bench::new();
    let mut keeper = bench.launch(&bench.plan("touch up; while [ ! -e go ]; do sleep 0.02; done; exit 3"));
    until("the command runs", || bench.work().join("up").exists());
    let id = Identity::of(keeper.id()).unwrap().unwrap();
    let signals = [Signal::TERM, Signal::HUP, Signal::INT, Signal::QUIT, Signal::PIPE, Signal::USR1];
    for signal in signals {
        assert!(id.signal(signal).unwrap());
    }
    fs::write(bench.work().join("go"), "").unwrap();
    keeper.wait().unwrap();
    assert_eq!(bench.ended().ended, Ended::Exited { code: 3 });
}

#[test]
fn progress_is_reported_while_it_runs() {
    let bench = Bench::new();
    let mut plan = bench.plan("echo hello; while [ ! -e go ]; do sleep 0.02; done");
    plan.progress = Some(bench.path("progress.json"));
    let mut keeper = bench.launch(&plan);
    let read =
        || -> Option<Progress> { serde_json::from_slice(&fs::read(bench.path("progress.json")).ok()?).ok() };
    until("the line is shown", || read().is_some_and(|p| p.last_line.as_deref() == Some("hello")));
    let progress = read().unwrap();
    assert_eq!((progress.phase, progress.step.as_str(), progress.attempt), (Phase::Running, "work", 1));
    fs::write(bench.work().join("go"), "").unwrap();
    keeper.wait().unwrap();
    assert_eq!(read().unwrap().phase, Phase::Ending);
}

#[test]
fn a_log_that_cannot_be_written_is_said_and_the_run_goes_on() {
    let bench = Bench::new();
    fs::create_dir(bench.step().join("log.jsonl")).unwrap();
    let exit = bench.run("echo x; exit 6");
    assert_eq!(exit.ended, Ended::Exited { code: 6 });
    assert_eq!(exit.output, None);
    assert!(exit.write_error.unwrap().contains("log"));
}

#[test]
fn publishing_the_end_is_tried_again_and_the_run_is_not() {
    let bench = Bench::new();
    let script = format!("mkdir '{}'; echo run >> runs; exit 8", bench.step().join("exit.json").display());
    let mut keeper = bench.launch(&bench.plan(&script));
    until("it has run", || bench.work().join("runs").exists());
    let worker = || bench.start().and_then(|s| s.worker);
    until("it has ended", || worker().is_some_and(|w| w.liveness().unwrap() == Liveness::Dead));
    assert!(keeper.try_wait().unwrap().is_none(), "the keeper holds on");
    fs::remove_dir(bench.step().join("exit.json")).unwrap();
    keeper.wait().unwrap();
    assert_eq!(bench.ended().ended, Ended::Exited { code: 8 });
    assert_eq!(fs::read_to_string(bench.work().join("runs")).unwrap(), "run\n");
}

#[test]
fn the_stop_command_runs_at_the_end_and_its_failure_is_said() {
    let bench = Bench::new();
    let mut plan = bench.plan("exit 0");
    plan.stop = Some(["sh", "-c", "touch stopped"].map(str::to_owned).to_vec());
    assert_eq!(bench.run_plan(&plan).stop_error, None);
    assert!(bench.work().join("stopped").exists());

    let bench = Bench::new();
    let mut plan = bench.plan("exec sleep 300");
    plan.stop = Some(["sh", "-c", "touch stopped; exit 9"].map(str::to_owned).to_vec());
    bench.cancel();
    let exit = bench.run_plan(&plan);
    assert!(exit.stop_error.unwrap().contains('9'));
    assert!(bench.work().join("stopped").exists());
    assert_eq!(exit.cause, Cause::Cancelled);
}

#[test]
fn a_step_is_never_started_twice() {
    let bench = Bench::new();
    let plan = bench.plan("touch up; while [ ! -e go ]; do sleep 0.02; done");
    assert_eq!(state(&bench.step()).unwrap(), StepState::NotStarted);
    let mut keeper = bench.launch(&plan);
    assert!(bench.try_launch(&plan).unwrap_err().to_string().contains("runs this step already"));
    until("the command runs", || bench.work().join("up").exists());
    fs::write(bench.work().join("go"), "").unwrap();
    let ended = workspool::keeper::wait(&mut keeper, &bench.step()).unwrap();
    assert!(matches!(ended, StepState::Ended(_)));
    assert!(bench.try_launch(&plan).unwrap_err().to_string().contains("started before"));
}

#[test]
fn a_plan_of_another_version_is_complained_of() {
    let bench = Bench::new();
    let mut plan = bench.plan("touch ran");
    plan.version = 99;
    let mut keeper = bench.launch(&plan);
    let state = workspool::keeper::wait(&mut keeper, &bench.step()).unwrap();
    assert_eq!(state, StepState::NotStarted);
    assert!(complaints(&bench.step()).unwrap().contains("version 99"));
    assert!(!bench.work().join("ran").exists());
}

/// A control group (v1) in which processes are frozen: not even KILL ends them then.
struct Freezer(std::path::PathBuf);

impl Freezer {
    fn create(name: &str) -> Option<Freezer> {
        let dir = format!("/sys/fs/cgroup/freezer/workspool-{name}-{}", std::process::id());
        fs::create_dir(&dir).ok()?;
        Some(Freezer(dir.into()))
    }

    fn freeze(&self, pid: u32) {
        fs::write(self.0.join("cgroup.procs"), pid.to_string()).unwrap();
        self.set("FROZEN");
        until("it is frozen", || self.state() == "FROZEN");
    }

    fn set(&self, state: &str) {
        fs::write(self.0.join("freezer.state"), state).unwrap();
    }

    fn state(&self) -> String {
        fs::read_to_string(self.0.join("freezer.state")).unwrap().trim().to_owned()
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        let _ = fs::write(self.0.join("freezer.state"), "THAWED");
        for _ in 0..200 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
}

#[test]
fn while_something_cannot_be_killed_the_keeper_stays() {
    let Some(freezer) = Freezer::create("stays") else {
        eprintln!("not tested: no process can be made unkillable here");
        return;
    };
    let bench = Bench::new();
    let mut plan = bench.plan("echo $$ > pids; exec sleep 300");
    plan.grace_ms = 100;
    plan.progress = Some(bench.path("progress.json"));
    let mut keeper = bench.launch(&plan);
    until("it runs", || fs::read_to_string(bench.work().join("pids")).is_ok_and(|t| t.ends_with('\n')));
    let pid = bench.pids()[0];
    freezer.freeze(pid);
    bench.cancel();
    until("it is said", || bench.start().is_some_and(|s| !s.unkillable.is_empty()));
    assert_eq!(bench.start().unwrap().unkillable[0].pid, pid);
    let progress = || fs::read_to_string(bench.path("progress.json")).unwrap();
    until("readers are told", || progress().contains("unkillable"));
    assert!(keeper.try_wait().unwrap().is_none());
    assert!(matches!(state(&bench.step()).unwrap(), StepState::Running(_)), "the lease is not given up");
    freezer.set("THAWED");
    keeper.wait().unwrap();
    let exit = bench.ended();
    // TERM was sent before KILL, and both were waiting for it.
    assert!(matches!(exit.ended, Ended::Signaled { signal: 9 | 15 }), "{:?}", exit.ended);
    assert!(exit.census.is_empty());
}

#[test]
fn what_stays_unkillable_is_recorded_in_the_end() {
    // Dropped last, so that the freezer lets go first.
    let bench = Bench::new();
    let Some(freezer) = Freezer::create("recorded") else {
        eprintln!("not tested: no process can be made unkillable here");
        return;
    };
    let mut plan = bench.plan("echo $$ > pids; exec sleep 300");
    plan.grace_ms = 0;
    plan.unkillable_ms = 1;
    plan.use_cgroup = false;
    let mut keeper = bench.launch(&plan);
    until("it runs", || fs::read_to_string(bench.work().join("pids")).is_ok_and(|t| t.ends_with('\n')));
    freezer.freeze(bench.pids()[0]);
    bench.cancel();
    keeper.wait().unwrap();
    let exit = bench.ended();
    assert_eq!(exit.ended, Ended::StillRunning);
    assert_eq!(exit.census.survivors.len(), 1);
    assert_eq!(exit.census.survivors[0].pid, bench.pids()[0]);
}
