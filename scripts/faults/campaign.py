"""Faults on purpose, many of them: see scripts/campaign. Each result is a line of results.jsonl, and none is done twice."""

import argparse
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import clocks
import corpora
import devices
import disks
import kills
import report
import soak
from bench import Bench, Broken, Skipped

FOLDERS = ("killed", "disk", "full", "read-only", "changing", "clock", "device", "memory", "limit", "soak")
"""Where a case happens, below the campaign's folder."""
MOST_KEPT = 20
"""Broken cases whose files are kept: some megabytes each."""
LEAST_FREE = 2_000_000_000
"""Bytes of the disk that are left alone: without them a case would fail for want of room, not by its fault."""


def plan(args):
    """What is to be done: (part, what, number). The same for the same numbers, so that a second start knows what is missing."""
    for number in range(-(-args.kills // kills.ROUND)):
        yield "kills", "CPU", number
    for number in range(-(-args.gpu_kills // kills.ROUND)):
        yield "kills", "two software GPUs", number
    for number in range(args.disk_faults):
        for n, place in enumerate(disks.PLACES):
            for m, kind in enumerate(disks.KINDS):
                # A short campaign takes one kind for each place, each kind at least once.
                if not args.short or (n + args.seed) % len(disks.KINDS) == m:
                    yield "disk", f"{place}: {kind}", number
        yield "disk", "full (tmpfs)", number
        yield "disk", "read-only (tmpfs)", number
    changes = list(corpora.CHANGES)
    for number in range(args.corpus_changes):
        for name in changes if not args.short else changes[:1] + changes[-1:]:
            yield "corpus", name, number
    for number in range(args.clock_jumps):
        for name in list(clocks.JUMPS) if not args.short else list(clocks.JUMPS)[:1]:
            yield "clock", name, number
    for number in range(args.device_faults):
        for fault in devices.INJECTED if not args.short else ["data:panic@1", "oom@5:3"]:
            yield "device", fault, number
    for number in range(args.memory_limits):
        yield "device", "software GPU without memory", number
    if args.soak:
        yield "soak", f"{args.soak} steps", 0


def more_rounds(args, results):
    """Rounds of kills beyond those planned: a run may come to its end before it was killed as often as it should be."""
    for what, wanted in (("CPU", args.kills), ("two software GPUs", args.gpu_kills)):
        rounds = [r for r in results if (r["seed"], r["part"], r["what"]) == (args.seed, "kills", what)]
        kills_done = sum(sum((r.get("outcome") or {}).values()) for r in rounds)
        planned = -(-wanted // kills.ROUND)
        # With a bound: when kills do not hit, more rounds do not help.
        if not args.short and kills_done < wanted and len(rounds) < 2 * planned:
            yield "kills", what, max([r["number"] for r in rounds] + [planned - 1]) + 1


def perform(bench, references, part, what, number):
    """Does one. Returns what is worth telling."""
    def reference(gpus=False):
        if gpus not in references:
            references[gpus] = kills.reference(bench, gpus)
        return references[gpus]

    if part == "kills":
        gpus = what != "CPU"
        return kills.round_of_kills(bench, number, reference(gpus), gpus)
    if part == "disk" and what.startswith("full"):
        return disks.full(bench, number, reference())
    if part == "disk" and what.startswith("read-only"):
        return disks.read_only(bench, number, reference())
    if part == "disk":
        place, kind = what.rsplit(": ", 1)
        return disks.shim(bench, place, kind, number, reference())
    if part == "corpus":
        return corpora.change(bench, what, number)
    if part == "clock":
        return clocks.jumps(bench, what, number, reference())
    if part == "device" and what in devices.INJECTED:
        return devices.injected(bench, what, number, reference())
    if part == "device":
        return devices.without_memory(bench, number)
    return soak.soak(bench, int(what.split()[0]))


def ready(args):
    """The shim compiled, the corpus made."""
    here, folder = Path(__file__).parent, Path(args.folder)
    folder.mkdir(parents=True, exist_ok=True)
    shim = folder / "disk.so"
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", str(shim), str(here / "disk.c"), "-ldl"], check=True)
    if not (folder / "corpus").exists():
        made = folder / "demo"
        demo = [args.program, "demo", "--folder", str(made), "--clips", "12", "--steps", "1", "--vocoder-steps", "0"]
        subprocess.run(demo, check=True, capture_output=True)
        shutil.rmtree(made / "corpus/.tandem", ignore_errors=True)
        (made / "corpus").rename(folder / "corpus")
        shutil.rmtree(made)
    gpus = {name: os.environ[name] for name in ("VK_ICD_FILENAMES", "NODEVICE_SELECT") if name in os.environ}
    return Bench(os.path.abspath(args.program), str(shim.resolve()), folder.resolve(), args.seed, gpus)


def arguments():
    parser = argparse.ArgumentParser(prog="scripts/campaign", description="faults on purpose; continues where it stopped")
    parser.add_argument("--kills", type=int, default=50, help="kills of runs on the CPU")
    parser.add_argument("--gpu-kills", type=int, default=0, help="kills of runs on two software GPUs (20 s each)")
    parser.add_argument("--disk-faults", type=int, default=1, help="faults for each place and kind")
    parser.add_argument("--corpus-changes", type=int, default=1, help="times each change of the corpus")
    parser.add_argument("--clock-jumps", type=int, default=1, help="times each jump of the clock")
    parser.add_argument("--device-faults", type=int, default=1, help="times each fault of a lane")
    parser.add_argument("--memory-limits", type=int, default=0, help="runs on software GPUs with too little memory")
    parser.add_argument("--soak", type=int, default=0, help="steps of the long run")
    parser.add_argument("--short", action="store_true", help="a few of each, for CI: a minute")
    parser.add_argument("--seed", type=int, default=1, help="seed of every moment and place")
    parser.add_argument("--only", help="parts, separated by commas: kills, disk, corpus, clock, device, soak")
    parser.add_argument("--again", action="store_true", help="forget what was done")
    parser.add_argument("--report", help="Markdown file to write (benches/results/campaign.md)")
    parser.add_argument("--commit", default="", help=argparse.SUPPRESS)
    parser.add_argument("--program", required=True, help="the program to try, instead of building it")
    parser.add_argument("--folder", required=True, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.short:
        args.kills, args.again = min(args.kills, kills.ROUND), True
    return args


def earlier(path):
    """The results there are, the last of each case. A campaign that was killed may have left half a line: it is done again."""
    results = {}
    for line in open(path) if path.exists() else ():
        try:
            r = json.loads(line)
        except ValueError:
            continue
        results[(r["seed"], r["part"], r["what"], r["number"])] = r
    path.write_text("".join(json.dumps(r) + "\n" for r in results.values()))
    return list(results.values())


def attempt(bench, references, part, what, number):
    """Does one and says how it ended, whatever happens."""
    try:
        return {"outcome": perform(bench, references, part, what, number)}
    except Skipped as error:
        return {"skipped": str(error).strip()}
    except Broken as broken:
        why = str(broken)
    except Exception as error:  # noqa: BLE001: a file that is missing is a promise broken, not the end of the campaign
        why = f"{type(error).__name__}: {error}"
    # What is left is looked at by hand; the next one of its kind would take its place.
    kept = bench.folder / "broken"
    kept.mkdir(exist_ok=True)
    for name in FOLDERS:
        place = kept / f"{part}-{what}-{number}".replace("/", "-").replace(" ", "-")
        if (bench.folder / name).exists() and (place.exists() or len(list(kept.iterdir())) < MOST_KEPT):
            shutil.rmtree(place, ignore_errors=True)
            (bench.folder / name).rename(place)
    return {"broken": why}


def main():
    args = arguments()
    bench = ready(args)
    # Two campaigns in one folder would take each other's files away.
    lock = open(bench.folder / "lock", "w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        print(f"error: another campaign works in {bench.folder}\nhint: set TANDEM_CAMPAIGN to another folder", file=sys.stderr)
        return 2
    path = bench.folder / "results.jsonl"
    if args.again:
        path.unlink(missing_ok=True)
    results = earlier(path)
    identity = hashlib.sha256(Path(bench.program).read_bytes()).hexdigest()[:12]
    done = {(r["seed"], r["part"], r["what"], r["number"]) for r in results if not r.get("broken")}
    wanted = lambda item: not args.only or item[0] in args.only.split(",")
    todo = [item for item in plan(args) if wanted(item)]
    missing = [item for item in todo if (args.seed, *item) not in done]
    print(f"{len(todo)} to do, {len(todo) - len(missing)} done before; seed {args.seed}", flush=True)
    references, failures, began, n = {}, 0, time.monotonic(), 0
    while missing or (missing := [item for item in more_rounds(args, results) if wanted(item)]):
        part, what, number = missing.pop(0)
        n, started = n + 1, time.monotonic()
        if shutil.disk_usage(bench.folder).free < LEAST_FREE:
            print(f"error: the disk of {bench.folder} is nearly full\nhint: make room and start again: it continues", file=sys.stderr)
            return 1
        result = {"seed": args.seed, "part": part, "what": what, "number": number, "commit": args.commit, "program": identity}
        result.update(attempt(bench, references, part, what, number))
        failures += "broken" in result
        for name in FOLDERS:
            bench.clear(name)
        result["seconds"] = round(time.monotonic() - started, 1)
        results = [r for r in results if (r["seed"], r["part"], r["what"], r["number"]) != (args.seed, part, what, number)]
        results.append(result)
        with open(path, "a") as file:
            file.write(json.dumps(result) + "\n")
        said = f"BROKEN: {result['broken']}" if "broken" in result else result.get("outcome", f"skipped: {result.get('skipped')}")
        print(f"[{n}, {len(missing)} left, {time.monotonic() - began:.0f} s] {part}, {what} #{number}: {said}", flush=True)
        if args.report:
            report.write(Path(args.report), results)
    if args.report:
        report.write(Path(args.report), results)
    if failures:
        print(f"error: {failures} promise(s) broken; what is left of them is in {bench.folder / 'broken'}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
