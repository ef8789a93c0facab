"""demo_scenes.py - the little world that the demo checkpoint knows: objects, captions, pictures, the held-out rule.

A scene is a background and one to three objects at different places. One object is one byte,
code = ((place * 2 + size) * 8 + colour) * 3 + shape. Not a training script: it only says what exists.
Easy to get wrong: the held-out rule looks at the *set* of objects (sorted codes, background ignored), so every
order of mention and every background of a held-out set is held out; the numbers below are repeated in
tests/score.c, which must be changed with them.
"""

import hashlib
import random

import numpy as np

SIZE = 128
PLACES = ["top left", "top right", "bottom left", "bottom right", "centre"]
ANCHORS = [(26.0, 26.0), (102.0, 26.0), (26.0, 102.0), (102.0, 102.0), (64.0, 64.0)]  # (x, y) in pixels
JITTER = [2.5, 2.5, 2.5, 2.5, 1.0]                                                   # uniform, +- pixels
SIZES = ["small", "large"]
RADII = [(8.5, 10.5), (16.0, 18.0)]                                                  # uniform, pixels
SHAPES = ["circle", "square", "triangle"]
COLOURS = [("red", (215, 35, 40)), ("orange", (240, 120, 20)), ("yellow", (250, 225, 60)),
           ("green", (40, 160, 70)), ("cyan", (60, 200, 220)), ("blue", (45, 80, 210)),
           ("purple", (130, 50, 170)), ("pink", (245, 150, 190))]
BACKGROUNDS = [("white", (250, 250, 250)), ("black", (10, 10, 10)), ("gray", (128, 128, 128)),
               ("brown", (105, 65, 35))]
CODES = len(PLACES) * len(SIZES) * len(COLOURS) * len(SHAPES)  # 240
NONE = 255
COUNT_WEIGHTS = [0.15, 0.35, 0.50]  # of scenes with 1, 2, 3 objects
HELD_OUT_PART = 16                  # one set in 16


def decode(code):
    """code -> (place, size, colour, shape) indices; works on arrays too."""
    return code // 48, code // 24 % 2, code // 3 % 8, code % 3


def set_hash(codes):
    """32-bit hash of object sets. codes: integer array [N, 3], NONE where absent, any order. FNV-1a over the
    sorted codes, then MurmurHash3's finaliser (FNV's low bits alone are weak on three bytes)."""
    codes = np.sort(np.asarray(codes, dtype=np.uint64), axis=1)
    m = np.uint64(0xFFFFFFFF)
    h = np.full(codes.shape[0], 0x811C9DC5, dtype=np.uint64)
    for k in range(codes.shape[1]):
        c = codes[:, k]
        h = np.where(c == NONE, h, ((h ^ c) * np.uint64(0x01000193)) & m)
    h ^= h >> np.uint64(16)
    h = (h * np.uint64(0x85EBCA6B)) & m
    h ^= h >> np.uint64(13)
    h = (h * np.uint64(0xC2B2AE35)) & m
    return h ^ (h >> np.uint64(16))


def held_out(codes):
    return set_hash(codes) % np.uint64(HELD_OUT_PART) == 0


def draw_table(seed, count, want_held_out):
    """`count` scenes, every one held out or none, from numpy's PCG64 with `seed`: the same on every machine.
    Returns (background [N] u8, codes [N, 3] u8 in order of mention). 4x oversampled for held-out tables is
    not enough: the loop draws until there are enough."""
    rng = np.random.Generator(np.random.PCG64(seed))
    backgrounds, tables, have = [], [], 0
    while have < count:
        n = 1 << 17
        places = np.argsort(rng.random((n, len(PLACES))), axis=1)[:, :3]
        codes = (places * 48 + rng.integers(0, 48, (n, 3))).astype(np.uint8)
        number = rng.choice([1, 2, 3], size=n, p=COUNT_WEIGHTS)
        codes[np.arange(3)[None, :] >= number[:, None]] = NONE
        background = rng.integers(0, len(BACKGROUNDS), n).astype(np.uint8)
        keep = held_out(codes) == want_held_out
        backgrounds.append(background[keep])
        tables.append(codes[keep])
        have += int(keep.sum())
    return np.concatenate(backgrounds)[:count], np.concatenate(tables)[:count]


TRAIN_SEED, TRAIN_COUNT = 20261130, 400_000
TEST_SEED = 424242


def train_table(count=TRAIN_COUNT):
    return draw_table(TRAIN_SEED, count, False)


