#!/usr/bin/env python3
"""Golden inputs and outputs of every elementwise and norm op in bf16 (tests/golden/ops/NAME.safetensors).

Tensors are named like the fields of the op's args struct; scalars stand in the metadata. Expressions are the
libraries' own, run in bf16; where a CPU kernel differs from CUDA's (norm and softmax reduction orders, division by
a scalar, dt) the CUDA formula is evaluated instead and the metadata's `formula` says so. Unary functions come
from a GPU recording when one is given (scripts/record_unary.py), else from f32 on the CPU.

Easy to get wrong: `unary` in the metadata says which; a committed set must come from the recording.

    python3 scripts/dump_ops.py OUT_DIR [--unary RECORDING_DIR]
"""
import argparse
import json
import math
import os

import numpy as np
import torch
import torch.nn.functional as F

import cuda_order
import pack_unary
from reference import save
from refprofile import BF16, rounding, versions

TABLES = {}
ROWS = (19, 72)


def table(name, x, cpu):
    if name in TABLES:
        bits = x.view(torch.int16).to(torch.int32) & 0xffff
        return torch.from_numpy(TABLES[name].astype(np.int16))[bits].view(BF16)
    return cpu(x.float()).to(BF16)


def silu(x):
    return table("silu", x, F.silu)


def gelu_tanh(x):
    return table("gelu_tanh", x, lambda v: cancelling("gelu_tanh", v))


def gelu_erf(x):
    return table("gelu_erf", x, lambda v: cancelling("gelu_erf", v))


def cancelling(name, v):
    """GELU by the CUDA kernel's f32 steps (vectorised CPU code cancels differently), tanh and erf correctly rounded."""
    return torch.tensor([float(pack_unary.gelu(name, x, 0.0)) for x in v.numpy().ravel()]).float().view(v.shape)


def quick_gelu(x):
    return x * table("sigmoid", 1.702 * x, torch.sigmoid)


def gelu_new(x):
    cube = table("pow3", x, None) if "pow3" in TABLES else (x * x) * x
    return 0.5 * x * (1.0 + table("tanh", 0.7978845608028654 * (x + 0.044715 * cube), torch.tanh))


def rnd(g, *shape, scale=1.0):
    """Normal values with a few specials in every row: zeros of both signs, tiny, large, outlier."""
    x = torch.randn(*shape, generator=g) * scale
    flat = x.view(-1, shape[-1])
    flat[0, :4] = torch.tensor([0.0, -0.0, 1e-39, -1e-38])
    flat[-1, -3:] = torch.tensor([60.0, -45.0, 1e-20])
    return x.to(BF16)


def from_np(a):
    return torch.from_numpy(np.ascontiguousarray(a)).to(BF16)


def f32(t):
    return t.float().numpy()


