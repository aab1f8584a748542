//! Power loss: what a real ext4 had on its disk at an instant is all that there is, after another boot.
//!
//! Spool and repository lie on a file system in a file. Each process of ours is held still at each point, and
//! the file is copied as it is: what was written and not synced is not in it. Each copy is then mounted where
//! the first one was, under another boot id. Takes root and loop devices; elsewhere it says that it skips.
//! Some of the instants are taken; `WORKSPOOL_FAULTS=power` takes them all.

use crate::bench::Bench;
use crate::storm::victims;
use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use workspool::model::{State, TaskId};
use workspool::process::{Identity, Signal};

/// How many instants the short run takes.
const SHORT: usize = 20;

/// What the disk had at an instant.
struct Cut {
    image: PathBuf,
    /// Which process was about to do what.
    at: String,
    /// How many submissions were acknowledged.
    acknowledged: usize,
    /// Whose end was told: the ticket was in `done/`.
    ended: Vec<TaskId>,
    /// What workers had done.
    ledger: String,
}

fn run(command: &mut Command) -> Result<(), String> {
    let out = command.output().map_err(|e| e.to_string())?;
    if out.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&out.stderr).into_owned()) }
}

/// Mounts the disk that is in a file, with the spool and the repository.
fn mount(image: &Path, root: &Path) -> Result<(), String> {
    let disk = root.join("disk");
    fs::create_dir_all(&disk).map_err(|e| e.to_string())?;
    // Nothing is written before somebody waits for it, if that can be helped.
    let options = "loop,commit=600,noauto_da_alloc";
    run(Command::new("mount").args(["-t", "ext4", "-o", options]).arg(image).arg(&disk))?;
    for name in ["spool", "repo"] {
        let (from, to) = (disk.join(name), root.join(name));
        let made = fs::create_dir_all(&from).and_then(|()| fs::create_dir_all(&to));
        made.map_err(|e| e.to_string())?;
        run(Command::new("mount").arg("--bind").args([from, to]))?;
    }
    Ok(())
}

fn unmount(root: &Path) {
    for name in ["spool", "repo", "disk"] {
        let _ = run(Command::new("umount").arg(root.join(name)));
    }
}

/// A disk in a file, mounted for this thread and what it starts.
fn disk(root: &Path) -> Result<(), String> {
    // SAFETY: nothing else than what this thread mounts from now on is changed.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNS) }
        .map_err(|e| e.to_string())?;
    run(Command::new("mount").args(["--make-rprivate", "/"]))?;
    let image = root.join("disk.img");
    fs::File::create(&image).and_then(|f| f.set_len(64 << 20)).map_err(|e| e.to_string())?;
    run(Command::new("mkfs.ext4")
        .args(["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"])
        .arg(&image))?;
    mount(&image, root)
}

/// Lets a program and all that it starts go from point to point, and copies the disk at each.
fn step_by_step(bench: &Bench, args: &[&str], acknowledged: usize, cuts: &mut Vec<Cut>) {
    let log = bench.path(&format!("points-{}", args[0]));
    let spool = bench.spool_path();
    let spool = spool.to_str().unwrap();
    let mut child: Child = bench
        .command(args)
        .env("WORKSPOOL_FAULT", "each:stop")
        .env("WORKSPOOL_FAULT_LOG", &log)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let (mut seen, mut waiting, mut ended) = (0, VecDeque::new(), None);
    loop {
        let text = fs::read_to_string(&log).unwrap_or_default();
        let whole = text.rfind('\n').map_or(0, |at| at + 1);
        waiting.extend(text[..whole].lines().skip(seen).map(str::to_owned));
        seen = text[..whole].lines().count();
        let Some(line) = waiting.pop_front() else {
            ended = ended.or_else(|| child.try_wait().unwrap());
            if ended.is_some() && bench.alive().is_empty() && victims(spool).is_empty() {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
            continue;
        };
        let pid: u32 = line.split(' ').next().unwrap().parse().unwrap();
        let who = bench.await_some("the process is held still", || {
            let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return Some(None) };
            match stat.rsplit(')').next()?.trim_start().chars().next()? {
                'T' => Some(Identity::of(pid).ok().flatten()),
                // Killed by another before it was waited for.
                'Z' | 'X' => Some(None),
                _ => None,
            }
        });
        let image = bench.path(&format!("cut-{}.img", cuts.len()));
        let copy = run(Command::new("cp").arg("--sparse=always").args([&bench.path("disk.img"), &image]));
        copy.unwrap();
        let ledger = fs::read_to_string(bench.path("ledger")).unwrap_or_default();
        let at = format!("{} {line}", args[0]);
        cuts.push(Cut { image, at, acknowledged, ended: ended_tasks(bench), ledger });
        if let Some(who) = who {
            let _ = who.signal(Signal::CONT);
        }
    }
    assert!(ended.unwrap().success());
}

