//! A world of a test's own: home, spool, repositories, and nothing of the machine's configuration.

use super::census::{self, Process};
use super::runner::Runner;
use super::{PATIENCE, Ran, Repo, Submit};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use workspool::model::{Event, EventKind, State, Task, TaskId, TaskResult};
use workspool::redact::LogEntry;
use workspool::spool::{Spool, TaskDir};

/// What makes tests quick; a test's own configuration comes before it.
const CONFIG: &str = "
[disk]
reserve_bytes = 0
reserve_percent = 0
copy_reserve_bytes = 0

[defaults]
retry_delay = 0
grace_ms = 400
";

/// A world.
#[derive(Debug)]
pub struct World {
    dir: TempDir,
    root: PathBuf,
    env: Mutex<Vec<(String, String)>>,
}

impl World {
    pub fn new() -> World {
        World::configured("")
    }

    /// A world whose `config.toml` begins so (keys of the top level, then sections).
    pub fn configured(config: &str) -> World {
        World::made(config, |_| ())
    }

    /// A world in which some folders are prepared before anything is there.
    pub(super) fn made(config: &str, prepare: impl FnOnce(&Path)) -> World {
        let dir = tempfile::Builder::new().prefix("workspool-spec-").tempdir().unwrap();
        // What programs say of a path is its real one.
        let root = dir.path().canonicalize().unwrap();
        for folder in ["home", "spool", "repos"] {
            fs::create_dir(root.join(folder)).unwrap();
        }
        prepare(&root);
        let world = World { dir, root, env: Mutex::default() };
        world.configure(config);
        world.spool();
        world
    }

    /// Writes `config.toml` anew.
    pub fn configure(&self, config: &str) {
        let config = config.replace("{root}", &self.root.to_string_lossy());
        let (mut config, base): (toml::Table, toml::Table) =
            (config.parse().unwrap(), CONFIG.parse().unwrap());
        for (section, keys) in base {
            let own =
                config.entry(section).or_insert_with(|| toml::Table::new().into()).as_table_mut().unwrap();
            for (key, value) in keys.as_table().unwrap() {
                own.entry(key).or_insert_with(|| value.clone());
            }
        }
        let config = config.to_string();
        fs::write(self.spool_path().join("config.toml"), config).unwrap();
    }

    /// The folder that everything is in.
    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn spool_path(&self) -> PathBuf {
        self.root.join("spool")
    }

    pub fn home(&self) -> PathBuf {
        self.root.join("home")
    }

    /// The spool, as Rust users open it.
    pub fn spool(&self) -> Spool {
        Spool::open(&self.spool_path()).unwrap()
    }

    /// Makes a repository with one commit.
    pub fn repo(&self, name: &str) -> Repo {
        let repo = self.empty_repo(name);
        repo.write("README.md", "# A project\n").write("src/lib.txt", "one\ntwo\nthree\n");
        repo.write(".gitignore", "/target\n*.log\n.env\n");
        repo.commit("first");
        repo
    }

    /// Makes a repository without a commit.
    pub fn empty_repo(&self, name: &str) -> Repo {
        Repo::init(self.root.join("repos").join(name), &self.home())
    }

    /// A command of the program under test, in this world.
    pub fn command(&self, args: &[impl AsRef<OsStr>]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_workspool"));
        command.env_clear().current_dir(&self.root).args(args);
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("HOME", self.home()).env("WORKSPOOL_HOME", self.spool_path());
        command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
        command.envs(self.env.lock().unwrap().iter().map(|(k, v)| (k, v)));
        command
    }

    /// Sets a variable in the environment of whatever runs from now on.
    pub fn set_env(&self, name: &str, value: &str) {
        self.env.lock().unwrap().push((name.into(), value.into()));
    }

    /// Runs the program under test.
    pub fn run(&self, args: &[impl AsRef<OsStr>]) -> Ran {
        Ran::to_end(self.command(args), b"")
    }

    /// Runs the program under test on one task.
    pub fn on(&self, verb: &str, id: TaskId, more: &[&str]) -> Ran {
        let id = id.to_string();
        self.run(&[&[verb, id.as_str()], more].concat())
    }

