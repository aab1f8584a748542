//! The worker `vscode`: our client, and the real extension in a host that stands for VS Code.

use super::support::{Repo, World};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use workspool::model::{Class, State, TaskId, TaskResult};

/// A window with the extension.
struct Window {
    child: Child,
    file: PathBuf,
}

impl Window {
    fn open(world: &World, folder: &Path, env: &[(&str, &str)]) -> Window {
        let host = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/profiles/vscode/host.js");
        let file = world.root().join("bridge/vscode.json");
        let mut child = Command::new("node")
            .arg(host)
            .arg(folder)
            .envs(env.iter().copied())
            .env("HOME", world.home())
            .env("WORKSPOOL_VSCODE_FILE", &file)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        world.set_env("WORKSPOOL_VSCODE_FILE", &file.to_string_lossy());
        Window { child, file }
    }

    fn bridge(&self) -> Value {
        serde_json::from_slice(&fs::read(&self.file).unwrap()).unwrap()
    }

    /// Sends a request as it is, and returns the status and all that comes back.
    fn raw(&self, head: &str) -> (u16, String) {
        let url = self.bridge()["url"].as_str().unwrap().to_owned();
        let mut stream = TcpStream::connect(url.strip_prefix("http://").unwrap()).unwrap();
        stream.write_all(format!("{head}\r\nConnection: close\r\n\r\n").as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        (answer.split(' ').nth(1).unwrap().parse().unwrap(), answer)
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether the host can be run at all. Where it cannot, these tests prove nothing, and say so.
fn has_node() -> bool {
    let there = workspool::worker::env::find_executable("node").is_some();
    if !there {
        eprintln!("skipped: the extension needs node to be tested");
    }
    there
}

fn submit(world: &World, repo: &Repo, objective: &str) -> TaskId {
    world.submit(objective).repo(repo).worker("vscode").with("retries", "0").ok()
}

fn failed(world: &World, id: TaskId, class: Class, words: &str) -> TaskResult {
    world.drain();
    let result = world.result(id);
    assert_eq!((result.state, result.class), (State::Failed, Some(class)), "{}", result.message);
    assert!(result.message.contains(words), "expected {words:?} in {}", result.message);
    assert_eq!(result.changed.len(), 0);
    result
}

#[test]
fn a_window_works_in_a_worktree_of_what_it_shows() {
    if !has_node() {
        return;
    }
    let world = World::new();
    let repo = world.repo("r");
    let window = Window::open(&world, repo.path(), &[]);
    assert_eq!(fs::metadata(&window.file).unwrap().permissions().mode() & 0o777, 0o600);
    world.run(&["workers", "check", "vscode"]).ok();
    let id = world
        .submit("[[WRITE sub/out.txt]]")
        .repo(&repo)
        .worker("vscode")
        .with("model", "stub")
        .verify("grep hello sub/out.txt")
        .ok();
    world.drain();
    let result = world.succeeded(id);
    assert_eq!(repo.show(&result.branch.unwrap(), "sub/out.txt"), "hello\n");
    assert_eq!(result.worker.model.as_deref(), Some("stub-large"));
    assert_eq!((result.usage.turns, result.usage.tool_calls), (Some(2), Some(1)));
    assert!(result.summary.unwrap().starts_with("DONE: Wrote 6 bytes."));
    let token = window.bridge()["token"].as_str().unwrap().to_owned();
    assert_eq!(world.find_in_spool(&token, |_| false), Vec::<PathBuf>::new());
}

#[test]
fn a_model_that_may_only_read_has_no_tool_that_writes() {
    if !has_node() {
        return;
    }
    let world = World::new();
    let repo = world.repo("r");
    let _window = Window::open(&world, repo.path(), &[]);
    let reads =
        world.submit("[[WRITE out.txt]]").repo(&repo).worker("vscode").with("permission", "read_only").ok();
    let no_shell = world.submit("[[RUN touch out.txt]]").repo(&repo).worker("vscode").flag("no-shell").ok();
    world.drain();
    let result = world.succeeded(reads);
    assert_eq!(result.summary.as_deref(), Some("No tool fits: read_file, list_directory"));
    assert!(result.undone.is_empty());
    assert!(result.restrictions.iter().any(|r| r.what == "read_only" && r.enforced_by == "vscode"));
    let result = world.succeeded(no_shell);
    assert!(result.summary.unwrap().ends_with("write_file, edit_file"));
    assert!(result.restrictions.iter().any(|r| r.what == "no_shell" && r.enforced_by == "vscode"));
}

#[test]
fn nothing_is_written_outside_of_the_workspace() {
    if !has_node() {
        return;
    }
    let world = World::new();
    let repo = world.repo("r");
    let outside = world.root().join("outside");
    fs::create_dir(&outside).unwrap();
    std::os::unix::fs::symlink(&outside, repo.path().join("link")).unwrap();
    std::os::unix::fs::symlink(outside.join("dangling"), repo.path().join("dangling")).unwrap();
    repo.commit("links");
    let _window = Window::open(&world, repo.path(), &[]);
    for path in ["link/x", "dangling", "../x", "/etc/x", ".git/x"] {
        let id = submit(&world, &repo, &format!("[[WRITE {path}]]"));
        world.drain();
        // (The links themselves lead out of it, and nothing of that is changed.)
        let result = world.succeeded(id);
        assert!(result.summary.unwrap().contains("It failed"), "{path}");
        assert_eq!(result.changed.len(), 0, "{path}");
    }
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
}

#[test]
fn without_a_bridge_nothing_is_done() {
    let world = World::new();
    let repo = world.repo("r");
    let nowhere = world.root().join("nothing.json");
    world.set_env("WORKSPOOL_VSCODE_FILE", &nowhere.to_string_lossy());
    let id = submit(&world, &repo, "[[WRITE out.txt]]");
    failed(&world, id, Class::NotFound, "is VS Code running");
    world.run(&["workers", "check", "vscode"]).exits(4).says(&["not signed in", "scripts/vscode-extension"]);

    let put = |mode: u32, content: Value| {
        fs::write(&nowhere, content.to_string()).unwrap();
        fs::set_permissions(&nowhere, fs::Permissions::from_mode(mode)).unwrap();
    };
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let free = listener.local_addr().unwrap();
    drop(listener);
    for (mode, url, version, class, words) in [
        (0o600, format!("http://{free}"), 1, Class::NotFound, "does not answer"),
        (0o644, format!("http://{free}"), 1, Class::Permission, "is not believed"),
        (0o600, "http://example.com:80".to_owned(), 1, Class::Permission, "not on this machine"),
        (0o600, format!("http://{free}"), 2, Class::WorkerFailed, "bring both up to date"),
    ] {
        put(mode, json!({ "version": version, "url": url, "token": "t" }));
        let id = submit(&world, &repo, "[[WRITE out.txt]]");
        failed(&world, id, class, words);
    }
}

#[test]
fn a_wrong_token_and_a_wrong_window_are_refused() {
    if !has_node() {
        return;
    }
    let world = World::new();
    let (shown, other) = (world.repo("shown"), world.repo("other"));
    let window = Window::open(&world, shown.path(), &[]);
    let id = submit(&world, &other, "[[WRITE out.txt]]");
    failed(&world, id, Class::Permission, "is not open in VS Code");

    // A folder that only claims to be a worktree of what is open is none.
    let claims = world.root().join("claims");
    fs::create_dir(&claims).unwrap();
    shown.git(&["worktree", "add", "-q", &world.root().join("real").to_string_lossy(), "-b", "real"]);
    fs::copy(world.root().join("real/.git"), claims.join(".git")).unwrap();
    let id = world
        .submit("[[WRITE out.txt]]")
        .with("repo", &claims)
        .with("workspace", "directory")
        .worker("vscode")
        .with("retries", "0")
        .ok();
    world.drain();
    let result = world.result(id);
    assert_eq!(result.state, State::Failed, "{}", result.message);
    assert!(!claims.join("out.txt").exists());

    let mut bridge = window.bridge();
    bridge["token"] = "0".repeat(64).into();
    fs::write(&window.file, bridge.to_string()).unwrap();
    let id = submit(&world, &shown, "[[WRITE out.txt]]");
    failed(&world, id, Class::Auth, "the token is wrong");
}

#[test]
fn what_comes_from_a_web_page_is_refused() {
    if !has_node() {
        return;
    }
    let world = World::new();
    let repo = world.repo("r");
    let window = Window::open(&world, repo.path(), &[]);
    let bridge = window.bridge();
    let host = bridge["url"].as_str().unwrap().strip_prefix("http://").unwrap().to_owned();
    let token = bridge["token"].as_str().unwrap();
    let port = host.rsplit(':').next().unwrap();
    let good = format!("GET /v1/health HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}");
    let (status, answer) = window.raw(&good);
    assert_eq!(status, 200, "{answer}");
    assert!(answer.contains(&*repo.path().to_string_lossy()));
    for (head, wanted) in [
        (format!("{good}\r\nOrigin: https://evil.example"), 403),
        (format!("{good}\r\nOrigin: null"), 403),
        (format!("{good}\r\nSec-Fetch-Site: cross-site"), 403),
        (good.replace(&host, &format!("evil.example:{port}")), 403),
        (good.replace(&host, &format!("localhost:{port}")), 403),
        (good.replace("Bearer", "Basic"), 401),
        (good.replace(token, &token[1..]), 401),
        (format!("GET /v1/health HTTP/1.1\r\nHost: {host}"), 401),
        (good.replace("/v1/health", "/"), 404),
        (good.replace("GET /v1/health", "POST /v1/run"), 400),
    ] {
        let (status, answer) = window.raw(&head);
        assert_eq!(status, wanted, "{head}\n{answer}");
        assert!(!answer.to_ascii_lowercase().contains("access-control"), "{answer}");
    }
}

#[test]
fn a_cancelled_task_ends_its_command_in_the_window() {
    if !has_node() {
        return;
    }
    let world = World::new();
    let repo = world.repo("r");
    let mut window = Window::open(&world, repo.path(), &[]);
    let pid = world.root().join("pid");
    let id = submit(
        &world,
        &repo,
        &format!("[[RUN echo $$ > {p}.new; mv {p}.new {p}; sleep 600]]", p = pid.display()),
    );
    let mut runner = world.run_drain();
    world.await_file(&pid);
    world.on("cancel", id, &[]).ok();
    assert_eq!(world.await_end(id).state, State::Cancelled);
    world.await_until("the command's end", || !is_alive(&pid));
    runner.kill();
    assert!(window.child.try_wait().unwrap().is_none(), "the window goes on");
}

fn is_alive(pid: &Path) -> bool {
    let pid = fs::read_to_string(pid).unwrap();
    Command::new("kill").args(["-0", pid.trim()]).stderr(Stdio::null()).status().unwrap().success()
}

#[test]
fn a_models_refusal_says_who_should_act() {
    if !has_node() {
        return;
    }
    for (env, class) in [
        (vec![("HOST_FAILS", "no consent"), ("HOST_CODE", "NoPermissions")], Class::Auth),
        (vec![("HOST_FAILS", "you exceeded your premium quota")], Class::Quota),
        (vec![("HOST_NO_MODEL", "1")], Class::Auth),
    ] {
        let world = World::new();
        let repo = world.repo("r");
        let _window = Window::open(&world, repo.path(), &env);
        let id = submit(&world, &repo, "[[WRITE out.txt]]");
        failed(&world, id, class, "");
    }
}
