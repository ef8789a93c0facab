#!/usr/bin/env python3
"""What depends on the prompts of a Z-Image folder: a short table of three figures.

    python3 scripts/bench_prompts.py -m MODEL --out tests/gpu-results/zimage-prompts.txt [--bin ./ditto] [--device cuda]
                                     [-W 1024 -H 1024 --steps 8] [--jobs 50] [--rounds 3] [--quality-prompts 10]
                                     [--prompts FILE] [--only WHAT ...]

  mixed    seconds of a batch of prompts whose captions are padded to 32, 64, 96, 128 and 160 rows, over those of as many prompts
           of 96; the two take turns, loading is left out of both; the goal is 1.05 at most
  text     milliseconds of the text encoder alone on a prompt of 64 tokens (ditto bench text); the goal is 25 at most
  quality  `--quality high` against `lossless` over different prompts and seeds (ditto ab --prompts): PSNR of the last latents and
           of the pixels in dB; the goal is 40 at least. With random weights only the latents mean something. --prompts: lines of
           FILE, what stands behind the last tab of each, in place of made up ones. For FLUX.1's folders too

Exit code 1: a figure misses its goal. Easy to get wrong: prompts are distinct, or their texts would be remembered; a length is
counted by the model's own tokenizer. Nothing else may run on the GPU.
"""
import argparse
import bisect
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time

ROWS = (32, 64, 96, 128, 160)
WORDS = ("lighthouse dusk waves mist lamp boat harbour stone bridge river garden window street market winter summer cloud forest "
         "mountain valley silver golden quiet narrow ancient little yellow green paper glass wooden bright").split()


def run(a, *words):
    done = subprocess.run([a.bin, *words], capture_output=True, text=True)
    if done.returncode > 1:
        raise SystemExit(f"{' '.join(words[:2])}: exit {done.returncode}: {done.stderr.strip()[-400:]}")
    return done.stdout


def tokens(a, prompt):
    return json.loads(run(a, "tokens", "-m", a.model, "-p", prompt).splitlines()[0])["used"]


def words_for(a, rows):
    """So many words that a caption of them is padded to `rows`: its tokens lie in the middle of the last 32."""
    draw = random.Random(rows)
    words = [draw.choice(WORDS) for _ in range(rows)]
    return bisect.bisect_left(range(rows), rows - 16, key=lambda n: tokens(a, " ".join(words[:n])))


def prompts(path, counts, jobs):
    """Distinct prompts, as many words as counts say in turn."""
    with open(path, "w") as f:
        for i in range(jobs):
            draw = random.Random(1000 + i)
            words = [draw.choice(WORDS) for _ in range(max(1, counts[i % len(counts)]))]
            f.write(json.dumps({"prompt": " ".join(words), "seed": i}) + "\n")


def batch(a, work, name, jobs):
    out, report = (os.path.join(work, name + end) for end in ("", ".json"))
    run(a, "batch", jobs, "--out", out, "--report", report, "-q", "-y", *a.options)
    with open(report) as f:
        s = json.load(f)["batch"]["seconds"]
    for file in os.listdir(out):
        os.remove(os.path.join(out, file))
    return s["all"] - s["open"]


def mixed(a, work):
    counts = {rows: words_for(a, rows) for rows in ROWS}
    files = {"mixed": list(counts.values()), "equal": [counts[96]]}
    for name, words in files.items():
        prompts(os.path.join(work, name + ".jsonl"), words, a.jobs)
    prompts(os.path.join(work, "warm.jsonl"), files["mixed"], len(ROWS))
    batch(a, work, "warm", os.path.join(work, "warm.jsonl"))
    times = {name: [] for name in files}
    for _ in range(a.rounds):
        for name in files:
            times[name].append(batch(a, work, name, os.path.join(work, name + ".jsonl")))
    got = {name: statistics.median(t) for name, t in times.items()}
    ratio = got["mixed"] / got["equal"]
    return ratio <= 1.05, (f"mixed    {a.jobs} prompts of {', '.join(map(str, ROWS))} rows: {got['mixed']:.3f} s; of 96: {got['equal']:.3f} s; "
                           f"ratio {ratio:.3f} (goal 1.05; {a.rounds} runs each, spread {spread(times['mixed'])}, {spread(times['equal'])})")


