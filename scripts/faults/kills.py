"""Kills (SIGKILL) at moments that hurt: in the middle of what is being written, and at any time."""

import shutil
import time

from bench import STEPS, Broken, last_step, same, tidy, wait_for

ROUND = 10
"""Kills of one run before it may end."""

# What a kill aims at: parts of paths, the most operations that come by before it, and how often it is chosen.
AIMS = {
    "checkpoint": (["/run/checkpoints"], 60, 30),
    "resume": (["/run/"], 12, 15),
    "log": (["/run/log.jsonl", "/run/monitor.jsonl"], 20, 8),
    "sample": (["/run/samples"], 12, 7),
    "cache": (["/.tandem/mel"], 40, 12),
    "index": (["/.tandem/.tmp", "/.tandem/index", "/.tandem/tokens"], 8, 8),
    "tensorboard": (["/tb/"], 12, 5),
    "any time": (None, 0, 15),
}
NOT_ON_GPUS = {"sample", "tensorboard"}
"""What those runs do not write: aiming at it would only let them end."""


def settings(folder, random):
    """Anything that must not change what is learned."""
    return [
        "--checkpoint-every", "1", "--keep", "2", "--validate-every", "2", "--sample-every", "5", "--cache", "disk",
        "--tensorboard-log-dir", str(folder / "tb"), "--num-workers", str(random.randrange(4)), "--backend", "cpu",
    ]


def on_gpus(folder, random):
    return ["--checkpoint-every", "2", "--keep", "2", "--validate-every", "6", "--sample-every", "0", "--cache", "disk",
            "--data-gpu", "0", "--model-gpu", "1"]


def kill_once(bench, folder, random, more, env, steps, seconds, aims):
    """Starts or resumes the run and kills it once. Returns what was aimed at, and whether it was hit before the end."""
    aim = random.choices(list(aims), [weight for _, _, weight in aims.values()])[0]
    paths, most, _ = AIMS[aim]
    if aim in ("index", "cache"):
        shutil.rmtree(folder / "corpus/.tandem", ignore_errors=True)
    if paths is None:
        child = bench.start(folder, more, env, steps=steps)
        time.sleep(random.uniform(0.0, seconds))
        child.kill()
    else:
        kind = random.choice(["kill", "kill", "torn"])
        fault = bench.fault(paths, kind, random.randint(1, most))
        child = bench.start(folder, more, {**env, **fault}, steps=steps)
    outcome = bench.wait(child)
    if outcome.code == -9:
        return aim, True
    if outcome.code != 0:
        raise Broken(f"not killed ({aim}), and failed with {outcome.code}: {outcome.err[-600:]}")
    return aim, False


def round_of_kills(bench, number, reference, gpus=False):
    """One run that is killed again and again, then ends. Returns how often each aim was hit."""
    random = bench.random("gpu-kills" if gpus else "kills", number)
    folder = bench.fresh("killed")
    env = bench.gpus if gpus else {}
    more = on_gpus if gpus else settings
    steps = 8 if gpus else STEPS
    aims = {aim: how for aim, how in AIMS.items() if not (gpus and aim in NOT_ON_GPUS)}
    # A moment of the whole run on this machine, however busy it is.
    seconds = float((reference / "seconds").read_text())
    hits, ends = {}, 0
    while sum(hits.values()) < ROUND and ends < 3:
        aim, hit = kill_once(bench, folder, random, more(folder, random), env, steps, seconds, aims)
        if hit:
            hits[aim] = hits.get(aim, 0) + 1
        else:
            # It came to its end first: once more from nothing, but three times at most.
            ends += 1
            same(folder, reference, steps, 1e-3 if gpus else 0.0)
            shutil.rmtree(folder / "run")
        if last_step(folder) > 0:
            bench.inspect(folder)
    outcome = bench.train(folder, more(folder, random), env, steps=steps)
    if outcome.code != 0:
        raise Broken(f"did not resume: exit code {outcome.code}: {outcome.err[-600:]}")
    same(folder, reference, steps, 1e-3 if gpus else 0.0)
    tidy(folder)
    return hits


def reference(bench, gpus=False):
    """The run that nobody interrupts."""
    folder = bench.fresh("whole-gpus" if gpus else "whole")
    more = on_gpus(folder, bench.random()) if gpus else settings(folder, bench.random())
    # Every operation on the disk is noted: faults are aimed at those that there are.
    trace = bench.fault(["/run/", "/.tandem/", "/tb/"], "none", 0, trace=folder / "operations")
    began = time.monotonic()
    outcome = bench.train(folder, more, bench.gpus if gpus else trace, steps=8 if gpus else STEPS)
    (folder / "seconds").write_text(f"{time.monotonic() - began:.2f}")
    if outcome.code != 0:
        raise Broken(f"the run that nobody interrupts failed: {outcome.err}")
    return folder
