#!/usr/bin/env python3
"""Goldens of LTX-2's video autoencoder and of its latents' upsampler, diffusers' AutoencoderKLLTX2Video and
LTX2LatentUpsamplerModel, on weights that both sides draw, so that none are stored.

    python3 scripts/dump_golden_ltx2_vae.py tests/golden/tiny-ltx2-vae tests/golden/ltx2_vae.safetensors

The folder holds a config for 2.0's forms ("20"), for 2.3's ("23"), for what the class has beside ("other"), and for the
upsampler. A component's tensors are drawn by one generator in the order of their names and scaled by the rules of `drawn`, as
tests/golden_ltx2_vae.h draws them too. Stored are samples of the results, STEP-wise, and for bf16 how far f32 results are from
bf16 ones; V is a config's name:

  V.frames.N   F32 [frames, n]  samples of each frame of N latent frames, run through in f32
  V.latents    F32              the mode of two latent frames, encoded in f32, [F,Y,X,C]; V.image: of the first frame alone
  V.bf16       BF16 [S, n]      samples of each stage of decoder and encoder, in their order; what follows a stage is fed with
  V.room       F32 [S]          drawn values, not with its result; |f32 - bf16| over the samples. Not of "other"
  scaled       BF16             latents de-normalised as for the decoder; normal, normal_bf16: latents normalised
  up.latents, up.bf16, up.room  the same of the upsampler, plain.latents: of the one with 2.3's names

Easy to get wrong: a norm's stage is the window that the next convolution reads, with copied frames and mirrored borders.
"""
import json
import sys

import numpy as np
import torch
from safetensors.torch import save_file

from dump_golden_wan import first, last, normal, outlier, samples, stage_input
from refprofile import rounding, versions

SAMPLES, STAGE_SAMPLES, LATENT, SIZE, SEED = 24, 16, 3, (2, 3), 20
BF16 = torch.bfloat16
FORMS = ("20", "23", "other")


def f32(v):
    return np.float32(v).item()


def scaled(name, r):
    if name == "latents_mean":
        return r * f32(0.7)
    if name == "latents_std":
        return r.abs() + f32(0.5)
    if name.endswith(".bias"):
        return r * f32(0.2)
    if r.dim() == 1:
        return (1.0 + r * f32(0.3)) * outlier(r.shape[0], 3.0)
    return r * f32(1.3 / float(np.prod(r.shape[1:])) ** 0.5)


def drawn(model, dtype):
    g = torch.Generator("cpu").manual_seed(SEED)
    shapes = {k: tuple(v.shape) for k, v in model.state_dict().items()}
    model.load_state_dict({k: scaled(k, torch.randn(shapes[k], generator=g)) for k in sorted(shapes)})
    return model.to(dtype).eval()


def vae_of(config, dtype):
    from diffusers import AutoencoderKLLTX2Video
    return drawn(AutoencoderKLLTX2Video(**{k: v for k, v in config.items() if k[0] != "_"}), dtype)


def upsampler_of(config, dtype, **more):
    from diffusers.pipelines.ltx2.latent_upsampler import LTX2LatentUpsamplerModel
    return drawn(LTX2LatentUpsamplerModel(**{k: v for k, v in config.items() if k[0] != "_"}, **more), dtype)


def window(t, causal, mirror):
    """[F,Y,X,C] -> what a convolution reads of it"""
    before, after = (2, 0) if causal else (1, 1)
    t = torch.cat([t[:1]] * before + [t] + [t[-1:]] * after)
    if mirror:
        t = torch.cat([t[:, 1:2], t, t[:, -2:-1]], 1)
        t = torch.cat([t[:, :, 1:2], t, t[:, :, -2:-1]], 2)
    return t


def vae_stages(vae):
    """-> [(name, module, how its result is seen)]"""
    c = vae.config
    rows = []
    for side, tag, causal, mode in ((vae.decoder, "", c.decoder_causal, c.decoder_spatial_padding_mode),
                                    (vae.encoder, "enc.", c.encoder_causal, c.encoder_spatial_padding_mode)):
        def seen(t, causal=causal, mode=mode):
            return window(last(t), causal, mode == "reflect")
        rows += [(f"vae.{tag}conv_in", side.conv_in, last), (f"vae.{tag}norm_out", side.conv_act, seen),
                 (f"vae.{tag}moments" if tag else "vae.frames", side.conv_out, last)]
        rows += [("vae.norm", m.nonlinearity, seen) for m in side.modules() if type(m).__name__ == "LTX2VideoResnetBlock3d"]
    rows += [(f"vae.up.{i}", b.upsamplers[0], last) for i, b in enumerate(vae.decoder.up_blocks)]
    return rows + [(f"vae.enc.down.{i}", b.downsamplers[0], last) for i, b in enumerate(vae.encoder.down_blocks)]


def upsampler_stages(u):
    blocks = [("upsample.block", m, last) for m in (*u.res_blocks, *u.post_upsample_res_blocks)]
    return blocks + [("upsample.initial", u.initial_activation, last), ("upsample.latents", u.final_conv, last),
                     ("upsample.shuffle", u.upsampler, lambda t: t.permute(0, 2, 3, 1).contiguous())]


