"""FLUX.1 through diffusers: whole runs from text or from an image, and the parts of the tiny checkpoint's golden files.

Stages are reference.py's; noise is unpacked [B,C,h,w], velocity_NNN and latents_NNN are packed [B,S,C]. A module of
dump_reference.py, not a program.

Easy to get wrong: a bf16 run draws other noise than an f32 run of the same seed.
"""
import contextlib
import json
import os
import shutil
import tempfile

import torch
from safetensors.torch import load_file, save_file

from img2img_taps import STRENGTHS, encoder_stages, from_image, golden_runs as image_runs, start_stages
from reference import DTYPES, NEGATIVE, PROMPT, check_dtypes, first, hooked, one, replaced, rooms, run_tapped, save, \
    save_run, seeded, tap, with_twin
from refprofile import rounding

HEIGHT, WIDTH, TEXT = 80, 112, 19
STEPS = 28


def defaults(model_dir, a):
    """What FluxPipeline and FluxImg2ImgPipeline take where the command line says nothing."""
    with open(os.path.join(model_dir, "transformer", "config.json")) as f:
        guided = json.load(f).get("guidance_embeds", False)
    return {"steps": STEPS, "width": 1024, "height": 1024, "cfg_scale": 1.0, "max_sequence_length": 512, "strength": 0.6,
            "guidance": (7.0 if a.image else 3.5) if guided else 0.0}


def load(model_dir, dtype, device):
    from diffusers import FluxPipeline
    from transformers import CLIPTextModel, T5EncoderModel
    te = CLIPTextModel.from_pretrained(model_dir, subfolder="text_encoder", dtype=dtype,
                                       attn_implementation="eager")
    t5 = T5EncoderModel.from_pretrained(model_dir, subfolder="text_encoder_2", dtype=dtype,
                                        attn_implementation="eager")
    pipe = FluxPipeline.from_pretrained(model_dir, text_encoder=te, text_encoder_2=t5, torch_dtype=dtype)
    check_dtypes((te, t5, pipe.transformer, pipe.vae), dtype)
    pipe.set_progress_bar_config(disable=True)
    return pipe.to(device)


def image_pipeline(pipe):
    from diffusers import FluxImg2ImgPipeline
    return from_image(FluxImg2ImgPipeline, pipe)


def run_pipeline(pipe, prompt, negative=None, cfg=1.0, steps=3, seed=5, guidance=3.5, height=HEIGHT, width=WIDTH,
                 text=512, noise=None, image=None, strength=0.6):
    """One picture; -> dict of stages in pipeline order. noise: packed latents to start from. image: path; pipe is then
    the image-to-image pipeline."""
    from diffusers.utils import load_image
    out = {}
    encode, pack = pipe.encode_prompt, pipe._pack_latents

    def encode_tap(*args, **kwargs):
        r = encode(*args, **kwargs)
        pre = "" if "prompt_embeds" not in out else "negative_"
        out[pre + "prompt_embeds"], out[pre + "pooled"] = r[0], r[1]
        return r

    def pack_tap(latents, *args, **kwargs):
        out["noise"] = latents
        return pack(latents, *args, **kwargs)

    def ids_tap(name):
        def tap_ids(module, args):
            out["negative_" + name if name in out else name] = args[0].to(torch.int32)
            return None
        return tap_ids
    if image is None:
        start, stages = {"latents": noise}, replaced(pipe, _pack_latents=pack_tap)
    else:
        start, stages = {"image": load_image(image), "strength": strength}, start_stages(pipe, out)
    hooks = [m.register_forward_pre_hook(ids_tap(name))
             for m, name in ((pipe.text_encoder, "ids_1"), (pipe.text_encoder_2, "ids_2"))]
    with hooked(hooks), replaced(pipe, encode_prompt=encode_tap), stages:
        return run_tapped(pipe, out, lambda: pipe(
            prompt=prompt, negative_prompt=negative, true_cfg_scale=cfg, num_inference_steps=steps, guidance_scale=guidance,
            height=height, width=width, max_sequence_length=text, generator=seeded(seed), **start).images[0])


def run(pipe, a):
    """The command line's run."""
    return run_pipeline(pipe, a.prompt, a.negative_prompt, a.cfg_scale, a.steps, a.seed, a.guidance, a.height, a.width,
                        a.max_sequence_length, image=a.image, strength=a.strength)


def tap_clip(te, ids):
    core = getattr(te, "text_model", te)
    mods = {"clip.embed": (core.embeddings, one), "clip.final": (core.final_layer_norm, one)}
    for i, layer in enumerate(core.encoder.layers):
        mods[f"clip.layer.{i}"] = (layer, first)
    out = {"ids_1": ids.to(torch.int32)}
    out.update(tap(te, mods, lambda: out.__setitem__("pooled", te(ids).pooler_output)))
    return out


