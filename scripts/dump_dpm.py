#!/usr/bin/env python3
"""DPM-Solver++ on flow sigmas, recorded from diffusers' DPMSolverMultistepScheduler.

    dump_dpm.py tests/golden/dpm.txt src/sched_dpm_table.c      the committed files
    dump_dpm.py --check tests/golden/dpm.txt src/sched_dpm_table.c   on another machine: do they come out the same?

dpm.txt (tests/test_dpm.c):
    config JSON                      as published for SANA-Video
    case STEPS TABLE RUN             FNV-1a (64 bits) over sigmas and timesteps (f32, little-endian); over the latents after
                                     every step of a run on numbers that both sides make (numbers() here and there)
    table STEPS T0 T1 ... | S0 S1 .. the timesteps, and the sigmas as hex bits

sched_dpm_table.c: where torch.log and torch.exp of one f32 differ from the nearest f32, for the arguments of those runs.
Easy to get wrong: they are MKL's vector functions on x86 hosts, and the bits are those of the machine that records."""
import argparse
import json
import sys

import numpy as np
import torch
from diffusers import DPMSolverMultistepScheduler

from dump_sigmas import bits, fnv1a

CONFIG = {
    "_class_name": "DPMSolverMultistepScheduler", "algorithm_type": "dpmsolver++", "beta_end": 0.02,
    "beta_schedule": "linear", "beta_start": 0.0001, "dynamic_thresholding_ratio": 0.995, "euler_at_final": False,
    "final_sigmas_type": "zero", "flow_shift": 8.0, "lambda_min_clipped": -float("inf"), "lower_order_final": True,
    "num_train_timesteps": 1000, "prediction_type": "flow_prediction", "rescale_betas_zero_snr": False,
    "sample_max_value": 1.0, "solver_order": 2, "solver_type": "midpoint", "steps_offset": 0, "thresholding": False,
    "time_shift_type": "exponential", "timestep_spacing": "linspace", "trained_betas": None, "use_beta_sigmas": False,
    "use_dynamic_shifting": False, "use_exponential_sigmas": False, "use_flow_sigmas": True, "use_karras_sigmas": False,
    "use_lu_lambdas": False, "variance_type": None}
STEPS, LISTED, COUNT = range(1, 101), (8, 20, 50), 48
MASK = (1 << 64) - 1


def numbers(seed, n):
    """n multiples of 2^-13 in [-4, 4), from a linear congruential generator."""
    out, state = np.empty(n, np.float32), seed
    for i in range(n):
        state = (state * 6364136223846793005 + 1442695040888963407) & MASK
        out[i] = (state >> 48) / 8192 - 4
    return torch.from_numpy(out)


class Recorder:
    """torch.log and torch.exp with their arguments kept."""

    def __init__(self):
        self.calls = {"log": {}, "exp": {}}

    def __enter__(self):
        self.real = {k: getattr(torch, k) for k in self.calls}
        for k in self.calls:
            setattr(torch, k, self.keeping(k))
        return self

    def __exit__(self, *_):
        for k, f in self.real.items():
            setattr(torch, k, f)

    def keeping(self, name):
        def call(x):
            y = self.real[name](x)
            if x.numel() == 1:
                self.calls[name][np.float32(x.item()).tobytes()] = np.float32(y.item())
            return y
        return call

    def differences(self, name):
        """-> arguments whose value is the next f32 above the nearest, and those below."""
        above, below = [], []
        for raw, got in self.calls[name].items():
            x = np.frombuffer(raw, np.float32)[0]
            with np.errstate(divide="ignore"):
                nearest = getattr(np, name)(np.float64(x)).astype(np.float32)
            if got == nearest:
                continue
            if got not in (np.nextafter(nearest, np.float32(np.inf)), np.nextafter(nearest, np.float32(-np.inf))):
                sys.exit(f"{name}({x!r}) is {got!r}, more than one f32 from {nearest!r}")
            (above if got > nearest else below).append(int(np.frombuffer(raw, np.uint32)[0]))
        return sorted(above), sorted(below)


def run(steps):
    s = DPMSolverMultistepScheduler.from_config(CONFIG)
    s.set_timesteps(steps)
    sigmas, times = s.sigmas.numpy(), s.timesteps.numpy()
    assert sigmas.dtype == np.float32 and times.dtype == np.int64 and len(sigmas) == steps + 1
    x, latents = numbers(steps, COUNT), b""
    for i, t in enumerate(s.timesteps):
        x = s.step(numbers(1000 * steps + i + 1, COUNT), t, x, return_dict=False)[0]
        assert x.dtype == torch.float32
        latents += x.numpy().tobytes()
    return sigmas, times, fnv1a(sigmas.tobytes() + times.astype(np.float32).tobytes()), fnv1a(latents)


def array(name, values):
    lines, line = [f"static const uint32_t {name}[] = {{"], "   "
    for v in values or [0]:
        item = f" 0x{v:08x},"
        if len(line) + len(item) > 118:
            lines.append(line)
            line = "   "
        line += item
    return "\n".join([*lines, line, "};"])


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("golden")
    p.add_argument("table")
    p.add_argument("--check", action="store_true")
    a = p.parse_args()
    torch.set_num_threads(1)
    import diffusers
    text = [f"# diffusers {diffusers.__version__}, torch {torch.__version__}, numpy {np.__version__}, made by scripts/dump_dpm.py",
            "config " + json.dumps(CONFIG)]
    with Recorder() as r:
        for n in STEPS:
            sigmas, times, table, latents = run(n)
            text.append(f"case {n} {table:016x} {latents:016x}")
            if n in LISTED:
                text.append(f"table {n} {' '.join(map(str, times))} | {' '.join(map(bits, sigmas))}")
    code = ["/* sched_dpm_table.c - see sched_dpm_table.h. Generated by scripts/dump_dpm.py; do not edit.",
            f" * Recording: torch {torch.__version__}, on the CPU. */",
            '#include "sched_dpm_table.h"', ""]
    for name in ("log", "exp"):
        above, below = r.differences(name)
        print(f"{name}: {len(r.calls[name])} arguments, {len(above)} above, {len(below)} below", file=sys.stderr)
        u = name.upper()
        code += [array(u + "_ABOVE", above), array(u + "_BELOW", below),
                 f"const SchedDpmFixes SCHED_DPM_{u} = {{{u}_ABOVE, {u}_BELOW, {len(above)}, {len(below)}}};", ""]
    for path, lines in ((a.golden, text + [""]), (a.table, code)):
        if a.check:
            with open(path) as f:
                same = f.read().split("\n")[3:] == "\n".join(lines).split("\n")[3:]
            print(f"{path}: {'the same' if same else 'DIFFERS'}")
        else:
            with open(path, "w") as f:
                f.write("\n".join(lines))


if __name__ == "__main__":
    main()