def run(model, stages, call, feed):
    """-> [(name.count, result)] in order. feed: what follows a stage sees drawn values instead of its result."""
    out, count = [], {}

    def hook(name, see):
        def go(module, args, result):
            key = f"{name}.{count.setdefault(name, 0)}"
            count[name] += 1
            out.append((key, see(result)))
            if not feed or name in ("vae.frames", "vae.enc.moments", "upsample.latents"):
                return None
            if result.dim() == 4:
                b, c, h, w = result.shape
                return stage_input(key, (b, h, w, c)).permute(0, 3, 1, 2).contiguous().to(result.dtype)
            return first(stage_input(key, last(result).shape)).to(result.dtype)
        return go
    hooks = [m.register_forward_hook(hook(n, see)) for n, m, see in stages]
    with torch.no_grad(), rounding(next(model.parameters()).dtype, "cpu"):
        call()
    for h in hooks:
        h.remove()
    return out


def compared(name, half, twin, stages, calls, tensors):
    kept, room = [], []
    for go, value in calls:
        a = run(half, stages(half), lambda: go(half)(value), True)
        b = run(twin, stages(twin), lambda: go(twin)(value.float()), True)
        assert [k for k, _ in a] == [k for k, _ in b]
        for (k, x), (_, y) in zip(a, b):
            kept.append(samples(x, STAGE_SAMPLES))
            f = samples(y, STAGE_SAMPLES)
            room.append((f - kept[-1].float()).norm())
            print(f"{name} {k:20} {tuple(x.shape)} std {y.std():.3g} room {room[-1] / f.norm():.2g}")
    assert all(len(k) == STAGE_SAMPLES for k in kept) and min(room) > 0
    tensors[f"{name}.bf16"], tensors[f"{name}.room"] = torch.stack(kept), torch.stack(room)


def of_form(name, config, tensors):
    from diffusers.pipelines.ltx2.pipeline_ltx2 import LTX2Pipeline
    vae = vae_of(config, torch.float32)
    mean, std = vae.latents_mean, vae.latents_std
    z = first(normal("z", (LATENT, *SIZE, config["latent_channels"])))
    with torch.no_grad():
        for n in range(1, LATENT + 1):
            latents = LTX2Pipeline._denormalize_latents(z[:, :, :n], mean, std)
            frames = last(vae.decode(latents).sample)
            tensors[f"{name}.frames.{n}"] = torch.stack([samples(f, SAMPLES) for f in frames])
            exact = last(vae.double().decode(latents.double()).sample)
            vae = vae.float()
            print(f"{name} {n}: {tuple(frames.shape)} rms {frames.square().mean().sqrt():.3g}, f32 against f64 "
                  f"{((frames - exact).abs().max() / exact.abs().max()):.2g}")
        each = (frames.shape[0] - 1) // (LATENT - 1)
        video = first(stage_input("video", (1 + each, *frames.shape[1:])) * 0.25)
        tensors[f"{name}.latents"] = last(vae.encode(video).latent_dist.mode())
        tensors[f"{name}.image"] = last(vae.encode(video[:, :, :1]).latent_dist.mode())
    if name == "other":
        return
    half, twin = vae_of(config, BF16), vae_of(config, BF16).float()
    with rounding(BF16, "cpu"):
        latents = LTX2Pipeline._denormalize_latents(z.to(BF16), half.latents_mean, half.latents_std)
        if name == "20":
            tensors["scaled"] = last(latents)
            tensors["normal"] = last(LTX2Pipeline._normalize_latents(z, half.latents_mean, half.latents_std))
            tensors["normal_bf16"] = last(LTX2Pipeline._normalize_latents(z.to(BF16), half.latents_mean, half.latents_std))
    calls = ((lambda m: m.decode, latents[:, :, :2]), (lambda m: m.encode, video.to(BF16)))
    compared(name, half, twin, vae_stages, calls, tensors)


def of_upsampler(config, tensors):
    z = first(normal("up", (LATENT, *SIZE, config["in_channels"])))
    for name, rational in (("up", True), ("plain", False)):
        model = upsampler_of({**config, "use_rational_resampler": rational}, torch.float32)
        with torch.no_grad():
            tensors[f"{name}.latents"] = samples(last(model(z)), 8 * SAMPLES)
    half, twin = upsampler_of(config, BF16), upsampler_of(config, BF16).float()
    compared("up", half, twin, upsampler_stages, ((lambda m: m, z.to(BF16)),), tensors)


def main(folder, out_path):
    tensors = {}
    for name in FORMS:
        of_form(name, json.load(open(f"{folder}/{name}.json")), tensors)
    of_upsampler(json.load(open(f"{folder}/upsampler.json")), tensors)
    v = versions("cpu")
    save_file({k: t.contiguous() for k, t in tensors.items()}, out_path, {k: v[k] for k in ("profile", "torch", "diffusers")})


if __name__ == "__main__":
    main(*sys.argv[1:])
