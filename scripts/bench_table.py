#!/usr/bin/env python3
"""Writes README.md's table of GPU figures from tests/gpu-results/bench.jsonl: the newest line of each name.

    python3 scripts/bench_table.py [--check]      --check: exit 1 when README.md is not what would be written

Between the two markers nothing is written by hand. Easy to get wrong: milliseconds of different runs are not comparable, the
card's clock follows its power; the ratios to the peers of the same line are.
"""
import json
import os
import sys

BEGIN, END = "<!-- bench.jsonl begins -->\n", "<!-- bench.jsonl ends -->\n"
WHAT = {
    "flux_step_lossless_ms": "FLUX.1-dev 1024x1024, a step, lossless", "flux_step_high_ms": "the same, high",
    "flux_e2e28_s": "FLUX.1-dev, 28 steps, start to PNG, page cache warm", "flux_load_s": "FLUX.1-dev's transformer to the GPU",
    "flux_peak_gib": "FLUX.1-dev, peak GPU memory", "vae_kl_1024_lossless_ms": "KL decoder 1024x1024, lossless",
    "vae_kl_1024_high_ms": "the same, high", "zimage_step_lossless_ms": "Z-Image 1024x1024, a step, lossless",
    "zimage_step_high_ms": "the same, high", "zimage_e2e8_ms": "Z-Image-Turbo, 8 steps, prompt to PNG, weights in place",
    "sana81_step_lossless_ms": "SANA-Video 832x480, 81 frames, a step with guidance, lossless", "sana81_step_high_ms": "the same, high",
    "sana17_step_lossless_ms": "SANA-Video, 17 frames, lossless", "sana17_step_high_ms": "SANA-Video, 17 frames, high",
    "vae_wan_81_lossless_ms": "Wan decoder 832x480, 81 frames, bf16, lossless", "vae_wan_81_high_ms": "the same, high",
    "vae_wan_81_f32_ms": "the same in f32 (TF32 convolutions), lossless",
    "sana81_e2e8_lossless_ms": "SANA-Video, 81 frames, 8 steps, prompt to MP4, lossless", "sana81_e2e8_high_ms": "the same, high",
    "zimage_text_ms": "Z-Image's text encoder alone, 64 tokens",
    "ltx2_step_lossless_ms": "LTX-2 768x512, 121 frames, a step with guidance (two passes), lossless", "ltx2_step_high_ms": "the same, high",
    "ltx2_two40_lossless_ms": "LTX-2 768x512, 121 frames with sound, two rounds of 40 and 3 steps, prompt to MP4, lossless",
    "ltx2_two40_high_ms": "the same, high", "ltx2_text_ms": "LTX-2's text encoder and connectors, two texts of 1024 rows",
    "vae_ltx2_121_lossless_ms": "LTX-2's decoders, 121 frames and sound, lossless", "vae_ltx2_121_high_ms": "the same, high",
    "resgate_t_us": "residual gate, transposed, 7800x2240", "resgate_us": "residual gate 4096x3072",
    "ln_mod_us": "LayerNorm + modulation 4096x3072"}
PEERS = {"diffusers_eager": "diffusers", "diffusers_compiled": "diffusers compiled", "diffusers_channels_last": "diffusers, channels last",
         "pinned_copy": "pinned copy", "diffusers_from_pretrained": "from_pretrained", "plan": "the plan", "reference": "our unfused kernels"}


def table(path):
    newest = {}
    with open(path) as f:
        for line in f:
            row = json.loads(line)
            newest[row["name"]] = row
    out = ["| what | ours (min to max, runs) | beside it in the same run | where | date, commit |", "| --- | --- | --- | --- | --- |"]
    for name in [n for n in WHAT if n in newest] + sorted(n for n in newest if n not in WHAT):
        r = newest[name]
        peers = "; ".join(f"{PEERS[k]} {v:g} ({r['value'] / v:.2f}x)" for k, v in r["peers"].items() if k in PEERS and v)
        what = WHAT.get(name, name) + (" (ends with the frames: no libav there)" if r.get("end") == "frames" else "")
        out.append(f"| {what} | {r['value']:g} {r['unit']} ({r['min']:g} to {r['max']:g}, {r['runs']}) | {peers} | "
                   f"{r['gpu']}, cuBLAS {r['cublas']}, cuDNN {r['cudnn']} | {r['date']}, {r['commit']} |")
    return "\n".join(out) + "\n"


def main():
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    path, readme = os.path.join(root, "tests/gpu-results/bench.jsonl"), os.path.join(root, "README.md")
    with open(readme) as f:
        text = f.read()
    if BEGIN not in text or END not in text:
        sys.exit("bench_table.py: README.md has no markers")
    head, tail = text.split(BEGIN)[0], text.split(END)[1]
    new = head + BEGIN + (table(path) if os.path.exists(path) else "") + END + tail
    if "--check" in sys.argv:
        sys.exit(new != text and "README.md: its table is not what tests/gpu-results/bench.jsonl says: python3 scripts/bench_table.py")
    with open(readme, "w") as f:
        f.write(new)


if __name__ == "__main__":
    main()
