#!/usr/bin/env python3
"""Packs recorded unary bf16 tables (scripts/record_unary.py) into src/kernels/unary_tables.c.

Stored are only the entries that differ from bf16(formula in double), and those whose exact value lies so
close to a rounding boundary that another libm could round it otherwise. The formulas are those of
src/kernels/unary.c. Also writes tests/golden/unary.sha256 (checksums of the full recordings with NaN
normalised to 0x7fc0) for tests/test_unary.c.

Easy to get wrong: the margin is relative to the value, not to the bf16 spacing.

    python3 scripts/pack_unary.py RECORDING_DIR [--out src/kernels/unary_tables.c] [--sums FILE]
"""
import argparse
import hashlib
import json
import math
import os
import sys

import numpy as np
from mpmath import mp, mpf                       # installed with torch (sympy)

mp.prec = 120
NAMES = ["silu", "gelu_tanh", "gelu_erf", "tanh", "sigmoid", "exp", "sin", "cos", "log", "sqrt", "rsqrt",
         "softplus", "pow3"]
MARGIN = mpf(2) ** -40
BIG = mpf(2) ** 128
MAX_BF16 = mpf(float(np.float32(3.3895313892515355e38)))


def to_bf16(v):
    """Nearest bf16 of an mpf (ties to even) -> (bits, True when a relative change of 2^-40 moves it)."""
    def nearest(a):
        if a == 0:
            return 0
        m, e = mp.frexp(a)
        unit = max(int(e) - 8, -133)
        n = mp.ldexp(a, -unit)
        r = int(mp.floor(n))
        rest = n - r
        if rest > 0.5 or (rest == 0.5 and r % 2):
            r += 1
        value = mp.ldexp(mpf(r), unit)
        if value > MAX_BF16:
            return 0x7f80
        return int(np.frombuffer(np.float32(float(value)).tobytes(), "<u4")[0]) >> 16
    sign = 0x8000 if v < 0 else 0
    a = abs(v)
    bits = {nearest(a), nearest(a * (1 - MARGIN)), nearest(a * (1 + MARGIN))}
    return sign | nearest(a), len(bits) > 1


def as_value(bits):
    return mpf(float(np.frombuffer(np.uint32(bits << 16).tobytes(), "<f4")[0]))


def exact(name, x):
    """The mathematical value at a finite non-zero x, or None for a NaN."""
    if name == "silu":
        return x / (1 + mp.exp(-x))
    if name == "tanh":
        return mp.tanh(x)
    if name == "sigmoid":
        return 1 / (1 + mp.exp(-x))
    if name == "exp":
        return mp.exp(x)
    if name == "sin":
        return mp.sin(x)
    if name == "cos":
        return mp.cos(x)
    if name == "log":
        return mp.log(x) if x > 0 else None
    if name == "sqrt":
        return mp.sqrt(x) if x > 0 else None
    if name == "rsqrt":
        return 1 / mp.sqrt(x) if x > 0 else None
    if name == "softplus":
        return x if x > 20 else mp.log1p(mp.exp(x)) if x > -60 else mp.exp(x)
    raise KeyError(name)


def bits_of_double(v):
    """bf16 bits of a double, directly (what the C code does); NaN -> 0x7fc0."""
    if np.isnan(v):
        return 0x7fc0
    if np.isinf(v) or v == 0:
        return (0x8000 if np.signbit(v) else 0) | (0x7f80 if np.isinf(v) else 0)
    return to_bf16(mpf(float(v)))[0]


def plain(name, xb):
    """What the C formula gives in double at input bits xb."""
    with np.errstate(all="ignore"):
        x = np.frombuffer(np.uint32(xb << 16).tobytes(), "<f4").astype(np.float64)[0]
        e = np.exp
        if name == "silu":
            return x / (1 + e(-x))
        if name in ("gelu_tanh", "gelu_erf"):
            return gelu(name, np.float32(x), 0.0)
        if name == "softplus":
            return x if x > 20 else np.log1p(e(x))
        if name == "sigmoid":
            return 1 / (1 + e(-x))
        if name == "rsqrt":
            return 1 / np.sqrt(x)
        if name == "pow3":
            square = bits_of_double(x * x)
            return np.float64(np.frombuffer(np.uint32(square << 16).tobytes(), "<f4")[0]) * x
        return getattr(np, name)(x)


