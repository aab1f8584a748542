"""Tasks in git worktrees, beside the bare sequence of the git commands that such a task needs."""

import json
import os
import subprocess
import time
from pathlib import Path

from tools import median, until

# What nobody can do without: a tree, the change, its commit, the patch, and the tree's end.
SEQUENCE = """set -e
cd "$1"; tree="$2"
git worktree add -q --detach "$tree" HEAD
sh -c 'echo changed >> d0/f0.txt' < /dev/null
cp "$(git -C "$tree" rev-parse --git-path index)" "$tree.index"
GIT_INDEX_FILE="$tree.index"; export GIT_INDEX_FILE
git -C "$tree" add -A
made=$(git -C "$tree" write-tree)
commit=$(git commit-tree -p HEAD -m change "$made")
git update-ref "refs/heads/bare/$(basename "$tree")" "$commit"
git diff --binary HEAD "$commit" > "$tree.patch"
sh -c true < /dev/null
unset GIT_INDEX_FILE
git worktree remove --force "$tree"
"""


def repository(b, files):
    path = b.work / f"repository-{files}"
    if path.exists():
        return path
    for k in range(files):
        if k % 100 == 0:
            (path / f"d{k // 100}").mkdir(parents=True)
        (path / f"d{k // 100}" / f"f{k}.txt").write_text(f"{k}\n" * (2000 // (len(str(k)) + 1)))
    git = ["git", "-C", str(path)]
    who = ["-c", "user.name=bench", "-c", "user.email=bench@example.org"]
    b.run("git", "init", "-q", path)
    b.run(*git, "add", "-A")
    b.run(*git, *who, "commit", "-q", "-m", "base")
    return path


def work(path):
    return ["--repo", str(path), "--worker", "shell", "--verify", "true"]


def one(b):
    """One task from submission to its recorded end: worktree, shell worker, one gate, commit, patch."""
    sequence = b.folder("git") / "sequence"
    sequence.write_text(SEQUENCE)
    env = {**b.env, "GIT_AUTHOR_NAME": "b", "GIT_AUTHOR_EMAIL": "b@b", "GIT_COMMITTER_NAME": "b", "GIT_COMMITTER_EMAIL": "b@b"}
    for files in b.n([100, 10_000, 100_000], [100, 1000]):
        path = repository(b, files)
        spool = b.spool("git-spool").start("--poll", "60s")
        bare, ours = [], []
        rounds = {100: 15, 1000: 7, 10_000: 5}.get(files, 2)
        for k in range(rounds):
            begun = time.monotonic()
            b.run("sh", sequence, path, b.work / "git" / f"bare-{files}-{k}", env=env)
            bare.append((time.monotonic() - begun) * 1000)
            begun = time.monotonic()
            spool("submit", "echo changed >> d0/f0.txt", *work(path), "--wait")
            ours.append((time.monotonic() - begun) * 1000)
        spool.stop()
        got, floor = median(ours), median(bare)
        limit, goal = (2, "2 × bare") if files <= 100 else (1.15, "1.15 × bare")
        calls = count_calls(b, path)
        b.row("git", f"a task end to end, {files:,} files", got, {"bare": floor}, goal, got <= limit * floor,
              note=f"{calls} git processes")


def count_calls(b, path):
    """How many git processes one such task starts."""
    folder = b.folder("count")
    real = b.run("sh", "-c", "command -v git").strip()
    (folder / "git").write_text(f"#!/bin/sh\nprintf . >> {folder}/calls\nexec {real} \"$@\"\n")
    (folder / "git").chmod(0o755)
    kept = b.env
    b.env = {**kept, "PATH": f"{folder}:{kept['PATH']}"}
    try:
        spool = b.spool("count-spool")
        spool("submit", "echo changed >> d0/f0.txt", *work(path))
        spool("list")
        before = (folder / "calls").stat().st_size if (folder / "calls").exists() else 0
        spool.drain()
        return (folder / "calls").stat().st_size - before
    finally:
        b.env = kept


def crowd(b):
    """64 attempts at once on one repository, beside plain git that does the same."""
    at_once = b.n(64, 16)
    path = repository(b, 100)
    sequence = b.folder("crowd-git") / "sequence"
    sequence.write_text(SEQUENCE.replace("git worktree add", f'flock "{b.work}/crowd.lock" git worktree add'))
    env = {**b.env, "GIT_AUTHOR_NAME": "b", "GIT_AUTHOR_EMAIL": "b@b", "GIT_COMMITTER_NAME": "b", "GIT_COMMITTER_EMAIL": "b@b"}
    bare, ours, failed = [], [], 0
    for round_ in range(b.n(3, 1)):
        begun = time.monotonic()
        running = [subprocess.Popen(["sh", sequence, path, b.work / "crowd-git" / f"t{round_}-{k}"], env=env,
                                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for k in range(at_once)]
        lost = sum(p.wait() != 0 for p in running)
        bare.append((time.monotonic() - begun) * 1000)
        spool = b.spool("crowd-spool", max_concurrency=at_once, repo_concurrency=at_once)
        one_task = {"objective": "echo changed >> d0/f0.txt", "worker": "shell", "repository": str(path), "verify": ["true"]}
        spool("submit", "--file", spool.batch([one_task] * at_once))
        ours.append(spool.drain() * 1000)
        failed += sum(not p.name.endswith(".succeeded") for p in (spool.root / "done").glob("*/*"))
    got, floor = median(ours), median(bare)
    b.row("crowd", f"{at_once} attempts at once on one repository", got, {"plain git": floor, "its failures": lost},
          "0 failures, 1.1 × plain git", failed == 0 and got <= 1.1 * floor, note=f"{failed} failures")


def overlay(b):
    """Making the tree of a task: an overlay over a checkout that is there, beside `git worktree add`."""
    for files in b.n([10_000, 100_000], [1000]):
        path = repository(b, files)
        spool = b.spool("overlay-spool").start("--poll", "60s")
        rounds = 5 if files <= 10_000 else 3
        bare = []
        for k in range(rounds):
            tree = b.folder("overlay-git") / f"bare-{files}-{k}"
            begun = time.monotonic()
            b.run("git", "-C", path, "worktree", "add", "-q", "--detach", tree, "HEAD")
            bare.append((time.monotonic() - begun) * 1000)
            b.run("git", "-C", path, "worktree", "remove", "--force", tree)
        spool("submit", "true", *work(path), "--workspace", "overlay", "--wait")
        first = made(spool)
        for k in range(rounds):
            spool("submit", "echo changed >> d0/f0.txt", *work(path), "--workspace", "overlay", "--wait")
        later = made(spool)
        spool.stop()
        got, whole = (median([later[task][k] for task in later if task not in first]) for k in (0, 1))
        floor = median(bare)
        limit = {10_000: 8, 100_000: 20}.get(files, 1)
        b.row("overlay", f"making an overlay, {files:,} files", got, {"git worktree add": floor}, f"1/{limit} × git",
              got * limit <= floor, note=f"{floor / got:.0f} × faster; {whole:.0f} ms with the look at what it lacks; "
                   f"the first made the checkout in {max(first.values())[0]} ms")


def made(spool):
    """Milliseconds that the tree of each task took, and all that is looked at beside it."""
    read = lambda path: json.loads(path.read_text())
    prepared = {p.parents[2].name: read(p) for p in spool.root.glob("tasks/*/attempts/1/prepared.json")}
    return {task: (each["tree_ms"], each["elapsed_ms"]) for task, each in prepared.items()}


def warm(b):
    """A warm tree, given on and taken, beside a tree that is made and removed."""
    for files in b.n([10_000, 100_000], [1000]):
        path = repository(b, files)
        spool = b.spool("warm-spool", **{f'warm_trees."{path}"': 1}).start("--poll", "60s")
        bare, taken, kept = [], [], []
        for k in range(-1, {1000: 7, 10_000: 5}.get(files, 2)):
            tree = b.work / f"bare-{files}-{k}"
            begun = time.monotonic()
            b.run("git", "-C", path, "worktree", "add", "-q", "--detach", tree, "HEAD")
            b.run("git", "-C", path, "worktree", "remove", "--force", tree)
            bare.append((time.monotonic() - begun) * 1000)
            told = spool("submit", "echo changed >> d0/f0.txt; echo new > new.txt", *work(path), "--json")
            folder = spool.root / "tasks" / json.loads(told)["tasks"][0]["id"]
            kept_in = lambda: [json.loads(line)["what"].get("elapsed_ms") for line in history(folder) if "tree_kept" in line]
            until(kept_in)
            kept.append(kept_in()[0])
            prepared = json.loads((folder / "attempts/1/prepared.json").read_text())
            if k >= 0:
                if "tree_from" not in prepared:
                    raise RuntimeError("the tree was made anew")
                taken.append(prepared["tree_ms"])
        spool.stop()
        got, floor = median(taken) + median(kept[1:]), median(bare)
        b.row("warm", f"a tree taken and given on, {files:,} files", got, {"add + remove": floor}, "0.1 × add + remove",
              got <= 0.1 * floor, note=f"taken in {median(taken):.0f}, given on in {median(kept[1:]):.0f}, with the proof")


def history(folder):
    """The lines of a task's history, once it has one."""
    path = folder / "events.jsonl"
    return path.read_text().splitlines() if path.exists() else []


ALL = dict(git=one, crowd=crowd, overlay=overlay, warm=warm)
