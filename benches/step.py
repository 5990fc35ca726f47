#!/usr/bin/env python3
"""One training step of the model in PyTorch: an oracle for what benches/step.rs computes, and a benchmark beside it.

    python benches/step.py compare DIR...             the losses and gradients of `step export DIR SIZE`, computed again
    python benches/step.py run SIZE STEPS --from DIR  times steps from that start; prints RESULT and a JSON object
    python benches/step.py alternate BINARY SIZE...   exports, compares, then times both in turn; prints a table

SIZE is that of the acoustic model, or `vocoder-SIZE`; of `adversarial-SIZE`, stage 2, there is the comparison alone.
Needs torch and safetensors. BINARY is the built benchmark: the newest `step-*` in `release/deps` of the target folder.
Modules are named as in crates/model, so that its files of weights load as they are; tensors are [rows, time, channels].
Frames are given to tokens as DIR says: the search for the alignment, a part of the Rust step, is not done here.
"""
import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import nn

SIGMA_MIN, AUDIBLE, DROPOUT, TIMESTEP_FEATURES, STATES = 1e-4, -0.5, 0.3, 64, 2
LOSS_TOLERANCE, GRADIENT_TOLERANCE = 1e-5, 2e-4
THREADS = 2
gelu = partial(F.gelu, approximate="tanh")


def within(lengths, count):
    """True below each row's length, [rows, count]."""
    return torch.arange(count) < lengths[:, None]


