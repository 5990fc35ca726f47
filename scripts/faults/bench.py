"""What all parts of the campaign share: a small corpus, runs of the program, and what must be true of them."""

import ctypes
import hashlib
import json
import math
import os
import random
import re
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

STEPS = 16
"""Steps of a run, on three batches: enough for snapshots, which begin after thirteen."""
TIMEOUT = 240
"""Seconds in which a run that hangs shows it: it computes nothing all that time, or it computes for so long (a run needs a few)."""


class Broken(Exception):
    """A promise that was not kept."""


class Skipped(Exception):
    """What this machine does not let us do."""


AS_ROOT = [] if os.geteuid() == 0 else ["sudo", "-n"]
LIBC = ctypes.CDLL(None, use_errno=True)


def unmount(folder):
    """Until nothing is mounted there: what was mounted twice has two layers."""
    while os.path.ismount(folder):
        if subprocess.run([*AS_ROOT, "umount", "-l", str(folder)], capture_output=True).returncode != 0:
            break


def die_with_parent():
    """A campaign that is killed leaves no run behind that writes where the next one works (Linux)."""
    if hasattr(LIBC, "prctl"):
        LIBC.prctl(1, signal.SIGKILL, 0, 0, 0)


@dataclass
class Outcome:
    """How a run of the program ended."""

    code: int
    out: str
    err: str

    @property
    def text(self):
        return self.out + self.err

    def events(self, name):
        found = []
        for line in self.out.splitlines():
            if line.startswith('{"event":"%s"' % name):
                try:
                    found.append(json.loads(line))
                except ValueError:
                    pass
        return found


@dataclass
class Bench:
    """Where everything happens."""

    program: str
    shim: str
    folder: Path
    seed: int
    gpus: dict = field(default_factory=dict)
    kept: dict = field(default_factory=dict)
    """What is computed once a start."""

    def fresh(self, name):
        """An empty folder, with the corpus in it."""
        folder = self.folder / name
        self.clear(name)
        folder.mkdir(parents=True)
        shutil.copytree(self.folder / "corpus", folder / "corpus")
        return folder

    def clear(self, name):
        """Takes away a folder of `fresh`, with the disk that a campaign which was killed may have left mounted in it."""
        unmount(self.folder / name / "disk")
        shutil.rmtree(self.folder / name, ignore_errors=True)

    def start(self, folder, more=(), env=None, steps=STEPS, corpus=None, limit=None):
        """A training run in `folder`/run, started."""
        arguments = [
            self.program, "train", "--train-data", str(corpus or folder / "corpus"), "--checkpoint-dir", str(folder / "run"),
            "--model-size", "smoke", "--batch-size", "4", "--max-steps", str(steps), "--log-every", "1", "--model-start-delay",
            "0", "--stall-timeout", "600", "--json", *more,
        ]
        if limit:
            arguments = ["bash", "-c", f'{limit}; exec "$@"', "bash", *arguments]
        # Both outputs go to files: a pipe that nobody empties would stop the program.
        out, err = open(folder / "out", "w+b"), open(folder / "err", "w+b")
        clean = {k: v for k, v in os.environ.items() if not k.startswith("FAULT_") and k not in ("LANG", "LC_MESSAGES")}
        clean.update(LC_ALL="C.UTF-8", NO_COLOR="1", HOME=str(folder), XDG_CACHE_HOME=str(folder / "cache"))
        child = subprocess.Popen(arguments, stdout=out, stderr=err, env={**clean, **(env or {})}, cwd=folder,
                                 preexec_fn=die_with_parent)
        child.outputs = (out, err)
        # A software GPU compiles its kernels first.
        child.timeout = 10 * TIMEOUT if "VK_ICD_FILENAMES" in (env or {}) else TIMEOUT
        return child

    def wait(self, child):
        """Waits for its end; a run that hangs is a promise broken. On a busy machine a run may wait for a core for minutes: what
        counts is what it computes, not what the clock says."""
        began = idle_since = time.monotonic()
        before = 0.0
        while True:
            try:
                code = child.wait(1.0)
                break
            except subprocess.TimeoutExpired:
                pass
            computed, wants_more = cpu_seconds(child.pid)
            if wants_more or computed > before + 0.02:
                idle_since, before = time.monotonic(), computed
            idle = time.monotonic() - idle_since
            if idle > TIMEOUT or computed > child.timeout:
                child.kill()
                child.wait()
                raise Broken(f"hung: idle for {idle:.0f} s, {computed:.0f} s of CPU in {time.monotonic() - began:.0f} s")
        texts = []
        for file in child.outputs:
            file.seek(0)
            texts.append(file.read().decode("utf-8", "replace"))
            file.close()
        return Outcome(code, *texts)

    def train(self, folder, more=(), env=None, **options):
        return self.wait(self.start(folder, more, env, **options))

    def fault(self, paths, kind, at, count=1, ms=0, trace=None):
        """The environment in which the disk has this fault."""
        env = {
            "LD_PRELOAD": self.shim, "FAULT_PATH": ":".join(paths), "FAULT_KIND": kind, "FAULT_AT": str(at),
            "FAULT_COUNT": str(count), "FAULT_MS": str(ms),
        }
        if trace:
            env["FAULT_TRACE"] = str(trace)
        return env

    def inspect(self, folder):
        """What is in the run is whole."""
        found = subprocess.run([self.program, "inspect", str(folder / "run")], capture_output=True, text=True, timeout=TIMEOUT)
        if found.returncode != 0:
            raise Broken(f"inspect: {found.stdout}{found.stderr}")

    def random(self, *key):
        """Numbers that depend on the seed and on what they are for, not on what was drawn before."""
        return random.Random("/".join(map(str, (self.seed, *key))))


