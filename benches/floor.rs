//! The floor that workspool is measured against: what the same work costs with nothing around it; and the
//! stop-watch that both are measured with. `scripts/bench/run` is what calls it.
//!
//! ```text
//! floor nothing                         a program that does nothing
//! floor stamp FILE                      appends the monotonic time at its first instruction
//! floor tick FILE                       appends one byte: lost and double runs are counted so
//! floor enqueue DIR WORD…               one durable submission: file synced, renamed, folder synced
//! floor drain N SLOTS DIR PROGRAM ARG…  N durable lives of a task: claim, run, synced result, done
//! floor serve DIR PROGRAM ARG…          waits for files in DIR, claims each and runs the program
//! floor compare ROUNDS -- CMD… -- CMD…  times whole commands in turns; JSON
//! floor pickup ROUNDS -- FILE CMD… -- … times from the start of a command to the stamp in FILE; JSON
//! floor wait FILE BYTES SECONDS         waits for a file to grow; prints the milliseconds
//! ```

use notify::{RecursiveMode, Watcher as _};
use std::error::Error;
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

type Done = Result<(), Box<dyn Error>>;

fn main() -> Done {
    let begun = now();
    let args: Vec<String> = std::env::args().skip(1).collect();
    let arg = |k: usize| args.get(k).map(String::as_str).unwrap_or_default();
    let path = |k: usize| PathBuf::from(arg(k));
    match arg(0) {
        "stamp" => append(&path(1), format!("{begun}\n").as_bytes()),
        "tick" => append(&path(1), b"."),
        "enqueue" => enqueue(&path(1), &args[2..]),
        "drain" => drain(arg(1).parse()?, arg(2).parse()?, &path(3), &args[4..]),
        "serve" => serve(&path(1), &args[2..]),
        "compare" => compare(arg(1).parse()?, &commands(&args[2..])),
        "pickup" => pickup(arg(1).parse()?, &commands(&args[2..])),
        "wait" => wait(&path(1), arg(2).parse()?, arg(3).parse()?),
        // `cargo bench` and `nothing`.
        _ => Ok(()),
    }
}

/// Nanoseconds of the clock that all processes share.
fn now() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    t.tv_sec.unsigned_abs() * 1_000_000_000 + t.tv_nsec.unsigned_abs()
}

fn append(path: &Path, bytes: &[u8]) -> Done {
    Ok(OpenOptions::new().append(true).create(true).open(path)?.write_all(bytes)?)
}

/// Two kilobytes under a name of its own, as durable as a submission of ours.
fn enqueue(dir: &Path, words: &[String]) -> Done {
    let nanos = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_nanos();
    let id = format!("{nanos:020}-{}", std::process::id());
    let mut text = format!("{{\"id\":\"{id}\",\"words\":{words:?},\"pad\":\"");
    text.push_str(&"p".repeat(2046_usize.saturating_sub(text.len())));
    text.push_str("\"}");
    write_synced(dir, &format!("{id}.json"), text.as_bytes())?;
    File::open(dir)?.sync_all()?;
    println!("{id}");
    Ok(())
}

fn write_synced(dir: &Path, name: &str, bytes: &[u8]) -> Done {
    let tmp = dir.join(format!(".{name}.tmp"));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&tmp)?;
    file.write_all(bytes)?;
    file.sync_data()?;
    fs::rename(&tmp, dir.join(name))?;
    Ok(())
}

fn drain(n: usize, slots: usize, dir: &Path, argv: &[String]) -> Done {
    let at = |folder: &str| dir.join(folder);
    for folder in ["new", "run", "done", "result"] {
        fs::create_dir_all(at(folder))?;
    }
    let text = "p".repeat(2048);
    for k in 0..n {
        fs::write(at("new").join(format!("{k:08}")), &text)?;
    }
    let begun = Instant::now();
    let mut live: Vec<(Child, String)> = Vec::new();
    let mut next = (0..n).map(|k| format!("{k:08}"));
    loop {
        while live.len() < slots
            && let Some(name) = next.next()
        {
            fs::rename(at("new").join(&name), at("run").join(&name))?;
            let _task = fs::read(at("run").join(&name))?;
            live.push((command(argv)?.spawn()?, name));
        }
        if live.is_empty() {
            break;
        }
        let (pid, _) = rustix::process::wait(rustix::process::WaitOptions::empty())?.ok_or("no child")?;
        let pid = pid.as_raw_nonzero().get().unsigned_abs();
        if let Some(k) = live.iter().position(|(child, _)| child.id() == pid) {
            let (_, name) = live.swap_remove(k);
            write_synced(&at("result"), &name, text.as_bytes())?;
            fs::rename(at("run").join(&name), at("done").join(&name))?;
        }
    }
    println!("{}", begun.elapsed().as_secs_f64() * 1e3);
    Ok(())
}

