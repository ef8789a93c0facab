#!/usr/bin/env python3
"""Goldens of the sound side of LTX-2: diffusers' AutoencoderKLLTX2Audio, LTX2Vocoder and LTX2VocoderWithBWE on weights that both
sides draw, so that none are stored.

    python3 scripts/dump_golden_ltx2_audio.py tests/golden/ltx2_audio.json tests/golden

Every tensor is torch.randn in F32 from a generator of its own, seeded with the FNV-1a sum of its name, then scaled by the rules
of `drawn`, as tests/golden_ltx2_audio.h draws it too: filters are no symmetric ones, so that their order shows. A file a model:

  f32          F32          what a whole run in F32 gives: the spectrogram [T,mel,2], or the sound [samples,2]
  f32_short    F32          the same of one row less (vocoder_bwe: of a length that is whole hops; diffusers cannot pad others
                            without the attribute that is given to it here)
  bf16         BF16 [S, N]  samples of each stage, in their order; each stage is fed with drawn values, not with the last one's result
  room         F32 [S]      |f32 - bf16| over the samples: the same stages in F32 from the same bf16 inputs, weights

Easy to get wrong: signals are [T,C] here, channels last; bf16 runs under CUDA's rounding points (refprofile.py).
"""
import json
import sys

import numpy as np
import torch
from safetensors.torch import save_file

from dump_golden_wan import BF16, fnv, normal, samples, stage_input
from refprofile import rounding, versions

SAMPLES, ROWS, LATENT = 16, 9, 3


def drawn(name, shape):
    r = normal(name, shape)
    if name.endswith(("alpha", "beta")):
        return r * np.float32(0.3).item()
    if name.endswith(".bias") or name == "latents_mean":
        return r * np.float32(0.2).item()
    if name == "latents_std":
        return 1.0 + r * np.float32(0.3).item()
    if name.endswith("mel_basis"):
        return r.abs() * np.float32(1 / shape[1]).item()
    if name.endswith(".filter"):
        return (1.0 + r * np.float32(0.6).item()) * np.float32(1 / shape[2]).item()
    fan = shape[0] * 2 if "upsamplers" in name else int(np.prod(shape[1:]))
    gain = 0.25 if "conv_out" in name else 0.6 if "resnets" in name else 1.0
    return r * np.float32(gain / float(fan) ** 0.5).item()


def model(config, dtype):
    import diffusers
    from diffusers.pipelines.ltx2 import vocoder
    kind = config["_class_name"]
    m = getattr(vocoder, kind, None) or getattr(diffusers, kind)
    m = m(**{k: v for k, v in config.items() if k[0] != "_"})
    m.load_state_dict({k: drawn(k, tuple(v.shape)) for k, v in m.state_dict().items()})
    m.hop_length = config.get("hop_length", 80)  # its own code asks for it where a sound is no whole number of hops
    return m.to(dtype).eval()


def signal(t):
    """[1,C,T] -> [T,C]; [1,C,Y,X] -> [Y,X,C]"""
    return (t[0].permute(1, 0) if t.dim() == 3 else t[0].permute(1, 2, 0)).contiguous()


def unsignal(t):
    return (t.permute(1, 0) if t.dim() == 2 else t.permute(2, 0, 1))[None].contiguous()


def bands(t):
    """log-mel [channels, bands, T] -> [T, channels * bands]"""
    return t.permute(2, 0, 1).flatten(1).contiguous()


class Stages:
    """Hooks on a model: every stage's result in order; with `feed` what follows sees drawn values instead."""

    def __init__(self, feed):
        self.feed, self.out, self.seen, self.hooks = feed, [], {}, []

    def see(self, name, t):
        key = f"{name}.{self.seen.setdefault(name, 0)}"
        self.seen[name] += 1
        self.out.append((key, t))
        return stage_input(key, t.shape).to(t.dtype) if self.feed else t

    def hook(self, module, name, there=signal, back=unsignal):
        def run(_, args, result):
            return back(self.see(name, there(result)))
        self.hooks.append(module.register_forward_hook(run))

    def net(self, v, name):
        self.hook(v.conv_in, f"{name}.conv_in")
        for i, m in enumerate(v.upsamplers):
            self.hook(m, f"{name}.up.{i}")
        self.hook(v, f"{name}.sound")

    def mel(self, stft):
        def run(_, args, result):
            t = bands(result[0])
            t = self.see("bwe.mel", t)
            return (t.unflatten(1, (result[0].shape[0], -1)).permute(1, 2, 0).contiguous(), *result[1:])
        self.hooks.append(stft.register_forward_hook(run))

    def mean(self, name, counts):
        """A stage of a net is a mean, which is no module: nets take turns, counts[i] stages each."""
        real, order = torch.mean, [f"{n}.stage.{i}" for n, c in zip(name, counts) for i in range(c)]

        def mean(t, dim=None, keepdim=False):
            y = real(t, dim=dim, keepdim=keepdim)
            return unsignal(self.see(order.pop(0), signal(y))) if dim == 0 else y
        torch.mean = mean
        return lambda: setattr(torch, "mean", real)


