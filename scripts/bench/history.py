"""Spools with a long past, made from one task that really ran."""

import json
import shutil

from tools import Spool, task

ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


def number(text):
    value = 0
    for letter in text:
        value = value * 32 + ALPHABET.index(letter)
    return value


def name(value):
    letters = []
    for _ in range(26):
        value, digit = divmod(value, 32)
        letters.append(ALPHABET[digit])
    return "".join(reversed(letters))


def spool(b, count):
    """A spool in which `count` tasks have succeeded. Made once a run."""
    made = b.work / f"history-{count}"
    there = made.exists()
    made.mkdir(exist_ok=True)
    found = Spool(b, made / "spool", {})
    found.count = count
    if there:
        return found
    found("submit", "--file", found.batch([task("true")]))
    found.drain()
    (ticket,) = (found.root / "done" / "000001").iterdir()
    known = ticket.name.split("-")[1]
    records = {p.name: p.read_text() for p in (found.root / "tasks" / known).iterdir() if p.suffix in (".json", ".jsonl")}
    for k in range(1, count):
        # A thousand a folder, as the program itself does.
        folder = found.root / "done" / f"{1 + k // 1000:06}"
        if k % 1000 == 0:
            folder.mkdir(mode=0o700)
        other = name(number(known) - (count - k))
        end = ticket.name.replace(known, other)
        (folder / end).touch()
        home = found.root / "tasks" / other
        home.mkdir(mode=0o700)
        (home / "lock").touch()
        for file, text in records.items():
            (home / file).write_text(text.replace(f"done/000001/{ticket.name}", f"done/{folder.name}/{end}").replace(known, other))
    return found


def forget(b):
    for path in b.work.glob("history-*"):
        shutil.rmtree(path)
