//! Where the demo plays: a folder of its own for repository, spool and home, and commands that know nothing
//! of the user's own.

use crate::cli::exit::{self, Exit};
use crate::cli::term;
use crate::model::Config;
use crate::runner::Watch;
use crate::spool::Spool;
use crate::verbs::{self, House};
use crate::worker::env;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::ffi::OsStr;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long the last processes may take to end before the demo says that something is wrong.
const PATIENCE: Duration = Duration::from_secs(60);

/// The folder, and all that is done in it.
#[derive(Debug)]
pub(super) struct Stage {
    folder: tempfile::TempDir,
    root: PathBuf,
    program: PathBuf,
    interrupted: Arc<AtomicBool>,
}

impl Stage {
    /// Makes the folder.
    pub(super) fn new() -> Result<Self, Exit> {
        let interrupted = Arc::new(AtomicBool::new(false));
        for signal in [SIGHUP, SIGINT, SIGTERM] {
            // Whoever stops the demo gets a clean end too.
            signal_hook::flag::register(signal, Arc::clone(&interrupted))?;
        }
        let folder = tempfile::Builder::new().prefix("workspool-demo-").tempdir()?;
        let root = folder.path().canonicalize()?;
        let stage = Stage { folder, root, program: env::own_executable()?, interrupted };
        for path in [stage.repository(), stage.home(), stage.spool_path()] {
            fs::create_dir(path)?;
        }
        // What the demo writes is a few kilobytes: it need not be refused where little is left.
        let config = "[disk]\nreserve_bytes = 10000000\nreserve_percent = 0\ncopy_reserve_bytes = 0\n";
        fs::write(stage.spool_path().join("config.toml"), config)?;
        Ok(stage)
    }

    /// The folder.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// The repository, which is the user's in this play.
    pub(super) fn repository(&self) -> PathBuf {
        self.root.join("shop")
    }

    /// The spool's folder.
    pub(super) fn spool_path(&self) -> PathBuf {
        self.root.join("spool")
    }

    fn home(&self) -> PathBuf {
        self.root.join("home")
    }

    /// The spool, opened without what the user's environment says of another.
    pub(super) fn spool(&self) -> Result<Spool, Exit> {
        Ok(Spool::open(&self.spool_path())?)
    }

    /// Runs a command in the repository and returns what it printed, whatever its exit code.
    pub(super) fn run(&self, program: impl AsRef<OsStr>, args: &[&str]) -> Result<Output, Exit> {
        let mut command = Command::new(program.as_ref());
        for (name, _) in std::env::vars_os() {
            let name_text = name.to_string_lossy();
            if ["GIT_", "WORKSPOOL_", "XDG_"].iter().any(|prefix| name_text.starts_with(prefix)) {
                command.env_remove(name);
            }
        }
        command
            .args(args)
            .current_dir(self.repository())
            .stdin(Stdio::null())
            .env("HOME", self.home())
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("LC_ALL", "C")
            .env("WORKSPOOL_HOME", self.spool_path());
        let output = command.output().map_err(|e| {
            Exit::new(exit::FAULT, format!("cannot run {}: {e}", program.as_ref().to_string_lossy()))
        })?;
        if self.interrupted.load(Ordering::SeqCst) {
            return Err(Exit::new(exit::FAULT, "interrupted"));
        }
        Ok(output)
    }

    /// Runs a command that must succeed, and returns what it printed to standard output.
    pub(super) fn must(&self, program: impl AsRef<OsStr>, args: &[&str]) -> Result<String, Exit> {
        let output = self.run(program.as_ref(), args)?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            let program = program.as_ref().to_string_lossy();
            let text = format!("{program} {}: {}: {}", args.join(" "), output.status, said.trim());
            return Err(Exit::new(exit::FAULT, text));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Runs a git command that must succeed.
    pub(super) fn git(&self, args: &[&str]) -> Result<String, Exit> {
        self.must("git", args)
    }

    /// Shows and runs a command of workspool that must succeed; returns what it printed to standard output.
    pub(super) fn workspool(&self, args: &[&str]) -> Result<String, Exit> {
        self.show_command("workspool", args)?;
        let output = self.run(&self.program, args)?;
        show_output(&output)?;
        if !output.status.success() {
            let text = format!("`workspool {}` ended with {}", args.join(" "), output.status);
            return Err(Exit::new(exit::FAULT, text));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Shows and runs a command in the repository; returns whether it succeeded.
    pub(super) fn try_out(&self, program: &str, args: &[&str]) -> Result<bool, Exit> {
        self.show_command(program, args)?;
        let output = self.run(program, args)?;
        show_output(&output)?;
        Ok(output.status.success())
    }

    /// Prints a command line as one would type it.
    pub(super) fn show_command(&self, program: &str, args: &[&str]) -> Result<(), Exit> {
        let mut line = format!("  $ {program}");
        for arg in args {
            line.push(' ');
            let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:@".contains(c);
            if !arg.is_empty() && arg.chars().all(plain) {
                line.push_str(arg);
            } else {
                line.push_str(&format!("'{}'", arg.replace('\'', r"'\''")));
            }
        }
        print("")?;
        print(&term::bold(&line))
    }

    /// Ends what still runs and removes the folder, or leaves it if it is to be kept.
    pub(super) fn end(self, keep: bool) -> Result<(), Exit> {
        if self.spool_path().join("spool.json").exists() {
            let house = House { spool: self.spool()?, config: Config::default() };
            if let Err(e) = settle(&house) {
                let path = self.folder.keep();
                return Err(Exit::new(exit::FAULT, format!("{e:#}; {} was left as it is", path.display())));
            }
        }
        if keep {
            let _kept = self.folder.keep();
            return Ok(());
        }
        let path = self.root;
        self.folder
            .close()
            .map_err(|e| Exit::new(exit::FAULT, format!("cannot remove {}: {e}", path.display())))
    }
}

/// Cancels what has not ended, and waits until no supervisor is left.
fn settle(house: &House) -> anyhow::Result<()> {
    let watch = Watch::new(&house.spool, &house.config, false);
    let until = Some(Instant::now() + PATIENCE);
    crate::intake::expand(&house.spool)?;
    for found in house.spool.active()? {
        // It may have ended just now.
        let _ = verbs::cancel(house, found.ticket.task, Some("the demo is over"));
    }
    let ids: Vec<_> = house.spool.all_tickets()?.collect::<Result<Vec<_>, _>>()?;
    let free = |id| house.spool.task(id).lock().is_held().is_ok_and(|held| !held);
    let gone = watch.until(Duration::from_millis(20), until, || {
        let over = house.spool.active().is_ok_and(|active| active.is_empty());
        (over && ids.iter().all(|found| free(found.ticket.task))).then_some(())
    });
    anyhow::ensure!(gone.is_some(), "processes of the demo still run after {} s", PATIENCE.as_secs());
    Ok(())
}

/// Prints what a command printed, a little to the right.
fn show_output(output: &Output) -> Result<(), Exit> {
    for bytes in [&output.stdout, &output.stderr] {
        for line in String::from_utf8_lossy(bytes).lines() {
            print(&format!("    {}", term::printable(line)))?;
        }
    }
    Ok(())
}

/// Prints a line. Where nobody reads any more that is an error like any other, so that the demo ends
/// cleanly.
pub(super) fn print(text: &str) -> Result<(), Exit> {
    writeln!(std::io::stdout(), "{text}")
        .map_err(|e| Exit::new(exit::FAULT, format!("cannot write to standard output: {e}")))
}
