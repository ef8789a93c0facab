"""demo_score.py - says whether a picture or a clip shows what was asked for; the Python twin of tests/score.c, score_clip.c.

Used while training, so that the trainer knows how well it does. The judge that counts is tests/score.c; both follow
the same steps: background from the border, components of what differs from it, then colour, place, shape, size.
Not tolerant on purpose: a picture with a stray blob, a two-coloured object or a torn shape is wrong.
"""

import numpy as np

import demo_scenes as d

FOREGROUND = 45.0       # RGB distance from the background's palette colour
BORDER = 2              # pixels
MIN_AREA = 20           # pixels: smaller specks are ignored
COLOUR_REACH = 50.0     # the mean of an object's core must be this close to its palette colour
PLACE_REACH = 12.0      # pixels, of the bounding box's centre
MIN_IOU = 0.78
RADIUS_SPLIT = 13.25    # between small (8.5..10.5) and large (16..18)


def components(mask):
    """4-connected components as lists of (y, x) arrays."""
    h, w = mask.shape
    left = mask.copy()
    out = []
    for y, x in zip(*np.nonzero(mask)):
        if not left[y, x]:
            continue
        stack, part = [(y, x)], []
        left[y, x] = False
        while stack:
            a, b = stack.pop()
            part.append((a, b))
            for p, q in ((a - 1, b), (a + 1, b), (a, b - 1), (a, b + 1)):
                if 0 <= p < h and 0 <= q < w and left[p, q]:
                    left[p, q] = False
                    stack.append((p, q))
        if len(part) >= MIN_AREA:
            out.append(np.array(part))
    return out


def _nearest(rgb, palette):
    dist = np.sqrt(((np.array(palette, dtype=np.float64) - rgb) ** 2).sum(1))
    return int(dist.argmin()), float(dist.min())


def _shape(part):
    """(shape, radius, iou) of the best fitting ideal shape over the component's bounding box."""
    y1, x1 = part.min(0)
    y2, x2 = part.max(0) + 1
    h, w = y2 - y1, x2 - x1
    grid = np.zeros((h, w), bool)
    grid[part[:, 0] - y1, part[:, 1] - x1] = True
    v = (np.arange(h)[:, None] + 0.5) / h
    u = np.abs((np.arange(w)[None, :] + 0.5) / w * 2 - 1)
    ideal = [u ** 2 + (2 * v - 1) ** 2 <= 1, np.ones((h, w), bool), u <= v]
    radius = [(h + w) / 4, (h + w) / 3.6, (h / 2.0 + w / 2.3) / 2]
    iou = [(grid & i).sum() / (grid | i).sum() for i in ideal]
    best = int(np.argmax(iou))
    if not 0.7 < (h / w) * (1.15 if best == 2 else 1.0) < 1.43:
        return best, radius[best], 0.0
    return best, radius[best], iou[best]


def _background(rgb):
    """Ring mask and the index of the background that the ring's mean is nearest to."""
    ring = np.ones(rgb.shape[:2], bool)
    ring[BORDER:-BORDER, BORDER:-BORDER] = False
    return ring, _nearest(rgb[ring].mean(0), [c for _, c in d.BACKGROUNDS])[0]


def _foreground(rgb, background):
    """Mask of what differs from the background; None when the ring shows another one."""
    ring, best = _background(rgb)
    back = np.array(d.BACKGROUNDS[int(background)][1], dtype=np.float64)
    far = np.sqrt(((rgb - back) ** 2).sum(2)) > FOREGROUND
    return None if best != int(background) or far[ring].mean() > 0.05 else far


def _box_centre(part):
    y1, x1 = part.min(0)
    y2, x2 = part.max(0) + 1
    return np.array([(x1 + x2) / 2, (y1 + y2) / 2])


def _object(rgb, part, colour, shape):
    """(fault, radius) of a component that should have this colour and shape; fault None when it has."""
    inside = np.zeros(rgb.shape[:2], bool)
    inside[part[:, 0], part[:, 1]] = True
    core = inside[1:-1, 1:-1] & inside[:-2, 1:-1] & inside[2:, 1:-1] & inside[1:-1, :-2] & inside[1:-1, 2:]
    core = rgb[1:-1, 1:-1][core]
    if len(core) == 0:
        return "shape", 0
    want = np.array(d.COLOURS[colour][1], dtype=np.float64)
    best, dist = _nearest(core.mean(0), [c for _, c in d.COLOURS])
    if best != colour or dist > COLOUR_REACH or (np.sqrt(((core - want) ** 2).sum(1)) > 75).mean() > 0.2:
        return "colour", 0
    best, radius, iou = _shape(part)
    return ("shape" if best != shape or iou < MIN_IOU else None), radius


def score(image, background, codes):
    """image u8 [128, 128, 3]. Returns None when right, else the first wrong attribute's name."""
    codes = sorted(int(c) for c in codes if c != d.NONE)
    rgb = image.astype(np.float64)
    far = _foreground(rgb, background)
    if far is None:
        return "background"
    parts = components(far)
    if len(parts) != len(codes):
        return "number"
    found = {}
    for part in parts:
        dist = np.sqrt(((np.array(d.ANCHORS) - _box_centre(part)) ** 2).sum(1))
        if dist.min() > PLACE_REACH:
            return "place"
        found[int(dist.argmin())] = part
    if any(d.decode(code)[0] not in found for code in codes):
        return "place"
    for code in codes:
        place, size, colour, shape = d.decode(code)
        fault, radius = _object(rgb, found[place], colour, shape)
        if fault:
            return fault
        if int(radius > RADIUS_SPLIT) != size:
            return "size"
    return None


# --- clips ---

CLIP_SPLIT = 8.75       # between small (6.5..7.5) and large (10..11.5)
CLIP_SHARE = 0.75       # of the frames must be right
CLIP_TRAVEL = 12.0      # pixels from the first three frames seen to the last three, at least; across: at most half of it
CLIP_BACK = 2.0         # pixels that a frame may go back


def _frame(rgb, background, code, bare):
    """(fault, centre of the one object or None)"""
    _, size, colour, shape = d.decode(int(code))
    far = _foreground(rgb, _background(rgb)[1] if bare else background)
    if far is None:
        return "background", None
    parts = components(far)
    if len(parts) != 1:
        return "number", None
    fault, radius = _object(rgb, parts[0], colour, shape)
    if not fault and not bare and int(radius > CLIP_SPLIT) != size:
        fault = "size"
    return fault, _box_centre(parts[0])


def score_clip(frames, background, code, bare=False):
    """frames u8 [F, 64, 64, 3]. None when right, else what most of the wrong frames have wrong, or "direction". bare: any
    background and size."""
    import demo_clips

    seen = [_frame(f.astype(np.float64), background, code, bare) for f in frames]
    faults = [f for f, _ in seen if f]
    if len(seen) - len(faults) < CLIP_SHARE * len(seen):
        return max(sorted(set(faults)), key=faults.count)
    at = np.array([c for _, c in seen if c is not None])
    step = np.array(demo_clips.STEPS[d.decode(int(code))[0]])
    along, across = at @ step, at @ step[::-1]
    way, off = (x[-3:].mean() - x[:3].mean() for x in (along, across))
    good = way >= CLIP_TRAVEL and abs(off) <= way / 2 and (np.diff(along) >= -CLIP_BACK).all()
    return None if good else "direction"
