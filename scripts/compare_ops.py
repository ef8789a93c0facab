#!/usr/bin/env python3
"""Compares the table's reference ops with eager PyTorch, bit for bit, at the models' shapes.

    python3 scripts/compare_ops.py [--checkop build/release/tests/checkop] [--backend cuda|cpu] [--op NAME] [--small] [--f32]

checkop writes each call with its inputs and results (tests/check_dump.h); the expression that the reference pipelines run is
evaluated here on the same device from the same inputs, and the elements whose bits differ are counted. NaNs count as equal
to NaNs. On a CPU in bf16 the expression runs with CUDA's rounding points (refprofile.py) and sums may run in another order:
only the counts of ops without sums mean something there. Exit code 1: a call could not be compared, or on a GPU an op whose
contract promises PyTorch's bits differs.

Easy to get wrong: the expression must be the pipelines' own (dtypes, order, scalars as Python numbers), not the contract's.
"""
import argparse
import os
import struct
import subprocess
import sys
import tempfile

import torch
import torch.nn.functional as F
from safetensors import safe_open

from refprofile import rounding

# Contracts that leave the order of sums free also on a GPU: differing elements are no failure.
FREE = {"groupnorm", "groupnorm_silu", "norm_limit", "pixelnorm_silu", "conv_transpose1d",
        "fir_up", "snake_filtered", "velocity_x0"}


def real(bits):
    return struct.unpack("<f", bytes.fromhex(bits)[::-1])[0]


def integer(bits):
    return struct.unpack("<i", bytes.fromhex(bits)[::-1])[0]


def decimal(x):
    """The decimal number that a config file held before it became a float."""
    return float(f"{x:.7g}")


def activation(kind, x, slope=0.0):
    if kind == 1:
        return F.silu(x)
    if kind == 2:
        return F.gelu(x, approximate="tanh")
    if kind == 3:
        return F.gelu(x)
    if kind == 4:                                            # transformers: NewGELUActivation
        return 0.5 * x * (1.0 + torch.tanh(0.7978845608028654 * (x + 0.044715 * torch.pow(x, 3.0))))
    if kind == 5:                                            # transformers: QuickGELUActivation
        return x * torch.sigmoid(1.702 * x)
    if kind == 7:
        return torch.tanh(x)
    if kind == 8:
        return F.leaky_relu(x, slope)
    if kind == 9:
        return torch.clamp(x, -1, 1)
    if kind == 10:                                           # vocoder.py: MelSTFT
        return torch.log(torch.clamp(x, min=1e-5))
    return F.relu(x)


def mean_square_norm(x, w, eps):
    """diffusers' RMSNorm and transformers' T5LayerNorm: rounded before the weight."""
    variance = x.to(torch.float32).pow(2).mean(-1, keepdim=True)
    n = (x.to(torch.float32) * torch.rsqrt(variance + eps)).to(x.dtype)
    return n if w is None else n * w


def gemma_norm(x, w, eps):
    """transformers: Gemma2RMSNorm, in f32 up to the end."""
    n = x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + eps)
    return (n * (1.0 + w.float())).type_as(x)


def norm_of_form(x, w, eps, form):
    if form == 0:
        return F.rms_norm(x, x.shape[-1:], w, eps)
    return mean_square_norm(x, w, eps) if form == 1 else gemma_norm(x, w, eps) if form == 2 else x


def rotate(x, cos, sin, rope, form):
    if rope == 0:
        return x
    if rope == 4 or (rope == 1 and form == 1):               # Z-Image: complex numbers
        freqs = torch.complex(cos, sin)[:, None]
        pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * freqs).flatten(2).to(x.dtype)
    if rope == 1:                                            # FLUX: diffusers' apply_rotary_emb
        c, s = cos.repeat_interleave(2, dim=-1)[:, None], sin.repeat_interleave(2, dim=-1)[:, None]
        a, b = x.reshape(*x.shape[:-1], -1, 2).unbind(-1)
        turned = torch.stack([-b, a], dim=-1).flatten(2)
        return (x.float() * c + turned.float() * s).to(x.dtype)
    half = x.shape[-1] // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    c, s = torch.cat((cos, cos), -1)[:, None], torch.cat((sin, sin), -1)[:, None]
    if rope == 3:                                            # transformers: in the dtype
        return x * c.to(x.dtype) + turned * s.to(x.dtype)
    return (x.float() * c + turned.float() * s).to(x.dtype)


