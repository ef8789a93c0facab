"""SANA-Video through diffusers: whole clips from text or from an image.

Stages are reference.py's, but prompt_embeds [1,n,D] are the n rows of real tokens that the transformer gets; noise,
velocity_NNN and latents_NNN are F32 [1,C,F,h,w] in any dtype, pixels U8 [frames,H,W,3]. From an image the scheduler sees the
frames behind it alone: latents are those of all frames, velocities are not there. Wan's autoencoder is loaded in F32 whatever
the dtype, LTX-2's (720p) in the run's: as the pipelines' examples do. A module of dump_reference.py, not a program; the golden files are dump_golden_sana.py's.

Easy to get wrong: transformers' default attention (SDPA) leaves Gemma-2's soft cap out, so the encoder is loaded as eager; an
autoencoder that was loaded in bf16 and cast afterwards has other weights; a transformer that was cast after loading has rotary
tables in bf16.
"""
import importlib
import json
import os

import torch

from img2img_taps import from_image
from reference import check_dtypes, hooked, replaced, run_tapped, seeded


def defaults(model_dir, a):
    """The pipeline's own numbers, in the size that its binning makes of them."""
    with open(os.path.join(model_dir, "transformer", "config.json")) as f:
        large = json.load(f).get("sample_size") == 22
    width, height = (1280, 704) if large else (832, 480)
    return {"steps": 50, "width": width, "height": height, "frames": 81, "cfg_scale": 6.0, "guidance": None,
            "max_sequence_length": 300}


def load(model_dir, dtype, device):
    import diffusers
    from diffusers import SanaVideoPipeline
    from transformers import Gemma2Model
    with open(os.path.join(model_dir, "vae", "config.json")) as f:
        cls = getattr(diffusers, json.load(f)["_class_name"])
    vae_dtype = torch.float32 if cls is diffusers.AutoencoderKLWan else dtype
    te = Gemma2Model.from_pretrained(model_dir, subfolder="text_encoder", dtype=dtype, attn_implementation="eager")
    vae = cls.from_pretrained(model_dir, subfolder="vae", torch_dtype=vae_dtype)
    pipe = SanaVideoPipeline.from_pretrained(model_dir, text_encoder=te, vae=vae, torch_dtype=dtype)
    check_dtypes((te, pipe.transformer), dtype)
    check_dtypes((pipe.vae,), vae_dtype)
    pipe.set_progress_bar_config(disable=True)
    return pipe.to(device)


def image_pipeline(pipe):
    from diffusers import SanaImageToVideoPipeline
    return from_image(SanaImageToVideoPipeline, pipe)


def run(pipe, a):
    """The command line's run."""
    from diffusers.utils import load_image
    out, encode, prepare = {}, pipe.encode_prompt, pipe.prepare_latents
    module = importlib.import_module(type(pipe).__module__)
    randn = module.randn_tensor

    def encode_tap(*args, **kwargs):
        r = encode(*args, **kwargs)
        for name, embeds, mask in (("prompt_embeds", r[0], r[1]), ("negative_prompt_embeds", r[2], r[3])):
            if embeds is not None:
                out[name] = embeds[:, :int(mask.sum())]
        return r

    def ids_tap(model, args, kwargs):
        pre = "negative_" if "ids_1" in out else ""
        out[pre + "ids_1"] = (args[0] if args else kwargs["input_ids"]).to(torch.int32)
        out[pre + "mask_1"] = kwargs["attention_mask"].to(torch.int32)

    def draw_tap(*args, **kwargs):
        out["noise"] = randn(*args, **kwargs)
        return out["noise"].clone()

    def start_tap(*args, **kwargs):
        out["given"] = prepare(*args, **kwargs)
        return out["given"]

    def call():
        more = {"image": load_image(a.image)} if a.image else {}
        frames = pipe(prompt=prompt, negative_prompt=a.negative_prompt or "", guidance_scale=a.cfg_scale,
                      num_inference_steps=a.steps, height=a.height, width=a.width, frames=a.frames,
                      max_sequence_length=a.max_sequence_length, use_resolution_binning=False, output_type="np",
                      generator=seeded(a.seed), **more).frames[0]
        return (frames * 255).round().astype("uint8")
    prompt = a.prompt + (f" motion score: {a.motion_score}." if a.motion_score else "")
    hooks = [pipe.text_encoder.register_forward_pre_hook(ids_tap, with_kwargs=True)]
    with hooked(hooks), replaced(pipe, encode_prompt=encode_tap, prepare_latents=start_tap), \
            replaced(module, randn_tensor=draw_tap):
        run_tapped(pipe, out, call)
    given = out.pop("given")[:, :, :1]
    if not a.image:
        return out
    return {k: torch.cat([given, v], dim=2) if k.startswith("latents") else v for k, v in out.items()
            if not k.startswith("velocity")}
