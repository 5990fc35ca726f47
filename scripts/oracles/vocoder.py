#!/usr/bin/env python3
"""vocoder.py RECORDINGS NAME=DIR...: how far waveforms are from the recordings that they were made of, by others' measures.

    cargo run --release -p tandem-train --example copy_synthesis -- KEPT OUT/griffin-lim
    cargo run --release -p tandem-train --example copy_synthesis -- KEPT OUT/neural runs/kept-vocoder
    python scripts/oracles/vocoder.py KEPT griffin-lim=OUT/griffin-lim neural=OUT/neural

All are in the LJSpeech layout, with the same ids. Copies have the timing of the recordings, so frames are compared one by one.
Prints a Markdown table and a JSON line:
  PESQ-WB           `pesq` at 16 kHz (1 to 4.6; 4.6 is the recording itself)
  MCD, dB           `pymcd`, dynamic time warping
  F0, cents         `torchcrepe`: median and mean distance of the pitch where both are voiced
  voiced, F1 %      `torchcrepe`: frames whose periodicity is above a threshold
Needs pesq, pymcd, torchcrepe (with torch), librosa. --only NAMES leaves measures out.
"""
import argparse
import json
import statistics
import sys
import types
from pathlib import Path

import numpy as np

RATE, HOP, PERIODIC = 16_000, 160, 0.21


def load(path):
    import librosa

    samples, _ = librosa.load(path, sr=RATE, mono=True)
    return samples


def crepe():
    """torchcrepe; it reads files with torchaudio, which need not fit the installed torch for what is done here."""
    try:
        import torchcrepe
    except (ImportError, RuntimeError, OSError):
        for name in [name for name in sys.modules if name.startswith(("torchaudio", "torchcrepe"))]:
            del sys.modules[name]
        sys.modules["torchaudio"] = types.ModuleType("torchaudio")
        import torchcrepe
    return torchcrepe


def tracked(samples, model):
    """Pitch in Hz of each 10 ms, NaN where there is none."""
    import torch

    torchcrepe = crepe()
    with torch.no_grad():
        hz, periodicity = torchcrepe.predict(torch.from_numpy(samples)[None], RATE, HOP, 65, 500, model, return_periodicity=True,
                                             batch_size=512, decoder=torchcrepe.decode.viterbi)
        periodicity = torchcrepe.filter.median(periodicity, 3)
        periodicity = torchcrepe.threshold.Silence(-60.0)(periodicity, torch.from_numpy(samples)[None], RATE, HOP)
    hz, periodicity = hz[0].numpy().copy(), periodicity[0].numpy()
    hz[periodicity < PERIODIC] = np.nan
    return hz


class Measures:
    """The figures of one column."""

    def __init__(self):
        self.pesq, self.mcd, self.cents = [], [], []
        self.hits = self.misses = self.alarms = 0

    def pitch(self, truth, copy):
        count = min(len(truth), len(copy))
        truth, copy = truth[:count], copy[:count]
        voiced, heard = ~np.isnan(truth), ~np.isnan(copy)
        both = voiced & heard
        self.hits += both.sum()
        self.misses += (voiced & ~heard).sum()
        self.alarms += (heard & ~voiced).sum()
        self.cents.extend(np.abs(1200 * np.log2(copy[both] / truth[both])))

    def figures(self):
        def mean(values):
            return float(np.mean(values)) if len(values) else None

        f1 = 200 * self.hits / max(2 * self.hits + self.misses + self.alarms, 1)
        return {"PESQ-WB": mean(self.pesq), "MCD, dB": mean(self.mcd),
                "F0, cents, median": float(statistics.median(self.cents)) if self.cents else None,
                "F0, cents, mean": mean(self.cents), "voiced, F1 %": float(f1) if self.cents else None}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recordings", type=Path)
    parser.add_argument("columns", nargs="+", metavar="NAME=DIR")
    parser.add_argument("--clips", type=int, default=1_000_000)
    parser.add_argument("--crepe", default="tiny", choices=("tiny", "full"))
    parser.add_argument("--only", nargs="+", default=["pesq", "mcd", "pitch"], choices=("pesq", "mcd", "pitch"))
    args = parser.parse_args()
    columns = {name: Path(folder) for name, folder in (column.split("=", 1) for column in args.columns)}
    rows = (args.recordings / "metadata.csv").read_text(encoding="utf8").splitlines()
    ids = [row.split("|")[0] for row in rows if row][:args.clips]
    found = {name: Measures() for name in columns}
    if "mcd" in args.only:
        from pymcd.mcd import Calculate_MCD

        distortion = Calculate_MCD(MCD_mode="dtw")
    if "pesq" in args.only:
        from pesq import pesq
    for n, clip in enumerate(ids):
        recording = args.recordings / "wavs" / f"{clip}.wav"
        truth = load(recording)
        truth_pitch = tracked(truth, args.crepe) if "pitch" in args.only else None
        for name, folder in columns.items():
            path = folder / "wavs" / f"{clip}.wav"
            copy = load(path)
            if "pesq" in args.only:
                found[name].pesq.append(pesq(RATE, truth, copy, "wb"))
            if "mcd" in args.only:
                found[name].mcd.append(distortion.calculate_mcd(str(recording), str(path)))
            if truth_pitch is not None:
                found[name].pitch(truth_pitch, tracked(copy, args.crepe))
        print(f"\r{n + 1} of {len(ids)} clips", end="", file=sys.stderr)
    print(file=sys.stderr)
    figures = {name: measures.figures() for name, measures in found.items()}
    print("| " + " | ".join([f"{len(ids)} clips", *figures]) + " |")
    print("|---" * (1 + len(figures)) + "|")
    for measure in next(iter(figures.values())):
        cells = ["–" if values[measure] is None else f"{values[measure]:.2f}" for values in figures.values()]
        if set(cells) != {"–"}:
            print("| " + " | ".join([measure, *cells]) + " |")
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
