#!/usr/bin/env python3
"""Writes the golden files of LTX-2's transformer, tests/golden/ltx2dit_CASE_{f32,bf16}.safetensors.

    python3 scripts/dump_golden_ltx2_dit.py tests/golden          # reads tests/golden/tiny-ltx2.json, the config of 2.0

No weights and no inputs are stored: both sides draw them from a seed (tests/golden_ltx2_dit.h does it in C), tensor by tensor in
the order of their names. Calibrated as the tiny checkpoints are: logits of standard deviation 3 to 5, gates and scales of order
one. Cases are the passes of a step: the batch of two prompts, STG, isolated streams, tokens with times of their own; of 2.0 and
of 2.3. Stages are the ones that the C code shows to its tap; in the bf16 files NAME@room is the distance between the stage and
its f32 twin from the same inputs.

Easy to get wrong: PyTorch on CUDA divides by a host number by multiplying with its reciprocal, and positions of thousands of
radians show it, so it is done here too; a scale is one f32 product, as in C.
"""
import argparse
import copy
import json
import os

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from reference import DTYPES, as_f32, save
from make_tiny_flux import Logits
from refprofile import rounding, versions

SEED, SEED_INPUTS = 20260401, 20260402
FRAMES, ROWS, COLS, AUDIO, TEXT, FPS = 2, 2, 3, 5, 7, 24.0
TIMES = {"video": 537.25, "audio": 312.5, "given": 41.125}   # of the streams; of the first frame where it has its own
NEWER = {"gated_attn": True, "cross_attn_mod": True, "audio_gated_attn": True, "audio_cross_attn_mod": True,
         "use_prompt_embeddings": False, "perturbed_attn": True}
CASES = {"20": {}, "23": dict(newer=True), "20given": dict(given=True), "23given": dict(newer=True, given=True, cross=True),
         "23stg": dict(newer=True, only=True, stg=[1]), "23apart": dict(newer=True, only=True, apart=True)}
BF16 = ("20", "23", "23stg")


