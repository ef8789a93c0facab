"""The reference profile for golden files: versions, and CUDA rounding points on a CPU.

On a GPU the golden scripts run PyTorch as it is. On a CPU, bf16 kernels round elsewhere than CUDA's (fused
convolution bias, scalars, bf16 dot products), so bf16 runs there under CudaRounding: every listed function is
computed in f32 (norm statistics in f64) from bf16 inputs and rounded exactly where the CUDA kernel rounds.
That gives the profile's rounding points, not its bits: sums run in another order.

Easy to get wrong: a 0-dimensional f32 CUDA tensor times a bf16 tensor is a bf16 product of the ROUNDED scalar
(the Euler step's dt); a Python scalar stays f32 (CPU kernels round it to bf16 in sums, not in products); bf16 / Python scalar is a product with the f32 reciprocal.
"""
import contextlib

import numpy as np
import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

BF16 = torch.bfloat16
PROFILE = "diffusers-eager-sm90"


def versions(device):
    """Metadata strings for every golden file."""
    import diffusers
    import transformers
    cuda = device.startswith("cuda")
    return {
        "profile": PROFILE,
        "device": torch.cuda.get_device_name(0) if cuda else "cpu",
        "bf16": "cuda" if cuda else "cuda rounding points emulated on cpu (f32 accumulation)",
        "torch": torch.__version__,
        "cudnn": str(torch.backends.cudnn.version()) if cuda else "none",
        "diffusers": diffusers.__version__,
        "transformers": transformers.__version__,
        "numpy": np.__version__,
        "attention_dit": "_native (cuDNN on CUDA; on cpu: f32 scores, exp rounded to bf16, f32 sum)",
        "attention_text": "eager",
    }


