#!/usr/bin/env python3
"""Records unary bf16 functions of PyTorch on a CUDA GPU, for all 65,536 inputs.

Writes OUT/NAME.u16 (65,536 little-endian uint16: the output's bits for input bits 0, 1, ... 65535) per
function, and OUT/unary.json with versions and checksums. scripts/pack_unary.py turns the folder into
src/kernels/unary_tables.c. This script measures; it holds no formula of its own.

Easy to get wrong: each entry is ONE torch kernel on bf16 storage, not a chain; a chain (quick_gelu,
gelu_new) rounds between its kernels and is put together by the caller.

    python3 scripts/record_unary.py OUT [--device cuda|cpu]      # cpu: for a dry run of the script only
"""
import argparse
import datetime
import hashlib
import json
import math
import os
import subprocess
import sys

import torch
import torch.nn.functional as F

# name -> function of a bf16 tensor. The names are those of UnaryFn in src/kernels/unary.h, lower case.
FUNCTIONS = {
    "silu": F.silu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "gelu_erf": F.gelu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "exp": torch.exp,
    "sin": torch.sin,
    "cos": torch.cos,
    "log": torch.log,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "softplus": F.softplus,
    "pow3": lambda x: torch.pow(x, 3.0),
}

# Whole chains as the text encoders run them, recorded to check the caller's composition (not packed).
CHAINS = {
    "chain_quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),
    "chain_gelu_new": lambda x: 0.5 * x * (1.0 + torch.tanh(
        0.7978845608028654 * (x + 0.044715 * torch.pow(x, 3.0)))),
    "chain_square": lambda x: x.pow(2),
    "chain_one_plus": lambda x: 1 + x,
    "chain_div_vae_scale": lambda x: (x / 0.3611) + 0.1159,
    "chain_to_rgb": lambda x: (x * 0.5 + 0.5).clamp(0, 1),
    "chain_to_f32_silu": lambda x: F.silu(x.float()).to(torch.bfloat16),
}


def driver():
    try:
        return subprocess.run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
                              capture_output=True, text=True, check=True).stdout.split("\n")[0].strip()
    except (OSError, subprocess.CalledProcessError):
        return "none"


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("out")
    p.add_argument("--device", default="cuda")
    args = p.parse_args()
    if args.device == "cuda" and not torch.cuda.is_available():
        sys.exit("record_unary: no CUDA device")
    os.makedirs(args.out, exist_ok=True)

    bits = torch.arange(65536, dtype=torch.int32).to(torch.int16)        # wraps: all 16-bit patterns in order
    x = bits.view(torch.bfloat16).to(args.device)
    assert (x.view(torch.int16).cpu() == bits).all()
    files, floats = {}, {}
    for name, fn in {**FUNCTIONS, **CHAINS}.items():
        y = fn(x)
        assert y.dtype == torch.bfloat16 and y.shape == x.shape, name
        # The scalar (unvectorised) code path must agree with the vectorised one: odd offset, odd length.
        tail = fn(x[1:][:-2])
        a, b = y[1:-2], tail                                      # NaN payloads are not compared
        same = bool(((a.view(torch.int16) == b.view(torch.int16)) | (a.isnan() & b.isnan())).all())
        if not same and args.device == "cuda":
            sys.exit(f"record_unary: {name}: vectorised and scalar kernels differ; a table cannot say it")
        raw = (y.contiguous().view(torch.int16).cpu().to(torch.int32) & 0xffff).numpy().astype("<u2").tobytes()
        assert len(raw) == 131072
        with open(os.path.join(args.out, name + ".u16"), "wb") as f:
            f.write(raw)
        nans = sorted({int(v) & 0xffff for v in y[y.isnan()].view(torch.int16).cpu().tolist()})
        files[name] = {"sha256": hashlib.sha256(raw).hexdigest(), "tail_equal": same,
                       "nan_bits": [f"0x{v:04x}" for v in nans[:4]], "nan_patterns": len(nans)}

    # The f32 sinusoid of diffusers' get_timestep_embedding (256 wide, cosines first), for the expf, cosf and sinf
    # that stand behind it: frequencies [128], then 1001 embeddings t = 0..1000, then those of large guidances.
    power = -math.log(10000) * torch.arange(0, 128, dtype=torch.float32, device=args.device) / 128
    freq = torch.exp(power)
    times = torch.cat([torch.arange(1001, dtype=torch.float32), torch.tensor([2496.0, 3504.0, 4000.0, 29952.0])])
    angle = times.to(args.device)[:, None] * freq[None]
    for name, t in (("time_freq", freq), ("time_embed", torch.cat([angle.cos(), angle.sin()], -1))):
        raw = t.cpu().numpy().astype("<f4").tobytes()
        with open(os.path.join(args.out, name + ".f32"), "wb") as f:
            f.write(raw)
        floats[name] = hashlib.sha256(raw).hexdigest()

    cuda = args.device == "cuda"
    info = {
        "floats": floats,
        "torch": torch.__version__,
        "cuda": torch.version.cuda if cuda else "none",
        "cudnn": torch.backends.cudnn.version() if cuda else 0,
        "driver": driver() if cuda else "none",
        "gpu": torch.cuda.get_device_name(0) if cuda else "cpu: not a recording of the reference profile",
        "sms": torch.cuda.get_device_properties(0).multi_processor_count if cuda else 0,
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"),
        "files": files,
    }
    with open(os.path.join(args.out, "unary.json"), "w") as f:
        json.dump(info, f, indent=1, sort_keys=True)
        f.write("\n")
    print(os.path.join(args.out, "unary.json"))


if __name__ == "__main__":
    main()