fn serve(dir: &Path, argv: &[String]) -> Done {
    let claimed = dir.with_extension("claimed");
    fs::create_dir_all(dir)?;
    fs::create_dir_all(&claimed)?;
    let (tell, told) = std::sync::mpsc::channel();
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        drop(tell.send(event));
    })?;
    watcher.watch(dir, RecursiveMode::NonRecursive)?;
    for event in told {
        // Looking into the folder is an event of the folder itself.
        for path in event?.paths.into_iter().filter(|path| !path.is_dir()) {
            let Some(name) = path.file_name().filter(|n| !n.as_encoded_bytes().starts_with(b".")) else {
                continue;
            };
            if fs::rename(&path, claimed.join(name)).is_ok() {
                command(argv)?.spawn()?.wait()?;
            }
        }
    }
    Ok(())
}

fn command(argv: &[String]) -> Result<Command, Box<dyn Error>> {
    let (program, args) = argv.split_first().ok_or("no command")?;
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    Ok(command)
}

/// Splits `-- a b -- c d` into commands.
fn commands(args: &[String]) -> Vec<Vec<String>> {
    let parts = args.split(|arg| arg == "--").filter(|part| !part.is_empty());
    parts.map(<[String]>::to_vec).collect()
}

/// Runs each command once a round, so that what disturbs the machine disturbs all alike.
fn compare(rounds: usize, commands: &[Vec<String>]) -> Done {
    let mut times = vec![Vec::new(); commands.len()];
    let mut failed = 0;
    for _ in 0..rounds {
        for (argv, times) in commands.iter().zip(&mut times) {
            let begun = Instant::now();
            failed += usize::from(!command(argv)?.status()?.success());
            times.push(begun.elapsed().as_secs_f64() * 1e3);
        }
    }
    tell(times, failed);
    Ok(())
}

fn pickup(rounds: usize, commands: &[Vec<String>]) -> Done {
    let mut times = vec![Vec::new(); commands.len()];
    let mut failed = 0;
    for round in 0..rounds {
        for (argv, times) in commands.iter().zip(&mut times) {
            let (file, argv) = argv.split_first().ok_or("no command")?;
            let _ = fs::remove_file(file);
            // Whatever went before has come to rest, and no period of anybody's is met in step.
            std::thread::sleep(Duration::from_millis(60 + (round as u64 * 37) % 41));
            let begun = now();
            if !command(argv)?.status()?.success() {
                failed += 1;
                continue;
            }
            match stamp(Path::new(file)) {
                Some(at) => times.push(at.saturating_sub(begun) as f64 / 1e6),
                None => failed += 1,
            }
        }
    }
    tell(times, failed);
    Ok(())
}

/// The stamp in a file, once it is there.
fn stamp(file: &Path) -> Option<u64> {
    let until = Instant::now() + Duration::from_secs(20);
    while Instant::now() < until {
        if let Ok(text) = fs::read_to_string(file)
            && text.ends_with('\n')
        {
            return text.trim().parse().ok();
        }
        std::thread::sleep(Duration::from_micros(300));
    }
    None
}

fn tell(times: Vec<Vec<f64>>, failed: usize) {
    let all: Vec<String> = times
        .into_iter()
        .map(|mut t| {
            t.sort_by(f64::total_cmp);
            let at = |part: f64| t.get((t.len() as f64 * part) as usize).copied().unwrap_or(f64::NAN);
            format!(
                "{{\"n\":{},\"min\":{:.4},\"median\":{:.4},\"p90\":{:.4}}}",
                t.len(),
                at(0.0),
                at(0.5),
                at(0.9)
            )
        })
        .collect();
    println!("{{\"failed\":{failed},\"ms\":[{}]}}", all.join(","));
}

fn wait(file: &Path, bytes: u64, seconds: f64) -> Done {
    let begun = Instant::now();
    while file.metadata().map_or(0, |m| m.len()) < bytes {
        if begun.elapsed().as_secs_f64() > seconds {
            return Err(format!("{} has not grown to {bytes} bytes in {seconds} s", file.display()).into());
        }
        std::thread::sleep(Duration::from_micros(500));
    }
    println!("{}", begun.elapsed().as_secs_f64() * 1e3);
    Ok(())
}
