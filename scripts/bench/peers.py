"""What people use instead: each started, fed and drained as its own manual says.

The programs are looked for on PATH and in a cache folder, and installed there where they are missing: task-spooler,
nq and parallel from Debian's packages, pueue by cargo, huey and rq (with redis-server) by pip.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from tools import median, until

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "workspool-bench"


def install():
    """Puts what is missing into the cache folder; says what cannot be had."""
    CACHE.mkdir(parents=True, exist_ok=True)
    missing = []

    def attempt(name, *commands):
        for command in commands:
            if subprocess.run(command, cwd=CACHE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode:
                missing.append(name)
                return

    for program, package in (("tsp", "task-spooler"), ("nq", "nq"), ("parallel", "parallel"), ("redis-server", "redis-server")):
        if not find(program):
            attempt(package, ["apt-get", "download", package])
            for archive in CACHE.glob(f"{package}_*.deb"):
                attempt(package, ["dpkg-deb", "-x", archive.name, "deb"])
    if not find("pueued"):
        attempt("pueue", ["cargo", "install", "--quiet", "--locked", "--root", str(CACHE), "pueue@^4"])
    if not (CACHE / "venv" / "bin" / "rq").exists():
        attempt("huey and rq", [sys.executable, "-m", "venv", "venv"], ["venv/bin/pip", "install", "--quiet", "huey", "rq"])
    return sorted(set(missing))


def find(program):
    places = [CACHE / "bin", CACHE / "deb" / "usr" / "bin", CACHE / "venv" / "bin"]
    inside = next((str(place / program) for place in places if (place / program).exists()), None)
    return inside or shutil.which(program)


class Peer:
    """A queue: `start` with a number of slots, `add` is the argv that submits a command."""

    slots = (1, 4)
    # As many as all drains here have; fewer where that many would take minutes.
    tasks = 1000

    def __init__(self, b):
        self.b, self.home, self.env, self.processes = b, b.folder("peer"), dict(b.env), []

    def daemon(self, *argv, **more):
        self.processes.append(subprocess.Popen([str(a) for a in argv], env=self.env, stdin=subprocess.DEVNULL,
                                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **more))

    def stop(self):
        for process in reversed(self.processes):
            process.terminate()
            process.wait()


class Tsp(Peer):
    # With more waiting than this it hangs.
    name, program, tasks = "tsp", "tsp", 900

    def start(self, slots):
        self.env |= {"TS_SOCKET": str(self.home / "socket"), "TMPDIR": str(self.home), "TS_MAXCONN": "4000"}
        self.b.run(find("tsp"), "-S", slots, env=self.env)

    def add(self, *argv):
        return [find("tsp"), "-n", *argv]

    def stop(self):
        self.b.run(find("tsp"), "-K", env=self.env)


class Nq(Peer):
    name, program, slots = "nq", "nq", (1,)

    def start(self, slots):
        self.env |= {"NQDIR": str(self.home)}

    def add(self, *argv):
        return [find("nq"), "-q", *argv]


class Parallel(Peer):
    name, program = "parallel", "parallel"

    def start(self, slots):
        queue = self.home / "queue"
        queue.touch()
        self.env |= {"PARALLEL_HOME": str(self.home)}
        (self.home / "will-cite").touch()
        line = f"tail -n+0 -f {queue} | {find('parallel')} -j{slots}"
        self.daemon("sh", "-c", line, start_new_session=True)
        time.sleep(1)

    def add(self, *argv):
        return ["sh", "-c", f"echo '{' '.join(map(str, argv))}' >> {self.home}/queue"]

    def stop(self):
        for process in self.processes:
            os.killpg(process.pid, 15)
            process.wait()


class Pueue(Peer):
    name, program, tasks = "pueue", "pueued", 20

    def start(self, slots):
        config = self.home / "pueue.yml"
        config.write_text(f"client: {{}}\ndaemon: {{}}\nshared: {{pueue_directory: {self.home}, runtime_directory: {self.home}, "
                          f"use_unix_socket: true, unix_socket_path: {self.home}/socket}}\n")
        self.env |= {"PUEUE_CONFIG_PATH": str(config)}
        self.daemon(find("pueued"))
        until((self.home / "socket").exists)
        time.sleep(0.3)
        self.b.run(find("pueue"), "parallel", slots, env=self.env)

    def add(self, *argv):
        return [find("pueue"), "add", "--", *argv]


class Huey(Peer):
    name, program, tasks = "huey", "huey_consumer", 40

    def start(self, slots):
        (self.home / "work.py").write_text(
            f"import subprocess\nfrom huey import SqliteHuey\nhuey = SqliteHuey(filename='{self.home}/huey.db')\n"
            "@huey.task()\ndef run(*argv): return subprocess.call(argv)\n")
        (self.home / "add.py").write_text("import sys, work\nwork.run(*sys.argv[1:])\n")
        self.env |= {"PYTHONPATH": str(self.home)}
        self.daemon(find("huey_consumer"), "work.huey", "-w", slots, "-k", "thread", "-q")
        time.sleep(1.5)

    def add(self, *argv):
        return [CACHE / "venv" / "bin" / "python", self.home / "add.py", *argv]


class Rq(Peer):
    name, program, tasks = "rq", "rq", 40

    def start(self, slots):
        (self.home / "jobs.py").write_text("import subprocess\ndef run(*argv): return subprocess.call(argv)\n")
        self.env |= {"PYTHONPATH": str(self.home)}
        self.url = f"unix://{self.home}/redis?db=0"
        self.daemon(find("redis-server"), "--port", 0, "--unixsocket", self.home / "redis", "--dir", self.home, "--appendonly", "yes", "--save", "")
        until((self.home / "redis").exists)
        for _ in range(slots):
            self.daemon(find("rq"), "worker", "-u", self.url, "-q")
        time.sleep(2)

    def add(self, *argv):
        return [find("rq"), "enqueue", "--quiet", "-u", self.url, "jobs.run", *argv]


class Ours(Peer):
    name, program = "workspool", "sh"

    def start(self, slots):
        self.spool = self.b.spool("ours", max_concurrency=slots).start("--poll", "60s")

    def add(self, *argv):
        # Without a shell, as the others start it.
        words = json.dumps([str(a) for a in argv])
        return [*self.spool.argv, "submit", words, "--worker", "command", "--workspace", "temporary"]

    def stop(self):
        self.spool.stop()


def drain(b, kind, slots):
    """Tasks a second: all are enqueued behind one that blocks each slot, then let go."""
    peer = kind(b)
    ticks, gate, hold = (peer.home / name for name in ("ticks", "gate", "hold"))
    # A file: each queue has its own way with quotes and options.
    hold.write_text(f"until test -e {gate}; do sleep 0.01; done\n")
    n = min(peer.tasks, b.n(peer.tasks, 20))
    peer.start(slots)
    try:
        for _ in range(slots):
            b.run(*peer.add("sh", hold), env=peer.env)
        for _ in range(n):
            b.run(*peer.add(b.floor, "tick", ticks), env=peer.env)
        time.sleep(0.5)
        gate.touch()
        took = float(b.run(b.floor, "wait", ticks, n, 120))
    finally:
        peer.stop()
    return n * 1000 / took


def all_peers(b):
    missing = install()
    if missing:
        print(f"peers     not to be had here: {', '.join(missing)}", flush=True)
    kinds = [kind for kind in (Tsp, Nq, Parallel, Pueue, Huey, Rq) if find(kind.program)]
    for slots in (1, 4):
        rates = {}
        for round_ in range(b.n(3, 1)):
            for kind in (Ours, *kinds):
                # The slow ones once: nothing depends on their last digit.
                if slots not in kind.slots or (round_ and kind.tasks < 900):
                    continue
                try:
                    rates.setdefault(kind.name, []).append(drain(b, kind, slots))
                except (RuntimeError, OSError) as error:
                    if kind is Ours:
                        raise
                    print(f"peers     {kind.name}: {error}", flush=True)
        beside = {name: median(got) for name, got in rates.items()}
        ours = beside.pop(Ours.name)
        rival = beside.get({1: "nq", 4: "parallel"}[slots])
        goal = {1: "1 × nq", 4: "1 × parallel"}[slots]
        b.row("peers", f"tasks a second, {slots} at once", ours, beside, goal, rival is not None and ours >= rival, unit="/s")
