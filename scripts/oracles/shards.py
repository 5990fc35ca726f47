#!/usr/bin/env python3
"""Tar shards between Tandem and PyPI's `webdataset`: shards.py TANDEM CORPUS

What `tandem pack` writes is read by `webdataset`: the same keys, texts, speakers and bytes as the index says. What `webdataset`
writes is read by `tandem`: the same clips, and nothing is wrong with them.
"""
import glob, json, os, subprocess, sys, tempfile

import webdataset as wds

tandem, corpus = sys.argv[1:3]
doctor = lambda folder: json.loads(subprocess.run([tandem, "doctor", folder, "--json"], capture_output=True, text=True).stdout)

with tempfile.TemporaryDirectory() as work:
    packed = os.path.join(work, "packed")
    subprocess.run([tandem, "pack", corpus, "--shards", packed, "--shard-clips", "7"], check=True, stdout=subprocess.DEVNULL)
    rows = [json.loads(line) for line in open(os.path.join(packed, "index.jsonl"), encoding="utf-8")][1:]
    shards = sorted(glob.glob(os.path.join(packed, "*.tar")))
    samples = list(wds.WebDataset(shards, shardshuffle=False, empty_check=False))
    assert len(samples) == len(rows) > 0, (len(samples), len(rows))
    for row, sample in zip(rows, samples):
        assert sample["__key__"] == row["key"], (sample["__key__"], row["key"])
        assert sample["txt"].decode() == row["text"], row["key"]
        with open(os.path.join(packed, row["shard"]), "rb") as shard:
            shard.seek(row["at"])
            assert shard.read(row["bytes"]) == sample[row["extension"]], row["key"]
        if "speaker" in row:
            assert json.loads(sample["json"])["speaker"] == row["speaker"], row["key"]

    written = os.path.join(work, "written")
    os.mkdir(written)
    with wds.ShardWriter(os.path.join(written, "shard-%06d.tar"), maxcount=5, verbose=0) as writer:
        for sample in samples:
            members = {name: value for name, value in sample.items() if name in ("wav", "flac", "mp3", "ogg", "txt")}
            speaker = {"json": json.loads(sample["json"])} if "json" in sample else {}
            writer.write({"__key__": sample["__key__"], **members, **speaker})
    first, second, third = doctor(corpus), doctor(packed), doctor(written)
    for name in ("rows", "usable", "speakers", "by_speaker", "rates"):
        assert first[name] == second[name] == third[name], (name, first[name], second[name], third[name])
    assert abs(first["seconds"] - third["seconds"]) < 1e-6
    assert second["reading"]["format"] == third["reading"]["format"] == "shards"
    print(f"webdataset reads {len(samples)} clips of {len(shards)} shards, and tandem reads what it writes")
