//! `workspool demo`: the whole job, on a throw-away repository, checked at each step.

mod stage;

use super::exit::{self, Exit};
use super::term;
use crate::model::{Review, State, TaskId, TaskResult, Verification};
use crate::spool::Spool;
use stage::{Stage, print};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Show the whole job on a throw-away repository
///
/// Makes a repository with a bug and a failing test, submits two tasks by two doors, works them off with
/// the built-in workers, shows what came out, and accepts one. Needs nothing but git and sh, and removes
/// everything it made.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  workspool demo
  workspool demo --keep")]
pub struct Args {
    /// Leave repository and spool where they are, to look around in
    #[arg(long)]
    keep: bool,
}

const PARCELS: &str = "\
# How many parcels an order needs.
parcels() { # ITEMS SIZE
    items=$1 size=$2
    echo $(( items / size ))
}
";

const TEST: &str = "\
# Tests of parcels.sh. Ends with exit code 1 if one fails.
. ./parcels.sh
status=0
check() { # ITEMS SIZE EXPECTED
    found=$(parcels \"$1\" \"$2\")
    if [ \"$found\" = \"$3\" ]; then
        echo \"ok      $1 items, $2 a parcel: $found parcels\"
    else
        echo \"FAILED  $1 items, $2 a parcel: $found parcels, expected $3\"
        status=1
    fi
}
check 0 4 0
check 8 4 2
check 9 4 3
exit $status
";

/// What the first task runs. `sed -i.bak` is understood by GNU and BSD alike.
const FIX: &str = "sed -i.bak \"s|items / size|(items + size - 1) / size|\" parcels.sh && rm parcels.sh.bak";

/// Carries the verb out.
pub fn run(args: &Args) -> Result<u8, Exit> {
    let stage = Stage::new()?;
    let root = stage.root().to_owned();
    let (repository, spool) = (stage.repository(), stage.spool_path());
    let played = play(&stage);
    if let Err(e) = &played {
        term::error(&format!("the demo failed: {}", e.message));
    }
    let ended = stage.end(args.keep);
    if let Err(e) = &ended {
        term::error(&e.message);
    }
    if args.keep {
        heading("Kept")?;
        text(&format!("Everything is in {}. To look around:", root.display()))?;
        print("")?;
        for command in [
            format!("export WORKSPOOL_HOME={}", spool.display()),
            format!("cd {}", repository.display()),
            "workspool list".into(),
            "workspool show changelog.json".into(),
            "workspool diff changelog.json".into(),
            "workspool accept changelog.json --as commit".into(),
            format!("find {} -type f", spool.display()),
        ] {
            print(&format!("  {command}"))?;
        }
        text(&format!("When you have seen enough: rm -rf {}", root.display()))?;
    }
    match (played, ended) {
        (Ok(()), Ok(())) => {
            if !args.keep {
                text(&format!("All of it worked, and {} is removed again.", root.display()))?;
            }
            Ok(0)
        }
        // Both have been told.
        _ => Ok(exit::FAULT),
    }
}

fn play(stage: &Stage) -> Result<(), Exit> {
    heading("1. A repository with a bug")?;
    make_repository(stage)?;
    text("parcels.sh divides and forgets the rest: nine items, four a parcel, need three parcels.")?;
    if stage.try_out("sh", &["test.sh"])? {
        return Err(wrong("the test of the repository passes, though the bug is there"));
    }
    let before = Snapshot::take(stage)?;

    heading("2. A task by command line")?;
    text(
        "The worker `shell` runs the objective as a script; a coding agent is linked in the same place.\n\
         The verify command runs when the worker is gone, and decides.",
    )?;
    let said = stage.workspool(&[
        "submit",
        FIX,
        "--repo",
        ".",
        "--worker",
        "shell",
        "--title",
        "Round parcels up",
        "--verify",
        "sh test.sh",
    ])?;
    let fix: TaskId = said
        .split_whitespace()
        .next()
        .and_then(|id| id.parse().ok())
        .ok_or_else(|| wrong("submit did not print an id"))?;

    heading("3. A task by dropped file")?;
    text("Whoever can write a file can submit. The worker `mock` does what the lines of its objective say.")?;
    drop_file(stage)?;

    let spool = stage.spool()?;
    heading("4. The directory is the state")?;
    text(
        "There is no database: a task is in one state, and the state is the folder its ticket is in.\n\
         Time and priority, id, repository, worker and attempt are in the ticket's name.",
    )?;
    stage.workspool(&["list"])?;
    folders(&spool)?;

    heading("5. A runner works them off")?;
    text(
        "Each in a git worktree of its own; `run` without --drain, or a timer with `tick`, goes on for ever.",
    )?;
    stage.workspool(&["run", "--drain"])?;
    folders(&spool)?;
    stage.workspool(&["list"])?;
    let changelog = spool.resolve("changelog.json")?;
    let result = ended(&spool, fix, "parcels.sh")?;
    ended(&spool, changelog, "CHANGELOG.md")?;

    heading("6. What came out: result, gate, diff and log")?;
    let id = fix.to_string();
    stage.workspool(&["show", &id])?;
    let diff = stage.workspool(&["diff", &id])?;
    if !diff.contains("+    echo $(( (items + size - 1) / size ))") {
        return Err(wrong("the diff does not hold the correction"));
    }
    stage.workspool(&["logs", &id, "--events"])?;
    let log = stage.workspool(&["logs", &id])?;
    if !log.contains("ok      9 items, 4 a parcel: 3 parcels") {
        return Err(wrong("the log does not hold what the verify command printed"));
    }

    heading("7. Your checkout is as it was")?;
    text("Both tasks worked in git worktrees of their own, on branches of their own:")?;
    if !stage.try_out("git", &["log", "--oneline", "--branches", "--graph"])? {
        return Err(wrong("git log failed"));
    }
    before.compare(&Snapshot::take(stage)?)?;
    text("Files, index, branch, configuration and hooks were compared: not a byte differs.")?;

    heading("8. Accept one")?;
    stage.workspool(&["accept", &id, "--as", "commit"])?;
    if !stage.try_out("sh", &["test.sh"])? {
        return Err(wrong("the test still fails after the correction was accepted"));
    }
    accepted(stage, &spool, &result, &before)?;
    text("The bug is gone. The other task waits for a verdict; nothing of it is in the branch.")?;
    stage.workspool(&["list"])?;
    Ok(())
}

fn make_repository(stage: &Stage) -> Result<(), Exit> {
    let repository = stage.repository();
    fs::write(repository.join("parcels.sh"), PARCELS)?;
    fs::write(repository.join("test.sh"), TEST)?;
    stage.git(&["init", "--quiet"])?;
    stage.git(&["symbolic-ref", "HEAD", "refs/heads/main"])?;
    stage.git(&["config", "user.name", "Demo"])?;
    stage.git(&["config", "user.email", "demo@example.invalid"])?;
    stage.git(&["add", "parcels.sh", "test.sh"])?;
    stage.git(&["commit", "--quiet", "--message", "Count parcels"])?;
    Ok(())
}

fn drop_file(stage: &Stage) -> Result<(), Exit> {
    let task = serde_json::json!({
        "title": "Begin a changelog",
        "objective": "write CHANGELOG.md - An order that does not fill its last parcel gets one more.\\n\n\
                      say Wrote the changelog.",
        "repository": stage.repository(),
        "worker": "mock",
        "verify": ["grep -q parcel CHANGELOG.md"],
    });
    let task = serde_json::to_string_pretty(&task)?;
    let file = stage.root().join("changelog.json");
    fs::write(&file, &task)?;
    stage.show_command("cat", &["../changelog.json"])?;
    for line in task.lines() {
        print(&format!("    {line}"))?;
    }
    let inbox = stage.spool()?.inbox();
    stage.show_command("cp", &["../changelog.json", &inbox.to_string_lossy()])?;
    fs::copy(&file, inbox.join("changelog.json"))?;
    Ok(())
}

/// Shows what is in the folders that tasks go through.
fn folders(spool: &Spool) -> Result<(), Exit> {
    print("")?;
    for folder in ["inbox/", "taken/", "queue/", "held/", "running/", "done/"] {
        let mut names = Vec::new();
        files(&spool.root().join(folder), Path::new(""), &mut names)?;
        let shown = if names.is_empty() { "-" } else { &names.join(&format!("\n{:14}", "")) };
        print(&format!("    {folder:9} {shown}"))?;
    }
    Ok(())
}

fn files(folder: &Path, under: &Path, names: &mut Vec<String>) -> Result<(), Exit> {
    let mut entries: Vec<PathBuf> =
        fs::read_dir(folder)?.map(|e| Ok(e?.path())).collect::<Result<_, Exit>>()?;
    entries.sort();
    for path in entries {
        let name = under.join(path.file_name().unwrap_or_default());
        if path.is_dir() {
            files(&path, &name, names)?;
        } else {
            names.push(name.display().to_string());
        }
    }
    Ok(())
}

/// Checks that a task ended as it should have.
fn ended(spool: &Spool, id: TaskId, changed: &str) -> Result<TaskResult, Exit> {
    let result = spool.read_result(id)?.ok_or_else(|| wrong(&format!("task {id} has no result")))?;
    let paths: Vec<&str> = result.changed.iter().map(|file| file.path.as_str()).collect();
    let as_it_should = result.state == State::Succeeded
        && result.verification == Verification::Verified
        && result.gate.len() == 1
        && result.gate.iter().all(|run| run.passed)
        && paths == [changed]
        && result.commit.is_some()
        && result.survivors.is_empty();
    if !as_it_should {
        let text = format!("task {id} ended as {}: {} (changed: {paths:?})", result.state, result.message);
        return Err(wrong(&text));
    }
    Ok(result)
}

/// Checks that exactly one commit came onto the branch, with the verified tree.
fn accepted(stage: &Stage, spool: &Spool, result: &TaskResult, before: &Snapshot) -> Result<(), Exit> {
    let ask = |what: &str| stage.git(&["rev-parse", what]).map(|said| said.trim().to_owned());
    if ask("HEAD^")? != before.head || Some(ask("HEAD^{tree}")?) != result.tree {
        return Err(wrong("the branch is not the old one with the verified tree on top"));
    }
    let status = stage.git(&["status", "--porcelain"])?;
    if !status.is_empty() {
        return Err(wrong(&format!("the checkout is not clean after the accept: {status}")));
    }
    match crate::review::verdict(spool, result.id)?.map(|v| v.verdict) {
        Some(Review::Accepted) => Ok(()),
        other => Err(wrong(&format!("the verdict was not recorded: {other:?}"))),
    }
}

/// What a task may not change before it is accepted.
#[derive(Debug, PartialEq, Eq)]
struct Snapshot {
    head: String,
    files: BTreeMap<PathBuf, Vec<u8>>,
}

impl Snapshot {
    fn take(stage: &Stage) -> Result<Self, Exit> {
        let head = stage.git(&["rev-parse", "HEAD"])?.trim().to_owned();
        let repository = stage.repository();
        let mut files = BTreeMap::new();
        // Objects and the task's own refs are added; everything else in the git dir is the user's.
        let theirs = ["HEAD", "config", "index", "info", "hooks", "refs/heads/main"];
        let ours = |path: &Path| {
            let inside = path.strip_prefix(".git").ok();
            inside.is_some_and(|p| !p.as_os_str().is_empty() && !theirs.iter().any(|t| p.starts_with(t)))
        };
        let walk = walkdir::WalkDir::new(&repository).into_iter();
        for entry in walk {
            let entry = entry.map_err(|e| wrong(&e.to_string()))?;
            let path = entry.path().strip_prefix(&repository).unwrap_or(entry.path());
            if entry.file_type().is_file() && !ours(path) {
                files.insert(path.to_owned(), fs::read(entry.path())?);
            }
        }
        Ok(Snapshot { head, files })
    }

    fn compare(&self, now: &Snapshot) -> Result<(), Exit> {
        if self.head != now.head {
            return Err(wrong("the branch moved before anything was accepted"));
        }
        let all = self.files.keys().chain(now.files.keys());
        match all.into_iter().find(|path| self.files.get(*path) != now.files.get(*path)) {
            Some(path) => Err(wrong(&format!("{} changed before anything was accepted", path.display()))),
            None => Ok(()),
        }
    }
}

fn heading(title: &str) -> Result<(), Exit> {
    print("")?;
    print(&term::bold(title))
}

fn text(text: &str) -> Result<(), Exit> {
    print("")?;
    print(text)
}

fn wrong(text: &str) -> Exit {
    Exit::new(exit::FAULT, text)
}
