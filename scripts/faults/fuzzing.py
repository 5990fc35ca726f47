"""Runs fuzz targets, each for so many seconds of its own CPU time, as many at once as there are cores: see scripts/fuzz."""

import argparse
import base64
import datetime
import hashlib
import json
import os
import re
import signal
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

FUZZ = Path("fuzz")
CORPUS = FUZZ / "corpus"
"""What the fuzzer found worth keeping, on this machine."""
KEPT = FUZZ / "kept"
"""The small ones of those, in the repository: a line of base64 each, a file for each target."""
KEPT_BYTES = 24_000
"""For each target. The smallest inputs come first, and they reach most places."""
OPTIONS = ["-timeout=120", "-rss_limit_mb=2048", "-malloc_limit_mb=1024", "-max_len=65536", "-print_final_stats=1"]
"""A busy machine may hold a process up for a while: what takes two minutes for 64 kB hangs."""
EVERY = 60
"""Seconds between two lines of progress, after which what was done so far is recorded, too."""


def main():
    args = arguments()
    record = Record(args.record, args.commit)
    todo = []
    for target in args.targets:
        plant(target)
        left = args.seconds - record.seconds(target)
        if left > 0:
            todo.append((target, left))
        else:
            print(f"{target}: {record.seconds(target):.0f} s of {args.seconds} are recorded already")
    failed = fuzz(args.programs, todo, args.jobs, record)
    if args.keep:
        for target in args.targets:
            if target not in failed:
                keep(args.programs, target)
    sys.exit(1 if failed else 0)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seconds", type=int, help="CPU seconds for each target")
    parser.add_argument("targets", nargs="+")
    parser.add_argument("--programs", type=Path, required=True, help="the folder of the targets' programs")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="targets at once")
    parser.add_argument("--record", type=Path, help="a file of results (JSON lines), with a page of them beside it; what it has of "
                        "a target in this version counts")
    parser.add_argument("--commit", default="")
    parser.add_argument("--keep", action="store_true", help=f"afterwards, put the small inputs that reach new places into {KEPT}")
    return parser.parse_args()


def fuzz(programs, todo, jobs, record):
    """Fuzzes targets for the seconds that each of them has. Returns those that found something or could not run."""
    todo, running, failed, stop = list(todo), [], [], []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: stop.append(number))
    said = time.monotonic()
    while running or (todo and not stop):
        while todo and len(running) < jobs and not stop:
            running.append(Run(programs, *todo.pop(0)))
        time.sleep(0.2)
        for run in list(running):
            if stop or run.cpu() >= run.seconds:
                run.finish()
            if run.process.poll() is not None:
                running.remove(run)
                record.put(run)
                if not run.good():
                    failed.append(run.target)
                print(run.outcome() if run.good() else run.complaint(), flush=True)
        if time.monotonic() - said >= EVERY:
            said = time.monotonic()
            for run in running:
                record.put(run)
                print(f"  {run.target}: {run.cpu():.0f} of {run.seconds:.0f} s, {run.inputs():,} inputs, {run.places():,} places",
                      flush=True)
    if stop:
        print("interrupted: what was found is kept, and the same command continues" if record.path else "interrupted", file=sys.stderr)
        sys.exit(128 + stop[0])
    return failed


