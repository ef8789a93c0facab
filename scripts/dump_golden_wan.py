#!/usr/bin/env python3
"""Goldens of the Wan autoencoder: diffusers' AutoencoderKLWan on weights that both sides draw, so that none are stored.

    python3 scripts/dump_golden_wan.py tests/golden/tiny-wan/config.json tests/golden/wan.safetensors

Every tensor is torch.randn in F32 from a generator of its own, seeded with the FNV-1a sum of its name, then scaled by the
rules of `drawn`: calibrated noise (attention logits of standard deviation 4, outlier channels), as tests/golden_wan.h draws
it too. Stored are samples of the results, STEP-wise, and for bf16 how far the f32 results are from the bf16 ones.

  frames       F32 [17, N]  samples of each frame of a video of 5 latent frames, run through in f32
  latents      F32          of 5 frames encoded in f32, as the pipeline scales them, [F,Y,X,C]
  bf16         BF16 [S, N]  samples of each stage and chunk of decoder and encoder, in their order; each stage is fed with drawn
  room         F32 [S]      values, not with the last one's result; |f32 - bf16| over the samples
  scaled       BF16         latents as the decoder's pipeline scales them in bf16

Easy to get wrong: a stage's drawn input is channels last, [F,Y,X,C]; bf16 runs under CUDA's rounding points (refprofile.py).
"""
import json
import sys

import numpy as np
import torch
from safetensors.torch import save_file

from refprofile import rounding, versions

SAMPLES, STAGE_SAMPLES, LATENT, SIZE = 32, 16, 5, (3, 5)
BF16 = torch.bfloat16


def fnv(name):
    h = 2166136261
    for c in name.encode():
        h = (h ^ c) * 16777619 % 2 ** 32
    return h


def normal(name, shape):
    return torch.randn(shape, generator=torch.Generator("cpu").manual_seed(fnv(name)), dtype=torch.float32)


def outlier(n, factor):
    return torch.tensor([factor if i % 13 == 5 else 1.0 for i in range(n)], dtype=torch.float32)


def drawn(name, shape):
    r = normal(name, shape)
    if name.endswith(".gamma"):
        return (1.0 + r * np.float32(0.3).item()) * outlier(shape[0], 3.0).reshape(shape[0], *[1] * (len(shape) - 1))
    if name.endswith(".bias"):
        return r * np.float32(0.2).item()
    gain = 2.0 if "to_qkv" in name else 1.3
    return r * np.float32(gain / float(np.prod(shape[1:])) ** 0.5).item()


def stage_input(name, shape):
    """Drawn [F,Y,X,C], as bf16 holds it."""
    return (normal(name, shape) * outlier(shape[-1], 6.0)).to(BF16).float()


def model(config, dtype):
    from diffusers import AutoencoderKLWan
    vae = AutoencoderKLWan(**{k: v for k, v in config.items() if k[0] != "_"})
    vae.load_state_dict({k: drawn(k, tuple(v.shape)) for k, v in vae.state_dict().items()})
    return vae.to(dtype).eval()


def last(t):
    """[1,C,F,Y,X] -> [F,Y,X,C]"""
    return t[0].permute(1, 2, 3, 0).contiguous()


def first(t):
    return t.permute(3, 0, 1, 2)[None].contiguous()


