"""demo_clips.py - the moving world of demo-sana-video: one object of demo_scenes.py that crosses a background.

A clip is a background and one object, one byte as there, with a direction in the place's stead:
code = ((direction * 2 + size) * 8 + colour) * 3 + shape. Words, colours and shapes are demo_scenes.py's. Not a training script. Easy to get wrong: objects that are held out are so on every background and in every
phrasing; the numbers below are repeated in tests/score_clip.c.
"""

import functools

import numpy as np

import demo_scenes as d

SIDE, FRAMES = 64, 17
DIRECTIONS = ["right", "left", "up", "down"]
STEPS = [(1.0, 0.0), (-1.0, 0.0), (0.0, -1.0), (0.0, 1.0)]  # (x, y), y downwards
RADII = [(6.5, 7.5), (10.0, 11.5)]                          # uniform, pixels: small, large
TRAVEL = (24.0, 28.0)                                       # uniform, pixels from the first frame to the last
ALONG, ACROSS = 1.5, 7.0                                    # the way's middle is off the picture's by up to this, pixels
CODES = len(DIRECTIONS) * 48
TRAIN_SEED, TRAIN_COUNT = 20261201, 32_768


def held_out(codes):
    """codes: integers. Of each direction, size and shape one colour in eight: all pairs of attributes are seen."""
    direction, size, colour, shape = d.decode(np.asarray(codes).astype(np.int64))
    return (colour + 3 * shape + 2 * direction + 5 * size) % len(d.COLOURS) == 3


def train_table(count=TRAIN_COUNT):
    """(background [N] u8, codes [N] u8): no held-out object, the same on every machine."""
    rng = np.random.Generator(np.random.PCG64(TRAIN_SEED))
    seen = np.arange(CODES)[~held_out(np.arange(CODES))].astype(np.uint8)
    return rng.integers(0, len(d.BACKGROUNDS), count).astype(np.uint8), seen[rng.integers(0, len(seen), count)]


def test_table(count):
    """Held-out objects on different backgrounds: every pair once, then from the first again."""
    pairs = [(b, c) for c in range(CODES) if held_out(c) for b in range(len(d.BACKGROUNDS))]
    order = np.random.Generator(np.random.PCG64(d.TEST_SEED)).permutation(len(pairs))
    return tuple(np.array(x, np.uint8) for x in zip(*[pairs[order[i % len(pairs)]] for i in range(count)]))


# --- captions ---------------------------------------------------------------------------------------------

WAYS = {"right": ["right", "right", "to the right", "rightwards"], "left": ["left", "left", "to the left", "leftwards"],
        "up": ["up", "up", "upwards"], "down": ["down", "down", "downwards"]}
VERBS = [("moves", "moving"), ("moves", "moving"), ("slides", "sliding"), ("drifts", "drifting"), ("goes", "going")]
PHRASINGS = 8


def caption(rng, background, code, phrasing=None, full=False, bare=False):
    """One English sentence for the clip. rng: random.Random. phrasing: 0..7 or drawn. Unless `full`, a quarter leaves the
    size unsaid and a quarter the background (then any is right); bare: both are."""
    direction, size, colour, shape = d.decode(int(code))
    no_size, no_ground = bare or (not full and rng.random() < 0.25), bare or (not full and rng.random() < 0.25)
    k = rng.randrange(PHRASINGS) if phrasing is None else phrasing
    b = d._word(rng, d.BACKGROUNDS[background][0], False)
    s = "" if no_size else d._word(rng, d.SIZES[size], False)
    c, h, way = d.COLOURS[colour][0], d._word(rng, d.SHAPES[shape], False), rng.choice(WAYS[DIRECTIONS[direction]])
    moves, moving = rng.choice(VERBS)
    thing = d._article(f"{s} {c} {h}".strip())
    ground = lambda text: "" if no_ground else text
    t = [f"{thing} {moves} {way}" + ground(f" on a {b} background"),
         ground(f"on a {b} background ") + f"{thing} {moves} {way}",
         ground(f"a {b} background: ") + f"{thing} {moving} {way}",
         f"{d._article(h)}, {s + ' and ' if s else ''}{c}, {moves} {way}" + ground(f", the background is {b}"),
         f"{thing} {moving} {way}" + ground(f" over {b}"),
         f"a clip of {thing} that {moves} {way}" + ground(f". the backdrop is {b}"),
         f"there is {thing}, it {moves} {way}" + ground(f", against {b}"),
         ground(f"{b}; ") + f"{s} {c} {h}; {moves} {way}"][k]
    t = d._clean(t)
    return t + "." if not full and rng.random() < 0.3 else t


def describe(background, code, bare=False):
    """The expected clip as the scorer reads it: "gray: small red circle right"; bare: "any: any red circle right"."""
    direction, size, colour, shape = d.decode(int(code))
    ground, large = ("any", "any") if bare else (d.BACKGROUNDS[int(background)][0], d.SIZES[size])
    return f"{ground}: {large} {d.COLOURS[colour][0]} {d.SHAPES[shape]} {DIRECTIONS[direction]}"


BARE_EVERY = 5  # of the test prompts, one in so many names neither size nor background


def test_prompts(count=100):
    """[(background, code, bare, prompt)]"""
    import random

    rng = random.Random(7)
    background, codes = test_table(count)
    bare = [i % BARE_EVERY == BARE_EVERY - 1 for i in range(count)]
    return [(int(b), int(c), bare[i], caption(rng, b, c, i % PHRASINGS, full=True, bare=bare[i]))
            for i, (b, c) in enumerate(zip(background, codes))]


# --- clips ------------------------------------------------------------------------------------------------

@functools.cache
def _numbers(values, dev):
    """A table on the device, copied there once: copies wait for it, and cannot be captured."""
    import torch

    return torch.tensor(values, dtype=torch.float32, device=dev)


def render(background, codes, generator=None, fixed=None):
    """Clips on the device of `codes`. background, codes [N] integer tensors -> f32 [N, 17, 64, 64, 3] in -1..1.
    fixed: [N, 4] numbers in 0..1 for (radius, travel, along, across) instead of drawn ones."""
    import torch

    dev, n = codes.device, codes.shape[0]
    u = torch.rand(n, 4, device=dev, generator=generator) if fixed is None else fixed
    direction, size, colour, shape = d.decode(codes.long())
    t = lambda x: _numbers(tuple(x), dev)
    r = t(RADII)[size]
    r = r[:, 0] + u[:, 0] * (r[:, 1] - r[:, 0])
    travel = TRAVEL[0] + u[:, 1] * (TRAVEL[1] - TRAVEL[0])
    at = travel[:, None] * torch.linspace(-0.5, 0.5, FRAMES, device=dev) + ((2 * u[:, 2] - 1) * ALONG)[:, None]
    off = ((2 * u[:, 3] - 1) * ACROSS)[:, None]
    step = t(STEPS)[direction]
    x0 = SIDE / 2 + step[:, :1] * at + step[:, 1:].abs() * off
    y0 = SIDE / 2 + step[:, 1:] * at + step[:, :1].abs() * off
    axis = torch.arange(SIDE, device=dev, dtype=torch.float32) + 0.5
    share = d.cover(shape[:, None, None, None], (axis - x0[:, :, None, None]).abs(), axis[:, None] - y0[:, :, None, None],
                    r[:, None, None, None])[..., None]
    ground = t([v for _, v in d.BACKGROUNDS])[background.long()][:, None, None, None]
    paint = t([v for _, v in d.COLOURS])[colour][:, None, None, None]
    return (ground + share * (paint - ground)) / 127.5 - 1
