"""A long run: memory, threads and open files stay as they are."""

import json
import os
import time

from bench import TIMEOUT, Broken, cpu_seconds, number


def sample(pid):
    status = dict(line.split(":", 1) for line in open(f"/proc/{pid}/status").read().splitlines() if ":" in line)
    return int(status["VmRSS"].split()[0]) / 1024, int(status["Threads"]), len(os.listdir(f"/proc/{pid}/fd"))


def soak(bench, steps):
    """Trains so many steps with everything switched on. Returns MB, threads and files after a third and at the end."""
    folder = bench.fresh("soak")
    more = ["--checkpoint-every", str(max(steps // 40, 10)), "--keep", "2", "--validate-every", str(max(steps // 50, 10)),
            "--sample-every", str(max(steps // 20, 10)), "--cache", "ram", "--tensorboard-log-dir", str(folder / "tb"),
            "--autotune", "--backend", "cpu", "--epochs", "1000000", "--metrics", "0"]
    child = bench.start(folder, more, steps=steps)
    seen, log, grew, length = [], folder / "run/log.jsonl", time.monotonic(), -1
    before = 0.0
    while child.poll() is None:
        # A step takes milliseconds; so much computed without one is a run that hangs, and so long without anything computed.
        now, (computed, wants_more) = log.stat().st_size if log.exists() else 0, cpu_seconds(child.pid)
        if now != length or wants_more:
            grew, length, before = time.monotonic(), now, computed if now != length else before
        if time.monotonic() - grew > TIMEOUT or computed > before + TIMEOUT:
            child.kill()
            child.wait()
            raise Broken(f"no step in {computed - before:.0f} s of CPU")
        try:
            seen.append(sample(child.pid))
        except (FileNotFoundError, KeyError, ProcessLookupError):
            pass
        time.sleep(max(0.05, min(2.0, steps / 20_000)))
    child.outputs[1].seek(0)
    if child.returncode != 0:
        raise Broken(f"exit code {child.returncode}: {child.outputs[1].read()[-500:]}")
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    done = [line["step"] for line in lines if "loss" in line]
    if done != list(range(1, steps + 1)):
        raise Broken(f"{len(done)} steps in the log, up to {done[-1:]}, not {steps}")
    bad = next((line for line in lines if not number(line.get("loss", line.get("validation")))), None)
    if bad:
        raise Broken(f"not finite: {bad}")
    kept = len(list((folder / "run/checkpoints").glob("step-*")))
    if kept > 3:
        raise Broken(f"{kept} checkpoints instead of the last two and the best")
    if len(seen) < 12:
        raise Broken("too short to see anything")
    middle, end = seen[len(seen) // 3: 2 * len(seen) // 3], seen[2 * len(seen) // 3:]
    peak = lambda part: [max(values) for values in zip(*part)]
    before, after = peak(middle), peak(end)
    # Threads of the pool come and go with the tuning; none may be left over.
    if after[0] > before[0] * 1.05 + 8 or after[1] > before[1] + 4 or after[2] > before[2] + 4:
        raise Broken(f"MB, threads, files: {before} in the middle third, {after} in the last")
    return {"steps": steps, "samples": len(seen), "middle": before, "end": after}
