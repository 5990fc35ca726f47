#!/usr/bin/env python3
"""Start-up seconds and peak memory of a corpus of many rows (SPEC I5): rows.py TANDEM WORK [--rows 1000000,10000000] [--kinds shards,directory]

`shards`: one tar file of a thousand short clips and an index in which every row is one of them under a name of its own. `directory`: metadata.csv and
hard links to a few hundred short clips. Texts differ from row to row. Each is opened twice: with nothing known, and with the index that the
first start left. What is measured is `tandem load --max-batches 1`: from the start of the process to its end, with the peak of its resident memory.
"""
import argparse, json, os, shutil, struct, subprocess, sys, tarfile, io

p = argparse.ArgumentParser()
p.add_argument("tandem")
p.add_argument("work")
p.add_argument("--rows", default="1000000,10000000")
p.add_argument("--kinds", default="shards,directory")
p.add_argument("--keep", action="store_true")
p.add_argument("--busy", action="store_true", help="TANDEM is the example `busy` of tandem-store, which is built without Burn: one batch, nothing else")
a = p.parse_args()
WORDS = "the printer carried seven heavy boxes near the old station before sunrise while a quiet village slept and nobody asked why".split()


def wav(n):
    """Half a second of 8 kHz and 8 bit, of a pitch of its own."""
    period = 20 + n % 50
    data = bytes(128 + (60 if (at % period) * 2 < period else -60) for at in range(4000 + n % 1000))
    head = struct.pack("<4sI4s4sIHHIIHH4sI", b"RIFF", 36 + len(data), b"WAVE", b"fmt ", 16, 1, 1, 8000, 8000, 1, 8, b"data", len(data))
    return head + data


def text(n):
    return " ".join(WORDS[(n * k + k * k) % len(WORDS)] for k in range(2, 8)) + f" {n % 97}"


def make_shards(folder, rows):
    members = []
    with tarfile.open(os.path.join(folder, "shard-000000.tar"), "w") as tar:
        for n in range(1000):
            info, data = tarfile.TarInfo(f"c{n:04}.wav"), wav(n)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
            members.append((tar.offset - (len(data) + 511) // 512 * 512, len(data)))
    size = os.path.getsize(os.path.join(folder, "shard-000000.tar"))
    with open(os.path.join(folder, "index.jsonl"), "w", encoding="utf-8", buffering=1 << 20) as index:
        index.write(json.dumps({"tandem-shards": 1, "plan": None, "shards": [{"name": "shard-000000.tar", "bytes": size, "date": None}]}) + "\n")
        for n in range(rows):
            at, length = members[n % 1000]
            index.write(f'{{"key":"r{n:08}","shard":"shard-000000.tar","extension":"wav","at":{at},"bytes":{length},"text":"{text(n)}","speaker":"s{n % 7}"}}\n')


def make_directory(folder, rows):
    os.mkdir(os.path.join(folder, "wavs"))
    # ext4 has at most 65,000 links to a file.
    for n in range(rows // 50_000 + 1):
        with open(os.path.join(folder, f"clip-{n}"), "wb") as clip:
            clip.write(wav(n))
    with open(os.path.join(folder, "metadata.csv"), "w", encoding="utf-8", buffering=1 << 20) as metadata:
        for n in range(rows):
            os.link(os.path.join(folder, f"clip-{n // 50_000}"), os.path.join(folder, f"wavs/r{n:08}.wav"))
            metadata.write(f"r{n:08}|{text(n)}\n")


def measured(folder):
    """Seconds and megabytes of one start."""
    code = ("import resource,subprocess,sys,time;t=time.time();d=subprocess.run(sys.argv[1:],stdout=subprocess.DEVNULL);"
            "print(d.returncode,time.time()-t,resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss/1024)")
    command = [a.tandem, "load", folder, "--max-batches", "1", "--units", "characters", "--batch-size", "16", "--json", "--workers", "1"]
    if a.busy:
        command = [a.tandem, folder, "0", "16", "1", "1"]
    done = subprocess.run([sys.executable, "-c", code, *command], capture_output=True, text=True)
    status, seconds, megabytes = done.stdout.split()[-3:]
    assert status == "0", done.stderr
    return float(seconds), float(megabytes)


def main():
    table = []
    for kind in a.kinds.split(","):
        for rows in [1000] + [int(n) for n in a.rows.split(",")]:
            folder = os.path.join(a.work, f"{kind}-{rows}")
            if not os.path.exists(folder):
                os.makedirs(folder)
                {"shards": make_shards, "directory": make_directory}[kind](folder, rows)
            shutil.rmtree(os.path.join(folder, ".tandem"), ignore_errors=True)
            for start in ("first", "second"):
                seconds, megabytes = measured(folder)
                table.append({"kind": kind, "rows": rows, "start": start, "seconds": seconds, "megabytes": megabytes})
                base = next(row for row in table if row["kind"] == kind and row["start"] == start)
                a_row = (megabytes - base["megabytes"]) * 2**20 / max(1, rows - base["rows"])
                print(f"| {kind} | {rows:,} | {start} | {seconds:.1f} | {megabytes:.0f} | {'' if rows == base['rows'] else f'{a_row:.0f}'} |", flush=True)
            if not a.keep:
                shutil.rmtree(folder)


main()
