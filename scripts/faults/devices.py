"""Lanes and devices that fail, hang, or have no memory: simulated ones, and a real driver that gets none."""

import json
import time

from bench import STEPS, Broken, decent, logged, number, same
from kills import on_gpus, settings

# What is injected, and the exit code: errors of the lane end the run, a batch that is too large is split.
INJECTED = {
    "data:error@1": 1, "data:panic@1": 1, "data:oom@1": 1, "data:hang@1": 1, "nan@5": 1, "oom@5:3": 0,
    "load:slow0.05@0": 0,
}


def injected(bench, fault, case, reference):
    random = bench.random("device", fault, case)
    folder = bench.fresh("device")
    more = settings(folder, random)
    timeout = ["--stall-timeout", "3"] if "hang" in fault else []
    outcome = bench.train(folder, [*more, *timeout, "--inject", fault])
    if outcome.code != INJECTED[fault]:
        raise Broken(f"exit code {outcome.code}: {outcome.err[-500:]}")
    if outcome.code and "error:" not in outcome.err:
        raise Broken(f"no error: {outcome.err[-500:]}")
    if "oom" in fault and not outcome.code and '"event":"split"' not in outcome.out.replace(" ", ""):
        raise Broken(f"the batch was not split: {outcome.out[-500:]}")
    again = bench.train(folder, more)
    if again.code != 0:
        raise Broken(f"did not resume: {again.err[-500:]}")
    # A batch whose loss is not a number is left out; half a batch at a time adds up in another order.
    if fault.startswith("nan"):
        lines = [json.loads(line) for line in logged(folder)[0]]
        without = [line["step"] for line in lines if not number(line["loss"])]
        if [line["step"] for line in lines] != list(range(1, STEPS + 1)) or without != [int(fault.split("@")[1])]:
            raise Broken(f"steps are missing, or others than that one are not finite: {lines}")
    else:
        same(folder, reference, tolerance=1e-3 if fault.startswith("oom") else 0.0)
    return "error, then resumed" if outcome.code else "finished all the same"


def without_memory(bench, case):
    """A software GPU whose process may take so much and no more: less than the run needs, more than the program alone. The
    driver may give up (a signal); what is said must be an error in words, and the run may not be lost."""
    random = bench.random("memory", case)
    folder = bench.fresh("memory")
    more = on_gpus(folder, random)
    needed = address_space(bench, more)
    kilobytes = int(needed * random.uniform(0.3, 1.0))
    outcome = bench.train(folder, more, bench.gpus, steps=4, limit=f"ulimit -v {kilobytes}")
    limit = f"{kilobytes // 1024} of {needed // 1024} MB"
    if outcome.code > 0 and "error:" not in outcome.err and "panicked" in outcome.text:
        raise Broken(f"{limit}: a panic instead of an error: {outcome.err[-500:]}")
    again = bench.train(folder, more, bench.gpus, steps=4)
    if again.code != 0:
        raise Broken(f"with {limit}, then without a limit: {again.err[-500:]}")
    if len(logged(folder)[0]) != 4:
        raise Broken("steps are missing")
    how = {0: "finished all the same"}.get(outcome.code, "error" if outcome.code > 0 else f"signal {-outcome.code}")
    return f"{how}, then resumed" if outcome.code else how


def address_space(bench, more):
    """Kilobytes of addresses that a run takes at most when nothing stops it."""
    folder = bench.fresh("limit")
    child, most = bench.start(folder, [word.replace("/memory", "/limit") for word in more], bench.gpus, steps=4), 0
    while child.poll() is None:
        try:
            status = open(f"/proc/{child.pid}/status").read()
            most = max(most, *(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmPeak")))
        except (FileNotFoundError, ProcessLookupError, TypeError):
            pass
        time.sleep(0.02)
    if bench.wait(child).code != 0 or not most:
        raise Broken("the run without a limit failed")
    return most
