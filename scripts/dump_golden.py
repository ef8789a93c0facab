#!/usr/bin/env python3
"""Runs a FLUX.1 folder through diffusers and writes every stage: the reference of --dump and of the goldens.

    python3 scripts/dump_golden.py MODEL_DIR OUT_DIR -p TEXT [--dtype bf16] [--device cuda] ...
        one NAME.safetensors per stage, as ./ditto generate --dump writes them, and meta.json
    python3 scripts/dump_golden.py --golden MODEL_DIR tests/golden
        all golden files of the tiny checkpoint (scripts/make_tiny_flux.py)

Stages: ids_1, ids_2 (I32 [B,T]), pooled, prompt_embeds, negative_pooled, negative_prompt_embeds, noise (unpacked
[B,C,h,w]), sigmas, timesteps (F32), velocity_NNN (what the scheduler gets, after CFG, packed [B,S,C]),
latents_NNN (after step NNN, packed), latents (the last, packed), pixels (U8 [H,W,3]).

Parts (clip_, t5_, dit_, vae_) hold the tensors that the C code shows to its tap, by the tap's names.
In bf16 files NAME@f32 is the f32 result from the SAME (bf16) inputs: for a block, its bf16 inputs; for a run,
the bf16 noise. The weights are then the bf16 values in f32.

Easy to get wrong: a bf16 run draws other noise than an f32 run of the same seed.
"""
import argparse
import contextlib
import copy
import json
import os
import shutil
import tempfile

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from img2img_taps import STRENGTHS, encoder_stages, from_image, start_stages
from img2img_taps import golden_runs as image_runs
from refprofile import rounding, versions

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
PROMPT = "a small red circle, and a large blue square on the left"
NEGATIVE = "a dark, blurry photo"
HEIGHT, WIDTH, TEXT = 80, 112, 19


def load(model_dir, dtype, device):
    from diffusers import FluxPipeline
    from transformers import CLIPTextModel, T5EncoderModel
    te = CLIPTextModel.from_pretrained(model_dir, subfolder="text_encoder", dtype=dtype,
                                       attn_implementation="eager")
    t5 = T5EncoderModel.from_pretrained(model_dir, subfolder="text_encoder_2", dtype=dtype,
                                        attn_implementation="eager")
    pipe = FluxPipeline.from_pretrained(model_dir, text_encoder=te, text_encoder_2=t5, torch_dtype=dtype)
    for part in (te, t5, pipe.transformer, pipe.vae):
        assert {p.dtype for p in part.parameters()} == {dtype}, type(part).__name__
    pipe.set_progress_bar_config(disable=True)
    return pipe.to(device)


def run_pipeline(pipe, prompt, negative=None, cfg=1.0, steps=3, seed=5, guidance=3.5, height=HEIGHT, width=WIDTH,
                 text=512, noise=None, image=None, strength=0.6):
    """One picture; -> dict of stages in pipeline order. noise: packed latents to start from. image: path; pipe is then
    the image-to-image pipeline."""
    from diffusers.utils import load_image
    out, seen = {}, []
    encode, pack, step = pipe.encode_prompt, pipe._pack_latents, pipe.scheduler.step

    def encode_tap(*args, **kwargs):
        r = encode(*args, **kwargs)
        pre = "" if "prompt_embeds" not in out else "negative_"
        out[pre + "prompt_embeds"], out[pre + "pooled"] = r[0], r[1]
        return r

    def pack_tap(latents, *args, **kwargs):
        out["noise"] = latents
        return pack(latents, *args, **kwargs)

    def step_tap(v, t, x, **kwargs):
        r = step(v, t, x, **kwargs)
        n = (pipe.scheduler.begin_index or 0) + len(seen)
        out[f"velocity_{n:03d}"], out[f"latents_{n:03d}"] = v, r[0]
        seen.append(n)
        return r
    pipe.encode_prompt, pipe.scheduler.step = encode_tap, step_tap
    if image is None:
        pipe._pack_latents = pack_tap
        start, stages = {"latents": noise}, contextlib.nullcontext()
    else:
        start, stages = {"image": load_image(image), "strength": strength}, start_stages(pipe, out)

    def ids_tap(name):
        def tap_ids(module, args):
            out["negative_" + name if name in out else name] = args[0].to(torch.int32)
            return None                          # a pre-hook's value would replace the input
        return tap_ids
    hooks = [m.register_forward_pre_hook(ids_tap(name))
             for m, name in ((pipe.text_encoder, "ids_1"), (pipe.text_encoder_2, "ids_2"))]
    try:
        with stages:
            picture = pipe(prompt=prompt, negative_prompt=negative, true_cfg_scale=cfg, num_inference_steps=steps,
                           guidance_scale=guidance, height=height, width=width, max_sequence_length=text,
                           generator=torch.Generator("cpu").manual_seed(seed), **start).images[0]
    finally:
        for h in hooks:
            h.remove()
        pipe.encode_prompt, pipe._pack_latents, pipe.scheduler.step = encode, pack, step
    out["sigmas"], out["timesteps"] = pipe.scheduler.sigmas.float(), pipe.scheduler.timesteps.float()
    out["latents"] = out[f"latents_{seen[-1]:03d}"]
    out["pixels"] = torch.from_numpy(np.array(picture))
    return out