def stages(m, call, feed):
    s, undo = Stages(feed), lambda: None
    kind = type(m).__name__
    if kind == "AutoencoderKLLTX2Audio":
        d = m.decoder
        s.hook(d.conv_in, "audio.conv_in")
        blocks = [d.mid.block_1, d.mid.block_2]
        for i in reversed(range(d.num_resolutions)):
            blocks += list(d.up[i].block)
            if i:
                s.hook(d.up[i].upsample, f"audio.up.{d.num_resolutions - 1 - i}")
        for b in blocks:
            s.hook(b, "audio.resnet")
        s.hook(d, "audio.mel")
    elif kind == "LTX2Vocoder":
        s.net(m, "vocoder")
        undo = s.mean(["vocoder"], [m.num_upsample_layers])
    else:
        s.net(m.vocoder, "vocoder")
        s.net(m.bwe_generator, "bwe")
        s.mel(m.mel_stft)
        s.hook(m.resampler, "bwe.skip")
        s.hook(m, "sound")
        undo = s.mean(["vocoder", "bwe"], [m.vocoder.num_upsample_layers, m.bwe_generator.num_upsample_layers])
    with torch.no_grad(), rounding(next(m.parameters()).dtype, "cpu"):
        call()
    undo()
    for h in s.hooks:
        h.remove()
    return s.out


def decode(m, x):
    """x: [rows, width] packed latents of an autoencoder, [rows, bands, 2] of a vocoder."""
    if not hasattr(m, "decoder"):
        return m(unsignal(x).to(next(m.parameters()).dtype))
    z = x[None] * m.latents_std.to(x.dtype) + m.latents_mean.to(x.dtype)  # as LTX2Pipeline: in F32
    z = z.unflatten(2, (-1, m.config.mel_bins // 4)).transpose(1, 2)
    return m.decode(z.to(m.dtype)).sample


def given(config, rows):
    """What a run begins from: drawn for ROWS rows, of which the first ones are taken."""
    if "mel_bins" in config:
        return normal("latents", (LATENT, config["base_channels"]))[:rows]
    return stage_input("mel", (ROWS, config["in_channels"] // 2, 2))[:rows]


def dump(config, path):
    rows = LATENT if "mel_bins" in config else ROWS
    f32, half = model(config, torch.float32), model(config, BF16)
    twin = model(config, BF16).float()
    with torch.no_grad():
        whole = [signal(decode(f32, given(config, n))) for n in (rows, rows - 1)]
        exact = signal(decode(model(config, torch.float64), given(config, rows).double()))
    print(f"{path}: {tuple(whole[0].shape)}, rms {whole[0].square().mean().sqrt():.3g}, most {whole[0].abs().max():.3g}, "
          f"f32 against f64 {(whole[0] - exact).abs().max():.2g}")
    x = given(config, rows)
    x = x if "mel_bins" in config else x.to(BF16)
    a, b = stages(half, lambda: decode(half, x), True), stages(twin, lambda: decode(twin, x.float()), True)
    assert [k for k, _ in a] == [k for k, _ in b]
    kept, room = [], []
    for (k, t), (_, y) in zip(a, b):
        kept.append(samples(t, SAMPLES))
        f = samples(y, SAMPLES)
        room.append((f - kept[-1].float()).norm())
        print(f"{k:20} {tuple(t.shape)} std {y.std():.3g} room {room[-1] / f.norm():.2g}")
    assert all(len(k) == SAMPLES for k in kept) and min(room) > 0
    tensors = {"f32": whole[0], "f32_short": whole[1], "bf16": torch.stack(kept), "room": torch.stack(room)}
    v = versions("cpu")
    save_file(tensors, path, {k: v[k] for k in ("profile", "torch", "diffusers")})


def main(config_path, folder):
    for name, config in json.load(open(config_path)).items():
        dump(config, f"{folder}/ltx2_{name}.safetensors")


if __name__ == "__main__":
    assert fnv("") == 2166136261
    main(*sys.argv[1:])
