#!/usr/bin/env python3
"""Writes what the image-to-image tests begin from, and what Pillow makes of pictures.

    python3 scripts/dump_images.py tests/golden

photo.jpg: a JPEG with EXIF orientation 6. drawing.png: a PNG with alpha. images.txt, a case a line:
    jpeg NAME ORIENTATION WIDTH HEIGHT SHA256      upright RGB of photo.jpg with that orientation written into it
    cmyk SHA256                                    RGB of cmyk.jpg
    resize W H TO_W TO_H SHA256                    LANCZOS (which pass comes first depends on the sizes) of the picture whose byte i is (i * i * 2654435761 >> 13) % 256
    steps STEPS STRENGTH FIRST                     steps that diffusers' get_timesteps leaves out
Easy to get wrong: 32-bit arithmetic in that picture; strengths are Python floats.
"""
import hashlib
import io
import os
import sys

import numpy as np
from PIL import Image, ImageOps

SIZES = [(53, 41, 48, 32), (39, 61, 32, 48), (1, 1, 16, 16), (7, 3, 64, 80), (64, 48, 64, 16), (64, 48, 16, 48),
         (300, 5, 16, 16), (100, 100, 100, 100), (129, 257, 128, 256), (33, 31, 1024, 16), (1000, 40, 48, 992), (2, 500, 3, 7), (90, 90, 80, 70), (90, 90, 80, 69), (60, 80, 61, 79)]
STEPS = [(28, 0.6), (28, 1.0), (28, 0.01), (4, 0.95), (4, 0.25), (4, 0.2), (8, 0.6), (50, 0.3), (10, 0.7), (10, 0.1), (5, 0.6),
         (5, 0.0), (3, 0.333), (7, 0.8571428571428571), (1, 0.5)]


def scene(w, h, channels, step):
    y, x = np.mgrid[0:h, 0:w]
    a = np.stack([128 + 110 * np.sin(x / 7 + y / 13 + i) * np.cos(y / 9 - i * x / 17) for i in range(channels)], -1)
    return (a.clip(0, 255) // step * step).astype(np.uint8)


def sha(image):
    return hashlib.sha256(np.asarray(image).tobytes()).hexdigest()


def hashed(w, h):
    i = np.arange(w * h * 3, dtype=np.uint32)
    return Image.fromarray(((i * i * np.uint32(2654435761)) >> np.uint32(13)).astype(np.uint8).reshape(h, w, 3))


def first_step(steps, strength):
    from diffusers import FluxImg2ImgPipeline

    class Scheduler:
        order, timesteps = 1, list(range(steps))
    pipe = type("Pipe", (), {"scheduler": Scheduler})()
    return steps - FluxImg2ImgPipeline.get_timesteps(pipe, steps, strength, None)[1]


def main():
    out = sys.argv[1]
    photo, lines = os.path.join(out, "photo.jpg"), []
    exif = Image.Exif()
    exif[0x112] = 6
    Image.fromarray(scene(61, 39, 3, 1)).save(photo, quality=75, exif=exif)
    Image.fromarray(scene(53, 41, 4, 24)).save(os.path.join(out, "drawing.png"), optimize=True)
    Image.fromarray(scene(19, 13, 4, 1), "CMYK").save(os.path.join(out, "cmyk.jpg"), quality=60)
    with open(photo, "rb") as f:
        data = f.read()
    at = data.index(bytes.fromhex("0112000300000001") if b"MM\0*" in data else bytes.fromhex("1201030001000000")) + 8
    for o in range(1, 9):
        turned = bytearray(data)
        turned[at:at + 2] = o.to_bytes(2, "big" if b"MM\0*" in data else "little")
        image = ImageOps.exif_transpose(Image.open(io.BytesIO(turned))).convert("RGB")
        lines.append(f"jpeg photo.jpg {o} {image.width} {image.height} {sha(image)}")
    lines.append(f"cmyk {sha(Image.open(os.path.join(out, 'cmyk.jpg')).convert('RGB'))}")
    for w, h, to_w, to_h in SIZES:
        lines.append(f"resize {w} {h} {to_w} {to_h} {sha(hashed(w, h).resize((to_w, to_h), Image.LANCZOS))}")
    lines += [f"steps {n} {s!r} {first_step(n, s)}" for n, s in STEPS]
    with open(os.path.join(out, "images.txt"), "w") as f:
        f.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
