#!/usr/bin/env python3
"""Reads event files as TensorBoard does and prints them as JSON.

tensorboard.py FOLDER            what tensorboard's own EventAccumulator reads (restarts purged)
tensorboard.py --server FOLDER   what a running TensorBoard answers: the tags of its tabs, the points, sizes of blobs;
                                 once with its fast reader (the default) and once without
tensorboard.py --train TANDEM FOLDER  trains on the corpus in FOLDER, kills it, resumes, and compares everything above
                                 with the run's own log and samples
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

# This file's own folder comes first there, and its name would hide TensorBoard's.
sys.path.pop(0)


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
                    error = server.stderr.read()
                    # Somebody else took the port between our look and its start.
                    if "already in use" in error:
                        return serve(folder, fast)
                    sys.exit(error)
                continue
            if now == last and now["scalars"]:
                return now
            last = now
        return last
    finally:
        server.terminate()
        server.wait()


def train(tandem, folder):
    """A run that is killed and resumes: what TensorBoard shows is what the run says."""
    from pathlib import Path

    folder = Path(folder)
    run, events = folder / "tensorboard-run", folder / "tensorboard-events"
    command = [tandem, "train", "--train-data", folder / "corpus", "--checkpoint-dir", run, "--model-size", "smoke"]
    command += ["--batch-size", "4", "--log-every", "5", "--checkpoint-every", "20", "--sample-every", "20"]
    command += ["--validate-every", "20", "--tensorboard-log-dir", events, "--backend", "cpu", "--json"]
    child = subprocess.Popen([*command, "--max-steps", "100000"], stdout=subprocess.PIPE, text=True)
    for line in child.stdout:
        event = json.loads(line)
        if event["event"] == "progress" and event["progress"]["step"] >= 35:
            break
    child.kill()
    child.wait()
    subprocess.run([*command, "--max-steps", "60"], check=True, stdout=subprocess.DEVNULL)

    log = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    losses = {line["step"]: line["loss"] for line in log if "loss" in line}
    mean = lambda last: sum(losses[step] for step in range(last - 4, last + 1)) / 5
    near = lambda a, b: abs(a - b) <= 1e-5 * max(1.0, abs(b))
    shown = read(str(events))
    points = shown["scalars"]["loss/train"]
    assert [step for step, _ in points] == list(range(5, 61, 5)), points
    assert all(near(value, mean(step)) for step, value in points), points
    validations = [[line["step"], line["validation"]] for line in log if "validation" in line]
    read_back = shown["scalars"]["validation/loss"]
    assert len(read_back) == len(validations) == 3, (read_back, validations)
    assert all(a[0] == b[0] and near(a[1], b[1]) for a, b in zip(read_back, validations))
    for tag, kind, extension in [("sample", "audio", "wav"), ("sample/mel", "images", "png")]:
        blobs = [[item[0], *item[3:]] for item in shown[kind][tag]]
        files = [[step, *blob((run / f"samples/step-{step:08}.{extension}").read_bytes())] for step in (20, 40, 60)]
        assert blobs == files, (tag, blobs, files)
    assert "--batch-size" in shown["text"]["settings"][0][1]
    for reader, pages_shown in {fast: serve(str(events), fast) for fast in ("auto", "false")}.items():
        assert pages_shown["scalars"]["loss/train"][-1][0] == 60, reader
        assert pages_shown["audio"]["sample"] and pages_shown["images"]["sample/mel"] and pages_shown["text"], reader
    print(f"{len(shown['scalars'])} curves, sounds, pictures and text are as the run says, after a kill")


if sys.argv[1] == "--train":
    train(sys.argv[2], sys.argv[3])
elif sys.argv[1] == "--server":
    print(json.dumps({fast: serve(sys.argv[2], fast) for fast in ("auto", "false")}, indent=1))
else:
    print(json.dumps(read(sys.argv[1]), indent=1))
