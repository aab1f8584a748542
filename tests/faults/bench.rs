//! A spool and a repository of their own, the real program on them, and what must hold afterwards.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use workspool::model::{EventKind, State, TaskId, TaskResult};
use workspool::spool::{Spool, events};

/// Longer than anything here takes on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// A fault: at which point, of which process, and what.
#[derive(Debug, Clone)]
pub struct Fault {
    /// As `WORKSPOOL_FAULT_PROCESS` takes it.
    pub process: String,
    /// The point, from 1.
    pub point: usize,
    /// `kill`, `enospc`, `eio` or `eacces`.
    pub what: &'static str,
}

/// A spool, a repository, and a file outside both in which workers count their runs.
pub struct Bench {
    dir: tempfile::TempDir,
}

impl Bench {
    pub fn new() -> Bench {
        Bench::on(|_| ())
    }

    /// A bench in a folder that is prepared before anything is there.
    pub fn on(prepare: impl FnOnce(&Path)) -> Bench {
        let dir = tempfile::Builder::new().prefix("faults-").tempdir().unwrap();
        prepare(dir.path());
        let bench = Bench { dir };
        fs::create_dir_all(bench.path("home")).unwrap();
        fs::create_dir_all(bench.spool_path()).unwrap();
        fs::write(
            bench.spool_path().join("config.toml"),
            "[defaults]\nretry_delay = 0\ngrace_ms = 500\n[disk]\nreserve_bytes = 0\nreserve_percent = 0\ncopy_reserve_bytes = 0\n",
        )
        .unwrap();
        bench.git(&["init", "-q", "-b", "main", "repo"], dir_of(&bench));
        let repo = bench.repo();
        fs::write(repo.join("old.txt"), "old\n").unwrap();
        fs::write(repo.join(".gitignore"), "*.ignored\n").unwrap();
        bench.git(&["add", "."], &repo);
        bench.git(&["commit", "-q", "-m", "start"], &repo);
        bench
    }

    /// Asks for a warm tree of the repository.
    pub fn keep_warm(&self) {
        self.configure(|text| format!("{text}[warm_trees]\n'{}' = 1\n", self.repo().display()));
    }

    /// Lets one task run at a time.
    pub fn one_at_a_time(&self) {
        self.configure(|text| format!("max_concurrency = 1\n{text}"));
    }

    fn configure(&self, change: impl Fn(String) -> String) {
        let file = self.spool_path().join("config.toml");
        fs::write(&file, change(fs::read_to_string(&file).unwrap())).unwrap();
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn spool_path(&self) -> PathBuf {
        self.path("spool")
    }

    pub fn repo(&self) -> PathBuf {
        self.path("repo")
    }

    pub fn spool(&self) -> Spool {
        Spool::open(&self.spool_path()).unwrap()
    }

    fn environment(&self, command: &mut Command) {
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", self.path("home"))
            .env("WORKSPOOL_HOME", self.spool_path())
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .stdin(Stdio::null());
        for role in ["AUTHOR", "COMMITTER"] {
            command.env(format!("GIT_{role}_NAME"), "t").env(format!("GIT_{role}_EMAIL"), "t@localhost");
        }
    }

    pub fn git(&self, args: &[&str], at: &Path) -> String {
        let mut command = Command::new("git");
        self.environment(&mut command);
        let out = command.args(args).current_dir(at).output().unwrap();
        assert!(out.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8_lossy(&out.stdout).into_owned()
    }

    /// The program with arguments, in the repository.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_workspool"));
        self.environment(&mut command);
        command.args(args).current_dir(self.repo());
        command
    }

    /// Runs the program without a fault; it must succeed.
    pub fn run(&self, args: &[&str]) -> String {
        let out = finish(self.command(args), args);
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "{args:?}: {}\n{text}{said}", out.status);
        text
    }

    /// Runs the program with a fault, however that ends.
    pub fn run_with(&self, args: &[&str], fault: &Fault) -> Output {
        let mut command = self.command(args);
        command
            .env("WORKSPOOL_FAULT", format!("{}:{}", fault.point, fault.what))
            .env("WORKSPOOL_FAULT_PROCESS", &fault.process)
            .env("WORKSPOOL_FAULT_ONCE", self.path("fault-hit"));
        finish(command, args)
    }