def ops(g):
    """-> {name: (tensors, metadata)}"""
    out = {}
    a, b, c = rnd(g, *ROWS), rnd(g, *ROWS), rnd(g, *ROWS)
    row = [torch.randn(72, generator=g).to(BF16) for _ in range(6)]
    wide = rnd(g, 17, 132, scale=3.0)
    for kind, fn in (("silu", silu), ("gelu_tanh", gelu_tanh), ("gelu_erf", gelu_erf), ("gelu_new", gelu_new),
                     ("quick_gelu", quick_gelu)):
        out["act_" + kind] = ({"x": wide, "y": fn(wide)}, {"kind": kind})
    out["act_mul_gelu_new"] = ({"a": a, "b": b, "y": gelu_new(a) * b}, {"kind": "gelu_new"})
    out["act_mul_silu"] = ({"a": a, "b": b, "y": silu(a) * b}, {"kind": "silu"})
    out["add"] = ({"a": a, "b": b, "y": a + b}, {})
    out["add_row"] = ({"a": a, "b": row[0], "y": a + row[0]}, {})
    out["residual_gate"] = ({"residual": a, "x": b, "gate": row[0], "y": a + row[0] * b}, {})
    out["residual_gate_full"] = ({"residual": a, "x": b, "gate": c, "y": a + c * b}, {})

    order = {"formula": "CUDA reduction order, rsqrt correctly rounded"}
    for d, scale in ((72, 1.0), (516, 4.0)):
        x = rnd(g, 19, d, scale=scale)
        x[3] += 30.0                             # large mean
        w, bias = (1 + 0.3 * torch.randn(d, generator=g)).to(BF16), (0.2 * torch.randn(d, generator=g)).to(BF16)
        s, h = (0.5 * torch.randn(d, generator=g)).to(BF16), (0.5 * torch.randn(d, generator=g)).to(BF16)
        n = from_np(cuda_order.layer_norm(f32(x), None, None, 1e-6))
        out[f"ln_modulate_{d}"] = ({"x": x, "scale": s, "shift": h, "y": n * (1 + s) + h}, {"eps": 1e-6, **order})
        y = cuda_order.layer_norm(f32(x), f32(w), f32(bias), 1e-5)
        out[f"layernorm_{d}"] = ({"x": x, "w": w, "b": bias, "y": from_np(y)}, {"eps": 1e-5, **order})
        out[f"rmsnorm_once_{d}"] = ({"x": x, "w": w, "y": from_np(cuda_order.rms_norm(f32(x), f32(w), 1e-6))},
                                    {"eps": 1e-6, "form": "once", **order})
        out[f"rmsnorm_twice_{d}"] = ({"x": x, "w": w, "y": w * from_np(cuda_order.mean_square_norm(f32(x), 1e-6))},
                                     {"eps": 1e-6, "form": "twice", **order})

    from diffusers.models.embeddings import apply_rotary_emb
    from diffusers.models.transformers.transformer_flux import FluxPosEmbed
    ids = torch.zeros(19, 3)
    ids[7:, 1], ids[7:, 2] = torch.arange(12) // 4, torch.arange(12) % 4
    cos, sin = FluxPosEmbed(10000, [2, 6, 8])(ids)
    q, k = rnd(g, 19, 3, 16, scale=2.0), rnd(g, 19, 3, 16, scale=2.0)
    w = [(2 * (1 + 0.3 * torch.randn(16, generator=g))).to(BF16) for _ in range(2)]
    t = {"q": q, "k": k, "wq": w[0], "wk": w[1], "cos": cos[:, ::2], "sin": sin[:, ::2]}
    for name, x, wx in (("yq", q, w[0]), ("yk", k, w[1])):
        n = from_np(cuda_order.rms_norm(f32(x).reshape(-1, 16), f32(wx), 1e-6)).view(1, 19, 3, 16)
        t[name] = apply_rotary_emb(n, (cos, sin), sequence_dim=1)[0]
    out["qk_norm_rope_head"] = (t, {"eps": 1e-6, "rope": "interleaved", **order})

    n = 45                                       # q = scores, k = v = identity: the op returns its softmax rows
    eye, scores, bias = torch.eye(n, dtype=BF16), rnd(g, n, n, scale=4.0), rnd(g, n, n, scale=1.5)
    def soft(s, causal=False):
        v = f32(s)
        if causal:
            v = np.where(np.triu(np.ones((n, n), bool), 1), F32_MIN, v)
        return from_np(cuda_order.softmax(v))
    base = {"q": scores, "k": eye, "v": eye}
    out["softmax"] = ({**base, "bias": bias, "o": soft(scores + bias)}, {"scale": 1.0, "mask": "none", **order})
    out["softmax_causal"] = ({**base, "o": soft(scores * 0.125, True)}, {"scale": 0.125, "mask": "causal", **order})

    # exp, cos and sin of an f32 correctly rounded: angles up to 3e4 make a last-bit difference of exp visible.
    times = torch.tensor([1000.0, 752.0, 500.0, 250.0, 104.5, 0.0, 3504.0, 29952.0, 988.0, 1.0])
    power = -math.log(10000) * torch.arange(0, 128, dtype=torch.float32) / 128
    angle = times[:, None] * power.double().exp().float()[None]
    y = torch.cat([angle.double().cos().float(), angle.double().sin().float()], -1).to(BF16)
    out["time_embed"] = ({"t": times, "y": y}, {"max_period": 10000, "formula": "exp, cos, sin correctly rounded"})

    scale = torch.tensor([4.5, 2.5, 1.1])
    y = torch.stack([a + s.item() * (b - a) for s in scale])
    out["cfg_combine"] = ({"neg": a, "pos": b, "scale": scale, "y": y}, {})

    from diffusers import FlowMatchEulerDiscreteScheduler
    dts, ys = [], []
    for shift in (1.0, 3.0):
        s = FlowMatchEulerDiscreteScheduler(shift=shift)
        s.set_timesteps(5)
        for i in range(5):
            with rounding(BF16, "cpu"):
                ys.append(s.step(b, s.timesteps[i], a, return_dict=False)[0])
            dts.append(s.sigmas[i + 1] - s.sigmas[i])
    out["euler_step"] = ({"x": a, "v": b, "dt": torch.stack(dts), "y": torch.stack(ys)},
                         {"formula": "dt rounded to bf16 (a CUDA scalar tensor does not promote)"})

    with rounding(BF16, "cpu"):
        y = (a / 0.3611) + 0.1159
    out["affine"] = ({"x": a, "y": y}, {"mul": repr(float(np.float32(1) / np.float32(0.3611))),
                                        "add": repr(float(np.float32(0.1159))),
                                        "formula": "division by a scalar = product with the f32 reciprocal"})

    from diffusers.image_processor import VaeImageProcessor
    bits = torch.arange(0x3000, 0x4001, dtype=torch.int32)
    x = torch.cat([bits, bits + 0x8000, torch.tensor([0, 0x8000])]).to(torch.int16)
    x = torch.cat([x, x[-1:].repeat(-len(x) % 6)]).view(BF16).view(2, -1, 3)
    y = VaeImageProcessor().postprocess(x.permute(2, 0, 1)[None], output_type="pil")[0]
    out["to_rgb8"] = ({"x": x, "y": torch.from_numpy(np.array(y))}, {})

    from diffusers import FluxPipeline
    lat = rnd(g, 6, 10, 14)
    packed = FluxPipeline._pack_latents(lat[None], 1, 6, 10, 14)
    out["pack"] = ({"x": lat, "y": packed[0]}, {})
    back = FluxPipeline._unpack_latents(packed, 80, 112, 8)[0]
    out["unpack"] = ({"x": packed[0], "y": back.permute(1, 2, 0)}, {"layout": "y [Y,X,C]"})

    from transformers.models.t5.modeling_t5 import T5Attention
    span = torch.arange(301)
    bucket = T5Attention._relative_position_bucket(span[None, :] - span[:, None])
    tab = torch.randn(32, 5, generator=g).to(BF16)
    pick = torch.tensor([0, 150, 300])           # three query rows of 301 keys: every distance, both signs
    out["rel_bias"] = ({"table": tab, "rows": pick.to(torch.int32), "y": tab[bucket[pick]].permute(2, 0, 1)},
                       {"max_distance": 128, "positions": 301})

    x = (torch.randn(9, 11, 24, generator=g) * 3 + 1).to(BF16)
    w, bias = (1 + 0.3 * torch.randn(24, generator=g)).to(BF16), (0.2 * torch.randn(24, generator=g)).to(BF16)
    with rounding(BF16, "cpu"):
        n = F.group_norm(x.permute(2, 0, 1)[None], 8, w, bias, 1e-6)[0].permute(1, 2, 0)
    out["groupnorm"] = ({"x": x, "w": w, "b": bias, "y": n}, {"eps": 1e-6, "groups": 8, "formula": "sums in f64, statistics rounded to bf16"})
    out["groupnorm_silu"] = ({"x": x, "w": w, "b": bias, "y": silu(n.contiguous())}, {"eps": 1e-6, "groups": 8})
    return out


F32_MIN = np.finfo(np.float32).min


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("out")
    p.add_argument("--unary")
    args = p.parse_args()
    meta = versions("cpu")
    meta["unary"] = "torch cpu, f32 rounded to bf16"
    if args.unary:
        with open(os.path.join(args.unary, "unary.json")) as f:
            info = json.load(f)
        for name in info["files"]:
            TABLES[name] = np.fromfile(os.path.join(args.unary, name + ".u16"), "<u2")
        meta["unary"] = f"recorded: torch {info['torch']}, {info['gpu']}, {info['date']}"
    os.makedirs(args.out, exist_ok=True)
    for name, (tensors, m) in ops(torch.Generator().manual_seed(31)).items():
        save(os.path.join(args.out, name + ".safetensors"), tensors, {**meta, **m, "op": name})


if __name__ == "__main__":
    main()