def cpu_seconds(pid):
    """CPU time of a process, and whether one of its threads runs or waits for a core (Linux)."""
    try:
        states = [open(f"/proc/{pid}/task/{task}/stat").read().rpartition(")")[2].split() for task in os.listdir(f"/proc/{pid}/task")]
    except (FileNotFoundError, ProcessLookupError):
        return 0.0, False
    ticks = sum(int(fields[11]) + int(fields[12]) for fields in states)
    return ticks / os.sysconf("SC_CLK_TCK"), any(fields[0] in "RD" for fields in states)


def wait_for(condition, child):
    """Waits until something is so, or the run has ended. Returns whether it is."""
    while cpu_seconds(child.pid)[0] < child.timeout:
        if condition():
            return True
        if child.poll() is not None:
            return condition()
        time.sleep(0.01)
    child.kill()
    child.wait()
    raise Broken("waited in vain")


def logged(folder):
    """Losses of steps and validations, as they are in the log; each line as it was written."""
    log = (folder / "run" / "log.jsonl").read_text().splitlines()
    return [line for line in log if '"validation"' not in line], [line for line in log if '"validation"' in line]


def last_step(folder):
    steps = [int(path.name[5:]) for path in (folder / "run" / "checkpoints").glob("step-*")]
    return max(steps, default=0)


def digest(folder, step):
    """A hash of weights, their average and the optimizer's state at a step."""
    whole = hashlib.sha256()
    for name in ("model", "ema", "optimizer"):
        whole.update((folder / "run" / f"checkpoints/step-{step:08}" / f"{name}.safetensors").read_bytes())
    return whole.hexdigest()


def same(folder, reference, steps=STEPS, tolerance=0.0):
    """Raises unless two runs have the same history: bit for bit, or up to a tolerance on other devices."""
    (found, validations), (wanted, wanted_validations) = logged(folder), logged(reference)
    if tolerance:
        near(found, wanted, "loss", tolerance)
        near(validations, wanted_validations, "validation", tolerance)
        return
    for what, a, b in (("loss", found, wanted), ("validation", validations, wanted_validations)):
        if a != b:
            first = next((n for n, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
            raise Broken(f"{what} {first} of {len(a)}/{len(b)}: {a[first:first + 1]} instead of {b[first:first + 1]}")
    if digest(folder, steps) != digest(reference, steps):
        raise Broken("the same losses, other weights")


def near(found, wanted, key, tolerance):
    """Raises unless both have the same steps, and finite losses that differ by no more than this."""
    steps = [[json.loads(line)["step"] for line in lines] for lines in (found, wanted)]
    if steps[0] != steps[1]:
        raise Broken(f"{key}: {len(found)} steps instead of {len(wanted)}")
    for line, other in zip(found, wanted):
        a, b = (json.loads(text).get(key) for text in (line, other))
        # Not `max`: a loss that is no number is never larger than another.
        if not (number(a) and number(b) and abs(a - b) <= tolerance * abs(b)):
            raise Broken(f"{key} {a} instead of {b}: {line}")


def number(value):
    return isinstance(value, (int, float)) and math.isfinite(value)


def tidy(folder):
    """Nothing half-written is left in a run that has ended."""
    left = [path.name for path in (folder / "run" / "checkpoints").glob(".*")]
    left += [path.name for part in ("run", "run/samples") for path in (folder / part).glob(".*")]
    if left:
        raise Broken(f"left behind: {left}")


def decent(outcome, *names):
    """Raises unless a failure is an error that a user can act on: no panic, no signal, the place named, and what to do."""
    if "panicked" in outcome.text or outcome.code < 0 or outcome.code > 2:
        raise Broken(f"exit code {outcome.code}: {outcome.text[-600:]}")
    if outcome.code == 0:
        return
    error = re.search(r"^error: .*", outcome.err, re.M | re.S)
    if not error:
        raise Broken(f"exit code {outcome.code} without an error: {outcome.err[-400:]}")
    if names and not any(name in error.group(0) for name in names):
        raise Broken(f"the error does not name {' or '.join(names)}: {error.group(0)[-400:]}")
    if "hint:" not in error.group(0):
        raise Broken(f"the error does not say what to do: {error.group(0)[-400:]}")