def tap_t5(t5, ids):
    mods = {"t5.embed": (t5.encoder.embed_tokens, one), "t5.final": (t5.encoder.final_layer_norm, one)}
    for i, block in enumerate(t5.encoder.block):
        mods[f"t5.block.{i}"] = (block, first)
    out = {"ids_2": ids.to(torch.int32)}
    out.update(tap(t5, mods, lambda: t5(ids)))
    return out


def tap_dit(dit, inputs, h, w):
    """inputs: latents, prompt_embeds, pooled, timestep (F32, sigma * 1000), guidance (F32). Adds t and guidance_t:
    what the sinusoid sees after the pipeline's and the model's roundings."""
    dtype, device = inputs["latents"].dtype, inputs["latents"].device
    img_ids = torch.stack([torch.zeros(h * w), torch.arange(h).repeat_interleave(w), torch.arange(w).repeat(h)], 1).to(device)
    mods = {"flux.temb": (dit.time_text_embed, one), "flux.x_embedder": (dit.x_embedder, one),
            "flux.context_embedder": (dit.context_embedder, one), "flux.norm_out": (dit.norm_out, one),
            "velocity": (dit.proj_out, one)}
    for i, b in enumerate(dit.transformer_blocks):
        mods[f"flux.double.{i}"] = (b, lambda r: {".text": r[0], ".image": r[1]})
    for i, b in enumerate(dit.single_transformer_blocks):
        mods[f"flux.single.{i}"] = (b, lambda r: {"": torch.cat([r[0], r[1]], 1)})
    scalars = {}

    def call():
        t = inputs["timestep"].to(dtype)         # the pipeline's rounding; the model multiplies by 1000 again
        hook = dit.time_text_embed.register_forward_pre_hook(
            lambda m, a: scalars.update(t=a[0].float(), guidance_t=a[1].float()))
        dit(hidden_states=inputs["latents"], timestep=t / 1000, guidance=inputs["guidance"],
            pooled_projections=inputs["pooled"], encoder_hidden_states=inputs["prompt_embeds"],
            txt_ids=torch.zeros(inputs["prompt_embeds"].shape[1], 3, dtype=dtype, device=device), img_ids=img_ids.to(dtype))
        hook.remove()
    return {**inputs, **tap(dit, mods, call), **scalars}


def tap_vae(vae, z):
    """Pictures are stored channels last, [B,Y,X,C], as the C side holds them."""
    d = vae.decoder
    mods = {"vae.conv_in": (d.conv_in, one), "vae.mid": (d.mid_block, one), "vae.picture": (d.conv_out, one),
            "vae.norm_out": (d.conv_norm_out, lambda r: {"": torch.nn.functional.silu(r)})}
    for i, b in enumerate(d.up_blocks):
        mods[f"vae.up.{i}"] = (b, one)
    out = {"z": z, **tap(vae, mods, lambda: vae.decode(z))}
    return {k: v.permute(0, 2, 3, 1) for k, v in out.items()}


def schnell_variant(model_dir, out):
    """guidance_embeds false, no guidance tensors, static shift 1: what tests/golden.h makes in C."""
    shutil.copytree(model_dir, out)
    path = os.path.join(out, "transformer", "diffusion_pytorch_model.safetensors")
    t = {k: v for k, v in load_file(path).items() if "guidance_embedder" not in k}
    save_file(t, path, metadata={"format": "pt"})
    for name, change in (("transformer/config.json", {"guidance_embeds": False}),
                         ("scheduler/scheduler_config.json", {"shift": 1.0, "use_dynamic_shifting": False})):
        with open(os.path.join(out, name)) as f:
            j = {**json.load(f), **change}
        with open(os.path.join(out, name), "w") as f:
            json.dump(j, f, indent=2, sort_keys=True)


def golden_runs(model_dir, out, device, meta):
    runs = {"dev": dict(prompt=PROMPT, steps=3, seed=5, guidance=3.5),
            "cfg": dict(prompt=PROMPT, negative=NEGATIVE, cfg=2.5, steps=2, seed=6, guidance=2.0),
            "schnell": dict(prompt="a yellow triangle near two bright cats", steps=2, seed=7)}
    with tempfile.TemporaryDirectory() as tmp:
        schnell = os.path.join(tmp, "schnell")
        schnell_variant(model_dir, schnell)
        for key, args in runs.items():
            folder = schnell if key == "schnell" else model_dir
            for name, dtype in DTYPES.items():
                pipe = load(folder, dtype, device)

                def once(noise):
                    with rounding(next(pipe.transformer.parameters()).dtype, device):
                        return run_pipeline(pipe, text=TEXT, noise=noise, **args)

                def pack(r):
                    return pipe._pack_latents(r["noise"].float(), 1, *r["noise"].shape[1:])
                parts = (pipe.text_encoder, pipe.text_encoder_2, pipe.transformer, pipe.vae)
                r = once(None) if name == "f32" else with_twin(
                    once, parts, pack, ("velocity", "latents", "pooled", "prompt_embeds", "pixels"))
                save_run(os.path.join(out, f"{key}_{name}.safetensors"), r,
                         {**meta, **args, "height": HEIGHT, "width": WIDTH, "max_sequence_length": TEXT, "dtype": name},
                         f"{key} {name}")