def as_f32(x):
    if torch.is_tensor(x):
        return x.float() if x.is_floating_point() else x
    if isinstance(x, (list, tuple)):
        return type(x)(as_f32(v) for v in x)
    if isinstance(x, dict):
        return {k: as_f32(v) for k, v in x.items()}
    return x


def tap(model, modules, call):
    """Runs call(); -> {name: output}; for bf16 also {name@f32}: the f32 twin of the module on the same inputs.
    modules: name -> (module, pick) where pick maps the module's output to {suffix: tensor}."""
    out, f32 = {}, {}
    bf16 = next(model.parameters()).dtype == torch.bfloat16
    stack = []

    def hook(name, pick):
        def run(module, args, kwargs, result):
            for suffix, t in pick(result).items():
                out[name + suffix] = t.clone()
            if bf16:
                stack.append((name, pick, module, copy.deepcopy(args), copy.deepcopy(kwargs)))
        return run
    hooks = [m.register_forward_hook(hook(n, pick), with_kwargs=True) for n, (m, pick) in modules.items()]
    with torch.no_grad(), rounding(next(model.parameters()).dtype, str(next(model.parameters()).device)):
        call()
    for h in hooks:
        h.remove()
    for name, pick, module, args, kwargs in stack:
        twin = copy.deepcopy(module).float()
        with torch.no_grad():
            for suffix, t in pick(twin(*as_f32(args), **as_f32(kwargs))).items():
                f32[name + suffix + "@f32"] = t
    return {**out, **f32}


def one(x):
    return {"": x}


def tap_clip(te, ids):
    core = getattr(te, "text_model", te)
    mods = {"clip.embed": (core.embeddings, one), "clip.final": (core.final_layer_norm, one)}
    for i, layer in enumerate(core.encoder.layers):
        mods[f"clip.layer.{i}"] = (layer, lambda r: {"": r[0] if isinstance(r, tuple) else r})
    out = {"ids_1": ids.to(torch.int32)}
    out.update(tap(te, mods, lambda: out.__setitem__("pooled", te(ids).pooler_output)))
    return out


def tap_t5(t5, ids):
    mods = {"t5.embed": (t5.encoder.embed_tokens, one), "t5.final": (t5.encoder.final_layer_norm, one)}
    for i, block in enumerate(t5.encoder.block):
        mods[f"t5.block.{i}"] = (block, lambda r: {"": r[0] if isinstance(r, tuple) else r})
    out = {"ids_2": ids.to(torch.int32)}
    out.update(tap(t5, mods, lambda: t5(ids)))
    return out


def tap_dit(dit, inputs, h, w):
    """inputs: latents, prompt_embeds, pooled, timestep (F32, sigma * 1000), guidance (F32). Adds t and guidance_t:
    what the sinusoid sees after the pipeline's and the model's roundings."""
    dtype = inputs["latents"].dtype
    img_ids = torch.stack([torch.zeros(h * w), torch.arange(h).repeat_interleave(w), torch.arange(w).repeat(h)], 1)
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
            txt_ids=torch.zeros(inputs["prompt_embeds"].shape[1], 3, dtype=dtype), img_ids=img_ids.to(dtype))
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