def _sdpa(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    assert dropout_p == 0.0 and not enable_gqa
    q, k, v = query, key, value
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    s = q.float() @ k.float().transpose(-1, -2) * np.float32(scale).item()
    if is_causal:
        s = s.masked_fill(torch.ones(s.shape[-2:], dtype=torch.bool).triu(1), float("-inf"))
    if attn_mask is not None:
        least = torch.finfo(torch.float32).min               # a query that sees nothing gives numbers, not NaNs
        s = s.masked_fill(~attn_mask, least) if attn_mask.dtype == torch.bool else s + attn_mask.float()
    e = (s - s.amax(-1, keepdim=True)).exp()
    return ((e.to(q.dtype).float() @ v.float()) / e.sum(-1, keepdim=True)).to(q.dtype)


def _layer_norm(x, shape, weight=None, bias=None, eps=1e-5):
    d = x.double()
    y = (d - d.mean(-1, keepdim=True)) / (d.var(-1, unbiased=False, keepdim=True) + eps).sqrt()
    if weight is not None:
        y = y * weight.double() + bias.double()
    return y.float().to(x.dtype)


def _rms_norm(x, shape, weight=None, eps=None):
    d = x.double()
    y = d / (d.square().mean(-1, keepdim=True) + eps).sqrt()
    return (y if weight is None else y * weight.double()).float().to(x.dtype)


def _group_norm(x, groups, weight=None, bias=None, eps=1e-5):
    """As group_norm_kernel.cu: eps, mean and rstd in x's dtype, folded with the affine in f32, one fma an element."""
    d = x.double().reshape(x.shape[0], groups, -1)
    eps = torch.tensor(eps, dtype=x.dtype).double()
    rstd = (d.var(-1, unbiased=False) + eps).rsqrt().float().to(x.dtype).float()
    mean = d.mean(-1).float().to(x.dtype).float()
    per = x.shape[1] // groups
    a = rstd.repeat_interleave(per, 1) * weight.float()
    b = (-a.double() * mean.repeat_interleave(per, 1).double() + bias.double()).float()
    shape = (x.shape[0], x.shape[1]) + (1,) * (x.dim() - 2)
    return (a.double().view(shape) * x.double() + b.double().view(shape)).float().to(x.dtype)


def _conv2d(x, w, bias=None, stride=1, padding=0, dilation=1, groups=1):
    y = F.conv2d(x.float(), w.float(), None, stride, padding, dilation, groups).to(x.dtype)
    return y if bias is None else (y.float() + bias.float()[:, None, None]).to(x.dtype)


def _conv3d(x, w, bias=None, stride=1, padding=0, dilation=1, groups=1):
    y = F.conv3d(x.float(), w.float(), None, stride, padding, dilation, groups).to(x.dtype)
    return y if bias is None else (y.float() + bias.float()[:, None, None, None]).to(x.dtype)


def _conv1d(x, w, bias=None, stride=1, padding=0, dilation=1, groups=1):
    y = F.conv1d(x.float(), w.float(), None, stride, padding, dilation, groups).to(x.dtype)
    return y if bias is None else (y.float() + bias.float()[:, None]).to(x.dtype)


def _conv_transpose1d(x, w, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1):
    y = F.conv_transpose1d(x.float(), w.float(), None, stride, padding, output_padding, groups, dilation).to(x.dtype)
    return y if bias is None else (y.float() + bias.float()[:, None]).to(x.dtype)


def _linear(x, w, bias=None):
    y = x.float() @ w.float().t()
    if bias is not None and x.dim() == 3 and not x.is_contiguous():
        return (y.to(x.dtype).float() + bias.float()).to(x.dtype)  # no fused call: a product, then an addition
    return (y if bias is None else y + bias.float()).to(x.dtype)


def _matmul(a, b):
    return (a.float() @ b.float()).to(a.dtype)


def _unary(fn):
    return lambda x, *a, **k: fn(x.float(), *a, **{n: v for n, v in k.items() if n != "inplace"}).to(x.dtype)


def _div(x, y):
    if isinstance(y, (int, float)):
        return (x.float() * (np.float32(1) / np.float32(y)).item()).to(x.dtype)
    return x / y


def _mul(x, y):
    for a, b in ((x, y), (y, x)):
        if torch.is_tensor(a) and torch.is_tensor(b) and a.dim() == 0 and b.dim() > 0 \
                and a.dtype == torch.float32 and b.dtype == BF16:
            return a.to(BF16) * b
    return x * y


def _add(x, y):
    for a, b in ((x, y), (y, x)):
        if torch.is_tensor(a) and isinstance(b, (int, float)):
            return (a.float() + np.float32(b).item()).to(a.dtype)
    return x + y


def _sub(x, y):
    if isinstance(y, (int, float)):
        return (x.float() - np.float32(y).item()).to(x.dtype)
    assert torch.is_tensor(x) and torch.is_tensor(y)
    return x - y


def _one_by(x, y):
    assert y == 1
    return x.float().reciprocal().to(x.dtype)


def _sum(x, *args, **kwargs):
    return x.float().sum(*args, **kwargs).to(x.dtype)


def _mean(x, *args, **kwargs):
    y = x.float().sum(*args, **kwargs)
    return (y * (np.float32(1) / np.float32(x.numel() // y.numel())).item()).to(x.dtype)


def _pow(x, n):
    if n == 3.0:
        return (x * x) * x                       # CUDA: two bf16 products
    return x.pow(n)


class CudaRounding(TorchFunctionMode):
    """Routes bf16 CPU calls to the functions above; everything else passes through."""
    ROUTE = {
        F.scaled_dot_product_attention: _sdpa,
        F.layer_norm: _layer_norm, torch.layer_norm: _layer_norm,
        F.rms_norm: _rms_norm, torch.rms_norm: _rms_norm,
        F.group_norm: _group_norm, torch.group_norm: _group_norm,
        F.conv1d: _conv1d, F.conv2d: _conv2d, F.conv3d: _conv3d, F.conv_transpose1d: _conv_transpose1d, F.linear: _linear,
        torch.matmul: _matmul, torch.Tensor.__matmul__: _matmul, torch.Tensor.matmul: _matmul,
        F.silu: _unary(F.silu), F.gelu: _unary(F.gelu),
        torch.tanh: _unary(torch.tanh), torch.sigmoid: _unary(torch.sigmoid),
        torch.Tensor.sigmoid: _unary(torch.sigmoid), torch.Tensor.tanh: _unary(torch.tanh),
        torch.Tensor.__truediv__: _div, torch.Tensor.div: _div, torch.div: _div,
        torch.Tensor.__rtruediv__: _one_by, torch.sum: _sum, torch.Tensor.sum: _sum,
        torch.mean: _mean, torch.Tensor.mean: _mean, torch.rsqrt: _unary(torch.rsqrt),
        torch.Tensor.__mul__: _mul, torch.Tensor.__rmul__: _mul, torch.Tensor.mul: _mul, torch.mul: _mul,
        torch.Tensor.__add__: _add, torch.Tensor.__radd__: _add, torch.Tensor.add: _add, torch.add: _add,
        torch.Tensor.__sub__: _sub, torch.Tensor.sub: _sub, torch.sub: _sub,
        torch.pow: _pow, torch.Tensor.pow: _pow, torch.Tensor.__pow__: _pow,
    }

    def __init__(self):
        super().__init__()
        self.used = {}

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        to = self.ROUTE.get(func)
        if to is not None and any(torch.is_tensor(a) and a.dtype == BF16 for a in (*args, *kwargs.values())):
            self.used[to.__name__] = self.used.get(to.__name__, 0) + 1
            return to(*args, **kwargs)           # the mode is off inside
        return func(*args, **kwargs)


def rounding(dtype, device):
    """Context for a reference run: emulation for bf16 on a CPU, nothing otherwise."""
    if dtype == BF16 and not device.startswith("cuda"):
        return CudaRounding()
    return contextlib.nullcontext()