def golden_parts(model_dir, out, device, meta):
    g = torch.Generator().manual_seed(11)
    clip_ids = torch.randint(0, 609, (2, 77), generator=g)
    clip_ids[:, 0], clip_ids[0, 13:], clip_ids[1, 60:] = 609, 610, 610
    t5_ids = torch.randint(3, 129, (1, 101), generator=g)
    t5_ids[0, 88], t5_ids[0, 89:] = 1, 0
    h, w = HEIGHT // 16, WIDTH // 16
    dit_in = {"latents": torch.randn(2, h * w, 24, generator=g),
              "prompt_embeds": torch.randn(2, TEXT, 60, generator=g), "pooled": torch.randn(2, 56, generator=g)}
    z = torch.randn(2, 6, 3, 4, generator=g) * 2.77 + 0.1159
    for name, dtype in DTYPES.items():
        pipe = load(model_dir, dtype, device)
        m = {**meta, "dtype": name}
        batch = clip_ids if name == "f32" else clip_ids[:1]
        save(f"{out}/clip_{name}.safetensors", rooms(tap_clip(pipe.text_encoder, batch.to(device))), m)
        save(f"{out}/t5_{name}.safetensors", rooms(tap_t5(pipe.text_encoder_2, t5_ids.to(device))), m)
        x = {k: v.to(torch.bfloat16).to(dtype).to(device) for k, v in dit_in.items()}
        t = {"timestep": torch.tensor([750.0, 333.0], device=device), "guidance": torch.tensor([3.5, 3.5], device=device)}
        a = {k: v[:1] for k, v in {**x, **t}.items()}
        save(f"{out}/dit_{name}.safetensors", rooms(tap_dit(pipe.transformer, a, h, w)), {**m, "grid": f"{h}x{w}"})
        two = tap_dit(pipe.transformer, {**x, **t}, h, w)
        keep = {*dit_in, *t, "t", "guidance_t", "velocity"}
        save(f"{out}/dit_batch2_{name}.safetensors", {k: v for k, v in two.items() if k in keep},
             {**m, "grid": f"{h}x{w}"})
        zz = z.to(torch.bfloat16).to(dtype).to(device)
        save(f"{out}/vae_{name}.safetensors", rooms(tap_vae(pipe.vae, zz[:1])), m)
        two = tap_vae(pipe.vae, zz)
        save(f"{out}/vae_batch2_{name}.safetensors", {k: two[k] for k in ("z", "vae.picture")}, m)


def golden_img2img(model_dir, out, device, meta):
    """Whole runs from photo.jpg in f32; the encoder, the draw and the noising in bf16, every tapped stage."""
    args = dict(prompt=PROMPT, steps=5, seed=8, guidance=3.5, height=48, width=32)
    pipe = image_pipeline(load(model_dir, torch.float32, device))
    runs, more = image_runs(lambda s: run_pipeline(pipe, text=TEXT, image=f"{out}/photo.jpg", strength=s, **args), STRENGTHS)
    save(f"{out}/img2img_flux_f32.safetensors", runs, {**meta, **more, **args, "image": "photo.jpg", "dtype": "f32",
                                                       "max_sequence_length": TEXT})
    pipe = load(model_dir, torch.bfloat16, device)
    g = torch.Generator().manual_seed(13)
    # a sigma whose difference from 1 bf16 cannot hold
    y, x, sigma = torch.arange(16.0)[:, None], torch.arange(24.0)[None], 0.2713
    waves = torch.stack([torch.sin(x / 3 + y / (5 + c)) for c in range(3)], -1)
    picture = (127.5 + 90 * waves + 12 * torch.randn(16, 24, 3, generator=g)).clamp(0, 255).to(torch.uint8)
    image = (2 * (picture.float() / 255) - 1).permute(2, 0, 1)[None].to(torch.bfloat16).to(device)
    r = encoder_stages(tap, pipe.vae, image)
    r["picture"] = picture
    draws = torch.randn(2, 1, 6, 2, 3, generator=g, dtype=torch.bfloat16).to(device)
    mean, logvar = r["vae.enc.moments"].permute(0, 3, 1, 2).chunk(2, 1)
    with rounding(torch.bfloat16, device):
        z = (mean + torch.exp(0.5 * torch.clamp(logvar, -30.0, 20.0)) * draws[0] - pipe.vae.config.shift_factor) \
            * pipe.vae.config.scaling_factor
        s = torch.tensor([sigma], device=device).to(torch.bfloat16)[:, None, None, None]
        start = s * draws[1] + (1.0 - s) * z
    save(f"{out}/img2img_bf16.safetensors", {**r, "image_noise": draws[0], "image_latents": z, "noise": draws[1], "start": start},
         {**meta, "dtype": "bf16", "sigma": sigma})


def golden(model_dir, out, device, meta):
    golden_parts(model_dir, out, device, meta)
    golden_runs(model_dir, out, device, meta)
    golden_img2img(model_dir, out, device, meta)