def save(path, tensors, meta):
    """A safetensors file whose bytes depend on nothing but the contents (the library orders metadata at random)."""
    names = {torch.float32: "F32", torch.bfloat16: "BF16", torch.int32: "I32", torch.uint8: "U8"}
    header, payload = {"__metadata__": {k: str(v) for k, v in sorted(meta.items())}}, []
    at = 0
    for k in sorted(tensors):
        t = tensors[k].detach().cpu().contiguous()
        raw = t.flatten().view(torch.uint8).numpy().tobytes()
        header[k] = {"dtype": names[t.dtype], "shape": list(t.shape), "data_offsets": [at, at + len(raw)]}
        at += len(raw)
        payload.append(raw)
    head = json.dumps(header, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)
    with open(path, "wb") as f:
        f.write(len(head).to_bytes(8, "little") + head + b"".join(payload))


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
                with rounding(dtype, device):
                    r = run_pipeline(pipe, text=TEXT, **args)
                if name == "bf16":
                    for part in (pipe.text_encoder, pipe.text_encoder_2, pipe.transformer, pipe.vae):
                        part.float()
                    noise = pipe._pack_latents(r["noise"].float(), 1, *r["noise"].shape[1:])
                    twin = run_pipeline(pipe, text=TEXT, noise=noise, **args)
                    r.update({k + "@f32": v for k, v in twin.items()
                              if k.startswith(("velocity", "latents", "pooled", "prompt_embeds", "pixels"))})
                r.pop("latents")
                r.pop("latents@f32", None)
                save(os.path.join(out, f"{key}_{name}.safetensors"), r,
                     {**meta, **args, "height": HEIGHT, "width": WIDTH, "max_sequence_length": TEXT,
                      "dtype": name})
                px = r["pixels"].float()
                print(f"{key} {name}: pixel std {px.std():.1f}, clipped "
                      f"{((px == 0) | (px == 255)).float().mean():.4f}")
                assert px.std() >= 20 and ((px == 0) | (px == 255)).float().mean() < 0.05


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
        save(f"{out}/clip_{name}.safetensors", tap_clip(pipe.text_encoder, batch.to(device)), m)
        save(f"{out}/t5_{name}.safetensors", tap_t5(pipe.text_encoder_2, t5_ids.to(device)), m)
        x = {k: v.to(torch.bfloat16).to(dtype).to(device) for k, v in dit_in.items()}
        t = {"timestep": torch.tensor([750.0, 333.0]), "guidance": torch.tensor([3.5, 3.5])}
        a = {k: v[:1] for k, v in {**x, **t}.items()}
        save(f"{out}/dit_{name}.safetensors", tap_dit(pipe.transformer, a, h, w), {**m, "grid": f"{h}x{w}"})
        two = tap_dit(pipe.transformer, {**x, **t}, h, w)
        keep = {*dit_in, *t, "t", "guidance_t", "velocity"}
        save(f"{out}/dit_batch2_{name}.safetensors", {k: v for k, v in two.items() if k in keep},
             {**m, "grid": f"{h}x{w}"})
        zz = z.to(torch.bfloat16).to(dtype).to(device)
        save(f"{out}/vae_{name}.safetensors", tap_vae(pipe.vae, zz[:1]), m)
        two = tap_vae(pipe.vae, zz)
        save(f"{out}/vae_batch2_{name}.safetensors", {k: two[k] for k in ("z", "vae.picture")}, m)


def golden_img2img(model_dir, out, device, meta):
    """Whole runs from photo.jpg in f32; the encoder, the draw and the noising in bf16, every tapped stage."""
    from diffusers import FluxImg2ImgPipeline
    args = dict(prompt=PROMPT, steps=5, seed=8, guidance=3.5, height=48, width=32)
    pipe = from_image(FluxImg2ImgPipeline, load(model_dir, torch.float32, device))
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


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model")
    p.add_argument("out")
    p.add_argument("--golden", action="store_true")
    p.add_argument("-p", "--prompt")
    p.add_argument("-n", "--negative-prompt")
    p.add_argument("--cfg-scale", type=float, default=1.0)
    p.add_argument("--guidance", type=float, help="default: the pipeline's, 3.5, with an image 7")
    p.add_argument("--steps", type=int, default=28)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("-W", "--width", type=int, default=1024)
    p.add_argument("-H", "--height", type=int, default=1024)
    p.add_argument("-i", "--image", help="begin from this picture (FluxImg2ImgPipeline)")
    p.add_argument("--strength", type=float, default=0.6)
    p.add_argument("--max-sequence-length", type=int, default=512)
    p.add_argument("--dtype", choices=DTYPES, default="bf16")
    p.add_argument("--device", default="cpu")
    a = p.parse_args()
    torch.set_num_threads(min(2, torch.get_num_threads()))
    os.makedirs(a.out, exist_ok=True)
    meta = versions(a.device)
    if a.golden:
        golden_parts(a.model, a.out, a.device, meta)
        golden_runs(a.model, a.out, a.device, meta)
        golden_img2img(a.model, a.out, a.device, meta)
        return
    if a.guidance is None:
        a.guidance = 7.0 if a.image else 3.5
    pipe = load(a.model, DTYPES[a.dtype], a.device)
    if a.image:
        from diffusers import FluxImg2ImgPipeline
        pipe = from_image(FluxImg2ImgPipeline, pipe)
    with rounding(DTYPES[a.dtype], a.device):
        r = run_pipeline(pipe, a.prompt, a.negative_prompt, a.cfg_scale, a.steps, a.seed, a.guidance, a.height,
                         a.width, a.max_sequence_length, image=a.image, strength=a.strength)
    for k, v in r.items():
        save(os.path.join(a.out, k + ".safetensors"), {k: v}, meta)
    with open(os.path.join(a.out, "meta.json"), "w") as f:
        json.dump({**meta, "arguments": vars(a)}, f, indent=1, sort_keys=True)


if __name__ == "__main__":
    main()
