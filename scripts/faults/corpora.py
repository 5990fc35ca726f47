"""A corpus that changes while a run reads it."""

import json
import os
import shutil

from bench import Broken, decent, logged, number, wait_for

MORE = ["--checkpoint-every", "5", "--keep", "2", "--validate-every", "1000", "--sample-every", "0", "--cache", "off",
        "--num-workers", "1", "--buffer-size", "1", "--backend", "cpu"]
STEPS = 60


def clips(folder):
    return sorted((folder / "corpus/wavs").iterdir())


# Each returns the name of the clip that it changed, if it was one: a run that reads it must say so.


def vanish(folder, random):
    clip = random.choice(clips(folder))
    os.remove(clip)
    return clip.stem


def shrink(folder, random):
    clip = random.choice(clips(folder))
    os.truncate(clip, random.randrange(clip.stat().st_size))
    return clip.stem


def replace(folder, random):
    a, b = random.sample(clips(folder), 2)
    shutil.copyfile(b, a.with_suffix(".new"))
    os.replace(a.with_suffix(".new"), a)
    return a.stem


def edit(folder, random):
    path = folder / "corpus/metadata.csv"
    rows = path.read_text().splitlines()
    at = random.randrange(len(rows))
    rows[at] = rows[at].split("|")[0] + "|" + "a " * random.randrange(1, 40)
    rows.insert(0, rows.pop())
    path.write_text("\n".join(rows) + "\n")


def rename(folder, random):
    (folder / "corpus").rename(folder / "moved")


CHANGES = {"a clip vanishes": vanish, "a clip shrinks": shrink, "a clip is replaced": replace,
           "metadata is edited": edit, "the folder is renamed": rename}


def whole(bench):
    """Losses of the run whose corpus stays as it is."""
    if "corpus" not in bench.kept:
        folder = bench.fresh("whole-corpus")
        outcome = bench.train(folder, MORE, steps=STEPS)
        if outcome.code != 0:
            raise Broken(f"the run that nobody disturbs failed: {outcome.err[-500:]}")
        bench.kept["corpus"] = logged(folder)[0]
    return bench.kept["corpus"]


def change(bench, name, case):
    """Changes it after a few steps; then the run ends or fails in words, and resumes with the corpus as it was."""
    random = bench.random("corpus", name, case)
    undisturbed = whole(bench)
    folder = bench.fresh("changing")
    shutil.copytree(folder / "corpus", folder / "original")
    child = bench.start(folder, MORE, steps=STEPS)
    log = folder / "run/log.jsonl"
    steps = random.randrange(1, 20)
    wait_for(lambda: log.exists() and log.read_bytes().count(b"\n") >= steps, child)
    changed = CHANGES[name](folder, random)
    outcome = bench.wait(child)
    decent(outcome, str(folder))
    # Clips of the validation set are not read here. What is read again is another clip now, or none: not in silence.
    if changed and changed not in outcome.text and logged(folder)[0] != undisturbed:
        raise Broken(f"{changed} was changed, the losses are others, and nothing was said: {outcome.text[-300:]}")
    # As it was, dates and all: the run knows its data by what is in it.
    shutil.rmtree(folder / "corpus", ignore_errors=True)
    (folder / "original").rename(folder / "corpus")
    again = bench.train(folder, MORE, steps=STEPS)
    if again.code != 0:
        raise Broken(f"did not resume: {again.err[-500:]}")
    found, _ = logged(folder)
    steps = [json.loads(line)["step"] for line in found]
    if steps != list(range(1, STEPS + 1)):
        raise Broken(f"steps of the log: {steps}")
    bad = [line for line in found if not number(json.loads(line)["loss"])]
    if bad:
        raise Broken(f"not finite: {bad}")
    bench.inspect(folder)
    return "error, then resumed" if outcome.code else "finished all the same"