def test_table(count):
    """Held-out scenes with different sets."""
    background, codes = draw_table(TEST_SEED, 8 * count, True)
    seen, rows = set(), []
    for i in range(len(codes)):
        key = tuple(sorted(codes[i]))
        if key not in seen:
            seen.add(key)
            rows.append(i)
        if len(rows) == count:
            break
    return background[rows], codes[rows]


def table_digest(background, codes):
    return hashlib.sha256(background.tobytes() + codes.tobytes()).hexdigest()


# --- captions ---------------------------------------------------------------------------------------------

WORDS = {
    "small": ["small", "small", "tiny", "little"], "large": ["large", "large", "big"],
    "circle": ["circle", "circle", "circle", "disc"], "square": ["square", "square", "square", "box"],
    "triangle": ["triangle"], "gray": ["gray", "gray", "grey"],
    "top left": ["top left", "top left", "upper left"], "top right": ["top right", "top right", "upper right"],
    "bottom left": ["bottom left", "bottom left", "lower left"],
    "bottom right": ["bottom right", "bottom right", "lower right"],
    "centre": ["centre", "center", "middle"],
}


def _word(rng, key, plain):
    return key if plain else rng.choice(WORDS.get(key, [key]))


def _article(phrase):
    return ("an " if phrase[0] in "aeiou" else "a ") + phrase


def _clean(text):
    return " ".join(text.replace(" ,", ",").replace(" ;", ";").replace(" .", ".").replace(" :", ":").split())


def _join(rng, items):
    if len(items) == 1:
        return items[0]
    style = rng.randrange(3)
    if style == 0:
        return " and ".join(items)
    if style == 1:
        return ", ".join(items)
    return ", ".join(items[:-1]) + " and " + items[-1]


PHRASINGS = 12


def caption(rng, background, codes, phrasing=None, full=False):
    """One English sentence for the scene. rng: random.Random. phrasing: 0..11 or drawn. Unless `full`, a few
    captions leave the background, the sizes or the places unsaid (then any is right), and words vary."""
    codes = [int(c) for c in codes if c != NONE]
    drop = 1.0 if full else rng.random()
    no_size, no_place, no_background = drop < 0.03, 0.03 <= drop < 0.06, 0.06 <= drop < 0.10
    k = rng.randrange(PHRASINGS) if phrasing is None else phrasing
    b = _word(rng, BACKGROUNDS[background][0], False)
    s, c, h, p = [], [], [], []
    for code in codes:
        place, size, colour, shape = decode(code)
        s.append("" if no_size else _word(rng, SIZES[size], False))
        c.append(COLOURS[colour][0])
        h.append(_word(rng, SHAPES[shape], False))
        p.append("" if no_place else _word(rng, PLACES[place], False))
    n = range(len(codes))
    at = [("" if no_place else rng.choice(["in the ", "at the "]) + p[i]) for i in n]
    thing = [_article(f"{s[i]} {c[i]} {h[i]}".strip()) for i in n]
    number = ["one shape", "two shapes", "three shapes"][len(codes) - 1]
    if no_place and k in (3, 4, 5, 8, 10):  # these open with the place
        k = 0
    if k == 0:
        t = _join(rng, [f"{thing[i]} {at[i]}" for i in n]) + ("" if no_background else f" on a {b} background")
    elif k == 1:
        t = ("" if no_background else f"on a {b} background: ") + _join(rng, [f"{thing[i]} {at[i]}" for i in n])
    elif k == 2:
        t = (number if no_background else f"a {b} background with {number}") + ": " + "; ".join(
            ", ".join(x for x in [_article(f"{c[i]} {h[i]}"), s[i], at[i]] if x) for i in n)
    elif k == 3:
        t = ", ".join(f"{at[i]} {thing[i]}" for i in n) + ("" if no_background else f", {b} background")
    elif k == 4:
        t = ". ".join(f"{p[i]}: {s[i]} {c[i]} {h[i]}" for i in n) + ("" if no_background else f". background: {b}")
    elif k == 5:
        t = ", ".join(f"the {p[i]} shows {_article(h[i])} that is {s[i] + ' and ' if s[i] else ''}{c[i]}"
                      for i in n) + ("" if no_background else f", all on {b}")
    elif k == 6:
        t = (number if no_background else f"{number} on {b}") + ": " + _join(
            rng, [f"{_article((s[i] + ' ' + h[i]).strip())} in {c[i]} {at[i]}" for i in n])
    elif k == 7:
        t = "there is " + _join(rng, [f"{thing[i]} {at[i]}" for i in n]) + (
            "" if no_background else f", the background is {b}")
    elif k == 8:
        t = ("" if no_background else f"{b}; ") + "; ".join(f"{c[i]} {h[i]} {s[i]} {p[i]}" for i in n)
    elif k == 9:
        t = rng.choice(["draw ", "paint "]) + _join(rng, [f"{thing[i]} {at[i]}" for i in n]) + (
            "" if no_background else f", against {b}")
    elif k == 10:
        t = _join(rng, [f"{at[i]} {_article(c[i] + ' ' + h[i])}{' of ' + s[i] + ' size' if s[i] else ''}"
                        for i in n]) + ("" if no_background else f", over a {b} background")
    else:
        t = rng.choice(["a picture of ", "an image of "]) + _join(
            rng, [f"{_article(h[i])}, {s[i] + ', ' if s[i] else ''}{c[i]}, {at[i]}" for i in n]) + (
            "" if no_background else f". the backdrop is {b}")
    t = _clean(t).strip(" ,;:")
    if not full:
        style = rng.random()
        if style < 0.3:
            t = t[0].upper() + t[1:]
        if rng.random() < 0.3:
            t += "."
    return t