def heads_first(t):
    return t[None].transpose(1, 2)


def attention_eager(q, k, v, bias, scale, causal, softcap=0.0, window=0):
    """transformers: T5 adds a bias and does not scale, the others scale the product, Gemma-2 caps it; softmax in f32."""
    q, k, v = heads_first(q), heads_first(k), heads_first(v)
    if k.shape[1] != q.shape[1]:
        groups = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(groups, dim=1), v.repeat_interleave(groups, dim=1)
    s = torch.matmul(q, k.transpose(2, 3))
    if scale != 1:
        s = s * scale
    if softcap:
        s = torch.tanh(s / softcap) * softcap
    if bias is not None:
        s = s + bias[None]
    if causal:
        n = s.shape[-1]
        mask = torch.full((n, n), torch.finfo(s.dtype).min, dtype=s.dtype, device=s.device)
        mask = mask.triu(1) + (mask.tril(-window) if window else 0)
        s = s + mask[None, None]
    p = F.softmax(s.float(), dim=-1).to(q.dtype)
    return torch.matmul(p, v).transpose(1, 2)[0]


def attention(q, k, v, bias, scale, causal):
    mask = None
    if bias is not None and bias.dim() == 1:
        mask = bias.expand(1, q.shape[1], 1, len(bias))      # SanaAttnProcessor2_0: a row a head
    elif bias is not None:                                   # transformers' sdpa: pairs, as booleans, and repeated keys
        groups = q.shape[1] // k.shape[1]
        mask, k, v = (bias == 0)[None, None], k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    q, k, v = heads_first(q), heads_first(k), heads_first(v)
    o = F.scaled_dot_product_attention(q, k, v, mask, is_causal=causal, scale=scale,
                                       **({"enable_gqa": True} if k.shape[1] != q.shape[1] else {}))
    return o.transpose(1, 2)[0]


def bucket(n, buckets, most, device):
    """T5Attention._relative_position_bucket, bidirectional."""
    span = torch.arange(n, dtype=torch.long, device=device)
    relative = span[None, :] - span[:, None]
    buckets //= 2
    found = (relative > 0).to(torch.long) * buckets
    relative = torch.abs(relative)
    exact = buckets // 2
    large = exact + (torch.log(relative.float() / exact) / torch.log(torch.tensor(most / exact)).item()
                     * (buckets - exact)).to(torch.long)
    large = torch.min(large, torch.full_like(large, buckets - 1))
    return found + torch.where(relative < exact, relative, large)


def picture(x):
    """[Y,X,C] or, a batch of them, [N,Y,X,C] seen as NCHW in channels-last order."""
    return (x if x.dim() == 4 else x[None]).permute(0, 3, 1, 2)


def convolution(x, i, w, b, s):
    """A raw one leaves its bias out; the other path of a resnet is added to it, after that one's bias."""
    top, left, bottom, right = (integer(v) for v in s[1:5])
    assert top == bottom and left == right
    y = F.conv2d(x, w.permute(0, 3, 1, 2), None if integer(s[5]) else b, integer(s[0]), (top, left)).permute(0, 2, 3, 1)
    y = y if i[0].dim() == 4 else y[0]
    if 1 not in i:
        return y
    return (i[1] + i[2] if 2 in i else i[1]) + y