def gelu(name, x, nudge):
    """The f32 steps of unary.c, with tanh or erf moved by a relative nudge before it is rounded to f32."""
    f = np.float32
    if name == "gelu_tanh":
        t = np.tanh(np.float64(f(0.79788456) * (x + f(0.044715) * (x * x * x))))
    else:
        t = math.erf(np.float64(x * f(0.70710678)))
    return np.float64(f(0.5) * x * (f(1) + f(t * (1 + nudge))))


def pack(name, table):
    """-> list of (in, out) to store, and the count that truly differs."""
    stored, differ = [], 0
    for b in range(65536):
        want = int(table[b])
        double_bits = bits_of_double(plain(name, b))
        if double_bits != want:
            stored.append((b, want))
            differ += 1
        elif b & 0x7f80 != 0x7f80 and b & 0x7fff and name != "pow3" and close(name, b, double_bits):
            stored.append((b, want))
    return stored, differ


def close(name, b, bits):
    """Could a libm with an error of 2^-40 give other bits?"""
    if name in ("gelu_tanh", "gelu_erf"):
        x = np.frombuffer(np.uint32(b << 16).tobytes(), "<f4")[0]
        with np.errstate(all="ignore"):
            return any(bits_of_double(gelu(name, x, n)) != bits for n in (-2.0 ** -40, 2.0 ** -40))
    v = exact(name, as_value(b))
    if v is None or v == 0:
        return False
    nearest, near = to_bf16(v)
    return near or nearest != bits


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("recording")
    p.add_argument("--out", default="src/kernels/unary_tables.c")
    p.add_argument("--sums", default="tests/golden/unary.sha256")
    args = p.parse_args()
    with open(os.path.join(args.recording, "unary.json")) as f:
        info = json.load(f)
    source = (f"torch {info['torch']}, CUDA {info['cuda']}, cuDNN {info['cudnn']}, driver {info['driver']}, "
              f"{info['gpu']}, {info['date']}")
    out = ["/* unary_tables.c - generated by scripts/pack_unary.py from a recording; do not edit.", " *",
           " * Recording: " + source + ".",
           " * Pairs {input bits, output bits} where PyTorch's kernel differs from the correctly rounded formula",
           " * of unary.c, and those too close to a rounding boundary to leave to the host's libm. */",
           '#include "kernels/unary.h"', ""]
    sums, rows = [], []
    for name in NAMES:
        raw = open(os.path.join(args.recording, name + ".u16"), "rb").read()
        if hashlib.sha256(raw).hexdigest() != info["files"][name]["sha256"]:
            sys.exit(f"pack_unary: {name}.u16 does not match unary.json")
        t = np.frombuffer(raw, "<u2").copy()
        t[(t & 0x7fff) > 0x7f80] = 0x7fc0
        sums.append(f"{hashlib.sha256(t.astype('<u2').tobytes()).hexdigest()}  {name}")
        stored, differ = pack(name, t)
        print(f"{name}: {differ} differ, {len(stored)} stored", file=sys.stderr)
        rows.append((name, len(stored)))
        if stored:
            out.append(f"static const UnaryFix FIX_{name.upper()}[] = {{ /* {differ} differ */")
            line = "   "
            for a, b in stored:
                item = f" {{0x{a:04x}, 0x{b:04x}}},"
                if len(line) + len(item) > 108:
                    out.append(line)
                    line = "   "
                line += item
            out += [line, "};", ""]
    out.append("const UnaryFixes unary_tables_fixes[UNARY_COUNT] = {")
    for name, n in rows:
        out.append(f"    [UNARY_{name.upper()}] = {{{'FIX_' + name.upper() if n else '0'}, {n}}},")
    out += ["};", "", "const char unary_tables_source[] =", f'    "{source}";', ""]
    with open(args.out, "w") as f:
        f.write("\n".join(out))
    with open(args.sums, "w") as f:
        f.write("\n".join(sums) + "\n")
    print(f"{args.out}: {os.path.getsize(args.out)} bytes", file=sys.stderr)


if __name__ == "__main__":
    main()
