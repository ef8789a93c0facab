#!/usr/bin/env python3
"""Writes the golden schedules of tests/test_sched.c from diffusers' FlowMatchEulerDiscreteScheduler.

    dump_sigmas.py > tests/golden/sigmas.txt    the committed file
    dump_sigmas.py --all > FILE                 every size from 256 to 2048 by 16, steps 1..100, dev and
                                                LTX-2, for build/.../test_sched FILE

    config NAME JSON
    case NAME CALL STEPS TOKENS MU HASH S0 S1 S2 | S(n-2) S(n-1) S(n)
        CALL: flux, zimage (that pipeline's way of passing sigmas), own (none passed), distilled (LTX-2's
        list). MU in C's hexadecimal; HASH: FNV-1a (64 bits) over sigmas and timesteps (f32, little-endian);
        sigmas as hex bits.
    model DTYPE T VALUE      timestep T (f32 bits) -> what FLUX's sinusoid gets
    guidance DTYPE G VALUE   the same for the guidance
    dt DTYPE NAME STEPS TOKENS V0 V1 ...   the factor of each Euler step: the product with 1 in that dtype"""
import argparse
import json
import logging
import struct

import diffusers
import numpy as np
import torch
from diffusers import FlowMatchEulerDiscreteScheduler
from diffusers.pipelines.flux.pipeline_flux import calculate_shift
from diffusers.pipelines.ltx2.utils import DISTILLED_SIGMA_VALUES
from diffusers.pipelines.z_image.pipeline_z_image import get_default_z_image_sigmas

SHIFTS = {"base_shift": 0.5, "max_shift": 1.15, "base_image_seq_len": 256, "max_image_seq_len": 4096}
LTX = {"base_shift": 0.95, "max_shift": 2.05, "base_image_seq_len": 1024, "max_image_seq_len": 4096}
CONFIGS = {
    "dev": {
        "_class_name": "FlowMatchEulerDiscreteScheduler", "shift": 3.0, "use_dynamic_shifting": True,
        **SHIFTS,
    },
    "schnell": {"num_train_timesteps": 1000, "shift": 1.0, "use_dynamic_shifting": False, **SHIFTS},
    "zturbo": {"num_train_timesteps": 1000, "use_dynamic_shifting": False, "shift": 3.0},
    "zbase": {"num_train_timesteps": 1000, "use_dynamic_shifting": False, "shift": 6.0},
    "odd": {"num_train_timesteps": 997, "shift": 2.3},
    "first": {"shift": 1.18},  # in f32 the table's own first sigma is 0.9999999
    "ltx2": {"use_dynamic_shifting": True, "shift_terminal": 0.1, "shift": 1.0, **LTX},
    "ltx2d": {"use_dynamic_shifting": False, "shift_terminal": None, "shift": 1.0, **LTX},
    "linear": {"use_dynamic_shifting": True, "time_shift_type": "linear", **SHIFTS},
    "karras": {"use_dynamic_shifting": True, "use_karras_sigmas": True, **SHIFTS},
    "expo": {"shift": 3, "use_exponential_sigmas": True},
    "invert": {"shift": 1.7, "invert_sigmas": True},
    "flow": {"shift": 3.0, "use_flow_sigmas": True},
    "terminal": {"shift": 2.0, "shift_terminal": 0.05},
}
DTYPES = {
    "F32": (torch.float32, torch.int32, np.uint32, "08x"),
    "BF16": (torch.bfloat16, torch.int16, np.uint16, "04x"),
    "F16": (torch.float16, torch.int16, np.uint16, "04x"),
}
SCHEDULERS = {}