class Reciprocal(TorchFunctionMode):
    """f32 / number as PyTorch on CUDA has it."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func in (torch.Tensor.__truediv__, torch.Tensor.div, torch.div) and isinstance(args[1], (int, float)) \
                and args[0].dtype == torch.float32:
            return args[0] * (np.float32(1) / np.float32(args[1])).item()
        return func(*args, **(kwargs or {}))


def draw(name, shape, g):
    """The rule of tests/golden_ltx2_dit.h, in f32 as there."""
    n = torch.randn(shape, generator=g)
    if name.endswith("norm_q.weight"):
        return n * 1.2 + 4.0
    if name.endswith("norm_k.weight"):
        return n * 0.3 + 1.0
    if name.endswith("scale_shift_table"):
        return n * 0.7
    if name.endswith("bias"):
        return n * 0.2
    if name.endswith(".linear.weight"):
        return n * (2.5 / (n[0].numel() ** 0.5))
    return n * (1.0 / (n[0].numel() ** 0.5))


def make(config):
    from diffusers import LTX2VideoTransformer3DModel
    dit = LTX2VideoTransformer3DModel(**{k: v for k, v in config.items() if not k.startswith("_")}).eval()
    g = torch.Generator().manual_seed(SEED)
    names = dit.state_dict()
    dit.load_state_dict({k: draw(k, names[k].shape, g) for k in sorted(names)})
    return dit


def inputs(dit):
    g = torch.Generator().manual_seed(SEED_INPUTS)
    c = dit.config
    wide = [c.caption_channels] * 2 if c.use_prompt_embeddings else [c.cross_attention_dim, c.audio_cross_attention_dim]
    latents = [torch.randn(n, k, generator=g) for n, k in ((FRAMES * ROWS * COLS, c.in_channels), (AUDIO, c.audio_in_channels))]
    return latents, [torch.randn(2, TEXT, w, generator=g) * 3.0 for w in wide]


def run(dit, dtype, newer=False, given=False, cross=False, only=False, stg=None, apart=False):
    """-> velocities, what the modules saw and gave by their names. Two prompts, or the second one alone."""
    (video, audio), contexts = inputs(dit)
    n = 1 if only else 2
    contexts = [t[2 - n:].to(dtype) for t in contexts]
    times = {k: torch.full((n,), v) for k, v in TIMES.items()}
    tokens = times["video"]
    if given:
        tokens = tokens[:, None].repeat(1, video.shape[0])
        tokens[:, :ROWS * COLS] = TIMES["given"]
    seen = {}

    def keep(name):
        def hook(module, args, kwargs, out):
            seen[name] = (copy.deepcopy(args), copy.deepcopy(kwargs), copy.deepcopy(out))
        return hook
    hooks = [m.register_forward_hook(keep(k), with_kwargs=True) for k, m in dit.named_modules()
             if k.count(".") == (1 if k.startswith("transformer_blocks") else 0) and k]
    with torch.no_grad(), Reciprocal(), rounding(dtype, "cpu"):
        out = dit(video.to(dtype).expand(n, -1, -1).contiguous(), audio.to(dtype).expand(n, -1, -1).contiguous(), *contexts,
                  timestep=tokens, audio_timestep=times["audio"], sigma=times["video"], audio_sigma=times["audio"],
                  encoder_attention_mask=torch.ones(n, TEXT), audio_encoder_attention_mask=torch.ones(n, TEXT),
                  num_frames=FRAMES, height=ROWS, width=COLS, fps=FPS, audio_num_frames=AUDIO, isolate_modalities=apart,
                  spatio_temporal_guidance_blocks=stg, use_cross_timestep=cross, return_dict=False)
    for h in hooks:
        h.remove()
    return out, seen


def stages(dit, dtype, out, seen):
    """-> {stage: tensor}, {stage: its f32 twin}."""
    twin = copy.deepcopy(dit).float()

    def again(name):
        args, kwargs, _ = seen[name]
        kwargs = {k: torch.float32 if v is dtype else v for k, v in kwargs.items()}
        return twin.get_submodule(name)(*as_f32(args), **as_f32(kwargs))
    got, want = {}, {}
    for n, (stream, prefix) in enumerate((("video", ""), ("audio", "audio_"))):
        def put(stage, a, b):
            got[f"ltx2.{stage}.{stream}"], want[f"ltx2.{stage}.{stream}"] = a.flatten(0, -2), b.flatten(0, -2)

        def last(model, embedded, h):
            table = model.get_parameter(prefix + "scale_shift_table")
            values = table[None, None] + embedded.view(h.shape[0], -1, 1, h.shape[2])
            return model.get_submodule(prefix + "norm_out")(h) * (1 + values[:, :, 1]) + values[:, :, 0]
        time, embed, norm = prefix + "time_embed", prefix + "proj_in", prefix + "norm_out"
        with torch.no_grad():
            put("time", seen[time][2][0][:1], again(time)[0][:1])
            put("x_embedder", seen[embed][2], again(embed))
            if dit.config.use_prompt_embeddings:
                put("caption", seen[prefix + "caption_projection"][2], again(prefix + "caption_projection"))
            for i in range(len(dit.transformer_blocks)):
                name = f"transformer_blocks.{i}"
                put(f"block.{i}", seen[name][2][n], again(name)[n])
            put("norm", seen[prefix + "proj_out"][0][0], last(twin, seen[time][2][1].float(), seen[norm][0][0].float()))
            put("out", out[n], again(prefix + "proj_out"))
    return {k: v.contiguous() for k, v in got.items()}, want


def case(folder, config, name, args, meta):
    dit = make({**config, **(NEWER if args.get("newer") else {})})
    with Logits() as log:
        out, seen = run(dit, torch.float32, **args)
    print(name, "logits:", *(f"{v:.2f}" for v in log.std))
    assert all(2.5 <= v <= 5.5 for v in log.std)
    f32, _ = stages(dit, torch.float32, out, seen)
    save(f"{folder}/ltx2dit_{name}_f32.safetensors", {k: f32[k] for k in ("ltx2.out.video", "ltx2.out.audio")}, meta)
    if name not in BF16:
        return
    half = copy.deepcopy(dit).to(torch.bfloat16)
    out, seen = run(half, torch.bfloat16, **args)
    bf16, twin = stages(half, torch.bfloat16, out, seen)
    for k in sorted(bf16):
        room = (twin[k] - bf16[k].float()).norm()
        print(f"{name} {k}: {tuple(bf16[k].shape)}, rms {bf16[k].float().square().mean().sqrt():.3f}, room {room:.4f}")
        bf16[k + "@room"] = room.reshape(1)
    if args.get("stg"):  # the rest is the other cases'
        bf16 = {k: v for k, v in bf16.items() if ".block.0" not in k and ".time" not in k}
    save(f"{folder}/ltx2dit_{name}_bf16.safetensors", bf16, meta)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("out")
    a = p.parse_args()
    torch.set_num_threads(1)
    with open(os.path.join(a.out, "tiny-ltx2.json")) as f:
        config = json.load(f)
    meta = {k: str(v) for k, v in versions("cpu").items()}
    for name, args in CASES.items():
        case(a.out, config, name, args, meta)


if __name__ == "__main__":
    main()
