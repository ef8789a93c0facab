#!/usr/bin/env python3
"""Walks two dump folders stage by stage and says how many elements differ, and where first.

    python3 scripts/dump_golden.py MODEL REF -p TEXT --device cuda --dtype bf16 ...
    ./ditto generate -m MODEL -p TEXT --device cuda --dtype bf16 --dump OURS ...
    python3 scripts/parity.py REF OURS

Prints one line a stage in pipeline order: elements, how many differ, the largest difference over the reference's
largest magnitude. Exit 0 when every stage is equal in bits, 1 when one differs, 2 when a stage is missing.
Not a judge of quality: ditto compare is.
"""
import os
import sys

import torch
from safetensors import safe_open

ORDER = ["ids_1", "ids_2", "pooled", "prompt_embeds", "negative_pooled", "negative_prompt_embeds", "image", "image_noise",
         "image_latents", "noise", "sigmas", "timesteps"]


def load(folder, name):
    path = os.path.join(folder, name + ".safetensors")
    if not os.path.exists(path):
        return None
    with safe_open(path, "pt") as f:
        return f.get_tensor(name)


def stage_names(folder):
    names = [f[:-12] for f in os.listdir(folder) if f.endswith(".safetensors")]
    steps = sorted({n.rsplit("_", 1)[1] for n in names if n.startswith("velocity_")})
    walk = ORDER + [f"{kind}_{s}" for s in steps for kind in ("velocity", "latents")] + ["latents", "pixels"]
    return [n for n in walk if n in names]


def main():
    ref, ours = sys.argv[1:3]
    first, missing = None, 0
    print(f"{'stage':24} {'elements':>10} {'differ':>10} {'share':>9} {'max rel':>10}")
    for name in stage_names(ref):
        a, b = load(ref, name), load(ours, name)
        if b is None:
            missing += 1
            print(f"{name:24} missing in {ours}")
            continue
        x, y = a.double().flatten(), b.double().flatten()
        if x.numel() != y.numel():
            missing += 1
            print(f"{name:24} has {y.numel()} elements, expected {x.numel()}")
            continue
        differ = int(((x != y) & ~(x.isnan() & y.isnan())).sum())
        if differ and first is None:
            first = name
        print(f"{name:24} {x.numel():10} {differ:10} {differ / x.numel():9.6f} "
              f"{((x - y).abs().max() / x.abs().max().clamp_min(1e-30)).item():10.3e}")
    print("equal in every bit" if first is None and not missing else f"first stage that differs: {first}")
    sys.exit(2 if missing else first is not None)


if __name__ == "__main__":
    main()
