#!/usr/bin/env python3
"""Packs a corpus of gen_dataset.py for every loader: make_shards.py DATA --tandem PROGRAM

DATA-tandem-wav, DATA-tandem-flac (also read by webdataset), DATA-shar-…, DATA-mds-…; 50 clips in a shard, so that two workers have their own.
"""
import argparse, os, shutil, subprocess, sys

sys.path.insert(0, os.environ["PEERS"])
import common as C

CLIPS = 50
p = argparse.ArgumentParser()
p.add_argument("data")
p.add_argument("--tandem", default="tandem")
p.add_argument("--variants", default="wav,flac")
a = p.parse_args()
for a.variant in a.variants.split(","):
    folder = {"wav": "wavs", "flac": "flacs"}[a.variant]
    path = lambda kind: f"{a.data.rstrip('/')}-{kind}-{a.variant}"
    for kind in ("tandem", "shar", "mds"):
        shutil.rmtree(path(kind), ignore_errors=True)
    subprocess.run([a.tandem, "pack", a.data, "--audio-folder", folder, "--shards", path("tandem"), "--shard-clips", str(CLIPS)], check=True)
    items = C.items(a)

    import lhotse
    from lhotse import CutSet, MonoCut, Recording
    cuts = []
    for n, (file, text) in enumerate(items):
        recording = Recording.from_file(file, recording_id=f"r{n:06}")
        cuts.append(MonoCut(id=f"c{n:06}", start=0, duration=recording.duration, channel=0, recording=recording, custom={"text": text}))
    os.makedirs(path("shar"))
    CutSet.from_cuts(cuts).to_shar(path("shar"), fields={"recording": a.variant}, shard_size=CLIPS)

    from streaming import MDSWriter
    with MDSWriter(out=path("mds"), columns={"audio": "bytes", "text": "str"}, compression=None, size_limit=1 << 24) as writer:
        for file, text in items:
            with open(file, "rb") as audio:
                writer.write({"audio": audio.read(), "text": text})
