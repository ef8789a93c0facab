#!/usr/bin/env python3
"""Walks the KL decoder op by op against diffusers' modules on the same device, from the same latents, and counts the elements
whose bits differ.

    python3 scripts/compare_vae.py [--ditto ./ditto] [--device cuda|cpu] [--dtype bf16|f32] [--case tiny,demo,flux] [--all]

Cases: tiny, the golden FLUX.1 of random weights with few channels; demo, the one that ships; flux, a random decoder of the
published shape (--edge pixels, 512 by default) beside the demo's other parts. ditto runs one step with injected latents and
writes its taps (--dump --taps). Two counts a tap: `walk`, against the reference's own run from the latents on; `alone`, against
the reference's op on ditto's own input, so that one op's difference does not hide in its successors'. Prints the taps where
either is not 0 (--all: every tap) and the first of each. Exit code 1 when pixels differ by more than one code value.

On a CPU the reference runs with CUDA's rounding points (refprofile.py) and sums run in another order: few counts are 0 there.
Easy to get wrong: a resnet's bias of conv1 is added by the norm after it here, so the tap conv1 has none; pictures are
channels last here.
"""
import argparse
import os
import subprocess
import sys
import tempfile
import time
import types

import torch
import torch.nn.functional as F
from safetensors import safe_open
from safetensors.torch import save_file

from refprofile import rounding

HERE = os.path.dirname(os.path.abspath(__file__))
TINY = os.path.join(HERE, "..", "tests", "golden", "tiny-flux")
DEMO = os.path.join(HERE, "..", "weights", "demo-flux")
SIZES = {"tiny": (112, 80), "demo": (128, 128)}


def model_of(case, folder, device):
    """A model folder whose decoder is the case's."""
    if case != "flux":
        return TINY if case == "tiny" else DEMO
    from random_checkpoint import VAE, write_part
    for name in os.listdir(DEMO):
        if name != "vae":
            os.symlink(os.path.abspath(os.path.join(DEMO, name)), os.path.join(folder, name))
    write_part(types.SimpleNamespace(out=folder, model="flux-dev", device=device, disk_dtype=None), "vae", VAE, 3)
    return folder


def last(t):
    """[1,C,Y,X] -> [Y,X,C]; [1,C,T] -> [T,C]."""
    return t[0].movedim(0, -1)


class Walk:
    """What diffusers computes, by tap name, in order; and the same op on another input."""

    def __init__(self, vae):
        self.vae, self.seen, self.alone, self.hooks = vae, {}, {}, []
        d = vae.decoder
        self.plain("vae.conv_in", d.conv_in, None)
        before = self.mid(d.mid_block)
        for i, block in enumerate(d.up_blocks):
            for n, r in enumerate(block.resnets):
                before = self.resnet(f"vae.up.{i}.{n}", r, before)
            if block.upsamplers:
                self.plain(f"vae.up.{i}", block.upsamplers[0], before)
                before = f"vae.up.{i}"
        self.add("vae.norm_out", d.conv_norm_out, lambda m, x, y: F.silu(y), before, lambda x: F.silu(d.conv_norm_out(x)))
        self.plain("vae.picture", d.conv_out, "vae.norm_out")

    def add(self, name, module, result, before, alone):
        """result(module, input, output): the tap. alone(ours of `before`): the op by itself."""
        self.seen[name] = None
        self.alone[name] = (before, alone)
        self.hooks.append(module.register_forward_hook(
            lambda m, x, y, name=name: self.seen.__setitem__(name, last(result(m, x[0], y)))))

    def plain(self, name, module, before):
        self.add(name, module, lambda m, x, y: y, before, module)

    def resnet(self, name, r, before):
        def raw(conv):
            return lambda x: F.conv2d(x, conv.weight, None, conv.stride, conv.padding)

        def second(norm2, skip):
            y = r.conv2(norm2)
            return (skip if r.conv_shortcut is None else skip + r.conv_shortcut.bias[:, None, None]) + y
        self.add(f"{name}.norm1", r.norm1, lambda m, x, y: F.silu(y), before, lambda x: F.silu(r.norm1(x)))
        self.add(f"{name}.conv1", r.conv1, lambda m, x, y: raw(m)(x), f"{name}.norm1", raw(r.conv1))
        self.add(f"{name}.norm2", r.norm2, lambda m, x, y: F.silu(y), f"{name}.conv1",
                 lambda x: F.silu(r.norm2(x + r.conv1.bias[:, None, None])))
        skip = before
        if r.conv_shortcut is not None:
            skip = f"{name}.shortcut"
            self.add(skip, r.conv_shortcut, lambda m, x, y: raw(m)(x), before, raw(r.conv_shortcut))
        self.add(f"{name}.out", r, lambda m, x, y: y, (f"{name}.norm2", skip), second)
        return f"{name}.out"

    def mid(self, block):
        before = self.resnet("vae.mid.0", block.resnets[0], "vae.conv_in")
        a = block.attentions[0]
        self.add("vae.mid.attention.norm", a.group_norm, lambda m, x, y: y, before, a.group_norm)
        self.add("vae.mid.attention.out", a, lambda m, x, y: y, before, lambda x: a(x))
        return self.resnet("vae.mid.1", block.resnets[1], "vae.mid.attention.out")

    def close(self):
        for h in self.hooks:
            h.remove()


BITS = {torch.bfloat16: torch.int16, torch.float32: torch.int32}