/// The tasks whose tickets are in `done/`.
fn ended_tasks(bench: &Bench) -> Vec<TaskId> {
    let of = |folder: PathBuf| fs::read_dir(folder).into_iter().flatten().flatten();
    let tickets = of(bench.spool_path().join("done")).flat_map(|shard| of(shard.path()));
    // <key>-<id>-<repo>-<worker>.<attempt>.<state>
    tickets.filter_map(|t| t.file_name().to_str()?.split('-').nth(1)?.parse().ok()).collect()
}

/// Starts from what the disk had, in another boot, and asks what the spool promises.
fn again(bench: &Bench, cut: &Cut) {
    unmount(&bench.path(""));
    mount(&cut.image, &bench.path("")).unwrap();
    fs::write(bench.path("ledger"), &cut.ledger).unwrap();
    bench.drain();
    // I1, I3, I6 and what `check` knows; nobody is alive; no attempt worked twice.
    bench.check_without_work();
    let ids = bench.ids();
    assert!(ids.len() >= cut.acknowledged, "I2: an acknowledged submission is there: {ids:?}");
    assert!(ids.len() <= cut.acknowledged.max(1), "{ids:?}");
    for id in ids {
        if bench.result(id).state == State::Interrupted {
            // What ran may have done its work: somebody has to ask for it again.
            bench.run(&["retry", &id.to_string()]);
            bench.drain();
            bench.check_without_work();
        }
        let result = bench.result(id);
        assert_eq!(result.state, State::Succeeded, "{}", result.message);
        // I5: what the result says was observed, and can be recomputed from what is there.
        bench.run(&["audit", &id.to_string()]);
        let made = bench.git(&["show", &format!("{}:made.txt", result.commit.unwrap())], &bench.repo());
        assert!(made.contains(&format!("{id}.{}/work.1", result.attempt)), "{made}");
        if cut.ended.contains(&id) {
            assert_eq!(result.attempt, 1, "I1: what had ended is not run again");
            let name = format!("{id}.1/");
            assert_eq!(bench.ledger().iter().filter(|line| line.contains(&name)).count(), 1);
        }
    }
}

#[test]
fn what_is_promised_survives_power_loss() {
    cut_everywhere(1, &["tick", "--quiet"]);
}

#[test]
fn an_end_in_a_journal_survives_power_loss() {
    cut_everywhere(3, &["--set", "max_concurrency=1", "run", "--drain", "--poll", "60s", "--quiet"]);
}

/// Submits so many tasks, lets a runner carry them, and loses the power at each point.
fn cut_everywhere(tasks: usize, runner: &[&str]) {
    let mut why = None;
    let bench = Bench::on(|root| why = disk(root).err());
    if let Some(why) = why {
        eprintln!(
            "skipped: a disk in a file cannot be mounted here ({why}); it takes root and loop devices on Linux"
        );
        return;
    }
    let script = bench.script("true");
    let submit = ["submit", &script, "--repo", ".", "--worker", "shell", "--verify", "test -s made.txt"];
    (1..tasks).for_each(|_| drop(bench.run(&submit)));
    run(Command::new("sync").arg("-f").arg(bench.path("disk"))).unwrap();
    let mut cuts = Vec::new();
    if tasks == 1 {
        step_by_step(&bench, &submit, 0, &mut cuts);
    } else {
        bench.run(&submit);
    }
    let submitted = cuts.len();
    step_by_step(&bench, runner, tasks, &mut cuts);
    assert!(cuts.len() > submitted + 50, "{submitted} of {}", cuts.len());
    assert_eq!(bench.states(), vec![State::Succeeded; tasks]);

    // The end: nothing was waited for but what the supervisor itself waits for.
    let last = bench.path("last.img");
    run(Command::new("cp").arg("--sparse=always").args([&bench.path("disk.img"), &last])).unwrap();
    let boot = bench.path("boot-id");
    fs::write(&boot, "0e8a4c1f-1111-4222-8333-944445555666\n").unwrap();
    run(Command::new("mount").arg("--bind").arg(&boot).arg("/proc/sys/kernel/random/boot_id")).unwrap();
    let ledger = fs::read_to_string(bench.path("ledger")).unwrap();
    let end =
        Cut { image: last, at: "the end".into(), acknowledged: tasks, ended: ended_tasks(&bench), ledger };
    assert_eq!(end.ended.len(), tasks);
    again(&bench, &end);
    let every = match std::env::var("WORKSPOOL_FAULTS").as_deref() {
        Ok("power" | "all") => 1,
        _ => cuts.len().div_ceil(SHORT),
    };
    let mut failures = Vec::new();
    for (k, cut) in cuts.iter().enumerate().skip(submitted % every).step_by(every) {
        let held = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| again(&bench, cut)));
        if let Err(panic) = held {
            let text = panic.downcast_ref::<String>().cloned().unwrap_or_default();
            failures.push(format!("power lost at {k} ({}): {text}", cut.at));
        }
    }
    unmount(&bench.path(""));
    assert!(failures.is_empty(), "{} of {}:\n{}", failures.len(), cuts.len(), failures.join("\n"));
}
