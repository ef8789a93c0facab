#!/usr/bin/env python3
"""A condition picture's way through H.264 (--image-crf): ditto's bytes beside those of diffusers, which goes through PyAV.

    ./build/release/tests/test_ltx2 --write DIR
    python3 scripts/compare_image_crf.py DIR [--ditto ./ditto] [--sizes 38x60,...] [--crf 33,18]     # needs PyAV: pip install av
    python3 scripts/compare_image_crf.py --golden tests/golden       # what test_av_recode compares with

Pictures are drawn here (colours that run into each other, edges, noise) and stored as PNG; ditto's come out of --dump. Prints the
libraries of PyAV and a line a picture; fails where a byte differs. ditto's own libraries are the machine's (ffmpeg -version).

Easy to get wrong: PyAV brings its own FFmpeg and x264, so equal bytes are equal over releases; libswscale's colours depend on the
CPU's vectors, so both must run on one machine.
"""
import argparse
import os
import subprocess
import sys
import tempfile

import numpy as np
from PIL import Image

SIZES = "38x60,64x64,96x40,7x5,333x201,853x480,1279x721,1920x1080"


def picture(width, height, seed):
    g = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width] / 40.0
    planes = [np.sin(x * g.uniform(0.3, 2) + y * g.uniform(0.3, 2) + g.uniform(0, 6)) for _ in range(3)]
    p = np.stack(planes, -1) * 90 + 128 + g.normal(0, 6, (height, width, 3))
    p[height // 3:height // 2, width // 4:width // 2] = (250, 20, 30)
    return p.clip(0, 255).astype(np.uint8)


def through_pyav(rgb, crf):
    from diffusers.pipelines.ltx2 import utils
    utils.is_av_available = lambda: True     # it may lie in a folder of its own, which diffusers does not look into
    return utils.apply_image_conditioning_crf(rgb, crf)


def through_ditto(a, rgb, crf, folder):
    from safetensors.numpy import load_file
    Image.fromarray(rgb).save(f"{folder}/p.png")
    subprocess.run([a.ditto, "generate", "-m", a.model, "--device", "cpu", "-q", "-y", "-W", "64", "-H", "64", "--frames", "9",
                    "--steps", "2", "--max-sequence-length", "16", "--stg-scale", "0", "--audio-stg-scale", "0", "-p", "x", "-i",
                    f"{folder}/p.png", "--image-crf", str(crf), "--dump", f"{folder}/d", "-o", f"{folder}/%02d.png"],
                   check=True, stdout=subprocess.DEVNULL)
    return load_file(f"{folder}/d/image.safetensors")["image"]


def compare(a):
    worst = 0
    for i, size in enumerate(a.sizes.split(",")):
        width, height = (int(n) for n in size.split("x"))
        rgb = picture(width, height, i)
        for crf in (int(c) for c in a.crf.split(",")):
            with tempfile.TemporaryDirectory() as folder:
                ours = through_ditto(a, rgb, crf, folder).astype(int)
            theirs = through_pyav(rgb, crf).astype(int)
            d = np.abs(ours - theirs) if ours.shape == theirs.shape else np.full(1, 255)
            worst = max(worst, int(d.max()))
            print(f"{size} crf {crf}: {(d != 0).sum()} of {d.size} bytes differ, at most by {d.max()}")
    return worst


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model", nargs="?")
    p.add_argument("--ditto", default="./ditto")
    p.add_argument("--sizes", default=SIZES)
    p.add_argument("--crf", default="33,18")
    p.add_argument("--golden")
    a = p.parse_args()
    from av import __version__, library_versions
    print(f"PyAV {__version__}:", ", ".join(f"{k} {'.'.join(map(str, v))}" for k, v in library_versions.items()))
    if a.golden:
        from diffusers.utils import load_image
        from safetensors.numpy import save_file
        rgb = np.array(load_image(os.path.join(a.golden, "photo.jpg")))
        save_file({f"crf{c}": np.ascontiguousarray(through_pyav(rgb, c)) for c in (33, 18)},
                  os.path.join(a.golden, "image_crf.safetensors"), {"pyav": __version__})
        return 0
    return compare(a) != 0


if __name__ == "__main__":
    sys.exit(main())