    /// Begins a submission.
    pub fn submit(&self, objective: &str) -> Submit<'_> {
        Submit::new(self, Some(objective.into()))
    }

    /// Drops a file into a folder, whole at once, as a client should.
    pub fn drop_file(&self, folder: impl AsRef<Path>, name: &str, content: impl AsRef<[u8]>) {
        let folder = self.root.join(folder);
        let tmp = folder.join(format!(".{name}.part"));
        fs::write(&tmp, content).unwrap();
        fs::rename(tmp, folder.join(name)).unwrap();
    }

    /// Begins a submission of a script for the shell worker.
    pub fn script(&self, script: &str) -> Submit<'_> {
        self.submit(script).worker("shell")
    }

    /// Begins a submission from a file, or from standard input if that is `-`.
    pub fn submit_file(&self, file: impl AsRef<Path>) -> Submit<'_> {
        Submit::new(self, None).with("file", file.as_ref())
    }

    /// Works everything off; nothing may go wrong in the runner itself.
    #[track_caller]
    pub fn drain(&self) {
        let ran = self.run(&["run", "--drain", "--poll", "300ms"]).ok();
        assert!(!ran.stderr.contains("error:"), "the runner met faults:\n{}", ran.stderr);
    }

    /// Starts a runner loop.
    pub fn run_loop(&self) -> Runner {
        Runner::start(self.command(&["run", "--poll", "500ms"]))
    }

    /// Starts a runner loop that ends when nothing is left.
    pub fn run_drain(&self) -> Runner {
        Runner::start(self.command(&["run", "--drain", "--poll", "300ms"]))
    }

    /// Makes one pass.
    #[track_caller]
    pub fn tick(&self) -> Ran {
        self.run(&["tick"]).ok()
    }

    // What is there.

    pub fn state(&self, id: TaskId) -> State {
        self.spool().state_of(id).unwrap()
    }

    pub fn task(&self, id: TaskId) -> Task {
        self.spool().read_task(id).unwrap()
    }

    pub fn dir(&self, id: TaskId) -> TaskDir {
        self.spool().task(id)
    }

    /// The result of a task that has ended.
    #[track_caller]
    pub fn result(&self, id: TaskId) -> TaskResult {
        match self.spool().read_result(id).unwrap() {
            Some(result) => result,
            None => panic!("task {id} has no result\n{}", self.tell()),
        }
    }

    /// The result of a task that must have succeeded.
    #[track_caller]
    pub fn succeeded(&self, id: TaskId) -> TaskResult {
        let result = self.result(id);
        assert!(result.state == State::Succeeded, "{id} was to succeed: {result:#?}\n{}", self.tell());
        result
    }

    pub fn events(&self, id: TaskId) -> Vec<EventKind> {
        self.event_lines(id).into_iter().map(|e| e.what).collect()
    }

    pub fn event_lines(&self, id: TaskId) -> Vec<Event> {
        workspool::spool::events::read(&self.dir(id).events()).unwrap()
    }

    /// How often attempts at a task were started afresh, as its history says.
    pub fn starts(&self, id: TaskId) -> usize {
        self.events(id).iter().filter(|e| matches!(e, EventKind::Started { adopted: false, .. })).count()
    }

    /// The text of a step's log.
    pub fn log(&self, id: TaskId, step: &str) -> String {
        let dir = self.dir(id);
        let path = dir.attempt(dir.last_attempt()).step(step).join("log.jsonl");
        let bytes = fs::read(&path).unwrap_or_default();
        bytes
            .split(|b| *b == b'\n')
            .filter_map(LogEntry::read)
            .filter_map(|e| e.text)
            .collect::<Vec<_>>()
            .join("\n")
    }

    /// Names in a folder of the spool, sorted.
    pub fn names(&self, folder: &str) -> Vec<String> {
        names(&self.spool_path().join(folder))
    }

    /// Numbers of tasks, expanded or not.
    pub fn task_count(&self) -> usize {
        self.names("tasks").len() + self.names("intake").len()
    }

    /// All that files in the spool hold, for a look whether something is in there that must not be.
    pub fn find_in_spool(&self, needle: &str, but: impl Fn(&Path) -> bool) -> Vec<PathBuf> {
        walkdir::WalkDir::new(self.spool_path())
            .into_iter()
            .filter_map(Result::ok)
            .filter(|e| e.file_type().is_file() && !but(e.path()))
            .filter(|e| {
                let bytes = fs::read(e.path()).unwrap_or_default();
                memchr::memmem::find(&bytes, needle.as_bytes()).is_some()
            })
            .map(walkdir::DirEntry::into_path)
            .collect()
    }

    // Waiting.

    /// Waits until `look` finds something. Fails with all that there is to know about all tasks.
    #[track_caller]
    pub fn await_some<T>(&self, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(found) = look() {
                return found;
            }
            assert!(Instant::now() < deadline, "waited in vain until {what}\n{}", self.tell());
            std::thread::sleep(Duration::from_millis(15));
        }
    }

    /// Waits until `look` says yes.
    #[track_caller]
    pub fn await_until(&self, what: &str, mut look: impl FnMut() -> bool) {
        self.await_some(what, || look().then_some(()));
    }

    /// Waits until a task is in a state.
    #[track_caller]
    pub fn await_state(&self, id: TaskId, state: State) {
        self.await_until(&format!("{id} is {state}"), || self.spool().state_of(id).is_ok_and(|s| s == state));
    }

    /// Waits until a task has ended; returns its result.
    #[track_caller]
    pub fn await_end(&self, id: TaskId) -> TaskResult {
        self.await_until(&format!("{id} has ended"), || {
            self.spool().state_of(id).is_ok_and(State::is_terminal)
        });
        self.result(id)
    }

    /// Waits for a file with something in it; returns what.
    #[track_caller]
    pub fn await_file(&self, path: impl AsRef<Path>) -> String {
        let path = path.as_ref();
        self.await_some(&format!("{} is there", path.display()), || {
            fs::read_to_string(path).ok().filter(|t| !t.is_empty())
        })
    }

    /// All that there is to know about all tasks, for a message.
    pub fn tell(&self) -> String {
        let spool = self.spool();
        let mut out = String::new();
        for name in self.names("tasks") {
            let Ok(id) = name.parse::<TaskId>() else { continue };
            let dir = spool.task(id);
            out.push_str(&format!("=== {id} is {:?}\n", spool.state_of(id)));
            for event in workspool::spool::events::read(&dir.events()).unwrap_or_default() {
                out.push_str(&format!("  {} {:?}\n", event.at.format("%H:%M:%S%.3f"), event.what));
            }
            for n in 1..=dir.last_attempt() {
                for step in names(&dir.attempt(n).path().join("steps")) {
                    let log = fs::read(dir.attempt(n).step(&step).join("log.jsonl")).unwrap_or_default();
                    let text = String::from_utf8_lossy(&log[log.len().saturating_sub(2000)..]).into_owned();
                    out.push_str(&format!("  --- log of attempt {n}, {step}\n{text}"));
                }
            }
        }
        for folder in ["inbox", "taken", "rejected", "intake", "queue", "running", "requests", "releases"] {
            out.push_str(&format!("{folder}: {:?}\n", self.names(folder)));
        }
        for p in self.processes() {
            out.push_str(&format!("process {}: {}\n", p.pid, p.what));
        }
        out
    }

    /// The processes of this world.
    pub fn processes(&self) -> Vec<Process> {
        census::processes(&self.root)
    }

    /// Asserts that the process whose number is in a file was there, and is gone.
    #[track_caller]
    pub fn assert_gone(&self, pid_file: &Path) {
        let pid: u32 = fs::read_to_string(pid_file).expect("it never ran").trim().parse().unwrap();
        assert!(!census::alive(pid), "process {pid} outlived its task\n{}", self.tell());
    }
}