    /// Runs the program and returns the names of the points that the busiest of the meant processes passed.
    pub fn points(&self, args: &[&str], process: &str) -> Vec<String> {
        let log = self.path("points");
        let mut command = self.command(args);
        command.env("WORKSPOOL_FAULT_LOG", &log).env("WORKSPOOL_FAULT_PROCESS", process);
        let out = finish(command, args);
        assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
        let text = fs::read_to_string(&log).unwrap_or_default();
        let mut all: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for line in text.lines() {
            let mut words = line.split(' ');
            let (pid, _, name) = (words.next().unwrap(), words.next().unwrap(), words.next().unwrap());
            all.entry(pid).or_default().push(name.to_owned());
        }
        all.into_values().max_by_key(Vec::len).unwrap_or_default()
    }

    /// Runs the program and returns the names of the points that all its processes passed.
    pub fn all_points(&self, args: &[&str]) -> Vec<String> {
        let log = self.path("all-points");
        let _ = fs::remove_file(&log);
        let mut command = self.command(args);
        command.env("WORKSPOOL_FAULT_LOG", &log);
        let out = finish(command, args);
        assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
        let text = fs::read_to_string(&log).unwrap_or_default();
        text.lines().filter_map(|line| line.split(' ').nth(2).map(str::to_owned)).collect()
    }

    /// Whether the fault came to pass.
    pub fn was_hit(&self) -> bool {
        self.path("fault-hit").exists()
    }

    /// Works everything off, without a fault.
    pub fn drain(&self) {
        self.run(&["run", "--drain", "--poll", "50ms", "--quiet"]);
    }

