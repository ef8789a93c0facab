"""What the dump scripts add for runs that begin from an image: the image as a user would load it, and the stages before the
first step.

Stages: image (U8 [H,W,3], after the pipeline's resizing), image_noise (the draw of the VAE's posterior), image_latents and
noise, all [B,C,h,w]; velocity_NNN and latents_NNN carry the number of the step in the whole schedule, so the first may not
be 000.

Easy to get wrong: diffusers' load_image() turns a picture by its EXIF orientation and drops alpha; PIL.Image.open() does not.
"""
import contextlib
import hashlib

import torch

STRENGTHS = (0.3, 0.6, 1.0)


@contextlib.contextmanager
def start_stages(pipe, out):
    """While open, pipe leaves the stages above in out."""
    from diffusers.models.autoencoders import vae as module
    preprocess, scale, draw = pipe.image_processor.preprocess, pipe.scheduler.scale_noise, module.randn_tensor

    def preprocess_tap(*args, **kwargs):
        r = preprocess(*args, **kwargs)
        out["image"] = ((r[0].permute(1, 2, 0) + 1) * 127.5).round().to(torch.uint8)
        return r

    def draw_tap(*args, **kwargs):
        out["image_noise"] = draw(*args, **kwargs)
        return out["image_noise"]

    def scale_tap(sample, timestep, noise):
        out["image_latents"], out["noise"] = sample, noise
        return scale(sample, timestep, noise)
    pipe.image_processor.preprocess, pipe.scheduler.scale_noise, module.randn_tensor = preprocess_tap, scale_tap, draw_tap
    try:
        yield
    finally:
        pipe.image_processor.preprocess, pipe.scheduler.scale_noise, module.randn_tensor = preprocess, scale, draw


def from_image(pipe_class, pipe):
    """The image-to-image pipeline of the same components."""
    names = set(pipe_class._get_signature_keys(pipe_class)[0])
    other = pipe_class(**{k: v for k, v in pipe.components.items() if k in names})
    other.set_progress_bar_config(disable=True)
    return other


def encoder_stages(tap, vae, picture):
    """picture [B,3,Y,X] -> the stages that the C encoder shows to its tap, channels last; without the largest, conv_in."""
    e = vae.encoder
    mods = {"vae.enc.mid": (e.mid_block, lambda r: {"": r}),
            "vae.enc.norm_out": (e.conv_norm_out, lambda r: {"": torch.nn.functional.silu(r)}),
            "vae.enc.moments": (e.conv_out if vae.quant_conv is None else vae.quant_conv, lambda r: {"": r})}
    for i, b in enumerate(e.down_blocks):
        mods[f"vae.enc.down.{i}"] = (b, lambda r: {"": r})
    out = {"picture": picture, **tap(vae, mods, lambda: vae.encode(picture))}
    return {k: v.permute(0, 2, 3, 1) for k, v in out.items()}


def golden_runs(run, pixels):
    """run(strength) -> stages, in f32; -> what a golden file keeps of runs that differ in strength alone: image_latents
    once, the last latents of each, the pixels of those in `pixels`; and the SHA-256 of the image as resized."""
    out, meta = {}, {"strengths": " ".join(map(str, STRENGTHS))}
    for s in STRENGTHS:
        r = run(s)
        out["image_latents"], out[f"latents_{s}"] = r["image_latents"], r["latents"]
        meta["image_sha256"] = hashlib.sha256(r["image"].cpu().numpy().tobytes()).hexdigest()
        meta[f"velocities_{s}"] = sum(k.startswith("velocity") for k in r)
        if s in pixels:
            out[f"pixels_{s}"] = r["pixels"]
    return out, meta
