#!/usr/bin/env python3
"""Reads what a run of Tandem leaves with other implementations: weights.py RUN

Weights and optimizer by the `safetensors` package, WAV by `soundfile`, PNG by Pillow. Checks names, shapes and
that the optimizer has a mean and a mean square for every weight.
"""
import glob, json, os, sys

import numpy as np
import soundfile
from PIL import Image
from safetensors.numpy import load_file

run = sys.argv[1]
folder = sorted(glob.glob(os.path.join(run, "run/checkpoints/step-*")))[-1]
state = json.load(open(os.path.join(folder, "state.json")))
weights = load_file(os.path.join(folder, "model.safetensors"))
ema = load_file(os.path.join(folder, "ema.safetensors"))
optimizer = load_file(os.path.join(folder, "optimizer.safetensors"))
text, decoder, n_mels = state["model"]["text"], state["model"]["decoder"], state["model"]["n_mels"]
expected = {
    "text.embedding.weight": (state["model"]["vocabulary"], text["width"]),
    "text.prenet.0.conv.weight": (text["width"], text["width"], 5),
    "text.blocks.0.attention.query.weight": (text["width"], text["width"]),
    "text.blocks.0.mlp.up.weight": (4 * text["width"], text["width"]),
    "mean.blocks.0.conv.weight": (decoder["width"], 1, 7),
    "mean.blocks.0.mlp.down.weight": (decoder["width"], decoder["hidden"]),
    "mean.output.weight": (decoder["group"] * n_mels, decoder["width"]),
}
for name, shape in expected.items():
    assert weights[name].shape == shape, (name, weights[name].shape, shape)
for name, values in weights.items():
    assert values.dtype == np.float32 and np.isfinite(values).all(), name
    for kind in ("mean", "square"):
        assert optimizer[f"{kind}.{name}"].shape == values.shape, name
assert len(optimizer) == 2 * len(weights)
assert {name: values.shape for name, values in ema.items()} == {name: values.shape for name, values in weights.items()}
assert any((ema[name] != values).any() for name, values in weights.items()), "the average is not an average"
assert all((values >= 0).all() for name, values in optimizer.items() if name.startswith("square."))
voices = load_file(os.path.join(run, "run/voices.safetensors"))
assert all(values.shape[1] == n_mels for values in voices.values()), voices.keys()
samples, rate = soundfile.read(os.path.join(run, "speech.wav"))
assert rate == state["mel"]["sample_rate"] and len(samples) > 0 and np.abs(samples).max() > 0.01
for name in ("mel-spoken.png", "mel-true.png", "alignment.png"):
    with Image.open(os.path.join(run, name)) as image:
        image.load()
        assert image.size[0] > 50 and len(image.getcolors(1 << 20)) > 1, name
count = sum(values.size for values in weights.values())
print(f"{len(weights)} weights ({count} values), {len(optimizer)} of the optimizer, {len(voices)} voices, {len(samples) / rate:.2f} s of speech")
