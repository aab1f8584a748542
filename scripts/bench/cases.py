"""The cases, each measured beside a floor in the same minutes."""

import json
import os
import subprocess
import time
from pathlib import Path

import history
from tools import median, show, status, switches, task, until


def start(b):
    """How long the program takes to begin."""
    rounds = b.n(60, 20)
    bare, version, help_ = b.compare(rounds, [b.floor, "nothing"], [b.program, "--version"], [b.program, "--help"])
    b.row("start", "the program's start", version, {"bare": bare}, "bare + 2 ms", version <= bare + 2)
    b.row("start", "--help", help_, {"bare": bare}, "bare + 2 ms", help_ <= bare + 2)
    server = [*b.spool("mcp").argv, "mcp"]
    hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}}
    took = {True: [], False: []}
    for _ in range(rounds):
        for serves, argv in ((False, [b.floor, "nothing"]), (True, server)):
            took[serves].append(answered(b, argv, json.dumps(hello).encode() + b"\n", serves))
    bare, answer = median(took[False]), median(took[True])
    b.row("start", "MCP: from the start to the answer to initialize", answer, {"bare": bare}, "bare + 2 ms", answer <= bare + 2)


def answered(b, argv, hello, serves):
    """Milliseconds until a server has answered, or until a program that says nothing has ended."""
    begun = time.monotonic()
    with subprocess.Popen(argv, env=b.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        if serves:
            program.stdin.write(hello)
            program.stdin.flush()
        program.stdout.readline()
        return (time.monotonic() - begun) * 1000


def enqueue(b):
    """One durable task by the command line; and a batch."""
    floor = b.folder("floor")
    spool = b.spool("enqueue")
    ours = [*spool.argv, "submit", "true", "--worker", "shell", "--workspace", "temporary"]
    rounds = b.n(100, 25)
    bare, empty = b.compare(rounds, [b.floor, "enqueue", floor, "true"], ours)
    b.row("enqueue", "one task, durable", empty, {"floor": bare}, "1.5 × floor", empty <= 1.5 * bare)
    count = b.n(100_000, 10_000)
    old = history.spool(b, count)
    late = [*old.argv, "submit", "true", "--worker", "shell", "--workspace", "temporary"]
    few, many = b.compare(rounds, ours, late)
    b.row("enqueue", f"the same with {count:,} ended", many, {"empty": few}, "flat", many <= 1.2 * few)
    batch = spool.batch([task("true") for _ in range(1000)])
    took = b.compare(b.n(5, 3), [*spool.argv, "submit", "--file", batch])[0]
    b.row("enqueue", "a batch of 1,000", took, {}, "350 ms", took <= 350)


def pickup(b):
    """From the start of the submission to the worker's first instruction, with an idle loop."""
    base = b.folder("pickup-floor")
    served, stamp = base / "new", base / "stamp"
    server = subprocess.Popen([b.floor, "serve", served, b.floor, "stamp", stamp])
    spool = b.spool("pickup").start("--poll", "60s")
    mine = spool.root.parent / "stamp"
    ours = [mine, *spool.argv, "submit", f"{b.floor} stamp {mine}", "--worker", "command", "--workspace", "temporary"]
    until(served.exists)
    time.sleep(0.2)
    bare, got = b.pickup(b.n(60, 15), [stamp, b.floor, "enqueue", served, "x"], ours)
    server.kill()
    b.row("pickup", "enqueue to first instruction, idle loop", got, {"floor": bare}, "4 × floor", got <= 4 * bare)
    old = history.spool(b, b.n(100_000, 10_000))
    # What other cases left in its queue.
    old.drain()
    old.start("--poll", "60s")
    late = [mine, *old.argv, "submit", f"{b.floor} stamp {mine}", "--worker", "command", "--workspace", "temporary"]
    few, many = b.pickup(b.n(60, 15), ours, late)
    spool.stop()
    old.stop()
    b.row("pickup", f"the same with {old.count:,} ended", many, {"empty": few}, "flat", many <= 1.2 * few)
    for crowd in b.n([1, 5, 20, 30, 50], [5, 20]):
        spool = b.spool("crowd", max_concurrency=crowd).start("--poll", "60s")
        ticks = spool.root.parent / "ticks"
        begun = time.monotonic()
        running = [subprocess.Popen(
            [*spool.argv, "submit", f"{b.floor} tick {ticks}", "--worker", "command", "--workspace", "temporary"],
            env=b.env, stdout=subprocess.DEVNULL) for _ in range(crowd)]
        failed = sum(p.wait() != 0 for p in running)
        b.run(b.floor, "wait", ticks, crowd, 60)
        each = (time.monotonic() - begun) * 1000 / crowd
        spool.stop()
        b.row("pickup", f"{crowd} at once: all begun, per task", each, {"floor": bare}, "all begin, ≤ 4 × floor each",
              failed == 0 and each <= 4 * bare)


def drain(b):
    """Tasks that do nothing, enqueued before; all durable and supervised."""
    n = b.n(1000, 150)
    for slots in (1, 4):
        bare, ours = [], []
        for round_ in range(b.n(3, 2)):
            base = b.folder("drain-floor")
            told = b.run(b.floor, "drain", n, slots, base, b.floor, "tick", base / "ticks")
            bare.append(n * 1000 / float(told))
            spool = b.spool("drain", max_concurrency=slots)
            ticks = spool.root.parent / "ticks"
            spool("submit", "--file", spool.batch([task(f"exec {b.floor} tick {ticks}") for _ in range(n)]))
            spool("list")
            took = spool.drain()
            ran = ticks.stat().st_size
            if ran != n or spool.ended() != n:
                raise RuntimeError(f"{ran} of {n} tasks ran")
            ours.append(n / took)
        got, floor = median(ours), median(bare)
        goal = {1: "216 (nq) × floor / 1,099", 4: "291 (parallel) × floor / 1,762"}[slots]
        wanted = {1: 216 / 1099, 4: 291 / 1762}[slots] * floor
        b.row("drain", f"{n:,} no-op tasks, {slots} at once", got, {"floor": floor, "wanted": wanted}, goal,
              got >= wanted, unit="/s")


def look(b):
    """Reading a spool, with little and with much history."""
    small, large = history.spool(b, 1000), history.spool(b, b.n(100_000, 10_000))
    rounds = b.n(40, 15)
    last = lambda s: json.loads(s("list", "--limit", "1", "--json"))["tasks"][0]["id"]
    few, many = b.compare(rounds, [*small.argv, "list"], [*large.argv, "list"])
    b.row("look", f"list, {large.count:,} ended", many, {"1,000": few}, "10 ms, 1.5 × of 1,000", many <= 10 and many <= 1.5 * few)
    few, many = b.compare(rounds, [*small.argv, "show", last(small)], [*large.argv, "show", last(large)])
    b.row("look", f"show, {large.count:,} ended", many, {"1,000": few}, "flat", many <= 1.2 * few)
    few, many = b.compare(rounds, [*small.argv, "status"], [*large.argv, "status"])
    b.row("look", f"status (counts), {large.count:,} ended", many, {"1,000": few}, "flat", many <= 1.2 * few)
    few, many = b.compare(rounds, [*small.argv, "tick"], [*large.argv, "tick"])
    b.row("look", f"tick with nothing to do, {large.count:,} ended", many, {"1,000": few}, "flat", many <= 1.2 * few)
    begun = time.monotonic()
    read = sum(len(p.read_bytes()) for p in (large.root / "tasks").glob("*/*.json"))
    reading = (time.monotonic() - begun) * 1000
    full = b.compare(3, [*large.argv, "list", "--limit", str(large.count), "--json"])[0]
    b.row("look", f"the whole list as JSON, {large.count:,} ended", full, {"reading every file": reading},
          "0.6 × reading", full <= 0.6 * reading, note=f"{read >> 20} MiB")


def idle(b):
    """A loop with nothing to do."""
    seconds = b.n(60, 10)
    for count in (0, b.n(100_000, 10_000)):
        spool = history.spool(b, count) if count else b.spool("idle")
        spool.start()
        time.sleep(2)
        before = switches(spool.loop.pid)
        time.sleep(seconds)
        after = switches(spool.loop.pid)
        memory = status(spool.loop.pid, "VmRSS") / 1024
        spool.stop()
        wakes, cpu = (after[0] - before[0]) / seconds, after[1] - before[1]
        b.row("idle", f"wake-ups of an idle loop, {count:,} ended", wakes, {"CPU ms": cpu}, "0.25/s", wakes <= 0.25, unit="/s")
        b.row("idle", f"its memory, {count:,} ended", memory, {}, "8 MiB", memory <= 8, unit="MiB")


def waiting(b):
    """A running loop with a long queue: what a claim costs, and what a waiting task costs."""
    done, found = b.n(300, 100), {}
    few, many = 1000, b.n(100_000, 10_000)
    for count in (few, many):
        spool = b.spool("waiting", max_concurrency=1)
        batch = spool.batch([task(f"exec {b.floor} nothing") for _ in range(1000)])
        for _ in range(count // 1000):
            spool("submit", "--file", batch)
        spool("list")
        files = sum(1 for _ in (spool.root / "tasks").rglob("*")) / count
        spool.start()
        until(lambda: spool.ended() >= 20)
        begun, first = time.monotonic(), spool.ended()
        until(lambda: spool.ended() >= first + done)
        took, ran = time.monotonic() - begun, spool.ended() - first
        memory = status(spool.loop.pid, "VmHWM") / 1024
        spool.stop()
        found[count] = (took * 1000 / ran, memory, files)
    (short, _, _), (long, memory, files) = found[few], found[many]
    b.row("waiting", f"a task after the other, {many:,} queued", long, {"1,000 queued": short}, "flat", long <= 1.2 * short)
    b.row("waiting", f"memory of the loop at its most, {many:,} queued", memory, {"paths below tasks/ for each": files},
          "a waiting task costs a file", memory <= 64, unit="MiB")


def memory(b):
    """Supervisor and keeper of one running task."""
    spool = b.spool("memory").start()
    ready = spool.root.parent / "ready"
    spool("submit", f"touch {ready}; sleep 30", "--worker", "shell", "--workspace", "temporary")
    until(ready.exists)
    time.sleep(2.5)
    total, parts = 0, {}
    for proc in Path("/proc").glob("[0-9]*"):
        try:
            argv = (proc / "cmdline").read_bytes().split(b"\0")
            keeps = (proc / "comm").read_text().strip() == "workspool-keep" or argv[1:2] == [b"keep"]
            smaps = (proc / "smaps_rollup").read_text()
        except OSError:
            continue
        if argv[:1] == [b.program.encode()] and argv[1:2] in ([b"exec"], [b"keep"]) and str(spool.root).encode() in b" ".join(argv):
            field = lambda name: sum(int(line.split()[1]) for line in smaps.splitlines() if line.startswith(name)) / 1024
            parts["keeper private" if keeps else "supervisor private"] = field("Private_")
            total += field("Rss:")
    identifier = json.loads(spool("list", "--json"))["tasks"][0]["id"]
    spool("cancel", identifier)
    until(lambda: spool.ended() == 1)
    spool.stop()
    b.row("memory", "supervisor and keeper of one task, resident", total, parts,
          "8 MiB", total <= 8, unit="MiB")


def output(b):
    """A worker that prints a lot."""
    size = b.n(1000, 200)
    spool = b.spool("output")
    line = "building target 12345 of the project, nothing to see here: src/module/file.rs ok"
    spool("submit", f"yes '{line}' | head -c {size}000000", "--worker", "shell", "--workspace", "temporary")
    took = spool.drain()
    _, state = b.run("ls", next((spool.root / "done").iterdir())).strip().rsplit(".", 1)
    bare = b.compare(1, ["sh", "-c", f"yes '{line}' | head -c {size}000000 | cat > /dev/null"])[0] / 1000
    rate = size / took
    b.row("output", f"a worker that prints {size} MB", rate, {"cat": size / bare}, "100 MB/s", rate >= 100 and state == "succeeded", unit="MB/s")


ALL = dict(start=start, enqueue=enqueue, pickup=pickup, drain=drain, look=look, idle=idle, waiting=waiting, memory=memory, output=output)