impl Drop for World {
    /// Nothing of a world may live on: the last processes are given time to end, and none may be left.
    fn drop(&mut self) {
        let deadline =
            Instant::now() + if std::thread::panicking() { Duration::ZERO } else { Duration::from_secs(20) };
        let mut left = self.processes();
        while !left.is_empty() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(15));
            left = self.processes();
        }
        for process in &left {
            process.kill();
        }
        super::disk::unmount_below(&self.root);
        make_removable(self.dir.path());
        if !left.is_empty() && !std::thread::panicking() {
            let list: Vec<String> = left.iter().map(|p| format!("{} {}", p.pid, p.what)).collect();
            panic!("processes outlived their world:\n{}", list.join("\n"));
        }
    }
}

/// Lets a folder be removed that a worker made unreadable.
fn make_removable(root: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    for entry in walkdir::WalkDir::new(root) {
        let Ok(entry) = entry else { continue };
        if entry.file_type().is_dir()
            && entry.metadata().is_ok_and(|m| m.permissions().mode() & 0o700 != 0o700)
        {
            let _ = fs::set_permissions(entry.path(), fs::Permissions::from_mode(0o700));
        }
    }
}

fn names(dir: &Path) -> Vec<String> {
    let mut found: Vec<String> = fs::read_dir(dir)
        .map(|entries| {
            entries.filter_map(|e| Some(e.ok()?.file_name().to_string_lossy().into_owned())).collect()
        })
        .unwrap_or_default();
    found.sort_unstable();
    found
}
