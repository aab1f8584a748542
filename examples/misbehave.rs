//! A worker that misbehaves on demand: for tests only.
//!
//! What it does is told by arguments, each verb followed by its own (see [`act`]), or by lines of the prompt
//! that begin with `@`: `misbehave write a.txt hello exit 3`, or a prompt with a line `@write a.txt hello`.
//! `--mark TEXT` does nothing but stand in the command line of it and all its children, so that a test can
//! find them whatever they do to their environment and their session.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio, exit};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::sleep;
use std::time::Duration;

type Done = Result<(), Box<dyn std::error::Error>>;

fn main() {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let mut mark = String::new();
    if args.first().is_some_and(|a| a == "--mark") {
        mark = args.remove(1);
        args.remove(0);
    }
    if let Err(e) = run(&args, &mark) {
        eprintln!("misbehave: {e}");
        exit(99);
    }
}

fn run(args: &[String], mark: &str) -> Done {
    let mut args = args.iter().map(String::as_str);
    while let Some(verb) = args.next() {
        let mut next = || args.next().ok_or_else(|| format!("{verb} lacks an argument"));
        match verb {
            "--stdin" => {
                let mut text = String::new();
                io::stdin().read_to_string(&mut text)?;
                follow(&text, mark)?;
            }
            "--prompt" => follow(next()?, mark)?,
            "--prompt-file" => follow(&fs::read_to_string(next()?)?, mark)?,
            _ => {
                let values = (0..arity(verb)?).map(|_| next()).collect::<Result<Vec<_>, _>>()?;
                act(verb, &values, mark)?;
            }
        }
    }
    Ok(())
}

/// Does what the lines of a prompt say that begin with `@`; a verb's last argument goes to the line's end.
fn follow(prompt: &str, mark: &str) -> Done {
    for line in prompt.lines().filter_map(|l| l.trim_start().strip_prefix('@')) {
        let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
        let count = arity(verb)?;
        let values: Vec<&str> = if count == 0 { Vec::new() } else { rest.splitn(count, ' ').collect() };
        if values.len() != count {
            return Err(format!("{verb} takes {count} arguments").into());
        }
        act(verb, &values, mark)?;
    }
    Ok(())
}

fn arity(verb: &str) -> Result<usize, String> {
    Ok(match verb {
        "invalid-utf8" | "ignore-term" | "delete-dot-git" | "branch-move" | "branch-delete" | "controls" => 0,
        "delete" | "mkdir" | "say" | "err" | "bytes" | "line" | "sleep" | "commit" | "hook" | "nested"
        | "unreadable" | "exit" | "signal" | "port" | "env" | "stdin" | "args" | "bad-name" => 1,
        "write" | "append" | "chmod" | "symlink" | "rename" | "pieces" | "daemon" | "setsid"
        | "bare-child" | "hold-pipe" | "storm" | "git-config" | "driver" | "spool-write" | "linger" => 2,
        _ => return Err(format!("there is no verb {verb}")),
    })
}

