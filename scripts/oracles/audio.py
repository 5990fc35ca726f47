#!/usr/bin/env python3
"""Decoders against soundfile, log-mel against librosa, on 50 clips of different rates, formats and channels.

    python3 scripts/oracles/audio.py PATH/TO/features      (the example of crates/audio)

Needs espeak-ng, sox, flac, lame, oggenc, numpy, librosa and soundfile. scripts/test installs them.
PCM, float and FLAC must agree to the bit, MP3 and OGG (other decoders) to 1e-3; log-mel to 5e-4.
"""
import os
import subprocess
import sys
import tempfile

import librosa
import numpy as np
import soundfile as sf

features = sys.argv[1]
SENTENCES = ["The printer described the broken clock.", "A careful engineer counted seven heavy boxes before sunrise.",
             "Every student remembered the map of the coast.", "She opened the longest letter without any hurry.",
             "An old sailor repaired the river crossing."]
KINDS = [  # (ending, sox arguments for the output, exact)
    ("wav", ["-b", "16"], True), ("wav", ["-b", "24"], True), ("wav", ["-b", "32"], True), ("wav", ["-b", "8", "-e", "unsigned"], True),
    ("wav", ["-e", "floating-point", "-b", "32"], True), ("wav", ["-e", "floating-point", "-b", "64"], True),
    ("flac", ["-b", "16"], True), ("flac", ["-b", "24"], True), ("mp3", [], False), ("ogg", [], False)]
RATES = [(22050, 1), (44100, 2), (16000, 1), (48000, 1), (8000, 2)]


def run(*command):
    return subprocess.run([str(c) for c in command], check=True, capture_output=True, text=True).stdout


worst = {"pcm": 0.0, "lossy": 0.0, "mel": 0.0}
count = 0
with tempfile.TemporaryDirectory() as folder:
    for k, (ending, encoding, exact) in enumerate(KINDS):
        for r, (rate, channels) in enumerate(RATES):
            speech = os.path.join(folder, "speech.wav")
            run("espeak-ng", "-w", speech, "-s", 140 + 10 * r, SENTENCES[(k + r) % len(SENTENCES)])
            plain = os.path.join(folder, "plain.wav")
            # Noise far below the speech: digital silence would make the logarithm's floor the only value compared.
            run("sox", "-R", speech, "-r", rate, "-c", channels, "-b", 16, plain, "gain", "-3")
            clip = os.path.join(folder, f"clip.{ending}")
            if ending == "mp3":
                run("lame", "--quiet", "-b", 96, plain, clip)
            elif ending == "ogg":
                run("oggenc", "-Q", "-q", 5, "-o", clip, plain)
            else:
                run("sox", "-D", plain, *encoding, clip)
            ours, mel = os.path.join(folder, "samples.f32"), os.path.join(folder, "mel.f32")
            said = run(features, clip, 0, ours, mel, os.path.join(folder, "pitch.f32")).splitlines()[0]
            got_rate, got_channels, samples, frames = (int(x) for x in said.split())
            reference, ref_rate = sf.read(clip, dtype="float32", always_2d=True)
            assert (got_rate, got_channels) == (ref_rate, reference.shape[1]), (clip, got_rate, got_channels, ref_rate)
            mono = reference.mean(axis=1) if reference.shape[1] > 1 else reference[:, 0]
            y = np.fromfile(ours, "<f4")
            if exact:
                assert len(y) == len(mono), (clip, encoding, len(y), len(mono))
                difference = float(np.abs(y - mono).max())
                worst["pcm"] = max(worst["pcm"], difference)
                assert difference <= 1e-7, (clip, encoding, rate, difference)
            else:
                # Decoders differ in how much encoder padding they cut: find the offset, then compare.
                n = min(len(y), len(mono)) - 4000
                best = min((float(np.abs(y[2000 + d:2000 + d + n - 4000] - mono[2000:2000 + n - 4000]).max()), d)
                           for d in range(-1200, 1201))
                worst["lossy"] = max(worst["lossy"], best[0])
                assert best[0] <= 1e-3, (clip, rate, best, len(y), len(mono))
            fmax = min(8000, got_rate / 2)
            magnitude = np.abs(librosa.stft(y, n_fft=1024, hop_length=256, win_length=1024, pad_mode="reflect"))
            filters = librosa.filters.mel(sr=got_rate, n_fft=1024, n_mels=80, fmin=0, fmax=fmax)
            expected = np.log(np.maximum(filters @ magnitude, 1e-5))
            actual = np.fromfile(mel, "<f4").reshape(80, frames)
            assert expected.shape == actual.shape, (expected.shape, actual.shape)
            difference = float(np.abs(expected - actual).max())
            worst["mel"] = max(worst["mel"], difference)
            assert difference <= 5e-4, (clip, rate, difference)
            count += 1
print(f"{count} clips: samples of exact formats differ by at most {worst['pcm']:.2g}, of MP3 and OGG by "
      f"{worst['lossy']:.2g} (soundfile); log-mel by {worst['mel']:.2g} (librosa)")