class Conv1d(nn.Conv1d):
    """Over time, keeping the length (divided by the stride).

    Done as a flat image: oneDNN takes [rows, time, channels] as it lies in memory only for conv2d, which makes this
    1.2 (full) to 2.5 times (depthwise) as fast as conv1d and its transpositions.
    """

    def __init__(self, inputs, outputs, kernel_size, dilation=1, **options):
        super().__init__(inputs, outputs, kernel_size, padding=dilation * (kernel_size // 2), dilation=dilation, **options)

    def forward(self, x):
        y = F.conv2d(x.transpose(1, 2).unsqueeze(2), self.weight.unsqueeze(2), self.bias, (1, *self.stride),
                     (0, *self.padding), (1, *self.dilation), self.groups)
        return y.squeeze(2).transpose(1, 2)


class Part(nn.Module):
    """A module made of what it is given; `build` puts them together."""

    def __init__(self, **parts):
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)


class Attention(Part):
    def forward(self, x, context, mask, rotate=lambda x: x):
        def split(y):
            return y.unflatten(2, (self.heads, -1)).transpose(1, 2)

        query, key, value = rotate(split(self.query(x))), rotate(split(self.key(context))), split(self.value(context))
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        return self.output(mixed.transpose(1, 2).flatten(2))


class Mlp(Part):
    def forward(self, x):
        return self.down(gelu(self.up(x)))


class Block(Part):
    def forward(self, x, mask, rotate):
        y = self.attention_norm(x)
        x = x + self.attention(y, y, mask, rotate)
        return x + self.mlp(self.mlp_norm(x))


def rope(prefix, moving, channels):
    """Rotary positions; the first `prefix` have no place in time and are not rotated."""
    half = channels // 2
    at = torch.arange(moving, dtype=torch.float64)[:, None]
    angles = F.pad(at * 10_000 ** (-torch.arange(half, dtype=torch.float64) / half), (0, 0, prefix, 0))
    cos = torch.cat([angles.cos(), angles.cos()], 1).float()
    sin = torch.cat([-angles.sin(), angles.sin()], 1).float()
    return lambda x: x * cos + x.roll(half, -1) * sin


class TextEncoder(Part):
    def forward(self, ids, lengths, mask, prefix):
        tokens, latents = ids.shape[1], prefix.shape[1]
        x = self.embedding(ids) * mask
        for layer in self.prenet:
            x = (x + gelu(layer.conv(layer.norm(x) * mask))) * mask
        keys = within(latents + lengths, latents + tokens)[:, None, None]
        rotate = rope(latents, tokens, self.head_width)
        x = torch.cat([prefix, x], 1)
        for block in self.blocks:
            x = block(x, keys, rotate)
        return self.norm(x[:, latents:]) * mask


class ResamplerBlock(Part):
    def forward(self, x, audio, mask):
        query = self.query_norm(x)
        x = x + self.attention(query, torch.cat([query, self.context_norm(audio)], 1), mask)
        return x + self.mlp(self.mlp_norm(x))


class Resampler(Part):
    def forward(self, reference, lengths):
        half = gelu(self.first(reference))
        half = half * within((lengths + 1) // 2, half.shape[1])[..., None]
        audio = gelu(self.second(half))
        latents = len(self.latents)
        keys = within(latents + (lengths + 3) // 4, latents + audio.shape[1])[:, None, None]
        x = self.latents.expand(len(reference), -1, -1)
        for block in self.blocks:
            x = block(x, audio, keys)
        return self.norm(x)


class Speaker(Part):
    def forward(self, batch):
        if self.resampler is None:
            latents = self.single.expand(len(batch["ids"]), -1, -1)
        else:
            latents = self.resampler(batch["reference"], batch["reference_lengths"])
        return self.prefix(latents), self.embedding(latents.mean(1))


class MeanPredictor(Part):
    def forward(self, ids, mask, speaker):
        x, speaker = self.embedding(ids) * mask, self.speaker(speaker)[:, None]
        before, after = F.pad(x, (0, 0, 1, 0))[:, :-1], F.pad(x, (0, 0, 0, 1))[:, 1:]
        n_mels = len(self.output.weight) // STATES
        means = []
        for state, pair in enumerate(((before, x), (x, after))):
            # The first state sees the token before, the last one the token after.
            weight = self.conv.weight[..., state:state + 2].permute(0, 2, 1).flatten(1)
            hidden = gelu(F.linear(torch.cat(pair, 2), weight, self.conv.bias) + speaker)
            rows = slice(state * n_mels, (state + 1) * n_mels)
            means.append(F.linear(hidden, self.output.weight[rows], self.output.bias[rows]))
        return torch.stack(means, 2).flatten(1, 2)


class DurationPredictor(Part):
    def forward(self, features, speaker, mask):
        x = F.dropout((features + self.speaker(speaker)[:, None]) * mask, DROPOUT, self.training)
        x = F.dropout(self.first_norm(gelu(self.first(x))) * mask, DROPOUT, self.training)
        x = self.second_norm(gelu(self.second(x))) * mask
        return ((self.output(x) + 1.6) * mask).squeeze(2)


class Condition(Part):
    def forward(self, timesteps, speaker):
        angles = timesteps * torch.logspace(0, 3, TIMESTEP_FEATURES // 2)
        waves = torch.cat([angles.sin(), angles.cos()], 1)
        return gelu(self.output(gelu(self.timestep(waves) + self.speaker(speaker))))


class DecoderBlock(Part):
    def forward(self, x, condition, mask):
        scale, shift = self.modulation(condition)[:, None].chunk(2, 2)
        return x + self.mlp(torch.addcmul(shift, self.norm(self.conv(x * mask)), 1 + scale))


class Decoder(Part):
    def forward(self, x_t, mean, text, place, mask, timesteps, speaker):
        grouped = (*text.shape[:2], -1)
        condition = self.condition(timesteps, speaker)
        x = self.input(torch.cat([x_t.reshape(grouped), mean.reshape(grouped), place], 2)) + text
        for block in self.blocks:
            x = block(x, condition, mask)
        return mean + self.output(self.norm(x)).reshape(x_t.shape)


class Regressor(Part):
    def forward(self, text, place, speaker, mask):
        condition = gelu(self.speaker(speaker))
        x = self.place(place) + text
        for block in self.blocks:
            x = block(x, condition, mask)
        return self.output(self.norm(x))


class Pitch(Part):
    """Bins 1 to 96 from 65 to 500 Hz, 0 without a pitch; between two bins it is interpolated."""

    def embed(self, hz):
        place = ((hz.clamp(65, 500) / 65).log2() / math.log2(500 / 65) * 95)
        lower = place.floor().clamp_max(94)
        fraction, voiced = (place - lower)[..., None], (hz > 0)[..., None]
        low, high = self.embedding(lower.long() + 1), self.embedding(lower.long() + 2)
        return torch.where(voiced, low + (high - low) * fraction, self.embedding.weight[0])


def pitch_by_position(hz, group):
    """The mean of a position's frames with a pitch, if they are at least half of them."""
    hz = hz.unflatten(1, (-1, group))
    voiced = (hz > 0).sum(2)
    return torch.where((voiced > 0) & (2 * voiced >= group), hz.sum(2) / voiced.clamp_min(1), 0.0)


def spread(x, durations, lengths, positions, every=1):
    """What each position gets from its token; `every` frames make a position. The rest belongs to the last token."""
    starts = (every * torch.arange(positions)).expand(len(x), -1).contiguous()
    token = torch.searchsorted(durations.cumsum(1), starts, right=True)
    token = token.minimum((lengths - 1).clamp_min(0)[:, None])
    return F.embedding(token + x.shape[1] * torch.arange(len(x))[:, None], x.flatten(0, 1))


def place_in_token(durations, lengths, positions, group):
    """Where in its token each position lies: fraction passed, nearness to the middle, length."""
    starts = (group * torch.arange(positions)).expand(len(durations), -1).contiguous()
    ends = durations.cumsum(1)
    token = torch.searchsorted(ends, starts, right=True).minimum((lengths - 1).clamp_min(0)[:, None])
    frames = durations.gather(1, token)
    first = ends.gather(1, token) - frames
    frames = frames.clamp_min(1).float()
    passed = (((starts - first).float() + 0.5 * group) / frames).clamp_max(1)
    return torch.stack([2 * passed - 1, 4 * passed * (1 - passed), frames.log() - 1.6, 1 / frames], 2)


def duration_loss(predicted, durations, tokens, mask):
    """Each token's error, and the whole clip's. Empty rows count for nothing."""
    present = (tokens > 0).float()
    each = ((predicted - durations.clamp_min(1).log()) * mask).square().sum()
    total = (predicted.exp() * mask).sum(1) + (1 - present)
    whole = ((total.log() - durations.sum(1).clamp_min(1).log()) * present).square().sum()
    return each / tokens.sum().clamp_min(1) + whole / present.sum().clamp_min(1)


class Voice(Part):
    def forward(self, batch):
        """The terms of the loss."""
        ids, tokens, durations = batch["ids"], batch["id_lengths"], batch["durations"]
        mel, frames, noise, timesteps = batch["mel"], batch["mel_lengths"], batch["noise"], batch["timesteps"]
        count = mel.shape[1]
        positions, position_lengths = count // self.group, (frames + self.group - 1) // self.group
        token_mask, frame_mask, position_mask = (within(lengths, size).float()[..., None] for lengths, size in (
            (tokens, ids.shape[1]), (frames, count), (position_lengths, positions)))
        prefix, speaker = self.speaker(batch)
        features = self.text(ids, tokens, token_mask, prefix)
        # Equally many frames for each state of a token, the first ones more if that cannot be.
        of_states = ((durations[..., None] + STATES - 1 - torch.arange(STATES)) // STATES).flatten(1)
        aligned = spread(self.aligner(ids, token_mask, speaker), of_states, STATES * tokens, count)
        values = frames.sum().clamp_min(1) * mel.shape[2]
        prior = ((mel.clamp_min(AUDIBLE) - aligned) * frame_mask).square().sum() / values

        text = spread(self.projection(features), durations, tokens, positions, self.group)
        place = place_in_token(durations, tokens, positions, self.group)
        hz = pitch_by_position(batch["pitch"], self.group)
        of_pitch = spread(self.pitch.projection(F.dropout(features.detach(), DROPOUT, self.training)), durations, tokens, positions, self.group)
        predicted = self.pitch.predictor(of_pitch, place, speaker, position_mask)
        voiced = (hz > 0).float()
        targets = torch.stack([4 * (hz.clamp(65, 500) / 200).log2() * voiced, voiced], 2)
        weights = torch.cat([voiced[..., None] * position_mask, position_mask], 2)
        pitch = ((predicted - targets) * weights).square().sum() * self.group / frames.sum().clamp_min(1)

        text = text + self.pitch.embed(hz)
        mu = self.mean(text, place, speaker, position_mask).reshape(mel.shape)
        mean = ((mel - mu) * frame_mask).abs().sum() / values

        flow = mel.new_zeros(())
        if self.decoder is not None:
            t = timesteps[..., None]
            x_t = noise * (1 - (1 - SIGMA_MIN) * t) + mel * t
            x1 = self.decoder(x_t, mu.detach(), text, place, position_mask, timesteps, speaker)
            flow = ((x1 - mel) * frame_mask).square().sum() / values

        predicted = self.duration(features.detach(), speaker.detach(), token_mask)
        duration = duration_loss(predicted, durations, tokens, token_mask.squeeze(2))
        return {"prior": prior, "mean": mean, "duration": duration, "pitch": pitch, "flow": flow}


def build(config):
    """The model of a configuration, with names and shapes as in its file of weights."""
    text, speaker, decoder, n_mels = config.text, config.speaker, config.decoder, config.n_mels
    frame, middle = n_mels * decoder.group, config.duration_width
    linear, norm, parameter = nn.Linear, nn.LayerNorm, lambda *shape: nn.Parameter(torch.empty(shape))

    def repeat(count, make):
        return nn.ModuleList(make(n) for n in range(count))

    def mlp(width, hidden):
        return Mlp(up=linear(width, hidden), down=linear(hidden, width))

    def block(kind, width, heads, *norms):
        names = ("query", "key", "value", "output")
        attention = Attention(heads=heads, **{name: linear(width, width) for name in names})
        return kind(attention=attention, mlp=mlp(width, 4 * width), mlp_norm=norm(width),
                    **{name: norm(width) for name in norms})

    def resampler(width):
        return Resampler(
            first=Conv1d(n_mels, width, 3, stride=2), second=Conv1d(width, width, 3, stride=2),
            latents=parameter(speaker.latents, width), norm=norm(width), blocks=repeat(speaker.blocks, lambda _: block(
                ResamplerBlock, width, speaker.heads, "query_norm", "context_norm")))

    def text_encoder(width):
        return TextEncoder(
            embedding=nn.Embedding(config.vocabulary, width), norm=norm(width), head_width=width // text.heads,
            prenet=repeat(text.convolutions, lambda _: Part(norm=norm(width), conv=Conv1d(width, width, 5))),
            blocks=repeat(text.blocks, lambda _: block(Block, width, text.heads, "attention_norm")))

    def decoder_blocks(count, width, hidden=decoder.hidden):
        return repeat(count, lambda n: DecoderBlock(
            conv=Conv1d(width, width, 7, dilation=2 ** (n % 3), groups=width), norm=norm(width),
            modulation=linear(width, 2 * width), mlp=mlp(width, hidden)))

    def flow_decoder(width):
        return Decoder(
            input=linear(2 * frame + 4, width), norm=norm(width), output=linear(width, frame),
            condition=Condition(
                timestep=linear(TIMESTEP_FEATURES, width), speaker=linear(speaker.width, width), output=linear(width, width)),
            blocks=decoder_blocks(decoder.blocks, width))

    def regressor(width, values, blocks):
        return Regressor(place=linear(4, width), speaker=linear(speaker.width, width), norm=norm(width),
                         output=linear(width, values), blocks=blocks)

    def pitch(shape):
        return Pitch(
            projection=linear(text.width, shape.width), embedding=nn.Embedding(97, decoder.width),
            predictor=regressor(shape.width, 2, decoder_blocks(shape.blocks, shape.width, shape.hidden)))

    return Voice(
        text=text_encoder(text.width),
        aligner=MeanPredictor(
            embedding=nn.Embedding(config.vocabulary, text.width), conv=Conv1d(text.width, text.width, 3),
            speaker=linear(speaker.width, text.width), output=linear(text.width, STATES * n_mels)),
        mean=regressor(decoder.width, frame, decoder_blocks(decoder.mean_blocks, decoder.width)),
        pitch=pitch(config.pitch),
        projection=linear(text.width, decoder.width),
        speaker=Speaker(
            resampler=resampler(speaker.width) if config.reference else None,
            single=None if config.reference else parameter(1, 1, speaker.width),
            prefix=linear(speaker.width, text.width), embedding=linear(speaker.width, speaker.width)),
        duration=DurationPredictor(
            speaker=linear(speaker.width, text.width), first=Conv1d(text.width, middle, 3), first_norm=norm(middle),
            second=Conv1d(middle, middle, 3), second_norm=norm(middle), output=linear(middle, 1)),
        decoder=flow_decoder(decoder.width) if decoder.blocks else None,
        group=decoder.group)


class VocoderBlock(Part):
    def forward(self, x, mask):
        return x + self.mlp(self.norm(self.conv(x * mask)))


# Transforms whose magnitudes are compared, the weight of the mel's term, and what is added to squared magnitudes.
RESOLUTIONS, MEL_WEIGHT, SQUARED_FLOOR = ((512, 128, 512), (1024, 256, 1024), (2048, 512, 2048)), 4.0, 1e-6


def magnitudes(x, n_fft, hop, win_length):
    """[rows, bins, frames]."""
    spectra = torch.stft(x, n_fft, hop, win_length, torch.hann_window(win_length), center=False, return_complex=True)
    return torch.view_as_real(spectra).square().sum(-1).add(SQUARED_FLOOR).sqrt()


class Judge(Part):
    def forward(self, x):
        """The verdict, and what the layers saw."""
        features = []
        for layer in self.layers:
            x = F.leaky_relu(layer(x), 0.1)
            features.append(x)
        return self.output(x), features


PERIODS = (2, 3, 5, 7, 11)


class Discriminators(Part):
    def forward(self, x):
        """[(verdict, features, weight)] of waveforms."""
        found = []
        for judge, period in zip(self.periods, PERIODS):
            folded = x[:, :x.shape[1] // period * period].reshape(len(x), 1, -1, period)
            found.append((*judge(folded), 1.0))
        for judge, resolution in zip(self.resolutions, RESOLUTIONS):
            found.append((*judge(magnitudes(x, *resolution).transpose(1, 2)[:, None]), 0.1))
        return found


def adversarial_terms(judges, made, truth):
    """Hinge losses and feature matching; each side has the gradients of its own terms."""
    frozen = {name: value.detach() for name, value in judges.named_parameters()}
    of_made = torch.func.functional_call(judges, frozen, (made,))
    terms = {"adversarial": 0.0, "matching": 0.0, "discriminator": 0.0}
    for (a, seen_a, weight), (b, seen_b, _), (c, _, _) in zip(of_made, judges(truth), judges(made.detach())):
        terms["adversarial"] = terms["adversarial"] + weight * F.relu(1 - a).mean()
        matching = sum((x - y.detach()).abs().mean() for x, y in zip(seen_a, seen_b)) / len(seen_a)
        terms["matching"] = terms["matching"] + weight * matching
        terms["discriminator"] = terms["discriminator"] + weight * (F.relu(1 - b).mean() + F.relu(1 + c).mean())
    return terms


class NeuralVocoder(Part):
    def forward(self, batch):
        """The terms of the loss."""
        frames, clips = batch["features"].shape[1], len(batch["features"])
        mask = within(batch["lengths"], frames).float()[..., None]
        x = self.input(batch["features"])
        for block in self.blocks:
            x = block(x, mask)
        gains = self.output(self.norm(x)).clamp(-9, 9).exp()
        loud, breathy = gains.chunk(2, 2)
        spectra = batch["harmonic"] * torch.cat([loud, loud], 2) + batch["noise"] * torch.cat([breathy, breathy], 2)
        real, imaginary = spectra.chunk(2, 2)
        shape = (self.n_fft, self.hop_length, self.win_length)
        # Without the padding of the frames: what `center` takes away.
        made = torch.istft(torch.complex(real, imaginary).transpose(1, 2), *shape, torch.hann_window(self.win_length), center=True)
        truth = batch["waveform"][:, self.n_fft // 2:-(self.n_fft // 2)]
        def bands(x):
            return (batch["filters"].T @ magnitudes(x, *shape)).clamp_min(batch["floor"]).log()

        mel = (bands(made) - bands(truth)).abs().mean((1, 2)).sum() / clips
        if self.discriminators is not None:
            return {"mel": 45.0 * mel, **adversarial_terms(self.discriminators, made, truth)}
        terms = {"mel": MEL_WEIGHT * mel, "convergence": 0.0, "magnitude": 0.0}
        for resolution in RESOLUTIONS:
            a, b = magnitudes(made, *resolution), magnitudes(truth, *resolution)
            size = b.square().sum((1, 2)).sqrt()
            error = ((a - b).square().sum((1, 2)) + 1e-12).sqrt()
            terms["convergence"] = terms["convergence"] + (error / size).sum() / (len(RESOLUTIONS) * clips)
            terms["magnitude"] = terms["magnitude"] + (a.log() - b.log()).abs().mean((1, 2)).sum() / (len(RESOLUTIONS) * clips)
        return terms


def build_vocoder(config):
    """The vocoder of a configuration."""
    trunk, bins = config.trunk, config.n_fft // 2 + 1
    width = trunk.width

    def block():
        mlp = Mlp(up=nn.Linear(width, trunk.hidden), down=nn.Linear(trunk.hidden, width))
        return VocoderBlock(conv=Conv1d(width, width, 7, groups=width), norm=nn.LayerNorm(width), mlp=mlp)

    def judge(channels, kernels, strides):
        def conv(n):
            kernel = kernels[n]
            return nn.Conv2d(channels[n], channels[n + 1], kernel, strides[n], tuple(size // 2 for size in kernel))

        return Judge(layers=nn.ModuleList(conv(n) for n in range(5)), output=conv(5))

    def discriminators(width):
        of_period = ((1, width, 4 * width, 16 * width, 32 * width, 32 * width, 1), [(5, 1)] * 5 + [(3, 1)], [(3, 1)] * 4 + [(1, 1)] * 2)
        of_resolution = ((1, *[width] * 5, 1), [(3, 9)] * 4 + [(3, 3)] * 2, [(1, 1)] + [(1, 2)] * 3 + [(1, 1)] * 2)
        return Discriminators(periods=nn.ModuleList(judge(*of_period) for _ in PERIODS),
                              resolutions=nn.ModuleList(judge(*of_resolution) for _ in RESOLUTIONS))

    judges = getattr(config, "discriminators", None)
    return NeuralVocoder(
        discriminators=discriminators(judges.width) if judges else None, input=Conv1d(config.n_mels + 2, width, 7), blocks=nn.ModuleList(block() for _ in range(trunk.blocks)),
        norm=nn.LayerNorm(width), output=nn.Linear(width, 2 * bins),
        n_fft=config.n_fft, hop_length=config.hop_length, win_length=config.win_length)


def load(folder):
    """The model and the batch that `step export` wrote."""
    config = json.loads((folder / "config.json").read_text(), object_hook=lambda fields: SimpleNamespace(**fields))
    model = build_vocoder(config) if hasattr(config, "trunk") else build(config)
    model.load_state_dict(load_file(folder / "model.safetensors"), strict=True)
    batch = load_file(folder / "batch.safetensors")
    for name in {"ids", "id_lengths", "mel_lengths", "reference_lengths", "durations", "lengths"} & batch.keys():
        batch[name] = batch[name].long()
    return model, batch


def compare(folder):
    """Whether losses and gradients are those of the files."""
    voice, batch = load(folder)
    losses = voice.eval()(batch)
    sum(losses.values()).backward()
    wanted = json.loads((folder / "losses.json").read_text())
    # A term that the model does not have is 0 in both.
    loss_errors = {name: abs(losses[name].item() - value) / (abs(value) or 1.0) for name, value in wanted.items()}

    grads = load_file(folder / "grads.safetensors")
    found = {name: parameter.grad for name, parameter in voice.named_parameters()}
    assert found.keys() == grads.keys(), f"gradients of one alone: {sorted(found.keys() ^ grads.keys())}"
    norms = {name: grad.norm().item() for name, grad in grads.items()}
    # Some gradients are 0 but for rounding (a bias that all keys share moves no attention): so much is nothing.
    nothing = 1e-6 * math.hypot(*norms.values())
    errors = {name: (found[name] - grad).norm().item() / max(norms[name], nothing) for name, grad in grads.items()}
    good = True
    # In the biases of discriminators what recordings and copies ask for nearly cancels; rounding is all the more of what is left.
    tolerance = 10 * GRADIENT_TOLERANCE if "discriminator" in wanted else GRADIENT_TOLERANCE
    for what, differences, most in (("losses", loss_errors, LOSS_TOLERANCE), ("gradients", errors, tolerance)):
        name, worst = max(differences.items(), key=lambda item: math.inf if math.isnan(item[1]) else item[1])
        fits = worst <= most  # what is not a number does not fit
        print(f"{folder}: {len(differences)} {what} differ by up to {worst:.1e} ({name}){'' if fits else ': TOO MUCH'}")
        good = good and fits
    return good


def run(size, steps, folder, compiled):
    """Times training steps; the first one warms up."""
    torch.set_num_threads(THREADS)
    torch.manual_seed(1)
    voice, batch = load(folder)
    voice.train()
    parameters = list(voice.parameters())
    groups = [{"params": [p for p in parameters if p.dim() > 1]},
              {"params": [p for p in parameters if p.dim() == 1], "weight_decay": 0.0}]
    # Fused: measured three times as fast as foreach.
    optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.98), weight_decay=0.01, fused=True)
    forward = torch.compile(voice) if compiled else voice
    seconds = []
    for _ in range(1 + steps):
        started = time.perf_counter()
        optimizer.zero_grad()
        loss = sum(forward(batch).values())
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0, foreach=True)
        optimizer.step()
        last_loss = loss.item()
        seconds.append(time.perf_counter() - started)
    print("RESULT", json.dumps({
        "who": "torch", "size": size, "steps": steps, "median_ms": 1e3 * statistics.median(seconds[1:]),
        "min_ms": 1e3 * min(seconds[1:]), "last_loss": last_loss, "compiled": compiled, "version": torch.__version__}))


def result_of(*command):
    """The RESULT of a command."""
    output = subprocess.run([str(part) for part in command], check=True, stdout=subprocess.PIPE, text=True).stdout
    line = next(line for line in output.splitlines() if line.startswith("RESULT "))
    print(line, flush=True)
    return json.loads(line.removeprefix("RESULT "))


def alternate(binary, sizes, rounds, steps, options):
    """Times both in turn and prints a table."""
    if os.getloadavg()[0] > 0.5:
        print("WARNING: this machine is busy, these figures say nothing. OpenMP's threads spin while they wait for each"
              " other: beside other jobs on two cores, torch was measured 20 times slower.", file=sys.stderr)
    this = [sys.executable, __file__]
    lines = ["| size | tandem ms | torch ms | tandem / torch |", "|---|---|---|---|"]
    for size in sizes:
        tandem, torch_ = [], []
        with tempfile.TemporaryDirectory() as folder:
            result_of(binary, "export", folder, size)
            subprocess.run([*this, "compare", folder], check=True)
            for _ in range(rounds):
                tandem.append(result_of(binary, "run", size, steps)["median_ms"])
                torch_.append(result_of(*this, "run", size, steps, "--from", folder, *options)["median_ms"])
        cells = [f"{statistics.median(ms):.1f} ({min(ms):.1f} .. {max(ms):.1f})" for ms in (tandem, torch_)]
        ratio = statistics.median(tandem) / statistics.median(torch_)
        lines.append(f"| {size} | {cells[0]} | {cells[1]} | {ratio:.2f} |")
    print("\n".join(lines))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    comparing, running, alternating = (commands.add_parser(name) for name in ("compare", "run", "alternate"))
    comparing.add_argument("folders", nargs="+", type=Path, metavar="DIR")
    running.add_argument("size")
    running.add_argument("steps", type=int)
    running.add_argument("--from", dest="folder", type=Path, required=True, metavar="DIR")
    alternating.add_argument("binary", type=Path)
    alternating.add_argument("sizes", nargs="+", metavar="size")
    alternating.add_argument("--rounds", type=int, default=3)
    alternating.add_argument("--steps", type=int, default=20)
    for command in (running, alternating):
        command.add_argument("--compile", action="store_true", help="with torch.compile")
    args = parser.parse_args()
    if args.command == "compare":
        sys.exit(0 if all([compare(folder) for folder in args.folders]) else 1)
    elif args.command == "run":
        run(args.size, args.steps, args.folder, args.compile)
    else:
        options = ["--compile"] if args.compile else []
        alternate(args.binary.resolve(), args.sizes, args.rounds, args.steps, options)


if __name__ == "__main__":
    main()
