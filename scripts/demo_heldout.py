"""demo_heldout.py - proves that no held-out set of objects occurs in training, and writes the held-out prompts.

usage: demo_heldout.py [--check | --write] [tests/demo_prompts.tsv]      (default: --check; needs numpy only)

Draws the training table anew (it is a function of a seed, see demo_scenes.py), compares its digest with the one that
the trainer printed, and checks three ways: no set in it satisfies the held-out rule; no set of the prompts file is in
it; every word of the prompts occurs in training captions. Exit 1 when anything is off. Easy to get wrong: sets, not
lists: the order of mention and the background do not count.
"""

import itertools
import random
import sys

import numpy as np

import demo_scenes as d

PROMPTS = 100
TRAIN_DIGEST = "2054aca7b61c0804ea3c234b59a538663ad88a6f9c246fb4604b9995d57a04b6"  # as the trainer printed it
HEADER = "# seed, expected scene, prompt: held-out sets of objects, written by scripts/demo_heldout.py\n"


def keys(codes):
    """Sets as sorted tuples of codes without NONE."""
    return {tuple(int(c) for c in row if c != d.NONE) for row in np.unique(np.sort(codes, axis=1), axis=0)}


def prompts():
    rng = random.Random(7)
    background, codes = d.test_table(PROMPTS)
    return codes, [(i, d.describe(background[i], codes[i]),
                    d.caption(rng, background[i], codes[i], phrasing=i % d.PHRASINGS, full=True))
                   for i in range(PROMPTS)]


def count_sets():
    """(all, held out) sets of one, two and three objects, by walking through all of them."""
    out = []
    for n in (1, 2, 3):
        total = held = 0
        for places in itertools.combinations(range(len(d.PLACES)), n):
            grid = np.stack(np.meshgrid(*[np.arange(48) + 48 * p for p in places], indexing="ij"), -1).reshape(-1, n)
            codes = np.full((len(grid), 3), d.NONE)
            codes[:, :n] = grid
            total, held = total + len(grid), held + int(d.held_out(codes).sum())
        out.append((total, held))
    return out


def main():
    args = [a for a in sys.argv[1:] if a not in ("--check", "--write")]
    path = args[0] if args else "tests/demo_prompts.tsv"
    background, codes = d.train_table()
    digest = d.table_digest(background, codes)
    train = keys(codes)
    test_codes, rows = prompts()
    test = keys(test_codes)
    for n, (total, held) in enumerate(count_sets(), 1):
        seen = sum(len(k) == n for k in train)
        print(f"sets of {n}: {total} exist, {held} held out ({100 * held / total:.2f} %), {seen} in training")
    spoken = set()
    rng = random.Random(1)
    for i in range(4000):
        spoken |= set(d.caption(rng, background[i], codes[i]).lower().strip(".").replace(",", " ").replace(";", " ")
                      .replace(":", " ").replace(".", " ").split())
    words = {w for _, _, text in rows for w in text.replace(",", " ").replace(";", " ").replace(":", " ")
             .replace(".", " ").lower().split()}
    text = HEADER + "".join(f"{i}\t{scene}\t{prompt}\n" for i, scene, prompt in rows)
    if "--write" in sys.argv:
        open(path, "w").write(text)
    checks = [("the training table is the one that was trained on", digest == TRAIN_DIGEST),
              (f"none of {len(codes)} training scenes has a held-out set", not d.held_out(codes).any()),
              (f"the {len(test)} sets of the prompts are held out", bool(d.held_out(test_codes).all()) and len(test) == PROMPTS),
              ("no set of the prompts occurs in training", not (test & train)),
              ("every word of the prompts occurs in training", words <= spoken),
              (f"{path} holds these prompts", open(path).read() == text)]
    for what, good in checks:
        print("ok  " if good else "FAIL", what)
    failed = sum(not good for _, good in checks)
    print(f"{len(checks) - failed} passed, {failed} failed")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
