#!/usr/bin/env python3
"""Writes the golden files of SANA-Video's transformer: tests/golden/sdit_{f32,bf16}.safetensors.

    python3 scripts/dump_golden_sana.py tests/golden        # reads tests/golden/tiny-sana.json, the config

No weights and no inputs are stored: both sides draw them from a seed (tests/golden_sana.h does it in C), tensor by tensor in
the order of their names. Calibrated as the tiny checkpoints are: logits of the cross attention of standard deviation 3 to 5,
gates and scales of order one. Stages are the ones that the C code shows to its tap; in the bf16 file NAME@room is the
distance between the stage and its f32 twin from the same inputs (one number: the whole twin would be twice the stage).

Easy to get wrong: the rotary tables stay f32 in a model that is loaded in bf16, and do not when it is cast afterwards.
"""
import argparse
import copy
import json
import os
import tempfile

import torch
from safetensors.torch import save_file

from dump_golden import DTYPES, as_f32
from make_tiny_flux import Logits
from refprofile import rounding, versions

SEED, SEED_INPUTS = 20260301, 20260302
FRAMES, ROWS, COLS, TEXT, REAL, TIME = 3, 2, 3, 7, 5, 537


def draw(name, shape, g):
    """The rule of tests/golden_sana.h, in f32 as there."""
    n = torch.randn(shape, generator=g)
    if name.endswith("attn2.norm_q.weight"):
        return n * 1.2 + 4.0
    if name.endswith(("norm_q.weight", "norm_k.weight", "norm.weight")):
        return n * 0.3 + 1.0
    if name.endswith("scale_shift_table"):
        return n * 0.7
    if name.endswith("bias"):
        return n * 0.2
    return n * (1.0 / (n[0].numel() ** 0.5))


def make(config):
    from diffusers import SanaVideoTransformer3DModel
    dit = SanaVideoTransformer3DModel(**{k: v for k, v in config.items() if not k.startswith("_")}).eval()
    g = torch.Generator().manual_seed(SEED)
    names = dit.state_dict()
    dit.load_state_dict({k: draw(k, names[k].shape, g) for k in sorted(names)})
    return dit


def inputs(config):
    g = torch.Generator().manual_seed(SEED_INPUTS)
    latents = torch.randn(config["in_channels"], FRAMES, 2 * ROWS, 2 * COLS, generator=g)
    return latents, torch.randn(TEXT, config["caption_channels"], generator=g) * 3.0


def stages(dit, config):
    """-> {stage: tensor}, {stage: its f32 twin}."""
    dtype, seen = next(dit.parameters()).dtype, {}
    latents, embeds = inputs(config)

    def keep(name):
        def hook(module, args, kwargs, out):
            seen[name] = (copy.deepcopy(args), copy.deepcopy(kwargs), copy.deepcopy(out))
        return hook
    mods = {"x": dit.patch_embedding, "time": dit.time_embed, "text": dit.caption_projection, "norm": dit.caption_norm,
            "last": dit.norm_out, **{i: b for i, b in enumerate(dit.transformer_blocks)}}
    hooks = [m.register_forward_hook(keep(n), with_kwargs=True) for n, m in mods.items()]
    with torch.no_grad(), rounding(dtype, "cpu"):
        out = dit(latents.to(dtype)[None], encoder_hidden_states=embeds.to(dtype)[None],
                  encoder_attention_mask=(torch.arange(TEXT) < REAL).long()[None], timestep=torch.tensor([TIME]),
                  return_dict=False)[0]
    for h in hooks:
        h.remove()
    twin = copy.deepcopy(dit).float()

    def again(name, module):
        args, kwargs, _ = seen[name]
        return module(*as_f32(args), **as_f32({k: torch.float32 if v is dtype else v for k, v in kwargs.items()}))

    def tokens(x):
        return x[0].flatten(1).t()

    def pictures(x):
        p = config["patch_size"][1]
        x = x[0].view(FRAMES, ROWS, COLS, p, p, config["out_channels"])
        return x.permute(5, 0, 1, 3, 2, 4).reshape(config["out_channels"], FRAMES, ROWS * p, COLS * p)
    got = {"sana.time": seen["time"][2][0][0], "sana.embedded": seen["time"][2][1][0], "sana.caption": seen["norm"][2][0],
           "sana.x_embedder": tokens(seen["x"][2]), "sana.out": out[0]}
    with torch.no_grad():
        time, embedded = again("time", twin.time_embed)
        want = {"sana.time": time[0], "sana.embedded": embedded[0],
                "sana.caption": twin.caption_norm(again("text", twin.caption_projection))[0],
                "sana.x_embedder": tokens(again("x", twin.patch_embedding)),
                "sana.out": pictures(twin.proj_out(again("last", twin.norm_out)))}
        for i, b in enumerate(twin.transformer_blocks):
            got[f"sana.block.{i}"], want[f"sana.block.{i}"] = seen[i][2][0], again(i, b)[0]
    return {k: v.contiguous() for k, v in got.items()}, want


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("out")
    a = p.parse_args()
    torch.set_num_threads(1)
    with open(os.path.join(a.out, "tiny-sana.json")) as f:
        config = json.load(f)
    dit = make(config)
    with Logits() as log:
        f32, _ = stages(dit, config)
    print("logits:", *(f"{v:.2f}" for v in log.std))
    assert all(3 <= v <= 5 for v in log.std)
    for i, b in enumerate(dit.transformer_blocks):
        mod = (b.scale_shift_table + f32["sana.time"].view(6, -1)).square().mean(1).sqrt()
        print(f"block {i}: rms of shift, scale, gate:", *(f"{v:.2f}" for v in mod))
        assert all(0.4 <= v <= 2 for v in mod)
    meta = {k: str(v) for k, v in versions("cpu").items()}
    kept = {k: f32[k] for k in ("sana.out",)}
    save_file(kept, os.path.join(a.out, "sdit_f32.safetensors"), {"torch": meta["torch"], "diffusers": meta["diffusers"]})
    with tempfile.TemporaryDirectory() as tmp:
        dit.save_pretrained(tmp)
        half = type(dit).from_pretrained(tmp, torch_dtype=DTYPES["bf16"]).eval()
    assert half.rope.freqs_cos.dtype == torch.float32 and {p.dtype for p in half.parameters()} == {torch.bfloat16}
    bf16, twin = stages(half, config)
    for k in sorted(bf16):
        room = (twin[k] - bf16[k].float()).norm()
        print(f"{k}: {tuple(bf16[k].shape)}, rms {bf16[k].float().square().mean().sqrt():.3f}, room {room:.4f}")
        bf16[k + "@room"] = room.reshape(1)
    save_file(bf16, os.path.join(a.out, "sdit_bf16.safetensors"), meta)


if __name__ == "__main__":
    main()
