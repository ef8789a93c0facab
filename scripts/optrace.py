#!/usr/bin/env python3
"""At which op two runs part: the results of PyTorch's functions beside those of ditto's ops, by their bits.

    ./ditto generate … --families none --trace OURS
    python3 scripts/dump_reference.py MODEL DIR … --trace REFERENCE        # writes REFERENCE and REFERENCE.rows.npy
    python3 scripts/optrace.py OURS REFERENCE [--all]

Of each tensor that an op of ours wrote (src/optrace.h): "whole" where a function of PyTorch's made the same elements, in whatever order,
and its name; otherwise how many of its rows are rows of some result of PyTorch's. Printed are the first 40 that are not whole, with two
lines before each run of them, or all. Behind the first one that is at fault the rest follows from it.

Easy to get wrong: zeros are like any other zeros; what ditto leaves out or keeps in one op (rows of padding, tables of half the width)
is in no result of PyTorch's, so the first line that is not whole need not be the fault; rows of real tokens tell.
"""
import argparse
import collections

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

SIZES = {1: torch.uint8, 2: torch.int16, 4: torch.int32}
NAMES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.int32: "I32", torch.uint8: "U8"}
ITEMS, ROWS, DIGITS = 8, 2048, 12


def signed(v):
    return v - (1 << 64) if v >= 1 << 63 else v


def mixed(t):
    """mix() of src/optrace.h of each element, as int64 with the same bits."""
    size = t.element_size()
    x = (t.contiguous().view(SIZES[size]).long() & ((1 << 8 * size) - 1)) + 1
    x = x * signed(0x9E3779B97F4A7C15)
    x ^= (x >> 29) & ((1 << 35) - 1)
    return x * signed(0xBF58476D1CE4E5B9)


def text(v):
    return f"{int(v) & ((1 << 64) - 1):016x}"


class Trace(TorchDispatchMode):
    """Writes a line for every tensor that a function made anew, and the hashes of all its rows, whatever dimension they are."""

    def __init__(self, path):
        super().__init__()
        self.path, self.file, self.rows = path, open(path, "w"), []

    def __exit__(self, *rest):
        r = super().__exit__(*rest)
        self.file.close()
        np.save(self.path + ".rows.npy", np.unique(np.concatenate(self.rows)) if self.rows else np.zeros(0, np.int64))
        return r

    def see(self, name, i, t):
        items = mixed(t.detach())[None]
        if t.dim() > 2 and t.shape[0] <= ITEMS:
            items = items[0]                                  # of a batch
        for value in {int(items.sum()), *items.flatten(1).sum(1).tolist()}:
            print(name, i, NAMES[t.dtype], "x".join(map(str, t.shape)), text(value), sep="\t", file=self.file)
        for d in range(1, items.dim()):
            if 1 < items.shape[d] <= ROWS:
                others = [k for k in range(1, items.dim()) if k != d]
                self.rows.append((items.sum(others) if others else items).flatten().cpu().numpy() >> 16)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if not func.is_view:
            for i, t in enumerate(out if isinstance(out, (tuple, list)) else (out,)):
                if torch.is_tensor(t) and t.dtype in NAMES and t.numel() > 1:
                    self.see(func.name().removeprefix("aten::"), i, t)
        return out


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("ours")
    p.add_argument("reference")
    p.add_argument("--all", action="store_true")
    a = p.parse_args()
    with open(a.reference) as f:
        made = {row[4]: row[0] for row in (line.rstrip("\n").split("\t") for line in f)}
    rows = set((np.load(a.reference + ".rows.npy") & ((1 << 48) - 1)).tolist())
    count, missing, last, printed = 0, collections.Counter(), -1, 0
    before = collections.deque(maxlen=2)
    with open(a.ours) as f:
        for k, line in enumerate(f):
            phase, op, variant, i, dtype, shape, whole, each = line.rstrip("\n").split("\t")
            if whole in made:
                found = "whole: " + made[whole]
            else:
                own = [int(each[n:n + DIGITS], 16) for n in range(0, len(each), DIGITS)]
                found = f"{sum(v in rows for v in own)} of {len(own)} rows" if own else "not"
                missing[op] += 1
            count += 1
            said = f"{k} {phase} {op} {variant} {i} {dtype} {shape}: {found}"
            if whole not in made and (a.all or printed < 40):
                for other in before if last != k - 1 else ():
                    print(other)
                print(said)
                last, printed = k, printed + 1
                before.clear()
            else:
                before.append(said)
    print(f"{count} results of ditto's, {missing.total()} are no results of PyTorch's:", dict(missing.most_common()))


if __name__ == "__main__":
    main()
