"""A clock that jumps: a machine without a battery, a clock that is set, a file system of another machine."""

import os
import time

from bench import Broken, same
from kills import settings

# Seconds by which the clock is off from the start, and after some readings.
DAY = 86_400
JUMPS = {"ahead by ten years": (0, 3_650 * DAY), "back by a day": (0, -DAY), "before 1970, then right": (-60 * 365 * DAY, 0),
         "back and ahead again": (-3_650 * DAY, DAY)}


def jumps(bench, name, case, reference):
    """A run whose clock jumps is killed and resumes with a clock that goes right; files of the corpus may be from the future."""
    random = bench.random("clock", name, case)
    folder = bench.fresh("clock")
    more = settings(folder, random)
    before, after = JUMPS[name]
    if random.random() < 0.5:
        future = time.time() + 365 * DAY
        for path in (folder / "corpus").rglob("*"):
            os.utime(path, (future, future))
    clock = {"LD_PRELOAD": bench.shim, "CLOCK_BEFORE": str(before), "CLOCK_AFTER": str(after),
             "CLOCK_AT": str(random.randint(1, 20)), "CLOCK_TRACE": str(folder / "clock")}
    kill = bench.fault(["/run/checkpoints"], "kill", random.randint(1, 100))
    outcome = bench.train(folder, more, {**clock, **kill})
    if outcome.code not in (0, -9):
        raise Broken(f"exit code {outcome.code}: {outcome.err[-500:]}")
    if not (folder / "clock").exists():
        raise Broken("nobody asked for the time: this case shows nothing")
    # Killed or not: once more with the clock off, then with one that goes right.
    for env in (clock, {}):
        again = bench.train(folder, more, env)
        if again.code != 0:
            raise Broken(f"did not resume: {again.err[-500:]}")
        same(folder, reference)
    bench.inspect(folder)
    return "killed, then resumed" if outcome.code else "finished all the same"
