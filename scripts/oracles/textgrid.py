#!/usr/bin/env python3
"""Reads the TextGrids of `tandem align` with two other implementations and compares them with the corpus.

textgrid.py FOLDER CORPUS    FOLDER has ID.TextGrid for the clips of CORPUS (LJSpeech layout)
Needs python3 with praatio, textgrid (both from PyPI) and soundfile.
"""
import sys
from pathlib import Path

# This file's own folder comes first there, and its name would hide the library's.
sys.path.pop(0)

import soundfile
import textgrid
from praatio import textgrid as praatio_textgrid


def check(path, text, seconds):
    """Both libraries read the same intervals; they fill the recording and spell its text."""
    grid = praatio_textgrid.openTextgrid(str(path), includeEmptyIntervals=True, reportingMode="error")
    assert grid.tierNames == ("text", "tokens"), grid.tierNames
    tokens = [tuple(entry) for entry in grid.getTier("tokens").entries]
    whole = [tuple(entry) for entry in grid.getTier("text").entries]
    other = textgrid.TextGrid.fromFile(str(path))
    assert [tier.name for tier in other.tiers] == ["text", "tokens"]
    again = [(interval.minTime, interval.maxTime, interval.mark) for interval in other.getFirst("tokens")]
    assert len(tokens) == len(again), (path, len(tokens), len(again))
    for (start, end, mark), (other_start, other_end, other_mark) in zip(tokens, again):
        # textgrid rounds to five digits.
        assert abs(start - other_start) < 2e-5 and abs(end - other_end) < 2e-5, path
        # praatio trims the blank between two words.
        assert mark == other_mark.strip(), (path, mark, other_mark)
    assert whole == [(0.0, whole[0][1], text)], (path, whole, text)
    assert tokens[0][0] == 0 and abs(tokens[-1][1] - seconds) < 1e-3, (path, tokens[-1], seconds)
    for before, after in zip(tokens, tokens[1:]):
        assert before[1] == after[0] and before[0] < before[1], (path, before, after)
    spelled = "".join(mark for _, _, mark in again if mark != "<sil>")
    assert spelled == text.lower(), (path, spelled, text)
    return len(tokens)


def main(folder, corpus):
    texts = dict(line.split("|")[:2] for line in (Path(corpus) / "metadata.csv").read_text("utf-8").splitlines())
    paths = sorted(Path(folder).glob("*.TextGrid"))
    assert paths, f"no TextGrid in {folder}"
    tokens = 0
    for path in paths:
        info = soundfile.info(str(Path(corpus) / "wavs" / f"{path.stem}.wav"))
        tokens += check(path, texts[path.stem], info.frames / info.samplerate)
    print(f"{len(paths)} TextGrids, {tokens} tokens: praatio and textgrid read what was written")


main(*sys.argv[1:])