class Run:
    """One target at work."""

    def __init__(self, programs, target, seconds):
        self.target, self.seconds, self.asked, self.spent = target, seconds, False, 0.0
        self.began = datetime.datetime.now(datetime.timezone.utc)
        self.log = CORPUS / f"{target}.log"
        seeds = [path for path in [FUZZ / "seeds" / target] if path.is_dir()]
        artifacts = FUZZ / "artifacts"
        artifacts.mkdir(parents=True, exist_ok=True)
        command = [programs / target, f"-artifact_prefix={artifacts}/{target}-", *OPTIONS, CORPUS / target, *seeds]
        self.process = subprocess.Popen(command, stdout=self.log.open("wb"), stderr=subprocess.STDOUT, preexec_fn=apart)

    def cpu(self):
        """Seconds of CPU time that it has had."""
        try:
            fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
            self.spent = max(self.spent, (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"))
        except OSError:
            pass  # It has ended.
        return self.spent

    def finish(self):
        """Asks it to end; it ends after the input that it is at, with its figures."""
        if not self.asked:
            self.process.send_signal(signal.SIGUSR1)
            self.asked = True

    def good(self):
        # The signal may come before it listens to it.
        return self.process.poll() in (None, 0, -signal.SIGUSR1)

    def text(self):
        return self.log.read_text(errors="replace")

    def largest(self, pattern):
        """The largest number that its log has at these places."""
        return max((int(number) for match in re.finditer(pattern, self.text(), re.M) for number in match.groups() if number), default=0)

    def inputs(self):
        return self.largest(r"^#(\d+)|^stat::number_of_executed_units: *(\d+)")

    def places(self):
        return self.largest(r" cov: (\d+)")

    def peak_mb(self):
        return self.largest(r" rss: (\d+)Mb|^stat::peak_rss_mb: *(\d+)")

    def outcome(self):
        return (f"{self.target}: {self.inputs():,} inputs in {self.cpu():.0f} s, {self.places():,} places reached, "
                f"at most {self.peak_mb()} MB")

    def complaint(self):
        last = "\n".join(self.text().splitlines()[-40:])
        return (f"{last}\nerror: the fuzz target `{self.target}` found something (exit {self.process.returncode})\n"
                f"hint: its input is in {FUZZ / 'artifacts'}; the whole log in {self.log}")


def apart():
    """In a group of its own (Ctrl-C reaches us, and we end it in order), at low priority."""
    os.setpgid(0, 0)
    os.nice(19)


class Record:
    """What was done: a row for each run of a target, and a page made of them."""

    def __init__(self, path, commit):
        self.path, self.commit = path, commit
        manifest = Path("Cargo.toml").read_text()
        self.version = re.search(r'^version = "(.*)"', manifest, re.M).group(1)
        self.rows = [json.loads(line) for line in path.read_text().splitlines()] if path and path.exists() else []

    def seconds(self, target):
        """CPU seconds that this version of a target has had."""
        return sum(row["cpu_s"] for row in self.rows if (row["target"], row["version"]) == (target, self.version))

    def put(self, run):
        """Writes down how far a run is: again and again, so that a machine that is taken away takes a minute with it."""
        if not self.path:
            return
        key = {"target": run.target, "began": run.began.isoformat(timespec="seconds")}
        row = key | {"version": self.version, "commit": self.commit, "cpu_s": round(run.cpu(), 1), "inputs": run.inputs(),
                     "places": run.places(), "peak_mb": run.peak_mb(), "found": 0 if run.good() else 1}
        self.rows = [other for other in self.rows if any(other[name] != value for name, value in key.items())] + [row]
        replace(self.path, "".join(json.dumps(row) + "\n" for row in self.rows))
        replace(self.path.with_suffix(".md"), self.page())

    def page(self):
        lines = [
            "# Fuzzing", "",
            "What `scripts/fuzz SECONDS --record benches/results/fuzz.jsonl` did and found; the page is written by it. Coverage guides the fuzzer (libFuzzer), memory is checked "
            "(AddressSanitizer), overflows and debug assertions are on. Minutes are those of a core that the target really had, over all of its runs, not of a clock. Places: branches that some "
            "input of its newest run reached. `found` counts crashes, hangs (two minutes for one input) and memory beyond 2 GB.", "",
            "| target | what is read | version | CPU minutes | inputs | places | at most, MB | found | commits |",
            "|---|---|---|---|---|---|---|---|---|"]
        for version, target in sorted({(row["version"], row["target"]) for row in self.rows}):
            rows = [row for row in self.rows if (row["version"], row["target"]) == (version, target)]
            total = {name: sum(row[name] for row in rows) for name in ("cpu_s", "inputs", "found")}
            commits = ", ".join(dict.fromkeys(row["commit"] for row in rows if row["commit"]))
            lines.append(f"| `{target}` | {purpose(target)} | {version} | {total['cpu_s'] / 60:.1f} | {total['inputs']:,} | "
                         f"{rows[-1]['places']:,} | {max(row['peak_mb'] for row in rows)} | {total['found']} | {commits} |")
        return "\n".join(lines) + "\n"


def purpose(target):
    """What a target reads, in the words of its own source, up to the colon."""
    source = FUZZ / "fuzz_targets" / f"{target}.rs"
    words = " ".join(line[3:].strip() for line in source.read_text().splitlines() if line.startswith("//!"))
    return re.split(r"[:.] |[:.]$", words)[0]


def replace(path, text):
    """Writes a file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(path.name + ".new")
    beside.write_text(text)
    beside.replace(path)


def plant(target):
    """Puts into a target's corpus what it begins with: what earlier runs found, and sound, which is made here and not kept."""
    corpus = CORPUS / target
    corpus.mkdir(parents=True, exist_ok=True)
    inputs = [base64.b64decode(line) for line in kept(target).read_text().splitlines()] if kept(target).exists() else []
    # Without a valid beginning the fuzzer spends its time on the magic bytes.
    if target in ("wav", "upload"):
        inputs += [wav(*encoding) for encoding in [(1, 1, 16), (1, 2, 16), (1, 1, 8), (1, 1, 24), (1, 5, 32), (3, 1, 32), (3, 2, 64)]]
    if target == "upload":
        inputs += [b"fLaC\x80\0\0\x22\x10\0\x10\0\0\0\0\0\0\0\x05\x62\x20\xf0" + b"0" * 32 + b"\xff\xf8\xc9\x08\0" + b"0" * 32,
                   b"OggS\0\x02" + b"0" * 22 + b"\x01\x1e\x01vorbis" + b"0" * 30, b"\xff\xfb\x90\x64" + b"0" * 420]
    if target == "cache":
        inputs.append(bytes(200))
    for data in inputs:
        (corpus / hashlib.sha1(data).hexdigest()).write_bytes(data)


def wav(tag, channels, bits):
    block = struct.pack("<HHIIHH", tag, channels, 22050, 44100, 2, bits)
    return b"RIFF\x64\0\0\0WAVEfmt " + struct.pack("<I", len(block)) + block + b"data" + struct.pack("<I", 64) + b"0" * 64


def kept(target):
    return KEPT / f"{target}.txt"


def keep(programs, target):
    """The inputs that reach a place no smaller one reaches, from the smallest on, as many as there is room for."""
    with tempfile.TemporaryDirectory() as merged:
        # In one process after the other: an input that takes it down is passed over.
        subprocess.run([programs / target, *OPTIONS, "-merge=1", "-max_len=4096", merged, CORPUS / target], check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        inputs = sorted((path.read_bytes() for path in Path(merged).iterdir()), key=lambda data: (len(data), data))
    lines, size = [], 0
    for data in inputs:
        line = base64.b64encode(data).decode() + "\n"
        if size + len(line) > KEPT_BYTES:
            break
        lines.append(line)
        size += len(line)
    replace(kept(target), "".join(lines))
    print(f"{target}: {len(lines)} of {len(inputs)} inputs are kept in {kept(target)}")


if __name__ == "__main__":
    main()
