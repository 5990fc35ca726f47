"""A disk that is full, read-only, slow, or fails: during everything that is written."""

import os
import subprocess

from bench import AS_ROOT, STEPS, Broken, Skipped, decent, digest, logged, same, unmount
from kills import settings

# Where a fault strikes, and whether a run may fail because of it. What is only for later or for show must not end a run.
PLACES = {
    "checkpoint": ["/run/checkpoints"],
    "log": ["/run/log.jsonl"],
    "monitor": ["/run/monitor.jsonl", "/run/lanes.json"],
    "manifest, report": ["/run/.tmp"],
    "sample": ["/run/samples"],
    "tensorboard": ["/tb/"],
    "cache": ["/.tandem/mel"],
    "index": ["/.tandem/.tmp", "/.tandem/index", "/.tandem/tokens"],
}
NEVER_FATAL = {"monitor", "sample", "tensorboard", "cache", "index"}
KINDS = ["eio", "enospc", "erofs", "short", "slow"]
TOLD = {"checkpoint", "sample", "tensorboard"}
"""Where something that the user asked for is missing afterwards: the run must say so."""


def shim(bench, place, kind, number, reference):
    """One fault of this kind, at a random operation there; for one operation or from then on."""
    random = bench.random("disk", place, kind, number)
    folder = bench.fresh("disk")
    count = random.choice([1, 0])
    # Only a write can be short; every other operation would be done as always.
    there = operations(reference, PLACES[place], "write" if kind == "short" else None)
    if not there:
        return "nothing is written there"
    at = random.choice(there)
    trace = folder / "trace"
    env = bench.fault(PLACES[place], kind, at, 0 if kind == "slow" else count, 20, trace)
    more = settings(folder, random)
    outcome = bench.train(folder, more, env)
    struck = trace.exists() and sum(1 for _ in open(trace)) >= at
    harmless = kind in ("short", "slow")
    if not struck:
        return "not reached"
    decent(outcome, str(folder))
    # What was asked for and cannot be had is refused before the first step.
    refused = outcome.code == 2 and place == "tensorboard" and not logged_steps(folder)
    if outcome.code != 0 and (harmless or place in NEVER_FATAL) and not refused:
        raise Broken(f"ended the run: {outcome.err[-500:]}")
    if place in TOLD and not harmless and outcome.code == 0 and not told(outcome):
        raise Broken(f"nothing was said: {outcome.text[-500:]}")
    resumes(bench, folder, more, reference, gaps=place == "log" and outcome.code != 0)
    return "error, then resumed" if outcome.code else "finished all the same"


def operations(reference, parts, kind=None):
    """The numbers of the operations that a run has there; of one kind, if it is given."""
    words = (line.split(" ", 2) for line in open(reference / "operations"))
    there = [word for _, word, path in words if any(part in path for part in parts)]
    return [number for number, word in enumerate(there, 1) if kind in (None, word)]


def told(outcome):
    return "cannot be written" in outcome.err or '"checkpoint_failed"' in outcome.out or '"sample_failed"' in outcome.out


def logged_steps(folder):
    return (folder / "run/log.jsonl").exists() and len(logged(folder)[0])


def resumes(bench, folder, more, reference, gaps=False):
    """With the disk as it should be the run comes to the end that it would have had; with gaps in the log, if it said so."""
    outcome = bench.train(folder, more)
    if outcome.code != 0:
        raise Broken(f"did not resume: {outcome.err[-500:]}")
    if gaps:
        if digest(folder, STEPS) != digest(reference, STEPS) or set(logged(folder)[0]) - set(logged(reference)[0]):
            raise Broken("another history")
    else:
        same(folder, reference)
    bench.inspect(folder)


def mount(folder, options):
    """A small disk in memory, or other options for it. Not everybody may: then the case is skipped."""
    done = subprocess.run([*AS_ROOT, "mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], capture_output=True, text=True)
    if done.returncode != 0:
        raise Skipped(done.stderr)


def full(bench, number, reference):
    """A disk (tmpfs) that is full at a random byte; then there is room."""
    random = bench.random("full", number)
    folder = bench.fresh("full")
    disk = folder / "disk"
    disk.mkdir()
    size = random.randrange(1, 9_000) * 1024
    mount(disk, f"size={size},mode=0777")
    try:
        os.symlink(disk / "run", folder / "run")
        more = settings(folder, random)
        # The last word wins: the folder behind the link, as a user would have typed it.
        outcome = bench.train(folder, [*more, "--checkpoint-dir", str(disk / "run")])
        decent(outcome, str(disk))
        mount(disk, "remount,size=1g")
        again = bench.train(folder, [*more, "--checkpoint-dir", str(disk / "run")])
        if again.code != 0:
            raise Broken(f"did not resume: {again.err[-500:]}")
        same(folder, reference)
        bench.inspect(folder)
    finally:
        unmount(disk)
    return "error, then resumed" if outcome.code else "finished all the same"


def read_only(bench, number, reference):
    """The corpus on a read-only disk trains; a run cannot be on one, and says so."""
    random = bench.random("read-only", number)
    folder = bench.fresh("read-only")
    disk = folder / "disk"
    disk.mkdir()
    mount(disk, "size=100m,mode=0777")
    try:
        subprocess.run(["cp", "-r", str(folder / "corpus"), str(disk / "corpus")], check=True)
        mount(disk, "remount,ro")
        more = settings(folder, random)
        refused = bench.train(folder, [*more, "--checkpoint-dir", str(disk / "run")])
        decent(refused, str(disk))
        if refused.code != 2:
            raise Broken(f"exit code {refused.code} for a folder that cannot be written to")
        outcome = bench.train(folder, more, corpus=disk / "corpus")
        if outcome.code != 0:
            raise Broken(f"a corpus on a read-only disk: {outcome.err[-500:]}")
        same(folder, reference)
    finally:
        unmount(disk)
    return "refused; corpus read"
