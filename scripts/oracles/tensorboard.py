#!/usr/bin/env python3
"""Reads event files as TensorBoard does and prints them as JSON.

read_events.py FOLDER            what tensorboard's own EventAccumulator reads (restarts purged)
read_events.py --server FOLDER   what a running TensorBoard answers: the tags of its tabs, the points, sizes of blobs;
                                 once with its fast reader (the default) and once without
Needs python3 with tensorboard, not tensorflow.
"""
import hashlib
import json
import math
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request


def number(value):
    return value if isinstance(value, str) or math.isfinite(value) else str(value)


def blob(data):
    return [len(data), hashlib.sha256(data).hexdigest()]


def read(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    keep_all = {"scalars": 0, "images": 0, "audio": 0, "tensors": 0}
    events = EventAccumulator(folder, size_guidance=keep_all).Reload()
    tags = events.Tags()
    texts = [tag for tag in tags["tensors"] if events.SummaryMetadata(tag).plugin_data.plugin_name == "text"]
    return {
        "scalars": {tag: [[e.step, number(e.value)] for e in events.Scalars(tag)] for tag in tags["scalars"]},
        "images": {
            tag: [[e.step, e.width, e.height, *blob(e.encoded_image_string)] for e in events.Images(tag)]
            for tag in tags["images"]
        },
        "audio": {
            tag: [[e.step, e.sample_rate, e.length_frames, *blob(e.encoded_audio_string)] for e in events.Audio(tag)]
            for tag in tags["audio"]
        },
        "text": {
            tag: [[e.step, e.tensor_proto.string_val[0].decode()] for e in events.Tensors(tag)] for tag in texts
        },
    }


def get(base, path, **query):
    with urllib.request.urlopen(base + path + "?" + urllib.parse.urlencode(query), timeout=10) as answer:
        return answer.read()


def pages(base):
    """Everything behind the tabs, as the browser would ask for it."""
    ask = lambda plugin, what, **query: json.loads(get(base, f"/data/plugin/{plugin}/{what}", **query))
    fetch = lambda plugin, what, item: get(base, f"/data/plugin/{plugin}/{what}", **dict(urllib.parse.parse_qsl(item["query"])))
    each = lambda tags: [(run, tag) for run in tags for tag in tags[run]]
    result = {}
    tags = ask("scalars", "tags")
    result["scalars"] = {
        tag: [[step, number(value)] for _, step, value in ask("scalars", "scalars", run=run, tag=tag)]
        for run, tag in each(tags)
    }
    tags = ask("images", "tags")
    result["images"] = {}
    for run, tag in each(tags):
        shown = ask("images", "images", run=run, tag=tag, sample=0)
        data = [fetch("images", "individualImage", i) for i in shown]
        result["images"][tag] = [[i["step"], *blob(d)] for i, d in zip(shown, data)]
    tags = ask("audio", "tags")
    result["audio"] = {}
    for run, tag in each(tags):
        shown = ask("audio", "audio", run=run, tag=tag, sample=0)
        data = [fetch("audio", "individualAudio", i) for i in shown]
        result["audio"][tag] = [[i["step"], i["contentType"], *blob(d)] for i, d in zip(shown, data)]
    tags = ask("text", "tags")
    result["text"] = {tag: [[t["step"], t["text"]] for t in ask("text", "text", run=run, tag=tag)] for run, tag in each(tags)}
    return result


def serve(folder, fast):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", folder, "--port", str(port)]
    command += ["--host", "127.0.0.1", "--load_fast", fast]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        base, end, last = f"http://127.0.0.1:{port}", time.monotonic() + 30, None
        # It answers before it has read all: two equal answers in a row are the end.
        while time.monotonic() < end:
            time.sleep(0.5)
            try:
                now = pages(base)
            except (urllib.error.URLError, ConnectionError):
                if server.poll() is not None:
                    sys.exit(server.stderr.read())
                continue
            if now == last and now["scalars"]:
                return now
            last = now
        return last
    finally:
        server.terminate()
        server.wait()


if sys.argv[1] == "--server":
    print(json.dumps({fast: serve(sys.argv[2], fast) for fast in ("auto", "false")}, indent=1))
else:
    print(json.dumps(read(sys.argv[1]), indent=1))