/// Does one thing.
fn act(verb: &str, values: &[&str], mark: &str) -> Done {
    let one = values.first().copied().unwrap_or_default();
    let two = values.get(1).copied().unwrap_or_default();
    match verb {
        // Files.
        "write" => {
            if let Some(parent) = Path::new(one).parent() {
                fs::create_dir_all(parent)?;
            }
            fs::write(one, two.replace("\\n", "\n"))?;
        }
        "append" => {
            fs::OpenOptions::new().append(true).create(true).open(one)?.write_all(two.as_bytes())?;
        }
        "delete" if Path::new(one).is_dir() => fs::remove_dir_all(one)?,
        "delete" => fs::remove_file(one)?,
        "chmod" => fs::set_permissions(one, fs::Permissions::from_mode(u32::from_str_radix(two, 8)?))?,
        "symlink" => symlink(one, two)?,
        "mkdir" => fs::create_dir_all(one)?,
        "rename" => fs::rename(one, two)?,
        "unreadable" => {
            fs::create_dir_all(one)?;
            fs::write(Path::new(one).join("inside"), "x")?;
            fs::set_permissions(one, fs::Permissions::from_mode(0o000))?;
        }
        "bad-name" => {
            let name = std::ffi::OsString::from_vec(vec![b'n', 0xe9, b'e', b'.', b't']);
            fs::write(PathBuf::from(name), one)?;
        }
        // Output.
        "say" => writeln!(io::stdout(), "{}", one.replace("\\n", "\n"))?,
        "err" => writeln!(io::stderr(), "{one}")?,
        "bytes" => print_bytes(one.parse()?, 79)?,
        "line" => print_bytes(one.parse()?, usize::MAX)?,
        "invalid-utf8" => io::stdout().write_all(b"before \xff\xfe\xc3 after\n")?,
        "controls" => {
            io::stdout().write_all(b"red \x1b[31mred\x1b[0m bell\x07 title \x1b]0;owned\x07 end\n")?
        }
        "pieces" => {
            for piece in one.as_bytes().chunks(two.parse()?) {
                io::stdout().write_all(piece)?;
                io::stdout().flush()?;
                sleep(Duration::from_millis(5));
            }
            writeln!(io::stdout())?;
        }
        // Surroundings.
        "env" => {
            let all: Vec<String> = std::env::vars().map(|(k, v)| format!("{k}={v}\n")).collect();
            fs::write(one, all.concat())?;
        }
        "args" => fs::write(one, std::env::args().collect::<Vec<_>>().join("\u{1f}"))?,
        "stdin" => {
            let mut text = Vec::new();
            io::stdin().read_to_end(&mut text)?;
            fs::write(one, text)?;
        }
        // Processes.
        "sleep" => sleep(Duration::from_millis(one.parse()?)),
        "ignore-term" => {
            signal_hook::flag::register(15, Arc::new(AtomicBool::new(false)))?;
        }
        "linger" => {
            // A child's whole life: say that it is there, and stay.
            fs::write(one, std::process::id().to_string())?;
            sleep(Duration::from_millis(two.parse()?));
        }
        "daemon" => {
            // The one in between ends at once, so that init (or the subreaper) gets the daemon.
            let mut between = child(mark, &["setsid", one, two])?;
            between.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status()?;
            there(one)?;
        }
        "setsid" => {
            let mut command = child(mark, &["ignore-term", "linger", one, two])?;
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            // SAFETY: one system call that allocates nothing.
            unsafe {
                command.pre_exec(|| Ok(rustix::process::setsid().map(drop)?));
            }
            let _left = command.spawn()?;
            there(one)?;
        }
        "bare-child" => {
            let mut command = child(mark, &["ignore-term", "linger", one, two])?;
            command.env_clear().current_dir("/").stdin(Stdio::null());
            command.stdout(Stdio::null()).stderr(Stdio::null());
            // SAFETY: one system call that allocates nothing.
            unsafe {
                command.pre_exec(|| Ok(rustix::process::setsid().map(drop)?));
            }
            let _left = command.spawn()?;
            there(one)?;
        }
        "hold-pipe" => {
            let _left = child(mark, &["linger", one, two])?.stdin(Stdio::null()).spawn()?;
            there(one)?;
        }
        "storm" => {
            // `one` children, each with as many of its own, all of which stay.
            let (count, ms) = (one.parse::<u32>()?, two);
            for _ in 0..count {
                let grandchildren = (count / 2).to_string();
                let verbs: &[&str] =
                    if count > 1 { &["storm", &grandchildren, ms, "sleep", ms] } else { &["sleep", ms] };
                let mut command = child(mark, verbs)?;
                command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
                let _left = command.spawn()?;
            }
        }
        "port" => {
            let listener = TcpListener::bind("127.0.0.1:0")?;
            fs::write(one, listener.local_addr()?.port().to_string())?;
            // Held until this process ends; a test looks whether it is free then.
            std::mem::forget(listener);
        }
        "exit" => exit(one.parse()?),
        "signal" => {
            let pid = rustix::process::getpid();
            let signal = rustix::process::Signal::from_named_raw(one.parse()?).ok_or("no such signal")?;
            rustix::process::kill_process(pid, signal)?;
            sleep(Duration::from_secs(60));
        }
        // Git, and what belongs to others.
        "commit" => {
            git(&["add", "-A"])?;
            git(&["commit", "-q", "-m", one])?;
        }
        "branch-move" => {
            git(&["commit", "-q", "--allow-empty", "-m", "unrelated"])?;
            let tree = output(&["hash-object", "-t", "tree", "-w", "/dev/null"])?;
            let orphan = output(&["commit-tree", &tree, "-m", "an orphan"])?;
            let branch = output(&["symbolic-ref", "HEAD"])?;
            git(&["update-ref", &branch, &orphan])?;
        }
        "branch-delete" => {
            let branch = output(&["symbolic-ref", "HEAD"])?;
            git(&["update-ref", "-d", &branch])?;
        }
        "delete-dot-git" => fs::remove_file(".git")?,
        "hook" => {
            let common = PathBuf::from(output(&["rev-parse", "--path-format=absolute", "--git-common-dir"])?);
            let hooks = common.join("hooks");
            fs::create_dir_all(&hooks)?;
            for name in ["pre-commit", "post-commit", "reference-transaction", "post-checkout"] {
                fs::write(hooks.join(name), format!("#!/bin/sh\necho ran >> {one}\n"))?;
                fs::set_permissions(hooks.join(name), fs::Permissions::from_mode(0o755))?;
            }
        }
        "git-config" => git(&["config", one, two])?,
        "driver" => {
            // A filter and a merge driver in the shared configuration, and the attributes that use them.
            git(&["config", &format!("filter.{one}.clean"), two])?;
            git(&["config", &format!("filter.{one}.smudge"), two])?;
            git(&["config", &format!("merge.{one}.driver"), two])?;
            fs::write(".gitattributes", format!("* filter={one} merge={one}\n"))?;
        }
        "spool-write" => {
            let home = std::env::var_os("WORKSPOOL_HOME").ok_or("WORKSPOOL_HOME is not set")?;
            let task = std::env::var("WORKSPOOL_TASK")?;
            let path = Path::new(&home).join("tasks").join(task).join(one);
            fs::write(path, two)?;
        }
        "nested" => {
            fs::create_dir_all(one)?;
            git(&["init", "-q", one])?;
            fs::write(Path::new(one).join("inner.txt"), "inner\n")?;
            git(&["-C", one, "add", "-A"])?;
            git(&[
                "-C",
                one,
                "-c",
                "user.name=n",
                "-c",
                "user.email=n@example.com",
                "commit",
                "-q",
                "-m",
                "n",
            ])?;
        }
        other => return Err(format!("there is no verb {other}").into()),
    }
    Ok(())
}

