#!/usr/bin/env python3
"""Writes the two small pictures of another encoder that tests/test_png.c reads: tests/golden/pil.png (tEXt in
Latin-1, iTXt, compressed iTXt and zTXt; pixel (x, y) = (x * 40, y * 60, 255 - x * y)) and
tests/golden/pil.jpg (8x8, all 128). Run from the repository's root."""
from PIL import Image, PngImagePlugin

info = PngImagePlugin.PngInfo()
info.add_text("Title", "caf\u00e9")
info.add_itxt("parameters", "\u732b, a cat\nSteps: 4", lang="en", tkey="Parameter")
info.add_itxt("packed", "long text", zip=True)
info.add_text("Comment", "also packed", zip=True)
info.add_text("empty", "")
picture = Image.new("RGB", (5, 4))
picture.putdata([(x * 40, y * 60, 255 - x * y) for y in range(4) for x in range(5)])
picture.save("tests/golden/pil.png", pnginfo=info)
Image.new("L", (8, 8), 128).save("tests/golden/pil.jpg", quality=95)
