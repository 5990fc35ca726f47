"""Lanes and devices that fail, hang, or have no memory: simulated ones, and a real driver that gets none."""

from bench import Broken, decent, logged, same
from kills import on_gpus, settings

# What is injected, and the exit code: errors of the lane end the run, a batch that is too large is split.
INJECTED = {
    "data:error@1": 1, "data:panic@1": 1, "data:oom@1": 1, "data:hang@1": 1, "nan@5": 1, "oom@5:3": 0,
    "load:slow0.05@0": 0,
}


def injected(bench, fault, number, reference):
    random = bench.random("device", fault, number)
    folder = bench.fresh("device")
    more = settings(folder, random)
    timeout = ["--stall-timeout", "3"] if "hang" in fault else []
    outcome = bench.train(folder, [*more, *timeout, "--inject", fault])
    if outcome.code != INJECTED[fault]:
        raise Broken(f"exit code {outcome.code}: {outcome.err[-500:]}")
    if outcome.code and "error:" not in outcome.err:
        raise Broken(f"no error: {outcome.err[-500:]}")
    again = bench.train(folder, more)
    if again.code != 0:
        raise Broken(f"did not resume: {again.err[-500:]}")
    # A batch whose loss is not a number is left out; half a batch at a time adds up in another order.
    if not fault.startswith("nan"):
        same(folder, reference, tolerance=1e-3 if fault.startswith("oom") else 0.0)
    return "error, then resumed" if outcome.code else "finished all the same"


def without_memory(bench, number):
    """A software GPU whose process may take so much and no more. The driver may give up (a signal); the run may not be lost."""
    random = bench.random("memory", number)
    folder = bench.fresh("memory")
    more = on_gpus(folder, random)
    megabytes = random.randrange(300, 2500)
    outcome = bench.train(folder, more, bench.gpus, steps=4, limit=f"ulimit -v {megabytes * 1024}")
    again = bench.train(folder, more, bench.gpus, steps=4)
    if again.code != 0:
        raise Broken(f"with {megabytes} MB, then without a limit: {again.err[-500:]}")
    if len(logged(folder)[0]) != 4:
        raise Broken("steps are missing")
    how = {0: "finished all the same"}.get(outcome.code, "error" if outcome.code > 0 else f"signal {-outcome.code}")
    return f"{how}, then resumed" if outcome.code else how
