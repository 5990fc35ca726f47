#!/usr/bin/env python3
"""benches/segment.py TANDEM CORPUS [--clips 300]: how near the cuts of `tandem segment` are to the truth, on real speech.

The clips of a corpus (LJSpeech layout) are trimmed to their speech by levels of their own, joined with pauses of 0.45 to 1.5 s that hold the room's
own noise, and more noise is added. Captions say the truth, off by up to 0.2 s. Needs numpy and ffmpeg; `earshot` (PyPI) is
measured beside it if it is installed.
"""
import argparse, functools, json, pathlib, subprocess, tempfile, time

import numpy as np

print = functools.partial(print, flush=True)

RATE = 22050
FRAME = RATE // 200


def decode(path):
    raw = subprocess.run(["ffmpeg", "-v", "error", "-i", path, "-f", "s16le", "-ac", "1", "-ar", str(RATE), "-"], capture_output=True, check=True).stdout
    return np.frombuffer(raw, "<i2").astype(np.float32) / 32768


def speech(samples):
    """First and last frame (5 ms) that is 12 dB above the quietest tenth, and the quietest 0.1 s."""
    frames = samples[: len(samples) // FRAME * FRAME].reshape(-1, FRAME)
    db = 10 * np.log10((frames**2).mean(1) + 1e-10)
    floor = np.percentile(db, 10)
    loud = np.convolve(db > floor + 12, np.ones(4), "same") >= 3
    where = np.flatnonzero(loud)
    quiet = np.convolve(db, np.ones(20) / 20, "valid").argmin()
    return where[0] * FRAME, (where[-1] + 1) * FRAME, samples[quiet * FRAME : (quiet + 20) * FRAME]


def tiled(rooms, length, random):
    """Noise of any length, of pieces of the room."""
    size = len(rooms[0])
    out = np.zeros(length + 2 * size, np.float32)
    window = np.hanning(size) ** 0.5
    for at in range(0, length + size, size // 2):
        out[at : at + size] += rooms[random.integers(len(rooms))] * window
    return out[size : size + length]


def joined(corpus, count, random):
    rows = [line.split("|")[:2] for line in (corpus / "metadata.csv").read_text().splitlines()]
    rows = [rows[n] for n in random.permutation(len(rows))[:count]]
    clips = []
    for id_, text in rows:
        path = next(path for ext in ("flac", "wav") if (path := corpus / "wavs" / f"{id_}.{ext}").exists())
        samples = decode(path)
        start, end, noise = speech(samples)
        clips.append((samples[start:end], text, noise))
    # The quietest of a clip may be a breath: the room is heard in the quietest third of them.
    rooms = sorted((noise for _, _, noise in clips), key=lambda noise: float((noise**2).mean()))[: max(1, len(clips) // 3)]
    pieces, truth, texts, at = [], [], [], 0
    for samples, text, _ in clips:
        pause = tiled(rooms, int(RATE * random.uniform(0.45, 1.5)), random)
        pieces += [pause, samples]
        truth.append(((at + len(pause)) / RATE, (at + len(pause) + len(samples)) / RATE))
        at += len(pause) + len(samples)
        texts.append(text)
    pieces.append(tiled(rooms, RATE, random))
    return np.concatenate(pieces), truth, texts


def colored(length, kind, random):
    white = random.standard_normal(length).astype(np.float32)
    if kind == "white":
        return white
    spectrum = np.fft.rfft(white)
    spectrum /= np.sqrt(np.maximum(np.arange(len(spectrum)), 20))
    pink = np.fft.irfft(spectrum, length).astype(np.float32)
    return pink / pink.std()


def clock(seconds):
    ms = round(seconds * 1000)
    return f"{ms // 3600000:02}:{ms // 60000 % 60:02}:{ms // 1000 % 60:02},{ms % 1000:03}"


def measure(truth, found):
    """Signed errors (ms) of the nearest start and end of each clip."""
    starts, ends = np.array([c[0] for c in found]), np.array([c[1] for c in found])
    near = lambda edges, at: edges[np.abs(edges - at).argmin()] - at
    return 1000 * np.array([near(starts, a) for a, _ in truth] + [near(ends, b) for _, b in truth])


def row(name, truth, found):
    errors = measure(truth, found)
    within = 100 * (np.abs(errors) <= 50).mean()
    half = len(truth)
    print(f"| {name} | {len(found)} | {within:.1f} % | {np.median(errors[:half]):+.0f} / {np.median(errors[half:]):+.0f} | {np.percentile(np.abs(errors), 95):.0f} |")


def earshot(samples, pause=0.3):
    """Stretches by the neural detector at its default threshold, pauses as ours."""
    import earshot as crate
    n = int(len(samples) * 16000 / RATE)
    wave = np.interp(np.arange(n) * RATE / 16000, np.arange(len(samples)), samples).astype(np.float32)
    detector, scores = crate.Detector(), []
    predict = getattr(detector, "predict_f32", None) or detector.predict
    for at in range(0, n - 256, 256):
        scores.append(predict(wave[at : at + 256]))
    on, stretches = np.array(scores) >= 0.5, []
    for frame in np.flatnonzero(on):
        start, end = frame * 0.016, (frame + 1) * 0.016
        if stretches and start - stretches[-1][1] < pause:
            stretches[-1][1] = end
        else:
            stretches.append([start, end])
    return stretches


def main():
    args = argparse.ArgumentParser()
    args.add_argument("tandem"), args.add_argument("corpus", type=pathlib.Path), args.add_argument("--clips", type=int, default=300)
    args = args.parse_args()
    random = np.random.default_rng(1)
    clean, truth, texts = joined(args.corpus, args.clips, random)
    level = np.sqrt(np.mean(np.concatenate([clean[int(a * RATE) : int(b * RATE)] for a, b in truth]) ** 2))
    print(f"{len(truth)} clips, {len(clean) / RATE / 60:.1f} minutes\n")
    print("| | clips found | edges within 50 ms | median error of starts / ends, ms | 95 % within, ms |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        jitter = random.uniform(-0.2, 0.2, (len(truth), 2))
        rows = [f"{n + 1}\n{clock(max(0, a + i))} --> {clock(b + j)}\n{t}\n" for n, ((a, b), (i, j), t) in enumerate(zip(truth, jitter, texts))]
        (work / "captions.txt").write_text("\n".join(rows))
        noises = [("as recorded", None, 0)] + [(f"{kind} noise, SNR {snr} dB", kind, snr) for kind in ("white", "pink") for snr in (20, 10, 5)]
        for name, kind, snr in noises:
            samples = clean if kind is None else clean + colored(len(clean), kind, random) * level * 10 ** (-snr / 20)
            samples = samples / max(1, np.abs(samples).max())
            raw = (samples * 32767).astype("<i2").tobytes()
            subprocess.run(["ffmpeg", "-v", "error", "-y", "-f", "s16le", "-ar", str(RATE), "-ac", "1", "-i", "-", work / "talk.wav"], input=raw, check=True)
            for with_ in ("captions", "pauses"):
                more = ["--captions", work / "captions.txt"] if with_ == "captions" else []
                began = time.perf_counter()
                done = subprocess.run([args.tandem, "segment", work / "talk.wav", "--dry-run", "--json", *more], capture_output=True, check=True)
                took = time.perf_counter() - began
                clips = json.loads(done.stdout)["clips"]
                row(f"{name}, {with_}", truth, [(c["speech_start"], c["speech_end"]) for c in clips])
                if with_ == "captions":
                    own = {c["text"]: (c["speech_start"], c["speech_end"]) for c in clips}
                    right = sum(t in own and max(abs(own[t][0] - a), abs(own[t][1] - b)) <= 0.05 for (a, b), t in zip(truth, texts))
                    print(f"<!-- {right} of {len(texts)} clips have their own text and both edges within 50 ms; {took:.2f} s -->")
            try:
                row(f"{name}, earshot, pauses", truth, earshot(samples))
            except ImportError:
                pass


main()