def line_convolution(i, w, b):
    """The vocoder's Conv1d, whose dilation the op has as the width of its picture."""
    dilation, kernel = i[0].shape[1], w.shape[1]
    x = i[0].flatten(0, 1).t()[None].contiguous()
    y = F.conv1d(x, w[:, :, 0].transpose(1, 2).contiguous(), b, padding=dilation * (kernel // 2), dilation=dilation)
    y = y[0].t().unflatten(0, (-1, dilation))
    return i[1] + y if 1 in i else y


def time_embed(t, width, period):
    """diffusers: get_timestep_embedding(flip_sin_to_cos=True, downscale_freq_shift=0)."""
    import math
    half = width // 2
    exponent = -math.log(period) * torch.arange(0, half, dtype=torch.float32, device=t.device)
    emb = torch.exp(exponent / (half - 0))
    emb = t[:, None].float() * emb[None, :]
    emb = torch.cat([torch.sin(emb), torch.cos(emb)], dim=-1)
    return torch.cat([emb[:, half:], emb[:, :half]], dim=-1)


def pairs_turned(x, cos, sin):
    """SanaLinearAttnProcessor3_0: x [N,H,C], tables of C / 2 columns."""
    x1, x2 = x.unflatten(-1, (-1, 2)).unbind(-1)
    cos, sin, out = cos[:, None], sin[:, None], torch.empty_like(x)
    out[..., 0::2] = x1 * cos - x2 * sin
    out[..., 1::2] = x1 * sin + x2 * cos
    return out


def halves_turned(x, cos, sin):
    """apply_split_rotary_emb: x [N,H,E], tables [N,H,E/2]."""
    pairs = x.unflatten(-1, (2, -1)).float()
    out = pairs * cos[:, :, None]
    out[:, :, :1].addcmul_(-sin[:, :, None], pairs[:, :, 1:])
    out[:, :, 1:].addcmul_(sin[:, :, None], pairs[:, :, :1])
    return out.flatten(-2).to(x.dtype)


def linear_attention(q, k, qr, kr, v, eps):
    """The same: all [1,N,H,C], in the layouts that it has them in."""
    q, k, qr, kr, v = (t.contiguous()[None].permute(0, 2, 3, 1) for t in (q, k, qr, kr, v))
    z = 1 / (k.sum(dim=-1, keepdim=True).transpose(-2, -1) @ q + eps)
    scores = torch.matmul(v.float(), kr.float().transpose(-1, -2))
    h = torch.matmul(scores, qr.float()) * z
    return h.to(q.dtype)[0].permute(2, 0, 1)


def raised(x, f, ratio, pad, crop):
    """vocoder.py: UpSample1d. x [1,C,T]"""
    n, rows = x.shape[1], x.shape[2]
    x = F.pad(x, (pad, pad), mode="replicate")
    x = ratio * F.conv_transpose1d(x, f.view(1, 1, -1).expand(n, -1, -1), stride=ratio, groups=n)
    return x[..., crop:crop + ratio * rows]


def snake_filtered(x, alpha, beta, up, down):
    """The same: AntiAliasAct1d of a SnakeBeta."""
    n, taps = x.shape[1], down.numel()
    pad = taps // 2 - 1
    x = raised(x, up, 2, pad, 2 * pad + (taps - 2) // 2)
    x = x + (1.0 / (torch.exp(beta)[:, None] + 1e-9)) * torch.sin(x * torch.exp(alpha)[:, None]).pow(2)
    x = F.pad(x, (pad, taps // 2), mode="replicate")
    return F.conv1d(x, down.view(1, 1, -1).expand(n, -1, -1), stride=2, groups=n)


def clip(t):
    """[F,Y,X,C] as diffusers has it, [1,C,F,Y,X]."""
    return t.permute(3, 0, 1, 2).contiguous()[None]


def frames(t):
    return t[0].permute(1, 2, 3, 0).contiguous()


def window(h, frames_out, before, border):
    """LTX2VideoCausalConv3d.forward up to its convolution."""
    after = frames_out - before - h.shape[2]
    h = torch.cat([h[:, :, :1]] * before + [h] + [h[:, :, -1:]] * after, dim=2)
    return F.pad(h, (1, 1, 1, 1, 0, 0), mode="reflect") if border else h


def spread(t, p):
    """LTX2VideoUpsampler3d: channels to places, without the first frames."""
    b, _, f, y, x = t.shape
    t = t.reshape(b, -1, *p, f, y, x).permute(0, 1, 5, 2, 6, 3, 7, 4).flatten(6, 7).flatten(4, 5).flatten(2, 3)
    return t[:, :, p[0] - 1:]


def gathered(t, p):
    """LTX2VideoDownsampler3d: places to channels."""
    t = t.unflatten(4, (-1, p[2])).unflatten(3, (-1, p[1])).unflatten(2, (-1, p[0]))
    return t.permute(0, 1, 3, 5, 7, 2, 4, 6).flatten(1, 4)


def expect(op, i, w, b, s, out):
    """Outputs by PyTorch. i, w, b: inputs, weights, biases by number; s: scalars' bits; out: ours, for shapes and dtypes."""
    dtype, device = out[0].dtype, out[0].device
    if op == "copy":
        return [i[0].to(dtype).clone()]
    if op == "embed":
        return [F.embedding(i[0].long(), w[0])]
    if op == "rel_bias":
        return [w[0][bucket(out[0].shape[1], w[0].shape[0], integer(s[0]), device)].permute(2, 0, 1)]
    if op == "pack":                                         # FluxPipeline._pack_latents
        c, y, x = i[0].shape
        return [i[0].view(1, c, y // 2, 2, x // 2, 2).permute(0, 2, 4, 1, 3, 5).reshape(out[0].shape)]
    if op == "unpack":
        y, x, c = out[0].shape
        t = i[0].view(1, y // 2, x // 2, c, 2, 2).permute(0, 3, 1, 4, 2, 5)
        return [t.reshape(c, y, x).permute(1, 2, 0)]
    if op in ("linear", "linear_many", "linear_gelu"):       # s: how the bias comes; 1: behind a rounding
        after = op == "linear" and integer(s[0]) == 1
        y = [F.linear(i[0], w[n]) + b[n] if after and n in b else F.linear(i[0], w[n], b.get(n)) for n in sorted(w)]
        return [F.gelu(t, approximate="tanh") for t in y] if op == "linear_gelu" else y
    if op == "norm_relu_rope":
        y = F.relu(mean_square_norm(i[0], i[1], decimal(real(s[0]))))
        return [y, pairs_turned(y.unflatten(-1, (-1, 2 * i[2].shape[1])), i[2], i[3]).flatten(-2)]
    if op == "rope_split":
        return [halves_turned(i[0], i[1], i[2])]
    if op in ("rms_modulate", "residual_rms_modulate"):      # LTX2VideoTransformerBlock
        h = [] if op == "rms_modulate" else [i[0] + (i[2] * i[1] if 2 in i else i[1])]
        first, eps = 1 if op == "rms_modulate" else 3, decimal(real(s[0]))
        n = mean_square_norm(h[0] if h else i[0], None, eps)
        return h + [n * (1 + i[k]) + i[k + 1] for k in (first, first + 2) if k in i]
    if op == "norm_rope_split":
        eps, heads = decimal(real(s[0])), integer(s[1])
        sides = [(n, F.rms_norm(i[n], i[n].shape[-1:], i[n + 2], eps).unflatten(-1, (heads, -1))) for n in (0, 1) if n in i]
        return [halves_turned(y, *(i[k].unflatten(-1, (heads, -1)) for k in (4, 5))).flatten(-2) for _, y in sides]
    if op == "head_gate":
        return [i[0] * (2.0 * torch.sigmoid(i[1])).unsqueeze(-1)]
    if op == "cos_sin":
        return [i[0].cos(), i[0].sin()]
    if op == "stack_range_norm":                             # pipelines/ltx2/connectors.py; s: eps, scale, padding
        from diffusers.pipelines.ltx2.connectors import per_layer_masked_mean_norm
        y = per_layer_masked_mean_norm(i[0][None], torch.tensor([len(i[0]) - integer(s[2])], device=device), device)
        return [y[0].view(i[0].shape)]
    if op == "stack_rms_norm":
        from diffusers.pipelines.ltx2.connectors import per_token_rms_norm
        y = per_token_rms_norm(i[0][None]).flatten(2, 3)
        here = (torch.arange(len(i[0]), device=device) >= integer(s[1]))[None, :, None]
        return [torch.where(here, y, torch.zeros_like(y))[0].view(i[0].shape)]
    if op == "linear_attention":
        return [linear_attention(*(i[n] for n in range(5)), decimal(real(s[0])))]
    if op == "dwconv3_glu":
        x = F.silu(i[0] + i[1]) if 1 in i else i[0]          # conv_inverted's bias and SiLU
        d = F.conv2d(x.permute(0, 3, 1, 2), w[0].permute(0, 3, 1, 2), b[0], 1, 1, 1, len(w[0]))
        value, gate = d.chunk(2, dim=1)
        return [(value * F.silu(gate)).permute(0, 2, 3, 1)]
    if op == "linear_rows":                                  # as the steps compute it: each row alone
        return [torch.cat([F.linear(row, w[0], b.get(0)) for row in i[0].split(1)])]
    if op == "linear_many_gelu":
        y = [F.linear(i[0], w[n], b.get(n)) for n in sorted(w)]
        return y + [F.gelu(y[-1], approximate="tanh")]
    if op == "modulate":
        return [i[0] * (1 + i[1]) + i[2] if 2 in i else i[0] * (1 + i[1])]
    if op == "residual_gate_ln_modulate":
        h = i[0] + i[2] * i[1]
        n = F.layer_norm(h, h.shape[-1:], None, None, decimal(real(s[0]))) * (1 + i[3])
        return [h, n + i[4] if 4 in i else n]
    if op == "residual_norm_scale":
        eps = decimal(real(s[0]))
        n = mean_square_norm(i[1], i[2], eps)
        y = i[0] + (torch.tanh(i[3]) * n if 3 in i else n)
        n = mean_square_norm(y, i[4], eps)
        return [y, n * (1 + i[5]) if 5 in i else n]
    if op == "act":
        return [activation(integer(s[0]), i[0], decimal(real(s[1])))]
    if op == "conv_transpose1d":
        y = F.conv_transpose1d(i[0].t()[None], w[0], b.get(0), stride=integer(s[0]), padding=integer(s[1]))
        return [y[0].t()]
    if op == "mean3":
        return [torch.mean(torch.stack([i[0], i[1], i[2]], dim=0), dim=0)]
    if op == "fir_up":
        return [raised(i[0].t()[None], i[1], *(integer(v) for v in s[:3]))[0].t()]
    if op == "snake_filtered":
        return [snake_filtered(i[0].t()[None], *(i[n].flatten() for n in range(1, 5)))[0].t()]
    if op == "magnitude":
        re, im = i[0].chunk(2, dim=1)
        return [torch.sqrt(re ** 2 + im ** 2)]
    if op == "act_mul":
        return [activation(integer(s[0]), i[0]) * i[1]]
    if op == "add":
        return [i[0] + i[1]]
    if op == "residual_gate":
        return [i[0] + i[2] * i[1] if 2 in i else i[0] + i[1]]
    if op == "layernorm":
        return [F.layer_norm(i[0], i[0].shape[-1:], i[1], i[2], decimal(real(s[0])))]
    if op == "ln_modulate":
        n = F.layer_norm(i[0], i[0].shape[-1:], None, None, decimal(real(s[0]))) * (1 + i[1])
        return [n + i[2] if 2 in i else n]
    if op == "rmsnorm":
        return [norm_of_form(i[0], i.get(1), decimal(real(s[0])), integer(s[1]))]
    if op == "rmsnorm_scale":
        n = mean_square_norm(i[0], i[1], decimal(real(s[0])))
        return [n * (1 + i[2]) if 2 in i else n]
    if op == "residual_norm":
        n = mean_square_norm(i[1], i[2], decimal(real(s[0])))
        return [i[0] + (torch.tanh(i[3]) * n if 3 in i else n)]
    if op == "qk_norm_rope_head":
        eps, rope, form = decimal(real(s[0])), integer(s[1]), integer(s[2])
        cos, sin = i.get(4), i.get(5)
        y = []
        for x, weight in ((i[0], i.get(2)), (i[1], i.get(3))):
            y.append(rotate(norm_of_form(x, weight, eps, form), cos, sin, rope, form))
        return y
    if op == "attention":
        y = attention(i[0], i[1], i[2], i.get(3), i[0].shape[-1] ** -0.5, integer(s[1]) == 1)
        if 3 in i and i[3].dim() == 2:                       # padding attends to nothing there: nobody reads its rows
            blind = (i[3] != 0).all(-1)
            y[blind] = out[0][blind]
        return [y]
    if op == "attention_eager":
        scale = real(s[0])
        return [attention_eager(i[0], i[1], i[2], i.get(3), 1 if scale == 1 else i[0].shape[-1] ** -0.5, integer(s[1]) == 1,
                                real(s[2]), integer(s[3]))]
    if op == "time_embed":
        return [time_embed(i[0], out[0].shape[-1], decimal(real(s[0]))).to(dtype)]
    if op == "cfg_combine":
        return [i[1] + i[2].item() * (i[0] - i[1])]
    if op == "cfg_extrapolate":
        return [i[0] + i[2].item() * (i[0] - i[1])]
    if op == "norm_limit":                                   # pipeline_z_image: cfg_normalization
        was, now = torch.linalg.vector_norm(i[1]), torch.linalg.vector_norm(i[0])
        most = was * real(s[0])
        return [i[0] * (most / now) if now > most else i[0]]
    if op == "guide_x0":                                     # LTX2Pipeline: sigma lies on the device there
        def clean(v):
            return i[0] - v * i[5][0]
        c = clean(i[1])
        by = [decimal(real(v)) for v in s]
        terms = [by[k] * (c - clean(i[2 + k])) if 2 + k in i else 0 for k in range(3)]
        return [c + terms[0] + terms[1] + terms[2], c]
    if op == "velocity_x0":                                  # LTX2Pipeline: rescale_noise_cfg, convert_x0_to_velocity
        g, phi = i[1], decimal(real(s[0]))
        if phi > 0:
            g = phi * (g * (i[2].std() / g.std())) + (1 - phi) * g
        if 3 in i:                                           # LTX2ConditionPipeline
            g = g * (1 - i[4]) + i[3] * i[4]
        return [(i[0] - g) / i[5][0]]
    if op == "negate":
        return [-i[0]]
    if op == "euler_step":                                   # FlowMatchEulerDiscreteScheduler.step
        return [(i[0].to(torch.float32) + i[2][0] * i[1]).to(dtype)]
    if op == "dpm_step":                                     # DPMSolverMultistepScheduler, dpmsolver++, midpoint
        k = i[3].cpu()                                       # as there: numbers on the host
        m = i[0] - k[0] * i[1]
        y = k[1] * i[0] - k[2] * m
        return [y - k[3] * (k[4] * (m - i[2])) if k[3] else y, m]
    if op == "affine":
        scale = decimal(1 / real(s[0]))
        return [(i[0] / scale) + decimal(real(s[1]))]
    if op == "kl_sample":                                    # DiagonalGaussianDistribution.sample, _encode_vae_image
        std = torch.exp(0.5 * torch.clamp(i[1], -30.0, 20.0))
        return [((i[0] + std * i[2]) - decimal(real(s[0]))) * decimal(real(s[1]))]
    if op == "scale_noise":                                  # FlowMatchEulerDiscreteScheduler.scale_noise
        sigma = torch.tensor([real(s[0])], device=device).to(dtype)
        return [sigma * i[1] + (1.0 - sigma) * i[0]]
    if op == "to_rgb8":                                      # VaeImageProcessor
        t = (i[0] * 0.5 + 0.5).clamp(0, 1)
        return [torch.from_numpy((t.cpu().float().numpy() * 255).round().astype("uint8")).to(device)]
    if op == "count_nonfinite":
        return [(~torch.isfinite(i[0])).sum().to(torch.int32).view(1)]
    if op == "conv2d" and w[0].shape[1] > 3 and w[0].shape[2] == 1:
        return [line_convolution(i, w[0], b.get(0))]
    if op == "conv2d":
        return [convolution(picture(i[0]), i, w[0], b.get(0), s)]
    if op == "roll":                                         # WanCausalConv3d's cache; the room of an old one is not in the dump
        there, h = out[0].clone(), out[1].shape[0]
        if integer(s[0]):
            there[:h] = 0
        return [there, there[-h:]]
    if op == "conv3d":
        stride, pad, form, _, pad_t = (integer(n) for n in s)
        y = F.conv3d(clip(i[0]), w[0].permute(0, 4, 1, 2, 3).contiguous(), None if form else b.get(0), (stride, 1, 1),
                     (pad_t, pad, pad))
        return [frames(y if 1 not in i else clip(i[1] + i[2] if 2 in i else i[1]) + y)]
    if op in ("chan_rmsnorm", "chan_rmsnorm_silu"):          # WanRMS_norm
        x = clip(i[0] + i[2] if 2 in i else i[0])
        n = F.normalize(x.float(), dim=1).to(dtype) * x.shape[1] ** 0.5 * i[1][:, None, None, None]
        return [frames(F.silu(n) if op == "chan_rmsnorm_silu" else n)]
    if op == "chan_affine":
        x, form = i[0].to(dtype), integer(s[0])
        return [[lambda: x / i[1] + i[2], lambda: (x - i[2]) * i[1], lambda: x * i[1] + i[2], lambda: (x - i[2]) / i[1]][form]()]
    if op in ("frame_window", "pixelnorm_silu"):             # PerChannelRMSNorm, LTX2VideoCausalConv3d
        h = clip(i[0] + i[1] if 1 in i else i[0])
        h = h + clip(i[2]) if 2 in i else h
        y = F.silu(h / torch.sqrt(torch.mean(h**2, dim=1, keepdim=True) + decimal(real(s[0])))) if op == "pixelnorm_silu" else h
        y = frames(window(y, out[0].shape[0], integer(s[1]), integer(s[2])))
        return [y, frames(h)][:len(out)]
    if op == "depth_to_space":
        p = [integer(n) for n in s[:3]]
        y = spread(clip(i[0] + i[1] if 1 in i else i[0]), p)
        if 2 in i:
            other = spread(clip(i[2]), p)
            y = y + other.repeat(1, y.shape[1] // other.shape[1], 1, 1, 1)
        return [frames(y)]
    if op == "space_to_depth":
        p = [integer(n) for n in s[:3]]
        y = gathered(clip(i[0] + i[1] if 1 in i else i[0]), p)
        return [frames(y + gathered(clip(i[2]), p).unflatten(1, (y.shape[1], -1)).mean(dim=2) if 2 in i else y)]
    if op == "upsample_conv":
        x = F.interpolate(picture(i[0]), scale_factor=2.0, mode="nearest")
        return [convolution(x, i, w[0], b.get(0), s)]
    if op == "self_attention":                               # a transposed picture: the product is rounded before the bias
        x = i[0].t().contiguous().t()[None]
        q, k, v = (F.linear(x, w[n], b[n]) for n in range(3))
        o = F.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None])[0, 0]
        return [i[1] + F.linear(o, w[3], b[3])]
    if op in ("groupnorm", "groupnorm_silu"):
        x = i[0] + i[3] if 3 in i else i[0]
        n = F.group_norm(picture(x), integer(s[1]), i[1], i[2], decimal(real(s[0])))[0].permute(1, 2, 0)
        return [F.silu(n) if op == "groupnorm_silu" else n]
    return None


BITS = {torch.bfloat16: torch.int16, torch.float16: torch.int16, torch.float32: torch.int32}


def differing(a, b):
    """Elements whose bits differ, and the largest distance of those."""
    assert a.shape == b.shape and a.dtype == b.dtype, (a.shape, b.shape, a.dtype, b.dtype)
    a, b = a.contiguous(), b.contiguous()
    if a.dtype not in BITS:
        return (a != b).sum().item(), (a.double() - b.double()).abs().max().item()
    other = (a.view(BITS[a.dtype]) != b.view(BITS[a.dtype])) & ~(a.isnan() & b.isnan())
    far = (a[other].double() - b[other].double()).abs()
    return other.sum().item(), far.max().item() if far.numel() else 0.0


def load(path, device):
    with safe_open(path, "pt", device=device) as f:
        meta, groups = f.metadata(), {"in": {}, "w": {}, "b": {}, "out": {}}
        for key in f.keys():
            kind = key.rstrip("0123456789")
            groups[kind][int(key[len(kind):])] = f.get_tensor(key)
    scalars = [meta[f"s{n}"] for n in range(8) if f"s{n}" in meta]
    return meta, groups, scalars


def compare(path, device, dtype):
    """-> (op, place, shapes, elements, differing, largest) or None when there is no expression for the op."""
    meta, g, scalars = load(path, device)
    ours = [g["out"][n] for n in sorted(g["out"])]
    with torch.no_grad(), rounding(dtype, device):
        theirs = expect(meta["op"], g["in"], g["w"], g["b"], scalars, ours)
    if theirs is None:
        return meta, 0, None, 0
    counts = [differing(a, t) for a, t in zip(ours, theirs, strict=True)]
    return meta, sum(t.numel() for t in ours), sum(c[0] for c in counts), max(c[1] for c in counts)


def listed(args):
    text = subprocess.run([args.checkop, "--list", "--backend", args.backend], check=True, capture_output=True, text=True).stdout
    return [line.split() for line in text.splitlines()]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--checkop", default="build/release/tests/checkop")
    p.add_argument("--backend", choices=("cuda", "cpu"), default="cuda")
    p.add_argument("--op")
    p.add_argument("--small", action="store_true")
    p.add_argument("--f32", action="store_true")
    args = p.parse_args()
    dtype = torch.float32 if args.f32 else torch.bfloat16
    torch.backends.cudnn.benchmark = False
    print(f"# PyTorch {torch.__version__}, cuDNN {torch.backends.cudnn.version() if args.backend == 'cuda' else 'none'}, "
          f"{torch.cuda.get_device_name(0) if args.backend == 'cuda' else 'cpu, its sums in another order'}, "
          f"{'f32' if args.f32 else 'bf16'}")
    print(f"{'op':<18} {'promise':<8} {'elements':>11} {'differing':>10} {'largest':>9}  place: shapes")
    failed = compared = equal = 0
    for op, promise in listed(args):
        if args.op and args.op != op:
            continue
        with tempfile.TemporaryDirectory() as folder:
            command = [args.checkop, "--dump", folder, "--op", op, "--backend", args.backend]
            command += ["--small"] * args.small + ["--f32"] * args.f32
            done = subprocess.run(command, capture_output=True, text=True)
            for line in done.stdout.splitlines():
                if not line.endswith(".safetensors"):
                    print(f"{op:<18} {line}")
                    failed += 1
                    continue
                try:
                    meta, elements, count, largest = compare(line, args.backend, dtype)
                except (RuntimeError, AssertionError, KeyError, ValueError) as e:
                    print(f"{op:<18} {promise:<8} {os.path.basename(line)}: the expression failed: {str(e).splitlines()[0]}")
                    failed += 1
                    continue
                finally:
                    os.remove(line)
                if count is None:
                    print(f"{op:<18} {promise:<8} no expression for it in this script  {meta['place']}")
                    failed += 1
                    continue
                compared, equal = compared + 1, equal + (count == 0)
                if count and args.backend == "cuda" and op not in FREE:
                    failed += 1
                print(f"{op:<18} {promise:<8} {elements:>11} {count:>10} {largest:>9.2g}  {meta['place']}: {meta['shapes']}",
                      flush=True)
            if not done.stdout.strip():
                print(f"{op:<18} checkop ended with code {done.returncode}: {done.stderr.strip()[-200:]}")
                failed += 1
    print(f"{equal} of {compared} calls equal in every bit, {failed} failed")
    return 1 if failed or not compared else 0


if __name__ == "__main__":
    sys.exit(main())