def describe(background, codes):
    """The expected scene as the scorer reads it: 'gray; 12 99 200' -> plain words."""
    out = []
    for code in sorted(int(c) for c in codes if c != NONE):
        place, size, colour, shape = decode(code)
        out.append(f"{SIZES[size]} {COLOURS[colour][0]} {SHAPES[shape]} {PLACES[place]}")
    return f"{BACKGROUNDS[int(background)][0]}: " + "; ".join(out)


# --- pictures ---------------------------------------------------------------------------------------------

def cover(shape, x, y, r):
    """Share of a pixel 0..1 that a shape of radius r covers, from its signed distance with a ramp of one pixel. x, y: the
    pixel's middle from the shape's, x as its absolute value. Tensors that broadcast."""
    import torch

    circle = (x * x + y * y).sqrt() - r
    square = torch.maximum(x, y.abs()) - 0.9 * r
    triangle = torch.maximum(y - 0.9 * r, (2.0 * x - 1.15 * (y + 1.1 * r)) / 2.3071)
    return (0.5 - torch.where(shape == 0, circle, torch.where(shape == 1, square, triangle))).clamp(0, 1)


def render(background, codes, generator=None, fixed=None):
    """Pictures of many scenes at once with torch on the device of `codes`. background [N], codes [N, 3] integer
    tensors; returns f32 [N, 3, 128, 128] in -1..1. Edges are anti-aliased from signed distances (1 pixel ramp).
    fixed: [N, 3, 3] numbers in 0..1 for (dx, dy, radius) instead of drawn ones."""
    import torch

    dev = codes.device
    n = codes.shape[0]
    codes = codes.long()
    u = torch.rand(n, 3, 3, device=dev, generator=generator) if fixed is None else fixed
    absent = codes == NONE
    place, size, colour, shape = decode(torch.where(absent, torch.zeros_like(codes), codes))
    t = lambda x: torch.tensor(x, dtype=torch.float32, device=dev)
    jitter = t(JITTER)[place]
    x0 = t(ANCHORS)[place][..., 0] + (2 * u[..., 0] - 1) * jitter
    y0 = t(ANCHORS)[place][..., 1] + (2 * u[..., 1] - 1) * jitter
    r = t(RADII)[size]
    r = r[..., 0] + u[..., 2] * (r[..., 1] - r[..., 0])
    axis = torch.arange(SIZE, device=dev, dtype=torch.float32) + 0.5
    picture = t([v for _, v in BACKGROUNDS])[background.long()][:, :, None, None].expand(n, 3, SIZE, SIZE)
    palette = t([v for _, v in COLOURS])
    for k in range(3):
        x = (axis[None, None, :] - x0[:, k, None, None]).abs()
        y = axis[None, :, None] - y0[:, k, None, None]
        rk = r[:, k, None, None]
        share = cover(shape[:, k, None, None], x, y, rk) * (~absent[:, k, None, None])
        picture = picture + share[:, None] * (palette[colour[:, k]][:, :, None, None] - picture)
    return picture / 127.5 - 1


def random_caption(seed, background, codes, **kw):
    return caption(random.Random(seed), background, codes, **kw)
