//! The life of a task with a fault at every point at which a process of ours touches the world.
//!
//! For each scenario a clean run tells how many points there are. Then, for every point: the process is
//! killed there, or gets ENOSPC, EIO or EACCES; everything is started again without a fault; and the
//! invariants must hold. By default a sample of the cases is taken, to fit in a minute or two (another one
//! with another number in `WORKSPOOL_FAULTS_START`); `WORKSPOOL_FAULTS_JOBS` is how many run at once;
//! `WORKSPOOL_FAULTS=all` takes them all, `WORKSPOOL_FAULTS=<scenario>` all of one scenario, and
//! `WORKSPOOL_FAULTS=<scenario>/<point>/<what>` one, and `<scenario>//<what>` one fault at all of its points.

#![allow(clippy::unwrap_used, reason = "a test may panic anywhere, also in its helpers")]

mod bench;
mod budget;
#[cfg(target_os = "linux")]
mod instants;
#[cfg(target_os = "linux")]
mod power;
mod scenarios;
#[cfg(target_os = "linux")]
mod storm;

use bench::{Bench, Fault};
use scenarios::{SCENARIOS, Scenario};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Faults that are tried at each point of the full set.
const ALL: [&str; 4] = ["kill", "enospc", "eio", "eacces"];

/// How many cases the short run takes.
const SHORT: usize = 240;

struct Case {
    scenario: &'static Scenario,
    fault: Fault,
    name: String,
}

#[test]
fn nothing_is_lost_and_nothing_happens_twice() {
    let only = std::env::var("WORKSPOOL_FAULTS").unwrap_or_default();
    let cases = cases(&only);
    assert!(!cases.is_empty(), "there is no scenario {only:?}");
    let (next, hits) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let failures = Mutex::new(Vec::new());
    std::panic::set_hook(Box::new(|_| {}));
    std::thread::scope(|scope| {
        for _ in 0..at_once() {
            scope.spawn(|| {
                while let Some((k, case)) = take(&cases, &next) {
                    if k > 0 && k % 200 == 0 {
                        eprintln!("{k} of {} cases, {} failed", cases.len(), failures.lock().unwrap().len());
                    }
                    match catch_unwind(AssertUnwindSafe(|| run(case))) {
                        Ok(hit) => drop(hits.fetch_add(usize::from(hit), Ordering::SeqCst)),
                        Err(panic) => {
                            failures.lock().unwrap().push(format!("{}\n{}", case.name, text(&panic)))
                        }
                    }
                }
            });
        }
    });
    let _ = std::panic::take_hook();
    let failures = failures.into_inner().unwrap();
    let hits = hits.into_inner();
    assert!(
        failures.is_empty(),
        "{} of {} cases failed:\n\n{}",
        failures.len(),
        cases.len(),
        failures.join("\n\n")
    );
    assert!(hits * 10 >= cases.len() * 9, "only {hits} of {} faults came to pass", cases.len());
}

fn at_once() -> usize {
    let wanted = std::env::var("WORKSPOOL_FAULTS_JOBS").ok().and_then(|n| n.parse().ok());
    wanted.unwrap_or_else(|| std::thread::available_parallelism().map_or(2, usize::from).min(8))
}

fn take<'a>(cases: &'a [Case], next: &AtomicUsize) -> Option<(usize, &'a Case)> {
    let k = next.fetch_add(1, Ordering::SeqCst);
    Some((k, cases.get(k)?))
}

/// Death while a repeated attempt makes its tree: what stands there half made is not the work of the last one,
/// and does not take the place of its salvage.
#[test]
fn a_half_made_tree_does_not_replace_a_salvage() {
    let scenario = SCENARIOS.iter().find(|s| s.name == "retried").unwrap();
    let bench = Bench::new();
    let ready = (scenario.prepare)(&bench);
    let args: Vec<&str> = ready.args.iter().map(String::as_str).collect();
    let points = bench.points(&args, scenario.process);
    // From the salvage of the old tree until a command runs in the new one.
    let [from, to] = ["rmtree", "spawn-keeper"].map(|name| points.iter().position(|p| p == name).unwrap());
    let made: Vec<usize> = (from..to).filter(|k| points[*k] == "git").collect();
    assert!(made.len() > 3, "{points:?}");
    for k in made {
        let fault = Fault { process: scenario.process.into(), point: k + 1, what: "kill" };
        assert!(run(&Case { scenario, name: format!("retried/{}/kill", k + 1), fault }));
    }
}

fn text(panic: &Box<dyn std::any::Any + Send>) -> String {
    panic
        .downcast_ref::<String>()
        .cloned()
        .or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()))
        .unwrap_or_default()
}

/// Runs one case; says whether its fault came to pass.
fn run(case: &Case) -> bool {
    let bench = Bench::new();
    let ready = (case.scenario.prepare)(&bench);
    let args: Vec<&str> = ready.args.iter().map(String::as_str).collect();
    let out = bench.run_with(&args, &case.fault);
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    let after = catch_unwind(AssertUnwindSafe(|| {
        (case.scenario.after)(&bench, &ready, &out);
        bench.drain();
        bench.check();
        (case.scenario.expect)(&bench, &ready, case.fault.what == "kill");
    }));
    if let Err(panic) = after {
        panic!("{}\nthe faulted process said: {said}", text(&panic));
    }
    bench.was_hit()
}

fn cases(only: &str) -> Vec<Case> {
    let mut parts = only.split('/');
    let (name, point, what) = (parts.next().unwrap_or_default(), parts.next(), parts.next());
    let every = only == "all";
    let mut cases = Vec::new();
    for scenario in SCENARIOS {
        if !(only.is_empty() || every || name == scenario.name) {
            continue;
        }
        let bench = Bench::new();
        let ready = (scenario.prepare)(&bench);
        let args: Vec<&str> = ready.args.iter().map(String::as_str).collect();
        let points = bench.points(&args, scenario.process);
        assert!(!points.is_empty(), "{}: no point was passed", scenario.name);
        (scenario.after)(&bench, &ready, &bench.command(&["list"]).output().unwrap());
        bench.drain();
        bench.check();
        (scenario.expect)(&bench, &ready, true);
        for (k, passed) in points.iter().enumerate() {
            for (j, fault) in ALL.into_iter().enumerate() {
                let wanted = match (point, what) {
                    (Some(point), Some(what)) => {
                        (point.is_empty() || point == (k + 1).to_string()) && what == fault
                    }
                    _ if !only.is_empty() => true,
                    _ => k % scenario.thin == 0 && (k / scenario.thin) % 3 == [0, 1, 2, 2][j],
                };
                if wanted {
                    cases.push(Case {
                        scenario,
                        name: format!("{}/{}/{fault} (at {passed})", scenario.name, k + 1),
                        fault: Fault { process: scenario.process.into(), point: k + 1, what: fault },
                    });
                }
            }
        }
    }
    if only.is_empty() && cases.len() > SHORT {
        // Evenly from all scenarios; another start takes others.
        let start: usize =
            std::env::var("WORKSPOOL_FAULTS_START").ok().and_then(|v| v.parse().ok()).unwrap_or(0);
        let all = cases.len();
        let mut k = 0;
        cases.retain(|_| {
            k += 1;
            (k + start) * SHORT / all != (k + start - 1) * SHORT / all
        });
    }
    cases
}
