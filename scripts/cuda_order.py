"""CUDA reduction orders of PyTorch's norms and softmax, in numpy f32: goldens for EXACT ops made on a CPU.

Orders as measured on the reference profile (README, "Rounding"): LayerNorm and torch.nn.RMSNorm use 128 threads a
row in 4 warps; the chain x.float().pow(2).mean(-1) uses one warp a row (16 rows or more); softmax one warp a row.
rsqrt and exp of an f32 are correctly rounded here; CUDA's differ by up to two f32 ulps, so a bf16 result may
differ from the GPU's in a few elements (at most 1e-3 of them, by one ulp: the allowance of the CPU table).

Easy to get wrong: fma rounds once; 1/n and 1/c are f32 divisions; the mean of the chain multiplies by f32(1/D).
"""
import numpy as np

F = np.float32


def fma(a, b, c):
    return (a.astype(np.longdouble) * b.astype(np.longdouble) + c).astype(F)


def rsqrt(x):
    return (1 / np.sqrt(x.astype(np.float64))).astype(F)


def _lanes(x, threads):
    """[rows, D] -> [rows, threads, vectors, 4] with NaN where a thread has no element; D divisible by 4."""
    rows, d = x.shape
    assert d % 4 == 0
    per = -(-(d // 4) // threads)
    full = np.full((rows, per * threads * 4), np.nan, F)
    full[:, :d] = x
    return full.reshape(rows, per, threads, 4).transpose(0, 2, 1, 3)


def _welford_merge(own, other):
    (m1, s1, c1), (m2, s2, c2) = other, own      # A: other, B: own
    c = (c1 + c2).astype(F)
    with np.errstate(all="ignore"):
        r = (F(1) / c).astype(F)
        a, b = (c1 * r).astype(F), (c2 * r).astype(F)
        delta = (m2 - m1).astype(F)
        mean = fma(m1, a, (m2 * b).astype(F))
        dd = ((delta * delta).astype(F) * c1).astype(F)
        s = fma(dd, b, (s1 + s2).astype(F))
    zero = c == 0
    return np.where(zero, F(0), mean), np.where(zero, F(0), s), c


def layer_stats(x, eps):
    """-> mean, rsqrt(var + eps), each [rows, 1]."""
    v = _lanes(x, 128)
    rows = x.shape[0]
    mean, s, n = (np.zeros((rows, 128), F) for _ in range(3))
    for i in range(v.shape[2]):
        for j in range(4):
            e = v[:, :, i, j]
            live = ~np.isnan(e)
            n1 = np.where(live, n + F(1), n).astype(F)
            with np.errstate(all="ignore"):
                inv = (F(1) / n1).astype(F)
                delta = (e - mean).astype(F)
                mean1 = fma(delta, inv, mean)
                s1 = fma(delta, (e - mean1).astype(F), s)
            mean, s, n = np.where(live, mean1, mean), np.where(live, s1, s), n1
    w = [t.reshape(rows, 4, 32) for t in (mean, s, n)]
    for off in (16, 8, 4, 2, 1):                 # shuffle down: lane l takes lane l + off
        down = [np.concatenate([t[:, :, off:], t[:, :, 32 - off:]], 2) for t in w]
        w = list(_welford_merge(w, down))
    w = [t[:, :, 0] for t in w]
    top = list(_welford_merge([t[:, :2] for t in w], [t[:, 2:] for t in w]))
    mean, s, _ = _welford_merge([t[:, :1] for t in top], [t[:, 1:] for t in top])
    var = (s / F(x.shape[1])).astype(F)
    return mean.astype(F), rsqrt((var + F(eps)).astype(F))


def layer_norm(x, w, b, eps):
    """f32 result before the one rounding."""
    mean, r = layer_stats(x, eps)
    y = (r * (x - mean).astype(F)).astype(F)
    return y if w is None else fma(np.broadcast_to(w, y.shape), y, np.broadcast_to(b, y.shape))


def _halve(s):
    """[..., 32] shuffle-down sum; lane 0."""
    for off in (16, 8, 4, 2, 1):
        s = (s[..., :off] + s[..., off:2 * off]).astype(F)
    return s[..., 0]


def rms_norm(x, w, eps):
    """torch.nn.RMSNorm, f32 result before the one rounding."""
    v = _lanes(x, 128)
    s = np.zeros(v.shape[:2], F)
    for i in range(v.shape[2]):
        for j in range(4):
            e = v[:, :, i, j]
            s = np.where(np.isnan(e), s, fma(e, e, s))
    warps = _halve(s.reshape(-1, 4, 32))
    top = (warps[:, :2] + warps[:, 2:]).astype(F)
    total = (top[:, :1] + top[:, 1:]).astype(F)
    y = (rsqrt((total / F(x.shape[1]) + F(eps)).astype(F)) * x).astype(F)
    return y if w is None else (w * y).astype(F)


def mean_square_norm(x, eps):
    """x * rsqrt(mean(x^2) + eps) of the chain (T5), f32 result before its rounding. 16 rows or more."""
    assert x.shape[0] >= 16 and x.shape[1] < 8192
    v = _lanes((x * x).astype(F), 32)
    acc = np.zeros((x.shape[0], 32, 4), F)
    for i in range(v.shape[2]):
        e = v[:, :, i, :]
        acc = np.where(np.isnan(e), acc, (acc + e).astype(F))
    s = ((acc[..., 0] + acc[..., 1]).astype(F) + acc[..., 2]).astype(F)
    total = _halve((s + acc[..., 3]).astype(F))[:, None]
    mean = (total * F(1 / x.shape[1])).astype(F)
    return (x * rsqrt((mean + F(eps)).astype(F))).astype(F)


def softmax(x):
    """Rows of at most 1024 elements, f32."""
    rows, n = x.shape
    assert n <= 1024
    per = -(-n // 32)
    full = np.full((rows, per * 32), -np.inf, F)
    full[:, :n] = x
    e = np.exp((full - full.max(1, keepdims=True)).astype(np.float64)).astype(F)
    lane = np.zeros((rows, 32), F)
    for i in range(per):
        lane = (lane + e[:, 32 * i:32 * i + 32]).astype(F)
    for off in (16, 8, 4, 2, 1):                 # butterfly
        lane = (lane + lane[:, np.arange(32) ^ off]).astype(F)
    return (e[:, :n] / lane[:, :1]).astype(F)