def fnv1a(data):
    h = 0xCBF29CE484222325
    for b in data:
        h = ((h ^ b) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return h


def bits(x):
    return struct.pack(">f", float(x)).hex()


def bits_of(tensor, name):
    _, integer, kind, form = DTYPES[name]
    return format(int(tensor.contiguous().view(-1).view(integer).numpy().view(kind)[0]), form)


def schedule(name, call, steps, tokens):
    s = SCHEDULERS.setdefault(name, FlowMatchEulerDiscreteScheduler.from_config(CONFIGS[name]))
    c = s.config
    mu = calculate_shift(tokens, c.base_image_seq_len, c.max_image_seq_len, c.base_shift, c.max_shift)
    if call == "flux":
        sigmas = np.linspace(1.0, 1 / steps, steps)
        if hasattr(c, "use_flow_sigmas") and c.use_flow_sigmas:
            sigmas = None
    elif call == "zimage":
        sigmas = get_default_z_image_sigmas(steps)
    else:
        sigmas = DISTILLED_SIGMA_VALUES if call == "distilled" else None
    if sigmas is None:
        s.set_timesteps(steps, mu=mu)
    else:
        s.set_timesteps(sigmas=sigmas, mu=mu)
    return s, mu


def case(name, call, steps, tokens):
    s, mu = schedule(name, call, steps, tokens)
    sigmas, timesteps = s.sigmas.numpy(), s.timesteps.numpy()
    assert sigmas.dtype == np.float32 and timesteps.dtype == np.float32 and len(sigmas) == steps + 1
    hash_ = fnv1a(sigmas.tobytes() + timesteps.tobytes())
    ends = [*map(bits, sigmas[:3]), "|", *map(bits, sigmas[-3:])]
    print("case", name, call, steps, tokens, float(mu).hex(), f"{hash_:016x}", *ends)


def model_values():
    ts = {float(t) for n in (4, 20, 28, 50) for t in schedule("dev", "flux", n, 4096)[0].timesteps}
    ts = sorted(ts | {750.0, 751.0, 999.0, 0.5})
    for name, (dtype, _, _, _) in DTYPES.items():
        for t in ts:
            x = torch.tensor([t], dtype=torch.float32).to(dtype) / 1000
            print("model", name, bits(t), bits_of(x.to(dtype) * 1000, name))
        for g in (0.0, 1.0, 2.5, 3.5, 4.0, 7.25, 30.0):
            x = torch.full([1], g, dtype=torch.float32).to(dtype) * 1000
            print("guidance", name, bits(g), bits_of(x, name))
        for config, steps, tokens in (("schnell", 4, 4096), ("dev", 28, 4096), ("dev", 20, 1024)):
            s, _ = schedule(config, "flux", steps, tokens)
            v = [(s.sigmas[i + 1] - s.sigmas[i]) * torch.ones(1, dtype=dtype) for i in range(steps)]
            print("dt", name, config, steps, tokens, *[bits_of(x, name) for x in v])


def main():
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=formatter)
    parser.add_argument("--all", action="store_true")
    every = parser.parse_args().all
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    versions = f"diffusers {diffusers.__version__}, torch {torch.__version__}, numpy {np.__version__}"
    print(f"# {versions}, made by scripts/dump_sigmas.py")
    for name, config in CONFIGS.items():
        print("config", name, json.dumps(config))
    if every:
        for tokens in sorted({h * w for h in range(16, 129) for w in range(16, 129)}):
            for steps in range(1, 101):
                case("dev", "flux", steps, tokens)
            for steps in range(2, 101, 7):
                case("ltx2", "flux", steps, tokens)
        return
    for steps in range(1, 101):
        case("dev", "flux", steps, 4096)
        case("schnell", "flux", steps, 4096)
        case("zturbo", "zimage", steps, 4096)
        case("zbase", "zimage", steps, 4096)
    for side in range(256, 2049, 64):
        for steps in (4, 28, 50):
            case("dev", "flux", steps, (side // 16) ** 2)
    for h, w in ((256, 2048), (272, 1040), (768, 1360), (1024, 1536), (2048, 1008)):
        case("dev", "flux", 28, (h // 16) * (w // 16))
    for steps in (2, 3, 8, 25, 30, 40, 99):
        case("ltx2", "flux", steps, 6144)
        case("odd", "flux", steps, 1024)
        for name in CONFIGS:
            case(name, "own", steps, 2304)
        for name in ("linear", "karras", "expo", "invert", "flow", "terminal"):
            case(name, "flux", steps, 2304)
    for steps in (5, 128, 250, 500, 999, 1000, 2500):
        case("dev", "flux", steps, 4096)
        case("dev", "own", steps, 4096)
        case("first", "own", steps, 4096)
        case("zbase", "zimage", steps, 4096)
    case("ltx2d", "distilled", 8, 6144)
    model_values()


if __name__ == "__main__":
    main()