def samples(t, count):
    """Elements 0, step, 2 step ...: the step is odd, so that channels and columns change."""
    flat = t.reshape(-1)
    step = max(1, flat.numel() // count) - 1 | 1
    return flat[::step][:count].clone()


def latents_in(vae, z):
    """As SanaVideoPipeline scales them."""
    c = vae.config
    mean = torch.tensor(c.latents_mean).view(1, c.z_dim, 1, 1, 1).to(z.dtype)
    std = 1.0 / torch.tensor(c.latents_std).view(1, c.z_dim, 1, 1, 1).to(z.dtype)
    return z / std + mean


def latents_out(vae, z):
    """As SanaImageToVideoPipeline scales an image's."""
    c = vae.config
    mean = torch.tensor(c.latents_mean).view(1, -1, 1, 1, 1).to(z.dtype)
    std = 1.0 / torch.tensor(c.latents_std).view(1, -1, 1, 1, 1).to(z.dtype)
    return (z - mean) * std


def stages(vae, call, feed):
    """-> [(name.chunk, result)] in order. feed: what follows a stage sees drawn values instead of its result."""
    d, e, out, seen = vae.decoder, vae.encoder, [], {}
    mods = [("vae.conv_in", d.conv_in), ("vae.norm_out", d.nonlinearity), ("vae.frames", d.conv_out),
            ("vae.enc.conv_in", e.conv_in), ("vae.enc.norm_out", e.nonlinearity), ("vae.enc.moments", vae.quant_conv)]
    mods += [("vae.resnet", m) for m in vae.modules() if type(m).__name__ == "WanResidualBlock"]
    mods += [("vae.attention", m) for m in vae.modules() if type(m).__name__ == "WanAttentionBlock"]
    ups, downs = ([m for m in side.modules() if type(m).__name__ == "WanResample"] for side in (d, e))
    assert len(ups) == len(downs) == len(vae.config.dim_mult) - 1
    mods += [(f"vae.up.{i}", m) for i, m in enumerate(ups)] + [(f"vae.enc.down.{i}", m) for i, m in enumerate(downs)]

    def hook(name):
        def run(module, args, result):
            key = f"{name}.{seen.setdefault(name, 0)}"
            seen[name] += 1
            out.append((key, last(result)))
            if feed and name not in ("vae.frames", "vae.enc.moments"):
                return first(stage_input(key, out[-1][1].shape)).to(result.dtype)
            return None
        return run
    hooks = [m.register_forward_hook(hook(n)) for n, m in mods]
    with torch.no_grad(), rounding(next(vae.parameters()).dtype, "cpu"):
        call()
    for h in hooks:
        h.remove()
    return out


def main(config_path, out_path):
    config = json.load(open(config_path))
    f32 = model(config, torch.float32)
    z = first(normal("z", (LATENT, *SIZE, config["z_dim"])))
    video = first(stage_input("video", (5, 8 * SIZE[0], 8 * SIZE[1], 3)) * 0.25)
    with torch.no_grad():
        whole = f32._decode(latents_in(f32, z)).sample
        raw = torch.cat([t for n, t in stages(f32, lambda: f32.decode(latents_in(f32, z)), False) if "frames" in n])
        assert torch.equal(first(raw).clamp(-1, 1), whole)
        inside = (raw.abs() < 1).float().mean().item()
        for n in (1, 2):
            part = f32.decode(latents_in(f32, z[:, :, :n])).sample
            print(f"{n} latent frames: the first of {LATENT}, up to {(part - whole[:, :, :part.shape[2]]).abs().max():.2g}")
        exact = f32.double().decode(latents_in(f32, z.double())).sample
        print(f"f32 against f64: {(whole - exact).abs().max():.2g}; |frame| < 1 in {inside:.0%}, rms {raw.square().mean().sqrt():.3g}")
        f32 = f32.float()
        latents = last(latents_out(f32, f32.encode(video).latent_dist.mode()))
        image = last(latents_out(f32, f32.encode(video[:, :, :1]).latent_dist.mode()))
    print(f"an image's latents: the first of the video's, up to {(image - latents[:1]).abs().max():.2g}")
    half = model(config, BF16)
    twin = model(config, BF16).float()
    scaled = latents_in(half, z.to(BF16))
    kept, room = [], []
    for go, inputs in (("decode", scaled[:, :, :3]), ("encode", video.to(BF16))):
        a = stages(half, lambda: getattr(half, go)(inputs), True)
        b = stages(twin, lambda: getattr(twin, go)(inputs.float()), True)
        assert [k for k, _ in a] == [k for k, _ in b]
        for (k, x), (_, y) in zip(a, b):
            kept.append(samples(x, STAGE_SAMPLES))
            f = samples(y, STAGE_SAMPLES)
            room.append((f - kept[-1].float()).norm())
            print(f"{k:20} {tuple(x.shape)} std {y.std():.3g} room {room[-1] / f.norm():.2g}")
    assert all(len(k) == STAGE_SAMPLES for k in kept) and min(room) > 0
    tensors = {"frames": torch.stack([samples(f, SAMPLES) for f in raw]), "latents": latents, "bf16": torch.stack(kept),
               "room": torch.stack(room), "scaled": last(scaled)}
    v = versions("cpu")
    save_file(tensors, out_path, {k: v[k] for k in ("profile", "torch", "diffusers")})


if __name__ == "__main__":
    main(*sys.argv[1:])
