#!/usr/bin/env python3
"""Times ditto's encode against the tokenizers library on one text of 1 MB, one thread, best of five.

Two texts: prose in many scripts with few repeats (words drawn from the vocabulary and from random letters),
and plain English-like prompts whose words repeat. Loading is not timed. Easy to get wrong: the library keeps
a cache of words between calls; a fresh tokenizer is timed first, then the same one again.

Usage: bench_tokenizers.py --tool PROGRAM FOLDER...   (PROGRAM is called as `PROGRAM bench FOLDER TEXT 5`)
"""
import argparse
import os
import random
import subprocess
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"

from tokenizers import Tokenizer  # noqa: E402


def reference(folder):
    path = os.path.join(folder, "tokenizer.json")
    if os.path.exists(path):
        return Tokenizer.from_file(path)
    from transformers import CLIPTokenizer

    return CLIPTokenizer.from_pretrained(folder).backend_tokenizer


def texts(pieces):
    r = random.Random(3)
    letters = "abcdefghijklmnopqrstuvwxyz"
    plain = [p.strip("▁Ġ").replace("</w>", "") for p in pieces if p.strip("▁Ġ").replace("</w>", "").isascii()]
    plain = [p for p in plain if p.isalpha() and len(p) > 1]
    rare = [p.replace("▁", " ").replace("</w>", " ") for p in pieces]
    weights = [1.0 / (i + 1) for i in range(len(plain))]
    yield "prompts", " ".join(w + r.choice([",", "", "", ".", ""]) for w in r.choices(plain, weights, k=250000))
    mixed = (r.choice(rare) + " " if r.random() < 0.5 else "".join(r.choices(letters, k=r.randrange(3, 12))) + " " for _ in range(250000))
    yield "mixed", "".join(mixed)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--tool", required=True)
    p.add_argument("folders", nargs="+")
    a = p.parse_args()
    for folder in a.folders:
        for name, text in texts(sorted(reference(folder).get_vocab())):
            text = text.encode()[:1000000].decode(errors="ignore")
            with tempfile.NamedTemporaryFile("w", suffix=".txt") as f:
                f.write(text)
                f.flush()
                out = subprocess.run([a.tool, "bench", folder, f.name, "5"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
            mine = [float(line.split(", ")[2].split()[0]) for line in out.stdout.strip().split("\n")]
            count = int(out.stdout.split(", ")[1].split()[0])
            first, again = [], []
            for _ in range(3):
                hf = reference(folder)
                for times in (first, again):
                    began = time.perf_counter()
                    ids = hf.encode(text).ids
                    times.append(1e3 * (time.perf_counter() - began))
            assert len(ids) == count, "different number of ids"
            print("%s %s: %d bytes, %d ids: ditto %.0f ms, library %.0f ms cold, %.0f ms warm"
                  % (folder, name, len(text.encode()), count, min(mine), min(first), min(again)))


if __name__ == "__main__":
    main()
