//! What happens at one instant of another process: it is held still at a point, something is done, and it
//! goes on.

use crate::bench::Bench;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::Duration;
use workspool::model::{Class, Phase, State, TaskId};
use workspool::process::{Identity, Signal};

const DRAIN: [&str; 5] = ["run", "--drain", "--poll", "50ms", "--quiet"];

/// A process that is held still at a point, and what was started to get it there.
struct Still<'b> {
    bench: &'b Bench,
    log: PathBuf,
    who: Identity,
    child: Child,
}

impl<'b> Still<'b> {
    /// Runs the program until one of the meant processes is at its point number `at`, from 1.
    fn hold(bench: &'b Bench, args: &[&str], process: &str, at: usize) -> Still<'b> {
        let log = bench.path("still");
        let child = bench
            .command(args)
            .env("WORKSPOOL_FAULT", format!("{at}:stop"))
            .env("WORKSPOOL_FAULT_PROCESS", process)
            .env("WORKSPOOL_FAULT_ONCE", bench.path("fault-hit"))
            .env("WORKSPOOL_FAULT_LOG", &log)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let who = bench.await_some("a process is held still", || {
            let text = fs::read_to_string(&log).ok()?;
            let pid = text.lines().find(|l| l.split(' ').nth(1) == Some(&at.to_string()))?;
            let pid: u32 = pid.split(' ').next()?.parse().ok()?;
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            let still = stat.rsplit(')').next()?.trim_start().starts_with('T');
            Identity::of(pid).ok().flatten().filter(|_| still)
        });
        Still { bench, log, who, child }
    }

    /// Lets it go on, and waits for the end of all. Returns the points that it passed from then on.
    fn go_on(mut self) -> Vec<String> {
        let seen = fs::read_to_string(&self.log).unwrap().lines().count();
        self.who.signal(Signal::CONT).unwrap();
        let status = self.bench.await_some("the program has ended", || self.child.try_wait().unwrap());
        assert!(status.success(), "{status}");
        let text = fs::read_to_string(&self.log).unwrap();
        let its = format!("{} ", self.who.pid);
        let later = text.lines().skip(seen).filter(|l| l.starts_with(&its));
        later.map(|l| l.split(' ').nth(2).unwrap().to_owned()).collect()
    }
}

impl Drop for Still<'_> {
    fn drop(&mut self) {
        let _ = self.who.signal(Signal::CONT);
    }
}

fn id_of(said: &str) -> TaskId {
    said.split_whitespace().next().unwrap().parse().unwrap()
}

/// One task that has ended, and one that waits.
fn one_ended(bench: &Bench) -> TaskId {
    let submit = ["submit", "exit 3", "--worker", "shell", "--workspace", "temporary"];
    bench.run(&submit);
    bench.drain();
    submitted(bench, &submit)
}

/// Submits a task, and has it expanded: how often whoever starts it waits for the disk does not depend on who is faster then.
fn submitted(bench: &Bench, args: &[&str]) -> TaskId {
    let id = id_of(&bench.run(args));
    bench.run(&["list"]);
    id
}

/// The newest folder of `done/` is emptied and removed while somebody is about to put a ticket into it.
#[test]
fn a_folder_of_ended_tasks_that_is_pruned_away_is_made_again() {
    let clean = Bench::new();
    one_ended(&clean);
    let points = clean.points(&DRAIN, "exec");
    // The last move of a ticket.
    let at = points.windows(3).rposition(|w| w == ["rename", "sync-dir", "sync-dir"]).unwrap() + 1;

    let bench = Bench::new();
    let id = one_ended(&bench);
    let still = Still::hold(&bench, &DRAIN, "exec", at);
    bench.run(&["prune", "--older-than", "0s", "--apply"]);
    assert!(!bench.spool_path().join("done/000001").exists(), "what was in it is pruned");
    let listed = bench.run(&["list"]);
    assert!(listed.contains("running"), "{listed}");
    still.go_on();
    assert_eq!(bench.ids(), [id]);
    assert_eq!(bench.states(), [State::Failed]);
    assert_eq!(fs::read_dir(bench.spool_path().join("done/000001")).unwrap().count(), 1);
    let trouble = bench.spool().task(id).path().join("supervisor.err");
    assert!(!trouble.exists(), "{}", fs::read_to_string(&trouble).unwrap());
    bench.check_without_work();
}

/// A cancel does not wait for the end of a large file.
#[test]
fn a_copy_is_stopped_inside_a_file() {
    const PIECES: usize = 6;
    let ready = |bench: &Bench| {
        fs::File::create(bench.repo().join("big.bin")).unwrap().set_len((PIECES as u64 * 8) << 20).unwrap();
        submitted(bench, &["submit", "true", "--worker", "shell", "--repo", ".", "--workspace", "copy"])
    };
    let clean = Bench::new();
    ready(&clean);
    let points = clean.points(&DRAIN, "exec");
    let big = points.windows(PIECES).position(|w| w.iter().all(|p| p == "copy"));
    let at = big.expect("a large file is copied in pieces") + 3;

    let bench = Bench::new();
    let id = ready(&bench);
    let still = Still::hold(&bench, &DRAIN, "exec", at);
    bench.run(&["cancel", &id.to_string()]);
    // The request is looked for no more often than each 100 ms.
    std::thread::sleep(Duration::from_millis(150));
    let later = still.go_on();
    assert!(!later.iter().any(|p| p == "copy"), "it went on: {later:?}");
    let result = bench.result(id);
    assert_eq!((result.state, result.phase), (State::Cancelled, Some(Phase::Preparing)));
    assert_eq!(result.class, None::<Class>);
    bench.check();
}