def differing(a, b):
    a, b = a.contiguous(), b.contiguous()
    assert a.dtype == b.dtype and a.numel() == b.numel(), (a.shape, b.shape, a.dtype, b.dtype)
    a, b = a.flatten(), b.flatten()
    if a.dtype not in BITS:
        return int((a != b).sum()), int((a.int() - b.int()).abs().max())
    other = (a.view(BITS[a.dtype]) != b.view(BITS[a.dtype])) & ~(a.isnan() & b.isnan())
    n = int(other.sum())
    return n, float((a[other].float() - b[other].float()).abs().max()) if n else 0.0


def compare(args, case, work):
    from diffusers import AutoencoderKL
    from diffusers.image_processor import VaeImageProcessor
    from diffusers.pipelines.flux.pipeline_flux import FluxPipeline
    dtype = {"bf16": torch.bfloat16, "f32": torch.float32}[args.dtype]
    folder, dump = os.path.join(work, case), os.path.join(work, case + "-ours")
    os.mkdir(folder)
    model = model_of(case, folder, args.device)
    width, height = SIZES.get(case, (args.edge, args.edge))
    vae = AutoencoderKL.from_pretrained(model, subfolder="vae", torch_dtype=dtype).to(args.device).eval()
    scale, c = 2 ** (len(vae.config.block_out_channels) - 1), vae.config.latent_channels
    g = torch.Generator().manual_seed(11)
    latents = torch.randn(1, height // (2 * scale) * (width // (2 * scale)), 4 * c, generator=g).to(dtype)
    save_file({"latents": latents}, os.path.join(work, case + ".safetensors"))
    start = time.time()
    subprocess.run([args.ditto, "generate", "-m", model, "-p", "x", "--steps", "1", "--seed", "1", "-W", str(width), "-H", str(height),
                    "--device", args.device, "--dtype", args.dtype, "--max-sequence-length", "16", "-q", "-y",
                    "-o", os.path.join(work, case + ".png"), "--dump", dump, "--taps",
                    "--inject", f"latents={work}/{case}.safetensors", *args.more], check=True, stdout=subprocess.DEVNULL)
    ran = time.time() - start

    def ours(name):
        path = os.path.join(dump, name + ".safetensors")
        with safe_open(path, "pt", device=args.device) as f:
            return f.get_tensor(name)

    def planes(name):
        t = ours(name)
        return t.movedim(-1, 0)[None].contiguous() if t.dim() == 3 else t

    bad = 0
    first = {"walk": None, "alone": None}
    with torch.no_grad(), rounding(dtype, args.device):
        walk = Walk(vae)
        z = FluxPipeline._unpack_latents(latents.to(args.device), height, width, scale)
        z = (z / vae.config.scaling_factor) + vae.config.shift_factor
        picture = vae.decode(z, return_dict=False)[0]
        walk.close()
        print(f"== {case}: {width}x{height}, {args.dtype}, channels {list(vae.config.block_out_channels)}, ditto {ran:.1f} s")
        print(f"{'tap':<26} {'elements':>10} {'walk':>9} {'largest':>9} {'alone':>9} {'largest':>9}")
        for name, theirs in walk.seen.items():
            mine = ours(name)
            w = differing(mine, theirs)
            before, alone = walk.alone[name]
            inputs = [z] if before is None else [planes(b) for b in (before if isinstance(before, tuple) else (before,))]
            if name == "vae.mid.attention.norm":                 # the processor hands over [1,C,T]
                inputs = [inputs[0].flatten(2)]
            a = differing(mine, last(alone(*inputs)))
            walk.seen[name] = None
            for kind, n in (("walk", w[0]), ("alone", a[0])):
                first[kind] = first[kind] or (name if n else None)
            if args.all or w[0] or a[0]:
                print(f"{name:<26} {mine.numel():>10} {w[0]:>9} {w[1]:>9.2g} {a[0]:>9} {a[1]:>9.2g}", flush=True)
        theirs = VaeImageProcessor(vae_scale_factor=2 * scale).postprocess(picture, output_type="pt")
        rgb = (theirs[0].cpu().permute(1, 2, 0).float().numpy() * 255).round().astype("uint8")
        n, far = differing(ours("pixels").cpu(), torch.from_numpy(rgb))
        print(f"{'pixels':<26} {rgb.size:>10} {n:>9} {far:>9}")
        bad = far > 1
    for kind, name in first.items():
        print(f"first tap that differs, {kind}: {name or 'none'}")
    return bad


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--ditto", default="./ditto")
    p.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    p.add_argument("--dtype", choices=("bf16", "f32"), default="bf16")
    p.add_argument("--case", default="tiny,demo,flux")
    p.add_argument("--edge", type=int, default=512)
    p.add_argument("--all", action="store_true")
    p.add_argument("more", nargs="*", help="more options for ditto, behind --")
    args = p.parse_args()
    torch.backends.cudnn.benchmark = False
    print(f"# PyTorch {torch.__version__}, cuDNN {torch.backends.cudnn.version() if args.device == 'cuda' else 'none'}, "
          f"{torch.cuda.get_device_name(0) if args.device == 'cuda' else 'cpu'}")
    with tempfile.TemporaryDirectory() as work:
        failed = [case for case in args.case.split(",") if compare(args, case, work)]
    print(f"more than one code value off: {', '.join(failed)}" if failed else "no pixel is more than one code value off")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
