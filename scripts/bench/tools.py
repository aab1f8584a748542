"""What all cases use: programs, folders, the stop-watch, and how quiet the machine is."""

import json
import os
import shutil
import signal
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]


class Bench:
    """One run: where it works, what it runs, what it has measured."""

    def __init__(self, quick, work, build):
        self.quick = quick
        if build:
            cargo = ["cargo", "build", "--release", "--locked", "--quiet", "--bin", "workspool", "--bench", "floor"]
            subprocess.run(cargo, cwd=TOP, check=True)
        release = Path(os.environ.get("CARGO_TARGET_DIR", TOP / "target")) / "release"
        # Two programs may be named, to measure what was built elsewhere.
        self.program = os.environ.get("BENCH_PROGRAM", str(release / "workspool"))
        floors = sorted((release / "deps").glob("floor-*"), key=lambda p: p.stat().st_mtime)
        self.floor = os.environ.get("BENCH_FLOOR") or str([p for p in floors if p.suffix == ""][-1])
        self.work = Path(tempfile.mkdtemp(prefix="workspool-bench-", dir=work))
        self.rows = []
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("WORKSPOOL", "GIT_"))}
        self.calm = None

    def n(self, full, quick):
        return quick if self.quick else full

    def folder(self, name):
        """A new one. Nothing is removed before the end: a disk without a journal is slow to make files where many were
        just removed, and whoever makes most of them would pay for all."""
        path, n = self.work / name, 1
        while path.exists():
            n += 1
            path = self.work / f"{name}-{n}"
        path.mkdir(parents=True)
        return path

    def run(self, *argv, check=True, **more):
        more.setdefault("env", self.env)
        done = subprocess.run([str(a) for a in argv], capture_output=True, text=True, stdin=subprocess.DEVNULL, **more)
        if check and done.returncode:
            raise RuntimeError(f"{' '.join(map(str, argv))}: exit code {done.returncode}\n{done.stderr[-2000:]}")
        return done.stdout

    def compare(self, rounds, *commands):
        """Median milliseconds of whole commands, run in turns."""
        return self.watch("compare", rounds, commands)

    def pickup(self, rounds, *commands):
        """The same from a command's start to the first instruction of what it leads to."""
        return self.watch("pickup", rounds, commands)

    def watch(self, what, rounds, commands):
        argv = [self.floor, what, rounds]
        for command in commands:
            argv += ["--", *command]
        told = json.loads(self.run(*argv))
        if told["failed"]:
            raise RuntimeError(f"{told['failed']} runs failed of {commands}")
        return [t["median"] for t in told["ms"]]

    def spool(self, name, **keys):
        return Spool(self, self.folder(name) / "spool", keys)

    def row(self, case, what, ours, beside, goal, met, unit="ms", note=""):
        """`beside`: what it is measured against, by name."""
        row = dict(case=case, what=what, ours=ours, beside=beside, goal=goal, met=met, unit=unit, note=note)
        row["noise"] = self.noise()
        self.rows.append(row)
        shown = ", ".join(f"{name} {show(value)}" for name, value in beside.items())
        print(f"{case:9} {what:58} {show(ours):>9} {unit:5} {shown}  [{goal}] {'met' if met else 'NOT MET'} {note}", flush=True)

    def noise(self):
        """How much longer than at its best a bare program takes now: 1.0 is a quiet machine."""
        now = self.compare(9, [self.floor, "nothing"])[0]
        self.calm = min(self.calm or now, now)
        return round(now / self.calm, 2)

    def close(self):
        shutil.rmtree(self.work, ignore_errors=True)


class Spool:
    """A spool of ours, and the loop that works it off."""

    def __init__(self, bench, root, keys):
        self.bench, self.root, self.loop = bench, root, None
        self.argv = [bench.program, "--spool", str(root)]
        root.mkdir(mode=0o700, exist_ok=True)
        lines = [f"{key} = {value}\n" for key, value in {"disk.reserve_percent": 0, **keys}.items()]
        (root / "config.toml").write_text("".join(lines))

    def __call__(self, *args, **more):
        return self.bench.run(*self.argv, *args, **more)

    def start(self, *args):
        self.loop = subprocess.Popen(
            [*self.argv, "run", "--quiet", *args], env=self.bench.env,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until(lambda: (self.root / "locks" / "runner.json").exists())
        time.sleep(0.2)
        return self

    def stop(self):
        self.loop.send_signal(signal.SIGTERM)
        self.loop.wait()

    def drain(self):
        begun = time.monotonic()
        self("run", "--drain", "--quiet")
        return time.monotonic() - begun

    def batch(self, tasks):
        file = self.root.parent / "batch.json"
        file.write_text(json.dumps({"version": 1, "tasks": tasks}))
        return file

    def ended(self):
        return sum(len(list(folder.iterdir())) for folder in (self.root / "done").iterdir())


def task(script, **more):
    return {"objective": script, "worker": "shell", "workspace": "temporary", **more}


def until(look, seconds=60):
    end = time.monotonic() + seconds
    while not look():
        if time.monotonic() > end:
            raise RuntimeError("waited in vain")
        time.sleep(0.005)


def median(values):
    return statistics.median(values)


def show(value):
    if isinstance(value, (int, float)):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return str(value)


def status(pid, field):
    """A field of /proc/PID/status, in kilobytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1])
    return 0


def switches(pid):
    """How often the threads of a process have gone to sleep, and its CPU time in milliseconds."""
    count = 0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        text = (thread / "status").read_text()
        count += int(text.split("voluntary_ctxt_switches:")[1].split()[0])
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    ticks = int(fields[11]) + int(fields[12])
    return count, ticks * 1000 / os.sysconf("SC_CLK_TCK")