    pub fn ids(&self) -> Vec<TaskId> {
        let mut ids: Vec<TaskId> = fs::read_dir(self.spool_path().join("tasks"))
            .map(|all| all.filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok()).collect())
            .unwrap_or_default();
        ids.sort_unstable();
        ids
    }

    pub fn result(&self, id: TaskId) -> TaskResult {
        self.spool().read_result(id).unwrap().unwrap_or_else(|| panic!("{id} has no result"))
    }

    pub fn states(&self) -> Vec<State> {
        self.ids().into_iter().map(|id| self.spool().state_of(id).unwrap()).collect()
    }

    /// What holds of every spool that has come to rest.
    pub fn check(&self) {
        self.check_without_work();
        self.every_byte_is_kept();
    }

    /// The same, where the work itself lies in no repository.
    pub fn check_without_work(&self) {
        let out = finish(self.command(&["check", "--json"]), &["check"]);
        let text = String::from_utf8_lossy(&out.stdout);
        assert!(out.status.success(), "check: {text}{}", String::from_utf8_lossy(&out.stderr));
        for id in self.ids() {
            let path = self.spool().task(id).events();
            let ended = events::read(&path).unwrap();
            let retries = ended.iter().filter(|e| matches!(e.what, EventKind::Retry { until: None, .. }));
            let most = retries.count() + 1;
            let ends = ended.iter().filter(|e| matches!(e.what, EventKind::Ended { .. })).count();
            assert!(ends <= most, "{id} ended {ends} times: {ended:#?}");
        }
        self.each_attempt_worked_once();
        assert_eq!(self.alive(), Vec::<String>::new(), "processes are left");
    }

    /// The script of a worker that leaves its marker in the tree, counts itself outside, and goes on.
    pub fn script(&self, more: &str) -> String {
        let ledger = self.path("ledger");
        format!(
            "echo \"$WORKSPOOL_ATTEMPT\" > made.txt; echo \"$WORKSPOOL_ATTEMPT\" > made.ignored; \
             echo \"$WORKSPOOL_ATTEMPT\" >> '{}'; {more}",
            ledger.display()
        )
    }

    /// Waits until a worker has counted itself.
    pub fn await_ledger(&self) {
        self.await_some("a worker has begun", || (!self.ledger().is_empty()).then_some(()));
    }

    /// Waits until `look` finds something.
    pub fn await_some<T>(&self, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
        let began = Instant::now();
        loop {
            if let Some(found) = look() {
                return found;
            }
            assert!(began.elapsed() < PATIENCE, "waited in vain until {what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The markers of all runs of workers.
    pub fn ledger(&self) -> Vec<String> {
        let text = fs::read_to_string(self.path("ledger")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    fn each_attempt_worked_once(&self) {
        let mut seen = self.ledger();
        seen.sort();
        let all = seen.len();
        seen.dedup();
        assert_eq!(seen.len(), all, "an attempt worked twice: {:?}", self.ledger());
    }

    /// The user's repository, and those of ours that stand for copies of it.
    fn repositories(&self) -> Vec<PathBuf> {
        let copies = fs::read_dir(self.spool_path().join("copies")).into_iter().flatten().flatten();
        // One that was not made whole holds nothing yet.
        let whole = copies.map(|e| e.path()).filter(|p| p.join("HEAD").exists() && p.join("refs").exists());
        std::iter::once(self.repo()).chain(whole).collect()
    }

    /// The repository that has the result of a task.
    pub fn repository_of(&self, id: TaskId) -> PathBuf {
        let copy = self.spool_path().join("copies").join(id.to_string());
        if copy.exists() { copy } else { self.repo() }
    }

    /// What every worker wrote is in a tree, in a commit of a branch, or in a salvage.
    fn every_byte_is_kept(&self) {
        let mut kept = String::new();
        let walk = |root: PathBuf, kept: &mut String| {
            let mut folders = vec![root];
            while let Some(folder) = folders.pop() {
                for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
                    let path = entry.path();
                    if path.is_dir() {
                        folders.push(path);
                    } else if entry.file_name().to_string_lossy().starts_with("made.") {
                        kept.push_str(&fs::read_to_string(path).unwrap());
                    }
                }
            }
        };
        walk(self.spool_path().join("worktrees"), &mut kept);
        for repo in self.repositories() {
            let refs = self.git(&["for-each-ref", "--format=%(refname)"], &repo);
            for name in refs.lines() {
                for path in ["made.txt", "tree/made.txt", "raw/made.ignored"] {
                    let mut command = Command::new("git");
                    self.environment(&mut command);
                    let show = ["show", &format!("{name}:{path}")];
                    let out = command.args(show).current_dir(&repo).output().unwrap();
                    kept.push_str(&String::from_utf8_lossy(&out.stdout));
                }
            }
        }
        for marker in self.ledger() {
            assert!(kept.lines().any(|l| l == marker), "the work of {marker} is lost: kept is {kept:?}");
        }
    }

    /// Command lines of processes that bear a marker of this spool.
    pub fn alive(&self) -> Vec<String> {
        let Ok(text) = fs::read_to_string(self.spool_path().join("spool.json")) else { return Vec::new() };
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        let marker = format!("WORKSPOOL_ATTEMPT={}/", value["id"].as_str().unwrap());
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
            if environment.split(|b| *b == 0).any(|v| v.starts_with(marker.as_bytes())) {
                let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
                found.push(String::from_utf8_lossy(&line).replace('\0', " "));
            }
        }
        found
    }
}

fn dir_of(bench: &Bench) -> &Path {
    bench.dir.path()
}

/// Waits for a program to end; one that does not in time is a failure of the test.
fn finish(mut command: Command, args: &[&str]) -> Output {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Read beside waiting, so that a full pipe is not what it hangs on.
    let (out, err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let reader = |mut from: Box<dyn std::io::Read + Send>| {
        let (send, receive) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = from.read_to_end(&mut bytes);
            let _ = send.send(bytes);
        });
        receive
    };
    let (out, err) = (reader(Box::new(out)), reader(Box::new(err)));
    let status = wait(&mut child, args);
    // A descendant may hold the pipe longer than the program lived.
    let rest = |from: std::sync::mpsc::Receiver<Vec<u8>>| from.recv_timeout(PATIENCE).unwrap_or_default();
    Output { status, stdout: rest(out), stderr: rest(err) }
}

fn wait(child: &mut Child, args: &[&str]) -> std::process::ExitStatus {
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if began.elapsed() > PATIENCE {
            let _ = child.kill();
            panic!("{args:?} does not end");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}
