"""A corpus that changes while a run reads it."""

import json
import os
import shutil

from bench import Broken, decent, logged, wait_for

MORE = ["--checkpoint-every", "5", "--keep", "2", "--validate-every", "1000", "--sample-every", "0", "--cache", "off",
        "--num-workers", "1", "--buffer-size", "1", "--backend", "cpu"]
STEPS = 60


def clips(folder):
    return sorted((folder / "corpus/wavs").iterdir())


def vanish(folder, random):
    os.remove(random.choice(clips(folder)))


def shrink(folder, random):
    clip = random.choice(clips(folder))
    os.truncate(clip, random.randrange(clip.stat().st_size))


def replace(folder, random):
    a, b = random.sample(clips(folder), 2)
    shutil.copyfile(b, a.with_suffix(".new"))
    os.replace(a.with_suffix(".new"), a)


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


def change(bench, name, number):
    """Changes it after a few steps; then the run ends or fails in words, and resumes with the corpus as it was."""
    random = bench.random("corpus", name, number)
    folder = bench.fresh("changing")
    shutil.copytree(folder / "corpus", folder / "original")
    child = bench.start(folder, MORE, steps=STEPS)
    log = folder / "run/log.jsonl"
    steps = random.randrange(1, 20)
    wait_for(lambda: log.exists() and log.read_bytes().count(b"\n") >= steps, child)
    CHANGES[name](folder, random)
    outcome = bench.wait(child)
    decent(outcome, str(folder))
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
    bench.inspect(folder)
    return "error, then resumed" if outcome.code else "finished all the same"
