#!/usr/bin/env python3
"""Pitch against librosa.pyin, on speech of espeak-ng or on recordings.

    python3 scripts/oracles/pitch.py PATH/TO/features            (the example of crates/audio; 20 clips of espeak-ng)
    python3 scripts/oracles/pitch.py PATH/TO/features FILE...    (clips of one's own)

Needs espeak-ng, numpy, librosa and soundfile. scripts/test installs them.
pyin is no truth either: it is another good tracker, here with windows as long as ours (with its default of twice that, it agrees with
itself in no more than 92 % of the voiced frames of a recording). Required: F1 of voiced frames at least 0.92, median difference at most
20 cents where both are voiced, more than a fifth of an octave off (gross) in less than 3 % of those frames.
"""
import os
import subprocess
import sys
import tempfile

import librosa
import numpy as np

features, clips = sys.argv[1], sys.argv[2:]
SENTENCES = ["The printer described the broken clock.", "A careful engineer counted seven heavy boxes before sunrise.",
             "Every student remembered the map of the coast.", "She opened the longest letter without any hurry.",
             "An old sailor repaired the river crossing."]
VOICES = [("en-us", 50), ("en-us+f3", 60), ("en-us+m3", 35), ("en-gb+f2", 45)]  # (voice, pitch)


def run(*command):
    return subprocess.run([str(c) for c in command], check=True, capture_output=True, text=True).stdout


ours_all, theirs_all, times = [], [], np.zeros(2)
with tempfile.TemporaryDirectory() as folder:
    if not clips:
        for n, sentence in enumerate(SENTENCES):
            for voice, pitch in VOICES:
                clips.append(os.path.join(folder, f"{len(clips)}.wav"))
                run("espeak-ng", "-v", voice, "-p", pitch, "-s", 130 + 10 * n, "-w", clips[-1], sentence)
    outputs = [os.path.join(folder, name) for name in ("samples.f32", "mel.f32", "pitch.f32")]
    for clip in clips:
        first, second = run(features, clip, 22050, *outputs).splitlines()[:2]
        frames = int(first.split()[3])
        times += [float(x) for x in second.split()]
        samples, ours = np.fromfile(outputs[0], "<f4"), np.fromfile(outputs[2], "<f4")
        theirs, voiced, _ = librosa.pyin(samples, sr=22050, fmin=65, fmax=500, frame_length=1024, hop_length=256)
        assert len(ours) == frames and abs(len(theirs) - frames) <= 1, (clip, len(ours), len(theirs), frames)
        n = min(frames, len(theirs))
        theirs = np.where(voiced, np.nan_to_num(theirs), 0.0)[:n]
        ours_all.append(ours[:n])
        theirs_all.append(theirs)
        both = (ours[:n] > 0) & (theirs > 0)
        if os.environ.get("VERBOSE"):
            cents = np.abs(1200 * np.log2(ours[:n][both] / theirs[both]))
            print(f"{os.path.basename(clip)}: {both.sum()} both, {((ours[:n] > 0) & (theirs == 0)).sum()} ours only, "
                  f"{((ours[:n] == 0) & (theirs > 0)).sum()} theirs only, {(cents > 240).sum()} gross, median {np.median(theirs[both]):.0f} Hz")
ours, theirs = np.concatenate(ours_all), np.concatenate(theirs_all)
both = (ours > 0) & (theirs > 0)
f1 = 2 * both.sum() / ((ours > 0).sum() + (theirs > 0).sum())
cents = np.abs(1200 * np.log2(ours[both] / theirs[both]))
gross = (cents > 240).mean()
print(f"{len(clips)} clips, {len(ours)} frames: F1 of voiced {f1:.3f}, median {np.median(cents):.1f} cents, {100 * gross:.2f} % gross "
      f"(librosa.pyin); {times[1] / times[0]:.1f} times as long as the log-mel ({times[1] / len(ours) * 1e3:.1f} us a frame)")
assert f1 >= 0.92 and np.median(cents) <= 20 and gross < 0.03
