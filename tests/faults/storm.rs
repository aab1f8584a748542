//! Many runners under a storm of SIGKILL: each task ends once, each attempt works at most once, nobody is
//! left, and the spool is sound.
//!
//! Victims are found by what they recorded: supervisors and keepers by their command lines under `/proc`
//! that name this very spool, and are killed only through a handle on the process that was looked at.

use crate::bench::Bench;
use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use workspool::model::State;
use workspool::process::{Identity, Signal};

/// A number from the environment, for the long version.
fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default)
}

/// Numbers that look random, the same for the same seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % n as u64).unwrap()
    }
}

/// Supervisors and keepers of a spool.
pub fn victims(spool: &str) -> Vec<Identity> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse::<u32>().ok()) else { continue };
        let Ok(Some(who)) = Identity::of(pid) else { continue };
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let args: Vec<&[u8]> = line.split(|b| *b == 0).collect();
        let ours = args.get(1).is_some_and(|verb| [&b"exec"[..], b"keep"].contains(verb))
            && args.iter().any(|a| a.starts_with(spool.as_bytes()));
        if ours {
            found.push(who);
        }
    }
    found
}

fn runner(bench: &Bench) -> Child {
    let mut command: Command = bench.command(&["run", "--poll", "100ms", "--quiet"]);
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

#[test]
fn tasks_end_once_under_a_storm_of_kills() {
    let tasks = usize::try_from(number("WORKSPOOL_STORM_TASKS", 60)).unwrap();
    let time = Duration::from_secs(number("WORKSPOOL_STORM_SECONDS", 12));
    let runners = usize::try_from(number("WORKSPOOL_STORM_RUNNERS", 8)).unwrap();
    let seed = number("WORKSPOOL_STORM_SEED", u64::from(std::process::id()) | 1);
    println!("seed {seed}");
    let mut dice = Dice(seed);
    let bench = Bench::new();
    let config = bench.spool_path().join("config.toml");
    let text = fs::read_to_string(&config).unwrap();
    // An attempt that is killed must never be the last one.
    let text = text.replace("[defaults]", "max_concurrency = 8\n[defaults]\nretries = 1000");
    fs::write(&config, text).unwrap();
    let ledger = bench.path("ledger");
    let lines: Vec<String> = (0..tasks)
        .map(|_| {
            let script = format!("echo \"$WORKSPOOL_ATTEMPT\" >> '{}'; sleep 0.7", ledger.display());
            serde_json::json!({ "objective": script, "worker": "shell", "workspace": "temporary" })
                .to_string()
        })
        .collect();
    let file = bench.path("tasks.jsonl");
    fs::write(&file, lines.join("\n") + "\n").unwrap();
    bench.run(&["submit", "--file", file.to_str().unwrap()]);

    let spool = bench.spool_path().canonicalize().unwrap();
    let spool = spool.to_str().unwrap();
    let mut loops: Vec<Child> = (0..runners).map(|_| runner(&bench)).collect();
    let (began, mut kills, mut runners_killed) = (Instant::now(), 0, 0);
    while began.elapsed() < time {
        std::thread::sleep(Duration::from_millis(20 + dice.below(60) as u64));
        if dice.below(5) == 0 {
            let k = dice.below(loops.len());
            loops[k].kill().unwrap();
            loops[k].wait().unwrap();
            loops[k] = runner(&bench);
            runners_killed += 1;
            continue;
        }
        let victims = victims(spool);
        if !victims.is_empty() {
            let victim = &victims[dice.below(victims.len())];
            kills += usize::from(victim.signal(Signal::KILL).unwrap_or(false));
        }
    }
    for mut child in loops {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    assert!(kills > 20, "only {kills} supervisors and keepers were killed");
    bench.drain();
    let ids = bench.ids();
    assert_eq!(ids.len(), tasks);
    for id in &ids {
        assert_eq!(bench.spool().state_of(*id).unwrap(), State::Succeeded, "seed {seed}: {id}");
    }
    bench.check_without_work();
    let ledger = bench.ledger();
    for id in &ids {
        let result = bench.result(*id);
        let worked = ledger.iter().filter(|l| l.contains(&format!("{id}.{}/work.1", result.attempt))).count();
        assert_eq!(worked, 1, "seed {seed}: the attempt that succeeded worked {worked} times");
    }
    let left = victims(spool);
    assert!(left.is_empty(), "seed {seed}: {left:?}");
    println!(
        "{runners_killed} runners and {kills} supervisors and keepers killed, {} attempts worked at {tasks} tasks",
        ledger.len()
    );
}
