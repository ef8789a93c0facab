"""demo_heldout.py - proves that no held-out set of objects occurs in training, and writes the held-out prompts.

usage: demo_heldout.py [--check | --write] [tests/demo_prompts.tsv]      (default: --check; needs numpy only)
       demo_heldout.py --clips [--check | --write] [tests/demo_clips.tsv]

Draws the training table anew (it is a function of a seed, see demo_scenes.py), compares its digest with the one that
the trainer printed, and checks three ways: no set in it satisfies the held-out rule; no set of the prompts file is in
it; every word of the prompts occurs in training captions. Exit 1 when anything is off. Clips (demo_clips.py) have one object: the
same three ways, an object in a set's stead. Easy to get wrong: sets, not lists: the order of mention and the background do
not count.
"""

import itertools
import random
import sys

import numpy as np

import demo_clips as c
import demo_scenes as d

PROMPTS = 100
TRAIN_DIGEST = "2054aca7b61c0804ea3c234b59a538663ad88a6f9c246fb4604b9995d57a04b6"  # as the trainer printed it
CLIPS_DIGEST = "f5f5cb3a7663681ba379fa7e5dd7ebf35d406aa59f8dc299174da26953aa37a8"  # likewise
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


def words(texts):
    return {w for t in texts for w in t.lower().translate(str.maketrans(",;:.", "    ")).split()}


def finish(path, text, checks):
    if "--write" in sys.argv:
        open(path, "w").write(text)
    checks = [*checks, (f"{path} holds these prompts", open(path).read() == text)]
    for what, good in checks:
        print("ok  " if good else "FAIL", what)
    failed = sum(not good for _, good in checks)
    print(f"{len(checks) - failed} passed, {failed} failed")
    sys.exit(failed > 0)


def clips(path):
    background, codes = c.train_table()
    digest, rows, rng = d.table_digest(background, codes), c.test_prompts(PROMPTS), random.Random(1)
    test, held = {code for _, code, _, _ in rows}, sum(map(c.held_out, range(c.CODES)))
    print(f"objects: {c.CODES} exist, {held} held out, {len(set(codes.tolist()))} in training; digest {digest}")
    spoken = words(c.caption(rng, background[i], codes[i]) for i in range(4000))
    text = HEADER.replace("sets of objects", "objects") + "".join(
        f"{i}\t{c.describe(b, code, bare)}\t{prompt}\n" for i, (b, code, bare, prompt) in enumerate(rows))
    finish(path, text, [
        ("the training table is the one that was trained on", digest == CLIPS_DIGEST),
        (f"none of {len(codes)} training clips has a held-out object", not c.held_out(codes).any()),
        (f"the {len(test)} objects of the prompts are held out", all(map(c.held_out, test)) and len(rows) == PROMPTS),
        ("no object of the prompts occurs in training", not test & set(codes.tolist())),
        ("every word of the prompts occurs in training", words(r[3] for r in rows) <= spoken)])


def main():
    args = [a for a in sys.argv[1:] if a not in ("--check", "--write", "--clips")]
    if "--clips" in sys.argv:
        clips(args[0] if args else "tests/demo_clips.tsv")
    path = args[0] if args else "tests/demo_prompts.tsv"
    background, codes = d.train_table()
    digest = d.table_digest(background, codes)
    train = keys(codes)
    test_codes, rows = prompts()
    test = keys(test_codes)
    for n, (total, held) in enumerate(count_sets(), 1):
        seen = sum(len(k) == n for k in train)
        print(f"sets of {n}: {total} exist, {held} held out ({100 * held / total:.2f} %), {seen} in training")
    rng = random.Random(1)
    spoken = words(d.caption(rng, background[i], codes[i]) for i in range(4000))
    text = HEADER + "".join(f"{i}\t{scene}\t{prompt}\n" for i, scene, prompt in rows)
    finish(path, text, [
        ("the training table is the one that was trained on", digest == TRAIN_DIGEST),
        (f"none of {len(codes)} training scenes has a held-out set", not d.held_out(codes).any()),
        (f"the {len(test)} sets of the prompts are held out", bool(d.held_out(test_codes).all()) and len(test) == PROMPTS),
        ("no set of the prompts occurs in training", not (test & train)),
        ("every word of the prompts occurs in training", words(r[2] for r in rows) <= spoken)])


if __name__ == "__main__":
    main()
