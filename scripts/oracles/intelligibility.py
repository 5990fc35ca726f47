#!/usr/bin/env python3
"""How many words of held-out speech a recognizer understands: intelligibility.py DIR

DIR is what `tandem evaluate RUN --speak DIR` leaves: ID.wav (spoken by the voice), ID.true.wav (the true spectrogram
through the same vocoder) and texts.csv. The recognizer is pocketsphinx with the English model of its wheel, restricted
to the words of the texts (a small vocabulary, as in a telephone menu), the same for both.
Prints the share of words recognized in each and their ratio. Needs: pip install pocketsphinx soundfile soxr numpy
"""
import os, re, sys, tempfile

import numpy as np
import soundfile
import soxr
from pocketsphinx import Decoder, get_model_path

folder = sys.argv[1]
rows = [line.rstrip("\n").split("|", 1) for line in open(os.path.join(folder, "texts.csv"), encoding="utf-8")]
texts = {ident: re.findall(r"[a-z']+", text.lower()) for ident, text in rows}
words = sorted({word for text in texts.values() for word in text})

# The recognizer's own dictionary, and a grammar of any of these words in any order.
known = {}
for line in open(os.path.join(get_model_path(), "en-us/cmudict-en-us.dict"), encoding="utf-8"):
    word, phones = line.rstrip().split(" ", 1)
    if re.sub(r"\(\d\)$", "", word) in words:
        known.setdefault(re.sub(r"\(\d\)$", "", word), []).append((word, phones))
missing = [word for word in words if word not in known]
if missing:
    print("not in the recognizer's dictionary, skipped: " + ", ".join(missing), file=sys.stderr)
work = tempfile.mkdtemp()
with open(os.path.join(work, "words.dict"), "w") as file:
    file.writelines(f"{word} {phones}\n" for entries in known.values() for word, phones in entries)
with open(os.path.join(work, "words.gram"), "w") as file:
    file.write("#JSGF V1.0;\ngrammar words;\npublic <s> = (" + " | ".join(sorted(known)) + ")+;\n")
decoder = Decoder(hmm=os.path.join(get_model_path(), "en-us/en-us"), dict=os.path.join(work, "words.dict"),
                  jsgf=os.path.join(work, "words.gram"), loglevel="ERROR")


def heard(path):
    samples, rate = soundfile.read(path)
    samples = soxr.resample(samples, rate, 16000)
    data = (np.clip(samples / max(1e-9, np.abs(samples).max()) * 0.8, -1, 1) * 32767).astype(np.int16).tobytes()
    decoder.start_utt()
    decoder.process_raw(data, full_utt=True)
    decoder.end_utt()
    return [] if decoder.hyp() is None else decoder.hyp().hypstr.split()


def recognized(said, found):
    """Words of `said` that are in `found`, in this order (longest common subsequence)."""
    table = np.zeros((len(said) + 1, len(found) + 1), int)
    for i, a in enumerate(said):
        for j, b in enumerate(found):
            table[i + 1, j + 1] = table[i, j] + 1 if a == b else max(table[i, j + 1], table[i + 1, j])
    return table[-1, -1]


totals = {"spoken": 0, "true": 0, "words": 0}
for ident, text in texts.items():
    text = [word for word in text if word in known]
    totals["words"] += len(text)
    for kind, ending in (("spoken", ".wav"), ("true", ".true.wav")):
        found = heard(os.path.join(folder, ident + ending))
        totals[kind] += recognized(text, found)
        if os.environ.get("SHOW"):
            print(f"{ident} {kind:6} {' '.join(found)}   <- {' '.join(text)}")
spoken, true = totals["spoken"] / totals["words"], totals["true"] / totals["words"]
print(f"{totals['words']} words in {len(texts)} clips: {100 * spoken:.1f} % recognized in synthesis, "
      f"{100 * true:.1f} % in the true spectrograms, ratio {100 * spoken / true:.1f} %")