fn child(mark: &str, verbs: &[&str]) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("--mark").arg(mark).args(verbs);
    Ok(command)
}

/// Waits until a child has said in `file` that it is there.
fn there(file: &str) -> Done {
    for _ in 0..3000 {
        if fs::read(file).is_ok_and(|text| !text.is_empty()) {
            return Ok(());
        }
        sleep(Duration::from_millis(10));
    }
    Err(format!("the child that was to write {file} did not come").into())
}

fn git(args: &[&str]) -> Done {
    let status = Command::new("git").args(args).stdin(Stdio::null()).status()?;
    if status.success() { Ok(()) } else { Err(format!("git {args:?}: {status}").into()) }
}

fn output(args: &[&str]) -> Result<String, Box<dyn std::error::Error>> {
    let out = Command::new("git").args(args).stdin(Stdio::null()).output()?;
    if !out.status.success() {
        return Err(format!("git {args:?}: {}", String::from_utf8_lossy(&out.stderr)).into());
    }
    Ok(String::from_utf8(out.stdout)?.trim().to_owned())
}

fn print_bytes(mut left: usize, width: usize) -> io::Result<()> {
    let mut out = io::BufWriter::new(io::stdout());
    let filler = [b'x'; 8192];
    while left > 0 {
        let mut line = left.min(width);
        left -= line;
        while line > 0 {
            let n = line.min(filler.len());
            out.write_all(&filler[..n])?;
            line -= n;
        }
        if width < usize::MAX {
            out.write_all(b"\n")?;
        }
    }
    out.flush()
}
