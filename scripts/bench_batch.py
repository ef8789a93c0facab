#!/usr/bin/env python3
"""What a batch costs on this machine: wall time against single pictures, and how much of it the GPU works.

    python3 scripts/bench_batch.py -m MODEL [--bin ./ditto] [-W 512 -H 512 --steps 4] [--jobs 20] [--device cuda]
                                   [--gpu-busy gpu_busy.so [--busy-only]]

Prints one JSON object:
  overhead    wall time of the batch without opening the model, over the sum of its jobs' encode, denoise and decode
  single      seconds of a picture in a warm process that does one thing after the other: the second of `generate --count 2`
              (plan, denoise, decode, write), and its own text, which the batch's encoders took
  batch       seconds a picture costs more in a longer batch: (jobs pictures - jobs / 2 pictures) / (jobs / 2)
  speedup     single / batch, loading left out of both
  given       share of the time from the first denoising step to the last one's end that passed in encoders, steps and decoders
  kernels     with --gpu-busy (tests/gpu_busy.c, compiled as its head says): share of that time in which a kernel ran, the
              union over all; copies too in kernels_and_copies

Easy to get wrong: prompts are distinct, or their texts would be remembered. Recording kernels slows a run down, so that run
is a separate one. Nothing else may run on the GPU.
"""
import argparse
import json
import os
import subprocess
import tempfile
import time


def prompts(path, count):
    with open(path, "w") as f:
        for i in range(count):
            f.write(json.dumps({"prompt": "picture %d of a long row of houses by the sea, number %d" % (i, i * 7919), "seed": i}) + "\n")


def run(command, **environment):
    start = time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=dict(os.environ, **environment))
    return time.monotonic() - start


def batch(a, work, count, name, **environment):
    jobs, out, report = (os.path.join(work, name + end) for end in (".jsonl", "", ".json"))
    prompts(jobs, count)
    wall = run([a.bin, "batch", jobs, "--out", out, "--report", report, "-q"] + a.options, **environment)
    with open(report) as f:
        return wall, json.load(f)


def union(intervals, window):
    """Nanoseconds of the window that the intervals cover."""
    covered, end = 0, window[0]
    for a, b in sorted(intervals):
        a, b = max(a, end), min(b, window[1])
        if b > a:
            covered += b - a
            end = b
    return covered


def kernels(path, window):
    nanoseconds = [int(window["from"] * 1e9), int(window["to"] * 1e9)]
    kinds = {"k": [], "c": []}
    with open(path) as f:
        for line in f:
            kind, a, b = line.split()
            kinds[kind].append((int(a), int(b)))
    length = nanoseconds[1] - nanoseconds[0]
    return {"kernels": union(kinds["k"], nanoseconds) / length,
            "kernels_and_copies": union(kinds["k"] + kinds["c"], nanoseconds) / length, "recorded": len(kinds["k"])}


def against_single(a, work):
    report = os.path.join(work, "single.json")
    single_run = [a.bin, "generate", "-p", "a house by the sea", "--seed", "1", "--count", "2", "-q", "-o", work + "/",
                  "--report", report] + a.options
    run(single_run + ["-y"])  # files into the page cache
    run(single_run + ["-y"])
    with open(report) as f:
        second = json.load(f)["pictures"][1]["seconds"]
    short, _ = batch(a, work, a.jobs - a.jobs // 2, "short")
    wall, r = batch(a, work, a.jobs, "whole")
    pictures = r["models"][0]["pictures"]
    text = sorted(q["seconds"]["text"] for q in pictures)[len(pictures) // 2]
    seconds = r["batch"]["seconds"]
    single = second["plan"] + text + second["denoise"] + second["decode"] + second["write"]
    each = (wall - short) / (a.jobs // 2)
    return {"wall": wall, "seconds": seconds,
            "overhead": (wall - seconds["open"]) / (seconds["text"] + seconds["denoise"] + seconds["decode"]),
            "single": single, "batch": each, "speedup": single / each, "given": r["batch"]["window"]["share"]}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("-m", "--model", required=True)
    p.add_argument("--bin", default="./ditto")
    p.add_argument("-W", "--width", type=int, default=512)
    p.add_argument("-H", "--height", type=int, default=512)
    p.add_argument("--steps", type=int, default=4)
    p.add_argument("--jobs", type=int, default=20)
    p.add_argument("--device", default="cuda")
    p.add_argument("--gpu-busy")
    p.add_argument("--busy-only", action="store_true", help="nothing but the share of time in which a kernel ran")
    a = p.parse_args()
    a.options = ["-m", a.model, "--device", a.device, "-W", str(a.width), "-H", str(a.height), "--steps", str(a.steps)]
    if a.busy_only and not a.gpu_busy:
        p.error("--busy-only needs --gpu-busy")
    found = {"model": a.model, "size": [a.width, a.height], "steps": a.steps, "jobs": a.jobs}
    with tempfile.TemporaryDirectory() as work:
        if not a.busy_only:
            found.update(against_single(a, work))
        if a.gpu_busy:
            times = os.path.join(work, "times")
            _, r = batch(a, work, a.jobs, "busy", CUDA_INJECTION64_PATH=os.path.abspath(a.gpu_busy), GPU_BUSY=times)
            found.update(kernels(times, r["batch"]["window"]))
            found["given_while_recording"] = r["batch"]["window"]["share"]
    print(json.dumps(found))


if __name__ == "__main__":
    main()
