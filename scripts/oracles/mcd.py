#!/usr/bin/env python3
"""Mel-cepstral distortion against pymcd (PyPI), which is WORLD, SPTK and FastDTW.

    python3 scripts/oracles/mcd.py PATH/TO/distortion            (the example of crates/audio; 12 pairs of espeak-ng)
    python3 scripts/oracles/mcd.py PATH/TO/distortion A B ...    (pairs of one's own, at 22,050 Hz)

Needs espeak-ng and pymcd. scripts/test installs them. Required: equal to 0.01 dB for every pair.
"""
import os
import subprocess
import sys
import tempfile

from pymcd.mcd import Calculate_MCD

program, files = sys.argv[1], sys.argv[2:]
SENTENCES = ["The printer described the broken clock.", "A careful engineer counted seven heavy boxes before sunrise.",
             "Every student remembered the map of the coast.", "An old sailor repaired the river crossing."]
VOICES = [("en-us", 50, 140), ("en-us+f3", 60, 150), ("en-us+m3", 35, 120), ("en-gb+f2", 45, 170)]  # (voice, pitch, speed)


def run(*command):
    return subprocess.run([str(c) for c in command], check=True, capture_output=True, text=True).stdout


worst, values = 0.0, []
with tempfile.TemporaryDirectory() as folder:
    pairs = list(zip(files[::2], files[1::2]))
    if not pairs:
        for n, sentence in enumerate(SENTENCES):
            said = []
            for voice, pitch, speed in VOICES:
                said.append(os.path.join(folder, f"{n}-{voice}.wav"))
                run("espeak-ng", "-v", voice, "-p", pitch, "-s", speed, "-w", said[-1], sentence)
            pairs += [(said[0], other) for other in said[1:]]
    theirs = Calculate_MCD(MCD_mode="dtw")
    for a, b in pairs:
        expected, actual = theirs.calculate_mcd(a, b), float(run(program, a, b))
        values.append(expected)
        worst = max(worst, abs(expected - actual))
        assert abs(expected - actual) <= 0.01, (a, b, expected, actual)
print(f"{len(pairs)} pairs of {min(values):.1f} to {max(values):.1f} dB: ours differ from pymcd's by at most {worst:.2g} dB")
