#!/usr/bin/env python3
"""Prints the rows of tests/test_compare.c that come from scikit-image: PSNR and SSIM of generated RGB pictures.

Run it again when scikit-image's definition changes; the pictures are the test's own picture(), in the same integers.
"""
import numpy
import skimage
from skimage.metrics import peak_signal_noise_ratio, structural_similarity


def picture(width, height, noise, flat):
    state, out = 12345, numpy.empty(width * height * 3, dtype=numpy.uint8)
    for i in range(out.size):
        x, y = i // 3 % width, i // 3 // width
        state = (state * 1103515245 + 12345) % 2**32
        base = 100 if flat else (x * 7 + y * 5 + i % 3 * 40) % 256
        out[i] = min(255, max(0, base + (state >> 16) % (2 * noise + 1) - noise)) if noise else base
    return out.reshape(height, width, 3)


print(f"/* scikit-image {skimage.__version__}, numpy {numpy.__version__} */")
for width, height, noise, flat in ((7, 7, 3, 0), (23, 17, 5, 0), (64, 48, 40, 0), (31, 9, 1, 1), (16, 16, 127, 1)):
    a, b = picture(width, height, 0, flat), picture(width, height, noise, flat)
    psnr = peak_signal_noise_ratio(a, b, data_range=255)
    ssim = structural_similarity(a, b, channel_axis=-1, data_range=255)
    print(f"    {{{width}, {height}, {noise}, {flat}, {psnr:.10f}, {ssim:.10f}}},")