def spread(values):
    return f"{min(values):.3f} to {max(values):.3f}"


def text(a):
    r = json.loads(run(a, "bench", "text", "-m", a.model, "--device", a.device, "--runs", str(a.text_runs)).splitlines()[-1])
    return r["value"] <= 25, (f"text     encoder alone, 64 tokens: {r['value']:.2f} ms ({r['min']:.2f} to {r['max']:.2f}, {r['runs']} runs; goal 25)")


def quality(a, work):
    path = os.path.join(work, "ten.txt")
    lines = []
    if a.prompts:
        with open(a.prompts) as f:
            lines = [line.rstrip("\n").split("\t")[-1] for line in f if line.strip()][:a.quality_prompts]
    with open(path, "w") as f:
        f.writelines(line + "\n" for line in lines)
        for i in range(len(lines), a.quality_prompts):
            draw = random.Random(i)
            f.write(f"a {draw.choice(WORDS)} {draw.choice(WORDS)} by the {draw.choice(WORDS)}, number {i + 1}\n")
    r = json.loads(run(a, "ab", "--prompts", path, "--a", "--quality lossless", "--b", "--quality high", "--seed", "1", "--json", "-q",
                       *a.options))
    lines, good = [], True
    for stage in ("latents", "pixels"):
        found = [p[stage + "_psnr"] for p in r["prompts"]]
        finite = [v for v in found if v != "inf"]
        least = min(finite) if finite else float("inf")
        good &= least >= 40
        shown = f"{least:.1f} dB at least, {statistics.mean(finite):.1f} on average" if finite else "equal in all"
        lines.append(f"quality  high against lossless, {stage}: {shown}; {len(found) - len(finite)} of {len(found)} equal (goal 40)")
    return good, "\n".join(lines)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("-m", "--model", required=True)
    p.add_argument("--out", help="also write the table there")
    p.add_argument("--bin", default="./ditto")
    p.add_argument("--device", default="cuda")
    p.add_argument("-W", "--width", type=int, default=1024)
    p.add_argument("-H", "--height", type=int, default=1024)
    p.add_argument("--steps", type=int, default=8)
    p.add_argument("--jobs", type=int, default=50)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--text-runs", type=int, default=10)
    p.add_argument("--quality-prompts", type=int, default=10)
    p.add_argument("--prompts")
    p.add_argument("--only", choices=("mixed", "text", "quality"), action="append")
    a = p.parse_args()
    a.bin = os.path.abspath(a.bin)
    a.options = ["-m", a.model, "--device", a.device, "-W", str(a.width), "-H", str(a.height), "--steps", str(a.steps)]
    profile = json.loads(run(a, "bench", "text", "-m", a.model, "--device", a.device, "--runs", "1", "--warmup", "0").splitlines()[-1])
    name = re.sub(r"^.*/", "", os.path.abspath(a.model))
    rows = [f"# {time.strftime('%Y-%m-%d', time.gmtime())} {profile['gpu'] or profile['profile']}; {profile['profile']}; commit "
            f"{os.environ.get('COMMIT', 'unknown')}", f"# {name}, {a.width}x{a.height}, {a.steps} steps, bf16"]
    good = True
    with tempfile.TemporaryDirectory() as work:
        for what, measure in (("mixed", lambda: mixed(a, work)), ("text", lambda: text(a)), ("quality", lambda: quality(a, work))):
            if a.only and what not in a.only:
                continue
            met, row = measure()
            good &= met
            rows.append(row)
            print(row, file=sys.stderr, flush=True)
    table = "\n".join(rows) + "\n"
    if a.out:
        with open(a.out, "w") as f:
            f.write(table)
    print(table, end="")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
